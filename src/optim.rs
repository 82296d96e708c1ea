//! Optimizers.
//!
//! [`Sgd::minimize`] plays the tape backwards and updates each parameter as soon as its gradient is there, so that
//! gradients are never all in memory. The parts can be had one by one:
//!
//! ```
//! use remat::nn::Linear;
//! use remat::optim::Sgd;
//! use remat::prelude::*;
//!
//! let runtime = Runtime::builder().budget("64KiB").cpu()?;
//! let mut layer = Linear::new(&runtime, 2, 1)?;
//! let mut sgd = Sgd::new(0.1, 0.9, 0.0);
//! let x = runtime.tensor(&[2, 2], vec![1.0, 0.0, 0.0, 1.0])?;
//!
//! let tape = Tape::new(&runtime);
//! tape.watch(&mut layer);
//! let loss = layer.forward(&x, Mode::Train)?.square()?.mean()?;
//! let before = loss.item()?;
//! let mut gradients = tape.backward(&loss)?;
//! sgd.step(&runtime, &mut layer, &mut gradients)?;
//!
//! let after = layer.forward(&x, Mode::Infer)?.square()?.mean()?.item()?;
//! assert!(after < before);
//! # Ok::<(), Error>(())
//! ```

use crate::autograd::{Gradients, Tape};
use crate::error::Error;
use crate::id::TensorId;
use crate::nn::{Module, parameters};
use crate::op::OpError;
use crate::ops::{SgdMomentum, Tensor};
use crate::runtime::{Runtime, Update};
use rustc_hash::{FxHashMap, FxHashSet};

/// Stochastic gradient descent with momentum and weight decay, fused and in place:
/// `v = momentum * v + grad + weight_decay * p; p -= lr * v`.
#[derive(Debug)]
pub struct Sgd {
    /// Learning rate; may change between steps.
    pub lr: f32,
    /// Whether [`Sgd::minimize`] updates all parameters or none. Off by default: then each is updated, and its
    /// gradient let go, while the backward pass still runs; when something fails on the way, those updated by then
    /// stay updated, and the others keep their values.
    ///
    /// On, all gradients are in memory at once, as large together as the parameters, and a step that fails
    /// leaves parameters, velocities and running statistics as they were: it can be tried again with a
    /// smaller batch.
    pub all_or_none: bool,
    momentum: f32,
    weight_decay: f32,
    /// Name of a parameter -> its velocity, from its first update on.
    velocities: FxHashMap<String, Tensor>,
}

impl Sgd {
    /// An optimizer without velocities.
    #[must_use]
    pub fn new(lr: f32, momentum: f32, weight_decay: f32) -> Self {
        Self { lr, all_or_none: false, momentum, weight_decay, velocities: FxHashMap::default() }
    }

    /// The velocity of each parameter that was updated before, by the parameter's name, in alphabetical order.
    pub fn velocities(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        let mut all: Vec<_> = self.velocities.iter().map(|(n, v)| (n.as_str(), v)).collect();
        all.sort_unstable_by_key(|(name, _)| *name);
        all.into_iter()
    }

    /// Plays a tape backwards from a scalar, and updates each parameter of `module` as soon as its
    /// gradient is complete, so that the gradients are never all in memory; or else all of them at the end, see
    /// [`Sgd::all_or_none`].
    ///
    /// # Errors
    /// If `loss` is not a scalar or depends on no watched tensor, no parameter is watched, or two of them have
    /// one name or are one tensor.
    pub fn minimize(
        &mut self,
        tape: Tape,
        loss: &Tensor,
        module: &mut dyn Module,
    ) -> Result<(), Error> {
        let runtime = tape.runtime().clone();
        let mut targets: FxHashMap<TensorId, (String, &mut Tensor)> = FxHashMap::default();
        for (name, parameter) in distinct(module)? {
            if let Some((other, _)) = targets.get(&parameter.id()) {
                let message = format!(
                    "`{name}` and `{other}` are one tensor; update shared parameters by hand"
                );
                return Err(OpError::new("sgd", message).into());
            }
            targets.insert(parameter.id(), (name, parameter));
        }
        if !targets.values().any(|(_, parameter)| tape.watches(parameter)) {
            let message = "none of the parameters is watched; watch() them before the forward pass";
            return Err(OpError::new("sgd", message).into());
        }
        if self.all_or_none {
            let mut gradients = tape.gradients(loss)?;
            self.update_all(&runtime, module, &mut gradients)?;
            return runtime.confirm();
        }
        tape.backward_with(loss, |id, gradient| match targets.remove(&id) {
            Some((name, parameter)) => self.update(&runtime, &name, parameter, &gradient),
            None => Ok(()),
        })
    }

    /// Updates all parameters of a module that have a gradient, letting each gradient go; one after the other,
    /// or as one, see [`Sgd::all_or_none`].
    ///
    /// # Errors
    /// If a gradient does not fit its parameter, or two parameters have one name.
    pub fn step(
        &mut self,
        runtime: &Runtime,
        module: &mut dyn Module,
        gradients: &mut Gradients,
    ) -> Result<(), Error> {
        if self.all_or_none {
            return self.update_all(runtime, module, gradients);
        }
        for (name, parameter) in distinct(module)? {
            if let Some(gradient) = gradients.take(parameter) {
                self.update(runtime, &name, parameter, &gradient)?;
            }
        }
        Ok(())
    }

    fn update_all(
        &mut self,
        runtime: &Runtime,
        module: &mut dyn Module,
        gradients: &mut Gradients,
    ) -> Result<(), Error> {
        let mut parts = Vec::new();
        for (name, parameter) in distinct(module)? {
            if let Some(gradient) = gradients.take(parameter) {
                self.add_velocity(runtime, &name, parameter)?;
                parts.push((name, parameter, gradient.contiguous()?));
            }
        }
        // Out of the map, so that all can be lent at once.
        let mut parts: Vec<_> = (parts.into_iter())
            .map(|(name, parameter, gradient)| {
                let velocity = self.velocities.remove(&name).expect("just added");
                (name, parameter, velocity, gradient)
            })
            .collect();
        let op = self.op();
        let updates = parts.iter_mut().map(|(_, parameter, velocity, gradient)| Update {
            op: op.into(),
            targets: vec![parameter, velocity],
            others: vec![gradient],
        });
        let updated = runtime.update_all(updates.collect());
        self.velocities.extend(parts.into_iter().map(|(name, _, velocity, _)| (name, velocity)));
        updated
    }

    fn update(
        &mut self,
        runtime: &Runtime,
        name: &str,
        parameter: &mut Tensor,
        gradient: &Tensor,
    ) -> Result<(), Error> {
        let gradient = gradient.contiguous()?;
        self.add_velocity(runtime, name, parameter)?;
        let op = self.op();
        let velocity = self.velocities.get_mut(name).expect("just added");
        runtime.update(op, &mut [parameter, velocity], &[&gradient])
    }

    fn op(&self) -> SgdMomentum {
        let Self { lr, momentum, weight_decay, .. } = *self;
        SgdMomentum { lr, momentum, weight_decay }
    }

    /// Makes the velocity of a parameter, zeros, if there is none yet.
    fn add_velocity(
        &mut self,
        runtime: &Runtime,
        name: &str,
        parameter: &Tensor,
    ) -> Result<(), Error> {
        if !self.velocities.contains_key(name) {
            let velocity = runtime.zeros(parameter.shape())?;
            runtime.label(parameter, name)?;
            runtime.label(&velocity, format!("{name} (velocity)"))?;
            self.velocities.insert(name.to_owned(), velocity);
        }
        Ok(())
    }
}

/// All parameters, if no two have the same name: velocities are kept by name.
fn distinct(module: &mut dyn Module) -> Result<Vec<(String, &mut Tensor)>, Error> {
    let found: Vec<(String, &mut Tensor)> = parameters(module).collect();
    let mut names = FxHashSet::default();
    match found.iter().find(|(name, _)| !names.insert(name.as_str())) {
        None => {}
        Some((name, _)) => {
            let message = format!("two parameters are named `{name}`; name their modules apart");
            return Err(OpError::new("sgd", message).into());
        }
    }
    Ok(found)
}
