//! Optimizers.

use crate::autograd::{Gradients, Tape};
use crate::error::Error;
use crate::nn::{Module, parameters};
use crate::op::OpError;
use crate::ops::Op;
use crate::runtime::{Ops, Runtime, Tensor};
use rustc_hash::{FxHashMap, FxHashSet};

/// Stochastic gradient descent with momentum and weight decay, fused and in place:
/// `v = momentum * v + grad + weight_decay * p; p -= lr * v`.
#[derive(Debug)]
pub struct Sgd {
    /// Learning rate; may change between steps.
    pub lr: f32,
    momentum: f32,
    weight_decay: f32,
    /// Name of a parameter -> its velocity, from its first update on.
    velocities: FxHashMap<String, Tensor>,
}

impl Sgd {
    /// An optimizer that has seen no step.
    #[must_use]
    pub fn new(lr: f32, momentum: f32, weight_decay: f32) -> Self {
        Self { lr, momentum, weight_decay, velocities: FxHashMap::default() }
    }

    /// Plays a tape backwards from a scalar, and updates each parameter of `module` as soon as its
    /// gradient is complete, so that the gradients are never all in memory.
    ///
    /// # Errors
    /// If `loss` is not a scalar, or two parameters have one name or are one tensor.
    pub fn minimize(
        &mut self,
        tape: Tape,
        loss: &Tensor,
        module: &mut dyn Module,
    ) -> Result<(), Error> {
        let runtime = tape.runtime().clone();
        let mut targets: FxHashMap<u64, (String, &mut Tensor)> = FxHashMap::default();
        for (name, parameter) in distinct(module)? {
            if let Some((other, _)) = targets.get(&parameter.id()) {
                let message = format!(
                    "`{name}` and `{other}` are one tensor; update shared parameters by hand"
                );
                return Err(OpError::new("sgd", message).into());
            }
            targets.insert(parameter.id(), (name, parameter));
        }
        tape.backward_with(loss, |id, gradient| match targets.remove(&id) {
            Some((name, parameter)) => self.update(&runtime, &name, parameter, &gradient),
            None => Ok(()),
        })
    }

    /// Updates all parameters of a module that have a gradient, letting each gradient go.
    ///
    /// # Errors
    /// If a gradient does not fit its parameter, or two parameters have one name.
    pub fn step(
        &mut self,
        runtime: &Runtime,
        module: &mut dyn Module,
        gradients: &mut Gradients,
    ) -> Result<(), Error> {
        for (name, parameter) in distinct(module)? {
            if let Some(gradient) = gradients.take(parameter) {
                self.update(runtime, &name, parameter, &gradient)?;
            }
        }
        Ok(())
    }

    fn update(
        &mut self,
        runtime: &Runtime,
        name: &str,
        parameter: &mut Tensor,
        gradient: &Tensor,
    ) -> Result<(), Error> {
        let op = Op::SgdMomentum {
            lr: self.lr,
            momentum: self.momentum,
            weight_decay: self.weight_decay,
        };
        let gradient = runtime.contiguous(gradient)?;
        if !self.velocities.contains_key(name) {
            self.velocities.insert(name.to_owned(), runtime.full(parameter.shape(), 0.0)?);
            runtime.label(parameter, name)?;
            runtime.label(&self.velocities[name], format!("{name} (velocity)"))?;
        }
        let velocity = self.velocities.get_mut(name).expect("just made");
        runtime.update(op, &mut [parameter, velocity], &[&gradient])
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
