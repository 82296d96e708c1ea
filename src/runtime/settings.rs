//! Changes of settings of a running runtime. Each change waits for all earlier commands.

use super::builder::check_search;
use super::{PolicyChoice, Runtime};
use crate::driver::Change;
use crate::error::{Error, RuntimeError};
use crate::interpreter::Question;
use crate::op::Operation;
use crate::sync::atomic::Ordering;
use remat_memory::ByteSize;
use std::fmt::Display;

impl<O: Operation, H: Send + Sync + 'static> Runtime<O, H> {
    /// Sets the memory limit, in bytes or as text, up to the budget that the runtime was opened
    /// with. When the call returns, a smaller limit already holds: tensors that do not fit have
    /// been evicted.
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.ones(&[1024])?;
    /// let y = x.square()?;
    /// runtime.set_budget("6KiB")?;
    /// assert!(runtime.stats()?.used_bytes <= 6 << 10);
    /// assert_eq!(y.to_vec::<f32>()?, vec![1.0; 1024]);
    /// runtime.set_budget("1MiB")?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the limit is above the budget that the runtime was opened with, or below the bytes
    /// that cannot be evicted. After an error, nothing has changed.
    pub fn set_budget<B: TryInto<ByteSize, Error: Display>>(&self, budget: B) -> Result<(), Error> {
        let budget = bytes("budget", budget)?;
        self.change(Change::Budget(budget))?;
        self.shared.budget.store(budget, Ordering::Relaxed);
        Ok(())
    }

    /// Sets the eviction threshold, in bytes, from the next op on. `None` removes the threshold.
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.ones(&[1024])?;
    /// runtime.set_eviction_threshold(Some(8 << 10))?;
    /// let (y, z, w) = (x.exp()?, x.sin()?, x.cos()?);
    /// assert!(runtime.stats()?.evictions > 0);
    /// runtime.set_eviction_threshold(None)?;
    /// assert!(runtime.set_eviction_threshold(Some(2 << 20)).is_err());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the threshold is above the budget.
    pub fn set_eviction_threshold(&self, threshold: Option<u64>) -> Result<(), Error> {
        self.change(Change::EvictionThreshold(threshold))
    }

    /// Replaces the policy or evictor.
    ///
    /// ```
    /// use remat::PolicyKind;
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.ones(&[1024])?;
    /// let (y, z) = (x.square()?, x.relu()?);
    /// runtime.set_policy(PolicyKind::Largest)?;
    /// runtime.set_budget("8KiB")?;
    /// assert!(runtime.stats()?.evictions > 0);
    /// assert_eq!(z.to_vec::<f32>()?, vec![1.0; 1024]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if a custom evictor panics when it is told what is evicted. Also fails if the policy
    /// searches for forecasts, and the search is not compiled in. After an error, nothing has
    /// changed.
    pub fn set_policy(&self, policy: impl Into<PolicyChoice>) -> Result<(), Error> {
        let policy = policy.into();
        check_search(&policy)?;
        let learn = policy.learn();
        let evictor = policy.evictor(self.shared.seed, self.shared.sqrt_sampling);
        self.change(Change::Evictor(evictor, learn))
    }

    /// Keeps history again, so that tensors made from now on can be evicted. See
    /// [`Runtime::disable`].
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// runtime.disable()?;
    /// let x = runtime.ones(&[2])?;
    /// runtime.enable()?;
    /// let y = x.square()?;
    /// runtime.drop_now(&y)?;
    /// assert_eq!(runtime.stats()?.evictions, 1);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`RuntimeError::Stopped`].
    pub fn enable(&self) -> Result<(), Error> {
        self.change(Change::Enabled(true))
    }

    /// Stops rematerialization, for a phase that is known to fit into the budget.
    ///
    /// Every tensor is restored and stays resident. Histories and host copies are freed. Until
    /// [`Runtime::enable`], ops need no bookkeeping.
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// runtime.disable()?;
    /// let x = runtime.ones(&[2])?;
    /// let y = x.square()?;
    /// runtime.drop_now(&y)?;
    /// assert_eq!(runtime.stats()?.evictions, 0);
    /// assert_eq!(y.to_vec::<f32>()?, [1.0, 1.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if all tensors together do not fit in the budget. After an error, tensors can be
    /// evicted as before, except tensors that were already made leaves.
    pub fn disable(&self) -> Result<(), Error> {
        self.change(Change::Enabled(false))
    }

    fn change(&self, change: Change) -> Result<(), Error> {
        self.shared.ask(|reply| Question::Change { change, reply })?.wait()
    }
}

fn bytes<B: TryInto<ByteSize, Error: Display>>(what: &str, size: B) -> Result<u64, Error> {
    let wrong = |error: B::Error| RuntimeError::Settings(format!("{what}: {error}"));
    Ok(size.try_into().map_err(wrong)?.0)
}
