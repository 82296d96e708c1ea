//! Describing a device under a budget.

use crate::backend::Facts;
use crate::custom::{CustomOp, CustomOps};
use crate::device::BurnDevice;
use crate::error::Error;
use crate::guard::Guard;
use crate::heap::keep_freed_memory;
use crate::learn::{BY_DEFAULT, Modest, REHEARSE, learner};
use crate::server::Server;
use crate::session::Session;
use burn_ir::{BackendIr, CustomOpIr, HandleContainer};
use remat::error::RuntimeError;
use remat::evict::{Evictor, Forecast};
use remat::program::{Driver, Knowledge, KnownSteps, Recorder, Window};
use remat::{
    ByteSize, CostModelChoice, CostModelKind, Dead, Engine, Listener, PolicyChoice, PolicyKind,
    RecomputeLimit, Settings,
};
use std::fmt::Display;

/// A description of a device under a budget: [`budget`](crate::budget), options, and [`Builder::serve`]. The options are those
/// of [`remat::Builder`]; invalid values are reported by `serve`.
#[derive(Debug)]
#[must_use = "a device is there once it is served"]
pub struct Builder {
    budget: u64,
    settings: Settings,
    /// `None`: by what is known of steps.
    policy: Option<PolicyChoice>,
    sqrt_sampling: bool,
    seed: u64,
    cost_model: CostModelChoice,
    recorder: Option<Box<dyn Recorder>>,
    window: Window,
    listeners: Vec<Box<dyn Listener>>,
    custom_ops: Vec<CustomOp>,
    known: Knowledge,
    wrong: Option<String>,
}

impl Builder {
    pub(crate) fn new<T: TryInto<ByteSize, Error: Display>>(budget: T) -> Self {
        let mut builder = Self {
            budget: 0,
            settings: Settings::default(),
            policy: None,
            sqrt_sampling: false,
            seed: 0,
            cost_model: CostModelKind::default().into(),
            recorder: None,
            window: Window::default(),
            listeners: Vec::new(),
            custom_ops: Vec::new(),
            known: Knowledge::default(),
            wrong: None,
        };
        builder.budget = builder.bytes("budget", budget).unwrap_or(0);
        builder
    }

    /// Before each op, evict until at most this much memory is used: a soft limit below the budget, in bytes or as
    /// text. Default: none, so that tensors are evicted only when an allocation does not fit.
    pub fn eviction_threshold<T: TryInto<ByteSize, Error: Display>>(mut self, bytes: T) -> Self {
        self.settings.eviction_threshold = self.bytes("eviction threshold", bytes);
        self
    }

    /// Evict tensors smaller than this only as a last resort. Default: 1/4096 of the budget.
    pub fn min_evict_bytes<T: TryInto<ByteSize, Error: Display>>(mut self, bytes: T) -> Self {
        self.settings.min_evict_bytes = self.bytes("smallest eviction", bytes);
        self
    }

    /// What to evict first: a [`PolicyKind`], or a [`Policy`](remat::evict::Policy) of your own. Default: `learned:portfolio`, which
    /// recognizes the steps of training and finds out how they are best run; `learned` without the feature `lab`, and for steps
    /// of so many operations that finding out would take more than a sixteenth of a budget that is host memory itself.
    pub fn policy(mut self, policy: impl Into<PolicyChoice>) -> Self {
        self.policy = Some(policy.into());
        self
    }

    /// Who decides what to evict: an [`Evictor`] of your own, in place of a policy.
    pub fn evictor(mut self, evictor: impl Evictor + 'static) -> Self {
        self.policy = Some(PolicyChoice::Evictor(Box::new(evictor)));
        self
    }

    /// How the cost of recomputing is estimated: a [`CostModelKind`], or a [`CostModel`](remat::CostModel) of your own. Default:
    /// [`CostModelKind::Flops`].
    pub fn cost_model(mut self, cost_model: impl Into<CostModelChoice>) -> Self {
        self.cost_model = cost_model.into();
        self
    }

    /// At each eviction, score about `2 * sqrt(n)` of `n` candidates instead of all. Default: off.
    pub const fn sqrt_sampling(mut self, on: bool) -> Self {
        self.sqrt_sampling = on;
        self
    }

    /// What to do with tensors that were recomputed only to recompute others. Default: [`Dead::Linger`].
    pub const fn dead(mut self, dead: Dead) -> Self {
        self.settings.dead = dead;
        self
    }

    /// Fail when recomputing has cost more in total than this multiple of the work itself. Default: never.
    pub const fn recompute_limit(mut self, limit: f64) -> Self {
        self.settings.recompute_limit = Some(RecomputeLimit::Multiple(limit));
        self
    }

    /// Fail an operation when regenerating what it reads costs more than this multiple of running each op involved
    /// once. Default: 100.
    pub const fn regeneration_limit(mut self, limit: f64) -> Self {
        self.settings.regeneration_limit = limit;
        self
    }

    /// Seed of random operations, of sampling and of the `random` policy, until [`Device::seed`](burn::tensor::Device::seed) sets
    /// another. Random numbers depend on it alone, and on how many random operations came before. Default: 0.
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Record all commands for remat's lab: with the feature `record`, see [`remat::trace`].
    pub fn record(mut self, recorder: impl Recorder + 'static) -> Self {
        self.recorder = Some(Box::new(recorder));
        self
    }

    /// Lets the evictor know of the next so many operations before they run, as
    /// [`remat::Builder::look_ahead`] says. Default: 0.
    pub const fn look_ahead(mut self, operations: usize) -> Self {
        self.window = Window::of(operations);
        self
    }

    /// Lets a [`Listener`] hear every event of the engine: evictions, regenerations, steps, ... It is called on the thread
    /// that runs the operations, which waits for it. May be called several times.
    pub fn listen(mut self, listener: impl Listener + 'static) -> Self {
        self.listeners.push(Box::new(listener));
        self
    }

    /// Runs a custom operation of the backend `B`, which the device must be of: `handler` reads its inputs, computes, and
    /// registers the outputs, with the shapes and types that the operation says. The id is that of the
    /// [`CustomOpIr`] that the extension sends; as with Burn's own servers, one that is sent without a handler ends the
    /// connection, and all tensors of the device are lost.
    ///
    /// What it makes is kept, as nobody knows what it does besides: see [`Builder::pure_custom_op`].
    pub fn custom_op<B: BackendIr>(
        mut self,
        id: &str,
        handler: impl Fn(&mut HandleContainer<B::Handle>, &CustomOpIr, &B::Device)
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.custom_ops.push(CustomOp::new::<B>(id, false, handler));
        self
    }

    /// As [`Builder::custom_op`], for an operation that gives the same bits each time it runs, and does nothing else. What it
    /// makes can be evicted, and the operation runs again when it is needed.
    ///
    /// ```
    /// use burn_backend::ops::FloatTensorOps;
    /// use burn_flex::Flex;
    ///
    /// let guard = remat_burn::budget("1GiB")
    ///     .pure_custom_op::<Flex>("scale", |handles, op, _device| {
    ///         let x = handles.get_float_tensor::<Flex>(&op.inputs[0]);
    ///         let scaled = Flex::float_mul_scalar(x, op.scalars[0].into());
    ///         handles.register_float_tensor::<Flex>(&op.outputs[0].id, scaled);
    ///     })
    ///     .serve::<Flex>(Default::default())?;
    /// # Ok::<(), remat_burn::Error>(())
    /// ```
    pub fn pure_custom_op<B: BackendIr>(
        mut self,
        id: &str,
        handler: impl Fn(&mut HandleContainer<B::Handle>, &CustomOpIr, &B::Device)
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.custom_ops.push(CustomOp::new::<B>(id, true, handler));
        self
    }

    /// The steps of the program, from [`Guard::known_steps`] of an earlier run, or of a rehearsal on a device that computes
    /// nothing ([`Builder::sim`]): the policy `learned` foresees them from the first operation on. With none
    /// ([`KnownSteps::marked`]) they are recognized from then on, for a later run; otherwise from the first eviction on.
    ///
    /// ```
    /// use burn::tensor::{Device, Tensor};
    /// use burn_flex::Flex;
    /// use remat_burn::remat::program::KnownSteps;
    ///
    /// fn train(device: &remat_burn::Guard, steps: usize) -> Result<(), remat_burn::Error> {
    ///     let mut weight = Tensor::<2>::ones([64, 64], device);
    ///     for _ in 0..steps {
    ///         let mut passed = vec![Tensor::<2>::ones([256, 64], device)];
    ///         for layer in 0..8 {
    ///             passed.push(passed[layer].clone().matmul(weight.clone()).tanh());
    ///         }
    ///         let mut sum = passed[8].clone().mean();
    ///         while let Some(x) = passed.pop() {
    ///             sum = sum + (x.clone() * x).mean();
    ///         }
    ///         weight = weight * sum.unsqueeze();
    ///         device.step()?;
    ///     }
    ///     Ok(())
    /// }
    ///
    /// // Nothing is computed.
    /// let rehearsal = remat_burn::budget("1TiB")
    ///     .known_steps(KnownSteps::marked())
    ///     .sim::<Flex>(Default::default())?;
    /// train(&rehearsal, 4)?;
    /// let steps = rehearsal.known_steps()?.expect("`learned` looks ahead");
    /// let device = remat_burn::budget("400KiB").known_steps(steps).serve::<Flex>(Default::default())?;
    /// train(&device, 3)?;
    /// assert!(device.stats()?.recomputed_ops > 0);
    /// # Ok::<(), remat_burn::Error>(())
    /// ```
    pub fn known_steps(mut self, steps: KnownSteps) -> Self {
        self.known.steps = Some(steps);
        self
    }

    /// How steps are best run, from [`Guard::forecasts`] of an earlier run: used by the policy `learned` where it recognizes one
    /// of these steps, in the same budget.
    pub fn forecasts(mut self, forecasts: impl IntoIterator<Item = Forecast>) -> Self {
        self.known.forecasts.extend(forecasts);
        self
    }

    /// A device of the backend `B` under this budget, such as `serve::<Flex>(Default::default())`.
    ///
    /// # Errors
    /// If an option is invalid, or a custom operation is of another backend. If there are 64 budgets of this backend and device already, or the server of this process,
    /// which listens to this machine only, cannot be started or reached.
    pub fn serve<B: BackendIr>(self, device: B::Device) -> Result<Guard, Error> {
        self.start::<B>(device, false)
    }

    /// A device that computes nothing and takes no memory: bytes and work are counted, and what is read are zeros. So it says what
    /// a program would take, and which budgets it would fit, on a machine where it does not.
    ///
    /// ```
    /// use burn::tensor::Tensor;
    /// use burn_flex::Flex;
    ///
    /// let device = remat_burn::budget("1TiB").sim::<Flex>(Default::default())?;
    /// let x = Tensor::<2>::ones([200_000, 10_000], &device);
    /// let sum = (x.clone() * x).sum();
    /// device.sync()?;
    /// assert_eq!(device.stats()?.peak_bytes, 16_000_000_000);
    /// # drop(sum);
    /// # Ok::<(), remat_burn::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Builder::serve`].
    pub fn sim<B: BackendIr>(self, device: B::Device) -> Result<Guard, Error> {
        self.start::<B>(device, true)
    }

    fn start<B: BackendIr>(self, device: B::Device, sim: bool) -> Result<Guard, Error> {
        if let Some(wrong) = self.wrong {
            return Err(remat::Error::from(RuntimeError::Settings(wrong)).into());
        }
        let facts = Facts::of::<B>(&device);
        let CustomOps { registry, pure } = CustomOps::<B>::new(self.custom_ops)
            .map_err(|wrong| remat::Error::from(RuntimeError::Settings(wrong)))?;
        let server = Server::<B>::of(&device, pure.keys())?;
        let device = if sim {
            BurnDevice::<B>::sim(&device, self.budget)
        } else {
            if facts.on_host {
                keep_freed_memory();
            }
            let here = BurnDevice::<B>::new(device, facts, self.budget, registry);
            // Where kernels are waited for, nothing need wait with them but what wants to know how long each takes.
            match facts.on_host && !wants_times(&self.cost_model) {
                true => here.behind().map_err(|error| Error::Server(error.to_string()))?,
                false => here,
            }
        };
        let is_modest = self.policy.is_none() && facts.on_host;
        let policy = self.policy.unwrap_or_else(|| PolicyKind::Learned(BY_DEFAULT).into());
        let learn = policy.learn();
        let evictor = policy.evictor(self.seed, self.sqrt_sampling);
        let mut engine = Engine::new(device, self.settings, evictor, self.cost_model.build())?;
        self.listeners.into_iter().for_each(|listener| engine.listen(listener));
        let mut driver = Driver::new(engine);
        driver.know(self.known);
        let learner = learner(learn, self.seed)?;
        driver.learn_by(match learner {
            Some(learner) if is_modest => Some(Box::new(Modest(learner))),
            learner => learner,
        });
        driver.name_budgets_by(REHEARSE);
        if let Some(recorder) = self.recorder {
            driver.record_to(recorder, self.window);
        }
        let session = Session::new(driver, facts, self.window, self.seed, pure);
        let (device, served) = server.open(session)?;
        Ok(Guard::new(device, served, self.seed, self.sqrt_sampling))
    }

    fn bytes<T: TryInto<ByteSize, Error: Display>>(&mut self, what: &str, size: T) -> Option<u64> {
        match size.try_into() {
            Ok(ByteSize(bytes)) => Some(bytes),
            Err(error) => {
                self.wrong.get_or_insert_with(|| format!("{what}: {error}"));
                None
            }
        }
    }
}

/// Whether evictions depend on how long operations take.
const fn wants_times(cost_model: &CostModelChoice) -> bool {
    !matches!(cost_model, CostModelChoice::Kind(CostModelKind::Flops | CostModelKind::Bytes))
}
