//! One run of a path: places for its outputs, its kernel, its cost.

use super::allocate::Owner;
use super::guard::{caught, guarded};
use super::{Body, Engine, Error, LastRun, PathKey, StorageKey, Work};
use crate::cost::Run;
use crate::device::{Call, Device, Place, Took};
use crate::error::CallbackError;
use crate::layout::Layout;
use crate::memory::Held;
use crate::op::Operation as _;
use smallvec::SmallVec;

pub(super) type Blocks = SmallVec<[Held; 2]>;

/// One run of a kernel, but for where its operands are.
#[derive(Clone, Copy)]
pub(super) struct Launch<'a> {
    pub inputs: &'a [Layout],
    pub outputs: &'a [Layout],
    /// Bytes of workspace.
    pub scratch: u64,
    /// Whether it ran before.
    pub again: bool,
}

/// Who panicked.
pub(super) const COST_MODEL: fn() -> String = || "the cost model".to_owned();

impl<D: Device> Engine<D> {
    /// Runs a path whose inputs are resident and pinned, and makes all its outputs resident.
    ///
    /// An output that is resident already is written over with the bits it has. One that was cut loose
    /// or deleted is written to scratch and thrown away.
    pub(super) fn run_path(&mut self, path: PathKey) -> Result<(), Error> {
        // The body leaves the table while it runs, so that the engine can be changed meanwhile.
        let body = self.bodies.remove(path).expect("a path has a body");
        let inputs = self.table.inputs_of(path);
        let result = self.run_path_of(path, &body, &inputs);
        self.bodies.insert(path, body);
        result
    }

    /// The same for a path whose body is not in the table, and that reads `inputs`.
    pub(super) fn run_path_of(
        &mut self,
        path: PathKey,
        body: &Body<D>,
        inputs: &[StorageKey],
    ) -> Result<(), Error> {
        let mut outputs = SmallVec::<[Option<StorageKey>; 2]>::new();
        for i in 0..body.outputs().len() {
            let output = self.table.path(path).outputs[i];
            outputs.push(output);
            // A resident output must not be evicted to make room for another.
            if let Some(storage) = output {
                self.table.pin(storage);
            }
        }
        let result =
            self.meet_threshold().and_then(|()| self.run_body(path, body, inputs, &outputs));
        for &storage in outputs.iter().flatten() {
            self.table.unpin(storage);
        }
        result
    }

    fn run_body(
        &mut self,
        path: PathKey,
        body: &Body<D>,
        inputs: &[StorageKey],
        outputs: &[Option<StorageKey>],
    ) -> Result<(), Error> {
        let again = self.table.path(path).ran;
        let scratch = self.scratch_bytes(&body.work, body.inputs(), body.outputs())?;
        let mut blocks = Blocks::new();
        if let Err(error) = self.place_outputs(body, outputs, scratch, &mut blocks) {
            self.free_taken(outputs, &blocks);
            return Err(error);
        }
        let what = Launch { inputs: body.inputs(), outputs: body.outputs(), scratch, again };
        let cost = match self.launch(&body.work, inputs, &blocks, what) {
            Ok(Ok(cost)) => cost,
            Ok(Err(error)) | Err(error) => {
                self.free_taken(outputs, &blocks);
                if !matches!(error, Error::OutOfMemory(_)) {
                    self.give_up(outputs);
                }
                return Err(error);
            }
        };
        for (output, block) in outputs.iter().zip(blocks) {
            match output {
                Some(key) if self.table.held(*key).is_none() => {
                    // A first run that was put off counts as evicted meanwhile.
                    let was_evicted = self.table.is_evicted(*key);
                    self.table.set_resident(*key, block);
                    self.table.storages[*key].recomputed += u32::from(again);
                    if was_evicted {
                        tracing::debug!(
                            target: "remat", op = body.work.name(), tensor = %self.tensor_name(*key),
                            bytes = self.table.storage(*key).bytes, cost, "did regenerate"
                        );
                        self.tell(|policy, view, lowered| {
                            policy.did_regenerate(*key, view, lowered)
                        });
                    } else {
                        self.table.touch(*key, self.now);
                    }
                }
                Some(_) => {}
                None => self.space.free(block),
            }
        }
        // Only now, for what the policy knows of the storages brought back has the old cost in it.
        self.table.paths[path].ran = true;
        if std::mem::replace(&mut self.table.paths[path].cost, cost) != cost {
            outputs.iter().flatten().for_each(|&key| self.table.lower(key));
        }
        Ok(())
    }

    /// A block for each output: its own if it is resident, and one taken for this run otherwise. Should that fail,
    /// those before it have theirs.
    fn place_outputs(
        &mut self,
        body: &Body<D>,
        outputs: &[Option<StorageKey>],
        scratch: u64,
        blocks: &mut Blocks,
    ) -> Result<(), Error> {
        let mut wanted = 0u64;
        for (&storage, layout) in outputs.iter().zip(body.outputs()) {
            if self.held_by(storage).is_none() {
                wanted = wanted.saturating_add(self.space.round(layout.bytes()));
            }
        }
        self.check_room(&body.work, body.inputs(), wanted, scratch)?;
        for (&storage, layout) in outputs.iter().zip(body.outputs()) {
            blocks.push(match self.held_by(storage) {
                Some(block) => block,
                None => {
                    let owner = storage.map_or(Owner::Scratch, Owner::Storage);
                    self.take(&body.work, body.inputs(), layout.bytes(), owner)?
                }
            });
        }
        Ok(())
    }

    /// What an output of a path holds.
    fn held_by(&self, output: Option<StorageKey>) -> Option<Held> {
        output.and_then(|key| self.table.held(key))
    }

    /// Frees those blocks of outputs that were taken for a run.
    fn free_taken(&mut self, outputs: &[Option<StorageKey>], blocks: &[Held]) {
        for (&output, &block) in outputs.iter().zip(blocks) {
            if self.held_by(output).is_none() {
                self.space.free(block);
            }
        }
    }

    /// Fails if the outputs that are absent, of `wanted` bytes, and the scratch of a run cannot be had together, so
    /// that a hopeless run does not evict for some of it on its way to the error.
    pub(super) fn check_room(
        &self,
        work: &Work<D>,
        inputs: &[Layout],
        wanted: u64,
        scratch: u64,
    ) -> Result<(), Error> {
        if wanted <= self.space.free_bytes() {
            return Ok(());
        }
        let wanted = match scratch {
            0 => wanted,
            scratch => wanted.saturating_add(self.space.round(scratch)),
        };
        if self.may_have(wanted) {
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
        caught(what, || self.device.workspace(op, inputs, outputs))
    }

    /// Allocates, or explains why not.
    pub(super) fn take(
        &mut self,
        work: &Work<D>,
        inputs: &[Layout],
        bytes: u64,
        owner: Owner,
    ) -> Result<Held, Error> {
        self.allocate(bytes, owner)?
            .ok_or_else(|| self.out_of_memory(work.name(), inputs, self.space.round(bytes)))
    }

    /// Runs the kernel on placed outputs. Returns its cost, if the cost model had one, and moves the clock on
    /// by it.
    pub(super) fn launch(
        &mut self,
        work: &Work<D>,
        sources: &[StorageKey],
        blocks: &[Held],
        Launch { inputs, outputs, scratch: scratch_bytes, again }: Launch<'_>,
    ) -> Result<Result<f64, Error>, Error> {
        let name = work.name();
        // First all that may fail of itself: there is nothing to be cleared away yet.
        let flops = self.flops_of(work, inputs, outputs)?;
        let mut run = Run { op: name, inputs, outputs, flops, seconds: None };
        let wants_time = caught(COST_MODEL, || self.costs.wants_time(run))?;
        let timed = wants_time || (again && self.is_sample());
        let scratch = match scratch_bytes {
            0 => None,
            bytes => Some(self.take(work, inputs, bytes, Owner::Scratch)?),
        };
        // Offsets are read only now: making room may have moved blocks.
        let mut places = std::mem::take(&mut self.places);
        places.clear();
        for (&key, &layout) in sources.iter().zip(inputs) {
            let block = self.table.held(key).expect("inputs are resident");
            places.push(Place { storage: self.space.offset(block), layout });
        }
        for (&block, &layout) in blocks.iter().zip(outputs) {
            places.push(Place { storage: self.space.offset(block), layout });
        }
        let (ins, outs) = places.split_at(sources.len());
        let workspace = scratch.map_or(0..0, |block| {
            let start = self.space.offset(block);
            start..start + scratch_bytes
        });
        let device = &mut self.device;
        let result = match work {
            Work::Op(op) => guarded(name, || {
                device.execute(Call { op, inputs: ins, outputs: outs, flops, workspace, timed })
            }),
            Work::Upload(host) => guarded(name, || device.write(host, outs[0])),
        };
        self.places = places;
        if let Some(block) = scratch {
            self.space.free(block);
        }
        let took = result?;
        if let Took::Seconds(seconds) = took {
            run.seconds = Some(seconds);
        }
        let rematerializable = work.rematerializable();
        let cost = match self.cost_of(run) {
            Ok(cost) => cost,
            Err(error) => return Ok(Err(error)),
        };
        self.account(run, cost, again);
        if !again {
            self.last_run = LastRun { cost, flops, workspace: scratch_bytes, rematerializable };
        }
        match took {
            Took::Seconds(seconds) if again => self.recomputed.add(cost, seconds),
            Took::Later => self.await_time(run.key(), again.then_some(cost)),
            _ => {}
        }
        Ok(Ok(cost))
    }

    /// Floating-point operations of a run, estimated.
    pub(super) fn flops_of(
        &self,
        work: &Work<D>,
        inputs: &[Layout],
        outputs: &[Layout],
    ) -> Result<f64, Error> {
        match work {
            Work::Op(op) => {
                let what = || format!("{}: its flops", op.name());
                caught(what, || op.flops(inputs, outputs))
            }
            Work::Upload(_) => Ok(0.0),
        }
    }

    /// What the cost model says of a run, if that is a cost.
    pub(super) fn cost_of(&mut self, run: Run<'_>) -> Result<f64, Error> {
        let cost = caught(COST_MODEL, || self.costs.cost(run))?;
        if cost.is_finite() && cost >= 0.0 {
            return Ok(cost);
        }
        let (model, op) = (self.costs.name().to_owned(), run.op.to_owned());
        Err(CallbackError::Cost { model, op, cost }.into())
    }

    fn account(&mut self, run: Run<'_>, cost: f64, again: bool) {
        self.now += cost;
        if again {
            let bytes = run.outputs.iter().map(Layout::bytes).fold(0, u64::saturating_add);
            self.account_recompute(run.op, bytes, cost);
        } else {
            self.stats.ops += 1;
            self.stats.base_cost += cost;
            self.work.did_run(cost);
        }
    }
}
