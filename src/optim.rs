//! Optimizers: update rules that move parameters along their gradients, and learning-rate
//! schedules.
//!
//! An [`Optimizer`] stores what its [`Rule`] needs from earlier steps in tensors beside the
//! parameters. This state is updated in place, counts towards the budget, and is never evicted.
//! [`Optimizer::minimize`] runs the backward pass of a tape and updates the parameters. The
//! backward pass and the update can also be called separately:
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
//! By default `minimize` updates each parameter as soon as its gradient is complete, while the
//! backward pass still runs ([`Optimizer::step_in_backward`]). After the update, the gradient is
//! freed, so only a few gradients exist at a time. At the end of the backward pass, this saves as
//! many bytes as the parameters have. With small activations, the saving is up to a third of the
//! peak for SGD, whose memory holds parameters, velocities and gradients. For AdamW, which has two
//! state tensors per parameter, the saving is up to a quarter.
//!
//! Without `step_in_backward`, all gradients are computed before the first update. Two settings
//! need all gradients at once, and so also delay the updates. [`Optimizer::max_norm`] clips by the
//! norm of all gradients, and [`Optimizer::all_or_none`] updates either all parameters or none.
//! Delayed updates run in groups, each of which pins at most a share of the budget
//! ([`Optimizer::fused_share`]). Groups are faster for thousands of small tensors, because a kernel
//! for a small tensor takes longer to start than to run.
//!
//! # Micro-batches
//!
//! A batch can be split into micro-batches.
//! [`Tape::backward_onto`](crate::autograd::Tape::backward_onto) adds the gradients of a
//! micro-batch in place to the gradients of earlier micro-batches. [`Optimizer::minimize_with`]
//! adds the gradients of the last micro-batch, and then updates the parameters.
//!
//! # Several ranks
//!
//! [`Optimizer::distributed`] trains on several ranks. Each rank computes the gradients of its part
//! of a batch. Gradients are summed over all ranks before a parameter is updated, so parameters are
//! the same on all ranks.

mod clip;
mod distributed;
mod group;
mod rule;
mod schedule;
mod step;

pub use clip::clip_grad_norm;
pub use group::Group;
pub use rule::Rule;
pub use schedule::Schedule;

use crate::collective::Ranks;
use crate::ops::Tensor;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Updates the parameters of a module from their gradients, fused and in place.
///
/// ```
/// use remat::nn::Embedding;
/// use remat::optim::Optimizer;
/// use remat::prelude::*;
///
/// let runtime = Runtime::builder().budget("1MiB").cpu()?;
/// let mut table = Embedding::of(runtime.ones(&[2, 1])?);
/// let mut sgd = Optimizer::sgd(0.5, 0.0, 0.0);
/// let tape = Tape::new(&runtime);
/// tape.watch(&mut table);
/// let row = runtime.tensor(&[1], vec![1])?;
/// let loss = table.forward(&row, Mode::Train)?.sum()?;
/// sgd.minimize(tape, &loss, &mut table)?;
/// assert_eq!(table.weight().to_vec::<f32>()?, [1.0, 0.5]);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct Optimizer {
    /// Learning rate; may change between steps.
    pub lr: f32,
    /// Weight decay of parameters whose group does not set one. [`Rule::Sgd`] adds the weight decay
    /// times the parameter to the gradient (an L2 penalty). The other rules multiply parameters by
    /// `1 - lr * weight_decay` in each step, independently of the gradients.
    pub weight_decay: f32,
    /// Whether [`Optimizer::minimize`] updates each parameter, and frees its gradient, while the
    /// backward pass still runs. The setting is on by default. If a step fails midway, parameters
    /// updated before the failure keep their new values, and all other parameters keep their old
    /// values.
    ///
    /// If off, all gradients are in memory at the end of the backward pass, together as large as
    /// the parameters. The setting has no effect with [`Optimizer::max_norm`] or
    /// [`Optimizer::all_or_none`], which need all gradients.
    pub step_in_backward: bool,
    /// Whether a step updates either all parameters or none. The setting is off by default.
    ///
    /// When on, parameters, state and running statistics keep their old values after a failed step,
    /// which can then be tried again with a smaller batch.
    pub all_or_none: bool,
    /// Limit for the norm of all gradients together. Gradients with a larger norm are scaled down
    /// to the limit; see [`clip_grad_norm`].
    pub max_norm: Option<f32>,
    /// Share of the budget that may be pinned to update several parameters at once; 1/16 by
    /// default. A parameter that needs more than this share is updated alone. With a share of 0,
    /// every parameter is updated alone. The share changes no bit of the results.
    pub fused_share: f64,
    rule: Rule,
    groups: Vec<Group>,
    /// Ranks over which gradients are summed.
    ranks: Option<Ranks>,
    /// Memory reserved for the buffer in which gradients wait for their sums.
    buffer: Option<Tensor>,
    /// Order in which all ranks sum the gradients, by positions of the parameters; empty before the
    /// first step.
    order: Vec<usize>,
    /// Name of a parameter -> its optimizer state, which is made by the first update.
    kept: FxHashMap<String, Kept>,
}

/// State of the optimizer for one parameter.
#[derive(Debug, Default)]
struct Kept {
    /// Updates so far.
    steps: u64,
    /// State tensors, in the order of [`Rule::states`].
    states: SmallVec<[Tensor; 2]>,
}

impl Optimizer {
    /// Creates an optimizer without state.
    ///
    /// ```
    /// use remat::optim::{Optimizer, Rule};
    ///
    /// let rule = Rule::Sgd { momentum: 0.9, nesterov: true };
    /// let mut sgd = Optimizer::new(rule, 0.1, 5e-4);
    /// sgd.max_norm = Some(1.0);
    /// assert_eq!(sgd.rule(), rule);
    /// ```
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
            ranks: None,
            buffer: None,
            order: Vec::new(),
            kept: FxHashMap::default(),
        }
    }

    /// Stochastic gradient descent with momentum; see [`SgdMomentum`](crate::ops::SgdMomentum).
    ///
    /// ```
    /// use remat::optim::{Optimizer, Rule};
    ///
    /// let sgd = Optimizer::sgd(0.1, 0.9, 5e-4);
    /// assert_eq!((sgd.lr, sgd.weight_decay), (0.1, 5e-4));
    /// assert_eq!(sgd.rule(), Rule::Sgd { momentum: 0.9, nesterov: false });
    /// ```
    #[must_use]
    pub fn sgd(lr: f32, momentum: f32, weight_decay: f32) -> Self {
        Self::new(Rule::Sgd { momentum, nesterov: false }, lr, weight_decay)
    }

    /// Adam with decoupled weight decay, betas 0.9 and 0.999, and an epsilon of 1e-8; see
    /// [`AdamW`](crate::ops::AdamW).
    ///
    /// ```
    /// use remat::optim::{Optimizer, Rule};
    ///
    /// let adamw = Optimizer::adamw(1e-3, 0.01);
    /// assert_eq!(adamw.rule(), Rule::AdamW { betas: [0.9, 0.999], eps: 1e-8 });
    /// ```
    #[must_use]
    pub fn adamw(lr: f32, weight_decay: f32) -> Self {
        Self::new(Rule::AdamW { betas: [0.9, 0.999], eps: 1e-8 }, lr, weight_decay)
    }

    /// Lion with betas 0.9 and 0.99; see [`Lion`](crate::ops::Lion). A good learning rate is about
    /// a tenth of AdamW's.
    ///
    /// ```
    /// use remat::optim::{Optimizer, Rule};
    ///
    /// let lion = Optimizer::lion(1e-4, 0.1);
    /// assert_eq!(lion.rule(), Rule::Lion { betas: [0.9, 0.99] });
    /// ```
    #[must_use]
    pub fn lion(lr: f32, weight_decay: f32) -> Self {
        Self::new(Rule::Lion { betas: [0.9, 0.99] }, lr, weight_decay)
    }

    /// Adds a group of parameters with settings of its own. If several groups contain a parameter,
    /// the group that was added first applies.
    ///
    /// ```
    /// use remat::optim::{Group, Optimizer};
    ///
    /// let adamw = Optimizer::adamw(1e-3, 0.01).group(Group::vectors().weight_decay(0.0));
    /// ```
    #[must_use]
    pub fn group(mut self, group: Group) -> Self {
        self.groups.push(group);
        self
    }

    /// Sums gradients over all ranks before parameters are updated, in [`Optimizer::minimize`] and
    /// [`Optimizer::minimize_with`]. All ranks must train the same network from the same
    /// parameters, with the same optimizer; data, budgets and policies may differ.
    ///
    /// Divide each loss by [`Ranks::size`] to average over the ranks. Parameters get the same bits
    /// as on one rank that runs the parts of all ranks as micro-batches, in the order of the ranks.
    ///
    /// A parameter that has no gradient on some ranks gets the sum of the other ranks. A parameter
    /// that has no gradient on any rank is not updated. If a step fails on one rank, all ranks
    /// fail, starting with the first gradient that the rank has lost.
    ///
    /// Running statistics of a batch norm are not summed: each rank keeps the statistics of its own
    /// data. [`Ranks::broadcast`] copies the statistics of one rank to all ranks.
    ///
    /// ```
    /// use remat::unstable::collective::{Ranks, threads};
    /// use remat::nn::Linear;
    /// use remat::optim::Optimizer;
    /// use remat::prelude::*;
    ///
    /// let train = |ranks: Ranks| -> Result<Vec<f32>, Error> {
    ///     let runtime = Runtime::builder().budget("64KiB").cpu()?;
    ///     let mut layer = Linear::new(&runtime, 2, 1)?;
    ///     let mut sgd = Optimizer::sgd(0.1, 0.9, 0.0).distributed(&ranks);
    ///     for step in 0..5 {
    ///         // Each rank has data of its own.
    ///         let x = runtime.full(&[8, 2], (step + ranks.rank()) as f32)?;
    ///         let tape = Tape::new(&runtime);
    ///         tape.watch(&mut layer);
    ///         let loss = layer.forward(&x, Mode::Train)?.square()?.mean()?;
    ///         sgd.minimize(tape, &(loss / ranks.size() as f32)?, &mut layer)?;
    ///         runtime.step()?;
    ///     }
    ///     remat::nn::parameters(&mut layer).next().unwrap().1.to_vec()
    /// };
    /// let ranks = threads(2).into_iter().map(|fabric| {
    ///     std::thread::spawn(move || train(Ranks::new(fabric)))
    /// });
    /// let weights: Vec<_> = ranks.collect::<Vec<_>>().into_iter().map(|r| r.join()).collect();
    /// assert_eq!(weights[0].as_ref().unwrap().as_ref().unwrap().len(), 2);
    /// # let [a, b] = <[_; 2]>::try_from(weights).unwrap();
    /// # assert_eq!(a.unwrap()?, b.unwrap()?);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn distributed(mut self, ranks: &Ranks) -> Self {
        self.ranks = (ranks.size() > 1).then(|| ranks.clone());
        self
    }

    /// Update rule.
    #[must_use]
    pub const fn rule(&self) -> Rule {
        self.rule
    }

    /// State tensors of all parameters that were updated: the parameter's name, the tensor's name
    /// from [`Rule::states`], and the tensor. The order is alphabetical by parameter name.
    ///
    /// ```
    /// use remat::nn::Embedding;
    /// use remat::optim::Optimizer;
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let mut table = Embedding::of(runtime.ones(&[2, 1])?);
    /// let mut sgd = Optimizer::sgd(0.5, 0.9, 0.0);
    /// # let tape = Tape::new(&runtime);
    /// # tape.watch(&mut table);
    /// # let row = runtime.tensor(&[1], vec![1])?;
    /// # let loss = table.forward(&row, Mode::Train)?.sum()?;
    /// sgd.minimize(tape, &loss, &mut table)?;
    /// let (parameter, state, velocity) = sgd.states().next().unwrap();
    /// assert_eq!((parameter, state), ("weight", "velocity"));
    /// assert_eq!(velocity.to_vec::<f32>()?, [0.0, 1.0]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn states(&self) -> impl Iterator<Item = (&str, &'static str, &Tensor)> {
        let mut all: Vec<_> = self.kept.iter().collect();
        all.sort_unstable_by_key(|(name, _)| *name);
        all.into_iter().flat_map(|(parameter, kept)| {
            let states = self.rule.states().iter().zip(&kept.states);
            states.map(move |(state, tensor)| (parameter.as_str(), *state, tensor))
        })
    }

    /// Drops all state.
    #[cfg(feature = "serde")]
    pub(crate) fn forget(&mut self) {
        self.kept.clear();
    }

    /// Sets the state of a parameter.
    #[cfg(feature = "serde")]
    pub(crate) fn remember(&mut self, parameter: &str, steps: u64, states: SmallVec<[Tensor; 2]>) {
        self.kept.insert(parameter.to_owned(), Kept { steps, states });
    }

    /// Number of updates of a parameter so far.
    ///
    /// ```
    /// use remat::nn::Embedding;
    /// use remat::optim::Optimizer;
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let mut table = Embedding::of(runtime.ones(&[2, 1])?);
    /// let mut sgd = Optimizer::sgd(0.5, 0.9, 0.0);
    /// assert_eq!(sgd.steps("weight"), 0);
    /// # let tape = Tape::new(&runtime);
    /// # tape.watch(&mut table);
    /// # let row = runtime.tensor(&[1], vec![1])?;
    /// # let loss = table.forward(&row, Mode::Train)?.sum()?;
    /// sgd.minimize(tape, &loss, &mut table)?;
    /// assert_eq!(sgd.steps("weight"), 1);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn steps(&self, parameter: &str) -> u64 {
        self.kept.get(parameter).map_or(0, |kept| kept.steps)
    }
}
