//! Memory and cost of a program without evictions, and the budget that 100 % stands for.

use super::replay::{Machine, MemoryKind, Replay, Status};
use crate::command::{Command, RecordedCommand, RecordedProgram};
use crate::error::Error;
use crate::evict::PolicyKind;
use rayon::prelude::*;

/// Budget large enough for any trace, and far from the point where sums overflow.
const UNLIMITED: u64 = 1 << 60;

/// Resolution of the search for a full budget: the step is the peak over this number.
const STEPS: u64 = 1000;

/// Number of steps in a row that must evict nothing. Budgets that evict come in bands just above
/// the peak, so a single budget that evicts nothing says little about the next.
const CLEAN: u64 = 20;

/// Memory and cost of a program when nothing is evicted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unbudgeted {
    /// Most bytes in use at once, counted as in the DTR paper. A value from before the step is
    /// freed as soon as the program deletes it. That is safe, because without evictions nothing has
    /// to be regenerated.
    pub peak_bytes: u64,
    /// Smallest budget found under which no policy evicts anything: 100 % stands for it.
    ///
    /// The full budget is above `peak_bytes` for two reasons. Values that nothing can regenerate
    /// are held longer. And where storages have addresses, holes can force an eviction although
    /// enough bytes are free.
    ///
    /// With addresses, the full budget is found to a thousandth of the peak. The budgets tried up
    /// to 2 % above it evict nothing either. A rehearsal (`tune`) cannot afford as many runs. It
    /// takes the first of its budgets, a quarter of a percent apart, that evicts nothing, which may
    /// be a little less.
    pub full_budget: u64,
    /// Cost of the whole program.
    pub cost: f64,
}

impl Replay {
    /// Memory and cost of `program` without evictions, with the memory kind and the costs of this
    /// replay.
    ///
    /// # Errors
    /// An error of the settings.
    pub fn unbudgeted(&self, program: &RecordedProgram) -> Result<Unbudgeted, Error> {
        let everything = self.without_limits();
        let (peak_bytes, cost) = everything.peak(program, false)?;
        let most_used = match has_constants(program) {
            true => self.most_used(program)?,
            false => peak_bytes,
        };
        let full_budget = match everything.memory {
            // Without addresses there are no holes. A budget is at least one byte.
            MemoryKind::Counted => most_used.max(1),
            MemoryKind::Arena => everything.full_budget(program, most_used)?,
        };
        Ok(Unbudgeted { peak_bytes, full_budget, cost })
    }

    /// Most bytes in use at once when nothing is evicted. Values from before the program stay.
    pub(super) fn most_used(&self, program: &RecordedProgram) -> Result<u64, Error> {
        Ok(self.without_limits().peak(program, true)?.0)
    }

    /// The replay with unlimited memory and without a policy.
    fn without_limits(&self) -> Self {
        let mut replay = self.clone();
        replay.policy = PolicyKind::None;
        replay.budget = UNLIMITED;
        replay.changes.clear();
        replay.settings.eviction_threshold = None;
        replay.settings.recompute_limit = None;
        // With this setting everything is worth evicting. If nothing is evicted all the same,
        // nothing ever is.
        replay.settings.min_evict_bytes = Some(1);
        replay
    }

    /// Most bytes in use at once, and the cost.
    fn peak(&self, program: &RecordedProgram, keeps_constants: bool) -> Result<(u64, f64), Error> {
        let mut machine = Machine::new(self, program)?;
        machine.keeps_constants = keeps_constants;
        match machine.run(|_, _, _| {}) {
            Status::Done => {
                let stats = machine.stats();
                Ok((stats.peak_bytes, stats.base_cost))
            }
            Status::Failed { error, .. } => Err(error),
        }
    }

    /// First budget from `peak` up after which [`CLEAN`] tried budgets in a row evict nothing.
    fn full_budget(&self, program: &RecordedProgram, peak: u64) -> Result<u64, Error> {
        let granule = self.memory.granule();
        let step = (peak / STEPS).next_multiple_of(granule).max(granule);
        let budget = |i: u64| peak.max(granule) + i * step;
        let (mut first, mut tried) = (0, 0);
        // The loop ends: with twice the highest offset, every storage lies where it does without a
        // limit.
        while tried < first + CLEAN {
            let next = tried..first + CLEAN;
            tried = next.end;
            let evicts = |i| self.evicts_under(budget(i), program).map(|evicts| (i, evicts));
            let found = next.into_par_iter().map(evicts);
            let found = crate::sync::shared(|| found.collect::<Result<Vec<_>, Error>>())?;
            if let Some((last, _)) = found.iter().rfind(|(_, evicts)| *evicts) {
                first = last + 1;
            }
        }
        Ok(budget(first))
    }

    /// Whether anything is evicted for want of memory. All policies behave the same up to the first
    /// eviction.
    fn evicts_under(&self, budget: u64, program: &RecordedProgram) -> Result<bool, Error> {
        let mut replay = self.clone();
        replay.policy = PolicyKind::Lru;
        replay.budget = budget;
        let mut machine = Machine::new(&replay, program)?;
        let mut evictions = 0;
        for (at, command) in program.commands().iter().enumerate() {
            let failed = machine.execute(at).is_err();
            let before = std::mem::replace(&mut evictions, machine.stats().evictions);
            let wished = matches!(command, Command::Drop(_));
            if failed || evictions > before && !wished {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Whether a value existed before the recording began.
fn has_constants(program: &RecordedProgram) -> bool {
    let is_constant = |command: &RecordedCommand| match command {
        Command::Put { host, .. } => host.cost.is_none(),
        _ => false,
    };
    program.commands().iter().any(is_constant)
}
