//! Facts about Burn's backends.

use crate::view::{self, Rule};
use burn_backend::Backend;

/// Facts about a backend that remat needs and Burn's traits do not give.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    /// Rule for ops that make views.
    pub views: Rule,
    /// Whether tensors may share buffers beyond [`Facts::views`], and can tell whether a buffer is
    /// shared (`TensorMetadata::can_mut`). A tensor that shares a buffer without being known as a
    /// view is then copied.
    pub unshare: bool,
    /// Whether an op may write over its first input. True only if the strides of the output do not
    /// depend on that. Otherwise strides, and with them the order of sums, would depend on what was
    /// evicted.
    pub writes_over: bool,
    /// Whether tensors are in the host's memory. If so, uploads are not kept a second time for
    /// eviction, and random numbers drawn on the host need no copy.
    pub on_host: bool,
}

impl Facts {
    /// Facts about a backend, by the name that the backend gives.
    pub fn of<B: Backend>(device: &B::Device) -> Self {
        let unknown =
            Self { views: view::never, unshare: false, writes_over: true, on_host: false };
        match B::name(device).as_str() {
            "flex" => Self { views: view::flex, on_host: true, ..unknown },
            "ndarray" => Self { on_host: true, ..unknown },
            // wgpu, CUDA, ROCm, Metal and the CPU by CubeCL are one backend for these facts.
            name if name.starts_with("cubecl<") => {
                Self { views: view::cubecl, unshare: true, writes_over: false, ..unknown }
            }
            _ => unknown,
        }
    }
}
