//! Settings of an engine.

use crate::bytes::ByteSize;
use crate::error::{Error, RuntimeError};
use crate::memory::{Space, SplitRule};

/// What becomes of a storage that was regenerated only as a step on the way, once nothing pins it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dead {
    /// It is dropped at once. Usually far better at tight budgets.
    #[default]
    Drop,
    /// It stays until the policy picks it, as in the DTR paper.
    Keep,
}

/// Whether storages have places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// In a best-fit arena of the budget's size: holes, free neighbours and compaction count.
    #[default]
    Arena,
    /// Bytes are only counted, as in the DTR paper's simulator: for devices without memory alone.
    Counted,
}

/// Limits and options of an [`Engine`](super::Engine).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Settings {
    /// Bytes of device memory that may be held, at any instant, workspaces included.
    pub budget: u64,
    /// Before each op, evict until no more bytes than this are used. `None`: evict only when an
    /// allocation does not fit.
    pub eviction_threshold: Option<u64>,
    /// Smaller storages are evicted only when nothing else is left. By default 1/4096 of the budget.
    pub min_evict_bytes: u64,
    /// What becomes of steps on the way.
    pub dead: Dead,
    /// Fail when the cost of recomputing exceeds this multiple of the cost of the work itself. `None`:
    /// never.
    pub recompute_limit: Option<f64>,
    /// Fail a command when bringing back what it needs costs more than this multiple of running each path once
    /// that it takes: then memory is so short that it recomputes the same over and over.
    pub regeneration_limit: f64,
    /// The cost of the work itself, where it is known ahead. `None`: that of the work done so far.
    pub work: Option<f64>,
    /// Whether storages have places.
    pub placement: Placement,
    /// How much of a hole a block takes.
    pub split_rule: SplitRule,
    /// Take the device's memory region by region, as it is needed, each twice as large as the one before; all of it is
    /// taken before anything is evicted. Where the device has no more, what there is counts as the budget.
    pub allow_growth: bool,
    /// Arena granularity in bytes.
    pub granularity: u64,
}

impl Settings {
    /// A budget in bytes, and defaults for the rest.
    #[must_use]
    pub const fn new(budget: u64) -> Self {
        Self {
            budget,
            eviction_threshold: None,
            min_evict_bytes: budget / 4096,
            dead: Dead::Drop,
            recompute_limit: None,
            regeneration_limit: 100.0,
            work: None,
            placement: Placement::Arena,
            split_rule: SplitRule::Exact,
            allow_growth: false,
            granularity: crate::memory::ALIGNMENT,
        }
    }

    /// Empty memory of the budget's size.
    pub(super) fn space(&self) -> Space {
        match self.placement {
            Placement::Arena if self.allow_growth => {
                Space::growing(self.budget, self.granularity, self.split_rule)
            }
            Placement::Arena => Space::placed(self.budget, self.granularity, self.split_rule),
            Placement::Counted => Space::counted(self.budget),
        }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let wrong = |message: String| Err(RuntimeError::Settings(message).into());
        if self.budget == 0 {
            return wrong(
                "a budget of 0 bytes holds no tensor; give at least a few KiB".to_owned(),
            );
        }
        if !self.granularity.is_power_of_two() || self.granularity > 1 << 31 {
            let granularity = self.granularity;
            return wrong(format!(
                "the granularity is {granularity}; give a power of two up to 2^31"
            ));
        }
        if let Some(threshold) = self.eviction_threshold.filter(|&t| t > self.budget) {
            let (threshold, budget) = (ByteSize(threshold), ByteSize(self.budget));
            return wrong(format!(
                "the eviction threshold ({threshold}) is above the budget ({budget}) and would never act; lower it"
            ));
        }
        if self.regeneration_limit.is_nan() || self.regeneration_limit < 1.0 {
            let limit = self.regeneration_limit;
            return wrong(format!(
                "the regeneration limit is {limit}; give a number from 1.0 up: each path has to run once"
            ));
        }
        if let Some(limit) = self.recompute_limit.filter(|limit| limit.is_nan() || *limit < 0.0) {
            return wrong(format!(
                "the recompute limit is {limit}; give a multiple of the work, such as 1.0"
            ));
        }
        Ok(())
    }
}
