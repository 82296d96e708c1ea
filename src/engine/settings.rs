//! Settings of an engine, and the making of its memory space.

use crate::device::Memory;
use crate::error::{Error, RuntimeError};
use remat_memory::ByteSize;
use remat_memory::{Space, SplitRule};

/// Treatment of dead storages: storages that were regenerated only to recompute others, and that no
/// run to come reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dead {
    /// Keep while there is room, and evict before anything else. The best variant at nearly every
    /// budget: the next regeneration can use storages that the last one left.
    #[default]
    Linger,
    /// Drop as soon as the storage is dead.
    Drop,
    /// Keep until the policy's choice, as in the DTR paper.
    Keep,
}

/// Limit on all recomputation since the engine was made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RecomputeLimit {
    /// Limit on the cost of repeated runs, as a multiple of the cost of all first runs so far.
    Multiple(f64),
    /// Limit on the total cost of repeated runs, in units of the cost model.
    Cost(f64),
}

/// Limits and options of an [`Engine`](super::Engine).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Settings {
    /// Threshold in bytes: before each op, the engine evicts until at most this number of bytes is
    /// in use. `None`: evict only when an allocation finds no room.
    pub eviction_threshold: Option<u64>,
    /// Size in bytes below which storages are evicted only when nothing else is left. `None`:
    /// 1/4096 of the budget.
    pub min_evict_bytes: Option<u64>,
    /// Treatment of dead storages: see [`Dead`].
    pub dead: Dead,
    /// Limit on recomputing beyond which commands fail. `None`: no limit.
    pub recompute_limit: Option<RecomputeLimit>,
    /// Limit on one regeneration beyond which its command fails: a multiple of the cost of running
    /// each needed path once. Beyond it, memory is so short that the same values are recomputed
    /// over and over.
    pub regeneration_limit: f64,
    /// Rule that says which part of a hole a new block takes. Used where the device has an arena.
    pub split_rule: SplitRule,
    /// Whether to take the device's memory region by region as it is needed, each region twice as
    /// large as the last. All memory is taken before anything is evicted. If the device has no
    /// more, the bytes taken count as the budget. The crate's `cuda` device takes all of its memory
    /// at once, with or without this option, and gives none back before it is dropped.
    pub allow_growth: bool,
    /// Share of evicted values whose bits are kept and compared with the recomputed value, above 0
    /// up to 1. `None`: nothing is compared.
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

    /// Checks that the settings make sense under this budget.
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
                "the regeneration limit is {limit}; give a number of at least 1.0, because each op has to run once"
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

    /// Makes the empty space in which the engine manages the device's memory.
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
