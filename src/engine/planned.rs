//! Support for steps that run by plan. The engine records a step on a tape, lends memory to a plan
//! for a whole step, and counts the work of planned steps.

use super::run::{Target, Targets};
use super::{Engine, Error, PathKey, Stats, StorageKey};
use crate::cost::Run;
use crate::device::{Call, Device, DeviceError, Place, Took};
use crate::error::RuntimeError;
use crate::event::{Cause, Event, ForRoom};
use crate::graph::{Owner, Residence};
use crate::guard::guarded;
use crate::layout::Layout;
use crate::op::Operation as _;
use crate::store::{Action, Before, Ends, Record, Script, Tape};
use remat_memory::Held;
use std::ops::Range;

/// Counters of work, to compare before and after a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Totals {
    pub ops: u64,
    pub cost: f64,
    pub for_room: ForRoom,
}

impl Totals {
    /// Totals as they would be in a larger memory, in which nothing is recomputed, evicted or
    /// moved.
    pub(crate) fn in_a_larger_memory(self) -> Self {
        Self { for_room: ForRoom::default(), ..self }
    }

    /// Totals as they would be if no block had been moved.
    pub(crate) fn without_moves(mut self) -> Self {
        (self.for_room.compactions, self.for_room.moved_bytes) = (0, 0);
        self
    }

    /// Work counted since `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let (now, then) = (&self.for_room, &before.for_room);
        Self {
            ops: self.ops - before.ops,
            cost: self.cost - before.cost,
            for_room: ForRoom {
                ops: now.ops - then.ops,
                bytes: now.bytes - then.bytes,
                cost: now.cost - then.cost,
                evictions: now.evictions - then.evictions,
                evicted_bytes: now.evicted_bytes - then.evicted_bytes,
                compactions: now.compactions - then.compactions,
                moved_bytes: now.moved_bytes - then.moved_bytes,
            },
        }
    }
}

/// Run of a kernel on operands at known addresses.
pub(crate) struct PlannedRun<'a> {
    /// Operands: inputs, then outputs.
    pub places: &'a [Place],
    pub layouts: &'a [Layout],
    pub inputs: usize,
    pub workspace: &'a Range<u64>,
    pub flops: f64,
}

impl<D: Device> Engine<D> {
    /// Whether a plan may begin: earlier commands left no unfinished work, and the engine keeps
    /// history. Unfinished work is a replacement that can still be undone, an unreported failure or
    /// a postponed upload. Lingering dead storages also count, as do held storages with a history
    /// from an earlier step.
    pub(crate) fn is_settled(&self) -> bool {
        self.enabled
            && self.owes_no_word()
            && self.replaced.is_empty()
            && self.leaves_to_be.is_empty()
            && self.crossing.is_empty()
            && self.lingering.is_empty()
            && self.reasons.is_empty()
    }

    pub(crate) fn totals(&self) -> Totals {
        let Stats { ops, base_cost: cost, recomputed_ops, recomputed_bytes, .. } = self.stats;
        let Stats { recompute_cost, evictions, evicted_bytes, .. } = self.stats;
        let Stats { compactions, moved_bytes, .. } = self.stats;
        let for_room = ForRoom {
            ops: recomputed_ops,
            bytes: recomputed_bytes,
            cost: recompute_cost,
            evictions,
            evicted_bytes,
            compactions,
            moved_bytes,
        };
        Totals { ops, cost, for_room }
    }

    /// Begins to record all actions of a step on a [`Tape`]. If memory `is_short`, first moves
    /// blocks so that the free bytes form one hole. Older blocks then do not lie between the tape's
    /// blocks.
    pub(crate) fn begin_tape(&mut self, is_short: bool) {
        let is_short = is_short && self.may_plan_recomputing();
        if is_short {
            let room = self.room();
            let moves = self.store.space.plan_compaction(room, |_| true).unwrap_or_default();
            let bytes = moves.iter().map(|step| step.bytes).sum();
            // A failed compaction is not an error: the turn merely cannot be planned.
            _ = if moves.is_empty() { Ok(()) } else { self.compact(&moves, room, bytes) };
        }
        self.store.tape = Some(Box::new(Tape::new(is_short)));
    }

    /// Begins a command on the tape, if there is a tape. Returns the current lengths of the tape's
    /// two records.
    pub(crate) fn next_on_tape(&mut self) -> Option<Ends> {
        self.store.tape.as_mut().map(|tape| tape.next_command())
    }

    /// Ends the tape and returns it. Frees all blocks that the tape kept.
    pub(crate) fn take_tape(&mut self) -> Option<Box<Tape>> {
        let mut tape = self.store.tape.take()?;
        tape.kept.drain(..).for_each(|held| self.store.give_back(held));
        Some(tape)
    }

    /// Frees the blocks that the tape keeps, because memory is short. Returns whether the tape kept
    /// any block.
    #[cold]
    pub(crate) fn take_back_kept(&mut self) -> bool {
        let kept = self.store.tape.as_mut().map(|tape| tape.take_back()).unwrap_or_default();
        kept.iter().for_each(|&held| self.store.give_back(held));
        !kept.is_empty()
    }

    /// Notes on the tape that a storage is evicted.
    #[cold]
    pub(super) fn write_down_eviction(&mut self, key: StorageKey, cause: Cause) {
        let Some(tape) = &mut self.store.tape else { return };
        let storage = self.store.graph.storage(key);
        let Residence::Resident(held) = storage.residence else { return };
        let is_held = storage.handles > 0;
        match cause {
            // Evictions of unheld storages depend only on the commands, not on the size of memory.
            Cause::Unheld => {}
            Cause::Wish => tape.plentiful.spoil_if(is_held, "a tensor was evicted by request"),
            Cause::Room | Cause::Threshold | Cause::Dead => {
                let for_threshold = is_held && cause == Cause::Threshold;
                tape.plentiful.spoil_if(for_threshold, "memory was above the eviction threshold");
                tape.evict(held, Owner::Storage(key).number(), is_held);
            }
            _ => tape.spoil("an op failed, or was put off"),
        }
    }

    /// Notes on the tape that no handle holds a storage any more.
    #[inline]
    pub(super) fn write_down_unheld(&mut self, key: StorageKey) {
        if let Some(tape) = &mut self.store.tape {
            std::hint::cold_path();
            tape.forget(self.store.graph.held(key), Owner::Storage(key).number());
        }
    }

    /// Length in bytes of the address range of a tape's blocks, and its first offset: see
    /// [`Tape::spread`]. Walks all storages.
    pub(crate) fn spread_of(&self, tape: &Tape) -> (u64, Option<u64>) {
        let storages =
            self.store.graph.storages().filter_map(|(key, _)| self.store.graph.held(key));
        let before = storages.filter(|&held| tape.short.taken(held).is_none());
        tape.spread(before.map(|held| self.offset(held)..self.offset(held) + held.bytes))
    }

    /// Owner of each block of `record` that existed before the tape; `None` if no storage owns the
    /// block.
    pub(crate) fn owners_of_before(&self, tape: &Tape, record: &Record) -> Vec<Option<StorageKey>> {
        let owner = |before: &Before| match tape.went.get(&before.held.block()) {
            Some((owner, _)) if before.went => Owner::storage(*owner),
            _ => Owner::storage(self.store.space.arena()?.owner(before.held.block())),
        };
        record.before.iter().map(owner).collect()
    }

    /// Granularity of addresses in bytes; `None` without an arena.
    pub(crate) fn granularity(&self) -> Option<u64> {
        self.store.space.arena().map(|arena| arena.granularity())
    }

    /// Offset of a block's first byte.
    pub(crate) fn offset(&self, held: Held) -> u64 {
        self.store.space.offset(held)
    }

    /// Whether steps that recompute may run by plan. True only without a recompute limit and
    /// without an eviction threshold.
    pub(crate) fn may_plan_recomputing(&self) -> bool {
        self.settings.recompute_limit.is_none() && self.settings.eviction_threshold.is_none()
    }

    /// Bytes that can be allocated without eviction, below the eviction threshold if it is set.
    pub(crate) fn room(&self) -> u64 {
        let threshold = self.settings.eviction_threshold.unwrap_or(u64::MAX);
        let below = threshold.saturating_sub(self.store.space.used());
        self.store.space.free_bytes().min(below)
    }

    /// Cost of all first runs so far, cost of all repeated runs so far, and number of steps run by
    /// plan.
    #[inline]
    pub(crate) const fn costs(&self) -> (f64, f64, u64) {
        (self.stats.base_cost, self.stats.recompute_cost, self.stats.planned_steps)
    }

    /// Number of storages evicted so far, as [`Stats::evictions`] counts them.
    pub(crate) fn evictions(&self) -> u64 {
        self.stats.evictions
    }

    /// Number of bytes moved so far by compaction.
    pub(crate) fn moved_bytes(&self) -> u64 {
        self.stats.moved_bytes
    }

    /// Lends a plan one block of `bytes` bytes and returns the block's first offset. Moves other
    /// blocks if necessary. Returns `None` if memory does not suffice.
    pub(crate) fn lend(&mut self, bytes: u64) -> Result<Option<u64>, Error> {
        if bytes > self.room() {
            return Ok(None);
        }
        let held = self.allocate(bytes, Owner::Scratch)?;
        self.store.lent = held;
        Ok(held.map(|held| self.store.space.offset(held)))
    }

    /// Takes back the lent block.
    pub(crate) fn take_back_lent(&mut self) {
        if let Some(held) = self.store.lent.take() {
            self.store.free(held);
        }
    }

    /// Runs an op on operands at known addresses, without any bookkeeping.
    ///
    /// # Errors
    /// If the device fails or panics.
    #[inline]
    pub(crate) fn run_planned(&mut self, op: &D::Op, run: &PlannedRun<'_>) -> Result<(), Error> {
        let &PlannedRun { places, layouts, inputs, workspace, flops } = run;
        let (read, made) = layouts.split_at(inputs);
        let (inputs, outputs) = places.split_at(inputs);
        let device = &mut self.store.device;
        let workspace = workspace.clone();
        let call = Call { op, inputs, outputs, flops, workspace, timed: false };
        if guarded(op.name(), || device.execute(call))? == Took::Later {
            self.await_time(Run::key_of(op.name(), read, made), None);
        }
        Ok(())
    }

    /// Whether an op needs exactly the workspace that its plan has for it.
    #[inline]
    pub(crate) fn goes_with(&self, op: &D::Op, run: &PlannedRun<'_>) -> bool {
        let (read, made) = run.layouts.split_at(run.inputs);
        let bytes = run.workspace.end - run.workspace.start;
        self.scratch_of(op, read, made).is_ok_and(|needed| needed == bytes)
    }

    /// Calls the device for work other than a run, at known addresses.
    pub(crate) fn ask_device<T>(
        &mut self,
        what: &str,
        ask: impl FnOnce(&mut D) -> Result<T, DeviceError>,
    ) -> Result<T, Error> {
        guarded(what, || ask(&mut self.store.device))
    }

    /// Marks the end of a step that runs by plan, with the work of the step.
    pub(crate) fn step_by_plan(&mut self, took: &Totals) {
        self.work.did_run(took.cost);
        self.repeats.did_run(took.ops);
        self.step();
    }

    /// Accounts for the work of a step that ran by plan.
    pub(crate) fn did_replay(&mut self, took: &Totals) {
        let &Totals { ops, cost, for_room } = took;
        self.store.now += cost + for_room.cost;
        self.tell(Event::DidReplay { ops, cost, for_room });
    }

    /// Begins a script, which updates only the tables: the device has already done the actions of
    /// the next commands. The script's commands include `marks` step marks, which were already
    /// counted.
    pub(crate) fn begin_script(&mut self, script: Script, marks: u64) {
        self.step -= marks;
        self.failures_before = self.failures.set_aside();
        self.store.script = Some(Box::new(script));
    }

    /// Repeats, only in the tables, an action of the plan that freed memory before the next command
    /// of the script.
    pub(crate) fn do_for_room(&mut self, action: &Action) {
        let Some(script) = &self.store.script else { return };
        let done = match (action, action.again()) {
            (&Action::Evict { block }, _) => {
                let key = script.owners.get(block as usize).copied().flatten();
                let known = key.filter(|&key| self.store.graph.storages.contains_key(key));
                known.is_some_and(|key| self.evict_again(key))
            }
            (&Action::Move { from, to, .. }, _) => self.move_again(from, to),
            (_, Some(first)) => {
                let path = script.firsts.get(first as usize).copied().flatten();
                let known = path.filter(|&path| self.store.graph.paths.contains_key(path));
                known.is_some_and(|path| self.run_again(path))
            }
            _ => false,
        };
        if let (false, Some(script)) = (done, &mut self.store.script) {
            let what = match action {
                Action::Evict { .. } => "a storage to evict does not exist, or cannot be evicted",
                Action::Move { .. } => "a storage to move does not exist",
                _ => "an op to run again does not exist, or failed",
            };
            script.lost.get_or_insert(what);
        }
    }

    /// Evicts the outputs of a failed rerun of the plan, because the rerun may have written over
    /// part of their bytes. The outputs are regenerated when needed.
    pub(crate) fn give_up_for_room(&mut self, action: &Action) {
        let (Some(script), Some(first)) = (&self.store.script, action.again()) else { return };
        let Some(path) = script.firsts.get(first as usize).copied().flatten() else { return };
        let outputs = self.store.graph.outputs_of(path);
        self.give_up(&outputs.into_iter().map(Target::Storage).collect::<Targets>());
    }

    fn evict_again(&mut self, key: StorageKey) -> bool {
        let may_go = self.store.graph.is_evictable(key);
        if may_go {
            self.evict(key, Cause::Room);
        }
        may_go
    }

    fn move_again(&mut self, from: u32, to: u32) -> bool {
        let store = &mut self.store;
        let Some(script) = &mut store.script else { return false };
        let owner = script.owners.get(from as usize).copied().flatten();
        let (Some(key), Some(offset)) = (owner, script.offset(to)) else { return false };
        let Some(held) = store.graph.storages.get(key).and_then(|_| store.graph.held(key)) else {
            return false;
        };
        script.owners[to as usize] = Some(key);
        store.space.move_to(held, offset);
        true
    }

    fn run_again(&mut self, path: PathKey) -> bool {
        let inputs = self.store.graph.inputs_of(path);
        self.touch(&inputs);
        if !inputs.iter().all(|&key| self.store.graph.is_resident(key)) {
            return false;
        }
        inputs.iter().for_each(|&key| self.store.pin(key));
        let ran = self.run_path(path);
        // Unpin the inputs, but drop no dead storage: the plan decides when dead storages are
        // evicted.
        inputs.iter().for_each(|&key| _ = self.store.unpin(key));
        ran.is_ok()
    }

    /// Ends the script. Breaks the engine if the tables and the memory do not agree.
    pub(crate) fn end_script(&mut self) {
        let Some(script) = self.store.script.take() else { return };
        self.failures.put_back(std::mem::take(&mut self.failures_before));
        self.take_over_planned(&script.firsts);
        for key in script.owners.iter().copied().flatten() {
            if self.store.graph.storages.contains_key(key) {
                self.drop_if_dead(key);
            }
        }
        let lost = match *script {
            Script { lost: Some(what), .. } => what,
            Script { done: 1.., .. } => "an action was not reported",
            Script { failure: Some(_), .. } => "an action failed without a report",
            _ => return,
        };
        let why = format!("a step differed from its plan: {lost}; please report this");
        self.broken.get_or_insert(RuntimeError::Stopped { why }.into());
    }
}
