//! Running an op for the first time.

use super::run::{Blocks, Failed, Order};
use super::{Engine, Error, Keys, LastRun, PathKey, TensorKey};
use crate::device::Device;
use crate::error::HandleError;
use crate::graph::StorageKeys;
use crate::guard::{caught, inferred};
use crate::hint::cold;
use crate::layout::Layout;
use crate::op::{Look, Operation as _, Outputs, check_outputs};
use crate::store::{Body, Work};
use smallvec::SmallVec;

/// Inputs of an op: for each input, its storage and its layout on that storage.
pub(super) struct Inputs {
    pub storages: StorageKeys,
    pub layouts: Vec<Layout>,
}

impl<D: Device> Engine<D> {
    /// Runs `op` and returns its outputs. An input that an output replaces in place is consumed:
    /// afterwards, its key names no tensor. An op without outputs runs only once, within `apply`.
    ///
    /// # Errors
    /// Fails if the op does not accept the types or shapes of its inputs, if an input is lost to a
    /// failure, or if the op cannot be run. An op that does not run makes no outputs and consumes no
    /// input. If the device fails during an update in place, the old values that the update writes
    /// over are lost.
    pub fn apply(&mut self, op: D::Op, inputs: &[TensorKey]) -> Result<Keys, Error> {
        let (read, outputs) = match self.accepted(&op, inputs) {
            Ok(accepted) => accepted,
            Err(error) => return Err(self.skip(&op, error)),
        };
        if let Some(error) = self.failures.of_stale_among(&inputs[outputs.targets()..]) {
            self.report(&error);
            return Err(self.skip(&op, error));
        }
        let (keys, failed) = match &outputs {
            Outputs::Views(looks) => (self.views(&read, looks), self.reason_among(&read.storages)),
            Outputs::Updates { .. } | Outputs::Over => {
                match self.try_in_place(op, inputs, read, &outputs) {
                    Ok(keys) => (keys, None),
                    Err(skipped) => (Keys::new(), Some(self.give_up_update(skipped))),
                }
            }
            Outputs::Fresh(layouts) if layouts.is_empty() => {
                (Keys::new(), self.run_for_effect(op, &read).err())
            }
            Outputs::Fresh(layouts) => {
                let (keys, failed) = self.issue_pure(op, read, layouts);
                // Unlike [`Engine::issue`], `apply` accepts no postponed op: an op for which memory
                // did not suffice counts as failed.
                failed.iter().for_each(|error| self.fail(error.clone()));
                (keys, failed)
            }
        };
        let Some(error) = failed else { return Ok(keys) };
        self.report(&error);
        for key in keys {
            self.del(key);
        }
        Err(error)
    }

    /// Inputs and outputs of an op, if the op accepts the inputs.
    fn accepted(&mut self, op: &D::Op, inputs: &[TensorKey]) -> Result<(Inputs, Outputs), Error> {
        self.working()?;
        let layouts = inputs
            .iter()
            .map(|&key| self.layout(key))
            .collect::<Result<SmallVec<[Layout; 4]>, _>>()?;
        let outputs = inferred(op, &layouts)??;
        Ok((self.inputs(op, inputs, &outputs)?, outputs))
    }

    /// Like [`Engine::apply`], but the caller has inferred the outputs, and failures are reported
    /// later. If the op cannot be run, its outputs are poisoned: they have no value because of the
    /// failure. The failure is kept for the next reader of the outputs and for
    /// [`Engine::take_failure`]. An update that cannot be run is skipped: its in-place outputs are
    /// the old values.
    ///
    /// Returns the outputs, and the failure if the op did not run.
    ///
    /// # Errors
    /// Fails if an input key names no tensor, or the outputs contradict the inputs. After an error,
    /// nothing was done.
    pub fn issue(
        &mut self,
        op: D::Op,
        inputs: &[TensorKey],
        outputs: &Outputs,
    ) -> Result<(Keys, Option<Error>), Error> {
        let read = match self.working().and_then(|()| self.inputs(&op, inputs, outputs)) {
            Ok(read) => read,
            Err(error) => return Err(self.skip(&op, cold(error))),
        };
        if !self.failures.are_none_stale()
            && let Some(lost) = self.lose_to_stale(&op, inputs, &read, outputs)?
        {
            return Ok(lost);
        }
        match outputs {
            // Most ops have only new outputs, so that case comes first.
            Outputs::Fresh(layouts) if !layouts.is_empty() => {
                Ok(self.issue_pure(op, read, layouts))
            }
            _ => self.issue_other(op, inputs, read, outputs),
        }
    }

    /// Makes the outputs of an op without running it, if an input is a stale handle, which names an
    /// old value because of a failure. `None` if no input is a stale handle.
    #[cold]
    #[inline(never)]
    fn lose_to_stale(
        &mut self,
        op: &D::Op,
        inputs: &[TensorKey],
        read: &Inputs,
        outputs: &Outputs,
    ) -> Result<Option<(Keys, Option<Error>)>, Error> {
        let Some(error) = self.failures.of_stale_among(&inputs[outputs.targets()..]) else {
            return Ok(None);
        };
        let error = self.skip(op, error);
        let keys = match outputs {
            Outputs::Views(looks) => {
                let keys = self.views_of_any(op, read, looks)?;
                keys.iter().for_each(|&key| self.failures.make_stale(key, &error));
                keys
            }
            Outputs::Updates { .. } | Outputs::Over => self.stand_ins(inputs, outputs, &error),
            Outputs::Fresh(layouts) => self.poisoned(layouts, &error),
        };
        Ok(Some((keys, Some(error))))
    }

    /// Makes tensors that have no value because of a failure (*poisoned* tensors).
    pub(super) fn poisoned(&mut self, layouts: &[Layout], error: &Error) -> Keys {
        let mut keys = Keys::new();
        for layout in layouts {
            let storage = self.add_storage(layout);
            keys.push(self.store.graph.add_tensor(storage, *layout));
            self.poison_quietly(&[storage], error);
        }
        keys
    }

    /// Issues views, updates, and ops without outputs.
    #[inline(never)]
    fn issue_other(
        &mut self,
        op: D::Op,
        inputs: &[TensorKey],
        read: Inputs,
        outputs: &Outputs,
    ) -> Result<(Keys, Option<Error>), Error> {
        Ok(match outputs {
            Outputs::Views(looks) => {
                let keys = self.views_of_any(&op, &read, looks)?;
                let lost = self.reason_among(&read.storages);
                self.store.reuse(read.layouts);
                (keys, lost)
            }
            Outputs::Updates { .. } | Outputs::Over => {
                match self.try_in_place(op, inputs, read, outputs) {
                    Ok(keys) => (keys, None),
                    Err(skipped) => {
                        let error = self.give_up_update(skipped);
                        (self.stand_ins(inputs, outputs, &error), Some(error))
                    }
                }
            }
            Outputs::Fresh(_) => {
                let failed = self.run_for_effect(op, &read).err();
                self.store.reuse(read.layouts);
                (Keys::new(), failed)
            }
        })
    }

    /// Storages and layouts of an op's inputs. Fails if a key names no tensor, or `outputs` does
    /// not match the inputs.
    pub(super) fn inputs(
        &mut self,
        op: &D::Op,
        keys: &[TensorKey],
        outputs: &Outputs,
    ) -> Result<Inputs, Error> {
        let mut inputs = Inputs { storages: StorageKeys::new(), layouts: self.store.layouts() };
        // Reserve space for the layouts of inputs and outputs.
        inputs.layouts.reserve_exact(keys.len() + outputs.len());
        for &key in keys {
            let tensor = self.store.graph.tensor(key).ok_or_else(|| cold(HandleError::Unknown))?;
            inputs.storages.push(tensor.storage);
            inputs.layouts.push(tensor.layout);
        }
        self.last_run = LastRun::default();
        check_outputs(op, |input| inputs.layouts.get(input), outputs).map_err(cold)?;
        Ok(inputs)
    }

    /// Makes views from the actual layouts of the inputs, which a handle's holder may not know.
    ///
    /// After a skipped update, a handle may be a view of part of a storage. The handle's holder
    /// expects a packed value and requests views of a packed layout. The holder's layouts may be
    /// wrong, so the views are inferred again from the actual layouts.
    fn views_of_any(&mut self, op: &D::Op, read: &Inputs, looks: &[Look]) -> Result<Keys, Error> {
        if read.layouts.iter().all(|layout| layout.offset() == 0) {
            return Ok(self.views(read, looks));
        }
        // Ops of a recorded trace cannot infer views, so the views given by the trace are used.
        Ok(match inferred(op, &read.layouts)? {
            Ok(Outputs::Views(looks)) => self.views(read, &looks),
            _ => self.views(read, looks),
        })
    }

    fn views(&mut self, read: &Inputs, looks: &[Look]) -> Keys {
        let graph = &mut self.store.graph;
        let see = |&Look { input, layout }: &Look| graph.add_tensor(read.storages[input], layout);
        looks.iter().map(see).collect()
    }

    /// Runs an op without outputs, for its side effects and its cost. The op gets no compute path,
    /// because no storage can be regenerated from it. Keeps the failure of the run for a later
    /// report, unless the inputs are lost to an earlier failure.
    fn run_for_effect(&mut self, op: D::Op, read: &Inputs) -> Result<(), Error> {
        let Inputs { storages, layouts } = read;
        if let Some(error) = self.reason_among(storages) {
            return Err(self.skip(&op, error));
        }
        let work = Work::Op(op);
        let result = self.ensure(storages).map_err(Failed::from).and_then(|()| {
            // Do not evict down to the threshold first: the threshold leaves memory for outputs,
            // and an op run for its effect has no outputs.
            let scratch = self.scratch_bytes(&work, layouts, &[]).map_err(Failed::from);
            let cost = scratch.and_then(|scratch| {
                let order = Order {
                    work: &work,
                    path: None,
                    sources: storages,
                    inputs: layouts,
                    looks: layouts,
                    targets: &[],
                    outputs: &[],
                    scratch,
                    again: false,
                    in_place: false,
                };
                self.run(&order, &mut Blocks::new())
            });
            self.release_pins(storages);
            cost?.map(drop).map_err(Failed::after)
        });
        result.map_err(|failed| {
            let error = self.skip_unless_launched(&work, failed);
            self.fail(error.clone());
            error
        })
    }

    /// Issues an op with fresh outputs only. Always returns the keys of the outputs. If running the
    /// op failed, also returns the error.
    ///
    /// An op without inputs, such as a random op, is postponed if memory does not suffice for its
    /// outputs: the outputs count as evicted.
    fn issue_pure(
        &mut self,
        op: D::Op,
        inputs: Inputs,
        layouts: &[Layout],
    ) -> (Keys, Option<Error>) {
        let sources = inputs.storages;
        let mut made = StorageKeys::new();
        let mut keys = Keys::new();
        let once = !op.rematerializable() || !self.enabled;
        let body = Body::new(Work::Op(op), inputs.layouts, layouts.iter().copied());
        for layout in body.outputs() {
            let storage = self.add_storage(layout);
            made.push(storage);
            keys.push(self.store.graph.add_tensor(storage, *layout));
        }
        if let Some(error) = self.reason_among(&sources) {
            self.poison_quietly(&made, cold(&error));
            return (keys, Some(self.skip_work(&body.work, error)));
        }
        let path = self.store.graph.add_path(sources.iter().copied(), made.iter().copied());
        let result = self.ensure(&sources).map_err(Failed::from).and_then(|()| {
            let result = self.run_path_of(path, &body, &sources);
            self.release_pins(&sources);
            result
        });
        let Err(failed) = result else {
            self.store.bodies.insert(path, body);
            if once {
                self.make_leaf_of_each(&made);
            }
            return (keys, None);
        };
        (keys, Some(self.not_made(cold(failed), path, body, &made, once)))
    }

    /// Handles a failed first run, and returns the failure. If memory was short for an op without
    /// inputs, the run is postponed. After any other failure, the outputs are poisoned: they have
    /// no value because of the failure.
    #[inline(never)]
    fn not_made(
        &mut self,
        failed: Failed,
        path: PathKey,
        body: Body<D>,
        made: &StorageKeys,
        once: bool,
    ) -> Error {
        let waits = body.inputs().is_empty() && !once;
        if waits && matches!(failed.error, Error::OutOfMemory(_)) {
            self.store.bodies.insert(path, body);
            self.postpone(path);
            return failed.error;
        }
        let error = self.skip_unless_launched(&body.work, failed);
        self.store.bodies.insert(path, body);
        self.poison(made, &error);
        error
    }

    /// Tells an op that it is skipped because of the error `why`, and returns `why`.
    #[cold]
    #[inline(never)]
    pub(crate) fn skip(&mut self, op: &D::Op, why: Error) -> Error {
        let what = || format!("{}: the notice that it is skipped", op.name());
        let device = &mut self.store.device;
        if let Err(error) = caught(what, || device.skip(op, &why)) {
            self.fail(error);
        }
        why
    }

    /// Like [`Engine::skip`]; does nothing for an upload.
    pub(super) fn skip_work(&mut self, work: &Work<D>, why: Error) -> Error {
        match work {
            Work::Op(op) => self.skip(op, why),
            Work::Upload(_) => why,
        }
    }

    /// Tells an op that it is skipped, unless the device had begun to run it. Returns the failure.
    pub(super) fn skip_unless_launched(&mut self, work: &Work<D>, failed: Failed) -> Error {
        match failed.launched {
            true => failed.error,
            false => self.skip_work(work, failed.error),
        }
    }
}
