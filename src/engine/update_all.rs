//! Several updates made as one: either all of them are made, or none.

use super::apply::Inputs;
use super::in_place::{Skipped, Updated};
use super::{Engine, Error, Keys, LastRun, Layouts, TensorKey};
use crate::device::Device;
use crate::graph::StorageKeys;
use crate::op::{OpError, Operation as _, Outputs};
use crate::store::Work;
use rustc_hash::FxHashSet;

/// Result of one of several updates that were issued together.
#[derive(Clone, Debug)]
pub struct Issued {
    /// Outputs of the update.
    pub made: Keys,
    /// Run of the update; all zero if the update was skipped.
    pub run: LastRun,
}

/// Update for [`Engine::issue_all`]: the arguments of [`Engine::issue`].
#[derive(Clone, Debug)]
pub struct Issue<O> {
    /// Op whose outputs are all in place.
    pub op: O,
    /// Inputs of the op.
    pub inputs: Vec<TensorKey>,
    /// Outputs of the op.
    pub outputs: Outputs,
}

impl<D: Device> Engine<D> {
    /// Makes updates one after the other, as [`Engine::issue`] would. No update is made if a
    /// command failed earlier in the step, or if memory does not suffice for all updates together.
    /// All outputs are the old values if no update is made.
    ///
    /// Only two things can interrupt the updates in the middle: a failing device, or a panic of the
    /// cost model or of an op's `flops`. After an interruption, values that the device had begun to
    /// write over are lost, and the remaining updates are skipped.
    ///
    /// # Errors
    /// Fails if an input key names no tensor, or the outputs contradict the inputs, or are not all in
    /// place. After an error, nothing was done.
    pub fn issue_all(&mut self, updates: Vec<Issue<D::Op>>) -> Result<Vec<Issued>, Error> {
        let (ops, rest): (Vec<D::Op>, Vec<_>) = updates
            .into_iter()
            .map(|Issue { op, inputs, outputs }| (op, (inputs, outputs)))
            .unzip();
        let parts = match self.parts_of(&ops, rest) {
            Ok(parts) => parts,
            Err(error) => {
                ops.iter().for_each(|op| _ = self.skip(op, error.clone()));
                return Err(error);
            }
        };
        let works: Vec<Work<D>> = ops.into_iter().map(Work::Op).collect();
        let mut parts_read = parts.iter().map(|part| &part.keys[part.outputs.targets()..]);
        let stale = parts_read.find_map(|keys| self.failures.of_stale_among(keys));
        let (done, skipped) = match self.failures.of_step().cloned().or(stale) {
            Some(error) => (Vec::new(), Some(Skipped::known(error))),
            None => self.update_all(&works, &parts),
        };
        let mut made = Vec::with_capacity(parts.len());
        for (Part { keys, outputs, .. }, (targets, run)) in parts.iter().zip(&done) {
            made.push(Issued { made: self.consume(keys, outputs, targets), run: *run });
        }
        // Handle the failure only after the loop: a failure undoes replacements, and may delete
        // storages that the targets name.
        if let Some(skipped) = skipped {
            self.tell_skipped(&skipped, &works[done.len()..]);
            let error = self.give_up_update(skipped);
            for Part { keys, outputs, .. } in &parts[done.len()..] {
                let made_of_old = self.stand_ins(keys, outputs, &error);
                made.push(Issued { made: made_of_old, run: LastRun::default() });
            }
        }
        Ok(made)
    }

    /// The updates without their ops.
    ///
    /// # Errors
    /// If the engine is broken, or an update is not as [`Engine::issue_all`] requires.
    fn parts_of(
        &mut self,
        ops: &[D::Op],
        rest: Vec<(Vec<TensorKey>, Outputs)>,
    ) -> Result<Vec<Part>, Error> {
        self.working()?;
        let mut parts = Vec::with_capacity(rest.len());
        for (op, (keys, outputs)) in ops.iter().zip(rest) {
            if outputs.targets() < outputs.len() || outputs == Outputs::Over {
                return Err(OpError::new(op.name(), "must only update its inputs in place").into());
            }
            let read = self.inputs(op, &keys, &outputs)?;
            parts.push(Part { keys, read, outputs });
        }
        Ok(parts)
    }

    /// Makes the updates. Returns the targets and runs of the updates made, and the reason why the
    /// remaining updates were not made.
    fn update_all(
        &mut self,
        works: &[Work<D>],
        parts: &[Part],
    ) -> (Vec<(Updated, LastRun)>, Option<Skipped>) {
        let sources: StorageKeys =
            parts.iter().flat_map(|part| part.read.storages.iter().copied()).collect();
        if let Some(error) = self.reason_among(&sources) {
            return (Vec::new(), Some(Skipped::known(error)));
        }
        if let Err(error) = self.ensure(&sources) {
            return (Vec::new(), Some(Skipped::new(error)));
        }
        // For a storage that is read twice, extra handles keep the old value until the last update
        // has read it.
        let mut seen = FxHashSet::default();
        let looks = parts.iter().flat_map(|part| part.read.storages.iter().zip(&part.read.layouts));
        let kept: Vec<TensorKey> = looks
            .filter(|(storage, _)| !seen.insert(**storage))
            .map(|(&storage, &layout)| self.store.graph.add_tensor(storage, layout))
            .collect();
        let mut done = Vec::new();
        let mut skipped = None;
        match self.workspaces_of_all(works, parts, &sources) {
            Ok(scratch) => {
                for ((work, Part { read, outputs, .. }), bytes) in
                    works.iter().zip(parts).zip(scratch)
                {
                    match self.update(work, read, outputs, Some(bytes)) {
                        Ok(targets) => done.push((targets, self.last_run)),
                        Err(why) => {
                            skipped = Some(why);
                            break;
                        }
                    }
                }
            }
            Err(error) => skipped = Some(Skipped::new(error)),
        }
        kept.into_iter().for_each(|key| self.del(key));
        self.release_pins(&sources);
        (done, skipped)
    }

    /// Prepares all updates, and returns the workspace of each update in bytes. Fails if memory
    /// does not suffice for the largest workspace together with all copies of old values.
    fn workspaces_of_all(
        &mut self,
        works: &[Work<D>],
        parts: &[Part],
        sources: &StorageKeys,
    ) -> Result<Vec<u64>, Error> {
        self.meet_threshold()?;
        let mut copies = 0u64;
        let mut scratch = Vec::with_capacity(works.len());
        for (work, Part { read, outputs, .. }) in works.iter().zip(parts) {
            self.cut_targets_loose(read, outputs, sources)?;
            let mut outs = Layouts::new();
            for input in 0..outputs.targets() {
                outs.push(read.layouts[input]);
                if !self.may_take_over(input, read) {
                    let bytes = self.store.space.at_most(read.layouts[input].bytes());
                    copies = copies.saturating_add(bytes);
                }
            }
            scratch.push(self.scratch_bytes(work, &read.layouts, &outs)?);
        }
        let Some((largest, &bytes)) = scratch.iter().enumerate().max_by_key(|(_, bytes)| **bytes)
        else {
            return Ok(scratch);
        };
        let wanted =
            copies.saturating_add(if bytes > 0 { self.store.space.at_most(bytes) } else { 0 });
        if self.may_get(wanted) {
            Ok(scratch)
        } else {
            Err(self.out_of_memory(works[largest].name(), &parts[largest].read.layouts, wanted))
        }
    }
}

/// Update without its op.
struct Part {
    keys: Vec<TensorKey>,
    read: Inputs,
    outputs: Outputs,
}
