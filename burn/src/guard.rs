//! Guard: owner of a Burn device under a budget.

use crate::error::Error;
use crate::learn::learner;
use crate::server::Served;
use burn::tensor::{Device, MemoryPoolUsage, TensorCreationOptions};
use burn_ir::BackendIr;
use remat::evict::{Evictor, Forecast, Learn};
use remat::unstable::program::{Driver, KnownSteps};
use remat::{ByteSize, PolicyChoice, Stats};
use std::fmt;
use std::net::SocketAddr;
use std::ops::Deref;

/// Burn device under a budget, which limits the bytes of all its tensors together. Derefs to
/// [`Device`]. [`Guard::autodiff`] gives the device for training.
///
/// Dropping the guard frees the memory of all tensors on the device. Reading a tensor of the device
/// afterwards is an error.
pub struct Guard {
    device: Device,
    session: Box<dyn Ask>,
    seed: u64,
    sqrt_sampling: bool,
}

impl Guard {
    pub(crate) fn new<B: BackendIr>(
        device: Device,
        served: Served<B>,
        seed: u64,
        sqrt_sampling: bool,
    ) -> Self {
        Self { device, session: Box::new(served), seed, sqrt_sampling }
    }

    /// Device with autodiff, for training.
    #[must_use]
    pub fn autodiff(&self) -> Device {
        self.device.clone().autodiff()
    }

    /// Burn's handle of the device.
    #[must_use]
    pub fn device(&self) -> Device {
        self.device.clone()
    }

    /// Ends a step of training: waits for the step's operations, and cuts the compute paths of
    /// earlier steps. After the first call of this method, only further calls end steps. Without
    /// any call, each read of a value ends a step.
    ///
    /// # Errors
    /// The first unreported failure, such as an operation that did not fit in the budget. The
    /// outputs of that operation are lost.
    pub fn step(&self) -> Result<(), Error> {
        self.arrive()?;
        self.session.step()
    }

    /// Waits until all operations so far are done.
    ///
    /// # Errors
    /// As [`Guard::step`].
    pub fn sync(&self) -> Result<(), Error> {
        self.arrive()?;
        self.session.sync()
    }

    /// Counters of the engine, after all operations so far.
    ///
    /// # Errors
    /// [`Error::Lost`] if the connection to the device is lost.
    pub fn stats(&self) -> Result<Stats, Error> {
        self.arrive()?;
        self.session.stats()
    }

    /// Memory counters of the backend itself, after all operations so far.
    ///
    /// The counters cover all users of the device. The counters include scratch memory of kernels
    /// and free memory kept for reuse, which the budget does not count. `None` if the backend has
    /// no such counters. Flex has none.
    ///
    /// # Errors
    /// As [`Guard::step`].
    pub fn pools(&self) -> Result<Option<MemoryPoolUsage>, Error> {
        self.sync()?;
        Ok(self.session.pools())
    }

    /// Summary of what the device did so far, as readable text.
    ///
    /// # Errors
    /// As [`Guard::stats`].
    pub fn summary(&self) -> Result<Summary, Error> {
        Ok(Summary { stats: self.stats()?, pools: self.session.pools() })
    }

    /// Sets the memory limit, in bytes or as text, up to the budget that the device was made with.
    /// Before this method returns, tensors are evicted until the bytes in use are within the limit.
    ///
    /// # Errors
    /// An error if the limit is above the budget that the device was made with, or below the bytes that
    /// cannot be evicted. The old limit then stays.
    pub fn set_budget<T: TryInto<ByteSize, Error: fmt::Display>>(
        &self,
        budget: T,
    ) -> Result<(), Error> {
        let ByteSize(bytes) = budget.try_into().map_err(|error| {
            remat::Error::from(remat::error::RuntimeError::Settings(format!("budget: {error}")))
        })?;
        self.arrive()?;
        self.session.set_budget(bytes)
    }

    /// Sets the eviction threshold, in bytes; `None` removes it. Applies from the next operation
    /// on.
    ///
    /// # Errors
    /// An error if the threshold is above the budget.
    pub fn set_eviction_threshold(&self, threshold: Option<u64>) -> Result<(), Error> {
        self.arrive()?;
        self.session.set_eviction_threshold(threshold)
    }

    /// Replaces the policy or evictor.
    ///
    /// # Errors
    /// An error if a custom evictor panics while it receives the list of evicted storages, or if
    /// the policy needs a missing feature. The old policy then stays.
    pub fn set_policy(&self, policy: impl Into<PolicyChoice>) -> Result<(), Error> {
        self.arrive()?;
        let policy = policy.into();
        let learn = policy.learn();
        self.session.set_evictor(policy.evictor(self.seed, self.sqrt_sampling), learn, self.seed)
    }

    /// Steps of the program that were recognized so far, for [`Builder::known_steps`] of a later
    /// run. `None` if the policy does not look ahead. Also `None` before the first eviction, unless
    /// [`Builder::known_steps`] was given.
    ///
    /// [`Builder::known_steps`]: crate::Builder::known_steps
    ///
    /// # Errors
    /// [`Error::Lost`] if the connection to the device is lost.
    pub fn known_steps(&self) -> Result<Option<KnownSteps>, Error> {
        self.arrive()?;
        self.session.known_steps()
    }

    /// Forecasts that searching policies have found so far for each kind of step. Pass them to
    /// [`Builder::forecasts`] of a later run. With `turns`, the method first lets the search of
    /// each kind of step simulate more ops: as many as `turns` executions of the step have without
    /// recomputation.
    ///
    /// [`Builder::forecasts`]: crate::Builder::forecasts
    ///
    /// # Errors
    /// [`Error::Lost`] if the connection to the device is lost.
    pub fn forecasts(&self, turns: Option<u64>) -> Result<Vec<Forecast>, Error> {
        self.arrive()?;
        self.session.forecasts(turns)
    }

    /// Ends the recording, if any, and writes all remaining lines. Dropping the device also ends
    /// the recording, but cannot report a failure.
    ///
    /// # Errors
    /// An error if the recording could not be written.
    pub fn finish_recording(&self) -> Result<(), Error> {
        self.arrive()?;
        self.session.finish_recording()
    }

    /// Address of the device's server, which listens on this machine only.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.session.address()
    }

    /// Waits until all operations that Burn's client has sent have arrived at the session.
    fn arrive(&self) -> Result<(), Error> {
        self.session
            .quietly(&mut || self.device.sync().map_err(|error| Error::Lost(error.to_string())))
    }
}

impl Deref for Guard {
    type Target = Device;

    fn deref(&self) -> &Device {
        &self.device
    }
}

impl From<&Guard> for Device {
    fn from(guard: &Guard) -> Self {
        guard.device()
    }
}

/// Lets a guard be passed where Burn expects the device for a new tensor.
impl From<&Guard> for TensorCreationOptions {
    fn from(guard: &Guard) -> Self {
        (&guard.device).into()
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("device", &self.device).finish_non_exhaustive()
    }
}

/// Requests of a guard to its session, without the session's backend type.
trait Ask: Send + Sync {
    fn step(&self) -> Result<(), Error>;
    fn sync(&self) -> Result<(), Error>;
    fn stats(&self) -> Result<Stats, Error>;
    fn pools(&self) -> Option<MemoryPoolUsage>;
    fn set_budget(&self, bytes: u64) -> Result<(), Error>;
    fn set_eviction_threshold(&self, threshold: Option<u64>) -> Result<(), Error>;
    fn set_evictor(&self, evictor: Box<dyn Evictor>, learn: Learn, seed: u64) -> Result<(), Error>;
    fn known_steps(&self) -> Result<Option<KnownSteps>, Error>;
    fn forecasts(&self, turns: Option<u64>) -> Result<Vec<Forecast>, Error>;
    fn finish_recording(&self) -> Result<(), Error>;
    fn quietly(&self, with: &mut dyn FnMut() -> Result<(), Error>) -> Result<(), Error>;
    fn address(&self) -> SocketAddr;
}

impl<B: BackendIr> Ask for Served<B> {
    fn step(&self) -> Result<(), Error> {
        self.slot().with(|session| session.step())?
    }

    fn sync(&self) -> Result<(), Error> {
        self.slot().with(|session| session.sync())?
    }

    fn stats(&self) -> Result<Stats, Error> {
        self.slot().with(|session| session.ask(|driver| driver.engine().stats()))
    }

    fn pools(&self) -> Option<MemoryPoolUsage> {
        B::memory_pool_usage(&self.slot().device().inner)
    }

    fn set_budget(&self, bytes: u64) -> Result<(), Error> {
        self.slot().with(|session| session.set(|driver| driver.set_budget(bytes)))?
    }

    fn set_eviction_threshold(&self, threshold: Option<u64>) -> Result<(), Error> {
        self.slot()
            .with(|session| session.set(|driver| driver.set_eviction_threshold(threshold)))?
    }

    fn set_evictor(&self, evictor: Box<dyn Evictor>, how: Learn, seed: u64) -> Result<(), Error> {
        let change = |driver: &mut Driver<_>| {
            let learner = learner(how, seed)?;
            driver.set_evictor(evictor)?;
            driver.learn_by(learner);
            Ok(())
        };
        self.slot().with(|session| session.set(change))?
    }

    fn forecasts(&self, turns: Option<u64>) -> Result<Vec<Forecast>, Error> {
        self.slot().with(|session| session.forecasts(turns))
    }

    fn known_steps(&self) -> Result<Option<KnownSteps>, Error> {
        self.slot().with(|session| session.ask(Driver::known_steps))
    }

    fn finish_recording(&self) -> Result<(), Error> {
        self.slot().with(|session| session.finish_recording())?
    }

    fn quietly(&self, with: &mut dyn FnMut() -> Result<(), Error>) -> Result<(), Error> {
        let _quiet = self.slot().quietly();
        with()
    }

    fn address(&self) -> SocketAddr {
        self.address()
    }
}

/// Counters of a device so far. `Display` prints a few readable lines.
#[derive(Clone, Copy, Debug)]
pub struct Summary {
    /// Counters of the engine.
    pub stats: Stats,
    /// Result of [`Guard::pools`].
    pub pools: Option<MemoryPoolUsage>,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stats = &self.stats;
        let (peak, budget) = (ByteSize(stats.peak_bytes), ByteSize(stats.budget_bytes));
        writeln!(
            f,
            "memory     peak {peak} of a budget of {budget}; {} in use",
            ByteSize(stats.used_bytes)
        )?;
        if let Some(pools) = &self.pools {
            let [used, reserved] = [pools.bytes_in_use, pools.bytes_reserved].map(ByteSize);
            writeln!(
                f,
                "pools      {used} in use, {reserved} reserved, on the whole device of the backend"
            )?;
        }
        let evicted = ByteSize(stats.evicted_bytes);
        writeln!(f, "evictions  {}, {evicted} in all", stats.evictions)?;
        let more = 100.0 * stats.recompute_cost / stats.base_cost.max(f64::MIN_POSITIVE);
        write!(
            f,
            "operations {}, plus {} recomputed: {more:.1} % more work; {} steps",
            stats.ops, stats.recomputed_ops, stats.steps
        )
    }
}
