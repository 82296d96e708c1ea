//! Optimizers: how parameters follow their gradients, and how fast.
//!
//! An [`Optimizer`] keeps what its [`Rule`] needs of earlier steps as tensors beside the parameters: committed, updated in
//! place, and within the budget. [`Optimizer::minimize`] plays a tape backwards and updates; the parts can be had one by
//! one:
//!
//! ```
//! use remat::nn::Linear;
//! use remat::optim::{Group, Optimizer, Schedule};
//! use remat::prelude::*;
//!
//! let runtime = Runtime::builder().budget("64KiB").cpu()?;
//! let mut layer = Linear::new(&runtime, 2, 1)?;
//! // Weight decay is for matrices, not for biases.
//! let mut adamw =
//!     Optimizer::adamw(0.1, 0.01).group(Group::named("*bias").weight_decay(0.0));
//! let schedule = Schedule::cosine(0.1, 0.0, 20).warmup(5);
//! let x = runtime.tensor(&[2, 2], vec![1.0, 0.0, 0.0, 1.0])?;
//!
//! let mut losses = Vec::new();
//! for step in 0..25 {
//!     let tape = Tape::new(&runtime);
//!     tape.watch(&mut layer);
//!     let loss = layer.forward(&x, Mode::Train)?.square()?.mean()?;
//!     adamw.lr = schedule.rate(step);
//!     let mut gradients = tape.backward(&loss)?;
//!     adamw.step(&runtime, &mut layer, &mut gradients)?;
//!     runtime.step()?;
//!     losses.push(loss.item()?);
//! }
//! assert!(losses[24] < losses[0]);
//! # Ok::<(), Error>(())
//! ```
//!
//! # When parameters are updated
//!
//! By default `minimize` updates each parameter as soon as its gradient is complete, while the backward pass still runs
//! ([`Optimizer::step_in_backward`]). A gradient is let go then, so that there are never more than a few at a time: as
//! many bytes as the parameters have are saved at the end of the backward pass. Where activations are small beside the
//! parameters, that is up to a third of the peak with SGD (parameters, velocities and gradients), and a quarter with AdamW.
//!
//! Otherwise all gradients are gathered first. That is needed to clip them by their norm ([`Optimizer::max_norm`]), and to
//! make all updates of a step or none ([`Optimizer::all_or_none`]). Parameters are updated many at a time then, in groups
//! that pin no more than a share of the budget ([`Optimizer::fused_share`]): a kernel for each of thousands of small tensors
//! takes longer to start than to run.
//!
//! # Micro-batches
//!
//! [`Tape::backward_onto`](crate::autograd::Tape::backward_onto) adds the gradients of a part of a batch to those of
//! earlier parts, in place; [`Optimizer::minimize_with`] does so with the last part, and updates.

mod clip;
mod group;
mod rule;
mod schedule;
mod step;

pub use clip::clip_grad_norm;
pub use group::Group;
pub use rule::Rule;
pub use schedule::Schedule;

use crate::ops::Tensor;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Updates the parameters of a module by their gradients, fused and in place.
#[derive(Debug)]
pub struct Optimizer {
    /// Learning rate; may change between steps.
    pub lr: f32,
    /// Weight decay of parameters whose group says nothing else. With [`Rule::Sgd`] it is the gradient of an L2 penalty;
    /// the others shrink parameters by `lr * weight_decay` in each step, apart from gradients.
    pub weight_decay: f32,
    /// Whether [`Optimizer::minimize`] updates each parameter, and lets its gradient go, while the backward pass still
    /// runs. On by default. When something fails on the way, those updated by then stay updated, and the others keep
    /// their values.
    ///
    /// Off, all gradients are in memory at the end of the backward pass, as large together as the parameters. It has no
    /// effect with [`Optimizer::max_norm`] or [`Optimizer::all_or_none`], which need all gradients.
    pub step_in_backward: bool,
    /// Whether to update all parameters or none. Off by default.
    ///
    /// On, a step that fails leaves parameters, state and running statistics as they were: it can be tried again with a
    /// smaller batch.
    pub all_or_none: bool,
    /// Scales gradients down if the norm of all of them together is above this; see [`clip_grad_norm`].
    pub max_norm: Option<f32>,
    /// How much of the budget may be pinned to update several parameters at once; 1/16 by default. A parameter that needs
    /// more is updated alone, and with 0 all are. It changes no bit.
    pub fused_share: f64,
    rule: Rule,
    groups: Vec<Group>,
    /// Name of a parameter -> what is kept for it, from its first update on.
    kept: FxHashMap<String, Kept>,
}

/// What an optimizer keeps for a parameter.
#[derive(Debug, Default)]
struct Kept {
    /// Updates so far.
    steps: u64,
    /// As [`Rule::states`] names them.
    states: SmallVec<[Tensor; 2]>,
}

impl Optimizer {
    /// An optimizer that begins with its first step.
    #[must_use]
    pub fn new(rule: Rule, lr: f32, weight_decay: f32) -> Self {
        Self {
            lr,
            weight_decay,
            step_in_backward: true,
            all_or_none: false,
            max_norm: None,
            fused_share: 1.0 / 16.0,
            rule,
            groups: Vec::new(),
            kept: FxHashMap::default(),
        }
    }

    /// Stochastic gradient descent with momentum; see [`SgdMomentum`](crate::ops::SgdMomentum).
    #[must_use]
    pub fn sgd(lr: f32, momentum: f32, weight_decay: f32) -> Self {
        Self::new(Rule::Sgd { momentum, nesterov: false }, lr, weight_decay)
    }

    /// Adam with decoupled weight decay, betas 0.9 and 0.999, and an epsilon of 1e-8; see [`AdamW`](crate::ops::AdamW).
    #[must_use]
    pub fn adamw(lr: f32, weight_decay: f32) -> Self {
        Self::new(Rule::AdamW { betas: [0.9, 0.999], eps: 1e-8 }, lr, weight_decay)
    }

    /// Lion with betas 0.9 and 0.99; see [`Lion`](crate::ops::Lion). It wants about a tenth of AdamW's learning rate.
    #[must_use]
    pub fn lion(lr: f32, weight_decay: f32) -> Self {
        Self::new(Rule::Lion { betas: [0.9, 0.99] }, lr, weight_decay)
    }

    /// With settings for some parameters. Where several groups have a parameter, the first one counts.
    #[must_use]
    pub fn group(mut self, group: Group) -> Self {
        self.groups.push(group);
        self
    }

    /// How it updates.
    #[must_use]
    pub const fn rule(&self) -> Rule {
        self.rule
    }

    /// What is kept for each parameter that was updated before: the parameter's name, what [`Rule::states`] calls the
    /// tensor, and the tensor. In alphabetical order of parameters.
    pub fn states(&self) -> impl Iterator<Item = (&str, &'static str, &Tensor)> {
        let mut all: Vec<_> = self.kept.iter().collect();
        all.sort_unstable_by_key(|(name, _)| *name);
        all.into_iter().flat_map(|(parameter, kept)| {
            let states = self.rule.states().iter().zip(&kept.states);
            states.map(move |(state, tensor)| (parameter.as_str(), *state, tensor))
        })
    }

    /// Forgets all that it kept.
    #[cfg(feature = "serde")]
    pub(crate) fn forget(&mut self) {
        self.kept.clear();
    }

    /// Lets this be what is kept for a parameter.
    #[cfg(feature = "serde")]
    pub(crate) fn remember(&mut self, parameter: &str, steps: u64, states: SmallVec<[Tensor; 2]>) {
        self.kept.insert(parameter.to_owned(), Kept { steps, states });
    }

    /// How often a parameter was updated.
    #[must_use]
    pub fn steps(&self, parameter: &str) -> u64 {
        self.kept.get(parameter).map_or(0, |kept| kept.steps)
    }
}
