//! Settings of an engine, and what it makes of its device's memory.

use crate::bytes::ByteSize;
use crate::device::Memory;
use crate::error::{Error, RuntimeError};
use crate::memory::{Space, SplitRule};

/// What becomes of a storage that was regenerated only as a step on the way, once nothing pins it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dead {
    /// It stays while there is room, and goes before anything else. Best of the three at nearly every budget: part of
    /// what one regeneration leaves is what the next one begins with.
    #[default]
    Linger,
    /// It is dropped at once.
    Drop,
    /// It stays until the policy picks it, as in the DTR paper.
    Keep,
}

/// How much recomputing is too much.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RecomputeLimit {
    /// This multiple of the cost of the work itself, as far as it is done.
    Multiple(f64),
    /// This cost in all, in units of the cost model.
    Cost(f64),
}

/// Limits and options of an [`Engine`](super::Engine).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Settings {
    /// Before each op, evict until no more bytes than this are used. `None`: evict only when an
    /// allocation does not fit.
    pub eviction_threshold: Option<u64>,
    /// Smaller storages are evicted only when nothing else is left. `None`: 1/4096 of the budget.
    pub min_evict_bytes: Option<u64>,
    /// What becomes of steps on the way.
    pub dead: Dead,
    /// Fail when recomputing has cost more in all. `None`: never.
    pub recompute_limit: Option<RecomputeLimit>,
    /// Fail a command when bringing back what it needs costs more than this multiple of running each path once
    /// that it takes: then memory is so short that it recomputes the same over and over.
    pub regeneration_limit: f64,
    /// How much of a hole a block takes, where the device has an arena.
    pub split_rule: SplitRule,
    /// Take the device's memory region by region, as it is needed, each twice as large as the one before; all of it is
    /// taken before anything is evicted. Where the device has no more, what there is counts as the budget. The crate's
    /// `cuda` device takes all of its memory at once either way, and gives none back before it is dropped.
    pub allow_growth: bool,
    /// Keep a hash of this share of what is evicted, and compare it when that is recomputed. `None`: of nothing.
    pub verify_recomputed: Option<f64>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            eviction_threshold: None,
            min_evict_bytes: None,
            dead: Dead::default(),
            recompute_limit: None,
            regeneration_limit: 100.0,
            split_rule: SplitRule::Exact,
            allow_growth: false,
            verify_recomputed: None,
        }
    }
}

impl Settings {
    pub(super) fn min_evict_bytes(&self, budget: u64) -> u64 {
        self.min_evict_bytes.unwrap_or(budget / 4096)
    }

    /// Whether they make sense under this budget.
    pub(crate) fn check(&self, budget: u64) -> Result<(), Error> {
        if budget == 0 {
            return wrong(
                "a budget of 0 bytes holds no tensor; give at least a few KiB".to_owned(),
            );
        }
        if let Some(threshold) = self.eviction_threshold.filter(|&t| t > budget) {
            let [threshold, budget] = ByteSize::apart(threshold, budget);
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
        if let Some(share) = self.verify_recomputed
            && !(share > 0.0 && share <= 1.0)
        {
            return wrong(format!(
                "the share of recomputed values to verify is {share}; give a number above 0 and at most 1, where 1 is all"
            ));
        }
        let is_none = |limit: f64| limit.is_nan() || limit < 0.0;
        match self.recompute_limit {
            Some(RecomputeLimit::Multiple(limit)) if is_none(limit) => wrong(format!(
                "the recompute limit is {limit}; give a multiple of the work, such as 1.0"
            )),
            Some(RecomputeLimit::Cost(limit)) if is_none(limit) => {
                wrong(format!("the recompute limit is {limit}; give a cost from 0 up"))
            }
            _ => Ok(()),
        }
    }

    /// What a device's memory is to the engine, empty.
    pub(super) fn space(&self, memory: Memory) -> Result<Space, Error> {
        let (bytes, granularity) = match memory {
            Memory::Owned { bytes } | Memory::Counted { bytes } => {
                return Ok(Space::counted(bytes));
            }
            Memory::Arena { bytes, granularity } => (bytes, granularity),
        };
        if !granularity.is_power_of_two() || granularity > 1 << 31 {
            return wrong(format!(
                "the device's granularity is {granularity}; make it a power of two up to 2^31"
            ));
        }
        Ok(match self.allow_growth {
            true => Space::growing(bytes, granularity, self.split_rule),
            false => Space::placed(bytes, granularity, self.split_rule),
        })
    }
}

fn wrong<T>(message: String) -> Result<T, Error> {
    Err(RuntimeError::Settings(message).into())
}
