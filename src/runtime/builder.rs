//! Describing and starting a runtime.

use super::{QUEUE, Runtime, Worker};
use crate::bytes::ByteSize;
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
use crate::memory::SplitRule;
use crate::ops::Home;
use crate::step::KnownSteps;
use std::fmt::{self, Display};
use std::sync::Arc;

/// A policy of the crate, or one of your own.
#[derive(Debug)]
pub enum PolicyChoice {
    /// One of the crate.
    Kind(PolicyKind),
    /// Scores of your own.
    Own(Box<dyn Policy>),
    /// An evictor of your own.
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
    /// The policy of the crate, if it is one.
    #[must_use]
    pub const fn kind(&self) -> Option<PolicyKind> {
        match self {
            Self::Kind(kind) => Some(*kind),
            _ => None,
        }
    }

    /// How much is to be found out for it: by [`Driver::learn_by`](crate::program::Driver::learn_by), for those who make an
    /// [`Engine`] of their own.
    #[must_use]
    pub const fn learn(&self) -> Learn {
        match self {
            Self::Kind(kind) => kind.learn(),
            _ => Learn::Ahead,
        }
    }

    /// Who decides by it: for those who make an [`Engine`] of their own. `seed` is that of the policy `random`, and of the
    /// sample of [`Builder::sqrt_sampling`].
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

/// A cost model of the crate, or one of your own.
#[derive(Debug)]
pub enum CostModelChoice {
    /// One of the crate.
    Kind(CostModelKind),
    /// One of your own.
    Own(Box<dyn CostModel>),
}

impl CostModelChoice {
    /// The cost model: for those who make an [`Engine`] of their own.
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

/// A description of a [`Runtime`]. Invalid values are reported when the runtime is started.
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
    /// In place of that of the policy.
    learner: Option<Box<dyn Learner>>,
    pub(crate) plan: Plan,
    listeners: Vec<Box<dyn Listener>>,
    interrupt: Interrupt,
    /// Whether out-of-memory errors are to name a budget that passes.
    pub(crate) names_budgets: bool,
    wrong: Option<String>,
}

/// Asked whether a regeneration is to end.
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
    /// The memory limit, in bytes or as text such as `"1.5GiB"`: a hard limit on parameters, activations,
    /// gradients and workspaces together. Default: the machine's memory; on a GPU, what is free, less a
    /// margin.
    #[must_use]
    #[doc(alias("memory limit", "set_per_process_memory_fraction"))]
    pub fn budget<B: TryInto<ByteSize, Error: Display>>(mut self, budget: B) -> Self {
        self.budget = self.bytes("budget", budget).or(self.budget);
        self
    }

    /// Before each op, evict until at most this much memory is used: a soft limit below the budget, in bytes or as
    /// text. Default: none, so that tensors are evicted only when an allocation does not fit.
    #[must_use]
    pub fn eviction_threshold<B: TryInto<ByteSize, Error: Display>>(
        mut self,
        threshold: B,
    ) -> Self {
        self.settings.eviction_threshold = self.bytes("eviction threshold", threshold);
        self
    }

    /// Evict tensors smaller than this only as a last resort. Default: 1/4096 of the budget.
    #[must_use]
    pub fn min_evict_bytes<B: TryInto<ByteSize, Error: Display>>(mut self, bytes: B) -> Self {
        self.settings.min_evict_bytes = self.bytes("smallest eviction", bytes);
        self
    }

    /// How much of a hole a tensor takes; see [`SplitRule`]. Default: [`SplitRule::Exact`].
    #[must_use]
    pub const fn split_rule(mut self, rule: SplitRule) -> Self {
        self.settings.split_rule = rule;
        self
    }

    /// Take memory from the device region by region, as it is needed, and not all of it at once; each region is twice
    /// as large as the one before. Default: off.
    ///
    /// A device of your own is asked by [`Device::take`]. On the CPU, the system gives memory when it is first written either
    /// way. A GPU is asked for all of the budget at once either way, so blocks only lie closer together there.
    #[must_use]
    pub const fn allow_growth(mut self, on: bool) -> Self {
        self.settings.allow_growth = on;
        self
    }

    /// What to evict first: a [`PolicyKind`], or a [`Policy`] of your own. Default: [`PolicyKind::Learned`], which recognizes the
    /// steps of the program once memory is short, and looks ahead; until then it goes by [`PolicyKind::Ancestors`].
    ///
    /// [`Learn::Portfolio`] and [`Learn::Search`] search for forecasts, too: that needs the feature `lab`, or [`Builder::learn_by`].
    #[must_use]
    pub fn policy(mut self, policy: impl Into<PolicyChoice>) -> Self {
        self.policy = policy.into();
        self
    }

    /// Who decides what to evict: an [`Evictor`] of your own, in place of a policy.
    #[must_use]
    pub fn evictor(mut self, evictor: impl Evictor + 'static) -> Self {
        self.policy = PolicyChoice::Evictor(Box::new(evictor));
        self
    }

    /// How the cost of recomputing is estimated: a [`CostModelKind`], or a [`CostModel`] of your own. Default:
    /// [`CostModelKind::Flops`].
    #[must_use]
    pub fn cost_model(mut self, cost_model: impl Into<CostModelChoice>) -> Self {
        self.cost_model = cost_model.into();
        self
    }

    /// At each eviction, score about `2 * sqrt(n)` of `n` candidates instead of all. Default: off.
    #[must_use]
    pub const fn sqrt_sampling(mut self, on: bool) -> Self {
        self.sqrt_sampling = on;
        self
    }

    /// What to do with tensors that were recomputed only to recompute others. Default: [`Dead::Linger`].
    #[must_use]
    pub const fn dead(mut self, dead: Dead) -> Self {
        self.settings.dead = dead;
        self
    }

    /// Fail when recomputing has cost more in total than this multiple of the work itself. Default: never.
    #[must_use]
    pub const fn recompute_limit(mut self, limit: f64) -> Self {
        self.settings.recompute_limit = Some(RecomputeLimit::Multiple(limit));
        self
    }

    /// Fail a command when regenerating what it reads costs more than this multiple of running each op involved
    /// once. Default: 100.
    #[must_use]
    pub const fn regeneration_limit(mut self, limit: f64) -> Self {
        self.settings.regeneration_limit = limit;
        self
    }

    /// Check that what is recomputed has the bits that were evicted: of this share of the values that go, from above 0 up to 1,
    /// where 1 is all. Of each, a hash is kept on the host when it is evicted, and compared each time that it is recomputed, or
    /// brought back from its copy on the host; by plan or not. If an op gives other bits, the command that needed it fails with
    /// [`Error::OtherBits`], which names the op, the step and the first element that differs; so does each later command that
    /// needs it. Default: off. A sample depends on the order of evictions alone.
    ///
    /// On the host, hashes of `f32` take 3 % of the bytes of what is evicted, of `bf16` 6 %, and at most 8 KiB a value of up to 16
    /// million elements ([`Stats::hash_bytes`], which count as host bytes). Each value that goes is looked at once, and each that
    /// is recomputed once more: on a core of 2 GHz at about 3 GB/s for `f32` and 1.3 GB/s for `bf16`, on the CPU shared among the threads. A step of
    /// ResNet-20 in 40 % of its memory takes a fifth longer on two threads, and a twentieth where a tenth is looked at. A GPU is waited for
    /// whenever something is looked at, and what is looked at is copied to the host. A device that only counts, such as
    /// [`Builder::sim`], has no bits: that is an error when it is started.
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

    /// Seed of random ops, of sampling and of the `random` policy. Default: 0.
    #[must_use]
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Threads that run kernels on the CPU. Results do not depend on it. Default: one per core.
    #[must_use]
    pub const fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Record all commands; see [`crate::trace`].
    #[must_use]
    pub fn record(mut self, recorder: impl Recorder + 'static) -> Self {
        self.recorder = Some(Box::new(recorder));
        self
    }

    /// Lets the evictor know of the next so many commands before they run: which tensors they read, and which they let
    /// go; see [`Future`](crate::graph::Future). What it knows depends on the program alone, never on timing: a command
    /// runs once so many others have come after it, or one with an answer, such as a `get`, or 64 MiB of values from the
    /// host. So the last commands stay undone until more come, and handles that an idle program drops until the next one.
    /// Default: 0, so that no command waits for others.
    #[must_use]
    pub const fn look_ahead(mut self, commands: usize) -> Self {
        self.window = Window::of(commands);
        self
    }

    /// Whether steps run by plan. With [`Plan::Auto`], a step that is marked ([`Runtime::step`]) and repeats is done again
    /// without keeping books: the places of all that it makes are settled once, in one block. If it does not fit in the budget, so are
    /// its evictions, and what it recomputes; but not with an eviction threshold or a recompute limit. Steps of several
    /// kinds have their plans side by side. At the first command that is not as before, the runtime goes on as if there
    /// had been no plan: same bits, same budget. Not beside [`Builder::record`] and [`Builder::look_ahead`]. Default: [`Plan::Off`].
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

    /// Lets a [`Listener`] hear every event of the engine: evictions, regenerations, steps, ... It is called on the
    /// worker thread, which waits for it. May be called several times.
    #[must_use]
    pub fn listen(mut self, listener: impl Listener + 'static) -> Self {
        self.listeners.push(Box::new(listener));
        self
    }

    /// Starts a runtime on the CPU.
    ///
    /// # Errors
    /// If an option is invalid, or the budget cannot be reserved.
    pub fn cpu(self) -> Result<Runtime, Error> {
        if let Some(threads) = self.threads.filter(|n| !(1..=MAX_THREADS).contains(n)) {
            let wrong = format!("{threads} threads: give a number from 1 to {MAX_THREADS}");
            return Err(RuntimeError::Settings(wrong).into());
        }
        let team = Team::new(self.threads).map_err(RuntimeError::NoDevice)?;
        let members = team.clone();
        // The worker is a thread of the team, so that small ops run without a hand-over between threads.
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
    /// [`RuntimeError::NoDevice`] if there is no driver, no such device, or no cuBLAS. If an option is invalid, or the
    /// budget cannot be reserved.
    #[cfg(feature = "cuda")]
    pub fn cuda(mut self, options: crate::device::cuda::Options) -> Result<Runtime, Error> {
        if let Some(wrong) = self.wrong.take() {
            return Err(RuntimeError::Settings(wrong).into());
        }
        // On the caller's thread, so that a missing driver is an error before a worker is started.
        let gpu = crate::device::cuda::Context::open(options).map_err(RuntimeError::NoDevice)?;
        if self.budget.is_none() {
            self.budget = Some(gpu.available_bytes().map_err(RuntimeError::NoDevice)?);
        }
        self.device(move |bytes| crate::device::cuda::Cuda::of(&gpu, bytes))
    }

    /// Asks `wanted` on the worker's thread before each run of a regeneration whether to give it up, as [`Runtime::cancel`] would:
    /// the command fails with [`RegenerationError::Cancelled`], and all else is as it was. Steps that run by plan do not ask.
    /// Such as an [`Allowance`](crate::program::Allowance) of ops in a rehearsal.
    ///
    /// [`RegenerationError::Cancelled`]: crate::error::RegenerationError::Cancelled
    #[must_use]
    pub fn interrupt_when(mut self, wanted: impl Fn() -> bool + Send + 'static) -> Self {
        self.interrupt = Interrupt(Some(Box::new(wanted)));
        self
    }

    /// How steps are best run, from [`Runtime::forecasts`] of an earlier run: used by the policy `learned` where it recognizes
    /// one of these steps, in the same budget.
    #[must_use]
    pub fn forecasts(mut self, forecasts: impl IntoIterator<Item = Forecast>) -> Self {
        self.known.forecasts.extend(forecasts);
        self
    }

    /// Who finds out how steps are best run, in place of the search of `learned:portfolio` or `learned:search`, until the policy
    /// changes: one of your own, or one that only keeps the turns that it is given, to search another day (`lab::Search`).
    /// A recording says nothing of it.
    #[must_use]
    pub fn learn_by(mut self, learner: impl Learner + 'static) -> Self {
        self.learner = Some(Box::new(learner));
        self
    }

    /// The steps of the program, from [`Runtime::known_steps`] of an earlier run: a policy that looks ahead foresees them from
    /// the first command on. With none ([`KnownSteps::default`]) they are recognized from then on, for a later run; otherwise
    /// from the first eviction on.
    ///
    /// ```
    /// use remat::prelude::*;
    /// use remat::program::KnownSteps;
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
    /// // Nothing is computed.
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

    /// Starts a simulated runtime, which only counts bytes and cost: no data, no kernels; `get` returns zeros.
    ///
    /// # Errors
    /// If an option is invalid.
    pub fn sim(self) -> Result<Runtime, Error> {
        self.device(|bytes| Ok(crate::device::sim::Sim::<crate::ops::Op, _>::cpu(bytes)))
    }

    /// Starts a runtime on a device of your own. `make` is called on the worker thread with the budget in bytes. A
    /// device may have less memory than that: then this is the budget.
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
    /// If an option is invalid, the device cannot be made, or it has more memory than the budget.
    pub fn device<D: Device>(
        self,
        make: impl FnOnce(u64) -> Result<D, DeviceError> + Send + 'static,
    ) -> Result<Runtime<D::Op, D::Host>, Error> {
        self.start(make, OwnThread)
    }

    /// Like [`Builder::device`], with a choice of the thread to run on.
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
        let (sender, commands) = crate::sync::channel::bounded(QUEUE);
        let (started, start) = crate::sync::channel::bounded(1);
        let (alive, ended) = crate::sync::channel::bounded(0);
        let (control, home) = (Arc::<Control>::default(), Arc::<Home>::default());
        let (controlled, emptied) = (Arc::clone(&control), Arc::clone(&home));
        let serving = Arc::clone(&control);
        let work = move || {
            let learn = self.policy.learn();
            #[cfg(feature = "lab")]
            let (new, rehearse) =
                (crate::lab::learner, Some(crate::lab::passing_budget as Rehearse));
            // Without the lab nobody can: `check_search`.
            #[cfg(not(feature = "lab"))]
            let (new, rehearse) = (|_, _| None, None::<Rehearse>);
            let learners = Learners { new, seed };
            let rehearse = rehearse.filter(|_| self.names_budgets);
            // Who looks ahead wants to know of commands before they run, and who records of all that each does.
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
                    // A device may panic when it is dropped, too.
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
                RuntimeError::Settings(format!("the worker thread could not be started: {e}"))
            })?;
        // A device may have less than it was asked for.
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

/// An error where a policy searches for forecasts, and the search is not compiled in.
pub(super) fn check_search(policy: &PolicyChoice) -> Result<(), Error> {
    match policy.kind() {
        Some(kind) if kind.searches() && !cfg!(feature = "lab") => {
            let ahead = PolicyKind::Learned(Learn::Ahead);
            Err(RuntimeError::Settings(format!(
                "the policy {kind} searches for forecasts, which needs the feature `lab` of the crate remat; add that, or choose {ahead}"
            ))
            .into())
        }
        _ => Ok(()),
    }
}

/// A device that keeps within the budget.
fn made<D: Device>(
    make: impl FnOnce(u64) -> Result<D, DeviceError>,
    budget: u64,
) -> Result<D, Error> {
    let device = make(budget).map_err(|e| DeviceFault::of("reserving the budget", &e))?;
    let bytes = device.memory().bytes();
    if bytes > budget {
        let (name, [bytes, budget]) = (device.name(), ByteSize::apart(bytes, budget));
        return Err(RuntimeError::Settings(format!(
            "{name} has {bytes} of memory, more than the budget of {budget}; make it with the bytes that it is given"
        ))
        .into());
    }
    Ok(device)
}

/// Where the work of a runtime's thread is done. A type parameter, because dynamic dispatch would cost small ops a few
/// percent.
trait Thread: Send + 'static {
    /// Has every thread begin so, and does the work on one of them.
    fn run(self, begin: impl Fn() + Sync, work: impl FnOnce() + Send);
}

/// On that thread itself.
struct OwnThread;

impl Thread for OwnThread {
    fn run(self, begin: impl Fn() + Sync, work: impl FnOnce() + Send) {
        begin();
        work();
    }
}

/// On a thread of the team, while the runtime's own thread waits.
impl Thread for Team {
    fn run(self, begin: impl Fn() + Sync, work: impl FnOnce() + Send) {
        self.on_each(begin);
        Self::run(&self, work);
    }
}

/// The memory of the machine, or 64 GiB if that is unknown: pages are only touched when used.
fn machine_memory() -> u64 {
    memory_of("MemTotal:").unwrap_or(64 << 30)
}

/// What is free, less a margin for what is not in a budget: 512 MiB, or 5 % if that is more. `None`: the system does not say.
#[cfg(feature = "lab")]
pub(crate) fn available_memory() -> Option<u64> {
    let free = memory_of("MemAvailable:").filter(|&free| free > 0)?;
    Some(free - (512 << 20).max(free / 20).min(free / 2))
}

/// A line of what Linux says of its memory, in bytes.
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
