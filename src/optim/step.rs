//! Steps of an optimizer, which update parameters from gradients.

use super::distributed::{Reduction, ReserveBuffer, agree_order, apply_statistics};
use super::{Group, Kept, Optimizer, clip_grad_norm};
use crate::autograd::{Gradients, Tape};
use crate::collective::Ranks;
use crate::command::TensorId;
use crate::error::Error;
use crate::nn::{Module, parameters};
use crate::op::OpError;
use crate::ops::{Accumulate, Op, Tensor};
use crate::runtime::{Runtime, Update};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

/// A parameter about to be updated.
struct Part<'a> {
    name: String,
    parameter: &'a mut Tensor,
    kept: Kept,
    gradient: Tensor,
}

impl Part<'_> {
    /// Bytes that an update pins: parameter, gradient and state.
    fn bytes(&self) -> u64 {
        self.parameter.layout().bytes().saturating_mul(self.kept.states.len() as u64 + 2)
    }
}

impl Optimizer {
    /// Runs the backward pass of a tape from a scalar, and updates the parameters of `module`.
    ///
    /// Each parameter is updated as soon as its gradient is complete, or all parameters are updated
    /// at the end; see [`Optimizer::step_in_backward`].
    ///
    /// ```
    /// use remat::nn::Embedding;
    /// use remat::optim::Optimizer;
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let mut table = Embedding::of(runtime.full(&[3, 1], 2.0)?);
    /// let mut sgd = Optimizer::sgd(0.25, 0.0, 0.0);
    /// let tape = Tape::new(&runtime);
    /// tape.watch(&mut table);
    /// let rows = runtime.tensor(&[2], vec![0, 1])?;
    /// let loss = table.forward(&rows, Mode::Train)?.square()?.sum()?;
    /// sgd.minimize(tape, &loss, &mut table)?;
    /// runtime.step()?;
    /// assert_eq!(table.weight().to_vec::<f32>()?, [1.0, 1.0, 2.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if `loss` is not a scalar or depends on no watched tensor, or if no parameter is
    /// watched. Also fails if two parameters have the same name or are the same tensor. With
    /// [`Optimizer::all_or_none`] and a rule that counts steps, the call also waits for the updates
    /// and returns their error.
    pub fn minimize(
        &mut self,
        tape: Tape,
        loss: &Tensor,
        module: &mut dyn Module,
    ) -> Result<(), Error> {
        self.minimize_with(tape, loss, module, Gradients::default())
    }

    /// Like [`Optimizer::minimize`], but uses the sum of `gradients` and the gradients of `loss`.
    /// Call this method for the last of several micro-batches. To average the gradients over all
    /// micro-batches, divide each loss by their number.
    ///
    /// ```
    /// use remat::autograd::Gradients;
    /// use remat::nn::Linear;
    /// use remat::optim::Optimizer;
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("64KiB").cpu()?;
    /// let mut layer = Linear::new(&runtime, 2, 1)?;
    /// let mut sgd = Optimizer::sgd(0.1, 0.9, 0.0);
    /// let mut gradients = Gradients::default();
    /// for micro in 0..4 {
    ///     let x = runtime.full(&[8, 2], micro as f32)?;
    ///     let tape = Tape::new(&runtime);
    ///     tape.watch(&mut layer);
    ///     let loss = (layer.forward(&x, Mode::Train)?.square()?.mean()? / 4.0)?;
    ///     if micro < 3 {
    ///         tape.backward_onto(&loss, &mut gradients)?;
    ///     } else {
    ///         sgd.minimize_with(tape, &loss, &mut layer, std::mem::take(&mut gradients))?;
    ///     }
    /// }
    /// runtime.step()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails as [`Optimizer::minimize`] does.
    pub fn minimize_with(
        &mut self,
        tape: Tape,
        loss: &Tensor,
        module: &mut dyn Module,
        mut gradients: Gradients,
    ) -> Result<(), Error> {
        let runtime = tape.runtime().clone();
        let mut targets: Vec<(String, &mut Tensor)> = Vec::new();
        let mut places: FxHashMap<TensorId, usize> = FxHashMap::default();
        for (name, parameter) in distinct(module)? {
            if let Some(other) = places.insert(parameter.id(), targets.len()) {
                let other = &targets[other].0;
                let message = format!(
                    "`{name}` and `{other}` are the same tensor; update shared parameters by hand"
                );
                return Err(OpError::new("optimizer", message).into());
            }
            targets.push((name, parameter));
        }
        if !targets.iter().any(|(_, parameter)| tape.watches(parameter)) {
            let message = "none of the parameters is watched; watch() them before the forward pass";
            return Err(OpError::new("optimizer", message).into());
        }
        let ranks = self.ranks.clone();
        let statistics = runtime.take_statistics();
        let mut failed = Ok(());
        let mut reduction = match &ranks {
            None => None,
            Some(ranks) => {
                let count = targets.len();
                if self.order.len() != count {
                    (self.order, failed) = agree_order(ranks, &runtime, &tape, &places);
                }
                let room = self.reserve(ranks, &runtime, &targets)?;
                let has_gradient = |&place: &usize| tape.watches(targets[place].1);
                let order = self.order.iter().copied().filter(has_gradient);
                Some(Reduction::new(ranks, &runtime, order, count, room, self.all_or_none))
            }
        };
        if self.all_or_none || self.max_norm.is_some() || !self.step_in_backward {
            match reduction {
                None => tape.gradients_onto(loss, &mut gradients)?,
                // Gradients are summed over the ranks while the backward pass runs. Only the
                // updates wait for the end of the backward pass.
                Some(mut reduction) => {
                    let mut sums = Vec::new();
                    let mut took = |position, _: &str, _: &mut Tensor, sum| {
                        sums.push((position, sum));
                        Ok(())
                    };
                    tape.gradients_with(loss, |id, gradient| {
                        let Some(place) = places.remove(&id) else { return Ok(()) };
                        let gradient =
                            with_earlier(&runtime, &mut gradients, targets[place].1, gradient)?;
                        reduction.complete(place, gradient, &mut targets, &mut took)
                    })?;
                    reduction.finish(&mut targets, &mut gradients, &mut took)?;
                    sums.into_iter().for_each(|(at, sum)| gradients.set(targets[at].1, sum));
                }
            }
            self.step(&runtime, module, &mut gradients)?;
            if let Some(ranks) = &ranks {
                apply_statistics(ranks, &runtime, statistics, module)?;
            }
            return self.settle(&runtime).and(failed);
        }
        tape.backward_with(loss, |id, gradient| {
            let Some(place) = places.remove(&id) else { return Ok(()) };
            let gradient = with_earlier(&runtime, &mut gradients, targets[place].1, gradient)?;
            let Some(reduction) = &mut reduction else {
                let (name, parameter) = &mut targets[place];
                return self.update(&runtime, name, parameter, &gradient);
            };
            reduction.complete(
                place,
                gradient,
                &mut targets,
                &mut |_, name, parameter, sum: Tensor| self.update(&runtime, name, parameter, &sum),
            )
        })?;
        if let Some((reduction, ranks)) = reduction.zip(ranks.as_ref()) {
            reduction.finish(&mut targets, &mut gradients, &mut |_, name, parameter, sum| {
                self.update(&runtime, name, parameter, &sum)
            })?;
            return apply_statistics(ranks, &runtime, statistics, module).and(failed);
        }
        // Parameters that have gradients only from earlier micro-batches.
        for (name, parameter) in targets {
            if let Some(gradient) = gradients.take(parameter) {
                self.update(&runtime, &name, parameter, &gradient)?;
            }
        }
        Ok(())
    }

    /// Updates all parameters of a module that have a gradient, and frees the gradients. Gradients
    /// are clipped if [`Optimizer::max_norm`] is set. One op updates several parameters; see
    /// [`Optimizer::fused_share`].
    ///
    /// ```
    /// use remat::nn::Embedding;
    /// use remat::optim::Optimizer;
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let mut table = Embedding::of(runtime.ones(&[2, 1])?);
    /// let mut sgd = Optimizer::sgd(0.5, 0.0, 0.0);
    /// let tape = Tape::new(&runtime);
    /// tape.watch(&mut table);
    /// let row = runtime.tensor(&[1], vec![1])?;
    /// let mut gradients = tape.backward(&table.forward(&row, Mode::Train)?.sum()?)?;
    /// sgd.step(&runtime, &mut table, &mut gradients)?;
    /// assert_eq!(table.weight().to_vec::<f32>()?, [1.0, 0.5]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if a gradient does not have the shape of its parameter, or two parameters have the
    /// same name.
    pub fn step(
        &mut self,
        runtime: &Runtime,
        module: &mut dyn Module,
        gradients: &mut Gradients,
    ) -> Result<(), Error> {
        if let Some(max_norm) = self.max_norm {
            clip_grad_norm(runtime, module, gradients, max_norm)?;
        }
        // The agreement of all ranks comes before all updates. The agreement runs once memory is
        // found to suffice for all updates, before any update is made.
        let mut agreement = match &self.ranks {
            Some(ranks) if self.all_or_none => {
                Some((ranks.all_reduce("agreement"), runtime.zeros(&[1])?))
            }
            _ => None,
        };
        let mut parts: Vec<(Op, Vec<Part<'_>>)> = Vec::new();
        for (name, parameter) in distinct(module)? {
            let Some(gradient) = gradients.take(parameter) else { continue };
            let gradient = gradient.contiguous()?;
            let op = self.prepare(runtime, &name, parameter)?;
            // Take the states out of the map, so that all of them can be borrowed mutably at once.
            let kept = self.kept.remove(&name).unwrap_or_default();
            let part = Part { name, parameter, kept, gradient };
            match parts.iter_mut().find(|(other, _)| *other == op) {
                Some((_, parts)) => parts.push(part),
                None => parts.push((op, vec![part])),
            }
        }
        let most = (runtime.budget() as f64 * self.fused_share) as u64;
        let mut groups: Vec<(Op, Vec<Part<'_>>)> =
            parts.into_iter().flat_map(|(op, parts)| cut(&op, parts, most)).collect();
        let updated = if self.all_or_none {
            let mut updates = Vec::new();
            if let Some((op, agreed)) = &mut agreement {
                updates.push(Update { op: op.clone(), targets: vec![agreed], others: Vec::new() });
            }
            updates.extend(groups.iter_mut().map(|(op, parts)| update_of(op, parts)));
            runtime.update_all(updates)
        } else {
            groups.iter_mut().try_for_each(|(op, parts)| {
                let Update { op, mut targets, others } = update_of(op, parts);
                runtime.update(op, &mut targets, &others)?;
                Ok(())
            })
        };
        let is_made = updated.is_ok();
        // Put the states back into the map, whether or not the updates succeeded.
        for mut part in groups.into_iter().flat_map(|(_, parts)| parts) {
            part.kept.steps += u64::from(is_made);
            self.kept.insert(part.name, part.kept);
        }
        updated
    }

    /// Makes the replacements of the forward pass final. With [`Optimizer::all_or_none`] and a rule
    /// that counts steps, waits for the updates. If the updates failed, the step is not counted.
    fn settle(&mut self, runtime: &Runtime) -> Result<(), Error> {
        runtime.confirm()?;
        if !(self.all_or_none && self.rule.counts_steps()) {
            return Ok(());
        }
        runtime.sync().inspect_err(|_| {
            self.kept.values_mut().for_each(|kept| kept.steps = kept.steps.saturating_sub(1));
        })
    }

    /// Reserves the buffer in which gradients wait for their sums. Returns the size of the buffer
    /// in bytes: the size of the ranks' buffer, or less if all gradients fit in fewer bytes.
    fn reserve(
        &mut self,
        ranks: &Ranks,
        runtime: &Runtime,
        targets: &[(String, &mut Tensor)],
    ) -> Result<usize, Error> {
        let gradients = targets.iter().map(|(_, parameter)| parameter.layout().bytes() as usize);
        let (all, most) = gradients.fold((0, 0), |(all, most), one| (all + one, one.max(most)));
        // Half of the buffer has room for the largest gradient, if the ranks' buffer is that large.
        let bytes = all.max(2 * most).min(ranks.buffer());
        if self.buffer.as_ref().is_none_or(|buffer| buffer.layout().bytes() as usize != bytes) {
            let buffer = runtime.apply(ReserveBuffer { bytes }, &[])?.remove(0);
            runtime.label(&buffer, "buffer of the ranks")?;
            self.buffer = Some(buffer);
        }
        Ok(bytes)
    }

    fn update(
        &mut self,
        runtime: &Runtime,
        name: &str,
        parameter: &mut Tensor,
        gradient: &Tensor,
    ) -> Result<(), Error> {
        let gradient = gradient.contiguous()?;
        let op = self.prepare(runtime, name, parameter)?;
        let kept = self.kept.get_mut(name).expect("just made");
        let mut targets: SmallVec<[&mut Tensor; 3]> = SmallVec::new();
        targets.push(parameter);
        targets.extend(&mut kept.states);
        runtime.update(op, &mut targets, &[&gradient])?;
        kept.steps += 1;
        Ok(())
    }

    /// Op of the next update of a parameter. Creates the state of the parameter, all zeros, if the
    /// parameter has none yet.
    fn prepare(&mut self, runtime: &Runtime, name: &str, parameter: &Tensor) -> Result<Op, Error> {
        if !self.kept.contains_key(name) {
            let mut states = SmallVec::new();
            runtime.label(parameter, name)?;
            for state in self.rule.states() {
                let tensor = runtime.zeros(parameter.shape())?;
                runtime.label(&tensor, format!("{name} ({state})"))?;
                states.push(tensor);
            }
            self.kept.insert(name.to_owned(), Kept { steps: 0, states });
        }
        let [lr, weight_decay] =
            Group::settings(&self.groups, name, parameter, [self.lr, self.weight_decay]);
        Ok(self.rule.op(lr, weight_decay, self.steps(name)))
    }
}

/// Gradient of a parameter, added to the gradient of earlier micro-batches.
fn with_earlier(
    runtime: &Runtime,
    gradients: &mut Gradients,
    parameter: &Tensor,
    gradient: Tensor,
) -> Result<Tensor, Error> {
    match gradients.take(parameter) {
        Some(mut sum) => {
            runtime.update(Accumulate, &mut [&mut sum], &[&gradient])?;
            Ok(sum)
        }
        None => Ok(gradient),
    }
}

/// Cuts parameters with the same update into groups that pin at most `most` bytes. A parameter that
/// needs more is a group of its own.
fn cut<'a>(op: &Op, parts: Vec<Part<'a>>, most: u64) -> Vec<(Op, Vec<Part<'a>>)> {
    let mut groups: Vec<(Op, Vec<Part<'a>>)> = Vec::new();
    let mut pinned = 0u64;
    for part in parts {
        let bytes = part.bytes();
        pinned = pinned.saturating_add(bytes);
        match groups.last_mut() {
            Some((_, group)) if pinned <= most => group.push(part),
            _ => {
                pinned = bytes;
                groups.push((op.clone(), vec![part]));
            }
        }
    }
    groups
}

fn update_of<'a>(op: &Op, parts: &'a mut [Part<'_>]) -> Update<'a, Op> {
    let mut update = Update { op: op.clone(), targets: Vec::new(), others: Vec::new() };
    for Part { parameter, kept, gradient, .. } in parts {
        update.targets.push(parameter);
        update.targets.extend(&mut kept.states);
        update.others.push(gradient);
    }
    update
}

/// All parameters, with their names. Fails if two parameters have the same name, because state is
/// kept by name.
fn distinct(module: &mut dyn Module) -> Result<Vec<(String, &mut Tensor)>, Error> {
    let found: Vec<(String, &mut Tensor)> = parameters(module).collect();
    let mut names = FxHashSet::default();
    match found.iter().find(|(name, _)| !names.insert(name.as_str())) {
        None => {}
        Some((name, _)) => {
            let message = format!("two parameters are named `{name}`; name their modules apart");
            return Err(OpError::new("optimizer", message).into());
        }
    }
    Ok(found)
}
