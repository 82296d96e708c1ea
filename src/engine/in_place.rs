//! Updates in place: the output takes over the storage of the input it consumes.
//!
//! The old value is gone then, so nothing may be left that would need it to be regenerated: what needs it
//! is made a leaf first, or else the old value stays and the update works on a copy.

use super::allocate::Owner;
use super::apply::{Inputs, StorageKeys};
use super::guard::guarded;
use super::run::Blocks;
use super::{Engine, Error, Keys, Layouts, StorageKey, TensorKey, Work};
use crate::device::Device;
use crate::layout::Layout;
use crate::memory::Held;
use crate::op::{Output, Outputs};
use rustc_hash::FxHashSet;
use smallvec::SmallVec;

/// The storage and layout of each output.
type Targets = SmallVec<[(StorageKey, Layout); 2]>;

impl<D: Device> Engine<D> {
    /// Runs an op with at least one in-place output. All its outputs are leaves: it cannot run twice.
    pub(super) fn issue_in_place(
        &mut self,
        op: D::Op,
        keys: &[TensorKey],
        inputs: &Inputs,
        outputs: &Outputs,
    ) -> Keys {
        let sources = inputs.storages.clone();
        let (targets, result) = match self.reason_among(&sources) {
            Some(error) => (self.add_targets(inputs, outputs, |_| false), Err((error, true))),
            None => match self.ensure(&sources) {
                Err(error) => (self.add_targets(inputs, outputs, |_| false), Err((error, false))),
                Ok(()) => {
                    let (targets, result) = self.update(op, inputs, outputs, &sources);
                    self.release_pins(&sources);
                    (targets, result.map_err(|error| (error, false)))
                }
            },
        };
        let made =
            targets.iter().map(|&(key, layout)| self.table.add_tensor(key, layout)).collect();
        for output in outputs {
            if let Output::InPlace { input } = *output {
                self.del(keys[input]);
            }
        }
        if let Err((error, known)) = result {
            let storages: StorageKeys = targets.iter().map(|&(key, _)| key).collect();
            if known {
                self.poison_quietly(&storages, &error)
            } else {
                self.poison(&storages, &error)
            }
        }
        made
    }

    /// The update itself, with all inputs resident and pinned. Returns where the outputs are, run or
    /// not.
    fn update(
        &mut self,
        op: D::Op,
        inputs: &Inputs,
        outputs: &Outputs,
        sources: &StorageKeys,
    ) -> (Targets, Result<(), Error>) {
        self.meet_threshold();
        for output in outputs {
            if let Output::InPlace { input } = *output
                && self.table.storage(sources[input]).handles == 1
                && let Err(error) = self.cut_dependents_loose(sources[input], sources)
            {
                return (self.add_targets(inputs, outputs, |_| false), Err(error));
            }
        }
        let takes_over: SmallVec<[bool; 4]> =
            (0..sources.len()).map(|input| self.may_take_over(input, inputs)).collect();
        let targets = self.add_targets(inputs, outputs, |input| takes_over[input]);
        let work = Work::Op(op);
        let mut ins: Layouts = inputs.layouts.iter().copied().collect();
        let outs: Layouts = targets.iter().map(|&(_, layout)| layout).collect();
        let absent = targets.iter().filter(|(key, _)| self.table.held(*key).is_none());
        let room = self.check_room(&work, &ins, &outs, absent.map(|(_, layout)| layout));
        if let Err(error) = room {
            return (targets, Err(error));
        }
        let mut sources = sources.clone();
        let mut blocks = Blocks::new();
        for (output, &(target, layout)) in outputs.iter().zip(&targets) {
            if let Some(block) = self.table.held(target) {
                self.make_leaf(target);
                blocks.push(block);
                continue;
            }
            let block = match self.take(&work, &ins, layout.bytes(), Owner::Storage(target)) {
                Ok(block) => block,
                Err(error) => return (targets, Err(error)),
            };
            self.table.set_resident(target, block);
            blocks.push(block);
            if let Output::InPlace { input } = *output {
                if let Err(error) = self.copy_value(sources[input], &inputs.layouts[input], block) {
                    return (targets, Err(error));
                }
                sources[input] = target;
                ins[input] = layout;
            }
        }
        let result = self.launch(&work, &sources, &ins, &blocks, &outs, false).map(|_| ());
        for &(target, _) in &targets {
            let storage = &mut self.table.storages[target];
            storage.last_used = self.now;
            storage.born = self.step;
            storage.label.get_or_insert_with(|| work.name().into());
        }
        (targets, result)
    }

    /// The storage and layout of each output: of its own, or the one it takes over.
    fn add_targets(
        &mut self,
        inputs: &Inputs,
        outputs: &Outputs,
        takes_over: impl Fn(usize) -> bool,
    ) -> Targets {
        let mut target = |output: &Output| match *output {
            Output::InPlace { input } if takes_over(input) => {
                (inputs.storages[input], inputs.layouts[input])
            }
            Output::InPlace { input } => {
                let old = inputs.layouts[input];
                let layout = Layout::contiguous(old.dtype(), *old.shape());
                (self.table.add_storage(layout.bytes(), self.now, self.step), layout)
            }
            Output::Fresh(layout) => {
                (self.table.add_storage(layout.bytes(), self.now, self.step), layout)
            }
            Output::View { .. } => unreachable!("views and others do not mix"),
        };
        outputs.iter().map(&mut target).collect()
    }

    /// Whether nothing but the consumed handle needs the old value, and the handle looks at all of it.
    fn may_take_over(&self, input: usize, inputs: &Inputs) -> bool {
        let (key, layout) = (inputs.storages[input], &inputs.layouts[input]);
        let storage = self.table.storage(key);
        let read_twice =
            inputs.storages.iter().enumerate().any(|(i, &other)| i != input && other == key);
        let whole = layout.offset() == 0 && layout.bytes() == storage.bytes;
        storage.handles == 1 && storage.users.is_empty() && whole && !read_twice
    }

    fn copy_value(&mut self, from: StorageKey, layout: &Layout, to: Held) -> Result<(), Error> {
        let held = self.table.held(from).expect("inputs are resident");
        let skip = layout.offset() as u64 * layout.dtype().bytes() as u64;
        let (source, target) = (self.space.offset(held) + skip, self.space.offset(to));
        guarded("copying the old value of an update", || {
            self.device.copy(source, target, layout.bytes())
        })
    }

    /// Makes leaves of the held tensors that need `old` to be regenerated. What nobody holds between
    /// them and `old` is then needed no more. If they would not fit as leaves all together, none is cut,
    /// and the update works on a copy.
    ///
    /// So neither the gradients that an optimizer is about to use nor a loss kept for the log nail down
    /// the old parameters and, with them, all history. Held tensors are on the device in a run without
    /// a budget, too; copies of old parameters are not. Not called where another handle keeps the old
    /// value anyway.
    ///
    /// # Errors
    /// If a run that failed took one of `sources`, the inputs of the update, with it.
    fn cut_dependents_loose(
        &mut self,
        old: StorageKey,
        sources: &StorageKeys,
    ) -> Result<(), Error> {
        let mut held = StorageKeys::new();
        let mut seen = FxHashSet::default();
        let mut stack: StorageKeys = self.table.dependents(old).collect();
        while let Some(key) = stack.pop() {
            if !seen.insert(key) {
                continue;
            }
            if self.table.storage(key).handles > 0 {
                held.push(key);
            } else {
                stack.extend(self.table.dependents(key));
            }
        }
        if !self.fit_as_leaves(&held) {
            return Ok(());
        }
        // Those at hand first: with them may go the reason to regenerate anything.
        held.sort_by_key(|&key| self.table.held(key).is_none());
        for key in held {
            if let Err(error) = self.commit_storage(key) {
                let intact = sources.iter().all(|&source| self.table.held(source).is_some());
                return if intact { Ok(()) } else { Err(error) };
            }
        }
        Ok(())
    }
}
