//! Memory and cost of a program without evictions, and the full budget, which is 100 %.

use super::replay::{Machine, MemoryKind, Replay, Status};
use crate::command::{Command, RecordedCommand, RecordedProgram};
use crate::error::Error;
use crate::evict::PolicyKind;
use rayon::prelude::*;

/// Budget that is large enough for any trace, and small enough that sums do not overflow.
const UNLIMITED: u64 = 1 << 60;

/// Resolution of the search for a full budget. The distance between tried budgets is the peak
/// divided by this number.
const STEPS: u64 = 1000;

/// Number of consecutive tried budgets that must evict nothing. Just above the peak, budgets with
/// and without evictions alternate, so the next budget may evict although one budget does not.
const CLEAN: u64 = 20;

/// Memory and cost of a program when nothing is evicted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unbudgeted {
    /// Peak of the bytes in use, counted as in the DTR paper. A value made before the step is freed
    /// as soon as the program deletes it. Freeing such a value is safe, because without evictions
    /// nothing has to be regenerated.
    pub peak_bytes: u64,
    /// Smallest budget found under which no policy evicts anything. This budget is 100 % wherever
    /// budgets are given in percent.
    ///
    /// The full budget may exceed `peak_bytes` for two reasons. Values that cannot be regenerated
    /// are held longer than in the count of `peak_bytes`. If storages have addresses, holes can
    /// force an eviction although enough bytes are free.
    ///
    /// With addresses, the full budget is found to a thousandth of the peak. The tried budgets up
    /// to 2 % of the peak above the full budget evict nothing either.
    pub full_budget: u64,
    /// Cost of the whole program.
    pub cost: f64,
}

impl Replay {
    /// Memory and cost of `program` without evictions, with the memory kind and the costs of this
    /// replay.
    ///
    /// # Errors
    /// An error if the settings are invalid.
    pub fn unbudgeted(&self, program: &RecordedProgram) -> Result<Unbudgeted, Error> {
        let everything = self.without_limits();
        let (peak_bytes, cost) = everything.peak(program, false)?;
        let most_used = match has_constants(program) {
            true => self.most_used(program)?,
            false => peak_bytes,
        };
        let full_budget = match everything.memory {
            // Without addresses, there are no holes, so the peak suffices. A budget is at least one
            // byte.
            MemoryKind::Counted => most_used.max(1),
            MemoryKind::Arena => everything.full_budget(program, most_used)?,
        };
        Ok(Unbudgeted { peak_bytes, full_budget, cost })
    }

    /// Peak of the bytes in use when nothing is evicted. Values that exist before the program
    /// begins are never freed.
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
        // With this setting, even the smallest storage may be evicted. If nothing is evicted with
        // this setting, nothing is evicted with any other value.
        replay.settings.min_evict_bytes = Some(1);
        replay
    }

    /// Peak of the bytes in use, and the cost of the program.
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

    /// First tried budget, from `peak` on, that begins a sequence of [`CLEAN`] tried budgets
    /// without evictions.
    fn full_budget(&self, program: &RecordedProgram, peak: u64) -> Result<u64, Error> {
        let granule = self.memory.granule();
        let step = (peak / STEPS).next_multiple_of(granule).max(granule);
        let budget = |i: u64| peak.max(granule) + i * step;
        let (mut first, mut tried) = (0, 0);
        // The loop ends: in a budget of twice the highest offset, every storage has the same
        // address as without a limit.
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

    /// Whether a storage is evicted for lack of memory. All policies behave the same up to the
    /// first eviction.
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
