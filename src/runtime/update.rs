//! Updates in place, one or several at once, and replacements.

use super::{Runtime, Shared};
use crate::command::{Apply, Command, Consumed};
use crate::error::Error;
use crate::op::{OpError, Operation, Outputs};
use crate::ops::{Tensor, Tensors};
use smallvec::SmallVec;

/// One of several updates in place; see [`Runtime::update_all`].
#[derive(Debug)]
pub struct Update<'a, O: Operation> {
    /// An op whose outputs are its first inputs in place, and no others.
    pub op: O,
    /// Those inputs. The handles stand for the new values afterwards.
    pub targets: Vec<&'a mut Tensor>,
    /// The other inputs.
    pub others: Vec<&'a Tensor>,
}

impl<O: Operation, H: Send + Sync + 'static> Runtime<O, H> {
    /// Runs an op that updates in place. Its first inputs are `targets`, whose new values are its
    /// outputs; the handles in `targets` stand for the new values afterwards.
    ///
    /// ```
    /// use remat::ops::Accumulate;
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("64KiB").cpu()?;
    /// let mut sum = runtime.zeros(&[2])?;
    /// runtime.update(Accumulate, &mut [&mut sum], &[&runtime.ones(&[2])?])?;
    /// assert_eq!(sum.to_vec::<f32>()?, [1.0, 1.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// If there are other handles to an old value, they keep it, and the update works on a copy. Otherwise it works in
    /// the storage itself.
    ///
    /// An update that cannot be made, because another input is lost to a failure or there is no room, is skipped: the
    /// handles keep the old values. The next `get` or `sync` returns the reason, once. Until then, what is computed from
    /// these handles is lost for the same reason; an update of them that works clears that.
    ///
    /// # Errors
    /// As for [`Runtime::apply`], and if the outputs of the op are not exactly its first inputs in place. Nothing has
    /// changed then.
    pub fn update(
        &self,
        op: impl Into<O>,
        targets: &mut [&mut Tensor],
        others: &[&Tensor],
    ) -> Result<(), Error> {
        let (call, made) = self.shared.update_call(op.into(), targets, others)?;
        self.shared.command(Command::Apply(call))?;
        rename(targets, made);
        Ok(())
    }

    /// Several updates, all or none. If anything failed since the last [`Runtime::step`], or memory does not hold all
    /// inputs and workspaces together, none is made, and all handles keep the old values. The next `get` or `sync`
    /// returns the reason, once.
    ///
    /// Only if the device fails halfway, or a cost model or an op's `flops` panics, may some updates be made and others
    /// not.
    ///
    /// # Errors
    /// As for [`Runtime::update`]. Nothing has changed then.
    pub fn update_all(&self, updates: Vec<Update<'_, O>>) -> Result<(), Error> {
        let mut calls = Vec::with_capacity(updates.len());
        let mut renamed = Vec::with_capacity(updates.len());
        for Update { op, mut targets, others } in updates {
            let (call, made) = self.shared.update_call(op, &mut targets, &others)?;
            calls.push(call);
            renamed.push((targets, made));
        }
        self.shared.command(Command::UpdateAll(calls))?;
        renamed.into_iter().for_each(|(mut targets, made)| rename(&mut targets, made));
        Ok(())
    }

    /// Lets `target` stand for `value` from now on, which becomes a leaf. For state that is computed anew instead of
    /// being updated in place, such as the running statistics of a batch norm.
    ///
    /// If `value` is lost to a failure, or anything failed since the last [`Runtime::step`], `target` keeps the old
    /// value. If anything fails before the next step, or before the next backward pass of a
    /// [`Tape`](crate::autograd::Tape), it gets the old value back.
    /// The next `get` of `target` returns the reason then, once, unless it was told before, or another replacement or an
    /// update of `target` worked.
    ///
    /// # Errors
    /// If the two differ in type or shape, are not contiguous, or belong to another runtime. Nothing has changed then.
    pub fn replace(&self, target: &mut Tensor, value: &Tensor) -> Result<(), Error> {
        self.shared.replace(target, value)
    }
}

impl<O: Operation, H: Send + Sync + 'static> Shared<O, H> {
    pub(super) fn replace(&self, target: &mut Tensor, value: &Tensor) -> Result<(), Error> {
        let (old, new) = (self.own(target, "replace")?, self.own(value, "replace")?);
        let is_plain = target.layout().is_contiguous() && target.layout().offset() == 0;
        if target.layout() != value.layout() || !is_plain {
            let message =
                format!("{} cannot take the place of {}", value.layout(), target.layout());
            return Err(OpError::new("replace", message).into());
        }
        let made = self.new_tensor(*target.layout());
        let consumed = target.is_last_handle();
        self.command(Command::Replace { target: old, consumed, value: new, made: made.id() })?;
        *target = made;
        Ok(())
    }

    fn update_call(
        &self,
        op: O,
        targets: &mut [&mut Tensor],
        others: &[&Tensor],
    ) -> Result<(Apply<O>, Tensors), Error> {
        let mut consumed = Consumed::default();
        for (input, target) in targets.iter_mut().enumerate() {
            if target.is_last_handle() {
                consumed.insert(input);
            }
        }
        let inputs: SmallVec<[&Tensor; 4]> =
            targets.iter().map(|t| &**t).chain(others.iter().copied()).collect();
        let outputs = self.infer(&op, &inputs)?;
        if outputs != Outputs::updates(targets.len()) {
            let message =
                format!("does not update just its first {} inputs in place", targets.len());
            return Err(OpError::new(op.name(), message).into());
        }
        Ok(self.call(op, &inputs, consumed, outputs))
    }
}

/// Lets handles stand for new values.
fn rename(targets: &mut [&mut Tensor], made: Tensors) {
    for (target, new) in targets.iter_mut().zip(made) {
        **target = new;
    }
}
