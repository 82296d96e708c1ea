//! Facts about Burn's backends.

use crate::view::{self, Rule};
use burn_backend::Backend;

/// Facts about a backend that remat needs and Burn's traits do not give.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    /// Rule for ops that make views.
    pub views: Rule,
    /// Whether tensors may share buffers although [`Facts::views`] does not call them views. Such
    /// tensors are copied. `TensorMetadata::can_mut` of the backend tells whether a buffer is
    /// shared.
    pub unshare: bool,
    /// Whether an op may write over its first input. False for backends whose output then has other
    /// strides. There, the strides, and with them the order of sums, would depend on evictions.
    pub writes_over: bool,
    /// Whether tensors are in the host's memory. If so, the session keeps no second copy of an
    /// upload from which an evicted tensor could be restored. Random numbers drawn on the host need
    /// no copy to the device.
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
            // CubeCL's wgpu, CUDA, ROCm, Metal and CPU backends have the same facts.
            name if name.starts_with("cubecl<") => {
                Self { views: view::cubecl, unshare: true, writes_over: false, ..unknown }
            }
            _ => unknown,
        }
    }
}
