//! From what a turn did to a plan: an address for each block that it took.

use super::boundary::Boundary;
use super::{Planning, StepPlan};
use crate::device::Device;
use crate::engine::Totals;
use crate::plan::{
    BestFit, Buffer, Exact, Gaps, Lifetimes, Limits, PlanError, Planned, Planner, Portfolio,
    Pushdown,
};
use crate::program::{Command, Driver};
use crate::store::{Action, Spot, Tape};

impl<D: Device> Driver<D> {
    /// A turn of this kind is over that was written down. How it can be done again, if it can.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn prepare_plan(
        &mut self,
        planning: &Planning<D>,
        kind: usize,
        tape: Tape,
        ends: Vec<usize>,
        before: Boundary,
        began: Totals,
        heirs: Vec<(u32, u32)>,
    ) -> Option<StepPlan> {
        let now = self.engine.totals();
        let after = Boundary::of(self, &planning.numbers)?;
        if tape.is_spoiled {
            return None;
        }
        let granule = self.engine.granularity()?;
        let returns = returns(&tape, &before, &after)?;
        are_as_commands(&planning.kinds.get(kind).commands, &ends, &tape.actions).then_some(())?;
        let (offsets, bytes) = addresses(&tape, granule, self.engine.room()).ok()??;
        Some(StepPlan {
            ends,
            actions: tape.actions,
            boundary: before,
            offsets,
            bytes,
            returns,
            heirs,
            ops: now.ops - began.ops,
            cost: now.cost - began.cost,
        })
    }
}

/// What takes the place of something that was there before: blocks that are left when the turn ends, and the storages whose
/// they are then. `None` if the tensors after the turn are not those before it.
fn returns(tape: &Tape, before: &Boundary, after: &Boundary) -> Option<Vec<(u32, u32)>> {
    if !before.is_like(after) {
        return None;
    }
    let mut returns = Vec::new();
    for (number, &held) in after.held.iter().enumerate() {
        let storage = number as u32;
        match tape.spot(held)? {
            Spot::Before(other) if other == storage => {}
            Spot::Taken(block) if tape.went[number] && held.bytes == before.held[number].bytes => {
                returns.push((block, storage));
            }
            _ => return None,
        }
    }
    let left = tape.lives.iter().filter(|life| life.upper.is_none()).count();
    let kept = tape.went.iter().filter(|went| **went).count();
    (left == returns.len() && kept == returns.len()).then_some(returns)
}

/// Whether each command did what is done for it again: a kernel for each call that has one, an upload for each value from
/// the host, a read for each that the host gets.
fn are_as_commands(commands: &[super::Planned], ends: &[usize], actions: &[Action]) -> bool {
    let mut begin = 0;
    commands.len() == ends.len()
        && commands.iter().zip(ends).all(|(command, &end)| {
            let done = &actions[begin..end];
            begin = end;
            let count = |of: fn(&Action) -> bool| done.iter().filter(|action| of(action)).count();
            let runs = count(|action| matches!(action, Action::Run { .. }));
            let uploads = count(|action| matches!(action, Action::Upload { .. }));
            let reads = count(|action| matches!(action, Action::Read { .. }));
            let kernels =
                command.calls().iter().filter(|call| call.outputs.written().is_some()).count();
            (runs, uploads, reads)
                == (
                    kernels,
                    usize::from(matches!(command, Command::Put { .. })),
                    usize::from(matches!(command, Command::Get(_))),
                )
        })
        && begin == actions.len()
}

/// With more blocks, planners that take the square of it would hold up the step.
const MOST_IN_GAPS: usize = 4096;

/// What is tried where the planners that are quick find no place, in placements of a block.
const SEARCH: Exact = Exact { nodes: 50_000 };

/// An address for each block taken, and the bytes of them all. `None` if there is no room for them, wherever they are.
fn addresses(tape: &Tape, granule: u64, room: u64) -> Result<Option<(Vec<u64>, u64)>, PlanError> {
    let end = tape.actions.len() + 1;
    let lifetimes = Lifetimes::new(tape.lives.iter().map(|life| {
        let upper = life.upper.unwrap_or(end).max(life.lower + 1);
        Buffer::new(life.lower as u64, upper as u64, life.bytes).aligned(granule)
    }))?;
    if lifetimes.load() > room {
        return Ok(None);
    }
    let mut quick: Vec<&dyn Planner> = vec![&Pushdown, &BestFit];
    let is_small = lifetimes.len() <= MOST_IN_GAPS;
    if is_small {
        quick.extend(Gaps::ALL.each_ref().map(|gaps| gaps as &dyn Planner));
    }
    let mut best: Option<Planned> = None;
    for planner in quick {
        if best.as_ref().is_none_or(|best| !best.proven) {
            best = Some(better(best, planner.plan(&lifetimes, &Limits::none())?));
        }
    }
    let fits = |planned: &Planned| planned.placement.bytes() <= room;
    if is_small && !best.as_ref().is_some_and(fits) {
        let search = Portfolio { exact: SEARCH };
        best = Some(better(best, search.plan(&lifetimes, &Limits::none())?));
    }
    let placement = best.filter(fits).map(|planned| planned.placement);
    Ok(placement.map(|placement| (placement.offsets().to_vec(), placement.bytes())))
}

/// What takes less; of two that take as much, the first.
fn better(first: Option<Planned>, second: Planned) -> Planned {
    match first {
        Some(first) if first.placement.bytes() <= second.placement.bytes() => first,
        _ => second,
    }
}
