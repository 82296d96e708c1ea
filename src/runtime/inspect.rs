//! Descriptions of memory, forecasts and known steps, after all commands sent so far.

use super::Runtime;
use crate::error::Error;
use crate::evict::Forecast;
use crate::interpreter::{Description, Question};
use crate::op::Operation;
use crate::step::KnownSteps;
use remat_memory::Snapshot;

impl<O: Operation, H: Send + Sync + 'static> Runtime<O, H> {
    /// A memory map for tools: every chunk of memory, with the labels of its tensors. Empty if the
    /// device owns its memory.
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.ones(&[64])?;
    /// runtime.label(&x, "ones")?;
    /// let chunks = runtime.snapshot()?.chunks;
    /// assert_eq!(chunks[0].holder.as_ref().unwrap().name, "ones");
    /// assert!(chunks[1].holder.is_none());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`RuntimeError::Stopped`](crate::error::RuntimeError::Stopped).
    pub fn snapshot(&self) -> Result<Snapshot, Error> {
        self.shared.ask(|reply| Question::Snapshot { reply })?.wait()
    }

    /// Forecasts for the steps recognized so far, for [`Builder::forecasts`] of a later run.
    ///
    /// With `turns`, the call waits for the search of each kind of step. If a turn without
    /// recomputation has `n` ops, the wait ends after `turns * n` simulated ops at the latest. The
    /// result is empty unless the policy is `learned:portfolio` or `learned:search`.
    ///
    /// [`Builder::forecasts`]: super::Builder::forecasts
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// // The default policy does not search.
    /// assert!(runtime.forecasts(None)?.is_empty());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`RuntimeError::Stopped`](crate::error::RuntimeError::Stopped).
    pub fn forecasts(&self, turns: Option<u64>) -> Result<Vec<Forecast>, Error> {
        self.shared.ask(|reply| Question::Forecasts { turns, reply })?.wait()
    }

    /// Steps of the program recognized so far, for [`Builder::known_steps`] of a later run. `None`
    /// if the policy does not look ahead, or if nothing was evicted yet and
    /// [`Builder::known_steps`] was not called.
    ///
    /// [`Builder::known_steps`]: super::Builder::known_steps
    ///
    /// ```
    /// use remat::prelude::*;
    /// use remat::unstable::program::KnownSteps;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").known_steps(KnownSteps::default()).cpu()?;
    /// let mut x = runtime.ones(&[2])?;
    /// for _ in 0..4 {
    ///     x = x.sin()?;
    ///     runtime.step()?;
    /// }
    /// assert!(runtime.known_steps()?.is_some());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`RuntimeError::Stopped`](crate::error::RuntimeError::Stopped).
    pub fn known_steps(&self) -> Result<Option<KnownSteps>, Error> {
        self.shared.ask(|reply| Question::KnownSteps { reply })?.wait()
    }

    /// The memory map as text, in the form that TensorFlow's allocator logs: bins, chunks in
    /// address order, totals. See [`Arena::dump`](remat_memory::Arena::dump). Empty if the device
    /// owns its memory.
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.ones(&[64])?;
    /// runtime.label(&x, "ones")?;
    /// assert!(runtime.memory_map()?.contains("by ones"));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`RuntimeError::Stopped`](crate::error::RuntimeError::Stopped).
    pub fn memory_map(&self) -> Result<String, Error> {
        let what = Description::Map;
        self.shared.ask(|reply| Question::Describe { what, reply })?.wait()
    }

    /// The memory map as one line of at most `width` characters: `*` for used memory, `_` for free
    /// memory. See [`Arena::occupancy`](remat_memory::Arena::occupancy). Empty if the device owns
    /// its memory.
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("4KiB").cpu()?;
    /// let x = runtime.ones(&[512])?;
    /// assert_eq!(runtime.occupancy(8)?, "****____");
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`RuntimeError::Stopped`](crate::error::RuntimeError::Stopped).
    pub fn occupancy(&self, width: usize) -> Result<String, Error> {
        let what = Description::Occupancy(width);
        self.shared.ask(|reply| Question::Describe { what, reply })?.wait()
    }
}
