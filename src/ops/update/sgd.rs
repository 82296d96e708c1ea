/// `(param, velocity, grad) -> (param, velocity)`, both in place:
/// `v = momentum * v + grad + weight_decay * p; p -= lr * v`; or with Nesterov's momentum
/// `p -= lr * (grad + weight_decay * p + momentum * v)`. As PyTorch's `SGD`.
///
/// Of several tensors at once: `(param, velocity, param, velocity, .., grad, grad, ..)`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct SgdMomentum {
    /// Learning rate.
    #[cfg_attr(feature = "serde", serde(with = "crate::ops::attributes::float"))]
    pub lr: f32,
    /// Factor of the old velocity.
    #[cfg_attr(feature = "serde", serde(with = "crate::ops::attributes::float"))]
    pub momentum: f32,
    /// Factor of the L2 penalty's gradient.
    #[cfg_attr(feature = "serde", serde(with = "crate::ops::attributes::float"))]
    pub weight_decay: f32,
    /// Whether to look ahead along the new velocity.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "std::ops::Not::not"))]
    pub nesterov: bool,
}

impl SgdMomentum {
    /// What it keeps for a parameter.
    pub(crate) const STATES: [&str; 1] = ["velocity"];
}
