use super::{Policy, View};
use crate::event::Hears;
use crate::graph::StorageKey;
use remat_rng::SplitMix64;

/// Policy with random scores, as the baseline that every other policy must beat.
#[derive(Debug)]
pub struct EvictAtRandom {
    numbers: SplitMix64,
}

impl EvictAtRandom {
    /// Builds the policy. Equal seeds give equal choices.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { numbers: SplitMix64::new(seed) }
    }
}

impl Policy for EvictAtRandom {
    fn hears(&self) -> Hears {
        Hears::NOTHING
    }

    fn score(&mut self, _candidate: StorageKey, _view: View<'_>) -> f64 {
        self.numbers.next() as f64
    }
}
