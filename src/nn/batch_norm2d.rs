use super::{Mode, Module, State, join};
use crate::error::Error;
use crate::runtime::{Ops, Tensor};

/// Batch normalization over the channels of images (Ioffe and Szegedy, ICML 2015).
#[derive(Debug)]
pub struct BatchNorm2d {
    gamma: Tensor,
    beta: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
}

impl BatchNorm2d {
    /// Weight of a batch in the running statistics.
    const MOMENTUM: f32 = 0.1;
    /// Added to the variance.
    const EPS: f32 = 1e-5;

    /// Scale 1, shift 0.
    ///
    /// # Errors
    /// If a size is absurd.
    pub fn new(ops: &dyn Ops, channels: usize) -> Result<Self, Error> {
        Ok(Self {
            gamma: ops.full(&[channels], 1.0)?,
            beta: ops.full(&[channels], 0.0)?,
            running_mean: ops.full(&[channels], 0.0)?,
            running_var: ops.full(&[channels], 1.0)?,
        })
    }
}

impl Module for BatchNorm2d {
    fn forward(&mut self, ops: &dyn Ops, x: &Tensor, mode: Mode) -> Result<Tensor, Error> {
        let state = [&self.gamma, &self.beta, &self.running_mean, &self.running_var];
        if mode == Mode::Infer {
            return ops.batch_norm_infer(x, state, Self::EPS);
        }
        let [y, _mean, _inv_std, mean, var] =
            ops.batch_norm(x, state, Self::MOMENTUM, Self::EPS)?;
        // As leaves, the statistics are values like any other: recomputing y cannot apply them twice.
        ops.replace(&mut self.running_mean, &mean)?;
        ops.replace(&mut self.running_var, &var)?;
        Ok(y)
    }

    fn state<'a>(&'a mut self, prefix: &str, found: &mut Vec<(String, State<'a>)>) {
        found.push((join(prefix, "weight"), State::Parameter(&mut self.gamma)));
        found.push((join(prefix, "bias"), State::Parameter(&mut self.beta)));
        found.push((join(prefix, "running_mean"), State::Buffer(&mut self.running_mean)));
        found.push((join(prefix, "running_var"), State::Buffer(&mut self.running_var)));
    }
}
