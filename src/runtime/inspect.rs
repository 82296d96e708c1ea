//! Looks at the memory, after all commands sent so far.

use super::Runtime;
use crate::error::Error;
use crate::evict::Forecast;
use crate::interpreter::{Description, Question};
use crate::memory::Snapshot;
use crate::op::Operation;
use crate::step::KnownSteps;

impl<O: Operation, H: Send + Sync + 'static> Runtime<O, H> {
    /// Every chunk of memory, with what the tensors in it are called: a memory map for tools. No chunks where the
    /// device owns its memory.
    ///
    /// # Errors
    /// [`RuntimeError::Stopped`](crate::error::RuntimeError::Stopped).
    pub fn snapshot(&self) -> Result<Snapshot, Error> {
        self.shared.ask(|reply| Question::Snapshot { reply })?.wait()
    }

    /// How the steps that were recognized so far are best run, by what is known of them by now; for [`Builder::forecasts`] of
    /// a later run. With `turns`, waits until as many ops of each are simulated as so many turns have that recompute nothing. Empty
    /// unless the policy is `learned:portfolio` or `learned:search`.
    ///
    /// [`Builder::forecasts`]: super::Builder::forecasts
    ///
    /// # Errors
    /// [`RuntimeError::Stopped`](crate::error::RuntimeError::Stopped).
    pub fn forecasts(&self, turns: Option<u64>) -> Result<Vec<Forecast>, Error> {
        self.shared.ask(|reply| Question::Forecasts { turns, reply })?.wait()
    }

    /// The steps of the program, as far as they are recognized; for [`Builder::known_steps`] of a later run. `None` unless the
    /// policy looks ahead, and something was evicted or [`Builder::known_steps`] was given.
    ///
    /// [`Builder::known_steps`]: super::Builder::known_steps
    ///
    /// # Errors
    /// [`RuntimeError::Stopped`](crate::error::RuntimeError::Stopped).
    pub fn known_steps(&self) -> Result<Option<KnownSteps>, Error> {
        self.shared.ask(|reply| Question::KnownSteps { reply })?.wait()
    }

    /// The memory map as text, as TensorFlow's allocator logs it: bins, chunks in address order, totals. See
    /// [`Arena::dump`](crate::memory::Arena::dump). Empty where the device owns its memory.
    ///
    /// # Errors
    /// [`RuntimeError::Stopped`](crate::error::RuntimeError::Stopped).
    pub fn memory_map(&self) -> Result<String, Error> {
        let what = Description::Map;
        self.shared.ask(|reply| Question::Describe { what, reply })?.wait()
    }

    /// Memory as one line of at most `width` characters, `*` for used and `_` for free. See
    /// [`Arena::occupancy`](crate::memory::Arena::occupancy). Empty where the device owns its memory.
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
