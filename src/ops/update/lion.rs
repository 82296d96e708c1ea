use super::adamw::decimal;

/// `(param, exp_avg, grad) -> (param, exp_avg)`, both in place. With `m` for the average:
/// `p *= 1 - lr * weight_decay; p -= lr * sign(beta1 * m + (1 - beta1) * grad); m = beta2 * m + (1 - beta2) * grad`.
/// Chen et al., "Symbolic Discovery of Optimization Algorithms", NeurIPS 2023.
///
/// Of several tensors at once: `(param, exp_avg, param, exp_avg, .., grad, grad, ..)`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Lion {
    /// Learning rate: how far every element goes.
    #[cfg_attr(feature = "serde", serde(with = "crate::ops::attributes::float"))]
    pub lr: f32,
    /// How much the average counts in what is done.
    #[cfg_attr(feature = "serde", serde(with = "crate::ops::attributes::float"))]
    pub beta1: f32,
    /// How much of the average remains.
    #[cfg_attr(feature = "serde", serde(with = "crate::ops::attributes::float"))]
    pub beta2: f32,
    /// How much a parameter shrinks in a step, over the learning rate.
    #[cfg_attr(feature = "serde", serde(with = "crate::ops::attributes::float"))]
    pub weight_decay: f32,
}

/// The numbers of a step.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Step {
    /// `1 - lr * weight_decay`
    pub keep: f32,
    pub beta1: f32,
    pub rest1: f32,
    pub beta2: f32,
    pub rest2: f32,
    pub lr: f32,
}

impl Lion {
    /// What it keeps for a parameter.
    pub(crate) const STATES: [&str; 1] = ["exp_avg"];

    pub(super) fn step(&self) -> Step {
        let Self { lr, beta1, beta2, weight_decay } = *self;
        let rest = |beta: f32| (1.0 - decimal(beta)) as f32;
        Step {
            keep: (1.0 - decimal(lr) * decimal(weight_decay)) as f32,
            beta1,
            rest1: rest(beta1),
            beta2,
            rest2: rest(beta2),
            lr,
        }
    }
}
