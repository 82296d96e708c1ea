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

pub(super) type Blocks = SmallVec<[Held; 4]>;

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
        let result = self.run_path_of(path, &body);
        self.bodies.insert(path, body);
        result
    }

    /// The same for a path whose body is not in the table.
    pub(super) fn run_path_of(&mut self, path: PathKey, body: &Body<D>) -> Result<(), Error> {
        let outputs: SmallVec<[Option<StorageKey>; 2]> =
            SmallVec::from_slice(&self.table.path(path).outputs);
        // A resident output must not be evicted to make room for another.
        for &storage in outputs.iter().flatten() {
            self.table.pin(storage);
        }
        let result = self.meet_threshold().and_then(|()| self.run_body(path, body, &outputs));
        for &storage in outputs.iter().flatten() {
            self.table.unpin(storage);
        }
        result
    }

    fn run_body(
        &mut self,
        path: PathKey,
        body: &Body<D>,
        outputs: &[Option<StorageKey>],
    ) -> Result<(), Error> {
        let again = self.table.path(path).ran;
        let inputs = self.table.inputs_of(path);
        let scratch = self.scratch_bytes(&body.work, body.inputs(), body.outputs())?;
        let (blocks, taken) = self.place_outputs(body, outputs, scratch)?;
        let what = Launch { inputs: body.inputs(), outputs: body.outputs(), scratch, again };
        let cost = self.launch(&body.work, &inputs, &blocks, what);
        let cost = match cost.and_then(|cost| cost) {
            Ok(cost) => cost,
            Err(error) => {
                self.free_all(&taken);
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

    /// A block for each output, and which of them were taken for this run.
    fn place_outputs(
        &mut self,
        body: &Body<D>,
        outputs: &[Option<StorageKey>],
        scratch: u64,
    ) -> Result<(Blocks, Blocks), Error> {
        let absent = outputs
            .iter()
            .zip(body.outputs())
            .filter(|(storage, _)| storage.is_none_or(|key| self.table.held(key).is_none()));
        let absent = absent.map(|(_, layout)| layout);
        self.check_room(body.work.name(), body.inputs(), absent, scratch)?;
        let mut blocks = Blocks::new();
        let mut taken = Blocks::new();
        for (&storage, layout) in outputs.iter().zip(body.outputs()) {
            let block = match storage.and_then(|key| self.table.held(key)) {
                Some(block) => block,
                None => {
                    let owner = storage.map_or(Owner::Scratch, Owner::Storage);
                    match self.take(&body.work, body.inputs(), layout.bytes(), owner) {
                        Ok(block) => {
                            taken.push(block);
                            block
                        }
                        Err(error) => {
                            self.free_all(&taken);
                            return Err(error);
                        }
                    }
                }
            };
            blocks.push(block);
        }
        Ok((blocks, taken))
    }

    /// Fails if the outputs that are `absent` and the scratch of a run cannot be had together, so that
    /// a hopeless run does not evict for some of it on its way to the error.
    pub(super) fn check_room<'a>(
        &self,
        op: &str,
        inputs: &[Layout],
        absent: impl Iterator<Item = &'a Layout>,
        scratch: u64,
    ) -> Result<(), Error> {
        let wanted = absent.map(|layout| self.space.round(layout.bytes()));
        let wanted = wanted.fold(0, u64::saturating_add);
        if wanted <= self.space.free_bytes() {
            return Ok(());
        }
        let wanted = match scratch {
            0 => wanted,
            scratch => wanted.saturating_add(self.space.round(scratch)),
        };
        if self.may_have(wanted) { Ok(()) } else { Err(self.out_of_memory(op, inputs, wanted)) }
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

    fn free_all(&mut self, blocks: &[Held]) {
        blocks.iter().for_each(|&block| self.space.free(block));
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
        let place = |block: Held, layout: &Layout| Place {
            storage: self.space.offset(block),
            layout: *layout,
        };
        let held = |&key: &StorageKey| self.table.held(key).expect("inputs are resident");
        let mut places = std::mem::take(&mut self.places);
        places.clear();
        places.extend(sources.iter().map(held).zip(inputs).map(|(block, l)| place(block, l)));
        places.extend(blocks.iter().zip(outputs).map(|(&block, l)| place(block, l)));
        let (ins, outs) = places.split_at(sources.len());
        let workspace = scratch.map_or(0..0, |block| {
            let start = self.space.offset(block);
            start..start + scratch_bytes
        });
        let device = &mut self.device;
        let result = match work {
            Work::Op(op) => guarded(name, || {
                device.execute(Call { op, inputs: ins, outputs: outs, workspace, timed })
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
