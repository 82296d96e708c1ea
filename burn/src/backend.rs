//! Properties of Burn's backends.

use crate::view::{self, Rule};
use burn_backend::Backend;

/// Properties of a backend that Burn's traits do not provide.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    /// Rule for ops that make views.
    pub views: Rule,
    /// Whether tensors that are not views by [`Facts::views`] may still share buffers. Tensors that
    /// share a buffer are then copied. `TensorMetadata::can_mut` of the backend returns whether a
    /// buffer is unshared.
    pub unshare: bool,
    /// Whether an op may overwrite its first input. False for backends in which overwriting changes
    /// the strides of the output. If a backend of this kind overwrote inputs, the strides, and the
    /// order of additions in sums, would depend on evictions.
    pub writes_over: bool,
    /// Whether tensors are in the host's memory. If so, the session keeps no second copy of an
    /// upload for restoring it, and random numbers drawn on the host need no copy to the device.
    pub on_host: bool,
}

impl Facts {
    /// Returns the properties of a backend, selected by the backend's name.
    pub fn of<B: Backend>(device: &B::Device) -> Self {
        let unknown =
            Self { views: view::never, unshare: false, writes_over: true, on_host: false };
        match B::name(device).as_str() {
            "flex" => Self { views: view::flex, on_host: true, ..unknown },
            "ndarray" => Self { on_host: true, ..unknown },
            // CubeCL's wgpu, CUDA, ROCm, Metal and CPU backends have the same properties.
            name if name.starts_with("cubecl<") => {
                Self { views: view::cubecl, unshare: true, writes_over: false, ..unknown }
            }
            _ => unknown,
        }
    }
}
