//! Updates in place: the output takes over the storage of the input it consumes.
//!
//! The old value is gone afterwards, so nothing that remains may need it to be regenerated. What needs it
//! becomes a leaf first; or the old value stays, and the update works on a copy.
//!
//! An update that cannot be made is skipped: its handle goes on naming the old value. Only what a kernel may have
//! written over before it failed is lost.

use super::allocate::Owner;
use super::apply::Inputs;
use super::guard::guarded;
use super::run::{Blocks, Launch};
use super::table::StorageKeys;
use super::{Engine, Error, Keys, Layouts, StorageKey, TensorKey, Work};
use crate::device::Device;
use crate::layout::Layout;
use crate::memory::Held;
use crate::op::{Output, Outputs};
use rustc_hash::FxHashSet;
use smallvec::SmallVec;

/// The storage and layout of each output.
pub(super) type Targets = SmallVec<[(StorageKey, Layout); 2]>;

/// Why an update was not made.
pub(super) struct Skipped {
    error: Error,
    /// Whether that is a failure of before.
    known: bool,
    /// Storages that the kernel may have written over.
    lost: Vec<StorageKey>,
}

impl Skipped {
    pub fn new(error: Error) -> Self {
        Self { error, known: false, lost: Vec::new() }
    }

    /// For a failure of before.
    pub fn known(error: Error) -> Self {
        Self { known: true, ..Self::new(error) }
    }
}

impl<D: Device> Engine<D> {
    /// Runs an op with at least one in-place output. All its outputs are leaves: it cannot run twice. On
    /// success its targets are consumed; if it is skipped their keys are as they were.
    pub(super) fn try_update(
        &mut self,
        op: D::Op,
        keys: &[TensorKey],
        inputs: &Inputs,
        outputs: &Outputs,
    ) -> Result<Keys, Skipped> {
        if let Some(error) = self.reason_among(&inputs.storages) {
            return Err(Skipped::known(error));
        }
        self.ensure(&inputs.storages).map_err(Skipped::new)?;
        let updated = self.update(op, inputs, outputs, None);
        self.release_pins(&inputs.storages);
        Ok(self.consume(keys, outputs, &updated?))
    }

    /// Keys for the outputs of an update that was made; those of its targets go.
    pub(super) fn consume(
        &mut self,
        keys: &[TensorKey],
        outputs: &Outputs,
        targets: &Targets,
    ) -> Keys {
        let made =
            targets.iter().map(|&(key, layout)| self.table.add_tensor(key, layout)).collect();
        for output in outputs {
            if let Output::InPlace { input } = *output {
                self.del(keys[input]);
            }
        }
        made
    }

    /// Takes note of an update that was not made. Returns why.
    pub(super) fn give_up_update(&mut self, skipped: Skipped) -> Error {
        let Skipped { error, known, lost } = skipped;
        self.poison_quietly(&lost, &error);
        if !known {
            self.keep_failure(&error);
        }
        self.failures.skip(&error);
        error
    }

    /// Keys for the outputs of an update that was not made: those of its targets, which go on naming the old
    /// values, and those of lost values.
    pub(super) fn stand_ins(
        &mut self,
        keys: &[TensorKey],
        outputs: &Outputs,
        error: &Error,
    ) -> Keys {
        let stand_in = |output: &Output| match *output {
            Output::InPlace { input } => keys[input],
            Output::Fresh(layout) | Output::View { layout, .. } => {
                let storage = self.table.add_storage(layout.bytes(), self.now, self.step);
                let key = self.table.add_tensor(storage, layout);
                self.poison_quietly(&[storage], error);
                key
            }
        };
        outputs.iter().map(stand_in).collect()
    }

    /// The update itself, with all inputs resident and pinned, and its workspace if it was prepared with
    /// others. Returns where the outputs are.
    pub(super) fn update(
        &mut self,
        op: D::Op,
        inputs: &Inputs,
        outputs: &Outputs,
        scratch: Option<u64>,
    ) -> Result<Targets, Skipped> {
        if scratch.is_none() {
            self.meet_threshold().map_err(Skipped::new)?;
            self.cut_targets_loose(inputs, outputs, &inputs.storages).map_err(Skipped::new)?;
        }
        let takes_over: SmallVec<[bool; 4]> =
            (0..inputs.storages.len()).map(|input| self.may_take_over(input, inputs)).collect();
        let targets = self.add_targets(inputs, outputs, |input| takes_over[input]);
        let work = Work::Op(op);
        let (mut sources, mut ins) =
            (inputs.storages.clone(), Layouts::from_slice(&inputs.layouts));
        let outs: Layouts = targets.iter().map(|&(_, layout)| layout).collect();
        let scratch = scratch.map_or_else(|| self.scratch_bytes(&work, &ins, &outs), Ok);
        let placed = scratch.and_then(|scratch| {
            let operands = (&mut sources, &mut ins);
            Ok((self.place_targets(&work, operands, outputs, &targets, scratch)?, scratch))
        });
        let (is_placed, launched) = match placed {
            Ok((blocks, scratch)) => {
                let what = Launch { inputs: &ins, outputs: &outs, scratch, again: false };
                (true, self.launch(&work, &sources, &blocks, what))
            }
            Err(error) => (false, Err(error)),
        };
        match launched {
            Ok(Ok(_)) => {}
            // It was made, whatever it cost.
            Ok(Err(error)) => self.failures.keep(error),
            Err(error) => {
                let was_run = is_placed && matches!(error, Error::Device(_));
                let mut skipped = Skipped::new(error);
                for (output, &(target, _)) in outputs.iter().zip(&targets) {
                    match *output {
                        Output::InPlace { input } if takes_over[input] => {
                            skipped.lost.extend(was_run.then_some(target));
                        }
                        _ => self.discard(target),
                    }
                }
                return Err(skipped);
            }
        }
        for (output, &(target, _)) in outputs.iter().zip(&targets) {
            if matches!(*output, Output::InPlace { input } if takes_over[input]) {
                self.make_leaf(target);
            }
            let storage = &mut self.table.storages[target];
            storage.last_used = self.now;
            storage.born = self.step;
            storage.label.get_or_insert_with(|| work.name().into());
        }
        Ok(targets)
    }

    /// A block for each target. Where one works on a copy, that is what is read: `sources` and `ins` change.
    fn place_targets(
        &mut self,
        work: &Work<D>,
        (sources, ins): (&mut StorageKeys, &mut Layouts),
        outputs: &Outputs,
        targets: &Targets,
        scratch: u64,
    ) -> Result<Blocks, Error> {
        let absent = targets.iter().filter(|(key, _)| self.table.held(*key).is_none());
        let wanted = absent.map(|(_, layout)| self.space.round(layout.bytes()));
        self.check_room(work, ins, wanted.fold(0, u64::saturating_add), scratch)?;
        let mut blocks = Blocks::new();
        for (output, &(target, layout)) in outputs.iter().zip(targets) {
            if let Some(block) = self.table.held(target) {
                blocks.push(block);
                continue;
            }
            let block = self.take(work, ins, layout.bytes(), Owner::Storage(target))?;
            self.table.set_resident(target, block);
            blocks.push(block);
            if let Output::InPlace { input } = *output {
                self.copy_value(sources[input], &ins[input], block)?;
                sources[input] = target;
                ins[input] = layout;
            }
        }
        Ok(blocks)
    }

    /// Makes leaves of what would need old values of targets to be regenerated, where that helps. Fails if a run
    /// that failed took one of `sources` with it, all that is to be read.
    pub(super) fn cut_targets_loose(
        &mut self,
        inputs: &Inputs,
        outputs: &Outputs,
        sources: &StorageKeys,
    ) -> Result<(), Error> {
        for output in outputs {
            if let Output::InPlace { input } = *output
                && self.table.storage(inputs.storages[input]).handles == 1
            {
                self.cut_dependents_loose(inputs.storages[input], sources)?;
            }
        }
        Ok(())
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
    pub(super) fn may_take_over(&self, input: usize, inputs: &Inputs) -> bool {
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
    /// If a run that failed took one of `sources` with it.
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
