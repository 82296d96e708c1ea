//! One run of an op: blocks for outputs, kernel, and cost.
//!
//! All ops, uploads and updates in place run in this file. An update is a run whose first outputs
//! take over an input's storage, or begin as a copy of an input. An op that writes over a value
//! (`over.rs`) takes over the input's block, or begins as a copy of the input.

use super::{Engine, Error, LastRun, PathKey, Residence, StorageKey};
use crate::cost::Run;
use crate::device::{Device, Took};
use crate::error::{CallbackError, OutOfMemory};
use crate::event::{Cause, Event};
use crate::evict::{Need, Want};
use crate::graph::Owner;
use crate::guard::caught;
use crate::hint::cold;
use crate::layout::{Layout, bytes_of};
use crate::op::Operation as _;
use crate::store::{Body, Launch, Work};
use remat_memory::Held;
use smallvec::SmallVec;

/// Block of each output.
pub(super) type Blocks = SmallVec<[Held; 2]>;

/// Inputs that are read from a copy: input position, and block of the copy.
type Copies = SmallVec<[(usize, Held); 1]>;

/// Destination of an output.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    /// Storage that gets the output. If the storage is resident, its bytes are written over. A
    /// repeated run writes the same bits, and an update or an op of `over.rs` writes the new value.
    Storage(StorageKey),
    /// New storage that begins as a copy of an input. The op reads the copy in place of the input.
    CopyOf {
        /// Position of the input.
        input: usize,
        storage: StorageKey,
    },
    /// No destination: the output is discarded, because its storage became a leaf or was deleted.
    Nowhere,
}

impl Target {
    /// Storage that keeps the output; `None` if the output is discarded.
    pub fn storage(self) -> Option<StorageKey> {
        match self {
            Self::Storage(storage) | Self::CopyOf { storage, .. } => Some(storage),
            Self::Nowhere => None,
        }
    }
}

pub(super) type Targets = SmallVec<[Target; 2]>;

/// Description of one run. All inputs are resident and pinned.
pub(super) struct Order<'a, D: Device> {
    pub work: &'a Work<D>,
    /// Path to run; `None` for work that runs only once, which is an update or an op without
    /// outputs.
    pub path: Option<PathKey>,
    pub sources: &'a [StorageKey],
    pub inputs: &'a [Layout],
    /// Layouts of the inputs in their own storages. A layout differs from that in `inputs` if the
    /// old value is copied first.
    pub looks: &'a [Layout],
    pub targets: &'a [Target],
    pub outputs: &'a [Layout],
    /// Workspace in bytes.
    pub scratch: u64,
    /// Whether the path ran before.
    pub again: bool,
    /// Whether the op may write over an input, or over a copy of an input.
    pub in_place: bool,
}

/// A completed launch.
struct Done {
    /// Bytes of all outputs.
    bytes: u64,
    /// Bytes of the workspace.
    scratch: u64,
    /// Time that the kernel took.
    took: Took,
}

/// Cost of a run, or the error of the cost model.
type Cost = Result<f64, Error>;

/// Error of a run that did not complete.
pub(super) struct Failed {
    pub error: Error,
    /// Whether the device may have begun to write.
    pub launched: bool,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self { error, launched: false }
    }
}

impl Failed {
    /// Makes the failure of work that followed a completed run on the device.
    pub fn after(error: Error) -> Self {
        Self { error, launched: true }
    }
}

/// Name of the cost model in errors about a panic.
pub(super) const COST_MODEL: fn() -> String = || "the cost model".to_owned();

impl<D: Device> Engine<D> {
    /// Runs a path with resident and pinned inputs, and makes all outputs resident.
    ///
    /// A resident output is written over with the same bits. On a device that owns its memory, a
    /// resident output gets a new block instead. An output that became a leaf or was deleted is
    /// written to scratch and discarded.
    pub(super) fn run_path(&mut self, path: PathKey) -> Result<(), Error> {
        // Take the body out of the table, so that the engine can be changed while the path runs.
        let body = self.store.take_body(path);
        let inputs = self.store.graph.inputs_of(path);
        let result = self.run_path_of(path, &body, &inputs);
        self.store.return_body(path, body);
        result.map_err(|failed| failed.error)
    }

    /// Like [`Engine::run_path`], for a path whose body was taken from the table. `sources` has the
    /// path's inputs.
    pub(super) fn run_path_of(
        &mut self,
        path: PathKey,
        body: &Body<D>,
        sources: &[StorageKey],
    ) -> Result<(), Failed> {
        if body.over {
            return cold(self.run_over(path, body, sources));
        }
        let mut targets = Targets::new();
        for i in 0..body.outputs().len() {
            targets.push(match self.store.graph.path(path).outputs[i] {
                Some(storage) => {
                    // A resident output must not be evicted to place another output.
                    self.store.pin(storage);
                    Target::Storage(storage)
                }
                None => Target::Nowhere,
            });
        }
        let result = match self.meet_threshold() {
            Ok(()) => self.run_body(path, body, sources, &targets),
            Err(error) => Err(cold(error).into()),
        };
        for storage in targets.iter().filter_map(|target| target.storage()) {
            self.store.unpin(storage);
        }
        if let Some(tape) = &mut self.store.tape {
            tape.end_run();
        }
        result
    }

    #[inline(always)]
    fn run_body(
        &mut self,
        path: PathKey,
        body: &Body<D>,
        sources: &[StorageKey],
        targets: &[Target],
    ) -> Result<(), Failed> {
        let again = self.store.graph.path(path).ran;
        let verifies = again && self.verifies();
        if verifies {
            self.before_again(path, body, targets)?;
        }
        let (work, inputs, outputs) = (&body.work, body.inputs(), body.outputs());
        let scratch = self.scratch_bytes(work, inputs, outputs).map_err(cold)?;
        let path_run = Some(path);
        let order = Order {
            work,
            path: path_run,
            sources,
            inputs,
            looks: inputs,
            targets,
            outputs,
            scratch,
            again,
            in_place: false,
        };
        let mut blocks = Blocks::new();
        let cost = self.run_or_give_up(&order, &mut blocks)?;
        self.keep_made(targets, &blocks, cost, again);
        self.did_run(path, cost, again);
        if verifies {
            self.after_again(path, body, targets).map_err(Failed::after)?;
        }
        Ok(())
    }

    /// Like [`Engine::run`], for the run of a path. Returns the cost. If the run fails, or its cost
    /// is unknown, evicts the targets that may have been written over.
    #[inline(always)]
    pub(super) fn run_or_give_up(
        &mut self,
        order: &Order<'_, D>,
        blocks: &mut Blocks,
    ) -> Result<f64, Failed> {
        let cost = match self.run(order, blocks) {
            Ok(cost) => cost,
            Err(failed) => {
                if cold(&failed).launched {
                    self.give_up(order.targets);
                }
                return Err(failed);
            }
        };
        cost.map_err(|error| {
            self.free_taken(order.targets, blocks);
            self.give_up(order.targets);
            Failed::after(cold(error))
        })
    }

    /// Notes that a path ran, once its outputs are resident: until then, the evictor's data includes
    /// the old cost.
    #[inline(always)]
    pub(super) fn did_run(&mut self, path: PathKey, cost: f64, again: bool) {
        let done = &mut self.store.graph.paths[path];
        done.ran = true;
        if std::mem::replace(&mut done.cost, cost) != cost && again {
            self.tell(Event::DidChangeCost { path });
        }
    }

    /// Places outputs and runs the kernel. `blocks` must be empty; after the run, it has the block
    /// of each output. After the run, the caller keeps the blocks with [`Engine::keep_made`] or
    /// frees them. If the run fails, all blocks are freed.
    #[inline(always)] // Otherwise arguments and results go through memory, for each op.
    pub(super) fn run(
        &mut self,
        order: &Order<'_, D>,
        blocks: &mut Blocks,
    ) -> Result<Cost, Failed> {
        let &Order { work, inputs, outputs, .. } = order;
        // First do all work that may fail and needs no block, so that nothing has to be freed on
        // failure.
        let (flops, bytes) = self.effort_of(work, inputs, outputs).map_err(cold)?;
        let run = Run { op: work.name(), inputs, outputs, flops, bytes, seconds: None };
        let wants_time = caught(COST_MODEL, || self.costs.wants_time(run)).map_err(cold)?;
        let timed = wants_time || (order.again && self.is_sample());
        if self.store.tape.is_some() || self.store.script.is_some() {
            self.store.note_run(order.path, order.again);
        }
        match self.place_and_launch(order, run, timed, blocks) {
            Ok(done) => Ok(self.account(order, run, done)),
            Err(failed) => {
                if cold(&failed).launched
                    && let Some(tape) = &mut self.store.tape
                {
                    tape.spoil("a run failed");
                }
                self.free_taken(order.targets, blocks);
                Err(failed)
            }
        }
    }

    /// Places outputs, copies old values, and launches the kernel.
    #[inline(always)]
    fn place_and_launch(
        &mut self,
        order: &Order<'_, D>,
        run: Run<'_>,
        timed: bool,
        blocks: &mut Blocks,
    ) -> Result<Done, Failed> {
        let bytes = self.place_outputs(order, blocks).map_err(cold)?;
        let mut copies = Copies::new();
        if order.in_place {
            self.copy_old_values(order, blocks, &mut copies).map_err(cold)?;
        }
        let mut scratch = order.scratch;
        loop {
            match self.launch(order, scratch, run, timed, blocks, &copies) {
                Ok(took) => return Ok(Done { bytes, scratch, took }),
                Err(failed) => {
                    let another = self.scratch_for_another(order, scratch, blocks, failed);
                    scratch = another.map_err(cold)?;
                }
            }
        }
    }

    /// Prepares another launch if the device itself ran out of memory, and returns the workspace of
    /// the other launch in bytes. Evicts a storage, unless the device needs a larger workspace than
    /// the `scratch` bytes that it had. Returns any other failure as an error.
    #[cold]
    fn scratch_for_another(
        &mut self,
        order: &Order<'_, D>,
        scratch: u64,
        blocks: &[Held],
        failed: Failed,
    ) -> Result<u64, Failed> {
        if own_out_of_memory(&failed.error).is_some()
            && let Ok(more) = self.scratch_bytes(order.work, order.inputs, order.outputs)
            && more > scratch
        {
            if let Some(tape) = &mut self.store.tape {
                tape.spoil("an op needed more workspace than before");
            }
            return Ok(more);
        }
        self.make_way(order, blocks, failed).map(|()| scratch)
    }

    /// Finishes the outputs of a run: outputs with a storage become resident, and discarded outputs
    /// are freed.
    #[inline(always)]
    pub(super) fn keep_made(
        &mut self,
        targets: &[Target],
        blocks: &[Held],
        cost: f64,
        again: bool,
    ) {
        for (target, &block) in targets.iter().zip(blocks) {
            let Some(storage) = target.storage() else {
                self.store.free(block);
                continue;
            };
            // A first run that was postponed left its outputs evicted.
            let was_evicted = match self.store.graph.storage(storage).residence {
                Residence::Resident(before) => {
                    if before != block {
                        self.store.replace_block(storage, block);
                    }
                    continue;
                }
                residence => residence == Residence::Evicted,
            };
            if !was_evicted {
                self.store.touch(storage);
            }
            self.store.set_resident(storage, block);
            if again {
                self.store.graph.storages[storage].recomputed += 1;
            }
            if was_evicted {
                self.tell_regenerated(storage, cost);
            }
        }
    }

    #[inline(never)]
    pub(super) fn tell_regenerated(&mut self, storage: StorageKey, cost: f64) {
        let bytes = self.store.graph.storage(storage).bytes;
        self.tell(Event::DidRegenerate { storage, bytes, cost });
    }

    /// Gives each output a block: its present block if it is resident, and otherwise a new block.
    /// Returns the total size of the outputs in bytes. On failure, `blocks` has the blocks placed
    /// so far.
    #[inline(always)]
    fn place_outputs(&mut self, order: &Order<'_, D>, blocks: &mut Blocks) -> Result<u64, Error> {
        let &Order { work, inputs, targets, outputs, .. } = order;
        let (mut all, mut most) = (0u64, 0u64);
        for layout in outputs {
            let bytes = layout.bytes();
            all = all.saturating_add(bytes);
            most = most.saturating_add(self.store.space.round(bytes));
        }
        // If the free bytes suffice for all outputs, resident or not, no check is needed.
        if most > self.store.space.free_bytes() {
            self.check_room(order).map_err(cold)?;
        }
        for (target, layout) in targets.iter().zip(outputs) {
            blocks.push(match self.place_of(order, *target) {
                Some(block) => block,
                None => {
                    let owner = target.storage().map_or(Owner::Scratch, Owner::Storage);
                    self.take(work, inputs, layout.bytes(), owner).map_err(cold)?
                }
            });
        }
        Ok(all)
    }

    /// Copies old values into outputs with [`Target::CopyOf`]. Adds to `copies` each input that the
    /// op reads from its copy.
    #[inline(never)]
    fn copy_old_values(
        &mut self,
        order: &Order<'_, D>,
        blocks: &[Held],
        copies: &mut Copies,
    ) -> Result<(), Failed> {
        for (i, target) in order.targets.iter().enumerate() {
            if let Target::CopyOf { input, .. } = *target {
                let (source, look) = (order.sources[input], order.looks[input]);
                while let Err(error) =
                    self.store.duplicate(source, look, blocks[i], order.outputs[i])
                {
                    self.make_way(order, blocks, error.into())?;
                }
                copies.push((input, blocks[i]));
            }
        }
        Ok(())
    }

    /// Block of a target that is written over; `None` if the target needs a new block.
    fn place_of(&self, order: &Order<'_, D>, target: Target) -> Option<Held> {
        // A device that owns its memory allocates new blocks for all outputs of a path. Old and new
        // blocks are both in use until the run is done.
        let anew = !order.in_place && self.store.makes_anew;
        if anew { None } else { self.held_by(target) }
    }

    /// Block of a target that is resident.
    fn held_by(&self, target: Target) -> Option<Held> {
        target.storage().and_then(|storage| self.store.graph.held(storage))
    }

    /// Frees the blocks allocated for a run. Blocks that the run's outputs already had are not
    /// freed.
    fn free_taken(&mut self, targets: &[Target], blocks: &[Held]) {
        for (&target, &block) in targets.iter().zip(blocks) {
            if self.held_by(target) != Some(block) {
                self.store.free(block);
            }
        }
    }

    /// Fails if even evicting all candidates would not free enough memory for the missing outputs
    /// and the workspace. Checking beforehand avoids evictions for a run that cannot fit.
    #[inline(never)]
    fn check_room(&mut self, order: &Order<'_, D>) -> Result<(), Error> {
        let &Order { work, inputs, targets, outputs, scratch, .. } = order;
        let absent = targets.iter().zip(outputs);
        let absent = absent.filter(|(target, _)| self.place_of(order, **target).is_none());
        let absent = absent.map(|(_, layout)| self.store.space.round(layout.bytes()));
        let wanted = absent.fold(0, u64::saturating_add);
        if wanted <= self.store.space.free_bytes() {
            return Ok(());
        }
        let wanted = match scratch {
            0 => wanted,
            scratch => wanted.saturating_add(self.store.space.round(scratch)),
        };
        if self.may_get(wanted) {
            Ok(())
        } else {
            Err(self.out_of_memory(work.name(), inputs, wanted))
        }
    }

    pub(super) fn scratch_bytes(
        &self,
        work: &Work<D>,
        inputs: &[Layout],
        outputs: &[Layout],
    ) -> Result<u64, Error> {
        match work {
            Work::Op(op) => self.scratch_of(op, inputs, outputs),
            Work::Upload(_) => Ok(0),
        }
    }

    pub(super) fn scratch_of(
        &self,
        op: &D::Op,
        inputs: &[Layout],
        outputs: &[Layout],
    ) -> Result<u64, Error> {
        let what = || format!("{}: its workspace", op.name());
        caught(what, || self.store.device.workspace(op, inputs, outputs))
    }

    /// Allocates a block.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if memory does not suffice for the block.
    fn take(
        &mut self,
        work: &Work<D>,
        inputs: &[Layout],
        bytes: u64,
        owner: Owner,
    ) -> Result<Held, Error> {
        self.allocate(bytes, owner)?
            .ok_or_else(|| self.out_of_memory(work.name(), inputs, self.store.space.round(bytes)))
    }

    /// Evicts a storage if the device itself ran out of memory, so that the run can be tried again.
    /// Returns any other failure as an error.
    #[cold]
    fn make_way(
        &mut self,
        order: &Order<'_, D>,
        blocks: &[Held],
        failed: Failed,
    ) -> Result<(), Failed> {
        let Some(word) = own_out_of_memory(&failed.error) else { return Err(failed) };
        let bytes = blocks.iter().map(|block| block.bytes).fold(0, u64::saturating_add);
        Ok(self.make_way_on_device(order.work.name(), order.inputs, bytes, word)?)
    }

    /// Evicts a storage after the device itself ran out of memory, so that the operation can be
    /// tried again. The operation needs about `bytes` bytes of the device's memory. `word` is the
    /// device's message.
    ///
    /// # Errors
    /// If no storage is left to evict.
    #[cold]
    pub(super) fn make_way_on_device(
        &mut self,
        op: &str,
        inputs: &[Layout],
        bytes: u64,
        word: &str,
    ) -> Result<(), Error> {
        if self.evict_one(Want { need: Need::Must, bytes }, Cause::Room)? {
            return Ok(());
        }
        Err(with_word_of(self.out_of_memory(op, inputs, bytes), word.to_owned()))
    }

    /// Allocates the workspace and runs the kernel on placed outputs.
    #[inline(always)]
    fn launch(
        &mut self,
        order: &Order<'_, D>,
        scratch: u64,
        run: Run<'_>,
        timed: bool,
        blocks: &[Held],
        copies: &[(usize, Held)],
    ) -> Result<Took, Failed> {
        let &Order { work, sources, .. } = order;
        let scratch = match scratch {
            0 => None,
            bytes => Some((bytes, self.take(work, run.inputs, bytes, Owner::Scratch)?)),
        };
        let launch = Launch { work, run, sources, copies, blocks, scratch, timed };
        let result = self.store.launch(launch);
        if let Some((_, block)) = scratch {
            self.store.free(block);
        }
        result.map_err(|error| Failed::after(cold(error)))
    }

    /// Accounts for a run: advances the clock, counts the run, and returns its cost.
    #[inline(always)]
    fn account(&mut self, order: &Order<'_, D>, mut run: Run<'_>, done: Done) -> Cost {
        let &Order { work, path, again, .. } = order;
        let Done { bytes, scratch: workspace, took } = done;
        if let Took::Seconds(seconds) = took {
            run.seconds = Some(seconds);
        }
        let cost = self.cost_of(run).map_err(cold)?;
        self.store.now += cost;
        self.tell(Event::DidRun { path, again, bytes, cost });
        match path {
            Some(path) if again => self.account_recompute(path, cost),
            _ => {
                self.work.did_run(cost);
                self.repeats.did_run(1);
                let rematerializable = work.rematerializable();
                self.last_run = LastRun { cost, flops: run.flops, workspace, rematerializable };
            }
        }
        match took {
            Took::Seconds(seconds) if again => self.recomputed.add(cost, seconds),
            Took::Later => self.await_time(run.key(), again.then_some(cost)),
            _ => {}
        }
        Ok(cost)
    }

    /// Estimated floating-point operations of a run, and the bytes that the run moves.
    pub(super) fn effort_of(
        &self,
        work: &Work<D>,
        inputs: &[Layout],
        outputs: &[Layout],
    ) -> Result<(f64, u64), Error> {
        match work {
            Work::Op(op) => Self::effort_of_op(op, inputs, outputs),
            Work::Upload(_) => Ok((0.0, bytes_of(outputs))),
        }
    }

    #[inline]
    pub(super) fn effort_of_op(
        op: &D::Op,
        inputs: &[Layout],
        outputs: &[Layout],
    ) -> Result<(f64, u64), Error> {
        let what = || format!("{}: its flops", op.name());
        caught(what, || (op.flops(inputs, outputs), op.moved(inputs, outputs)))
    }

    /// Cost of a run by the cost model. Fails if the cost is negative or not finite.
    #[inline]
    pub(super) fn cost_of(&mut self, run: Run<'_>) -> Cost {
        let cost = caught(COST_MODEL, || self.costs.cost(run))?;
        if cost.is_finite() && cost >= 0.0 {
            return Ok(cost);
        }
        let (model, op) = (self.costs.name().to_owned(), run.op.to_owned());
        Err(CallbackError::Cost { model, op, cost }.into())
    }
}

/// Message of a device that itself ran out of memory; `None` for other errors.
pub(super) fn own_out_of_memory(error: &Error) -> Option<&str> {
    match error {
        Error::Device(fault) if fault.out_of_memory => Some(&fault.message),
        _ => None,
    }
}

/// Adds the device's message to an out-of-memory error.
fn with_word_of(error: Error, device: String) -> Error {
    match error {
        Error::OutOfMemory(error) => {
            OutOfMemory { device: Some(device), ..OutOfMemory::clone(&error) }.into()
        }
        other => other,
    }
}
