/// `(param, velocity, grad) -> (param, velocity)`: updates a parameter and its velocity in place.
///
/// An update is `v = momentum * v + grad + weight_decay * p`, followed by `p -= lr * v`. With
/// Nesterov momentum, the second formula is `p -= lr * (grad + weight_decay * p + momentum * v)`.
/// Updates equal the updates of PyTorch's `SGD`.
///
/// One op may update several tensors: `(param, velocity, param, velocity, .., grad, grad, ..)`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct SgdMomentum {
    /// Learning rate.
    #[cfg_attr(feature = "serde", serde(with = "crate::ops::attributes::float"))]
    pub lr: f32,
    /// Factor of the old velocity in the new velocity.
    #[cfg_attr(feature = "serde", serde(with = "crate::ops::attributes::float"))]
    pub momentum: f32,
    /// Factor of the L2 penalty: `weight_decay` times the parameter is added to the gradient.
    #[cfg_attr(feature = "serde", serde(with = "crate::ops::attributes::float"))]
    pub weight_decay: f32,
    /// Whether to use Nesterov momentum.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "std::ops::Not::not"))]
    pub nesterov: bool,
}

impl SgdMomentum {
    /// States that the optimizer keeps for a parameter.
    pub(crate) const STATES: [&str; 1] = ["velocity"];
}
