//! Running an op for the first time.

use super::{Body, Engine, Error, Keys, LastRun, Residence, StorageKey, TensorKey, Work};
use crate::device::Device;
use crate::layout::Layout;
use crate::op::{Op, Output, Outputs, check_outputs};
use smallvec::SmallVec;

pub(super) type StorageKeys = SmallVec<[StorageKey; 4]>;

/// What an op reads: storages, and how it looks at them.
pub(super) struct Inputs {
    pub storages: StorageKeys,
    pub layouts: Vec<Layout>,
}

impl<D: Device> Engine<D> {
    /// Runs `op` and returns its outputs. Inputs of in-place outputs are consumed: their keys are
    /// stale afterwards.
    ///
    /// # Errors
    /// If the inputs do not fit the op, one of them is lost to a failure, or the op cannot be run; there
    /// are no outputs then. The inputs
    /// are as before, except that those consumed are gone when a run failed.
    pub fn apply(&mut self, op: D::Op, inputs: &[TensorKey]) -> Result<Keys, Error> {
        let layouts = inputs
            .iter()
            .map(|&key| self.layout(key))
            .collect::<Result<SmallVec<[Layout; 4]>, _>>()?;
        let outputs = op.infer(&layouts)?;
        let keys = self.issue(op, inputs, &outputs)?;
        let lost = keys.iter().find_map(|&key| self.reasons.get(self.table.tensors[key].storage));
        let Some(error) = lost.cloned() else { return Ok(keys) };
        self.failures.retain(|failure| !failure.is(&error));
        for key in keys {
            self.del(key);
        }
        Err(error)
    }

    /// Like [`Engine::apply`], with outputs inferred by the caller and failures that wait: if the op
    /// cannot be run, its outputs are poisoned, and the reason is kept for whoever reads them and for
    /// [`Engine::take_failure`].
    ///
    /// # Errors
    /// If an input key is stale, or the outputs contradict the inputs. Nothing was done then.
    pub fn issue(
        &mut self,
        op: D::Op,
        inputs: &[TensorKey],
        outputs: &Outputs,
    ) -> Result<Keys, Error> {
        let read = self.inputs(inputs, outputs.len())?;
        self.last_run = LastRun::default();
        check_outputs(&op, |input| read.layouts.get(input), outputs)?;
        let is_view = |output: &Output| matches!(output, Output::View { .. });
        if !outputs.is_empty() && outputs.iter().all(is_view) {
            let look = |output: &Output| match *output {
                Output::View { input, layout } => {
                    self.table.add_tensor(read.storages[input], layout)
                }
                _ => unreachable!("all outputs are views"),
            };
            return Ok(outputs.iter().map(look).collect());
        }
        if outputs.iter().any(|o| matches!(o, Output::InPlace { .. })) {
            return Ok(self.issue_in_place(op, inputs, &read, outputs));
        }
        Ok(self.issue_pure(op, read, outputs))
    }

    /// With room for the layouts of `outputs` outputs.
    fn inputs(&self, keys: &[TensorKey], outputs: usize) -> Result<Inputs, Error> {
        let mut inputs = Inputs {
            storages: StorageKeys::new(),
            layouts: Vec::with_capacity(keys.len() + outputs),
        };
        for &key in keys {
            let tensor = self.table.tensor(key).ok_or(Error::UnknownTensor)?;
            inputs.storages.push(tensor.storage);
            inputs.layouts.push(tensor.layout);
        }
        Ok(inputs)
    }

    fn issue_pure(&mut self, op: D::Op, inputs: Inputs, outputs: &Outputs) -> Keys {
        let layouts = outputs.iter().map(|output| match output {
            Output::Fresh(layout) => *layout,
            _ => unreachable!("neither views nor in place"),
        });
        let sources = inputs.storages;
        let mut made = StorageKeys::new();
        let mut keys = Keys::new();
        let once = !op.rematerializable();
        let body = Body::new(Work::Op(op), inputs.layouts, layouts);
        for layout in body.outputs() {
            let storage = self.table.add_storage(layout.bytes(), self.now, self.step);
            made.push(storage);
            keys.push(self.table.add_tensor(storage, *layout));
        }
        if let Some(error) = self.reason_among(&sources) {
            self.poison_quietly(&made, &error);
            return keys;
        }
        if made.is_empty() {
            return keys;
        }
        let path = self.table.add_path(sources.iter().copied(), made.iter().copied());
        self.bodies.insert(path, body);
        let result = self.ensure(&sources).and_then(|()| {
            let result = self.run_path(path, false);
            self.release_pins(&sources);
            result
        });
        match result {
            Err(error) => self.poison(&made, &error),
            Ok(()) if once => made.iter().for_each(|&storage| self.make_leaf(storage)),
            Ok(()) => {}
        }
        keys
    }

    /// The reason of the first poisoned storage among `keys`.
    pub(super) fn reason_among(&self, keys: &[StorageKey]) -> Option<Error> {
        keys.iter().find_map(|&key| self.reasons.get(key).cloned())
    }

    /// Marks storages as lost to a failure, which is kept for whoever asks first.
    pub(super) fn poison(&mut self, storages: &[StorageKey], error: &Error) {
        tracing::error!(target: "remat", %error, "op failed");
        self.keep_failure(error.clone());
        self.poison_quietly(storages, error);
    }

    /// Marks storages as lost to a failure that is known already.
    pub(super) fn poison_quietly(&mut self, storages: &[StorageKey], error: &Error) {
        for &storage in storages {
            self.cut_producer(storage);
            if let Some(block) = self.table.set_absent(storage, Residence::Poisoned) {
                self.space.free(block);
            }
            self.reasons.insert(storage, error.clone());
        }
    }
}
