//! Updates in place, one or several at once, and replacements.

use super::{Runtime, Shared};
use crate::command::{Apply, Command, Consumed};
use crate::error::Error;
use crate::op::{OpError, Operation};
use crate::ops::{Tensor, Tensors};
use smallvec::SmallVec;

/// One of several updates in place; see [`Runtime::update_all`].
///
/// ```
/// use remat::Update;
/// use remat::ops::Op;
/// use remat::unstable::ops::Accumulate;
/// use remat::prelude::*;
///
/// let runtime = Runtime::builder().budget("1MiB").cpu()?;
/// let (mut sum, one) = (runtime.zeros(&[2])?, runtime.ones(&[2])?);
/// let op = Op::from(Accumulate);
/// runtime.update_all(vec![Update { op, targets: vec![&mut sum], others: vec![&one] }])?;
/// assert_eq!(sum.to_vec::<f32>()?, [1.0, 1.0]);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct Update<'a, O: Operation> {
    /// An op whose outputs are exactly its first inputs, updated in place.
    pub op: O,
    /// Tensors to update, the op's first inputs. After the update, the handles name the new values.
    pub targets: Vec<&'a mut Tensor>,
    /// Other inputs of the op.
    pub others: Vec<&'a Tensor>,
}

impl<O: Operation, H: Send + Sync + 'static> Runtime<O, H> {
    /// Runs an op that updates in place. The op's first inputs are `targets`. After the update, the
    /// handles in `targets` name the op's outputs.
    ///
    /// ```
    /// use remat::unstable::ops::Accumulate;
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("64KiB").cpu()?;
    /// let mut sum = runtime.zeros(&[2])?;
    /// runtime.update(Accumulate, &mut [&mut sum], &[&runtime.ones(&[2])?])?;
    /// assert_eq!(sum.to_vec::<f32>()?, [1.0, 1.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// If other handles name the old value, they keep the old value, and the update works on a
    /// copy. If no other handle names the old value, the update overwrites its storage.
    ///
    /// The new values are leaves, unless the op's outputs are
    /// [`Outputs::Over`](crate::op::Outputs::Over).
    ///
    /// An update is skipped if another input is lost to a failure, or if memory does not suffice.
    /// After a skipped update, the handles keep the old values, and the next `get` or `sync`
    /// returns the reason, once. Until the reason is returned, values computed from `targets` are
    /// lost for the same reason. A later successful update makes the handles usable again.
    ///
    /// # Errors
    /// Fails as [`Runtime::apply`] does, and if the outputs of the op are not exactly its first
    /// inputs in place. After an error, nothing has changed.
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

    /// Runs several updates, either all or none.
    ///
    /// No update runs if anything failed since the last [`Runtime::step`], or if all inputs and
    /// workspaces together do not fit in memory. If no update runs, all handles keep the old
    /// values, and the next `get` or `sync` returns the reason, once.
    ///
    /// There are two exceptions, in which only some updates run: the device fails halfway, or a
    /// cost model or an op's `flops` panics.
    ///
    /// ```
    /// use remat::Update;
    /// use remat::unstable::ops::Accumulate;
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let (mut a, mut b) = (runtime.zeros(&[2])?, runtime.ones(&[3])?);
    /// let (da, db) = (runtime.ones(&[2])?, runtime.ones(&[3])?);
    /// runtime.update_all(vec![
    ///     Update { op: Accumulate.into(), targets: vec![&mut a], others: vec![&da] },
    ///     Update { op: Accumulate.into(), targets: vec![&mut b], others: vec![&db] },
    /// ])?;
    /// assert_eq!(a.to_vec::<f32>()?, [1.0, 1.0]);
    /// assert_eq!(b.to_vec::<f32>()?, [2.0, 2.0, 2.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails as [`Runtime::update`] does. After an error, nothing has changed.
    pub fn update_all(&self, updates: Vec<Update<'_, O>>) -> Result<(), Error> {
        let mut calls = Vec::with_capacity(updates.len());
        let mut renamed = Vec::with_capacity(updates.len());
        for Update { op, mut targets, others } in updates {
            let (call, made) = self.shared.update_call(op, &mut targets, &others)?;
            if !call.outputs.are_updates() {
                let message = "writes over a value, which is a command of its own";
                return Err(OpError::new(call.op.name(), message).into());
            }
            calls.push(call);
            renamed.push((targets, made));
        }
        self.shared.command(Command::UpdateAll(calls))?;
        renamed.into_iter().for_each(|(mut targets, made)| rename(&mut targets, made));
        Ok(())
    }

    /// Replaces the value of `target` by `value`, which becomes a leaf. Use `replace` for state
    /// that is computed anew instead of updated in place, such as the running statistics of a batch
    /// norm.
    ///
    /// If `value` is lost to a failure, or anything failed since the last [`Runtime::step`],
    /// `target` keeps the old value. If anything fails before the next step, or before the next
    /// backward pass of a [`Tape`](crate::autograd::Tape), `target` gets the old value back.
    ///
    /// When `target` keeps or gets back the old value, the next `get` of `target` returns the
    /// reason, once. If the reason was reported before, or a later replacement or update of
    /// `target` succeeded, `get` returns the value.
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let mut mean = runtime.zeros(&[2])?;
    /// let batch = runtime.full(&[2], 4.0)?;
    /// let new = ((&mean * 0.5)? + (&batch * 0.5)?)?;
    /// runtime.replace(&mut mean, &new)?;
    /// assert_eq!(mean.to_vec::<f32>()?, [2.0, 2.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if `target` and `value` differ in type or shape, or one of them is not contiguous or
    /// belongs to another runtime. After an error, nothing has changed.
    pub fn replace(&self, target: &mut Tensor, value: &Tensor) -> Result<(), Error> {
        self.shared.replace(target, value)
    }
}

impl<O: Operation, H: Send + Sync + 'static> Shared<O, H> {
    pub(super) fn replace(&self, target: &mut Tensor, value: &Tensor) -> Result<(), Error> {
        let (old, new) = (self.own(target, "replace")?, self.own(value, "replace")?);
        let is_plain = target.layout().is_contiguous() && target.layout().offset() == 0;
        if target.layout() != value.layout() || !is_plain {
            let message = format!("{} cannot replace {}", value.layout(), target.layout());
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
        if outputs.written() != Some((targets.len(), &[])) {
            let message =
                format!("must update in place exactly its first {} inputs", targets.len());
            return Err(OpError::new(op.name(), message).into());
        }
        Ok(self.call(op, &inputs, consumed, outputs))
    }
}

/// Makes the handles in `targets` name the new values in `made`.
fn rename(targets: &mut [&mut Tensor], made: Tensors) {
    for (target, new) in targets.iter_mut().zip(made) {
        **target = new;
    }
}
