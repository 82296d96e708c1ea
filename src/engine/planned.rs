//! What an engine does for a step that is known ahead: it writes down what one took, lends memory for all of it, and keeps
//! out of the way while others run by plan.

use super::{Engine, Error, StorageKey};
use crate::cost::Run;
use crate::device::{Call, Device, DeviceError, Place, Took};
use crate::error::RuntimeError;
use crate::event::{Cause, Event};
use crate::graph::Residence;
use crate::guard::guarded;
use crate::layout::Layout;
use crate::memory::Held;
use crate::op::Operation as _;
use crate::store::{Owner, Script, Tape};
use std::ops::Range;

/// Counters that tell what a step took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Totals {
    pub ops: u64,
    pub cost: f64,
}

/// A kernel on operands whose places are known.
pub(crate) struct PlannedRun<'a> {
    /// Inputs, then outputs.
    pub places: &'a [Place],
    pub layouts: &'a [Layout],
    pub inputs: usize,
    pub workspace: &'a Range<u64>,
    pub flops: f64,
}

impl<D: Device> Engine<D> {
    /// Whether nothing waits for what comes: no replacement may be taken back, no failure is new, no leaf waits for room,
    /// and history is kept.
    pub(crate) fn is_settled(&self) -> bool {
        self.enabled
            && self.broken.is_none()
            && self.replaced.is_empty()
            && self.leaves_to_be.is_empty()
            && self.crossing.is_empty()
            && self.lingering.is_empty()
            && self.failures.of_step().is_none()
            && self.reasons.is_empty()
    }

    pub(crate) fn totals(&self) -> Totals {
        Totals { ops: self.stats.ops, cost: self.stats.base_cost }
    }

    /// Writes down what is done from now on. `before` are the storages that there are, all resident.
    pub(crate) fn begin_tape(&mut self, before: &[StorageKey]) {
        let held = before.iter().filter_map(|&key| self.store.graph.held(key));
        self.store.tape = Some(Box::new(Tape::new(held)));
    }

    pub(crate) fn tape(&self) -> Option<&Tape> {
        self.store.tape.as_deref()
    }

    pub(crate) fn take_tape(&mut self) -> Option<Box<Tape>> {
        self.store.tape.take()
    }

    /// For the tape: a storage is evicted.
    #[cold]
    pub(super) fn write_down_eviction(&mut self, key: StorageKey, cause: Cause) {
        let Some(tape) = &mut self.store.tape else { return };
        let storage = self.store.graph.storage(key);
        let Residence::Resident(held) = storage.residence else { return };
        match cause {
            // It may be needed to bring others back, which is not to be seen.
            _ if storage.handles == 0 => {}
            Cause::Room => tape.evict(held, Owner::Storage(key).number()),
            _ => tape.is_spoiled = true,
        }
    }

    /// For the tape: nobody holds a storage any more.
    #[inline]
    pub(super) fn write_down_unheld(&mut self, key: StorageKey) {
        if let Some(tape) = &mut self.store.tape {
            tape.forget(self.store.graph.held(key), Owner::Storage(key).number());
        }
    }

    /// The granule of addresses; `None` where there are none.
    pub(crate) fn granularity(&self) -> Option<u64> {
        self.store.space.arena().map(|arena| arena.granularity())
    }

    /// First byte of a block.
    pub(crate) fn offset(&self, held: Held) -> u64 {
        self.store.space.offset(held)
    }

    /// Bytes that are free.
    pub(crate) fn room(&self) -> u64 {
        self.store.space.free_bytes()
    }

    /// Bytes moved so far to make room.
    pub(crate) fn moved_bytes(&self) -> u64 {
        self.stats.moved_bytes
    }

    /// Lends so many bytes in one piece, and returns the first of them. Moves blocks for it where that is needed. `None` if
    /// there is no room.
    pub(crate) fn lend(&mut self, bytes: u64) -> Result<Option<u64>, Error> {
        if bytes > self.room() {
            return Ok(None);
        }
        let held = self.allocate(bytes, Owner::Scratch)?;
        self.store.lent = held;
        Ok(held.map(|held| self.store.space.offset(held)))
    }

    /// Takes back what was lent.
    pub(crate) fn take_back_lent(&mut self) {
        if let Some(held) = self.store.lent.take() {
            self.store.free(held);
        }
    }

    /// Runs an op on operands whose places are known, and on nothing else.
    ///
    /// # Errors
    /// If that failed.
    #[inline]
    pub(crate) fn run_planned(&mut self, op: &D::Op, run: &PlannedRun<'_>) -> Result<(), Error> {
        let &PlannedRun { places, layouts, inputs, workspace, flops } = run;
        let (read, made) = layouts.split_at(inputs);
        let (inputs, outputs) = places.split_at(inputs);
        let device = &mut self.store.device;
        let workspace = workspace.clone();
        let call = Call { op, inputs, outputs, flops, workspace, timed: false };
        if guarded(op.name(), || device.execute(call))? == Took::Later {
            let run = Run { op: op.name(), inputs: read, outputs: made, flops, seconds: None };
            self.await_time(run.key(), None);
        }
        Ok(())
    }

    /// Whether an op needs the workspace that it is given.
    #[inline]
    pub(crate) fn goes_with(&self, op: &D::Op, run: &PlannedRun<'_>) -> bool {
        let (read, made) = run.layouts.split_at(run.inputs);
        let bytes = run.workspace.end - run.workspace.start;
        self.scratch_of(op, read, made).is_ok_and(|needed| needed == bytes)
    }

    /// Has the device do something else with places that are known.
    pub(crate) fn ask_device<T>(
        &mut self,
        what: &str,
        ask: impl FnOnce(&mut D) -> Result<T, DeviceError>,
    ) -> Result<T, Error> {
        guarded(what, || ask(&mut self.store.device))
    }

    /// A step ran by plan, which took so much.
    pub(crate) fn did_replay(&mut self, ops: u64, cost: f64) {
        self.store.now += cost;
        self.tell(Event::DidReplay { ops, cost });
    }

    /// What is executed from now on was done on the device already, as the script says. So many marks of a step come in it
    /// that were counted.
    pub(crate) fn begin_script(&mut self, script: Script, marks: u64) {
        self.step -= marks;
        self.store.script = Some(Box::new(script));
    }

    /// All of that was executed.
    pub(crate) fn end_script(&mut self) {
        let ended = self.store.script.take();
        let agrees =
            |script: Box<Script>| !script.is_lost && script.done == 0 && script.failure.is_none();
        if !ended.is_none_or(agrees) {
            let why = "a step that ran by plan was not as planned; please report this".into();
            self.broken.get_or_insert(RuntimeError::Stopped { why }.into());
        }
    }
}
