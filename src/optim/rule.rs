use crate::ops::{AdamW, Lion, Op, SgdMomentum};

/// How a parameter follows its gradient.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// Stochastic gradient descent with momentum; see [`SgdMomentum`].
    Sgd {
        /// How much of the velocity remains in a step, such as 0.9.
        momentum: f32,
        /// Whether to look ahead along the velocity.
        nesterov: bool,
    },
    /// Adam with decoupled weight decay; see [`AdamW`].
    AdamW {
        /// How much remains in a step of the average gradient, and of the average of its squares.
        betas: [f32; 2],
        /// Keeps what is divided by from 0.
        eps: f32,
    },
    /// The sign of an average gradient; see [`Lion`].
    Lion {
        /// How much the average counts in a step, and how much of it remains.
        betas: [f32; 2],
    },
}

impl Rule {
    /// What is kept for each parameter, as PyTorch calls it.
    #[must_use]
    pub const fn states(self) -> &'static [&'static str] {
        match self {
            Self::Sgd { .. } => &SgdMomentum::STATES,
            Self::AdamW { .. } => &AdamW::STATES,
            Self::Lion { .. } => &Lion::STATES,
        }
    }

    /// Whether an update depends on how many there were before.
    pub(super) const fn counts_steps(self) -> bool {
        matches!(self, Self::AdamW { .. })
    }

    /// An update after `steps` others.
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
