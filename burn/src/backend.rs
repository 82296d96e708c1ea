//! What is known of Burn's backends.

use crate::view::{self, Rule};
use burn_backend::Backend;

/// What remat has to know of a backend that Burn's traits do not say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    /// Which ops make views.
    pub views: Rule,
    /// Whether its tensors are in the host's memory: then an upload is not kept a second time so that it could be evicted, and
    /// numbers drawn on the host are there already.
    pub on_host: bool,
}

impl Facts {
    /// By the backend's name for itself.
    pub fn of<B: Backend>(device: &B::Device) -> Self {
        match B::name(device).as_str() {
            "flex" => Self { views: view::flex, on_host: true },
            "ndarray" => Self { views: view::never, on_host: true },
            _ => Self { views: view::never, on_host: false },
        }
    }
}
