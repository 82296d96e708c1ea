//! Options of a runtime, and starting a runtime with them.

use super::{QUEUE, Runtime, Worker};
use crate::command::Window;
use crate::cost::{CostModel, CostModelKind};
use crate::device::cpu::{Cpu, MAX_THREADS, Team};
use crate::device::{Device, DeviceError};
use crate::driver::{Knowledge, LearnOptions, Learner, Learners, Plan, Recorder, Rehearse};
use crate::engine::{Dead, Engine, Listener, RecomputeLimit, Settings};
use crate::error::{DeviceFault, Error, RuntimeError};
use crate::evict::{ByScore, Evictor, Forecast, Learn, Policy, PolicyKind};
use crate::guard::caught;
use crate::interpreter::{Control, Interpreter};
use crate::ops::Home;
use crate::step::KnownSteps;
use remat_memory::ByteSize;
use remat_memory::SplitRule;
use std::fmt::{self, Display};
use std::sync::Arc;

/// A policy of the crate, or a custom policy.
///
/// ```
/// use remat::unstable::evict::EvictAtRandom;
/// use remat::{PolicyChoice, PolicyKind};
///
/// assert_eq!(PolicyChoice::from(PolicyKind::Dtr).kind(), Some(PolicyKind::Dtr));
/// assert_eq!(PolicyChoice::from(EvictAtRandom::new(1)).kind(), None);
/// ```
#[derive(Debug)]
pub enum PolicyChoice {
    /// A policy of the crate.
    Kind(PolicyKind),
    /// A custom policy, which scores candidates.
    Own(Box<dyn Policy>),
    /// A custom evictor.
    Evictor(Box<dyn Evictor>),
}

impl From<PolicyKind> for PolicyChoice {
    fn from(kind: PolicyKind) -> Self {
        Self::Kind(kind)
    }
}

impl From<Box<dyn Evictor>> for PolicyChoice {
    fn from(evictor: Box<dyn Evictor>) -> Self {
        Self::Evictor(evictor)
    }
}

impl PolicyChoice {
    /// The policy of the crate; `None` for a custom policy.
    #[must_use]
    pub const fn kind(&self) -> Option<PolicyKind> {
        match self {
            Self::Kind(kind) => Some(*kind),
            _ => None,
        }
    }

    /// Effort to learn forecasts for the policy, for callers with an [`Engine`] of their own: see
    /// [`Driver::learn_by`](crate::program::Driver::learn_by).
    ///
    /// ```
    /// use remat::evict::Learn;
    /// use remat::{PolicyChoice, PolicyKind};
    ///
    /// let policy = PolicyChoice::from(PolicyKind::Learned(Learn::Portfolio));
    /// assert_eq!(policy.learn(), Learn::Portfolio);
    /// ```
    #[must_use]
    pub const fn learn(&self) -> Learn {
        match self {
            Self::Kind(kind) => kind.learn(),
            _ => Learn::Ahead,
        }
    }

    /// Makes the evictor of the policy, for callers with an [`Engine`] of their own. `seed` is the
    /// seed of the policy `random`, and of the sample if `sqrt_sampling` is set (see
    /// [`Builder::sqrt_sampling`]).
    ///
    /// ```
    /// use remat::{PolicyChoice, PolicyKind};
    ///
    /// let evictor = PolicyChoice::from(PolicyKind::Lru).evictor(0, false);
    /// assert_eq!(evictor.kind(), Some(PolicyKind::Lru));
    /// ```
    #[must_use]
    pub fn evictor(self, seed: u64, sqrt_sampling: bool) -> Box<dyn Evictor> {
        let sampling = sqrt_sampling.then_some(seed);
        match self {
            Self::Kind(kind) => kind.evictor(seed, sampling),
            Self::Own(policy) => Box::new(ByScore::boxed(policy, sampling)),
            Self::Evictor(evictor) => evictor,
        }
    }
}

impl<P: Policy + 'static> From<P> for PolicyChoice {
    fn from(policy: P) -> Self {
        Self::Own(Box::new(policy))
    }
}

/// A cost model of the crate, or a custom cost model.
#[derive(Debug)]
pub enum CostModelChoice {
    /// A cost model of the crate.
    Kind(CostModelKind),
    /// A custom cost model.
    Own(Box<dyn CostModel>),
}

impl CostModelChoice {
    /// Makes the cost model, for callers with an [`Engine`] of their own.
    ///
    /// ```
    /// use remat::{CostModelChoice, CostModelKind};
    ///
    /// let costs = CostModelChoice::from(CostModelKind::Bytes).build();
    /// assert_eq!(costs.name(), "bytes");
    /// ```
    #[must_use]
    pub fn build(self) -> Box<dyn CostModel> {
        match self {
            Self::Kind(kind) => kind.build(),
            Self::Own(costs) => costs,
        }
    }
}

impl From<CostModelKind> for CostModelChoice {
    fn from(kind: CostModelKind) -> Self {
        Self::Kind(kind)
    }
}

impl<C: CostModel + 'static> From<C> for CostModelChoice {
    fn from(costs: C) -> Self {
        Self::Own(Box::new(costs))
    }
}

/// Options of a [`Runtime`]. Invalid values are reported when the runtime is started.
///
/// ```
/// use remat::PolicyKind;
/// use remat::prelude::*;
///
/// let builder = Runtime::builder().budget("1MiB").policy(PolicyKind::Dtr).seed(1);
/// let runtime = builder.cpu()?;
/// assert!(Runtime::builder().budget("as much as there is").cpu().is_err());
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct Builder {
    budget: Option<u64>,
    pub(crate) settings: Settings,
    pub(crate) policy: PolicyChoice,
    sqrt_sampling: bool,
    pub(crate) seed: u64,
    pub(crate) cost_model: CostModelChoice,
    pub(crate) threads: Option<usize>,
    recorder: Option<Box<dyn Recorder>>,
    window: Window,
    known: Knowledge,
    /// A learner that replaces the learner of the policy.
    learner: Option<Box<dyn Learner>>,
    pub(crate) plan: Plan,
    listeners: Vec<Box<dyn Listener>>,
    interrupt: Interrupt,
    /// Whether out-of-memory errors name a budget that passes.
    pub(crate) names_budgets: bool,
    wrong: Option<String>,
}

/// A predicate that returns true when regenerations should be given up.
#[derive(Default)]
struct Interrupt(Option<Box<dyn Fn() -> bool + Send>>);

impl fmt::Debug for Interrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Interrupt").field(&self.0.is_some()).finish()
    }
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            budget: None,
            settings: Settings::default(),
            policy: PolicyKind::Learned(Learn::Ahead).into(),
            sqrt_sampling: false,
            seed: 0,
            cost_model: CostModelKind::default().into(),
            threads: None,
            recorder: None,
            window: Window::default(),
            known: Knowledge::default(),
            learner: None,
            plan: Plan::default(),
            listeners: Vec::new(),
            interrupt: Interrupt::default(),
            names_budgets: true,
            wrong: None,
        }
    }
}

impl Builder {
    /// Sets the memory limit, in bytes or as text such as `"1.5GiB"`. The limit is a hard limit on
    /// parameters, activations, gradients and workspaces together. Default: the machine's memory;
    /// on a GPU, the free memory less a margin.
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1.5MiB").cpu()?;
    /// assert_eq!(runtime.budget(), 3 << 19);
    /// let runtime = Runtime::builder().budget(1u64 << 20).cpu()?;
    /// assert_eq!(runtime.budget(), 1 << 20);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    #[doc(alias("memory limit", "set_per_process_memory_fraction"))]
    pub fn budget<B: TryInto<ByteSize, Error: Display>>(mut self, budget: B) -> Self {
        self.budget = self.bytes("budget", budget).or(self.budget);
        self
    }

    /// Sets a soft limit below the budget, in bytes or as text. Before each op, tensors are evicted
    /// until the bytes in use are within the soft limit. By default there is no soft limit: tensors
    /// are evicted only when an allocation does not fit.
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").eviction_threshold("8KiB").cpu()?;
    /// let x = runtime.ones(&[1024])?;
    /// let (y, z, w) = (x.exp()?, x.sin()?, x.cos()?);
    /// assert!(runtime.stats()?.evictions > 0);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn eviction_threshold<B: TryInto<ByteSize, Error: Display>>(
        mut self,
        threshold: B,
    ) -> Self {
        self.settings.eviction_threshold = self.bytes("eviction threshold", threshold);
        self
    }

    /// Evicts a tensor of fewer than `bytes` bytes only when no larger tensor can be evicted.
    /// Default: 1/4096 of the budget.
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").min_evict_bytes("1KiB").cpu()?;
    /// assert_eq!(runtime.ones(&[2])?.to_vec::<f32>()?, [1.0, 1.0]);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn min_evict_bytes<B: TryInto<ByteSize, Error: Display>>(mut self, bytes: B) -> Self {
        self.settings.min_evict_bytes = self.bytes("smallest eviction", bytes);
        self
    }

    /// Sets the rule for which part of a hole a tensor takes; see [`SplitRule`]. Default:
    /// [`SplitRule::Exact`].
    ///
    /// ```
    /// use remat::unstable::memory::SplitRule;
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").split_rule(SplitRule::Exact).cpu()?;
    /// assert_eq!(runtime.ones(&[2])?.to_vec::<f32>()?, [1.0, 1.0]);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub const fn split_rule(mut self, rule: SplitRule) -> Self {
        self.settings.split_rule = rule;
        self
    }

    /// Takes memory from the device region by region, as needed, instead of all at once. Each
    /// region is twice as large as the previous region. Default: off.
    ///
    /// On a custom device, the runtime takes regions with [`Device::take`]. On a CPU, the system
    /// provides each page when it is first written, with or without the option. On a GPU, the
    /// runtime always allocates the whole budget at once, and the option only places blocks closer
    /// together.
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").allow_growth(true).cpu()?;
    /// assert_eq!(runtime.ones(&[1024])?.sum()?.item()?, 1024.0);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub const fn allow_growth(mut self, on: bool) -> Self {
        self.settings.allow_growth = on;
        self
    }

    /// Sets the eviction policy: a [`PolicyKind`], or a custom [`Policy`].
    ///
    /// Default: [`PolicyKind::Learned`]. As soon as memory is short, the default policy recognizes
    /// the program's repeating steps, and uses predictions of later commands. Until a step is
    /// recognized, the default policy works like [`PolicyKind::Ancestors`].
    ///
    /// [`Learn::Portfolio`] and [`Learn::Search`] also search for forecasts. The search needs the
    /// feature `lab`, or [`Builder::learn_by`].
    ///
    /// ```
    /// use remat::PolicyKind;
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("12KiB").policy(PolicyKind::Lru).cpu()?;
    /// let x = runtime.ones(&[1024])?;
    /// let (y, z, w) = (x.square()?, x.sin()?, x.cos()?);
    /// assert_eq!(y.to_vec::<f32>()?, vec![1.0; 1024]);
    /// assert!(runtime.stats()?.evictions > 0);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn policy(mut self, policy: impl Into<PolicyChoice>) -> Self {
        self.policy = policy.into();
        self
    }

    /// Sets a custom [`Evictor`] in place of a policy.
    ///
    /// ```
    /// use remat::unstable::evict::NeverEvict;
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("8KiB").evictor(NeverEvict).cpu()?;
    /// let x = runtime.ones(&[1024])?;
    /// let y = x.exp()?;
    /// assert!(x.sin()?.to_vec::<f32>().is_err());
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn evictor(mut self, evictor: impl Evictor + 'static) -> Self {
        self.policy = PolicyChoice::Evictor(Box::new(evictor));
        self
    }

    /// Sets the model that estimates the cost of recomputing: a [`CostModelKind`], or a custom
    /// [`CostModel`]. Default: [`CostModelKind::Flops`].
    ///
    /// ```
    /// use remat::CostModelKind;
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cost_model(CostModelKind::Bytes).cpu()?;
    /// let x = runtime.ones(&[1024])?;
    /// assert!(runtime.stats()?.base_cost > 0.0);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn cost_model(mut self, cost_model: impl Into<CostModelChoice>) -> Self {
        self.cost_model = cost_model.into();
        self
    }

    /// Scores about `2 * sqrt(n)` of `n` candidates at each eviction, instead of all. Default: off.
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("8KiB").sqrt_sampling(true).cpu()?;
    /// let x = runtime.ones(&[1024])?;
    /// let (y, z) = (x.square()?, x.sin()?);
    /// assert_eq!(y.to_vec::<f32>()?, vec![1.0; 1024]);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub const fn sqrt_sampling(mut self, on: bool) -> Self {
        self.sqrt_sampling = on;
        self
    }

    /// Sets what happens to tensors that were recomputed only as inputs of other reruns. Default:
    /// [`Dead::Linger`].
    ///
    /// ```
    /// use remat::Dead;
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").dead(Dead::Drop).cpu()?;
    /// let x = runtime.ones(&[2])?.exp()?.log()?;
    /// runtime.drop_now(&x)?;
    /// assert_eq!(x.to_vec::<f32>()?.len(), 2);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub const fn dead(mut self, dead: Dead) -> Self {
        self.settings.dead = dead;
        self
    }

    /// Fails commands when the total cost of repeated runs exceeds `limit` times the total cost of
    /// first runs. Default: no limit.
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").recompute_limit(2.0).cpu()?;
    /// assert_eq!(runtime.ones(&[2])?.to_vec::<f32>()?, [1.0, 1.0]);
    /// assert!(Runtime::builder().recompute_limit(-1.0).cpu().is_err());
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub const fn recompute_limit(mut self, limit: f64) -> Self {
        self.settings.recompute_limit = Some(RecomputeLimit::Multiple(limit));
        self
    }

    /// Fails a command when regenerating its inputs costs more than `limit` times as much as
    /// running each needed op once. Default: 100.
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").regeneration_limit(10.0).cpu()?;
    /// assert_eq!(runtime.ones(&[2])?.to_vec::<f32>()?, [1.0, 1.0]);
    /// assert!(Runtime::builder().regeneration_limit(0.5).cpu().is_err());
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub const fn regeneration_limit(mut self, limit: f64) -> Self {
        self.settings.regeneration_limit = limit;
        self
    }

    /// Checks whether recomputed values have the same bits as before their eviction. `share` is the
    /// share of evicted values that are checked: above 0, and at most 1 to check all. Default: off.
    ///
    /// When a checked value is evicted, its hash is kept on the host. Each time the value is
    /// recomputed, or restored from its host copy, the hash is compared with the new bits. Steps
    /// that run by plan are checked too. If an op gives different bits, the command that needed the
    /// op's output fails with [`Error::OtherBits`]. The error names the op, the step and the first
    /// element that differs. Each later command that needs the value also fails. With a share below
    /// 1, the order of evictions alone decides which values are checked.
    ///
    /// Hashes take 3 % of the evicted bytes for `f32` and 6 % for `bf16`. A value of up to 16
    /// million elements takes at most 8 KiB. [`Stats::hash_bytes`] counts the bytes of hashes,
    /// which are host memory. Each checked value is read once when it is evicted, and once more
    /// each time it is recomputed. A core of 2 GHz hashes about 3 GB/s of `f32` and 1.3 GB/s of
    /// `bf16`. On the CPU, all threads share the work. On two threads, checking all values makes a
    /// step of ResNet-20 in 40 % of its memory take a fifth longer. Checking a tenth of the values
    /// makes the step take a twentieth longer.
    ///
    /// On a GPU, the worker waits for the GPU at each check, and checked values are copied to the
    /// host. A simulated device ([`Builder::sim`]) has no bits, so starting a runtime with
    /// `verify_recomputed` on one is an error.
    ///
    /// [`Stats::hash_bytes`]: crate::Stats::hash_bytes
    ///
    /// ```
    /// use remat::Runtime;
    ///
    /// let runtime = Runtime::builder().budget("8KiB").verify_recomputed(1.0).cpu()?;
    /// let x = runtime.ones(&[1024])?;
    /// let (y, z) = (x.exp()?, x.sin()?);
    /// assert_eq!(y.to_vec::<f32>()?.len(), z.to_vec::<f32>()?.len());
    /// let stats = runtime.stats()?;
    /// assert!(stats.verified_values > 0 && stats.verified_values == stats.recomputed_ops);
    /// assert!(Runtime::builder().verify_recomputed(1.0).sim().is_err());
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[must_use]
    pub const fn verify_recomputed(mut self, share: f64) -> Self {
        self.settings.verify_recomputed = Some(share);
        self
    }

    /// Sets the seed of random ops, of sampling and of the `random` policy. Default: 0.
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let drawn = |seed| -> Result<Vec<f32>, Error> {
    ///     let runtime = Runtime::builder().budget("1MiB").seed(seed).cpu()?;
    ///     runtime.uniform(&[4], 0.0..1.0)?.to_vec()
    /// };
    /// assert_eq!(drawn(1)?, drawn(1)?);
    /// assert_ne!(drawn(1)?, drawn(2)?);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets the number of threads for CPU kernels. The number does not affect results. Default: one
    /// thread per core.
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").threads(2).cpu()?;
    /// assert_eq!(runtime.ones(&[2])?.to_vec::<f32>()?, [1.0, 1.0]);
    /// assert!(Runtime::builder().threads(0).cpu().is_err());
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub const fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Records all commands; see [`crate::trace`].
    ///
    /// ```
    /// use remat::unstable::lab::InMemory;
    /// use remat::prelude::*;
    ///
    /// let recorder = InMemory::default();
    /// let runtime = Runtime::builder().budget("1MiB").record(recorder.clone()).cpu()?;
    /// let x = runtime.ones(&[2])?.exp()?;
    /// runtime.sync()?;
    /// let program = recorder.take()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn record(mut self, recorder: impl Recorder + 'static) -> Self {
        self.recorder = Some(Box::new(recorder));
        self
    }

    /// Sets how many of the following commands the evictor knows when a command runs: which tensors
    /// each of them reads and frees; see [`Future`](crate::graph::Future). Default: 0, so that no
    /// command waits for later commands.
    ///
    /// The evictor's knowledge depends on the program alone, never on timing. A command waits until
    /// `commands` further commands have been sent. The wait also ends when a command with an answer
    /// follows, such as a `get`, or when 64 MiB of host values are waiting. The last commands of a
    /// program therefore may not run until an answer is requested. While a program is idle, dropped
    /// tensors are not freed until its next command.
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").look_ahead(16).cpu()?;
    /// let x = runtime.full(&[2], 3.0)?;
    /// assert_eq!(x.square()?.to_vec::<f32>()?, [9.0, 9.0]);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub const fn look_ahead(mut self, commands: usize) -> Self {
        self.window = Window::of(commands);
        self
    }

    /// Sets whether steps run by plan. Default: [`Plan::Off`].
    ///
    /// [`Plan::Auto`] runs a repeating step that is marked ([`Runtime::step`]) without bookkeeping:
    /// all its outputs have fixed offsets in one block of memory. If the step does not fit in the
    /// budget, the plan also contains the evictions and recomputations. With an eviction threshold
    /// or a recompute limit, steps that do not fit are not planned. Steps of different kinds, such
    /// as training and evaluation, have their own plans.
    ///
    /// At the first command that differs from the plan, the runtime leaves the plan. With or
    /// without a plan, results have the same bits, and the budget is never exceeded. Plans are off
    /// if [`Builder::record`] or [`Builder::look_ahead`] is used.
    ///
    /// ```
    /// use remat::prelude::*;
    /// use remat::Plan;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").plan(Plan::Auto).cpu()?;
    /// let mut weights = runtime.ones(&[64])?;
    /// for _ in 0..20 {
    ///     let gradient = weights.sin()?.mul(&weights)?;
    ///     weights = weights.sub(&gradient)?;
    ///     runtime.commit(&weights)?;
    ///     drop(gradient);
    ///     runtime.step()?;
    /// }
    /// assert!(runtime.stats()?.planned_steps > 10);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub const fn plan(mut self, plan: Plan) -> Self {
        self.plan = plan;
        self
    }

    /// Adds a [`Listener`], which receives every event of the engine: evictions, regenerations,
    /// steps and others. The listener is called on the worker thread, which waits until the call
    /// returns. Several listeners may be added.
    ///
    /// ```
    /// use remat::Listener;
    /// use remat::unstable::event::Event;
    /// use remat::evict::View;
    /// use remat::prelude::*;
    ///
    /// #[derive(Debug)]
    /// struct Steps;
    ///
    /// impl Listener for Steps {
    ///     fn on(&mut self, event: &Event, _view: View<'_>) {
    ///         if let Event::DidStep { step, used } = event {
    ///             println!("step {step} has ended, with {used} bytes in use");
    ///         }
    ///     }
    /// }
    ///
    /// let runtime = Runtime::builder().budget("1MiB").listen(Steps).cpu()?;
    /// runtime.step()?;
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn listen(mut self, listener: impl Listener + 'static) -> Self {
        self.listeners.push(Box::new(listener));
        self
    }

    /// Starts a runtime on the CPU.
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// assert_eq!(runtime.ones(&[2, 3])?.sum()?.item()?, 6.0);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if an option is invalid, or the budget cannot be reserved.
    pub fn cpu(self) -> Result<Runtime, Error> {
        if let Some(threads) = self.threads.filter(|n| !(1..=MAX_THREADS).contains(n)) {
            let wrong = format!("{threads} threads: give a number from 1 to {MAX_THREADS}");
            return Err(RuntimeError::Settings(wrong).into());
        }
        let team = Team::new(self.threads).map_err(RuntimeError::NoDevice)?;
        let members = team.clone();
        // The worker runs on a thread of the team, so that small ops run without a switch of
        // threads.
        self.start(move |bytes| Cpu::of(&members, bytes), team)
    }

    /// Starts a runtime on an NVIDIA GPU.
    ///
    /// ```no_run
    /// use remat::Runtime;
    /// use remat::device::cuda::Options;
    ///
    /// let runtime = Runtime::builder().budget("8GiB").cuda(Options::default().tf32(true))?;
    /// # Ok::<(), remat::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`RuntimeError::NoDevice`] if the driver, the device or cuBLAS is missing. Also
    /// fails if an option is invalid, or the budget cannot be reserved.
    #[cfg(feature = "cuda")]
    pub fn cuda(mut self, options: crate::device::cuda::Options) -> Result<Runtime, Error> {
        if let Some(wrong) = self.wrong.take() {
            return Err(RuntimeError::Settings(wrong).into());
        }
        // Open the GPU on the caller's thread, so that a missing driver is an error before a worker
        // starts.
        let gpu = crate::device::cuda::Context::open(options).map_err(RuntimeError::NoDevice)?;
        if self.budget.is_none() {
            self.budget = Some(gpu.available_bytes().map_err(RuntimeError::NoDevice)?);
        }
        self.device(move |bytes| crate::device::cuda::Cuda::of(&gpu, bytes))
    }

    /// Sets a predicate that cancels regenerations, as [`Runtime::cancel`] would. For example, the
    /// predicate may enforce an [`Allowance`](crate::program::Allowance) of ops in a rehearsal.
    ///
    /// The worker thread calls `wanted` before each rerun, with or without a plan. If `wanted`
    /// returns true, the command that needs the rerun fails with [`RegenerationError::Cancelled`],
    /// and has no other effect.
    ///
    /// [`RegenerationError::Cancelled`]: crate::error::RegenerationError::Cancelled
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").interrupt_when(|| true).cpu()?;
    /// let x = runtime.ones(&[2])?;
    /// let y = x.square()?;
    /// runtime.drop_now(&y)?;
    /// assert!(matches!(y.to_vec::<f32>(), Err(Error::Regeneration(_))));
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn interrupt_when(mut self, wanted: impl Fn() -> bool + Send + 'static) -> Self {
        self.interrupt = Interrupt(Some(Box::new(wanted)));
        self
    }

    /// Adds forecasts from [`Runtime::forecasts`] of an earlier run. The policy `learned` uses a
    /// forecast when it recognizes the step of the forecast, in the same budget.
    #[must_use]
    pub fn forecasts(mut self, forecasts: impl IntoIterator<Item = Forecast>) -> Self {
        self.known.forecasts.extend(forecasts);
        self
    }

    /// Marks the search for forecasts as already complete; see [`Knowledge::searched`].
    #[cfg(feature = "lab")]
    pub(crate) fn searched(mut self) -> Self {
        self.known.searched = true;
        self
    }

    /// Replaces the search of `learned:portfolio` or `learned:search` with another learner, until
    /// the policy changes. For example, a learner may only store turns for a later search
    /// (`lab::Search`). A recording does not contain the learner.
    #[must_use]
    pub fn learn_by(mut self, learner: impl Learner + 'static) -> Self {
        self.learner = Some(Box::new(learner));
        self
    }

    /// Sets the steps of the program, from [`Runtime::known_steps`] of an earlier run. A policy
    /// that looks ahead predicts the given steps from the first command on.
    ///
    /// With an empty value ([`KnownSteps::default`]), the policy recognizes steps from the first
    /// command on. If `known_steps` is not called, the policy recognizes steps from the first
    /// eviction on.
    ///
    /// ```
    /// use remat::prelude::*;
    /// use remat::unstable::program::KnownSteps;
    ///
    /// fn train(runtime: &Runtime, steps: usize) -> Result<(), Error> {
    ///     let mut weight = runtime.ones(&[64, 64])?;
    ///     for _ in 0..steps {
    ///         let mut passed = vec![runtime.ones(&[256, 64])?];
    ///         for layer in 0..8 {
    ///             passed.push(passed[layer].matmul(&weight)?.tanh()?);
    ///         }
    ///         let mut sum = passed[8].mean()?;
    ///         while let Some(x) = passed.pop() {
    ///             sum = (sum + x.square()?.mean()?)?;
    ///         }
    ///         weight = (&weight * &sum)?;
    ///         runtime.step()?;
    ///     }
    ///     runtime.sync()
    /// }
    ///
    /// // A simulated run: no kernel runs.
    /// let rehearsal = Runtime::builder().known_steps(KnownSteps::default()).sim()?;
    /// train(&rehearsal, 4)?;
    /// let steps = rehearsal.known_steps()?.expect("the default policy looks ahead");
    /// let runtime = Runtime::builder().budget("400KiB").known_steps(steps).cpu()?;
    /// train(&runtime, 3)?;
    /// assert!(runtime.stats()?.recomputed_ops > 0);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn known_steps(mut self, steps: KnownSteps) -> Self {
        self.known.steps = Some(steps);
        self
    }

    /// Starts a simulated runtime, which has no data and no kernels, and only counts bytes and
    /// costs. On a simulated runtime, `get` returns zeros.
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1TiB").sim()?;
    /// let x = runtime.ones(&[1 << 30])?;
    /// let y = x.square()?;
    /// assert!(runtime.stats()?.peak_bytes >= 8 << 30);
    /// assert_eq!(y.sum()?.item()?, 0.0);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if an option is invalid.
    pub fn sim(self) -> Result<Runtime, Error> {
        self.device(|bytes| Ok(crate::device::sim::Sim::<crate::ops::Op, _>::cpu(bytes)))
    }

    /// Starts a runtime on a custom device. `make` is called on the worker thread with the budget
    /// in bytes. If the device has less memory, the budget is lowered to the device's memory.
    ///
    /// ```
    /// use remat::device::sim::{Sim, Speed};
    /// use remat::{HostTensor, Op, Runtime};
    ///
    /// let gpu = |bytes| Ok(Sim::<Op, HostTensor>::new(bytes, Speed::GPU));
    /// let runtime = Runtime::builder().budget("8GiB").device(gpu)?;
    /// # Ok::<(), remat::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if an option is invalid, the device cannot be made, or the device has more memory than
    /// the budget.
    pub fn device<D: Device>(
        self,
        make: impl FnOnce(u64) -> Result<D, DeviceError> + Send + 'static,
    ) -> Result<Runtime<D::Op, D::Host>, Error> {
        self.start(make, OwnThread)
    }

    /// Starts a runtime on a custom device, with the worker on the given thread.
    fn start<D: Device>(
        mut self,
        make: impl FnOnce(u64) -> Result<D, DeviceError> + Send + 'static,
        thread: impl Thread,
    ) -> Result<Runtime<D::Op, D::Host>, Error> {
        if let Some(wrong) = self.wrong.take() {
            return Err(RuntimeError::Settings(wrong).into());
        }
        if self.learner.is_none() {
            check_search(&self.policy)?;
        }
        let budget = self.budget.unwrap_or_else(machine_memory);
        self.settings.check(budget)?;
        let (seed, sqrt_sampling) = (self.seed, self.sqrt_sampling);
        // Three channels: for commands to the worker, for the result of the worker's start, and for
        // the worker's end. The third channel is disconnected when the worker drops `alive`.
        let (sender, commands) = crate::sync::channel::bounded(QUEUE);
        let (started, start) = crate::sync::channel::bounded(1);
        let (alive, ended) = crate::sync::channel::bounded(0);
        let (control, home) = (Arc::<Control>::default(), Arc::<Home>::default());
        let (controlled, emptied) = (Arc::clone(&control), Arc::clone(&home));
        let serving = Arc::clone(&control);
        // The worker's whole life: open the engine, report the start, and execute commands.
        let work = move || {
            let learn = self.policy.learn();
            #[cfg(feature = "lab")]
            let (new, rehearse) =
                (crate::lab::learner, Some(crate::lab::passing_budget as Rehearse));
            // Without the feature `lab`, nothing can search for forecasts; see `check_search`.
            #[cfg(not(feature = "lab"))]
            let (new, rehearse) = (|_, _| None, None::<Rehearse>);
            let learners = Learners { new, seed };
            let rehearse = rehearse.filter(|_| self.names_budgets);
            // With a window or a recorder, commands must be executed one by one, so plans are off.
            let is_heard = self.window.commands > 0 || self.recorder.is_some();
            let plan = if is_heard { Plan::Off } else { self.plan };
            let evictor = self.policy.evictor(seed, sqrt_sampling);
            let costs = self.cost_model.build();
            let opened = caught(
                || "the device, or what it was given,".to_owned(),
                || Engine::new(made(make, budget)?, self.settings, evictor, costs),
            );
            match opened.and_then(|engine| engine) {
                Ok(mut engine) => {
                    self.listeners.into_iter().for_each(|listener| engine.listen(listener));
                    let _ = started.send(Ok(engine.budget()));
                    let worker = Interpreter::new(
                        engine,
                        self.window,
                        self.interrupt.0,
                        Arc::clone(&control),
                        emptied,
                        self.recorder,
                        LearnOptions {
                            learn,
                            learners,
                            own: self.learner,
                            known: self.known,
                            plan,
                            rehearse,
                        },
                    );
                    // Catch panics of the worker, and of dropping the device.
                    let ended = caught(|| "the worker".to_owned(), || worker.run(&commands));
                    control.end(ended.unwrap_or_else(|error| Some(error.to_string())));
                }
                Err(error) => {
                    let _ = started.send(Err(error));
                }
            }
        };
        let worker = crate::sync::thread::Builder::new()
            .name("remat".to_owned())
            .spawn(move || {
                let _alive = alive;
                thread.run(|| serving.serve(), work);
            })
            .map_err(|e| {
                RuntimeError::Settings(format!(
                    "the worker thread could not be started: {e}; raise the limit on processes (ulimit -u)"
                ))
            })?;
        // The engine's budget, which is smaller if the device has less memory.
        let budget = start.recv().map_err(|_| controlled.stopped())??;
        let control = controlled;
        let thread = worker;
        let worker = Worker { sender, thread, ended, control, home, budget, seed, sqrt_sampling };
        Ok(Runtime::start(worker, D::layout_of))
    }

    fn bytes<B: TryInto<ByteSize, Error: Display>>(&mut self, what: &str, size: B) -> Option<u64> {
        match size.try_into() {
            Ok(ByteSize(bytes)) => Some(bytes),
            Err(error) => {
                self.wrong.get_or_insert_with(|| format!("{what}: {error}"));
                None
            }
        }
    }
}

/// Returns an error if the policy searches for forecasts, and the search is not compiled in.
pub(super) fn check_search(policy: &PolicyChoice) -> Result<(), Error> {
    match policy.kind() {
        Some(kind) if kind.searches() && !cfg!(feature = "lab") => {
            let ahead = PolicyKind::Learned(Learn::Ahead);
            Err(RuntimeError::Settings(format!(
                "the policy {kind} searches for forecasts, which needs the feature `lab` of the crate remat; add the \
                 feature, or choose {ahead}"
            ))
            .into())
        }
        _ => Ok(()),
    }
}

/// Makes the device, and checks its memory against the budget.
fn made<D: Device>(
    make: impl FnOnce(u64) -> Result<D, DeviceError>,
    budget: u64,
) -> Result<D, Error> {
    let device = make(budget).map_err(|e| DeviceFault::of("reserving the budget", &e))?;
    let bytes = device.memory().bytes();
    if bytes > budget {
        let (name, [bytes, budget]) = (device.name(), ByteSize::apart(bytes, budget));
        return Err(RuntimeError::Settings(format!(
            "{name} has {bytes} of memory, more than the budget of {budget}; make the device with the bytes that the \
             builder passes"
        ))
        .into());
    }
    Ok(device)
}

/// The thread that does a runtime's work. `Thread` is a type parameter, because dynamic dispatch
/// would cost small ops a few percent.
trait Thread: Send + 'static {
    /// Calls `begin` on every thread, and `work` on a single thread.
    fn run(self, begin: impl Fn() + Sync, work: impl FnOnce() + Send);
}

/// The runtime's own thread.
struct OwnThread;

impl Thread for OwnThread {
    fn run(self, begin: impl Fn() + Sync, work: impl FnOnce() + Send) {
        begin();
        work();
    }
}

/// The worker runs on a thread of the team, while the runtime's own thread waits.
impl Thread for Team {
    fn run(self, begin: impl Fn() + Sync, work: impl FnOnce() + Send) {
        self.on_each(begin);
        Self::run(&self, work);
    }
}

/// Bytes of the machine's memory, or 64 GiB if unknown. The guess may exceed the real memory,
/// because the system provides a page only when it is used.
fn machine_memory() -> u64 {
    memory_of("MemTotal:").unwrap_or(64 << 30)
}

/// Free memory less a margin for bytes outside of a budget: 512 MiB, or 5 % if that is more. `None`
/// if the system does not report free memory.
#[cfg(feature = "lab")]
pub(crate) fn available_memory() -> Option<u64> {
    let free = memory_of("MemAvailable:").filter(|&free| free > 0)?;
    Some(free - (512 << 20).max(free / 20).min(free / 2))
}

/// An entry of `/proc/meminfo`, in bytes.
fn memory_of(name: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes = line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?;
    Some(kibibytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_that_is_not_compiled_in_is_an_error_that_names_the_feature() {
        for learn in [Learn::Portfolio, Learn::Search { runs: 9 }] {
            let policy = PolicyKind::Learned(learn);
            let opened = Runtime::builder().policy(policy).sim();
            let set = Runtime::builder().sim().unwrap().set_policy(policy);
            for outcome in [opened.map(drop), set] {
                let said = outcome.err().map(|error| error.to_string());
                assert_eq!(said.is_none(), cfg!(feature = "lab"));
                assert!(said.is_none_or(|said| said.contains("feature `lab`")));
            }
        }
        assert!(Runtime::builder().sim().is_ok(), "the default only looks ahead");
    }
}
