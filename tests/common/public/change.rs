//! Changes of the values that handles name: updates, replacements, and training on a tape.

use super::journal::{Fate, Request};
use super::player::{Player, Slot};
use super::program::{Gradients, Pick, Segment, Update};
use remat::autograd::Tape;
use remat::ops::Op;
use remat::unstable::ops::{Accumulate, Contiguous, Lion, SgdMomentum};
use remat::unstable::program::TensorId;
use remat::{DType, Error, Layout, Tensor};

/// Update with all its operands, taken out of the slots that it changes.
struct Ready {
    target: usize,
    velocity: Option<usize>,
    other: Slot,
}

impl Player<'_> {
    /// Fate of the next request in the run that this oracle repeats. `None` if the oracle repeats
    /// no run.
    fn fate(&mut self) -> Option<Fate> {
        let fates = self.fates.as_mut()?;
        Some(*fates.next().expect("the run that this one follows made the same requests"))
    }

    /// Replaces the value of a handle by another value.
    pub fn replace(&mut self, target: usize, value: &Slot) {
        let id = self.slots[target].tensor.id();
        let fate = self.fate();
        if fate == Some(Fate::Skipped) {
            return self.rename(target);
        }
        // The old handle is kept only where it may be needed, because a second handle changes how
        // the engine updates and evicts.
        let old = (fate == Some(Fate::Either)).then(|| self.slots[target].clone());
        let replaced = self.runtime.replace(&mut self.slots[target].tensor, &value.tensor);
        let accepted = self.accept(replaced);
        let slot = &mut self.slots[target];
        let request = if accepted.is_some() {
            slot.others.clone_from(&value.others);
            slot.unknown = value.unknown;
            Request::Replace { old: id, value: value.tensor.id(), made: slot.tensor.id() }
        } else {
            Request::Refused
        };
        if let Some(old) = old {
            slot.others.push(old.tensor);
            slot.others.extend(old.others);
            slot.unknown |= old.unknown;
        }
        self.observed.requests.push(request);
    }

    pub fn update(&mut self, updates: &[Update], as_one: bool) {
        let mut taken: Vec<usize> = Vec::new();
        let mut ready = Vec::new();
        for update in updates {
            let is_plain = |layout: &Layout| layout.dtype() == DType::F32 && layout.is_contiguous();
            let Some(target) = self.pick(update.target, is_plain) else { continue };
            let wanted = *self.slots[target].tensor.layout();
            if taken.contains(&target) {
                continue;
            }
            taken.push(target);
            let velocity = match update.velocity {
                None => None,
                Some(pick) => match self.velocity(pick, target) {
                    Some(velocity) if taken.contains(&velocity) => continue,
                    velocity => velocity,
                },
            };
            taken.extend(velocity);
            let fits = |layout: &Layout| {
                is_like(layout, &wanted) && (velocity.is_none() || layout.is_contiguous())
            };
            let other = self.pick(update.other, fits).expect("it is like itself");
            ready.push(Ready { target, velocity, other: self.slots[other].clone() });
        }
        self.update_ready(ready, as_one);
    }

    /// Position of a velocity for a parameter. Another parameter's velocity may be picked.
    fn velocity(&mut self, pick: Pick, target: usize) -> Option<usize> {
        let wanted = *self.slots[target].tensor.layout();
        let fits = |layout: &Layout| is_like(layout, &wanted) && layout.is_contiguous();
        if let Some(found) = self.pick(pick, fits).filter(|&found| found != target) {
            return Some(found);
        }
        let made = self.runtime.full(wanted.shape(), 0.0);
        let made = self.accept(made)?;
        self.hold(made, false);
        Some(self.slots.len() - 1)
    }

    fn update_ready(&mut self, ready: Vec<Ready>, as_one: bool) {
        if self.fates.is_some() {
            ready.into_iter().for_each(|ready| match self.fate() {
                Some(Fate::Made) => self.update_now(vec![ready], false),
                _ => [Some(ready.target), ready.velocity]
                    .into_iter()
                    .flatten()
                    .for_each(|i| self.rename(i)),
            });
            return;
        }
        let targets: Vec<usize> = ready.iter().map(|ready| ready.target).collect();
        self.update_now(ready, as_one);
        for target in targets {
            self.groups += usize::from(!as_one);
            let made = self.slots[target].tensor.id();
            self.observed.requests.push(Request::Update { made, group: self.groups });
        }
        self.groups += 1;
    }

    /// Gives the same value a new handle, as a skipped update does. The new handle is packed even
    /// if the old one was a view.
    ///
    /// Gradients are looked up by handle, and no tape follows the new handle.
    fn rename(&mut self, target: usize) {
        let tensor = &mut self.slots[target].tensor;
        let packed = self.runtime.apply(Contiguous, &[tensor]);
        *tensor = packed.expect("any tensor can be packed").swap_remove(0).detach();
    }

    /// Makes the updates one by one, or all as one command.
    fn update_now(&mut self, ready: Vec<Ready>, as_one: bool) {
        let mut unknown = Vec::new();
        for Ready { target, velocity, other } in &ready {
            let read = [Some(*target), *velocity];
            let read: Vec<usize> = read.into_iter().flatten().collect();
            let is_unknown = self.is_unknown(&read) || !other.is_known();
            unknown.extend(read.into_iter().map(|i| (i, is_unknown)));
        }
        let mut tensors: Vec<Option<&mut Tensor>> =
            self.slots.iter_mut().map(|slot| Some(&mut slot.tensor)).collect();
        let updates = ready.iter().map(|Ready { target, velocity, other }| {
            let op = match velocity {
                None => Op::from(Accumulate),
                Some(_) if target % 2 == 1 => {
                    Lion { lr: 0.01, beta1: 0.9, beta2: 0.99, weight_decay: 1e-3 }.into()
                }
                Some(_) => {
                    SgdMomentum { lr: 0.1, momentum: 0.9, weight_decay: 1e-3, nesterov: false }
                        .into()
                }
            };
            let targets = [Some(*target), *velocity].into_iter().flatten();
            let targets = targets.map(|i| tensors[i].take().expect("each is a target once"));
            remat::Update { op, targets: targets.collect(), others: vec![&other.tensor] }
        });
        let updates: Vec<_> = updates.collect();
        self.observed.accepted += updates.len();
        if as_one {
            self.runtime.update_all(updates).expect("they fit");
        } else {
            for remat::Update { op, mut targets, others } in updates {
                self.runtime.update(op, &mut targets, &others).expect("it fits");
            }
        }
        for (i, is_unknown) in unknown {
            self.slots[i].others.clear();
            self.slots[i].unknown = is_unknown;
        }
    }

    pub fn segment(&mut self, segment: &Segment) {
        let tape = Tape::new(self.runtime);
        let mut watched: Vec<(usize, TensorId)> = Vec::new();
        for &pick in &segment.watched {
            let is_plain = |layout: &Layout| layout.is_contiguous() && layout.elements() > 0;
            let i = self.float(pick, is_plain, || vec![4, 8]);
            let id = self.slots[i].tensor.id();
            if watched.iter().all(|&(_, other)| other != id) {
                watched.push((i, id));
                tape.watch(&mut self.slots[i].tensor);
            }
        }
        // The clones are the newest slots, so that the calculations are likely to read them.
        let clones = self.slots.len();
        watched.iter().for_each(|&(i, _)| self.slots.push(self.slots[i].clone()));
        let first = self.slots.len();
        segment.calcs.iter().for_each(|calc| self.calc(calc));
        let everything: Vec<usize> = (0..self.slots.len()).collect();
        let unknown = self.is_unknown(&everything);
        // The loss depends on all floats that were calculated.
        let floats =
            (first..self.slots.len()).filter(|&i| self.slots[i].tensor.dtype() == DType::F32);
        let loss = floats.map(|i| self.slots[i].tensor.mean()).reduce(|a, b| a?.add(&b?));
        let loss = loss.and_then(|loss| self.accept(loss));
        if segment.lets_go {
            self.slots.truncate(clones);
        } else {
            self.slots.drain(clones..first);
        }
        let Some(loss) = loss else { return };
        if segment.gradients == Gradients::DescendMeanwhile {
            let done = tape.backward_with(&loss, |id, gradient| {
                let parameter = watched.iter().find(|&&(_, watched)| watched == id);
                self.descend(parameter.map(|&(i, id)| (i, id, gradient)).as_slice(), unknown, false)
            });
            self.accept(done);
        } else {
            let gradients = tape.backward(&loss);
            if let Some(mut gradients) = self.accept(gradients) {
                let found = watched.iter().filter_map(|&(i, id)| {
                    // Handles that were replaced in the meantime no longer name a watched tensor.
                    let gradient = gradients.take(&self.slots[i].tensor)?;
                    Some((i, id, gradient))
                });
                let found: Vec<(usize, TensorId, Tensor)> = found.collect();
                drop(gradients);
                match segment.gradients {
                    Gradients::LetGo => {}
                    Gradients::Hold => {
                        found.into_iter().for_each(|(_, _, gradient)| self.hold(gradient, unknown));
                    }
                    how => {
                        let done = self.descend(&found, unknown, how == Gradients::DescendAll);
                        self.accept(done);
                    }
                }
            }
        }
        self.hold(loss, unknown);
    }

    /// Updates each parameter that is still the one its gradient belongs to.
    fn descend(
        &mut self,
        gradients: &[(usize, TensorId, Tensor)],
        unknown: bool,
        as_one: bool,
    ) -> Result<(), Error> {
        let mut ready: Vec<Ready> = Vec::new();
        for (target, id, gradient) in gradients {
            if self.slots[*target].tensor.id() != *id {
                continue;
            }
            let tensor = gradient.contiguous()?;
            let velocity = self.velocity(0, *target);
            let is_taken = |i: &usize| {
                let others = gradients.iter().map(|&(target, ..)| target);
                others.chain(ready.iter().filter_map(|ready| ready.velocity)).any(|j| *i == j)
            };
            if velocity.as_ref().is_some_and(is_taken) {
                continue;
            }
            let other = Slot { tensor, others: Vec::new(), unknown };
            ready.push(Ready { target: *target, velocity, other });
        }
        self.update_ready(ready, as_one);
        Ok(())
    }
}

/// Whether two layouts have the same type and shape.
pub(super) fn is_like(layout: &Layout, other: &Layout) -> bool {
    layout.dtype() == other.dtype() && layout.shape() == other.shape()
}
