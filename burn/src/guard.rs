//! A device under a budget, as its user holds it.

use crate::error::Error;
use crate::learn::learner;
use crate::server::Served;
use burn::tensor::{Device, MemoryPoolUsage, TensorCreationOptions};
use burn_ir::BackendIr;
use remat::evict::{Evictor, Forecast, Learn};
use remat::program::{Driver, KnownSteps};
use remat::{ByteSize, PolicyChoice, Stats};
use std::fmt;
use std::net::SocketAddr;
use std::ops::Deref;

/// A device of Burn's whose tensors share a budget. It derefs to [`Device`], and [`Guard::autodiff`] is where training begins.
///
/// When it is dropped, its tensors are gone and their memory is free; whoever reads one of them gets an error.
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

    /// The device, to train on.
    #[must_use]
    pub fn autodiff(&self) -> Device {
        self.device.clone().autodiff()
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> Device {
        self.device.clone()
    }

    /// The end of a step of training: waits for it, and cuts the history that reaches into earlier steps. From the first call on,
    /// only these are ends of steps. Without any, each read of a value is taken for one.
    ///
    /// # Errors
    /// The first failure that nobody was told of, such as an operation for which there was no room: what it was to make
    /// is lost.
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
    /// If the connection to the device is lost.
    pub fn stats(&self) -> Result<Stats, Error> {
        self.arrive()?;
        self.session.stats()
    }

    /// What the backend itself says of its memory, after all operations so far: of the whole device, whoever has it, with scratch of
    /// kernels and what is kept for reuse, none of which the budget counts. `None` where a backend does not say, as Flex.
    ///
    /// # Errors
    /// As [`Guard::step`].
    pub fn pools(&self) -> Result<Option<MemoryPoolUsage>, Error> {
        self.sync()?;
        Ok(self.session.pools())
    }

    /// What was done so far, for people.
    ///
    /// # Errors
    /// As [`Guard::stats`].
    pub fn summary(&self) -> Result<Summary, Error> {
        Ok(Summary { stats: self.stats()?, pools: self.session.pools() })
    }

    /// Sets the memory limit, in bytes or as text: anything up to the budget that the device was made with. What is above
    /// it is evicted when this returns.
    ///
    /// # Errors
    /// If it is above the budget that the device was made with, or below what cannot be evicted. Nothing has changed then.
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

    /// Sets the eviction threshold, in bytes; `None` takes it away. It acts from the next operation on.
    ///
    /// # Errors
    /// If it is above the budget.
    pub fn set_eviction_threshold(&self, threshold: Option<u64>) -> Result<(), Error> {
        self.arrive()?;
        self.session.set_eviction_threshold(threshold)
    }

    /// Lets another policy or evictor decide from now on what to evict.
    ///
    /// # Errors
    /// If an evictor of your own panics when it is told what is evicted, or the policy needs a feature that is missing. Nothing
    /// has changed then.
    pub fn set_policy(&self, policy: impl Into<PolicyChoice>) -> Result<(), Error> {
        self.arrive()?;
        let policy = policy.into();
        let learn = policy.learn();
        self.session.set_evictor(policy.evictor(self.seed, self.sqrt_sampling), learn, self.seed)
    }

    /// The steps of the program, as far as they are recognized; for [`Builder::known_steps`] of a later run. `None` unless the
    /// policy looks ahead, and something was evicted or [`Builder::known_steps`] was given.
    ///
    /// [`Builder::known_steps`]: crate::Builder::known_steps
    ///
    /// # Errors
    /// If the connection to the device is lost.
    pub fn known_steps(&self) -> Result<Option<KnownSteps>, Error> {
        self.arrive()?;
        self.session.known_steps()
    }

    /// What was found so far about each kind of step that came, by the policies that search, for [`Builder::forecasts`] of a later
    /// run. With `turns`, as many simulated ops of each are waited for as so many turns have that recompute nothing.
    ///
    /// [`Builder::forecasts`]: crate::Builder::forecasts
    ///
    /// # Errors
    /// If the connection to the device is lost.
    pub fn forecasts(&self, turns: Option<u64>) -> Result<Vec<Forecast>, Error> {
        self.arrive()?;
        self.session.forecasts(turns)
    }

    /// Ends the recording, if there is one, and writes out the rest of it. So does dropping the device, which has no way to say
    /// that it failed.
    ///
    /// # Errors
    /// If it could not be written.
    pub fn finish_recording(&self) -> Result<(), Error> {
        self.arrive()?;
        self.session.finish_recording()
    }

    /// Where the server of this device listens: on this machine only.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.session.address()
    }

    /// Waits until the operations that Burn has on their way are here.
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

/// So that it is where Burn asks for a device to make a tensor on.
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

/// What a guard asks of its session, whatever the backend.
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

/// What a device did so far. Prints as a few lines for people.
#[derive(Clone, Copy, Debug)]
pub struct Summary {
    /// Counters of the engine.
    pub stats: Stats,
    /// As [`Guard::pools`].
    pub pools: Option<MemoryPoolUsage>,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stats = &self.stats;
        let (peak, budget) = (ByteSize(stats.peak_bytes), ByteSize(stats.budget_bytes));
        writeln!(
            f,
            "memory     {peak} at most, of a budget of {budget}; {} now",
            ByteSize(stats.used_bytes)
        )?;
        if let Some(pools) = &self.pools {
            let [used, reserved] = [pools.bytes_in_use, pools.bytes_reserved].map(ByteSize);
            writeln!(
                f,
                "pools      {used} in use, {reserved} reserved, of the backend's whole device"
            )?;
        }
        let evicted = ByteSize(stats.evicted_bytes);
        writeln!(f, "evictions  {}, {evicted} in all", stats.evictions)?;
        let more = 100.0 * stats.recompute_cost / stats.base_cost.max(f64::MIN_POSITIVE);
        write!(
            f,
            "operations {}, and {} of them again: {more:.1} % more work; {} steps",
            stats.ops, stats.recomputed_ops, stats.steps
        )
    }
}
