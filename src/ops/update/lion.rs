use super::adamw::decimal;

/// `(param, exp_avg, grad) -> (param, exp_avg)`: updates a parameter and its average in place.
///
/// Let `m` be `exp_avg`. An update first computes `p *= 1 - lr * weight_decay`, then `p -= lr *
/// sign(beta1 * m + (1 - beta1) * grad)`, and then `m = beta2 * m + (1 - beta2) * grad`. The method
/// is from Chen et al., "Symbolic Discovery of Optimization Algorithms", NeurIPS 2023.
///
/// One op may update several tensors: `(param, exp_avg, param, exp_avg, .., grad, grad, ..)`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Lion {
    /// Learning rate: the amount by which each element changes in an update.
    #[cfg_attr(feature = "serde", serde(with = "crate::ops::attributes::float"))]
    pub lr: f32,
    /// Weight of the old average in the direction of an update. The weight of the gradient is `1 -
    /// beta1`.
    #[cfg_attr(feature = "serde", serde(with = "crate::ops::attributes::float"))]
    pub beta1: f32,
    /// Factor of the old value in the average of gradients.
    #[cfg_attr(feature = "serde", serde(with = "crate::ops::attributes::float"))]
    pub beta2: f32,
    /// Weight decay: each update first shrinks a parameter by the factor `1 - lr * weight_decay`.
    #[cfg_attr(feature = "serde", serde(with = "crate::ops::attributes::float"))]
    pub weight_decay: f32,
}

/// Numbers that the kernels need for an update.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct LionStep {
    /// `1 - lr * weight_decay`
    pub keep: f32,
    pub beta1: f32,
    pub rest1: f32,
    pub beta2: f32,
    pub rest2: f32,
    pub lr: f32,
}

impl Lion {
    /// States that the optimizer keeps for a parameter.
    pub(crate) const STATES: [&str; 1] = ["exp_avg"];

    pub(super) fn step(&self) -> LionStep {
        let Self { lr, beta1, beta2, weight_decay } = *self;
        let rest = |beta: f32| (1.0 - decimal(beta)) as f32;
        LionStep {
            keep: (1.0 - decimal(lr) * decimal(weight_decay)) as f32,
            beta1,
            rest1: rest(beta1),
            beta2,
            rest2: rest(beta2),
            lr,
        }
    }
}
