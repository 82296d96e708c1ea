//! Memory and cost of a program without evictions, and the budget that 100 % stands for.

use super::replay::{Machine, MemoryKind, Replay, Status};
use crate::command::{Command, RecordedCommand, RecordedProgram};
use crate::error::Error;
use crate::evict::PolicyKind;
use rayon::prelude::*;

/// Enough for any trace, and far from where sums overflow.
const UNLIMITED: u64 = 1 << 60;

/// Full budgets are looked for in steps of the peak over this.
const STEPS: u64 = 1000;

/// So many steps in a row must evict nothing. Budgets that evict come in bands just above the peak, so one
/// that does not says nothing of the next.
const CLEAN: u64 = 20;

/// What a program takes when nothing is evicted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unbudgeted {
    /// Most bytes in use at once: the DTR paper's figure. It lets values go that were there before the step
    /// began as soon as the program does, for where nothing is evicted nothing has to be made again.
    pub peak_bytes: u64,
    /// The smallest budget found under which nothing is evicted, by no policy: what 100 % stands for. It is
    /// above `peak_bytes` where values that nothing can bring back stay longer, and where storages have
    /// places, for holes can force an eviction although enough bytes are free. There it is found to a
    /// thousandth of the peak, and the budgets tried up to 2 % above evict nothing either. A rehearsal (`tune`) cannot afford as
    /// many, and takes the first of its budgets, a quarter of a percent apart, that evicts nothing: a little less at times.
    pub full_budget: u64,
    /// Cost of all of it.
    pub cost: f64,
}

impl Replay {
    /// What `program` takes when nothing is evicted, with the places and costs of this replay.
    ///
    /// # Errors
    /// If the settings make no sense.
    pub fn unbudgeted(&self, program: &RecordedProgram) -> Result<Unbudgeted, Error> {
        let everything = self.without_limits();
        let (peak_bytes, cost) = everything.peak(program, false)?;
        let most_used = match has_constants(program) {
            true => self.most_used(program)?,
            false => peak_bytes,
        };
        let full_budget = match everything.memory {
            // Free bytes are free bytes. A budget is at least one.
            MemoryKind::Counted => most_used.max(1),
            MemoryKind::Arena => everything.full_budget(program, most_used)?,
        };
        Ok(Unbudgeted { peak_bytes, full_budget, cost })
    }

    /// Most bytes in use at once where nothing is evicted, and what was there before the program stays.
    pub(super) fn most_used(&self, program: &RecordedProgram) -> Result<u64, Error> {
        Ok(self.without_limits().peak(program, true)?.0)
    }

    /// The same replay with all the memory there is, and no policy.
    fn without_limits(&self) -> Self {
        let mut replay = self.clone();
        replay.policy = PolicyKind::None;
        replay.budget = UNLIMITED;
        replay.changes.clear();
        replay.settings.eviction_threshold = None;
        replay.settings.recompute_limit = None;
        // If nothing is evicted although everything is worth it, nothing ever is.
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

    /// The first of the budgets from `peak` up from which on none evicts.
    fn full_budget(&self, program: &RecordedProgram, peak: u64) -> Result<u64, Error> {
        let granule = self.memory.granule();
        let step = (peak / STEPS).next_multiple_of(granule).max(granule);
        let budget = |i: u64| peak.max(granule) + i * step;
        let (mut first, mut tried) = (0, 0);
        // Ends: with twice the highest offset, everything lies where it does without a limit.
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

    /// Whether anything is evicted for want of memory. Up to the first time, all policies do the same.
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

/// Whether there is a value that was there before the recording began.
fn has_constants(program: &RecordedProgram) -> bool {
    let is_constant = |command: &RecordedCommand| match command {
        Command::Put { host, .. } => host.cost.is_none(),
        _ => false,
    };
    program.commands().iter().any(is_constant)
}
