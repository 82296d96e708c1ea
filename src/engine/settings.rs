//! Settings of an engine, and the construction of its memory space.

use crate::device::Memory;
use crate::error::{Error, RuntimeError};
use remat_memory::ByteSize;
use remat_memory::{Space, SplitRule};

/// Treatment of dead storages. A dead storage was regenerated only to recompute other storages, and
/// no later run of the regeneration reads it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dead {
    /// Keep dead storages while memory suffices, and evict them before any other storage. `Linger`
    /// is best at nearly every budget, because the next regeneration can use storages that the last
    /// regeneration left.
    #[default]
    Linger,
    /// Drop each storage as soon as it is dead.
    Drop,
    /// Keep dead storages until the policy chooses to evict them, as in the DTR paper.
    Keep,
}

/// Limit on the total recomputation since the engine was made.
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
    /// Threshold in bytes: before each op, the engine evicts until the bytes in use are at most the
    /// threshold. `None`: evict only when an allocation does not fit.
    pub eviction_threshold: Option<u64>,
    /// Size in bytes below which storages are evicted only when no larger candidate is left.
    /// `None`: 1/4096 of the budget.
    pub min_evict_bytes: Option<u64>,
    /// Treatment of dead storages: see [`Dead`].
    pub dead: Dead,
    /// Limit on total recomputation, beyond which commands fail. `None`: no limit.
    pub recompute_limit: Option<RecomputeLimit>,
    /// Limit on the cost of one regeneration, beyond which its command fails. The limit is a
    /// multiple of the cost of running each needed path once. A regeneration beyond the limit has
    /// so little memory that it recomputes some values again and again.
    pub regeneration_limit: f64,
    /// Rule that decides which part of a hole a new block takes. The rule has an effect only on a
    /// device with an arena.
    pub split_rule: SplitRule,
    /// Whether to allocate the device's memory region by region as it is needed, each region twice
    /// as large as the last. The engine evicts only once all memory is allocated. If the device has
    /// no more memory, the bytes allocated so far count as the budget. The crate's `cuda` device
    /// ignores the option: it allocates all of its memory at once, and frees it only when the
    /// device is dropped.
    pub allow_growth: bool,
    /// Share of evicted values whose bits are compared with the bits of the recomputed value: above
    /// 0 and at most 1. `None`: no values are compared.
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

    /// Checks that the settings make sense under the budget `budget`.
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

    /// Makes the empty space that manages the device's memory.
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
