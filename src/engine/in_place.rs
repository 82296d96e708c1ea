//! Updates in place: an output takes over the storage of the input that it updates.
//!
//! The update destroys the old value, so nothing may have to be regenerated from it afterwards.
//! Either all values that need the old value become leaves first, or the old value stays and the
//! update works on a copy.
//!
//! An update that cannot be made is skipped: its handle still names the old value. A value is lost
//! only if a kernel had begun to write over it before the kernel failed.

use super::apply::Inputs;
use super::run::{Blocks, Failed, Order, Target, Targets};
use super::{Engine, Error, Keys, Layouts, StorageKey, TensorKey};
use crate::device::Device;
use crate::graph::StorageKeys;
use crate::layout::Layout;
use crate::op::Outputs;
use crate::step::takes_over;
use crate::store::Work;
use smallvec::SmallVec;

/// Storage and layout of each output.
pub(super) type Updated = SmallVec<[(StorageKey, Layout); 2]>;

/// Reason why an update was not made.
pub(super) struct Skipped {
    error: Error,
    /// Whether the error is an earlier failure, which the engine already keeps.
    known: bool,
    /// Whether the kernel had begun: the op then does not hear that it is skipped.
    launched: bool,
    /// Storages that the kernel may have written over in part.
    lost: Vec<StorageKey>,
}

impl Skipped {
    pub fn new(error: Error) -> Self {
        Self { error, known: false, launched: false, lost: Vec::new() }
    }

    /// Reason for skipping an update because of an earlier failure.
    pub fn known(error: Error) -> Self {
        Self { known: true, ..Self::new(error) }
    }
}

impl<D: Device> Engine<D> {
    /// Runs an op that writes over a value, or updates inputs.
    pub(super) fn try_in_place(
        &mut self,
        op: D::Op,
        keys: &[TensorKey],
        inputs: Inputs,
        outputs: &Outputs,
    ) -> Result<Keys, Skipped> {
        if self.writes_over(&op, &inputs, outputs) {
            self.try_over(op, keys, inputs)
        } else {
            self.try_update(op, keys, &inputs, outputs)
        }
    }

    /// Runs an op with at least one in-place output. All outputs are leaves, since the op cannot
    /// run twice. On success the targets (inputs that outputs replace) are consumed. If the update
    /// is skipped, the keys of the targets stay valid and name the old values.
    fn try_update(
        &mut self,
        op: D::Op,
        keys: &[TensorKey],
        inputs: &Inputs,
        outputs: &Outputs,
    ) -> Result<Keys, Skipped> {
        let work = Work::Op(op);
        match self.ensure_and_update(&work, inputs, outputs) {
            Ok(updated) => Ok(self.consume(keys, outputs, &updated)),
            Err(skipped) => {
                self.tell_skipped(&skipped, std::slice::from_ref(&work));
                Err(skipped)
            }
        }
    }

    fn ensure_and_update(
        &mut self,
        work: &Work<D>,
        inputs: &Inputs,
        outputs: &Outputs,
    ) -> Result<Updated, Skipped> {
        if let Some(error) = self.reason_among(&inputs.storages) {
            return Err(Skipped::known(error));
        }
        self.ensure(&inputs.storages).map_err(Skipped::new)?;
        let updated = self.update(work, inputs, outputs, None);
        self.release_pins(&inputs.storages);
        updated
    }

    /// Tells each op of updates that were not made, in order, that it is skipped. The kernel of the
    /// first one may have begun; then the first one is not told.
    pub(super) fn tell_skipped(&mut self, skipped: &Skipped, works: &[Work<D>]) {
        for work in &works[usize::from(skipped.launched).min(works.len())..] {
            self.skip_work(work, skipped.error.clone());
        }
    }

    /// Makes keys for the outputs of an update, and deletes the keys of its targets.
    pub(super) fn consume(
        &mut self,
        keys: &[TensorKey],
        outputs: &Outputs,
        updated: &Updated,
    ) -> Keys {
        let made =
            updated.iter().map(|&(key, layout)| self.store.graph.add_tensor(key, layout)).collect();
        keys[..outputs.targets()].iter().for_each(|&key| self.del(key));
        made
    }

    /// Keeps the failure of a skipped update, and poisons lost values. Returns the failure.
    pub(super) fn give_up_update(&mut self, skipped: Skipped) -> Error {
        let Skipped { error, known, lost, .. } = skipped;
        self.poison_quietly(&lost, &error);
        if !known {
            self.keep_failure(&error);
        }
        error
    }

    /// Keys for the outputs of a skipped update. In-place outputs get the targets' keys, which
    /// still name the old values. Other outputs get keys of lost values.
    pub(super) fn stand_ins(
        &mut self,
        keys: &[TensorKey],
        outputs: &Outputs,
        error: &Error,
    ) -> Keys {
        let (targets, fresh) = outputs.written().unwrap_or_default();
        let mut stand_ins = Keys::from_slice(&keys[..targets]);
        self.keep_old(&stand_ins, error);
        stand_ins.extend(self.poisoned(fresh, error));
        stand_ins
    }

    /// Makes the update, with all inputs resident and pinned. `scratch` is the workspace in bytes,
    /// if the update was prepared together with others. Returns the storage and layout of each
    /// output.
    pub(super) fn update(
        &mut self,
        work: &Work<D>,
        read: &Inputs,
        outputs: &Outputs,
        scratch: Option<u64>,
    ) -> Result<Updated, Skipped> {
        if scratch.is_none() {
            self.meet_threshold().map_err(Skipped::new)?;
            self.cut_targets_loose(read, outputs, &read.storages).map_err(Skipped::new)?;
        }
        // Choose the storage of each output. An input that is read from a copy has the layout of
        // the copy.
        let (targets, updated) = self.add_targets(read, outputs);
        let outs: Layouts = updated.iter().map(|&(_, layout)| layout).collect();
        let mut inputs = Layouts::from_slice(&read.layouts);
        let scratch = scratch.map_or_else(|| self.scratch_bytes(work, &inputs, &outs), Ok);
        for (target, layout) in targets.iter().zip(&outs) {
            if let Target::CopyOf { input, .. } = *target {
                inputs[input] = *layout;
            }
        }
        let mut blocks = Blocks::new();
        let run = scratch.map_err(Failed::from).and_then(|scratch| {
            let order = Order {
                work,
                path: None,
                sources: &read.storages,
                inputs: &inputs,
                looks: &read.layouts,
                targets: &targets,
                outputs: &outs,
                scratch,
                again: false,
                in_place: true,
            };
            self.run(&order, &mut blocks)
        });
        // On success, keep the outputs. On failure, delete new storages, and list as lost the
        // storages that the kernel may have written over.
        match run {
            Ok(cost) => {
                self.keep_made(&targets, &blocks, *cost.as_ref().unwrap_or(&0.0), false);
                // The update was made, even if the cost model failed.
                if let Err(error) = cost {
                    self.failures.keep(error);
                }
            }
            Err(Failed { error, launched }) => {
                let mut skipped = Skipped { launched, ..Skipped::new(error) };
                for &(storage, _) in &updated {
                    if !read.storages.contains(&storage) {
                        self.discard(storage);
                    } else if launched {
                        skipped.lost.push(storage);
                    }
                }
                return Err(skipped);
            }
        }
        // Make all outputs leaves, as if they were made now.
        for &(storage, _) in &updated {
            self.make_leaf(storage);
            let now = self.store.now;
            let storage = &mut self.store.graph.storages[storage];
            storage.last_used = now;
            storage.born = self.step;
            storage.label.get_or_insert_with(|| work.name().into());
        }
        Ok(updated)
    }

    /// For each target whose storage has no other handle, makes leaves of the values that need the
    /// old value. Fails if a failed run evicted one of `sources`, the inputs of all updates.
    pub(super) fn cut_targets_loose(
        &mut self,
        inputs: &Inputs,
        outputs: &Outputs,
        sources: &StorageKeys,
    ) -> Result<(), Error> {
        for &storage in &inputs.storages[..outputs.targets()] {
            if self.store.graph.storage(storage).handles == 1 {
                self.cut_dependents_loose(storage, sources)?;
            }
        }
        Ok(())
    }

    /// Chooses destination, storage and layout of each output: those of its target, or a new
    /// storage.
    fn add_targets(&mut self, read: &Inputs, outputs: &Outputs) -> (Targets, Updated) {
        let mut targets = Targets::new();
        let mut updated = Updated::new();
        for output in 0..outputs.len() {
            let taken_over = output < outputs.targets() && self.may_take_over(output, read);
            let (target, storage, layout) = if taken_over {
                let storage = read.storages[output];
                (Target::Storage(storage), storage, read.layouts[output])
            } else {
                let layout = outputs.layout(output, |input| read.layouts[input]);
                let storage = self.add_storage(&layout);
                let target = match output < outputs.targets() {
                    true => Target::CopyOf { input: output, storage },
                    false => Target::Storage(storage),
                };
                (target, storage, layout)
            };
            targets.push(target);
            updated.push((storage, layout));
        }
        (targets, updated)
    }

    /// Whether only the consumed handle needs the old value, and the handle's layout spans the
    /// whole storage.
    pub(super) fn may_take_over(&self, input: usize, inputs: &Inputs) -> bool {
        let (key, layout) = (inputs.storages[input], &inputs.layouts[input]);
        let storage = self.store.graph.storage(key);
        let reads = inputs.storages.iter().filter(|other| **other == key).count();
        storage.users.is_empty() && takes_over(layout, storage.bytes, storage.handles, reads)
    }

    /// Makes leaves of the held tensors that need `old` to be regenerated. Unheld storages between
    /// these tensors and `old` are then no longer needed. If the budget cannot hold all these
    /// leaves, no leaf is made, and the update works on a copy.
    ///
    /// Without these leaves, held gradients or a logged loss would keep the old parameters in
    /// memory, and all history with them. A run without a budget also has all held tensors on the
    /// device, but no copies of old parameters. Not called if another handle keeps the old value.
    ///
    /// # Errors
    /// If a failed run evicted one of `sources`.
    fn cut_dependents_loose(
        &mut self,
        old: StorageKey,
        sources: &StorageKeys,
    ) -> Result<(), Error> {
        let (mut held, _) = self.store.graph.heirs(old, usize::MAX);
        if !self.fit_as_leaves(&held) {
            return Ok(());
        }
        // Make leaves of resident storages first. Otherwise restoring an evicted storage might
        // evict the resident storages, which would then have to be restored as well.
        held.sort_by_key(|&key| self.store.graph.held(key).is_none());
        for key in held {
            if let Err(error) = self.commit_storage(key) {
                let intact = sources.iter().all(|&source| self.store.graph.held(source).is_some());
                if intact {
                    self.keep_other_bits(&error);
                    return Ok(());
                }
                return Err(error);
            }
        }
        Ok(())
    }
}
