/// `(param, exp_avg, exp_avg_sq, grad) -> (param, exp_avg, exp_avg_sq)`: updates a parameter and
/// its averages in place.
///
/// Let `m` be `exp_avg`, and `v` be `exp_avg_sq`. An update at step `t` first computes `p *= 1 -
/// lr * weight_decay`, then `m = beta1 * m + (1 - beta1) * grad` and `v = beta2 * v + (1 - beta2) *
/// grad^2`, and then `p -= lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)`. The
/// method is from Loshchilov and Hutter, ICLR 2019. Updates equal the updates of PyTorch's `AdamW`.
///
/// One op may update several tensors. The inputs then are each parameter with its averages,
/// followed by all gradients.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct AdamW {
    /// Learning rate.
    #[cfg_attr(feature = "serde", serde(with = "crate::ops::attributes::float"))]
    pub lr: f32,
    /// Factor of the old value in the average of gradients.
    #[cfg_attr(feature = "serde", serde(with = "crate::ops::attributes::float"))]
    pub beta1: f32,
    /// Factor of the old value in the average of squares.
    #[cfg_attr(feature = "serde", serde(with = "crate::ops::attributes::float"))]
    pub beta2: f32,
    /// Number added to the divisor.
    #[cfg_attr(feature = "serde", serde(with = "crate::ops::attributes::float"))]
    pub eps: f32,
    /// Weight decay: each update first shrinks a parameter by the factor `1 - lr * weight_decay`.
    #[cfg_attr(feature = "serde", serde(with = "crate::ops::attributes::float"))]
    pub weight_decay: f32,
    /// Number of the update, counted from 1 for each parameter.
    pub step: u64,
}

/// Numbers that the kernels need for an update.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct AdamwStep {
    /// `1 - lr * weight_decay`
    pub keep: f32,
    pub beta1: f32,
    pub rest1: f32,
    pub beta2: f32,
    pub rest2: f32,
    pub eps: f32,
    /// `lr / (1 - beta1^t)`
    pub size: f32,
    /// `1 / sqrt(1 - beta2^t)`
    pub spread: f32,
}

impl AdamW {
    /// States that the optimizer keeps for a parameter.
    pub(crate) const STATES: [&str; 2] = ["exp_avg", "exp_avg_sq"];

    pub(super) fn step(&self) -> AdamwStep {
        let Self { lr, beta1, beta2, eps, weight_decay, step } = *self;
        // Compute in f64 from the decimal values, as PyTorch does, because `1 - 0.999` has few
        // exact digits in f32.
        let [lr, b1, b2, decay] = [lr, beta1, beta2, weight_decay].map(decimal);
        let gone = |beta: f64| 1.0 - beta.powf(step as f64);
        AdamwStep {
            keep: (1.0 - lr * decay) as f32,
            beta1,
            rest1: (1.0 - b1) as f32,
            beta2,
            rest2: (1.0 - b2) as f32,
            eps,
            size: (lr / gone(b1)) as f32,
            spread: (1.0 / gone(b2).sqrt()) as f32,
        }
    }
}

/// Number with the fewest decimal digits that rounds to `x`, such as 0.999 for `0.999_f32`.
pub(super) fn decimal(x: f32) -> f64 {
    format!("{x:e}").parse().unwrap_or_else(|_| x.into())
}
