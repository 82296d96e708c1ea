//! Makes a plan from the tape of a turn: finds an address for each block that was allocated.
//! Planners may be slow, so they run on their own thread while the next turn runs without a plan.

use super::boundary::{Boundary, Slots};
use super::turns::Turned;
use super::{Beside, Planning, StepPlan};
use crate::command::Command;
use crate::device::Device;
use crate::engine::Totals;
use crate::graph::{Graph, StorageKey};
use crate::store::{Action, Before, Ends, Life, Record, Spot, Tape};
use crate::sync::thread;
use remat_plan::{
    BestFit, Buffer, Exact, Gaps, Lifetimes, Limits, Placement, PlanError, Planned, Planner,
    Portfolio, Pushdown,
};
use rustc_hash::{FxHashMap, FxHashSet};
use std::panic::resume_unwind;
use std::sync::Arc;

/// A captured turn, complete, with its tape.
pub(super) struct Taken {
    pub tape: Tape,
    /// Lengths of the tape's two records after each command; see [`Tape`].
    pub ends: Vec<Ends>,
    pub before: Boundary,
    /// Engine totals before the turn.
    pub began: Totals,
    /// Storages made before the turn, in the order of their numbers in the tape's record
    /// `plentiful`. `None` for a storage without a slot.
    pub plentiful: Vec<Option<Root>>,
    /// Storages made before the turn, in the order of their numbers in the tape's record `short`.
    pub short: Vec<Option<Root>>,
    pub turned: Turned,
}

/// A storage made before the turn, and the slot of a tensor that used the storage.
pub(super) type Root = (StorageKey, u32);

/// A plan that planners are making on another thread. Dropping a `Preparing` abandons the plan.
#[derive(Debug)]
pub(super) struct Preparing(thread::JoinHandle<Option<StepPlan>>);

/// Input of the planners.
struct Draft {
    ends: Vec<Ends>,
    commands: Vec<Arc<super::TurnCommand>>,
    boundary: Boundary,
    heirs: Vec<(u32, u32)>,
    took: Totals,
    /// First byte of the tape's blocks; `None` if older blocks lay between the tape's blocks.
    start: Option<u64>,
    spread: u64,
    unheld_stays: Vec<bool>,
    gives_way: Vec<bool>,
    granule: u64,
    room: u64,
    /// Whether the plan may evict and recompute.
    may_recompute: bool,
    /// Whether recomputed values are verified.
    verifies: bool,
}

impl Preparing {
    /// Waits for the plan. `None` if the turn cannot be planned.
    pub fn finish(self) -> Option<StepPlan> {
        self.0.join().unwrap_or_else(|panic| resume_unwind(panic))
    }
}

impl<D: Device> Planning<D> {
    /// Begins to plan a turn of a kind. Returns `None` if the turn certainly cannot be planned.
    pub(super) fn prepare_plan(
        &self,
        beside: &mut Beside<'_, D>,
        kind: usize,
        taken: Taken,
    ) -> Option<Preparing> {
        let Taken { tape, ends, before, began, plentiful: roots, short: short_roots, turned } =
            taken;
        // The live tensors after the turn must equal the live tensors before it.
        self.boundary_of(beside.books).filter(|after| *after == before)?;
        let slots = &self.numbers.slots;
        let drawn = |record: &Record, roots: &[Option<Root>]| {
            Outside::new(record, roots, &turned, slots, beside.books.engine.graph())
        };
        let (of_plentiful, of_short) =
            (drawn(&tape.plentiful, &roots), drawn(&tape.short, &short_roots));
        if of_plentiful.is_none() && of_short.is_none() {
            return None;
        }
        let (spread, start) = beside.books.engine.spread_of(&tape);
        let Tape { plentiful, short, unheld_stays, gives_way, .. } = tape;
        let of = self.kinds.get(kind);
        let is_learnt = !beside.recognition.learning.improves() || of.is_frequent();
        let draft = Draft {
            commands: of.commands.clone(),
            took: beside.books.engine.totals().since(&began),
            granule: beside.books.engine.granularity()?,
            room: beside.books.engine.room(),
            verifies: beside.books.engine.verifies(),
            may_recompute: is_learnt && beside.books.engine.may_plan_recomputing(),
            start,
            spread,
            unheld_stays,
            gives_way,
            ends,
            boundary: before,
            heirs: turned.heirs,
        };
        let thread = thread::Builder::new().name("remat-plan".into());
        let both = ((plentiful, of_plentiful), (short, of_short));
        thread.spawn(move || draft.plan(both.0, both.1)).ok().map(Preparing)
    }
}

impl Draft {
    /// Plans the turn without evictions, if the planners find an address for each block. If they do
    /// not, and the plan may recompute, plans the turn with the evictions of the captured turn.
    fn plan(self, plentiful: Drawn, short: Drawn) -> Option<StepPlan> {
        let ends = self.ends.iter().map(|ends| ends.plentiful).collect();
        let planned = self.plan_of(plentiful, ends, true);
        if planned.is_some() || !self.may_recompute {
            return planned;
        }
        let ends = self.ends.iter().map(|ends| ends.short).collect();
        self.plan_of(short, ends, false)
    }

    fn plan_of(&self, drawn: Drawn, ends: Vec<usize>, is_plentiful: bool) -> Option<StepPlan> {
        let (record, outside) = drawn;
        let Self { boundary, took, .. } = self;
        let (granule, room) = (self.granule, self.room);
        let Outside { before, returns } = outside?;
        let firsts = firsts(&self.commands, &ends, &record.actions)?;
        let (offsets, bytes, moves) = match addresses(&record, granule, room, is_plentiful) {
            Ok(Some((offsets, bytes))) => (offsets, bytes, false),
            Ok(None) if !is_plentiful => {
                let (offsets, bytes) = as_it_was(&record, self.start?, granule, room)?;
                (offsets, bytes, true)
            }
            _ => return None,
        };
        let taken = (0..).zip(&record.lives);
        let taken = taken.filter(|(_, life)| life.is_used && life.moved_from.is_none());
        let took = if is_plentiful { took.in_a_larger_memory() } else { *took };
        Some(StepPlan {
            ends,
            boundary: *boundary,
            before,
            offsets,
            taken: taken.map(|(block, _)| block).collect(),
            bytes,
            unplanned_bytes: self.spread,
            returns,
            heirs: self.heirs.clone(),
            firsts,
            is_plentiful,
            // In a plan without evictions, every storage without handles is freed.
            unheld_stays: if is_plentiful { vec![] } else { self.unheld_stays.clone() },
            gives_way: self.gives_way.clone(),
            took: if moves { took } else { took.without_moves() },
            laid: None,
            verified: match self.verifies && !is_plentiful {
                true => verified(&record.actions),
                false => FxHashMap::default(),
            },
            actions: record.actions,
        })
    }
}

/// A record of a turn, with its effect on storages made before the turn; `None` if the record
/// cannot be planned.
type Drawn = (Record, Option<Outside>);

/// The effect of a turn on storages that were made before the turn.
struct Outside {
    /// Slot of a tensor that uses the storage, for each storage made before the turn, in the order
    /// of the record.
    before: Vec<u32>,
    /// Blocks that stay allocated at the end of the turn, each with the number of the older storage
    /// that the block replaces.
    returns: Vec<(u32, u32)>,
}

impl Outside {
    /// Returns `None` if the record is marked as impossible to plan, or if the storages after the
    /// turn do not match the storages before the turn.
    fn new(
        record: &Record,
        roots: &[Option<Root>],
        turned: &Turned,
        slots: &Slots,
        graph: &Graph,
    ) -> Option<Self> {
        if let Some(why) = record.spoiled {
            tracing::debug!(target: "remat", why, "a step cannot run by plan");
            return None;
        }
        let roots: Vec<Root> = roots.iter().copied().collect::<Option<_>>()?;
        let numbers: FxHashMap<StorageKey, u32> =
            (0..).zip(&roots).map(|(number, &(storage, _))| (storage, number)).collect();
        let (mut returns, mut seen) = (Vec::new(), FxHashSet::default());
        for &(slot, was) in &turned.left {
            let is = slots.storage(slot)?;
            if is == was || !seen.insert(is) {
                continue;
            }
            let (held, number) = (graph.held(is)?, *numbers.get(&was)?);
            let Before { held: before, went } = record.before[number as usize];
            if !went || held.bytes != before.bytes {
                return None;
            }
            returns.push((record.taken(held)?, number));
        }
        let left = record.lives.iter().filter(|life| life.upper.is_none()).count();
        let kept = record.before.iter().filter(|before| before.went).count();
        let before = roots.into_iter().map(|(_, slot)| slot).collect();
        (left == returns.len() && kept == returns.len()).then_some(Self { before, returns })
    }
}

/// Command index and call index of each first run and each upload.
///
/// Returns `None` if the actions of some command do not match the command. A command must have a
/// kernel for each call that runs one, an upload for each put, and a read for each get.
fn firsts(
    commands: &[Arc<super::TurnCommand>],
    ends: &[usize],
    actions: &[Action],
) -> Option<Vec<(u32, u32)>> {
    if commands.len() != ends.len() || ends.last() != Some(&actions.len()) {
        return None;
    }
    let mut begin = 0;
    let mut firsts = Vec::new();
    for (number, (command, &end)) in (0..).zip(commands.iter().zip(ends)) {
        let done = &actions[begin..end];
        begin = end;
        let own = || done.iter().filter(|action| !action.is_for_room());
        let count = |of: fn(&Action) -> bool| own().filter(|action| of(action)).count();
        let runs = count(|action| matches!(action, Action::Run { .. }));
        let uploads = count(|action| matches!(action, Action::Upload { .. }));
        let reads = count(|action| matches!(action, Action::Read { .. }));
        let calls = (0..).zip(command.calls().iter());
        let kernels = calls.filter(|(_, call)| call.outputs.written().is_some());
        let before = firsts.len();
        match **command {
            Command::Put { .. } => firsts.push((number, 0)),
            _ => firsts.extend(kernels.map(|(call, _)| (number, call))),
        }
        let (is_put, is_get) =
            (matches!(**command, Command::Put { .. }), matches!(**command, Command::Get(_)));
        if uploads != usize::from(is_put)
            || runs + uploads != firsts.len() - before
            || reads != usize::from(is_get)
        {
            return None;
        }
    }
    Some(firsts)
}

/// Actions whose outputs are evicted or made again, each with its index among the first runs.
fn verified(actions: &[Action]) -> FxHashMap<usize, u32> {
    // `firsts` has the actions that are first runs, and `makers` has for each block the first run
    // that made its value.
    let (mut firsts, mut makers) = (Vec::new(), FxHashMap::<u32, u32>::default());
    let mut wanted = FxHashSet::default();
    for (at, action) in actions.iter().enumerate() {
        let made = match action {
            Action::Run { operands, inputs, .. } => &operands[*inputs..],
            Action::Upload { to, .. } => std::slice::from_ref(to),
            Action::Evict { block } => {
                wanted.extend(makers.get(block).copied());
                continue;
            }
            Action::Move { from, to, .. } => {
                let maker = makers.get(from).copied();
                makers.extend(maker.map(|maker| (*to, maker)));
                continue;
            }
            Action::Copy { .. } | Action::Read { .. } => continue,
        };
        let maker = action.again().unwrap_or(firsts.len() as u32);
        if action.again().is_some() {
            wanted.insert(maker);
        } else {
            firsts.push(at);
        }
        for operand in made {
            if let Spot::Taken(block) = operand.spot {
                makers.insert(block, maker);
            }
        }
    }
    let actions =
        wanted.into_iter().filter_map(|first| Some((*firsts.get(first as usize)?, first)));
    actions.collect()
}

/// The address of each block, and the total number of bytes.
type Addresses = (Vec<Option<u64>>, u64);

/// Limit on the number of blocks for planners that take quadratic time. With more blocks, quadratic
/// planners would delay the step.
const MOST_IN_GAPS: usize = 4096;

/// Limit on how often the exact search may place a block. The exact search runs only if the quick
/// planners find no addresses.
const SEARCH: Exact = Exact { nodes: 50_000 };

/// Finds an address for each used block. A block and its moved copies get one address, so that no
/// move is needed. Returns `None` if the blocks do not fit in `room` bytes.
fn addresses(
    record: &Record,
    granule: u64,
    room: u64,
    searches: bool,
) -> Result<Option<Addresses>, PlanError> {
    // The buffer of each block. A moved block shares the buffer of the block from which it was
    // moved.
    let mut buffers: Vec<Buffer> = Vec::new();
    let mut buffer_of = Vec::with_capacity(record.lives.len());
    for life in &record.lives {
        let (lower, upper) = record.span(life);
        let before = life.moved_from.and_then(|block| buffer_of[block as usize]);
        buffer_of.push(match before {
            _ if !life.is_used => None,
            Some(buffer) => {
                let whole: &mut Buffer = &mut buffers[buffer];
                *whole = Buffer::new(whole.lower, upper, life.bytes).aligned(granule);
                before
            }
            None => {
                buffers.push(Buffer::new(lower, upper, life.bytes).aligned(granule));
                Some(buffers.len() - 1)
            }
        });
    }
    let lifetimes = Lifetimes::new(buffers)?;
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
    if searches && is_small && !best.as_ref().is_some_and(fits) {
        let search = Portfolio { exact: SEARCH };
        best = Some(better(best, search.plan(&lifetimes, &Limits::none())?));
    }
    let placement = best.filter(fits).map(|planned| planned.placement);
    Ok(placement.map(|placement| {
        let of = |buffer: Option<usize>| Some(placement.offsets()[buffer?]);
        (buffer_of.into_iter().map(of).collect(), placement.bytes())
    }))
}

/// The addresses that blocks had in the turn, if all lie within the `room` bytes that begin at
/// `start`.
fn as_it_was(record: &Record, start: u64, granule: u64, room: u64) -> Option<Addresses> {
    let used = || record.lives.iter().filter(|life| life.is_used);
    let buffers = used().map(|life| {
        let (lower, upper) = record.span(life);
        Buffer::new(lower, upper, life.bytes).aligned(granule)
    });
    let lifetimes = Lifetimes::new(buffers).ok()?;
    let offsets = used().map(|life| life.offset.checked_sub(start)).collect::<Option<Vec<_>>>()?;
    let placement = Placement::new(&lifetimes, offsets).ok()?;
    let bytes = placement.bytes();
    let of = |life: &Life| life.is_used.then(|| life.offset - start);
    (bytes <= room).then(|| (record.lives.iter().map(of).collect(), bytes))
}

/// The placement with fewer bytes; the first one on a tie.
fn better(first: Option<Planned>, second: Planned) -> Planned {
    match first {
        Some(first) if first.placement.bytes() <= second.placement.bytes() => first,
        _ => second,
    }
}
