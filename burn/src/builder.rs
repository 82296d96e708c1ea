//! Builder: the description of a device under a budget.

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
use remat::unstable::engine::{Engine, Settings};
use remat::unstable::program::{Driver, Knowledge, KnownSteps, Recorder, Window};
use remat::{
    ByteSize, CostModelChoice, CostModelKind, Dead, Listener, PolicyChoice, PolicyKind,
    RecomputeLimit,
};
use std::fmt::Display;

/// Description of a device under a budget: [`budget`](crate::budget), options, and
/// [`Builder::serve`]. The options are those of [`remat::Builder`]. Invalid values are reported by
/// `serve`.
#[derive(Debug)]
#[must_use = "a device is there once it is served"]
pub struct Builder {
    budget: u64,
    settings: Settings,
    /// Policy; `None` for the default one.
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

    /// Sets the eviction threshold: before each op, tensors are evicted until at most these bytes
    /// are in use. The threshold is a soft limit below the budget, in bytes or as text. By default
    /// there is no threshold, and tensors are evicted only when an allocation does not fit.
    pub fn eviction_threshold<T: TryInto<ByteSize, Error: Display>>(mut self, bytes: T) -> Self {
        self.settings.eviction_threshold = self.bytes("eviction threshold", bytes);
        self
    }

    /// Sets the size below which tensors are evicted only as a last resort. Default: 1/4096 of the
    /// budget.
    pub fn min_evict_bytes<T: TryInto<ByteSize, Error: Display>>(mut self, bytes: T) -> Self {
        self.settings.min_evict_bytes = self.bytes("smallest eviction", bytes);
        self
    }

    /// Sets the policy: a [`PolicyKind`], or a [`Policy`](remat::evict::Policy) of your own.
    ///
    /// Default: `learned:portfolio`, which recognizes the steps of training and searches for the
    /// settings with the least recomputation. Without the feature `lab`, the default is `learned`.
    /// The search for a step is skipped if the budget is host memory, and the search would take more
    /// than a sixteenth of it.
    pub fn policy(mut self, policy: impl Into<PolicyChoice>) -> Self {
        self.policy = Some(policy.into());
        self
    }

    /// Sets an [`Evictor`] of your own, in place of a policy.
    pub fn evictor(mut self, evictor: impl Evictor + 'static) -> Self {
        self.policy = Some(PolicyChoice::Evictor(Box::new(evictor)));
        self
    }

    /// Sets the estimate of recompute costs: a [`CostModelKind`], or a
    /// [`CostModel`](remat::CostModel) of your own. Default: [`CostModelKind::Flops`].
    pub fn cost_model(mut self, cost_model: impl Into<CostModelChoice>) -> Self {
        self.cost_model = cost_model.into();
        self
    }

    /// Scores only about `2 * sqrt(n)` of the `n` candidates at each eviction. Default: off.
    pub const fn sqrt_sampling(mut self, on: bool) -> Self {
        self.sqrt_sampling = on;
        self
    }

    /// Sets when to evict tensors that were recomputed only to recompute other tensors. Default:
    /// [`Dead::Linger`].
    pub const fn dead(mut self, dead: Dead) -> Self {
        self.settings.dead = dead;
        self
    }

    /// Sets a limit for the cost of all recomputation so far, as a multiple of the cost of the
    /// program's own operations so far. Above the limit, operations fail. Default: none.
    pub const fn recompute_limit(mut self, limit: f64) -> Self {
        self.settings.recompute_limit = Some(RecomputeLimit::Multiple(limit));
        self
    }

    /// Sets a limit for one regeneration, as a multiple of the cost of running each needed op once.
    /// Above the limit, the operation fails. Default: 100.
    pub const fn regeneration_limit(mut self, limit: f64) -> Self {
        self.settings.regeneration_limit = limit;
        self
    }

    /// Sets the seed of random operations, of sampling and of the `random` policy.
    /// [`Device::seed`](burn::tensor::Device::seed) can change the seed later. The numbers of a
    /// random operation depend only on the seed and on the number of random operations since the
    /// seed was set. Default: 0.
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Records all commands for remat's lab. With the feature `record`, see [`remat::trace`].
    pub fn record(mut self, recorder: impl Recorder + 'static) -> Self {
        self.recorder = Some(Box::new(recorder));
        self
    }

    /// Delays each operation until the next `operations` operations are known, so that the evictor
    /// sees these operations before they run. See [`remat::Builder::look_ahead`]. Default: 0.
    pub const fn look_ahead(mut self, operations: usize) -> Self {
        self.window = Window::of(operations);
        self
    }

    /// Adds a [`Listener`] that receives every event of the engine, such as evictions,
    /// regenerations and steps. The listener is called on the engine's thread, which waits for the
    /// call. This method may be called several times.
    pub fn listen(mut self, listener: impl Listener + 'static) -> Self {
        self.listeners.push(Box::new(listener));
        self
    }

    /// Adds a custom operation of the backend `B`, which must be the device's backend.
    ///
    /// `handler` reads the inputs, computes, and registers the outputs with the shapes and types
    /// that the operation gives. `id` is the id of the [`CustomOpIr`] that the extension sends. An
    /// operation without a handler ends the connection, as with Burn's own servers, and all tensors
    /// of the device are lost.
    ///
    /// The outputs are never evicted, because running the operation again could repeat its side
    /// effects. [`Builder::pure_custom_op`] is for operations without side effects.
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

    /// Adds a custom operation that gives the same bits in each run and has no side effects. The
    /// parameters are those of [`Builder::custom_op`]. Evicted outputs are recomputed by another
    /// run of the operation.
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

    /// Sets the known steps of the program, from [`Guard::known_steps`] of an earlier run or of a
    /// rehearsal on a simulated device ([`Builder::sim`]).
    ///
    /// The policy `learned` then predicts the steps from the first operation on.
    /// [`KnownSteps::marked`] contains no steps. With it, the device recognizes steps from the
    /// first operation on, and [`Guard::known_steps`] returns them for a later run. Without this
    /// option, the device recognizes steps from the first eviction on.
    ///
    /// ```
    /// use burn::tensor::{Device, Tensor};
    /// use burn_flex::Flex;
    /// use remat_burn::remat::unstable::program::KnownSteps;
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

    /// Sets forecasts of steps, from [`Guard::forecasts`] of an earlier run. A forecast is for one
    /// step in one budget. The policy `learned` uses the forecast when it recognizes this step and
    /// the device has this budget.
    pub fn forecasts(mut self, forecasts: impl IntoIterator<Item = Forecast>) -> Self {
        self.known.forecasts.extend(forecasts);
        self
    }

    /// Starts a device of the backend `B` under this budget, as in
    /// `serve::<Flex>(Default::default())`.
    ///
    /// # Errors
    /// An error if an option is invalid, or a custom operation is for another backend.
    /// [`Error::Full`] if 64 budgets of this backend and device are in use. [`Error::Server`] or
    /// [`Error::Connect`] if the server of this process, which listens on this machine only, cannot
    /// be started or reached.
    pub fn serve<B: BackendIr>(self, device: B::Device) -> Result<Guard, Error> {
        self.start::<B>(device, false)
    }

    /// Starts a device that computes no values and takes no memory. The device counts bytes and
    /// work, and every value read is zeros. The counters show how much memory a program needs, and
    /// which budgets suffice, even on a machine that is too small for the program.
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
    /// The errors of [`Builder::serve`].
    pub fn sim<B: BackendIr>(self, device: B::Device) -> Result<Guard, Error> {
        self.start::<B>(device, true)
    }

    fn start<B: BackendIr>(self, device: B::Device, sim: bool) -> Result<Guard, Error> {
        if let Some(wrong) = self.wrong {
            return Err(remat::Error::from(RuntimeError::Settings(wrong)).into());
        }
        // The device of the backend, with the custom operations.
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
            // On the host, operations run on a separate thread, unless the cost model measures
            // their times.
            match facts.on_host && !wants_times(&self.cost_model) {
                true => here.behind().map_err(|error| Error::Server(error.to_string()))?,
                false => here,
            }
        };
        // Make the engine and the driver, and set up recognition and forecasts of steps.
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

/// Whether evictions depend on the times of operations.
const fn wants_times(cost_model: &CostModelChoice) -> bool {
    !matches!(cost_model, CostModelChoice::Kind(CostModelKind::Flops | CostModelKind::Bytes))
}
