use crate::ops::{AdamW, Lion, Op, SgdMomentum};

/// Update rule of an optimizer.
///
/// ```
/// use remat::optim::{Optimizer, Rule};
///
/// let adamw = Optimizer::new(Rule::AdamW { betas: [0.9, 0.95], eps: 1e-8 }, 3e-4, 0.1);
/// assert_eq!(adamw.rule().states(), ["exp_avg", "exp_avg_sq"]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// Stochastic gradient descent with momentum; see [`SgdMomentum`].
    Sgd {
        /// Fraction of the velocity that remains after a step, such as 0.9.
        momentum: f32,
        /// Whether to look ahead along the velocity (Nesterov's momentum).
        nesterov: bool,
    },
    /// Adam with decoupled weight decay; see [`AdamW`].
    AdamW {
        /// Decay rates per step of the average gradient and of the average squared gradient.
        betas: [f32; 2],
        /// Number added to the divisor, so that the divisor is not 0.
        eps: f32,
    },
    /// The sign of an average gradient; see [`Lion`].
    Lion {
        /// Weight of the average in the update, and decay rate of the average per step.
        betas: [f32; 2],
    },
}

impl Rule {
    /// Names of the state tensors of a parameter, as PyTorch calls them.
    ///
    /// ```
    /// use remat::optim::Rule;
    ///
    /// assert_eq!(Rule::Sgd { momentum: 0.9, nesterov: false }.states(), ["velocity"]);
    /// ```
    #[must_use]
    pub const fn states(self) -> &'static [&'static str] {
        match self {
            Self::Sgd { .. } => &SgdMomentum::STATES,
            Self::AdamW { .. } => &AdamW::STATES,
            Self::Lion { .. } => &Lion::STATES,
        }
    }

    /// Whether an update depends on the number of earlier updates.
    pub(super) const fn counts_steps(self) -> bool {
        matches!(self, Self::AdamW { .. })
    }

    /// Op of the update that follows `steps` earlier updates.
    pub(super) fn op(self, lr: f32, weight_decay: f32, steps: u64) -> Op {
        match self {
            Self::Sgd { momentum, nesterov } => {
                SgdMomentum { lr, momentum, weight_decay, nesterov }.into()
            }
            Self::AdamW { betas: [beta1, beta2], eps } => {
                AdamW { lr, beta1, beta2, eps, weight_decay, step: steps + 1 }.into()
            }
            Self::Lion { betas: [beta1, beta2] } => Lion { lr, beta1, beta2, weight_decay }.into(),
        }
    }
}
