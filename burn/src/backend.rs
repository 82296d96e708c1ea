//! What is known of Burn's backends.

use crate::view::{self, Rule};
use burn_backend::Backend;

/// What remat has to know of a backend that Burn's traits do not say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    /// Which ops make views.
    pub views: Rule,
    /// Whether more ops may make views than [`Facts::views`] says, and tensors can tell whether anybody else has their buffer
    /// (`TensorMetadata::can_mut`): what shares one without being known to is copied then.
    pub unshare: bool,
    /// Whether an op may write over its first input: only where strides of what it makes are the same either way. Else they, and
    /// the order of sums that follows from them, would depend on what was evicted.
    pub writes_over: bool,
    /// Whether its tensors are in the host's memory: then an upload is not kept a second time so that it could be evicted, and
    /// numbers drawn on the host are there already.
    pub on_host: bool,
}

impl Facts {
    /// By the backend's name for itself.
    pub fn of<B: Backend>(device: &B::Device) -> Self {
        let unknown =
            Self { views: view::never, unshare: false, writes_over: true, on_host: false };
        match B::name(device).as_str() {
            "flex" => Self { views: view::flex, on_host: true, ..unknown },
            "ndarray" => Self { on_host: true, ..unknown },
            // wgpu, CUDA, ROCm, Metal and the CPU by CubeCL: one backend, whatever it runs on.
            name if name.starts_with("cubecl<") => {
                Self { views: view::cubecl, unshare: true, writes_over: false, ..unknown }
            }
            _ => unknown,
        }
    }
}
