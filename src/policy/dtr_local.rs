use super::{Policy, View};
use crate::engine::StorageKey;

/// `own cost / (bytes * staleness)`: h_DTR without its neighbourhood (Kirisame et al., ICLR 2021).
#[derive(Debug, Default)]
pub struct DtrLocal;

impl Policy for DtrLocal {
    fn score(&mut self, candidate: StorageKey, view: View<'_>) -> f64 {
        view.h_dtr(candidate, 0.0)
    }
}
