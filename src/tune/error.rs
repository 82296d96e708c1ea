//! Errors of the tuning.

use super::OptionNames;
use crate::error::Error;
use remat_memory::ByteSize;
use std::fmt;

/// Reason why a run cannot be tuned.
///
/// ```
/// use remat::prelude::*;
/// use remat::tune::Tuner;
///
/// # let start = |runtime: &Runtime| -> Result<_, Error> {
/// #     let (runtime, mut x) = (runtime.clone(), runtime.ones(&[1 << 16])?);
/// #     Ok(move || {
/// #         x = x.sin()?;
/// #         runtime.step()
/// #     })
/// # };
/// // `start` starts a program on a runtime: see `Trainable`.
/// let tuned = Tuner::new(Runtime::builder).budget("1KiB").steps(4).tune(&start);
/// assert!(matches!(tuned, Err(remat::tune::TuneError::Refused(_))));
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TuneError {
    /// The requested budget does not pass.
    #[error(transparent)]
    Refused(Box<Refusal>),
    /// No budget was given, and the default budget is larger than the free memory. The system would
    /// have to swap, or would kill the process.
    #[error("{}", above_free(*.budget, *.free, .names))]
    AboveFree {
        /// The default budget in bytes.
        budget: u64,
        /// Free memory of the device in bytes, less a margin.
        free: u64,
        /// Names of options in the message.
        names: OptionNames,
    },
    /// The budget was given as `auto`, and the free memory is unknown.
    #[error("this system does not say how much memory is free; give {0} a size")]
    FreeUnknown(&'static str),
    /// The file of forecasts cannot be read, or belongs to another device.
    #[error("{0}")]
    Cache(String),
    /// The tuning was [interrupted](super::Tuner::interrupt_when).
    #[error("interrupted before the first step")]
    Interrupted,
    /// The program failed for a reason other than memory, or a setting is invalid.
    #[error(transparent)]
    Failed(#[from] Error),
}

impl From<Refusal> for TuneError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(Box::new(refusal))
    }
}

fn above_free(budget: u64, free: u64, names: &OptionNames) -> String {
    let [budget, free] = ByteSize::apart(budget, free);
    let OptionNames { batch, budget: name, .. } = names;
    format!(
        "the default budget would be {budget}, but only {free} are free; lower {batch}, or try \
         {name} auto"
    )
}

/// A budget that does not pass.
///
/// ```
/// use remat::prelude::*;
/// use remat::tune::Tuner;
///
/// # let start = |runtime: &Runtime| -> Result<_, Error> {
/// #     let (runtime, mut x) = (runtime.clone(), runtime.ones(&[1 << 16])?);
/// #     Ok(move || {
/// #         x = x.sin()?;
/// #         runtime.step()
/// #     })
/// # };
/// // `start` starts a program on a runtime: see `Trainable`.
/// let tuned = Tuner::new(Runtime::builder).budget("1KiB").steps(4).tune(&start);
/// let Err(remat::tune::TuneError::Refused(refusal)) = tuned else { panic!("1 KiB is enough") };
/// let (_, bytes) = refusal.passing.expect("a larger budget passes");
/// assert!(refusal.budget == 1 << 10 && bytes > refusal.budget);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct Refusal {
    /// The budget, in bytes.
    pub budget: u64,
    /// The smallest budget found that passes, in percent and bytes; `None` if no budget passes.
    pub passing: Option<(u32, u64)>,
    /// Error of the rehearsal; `None` if the state alone is larger than the budget.
    pub error: Option<Error>,
    /// Bytes of parameters, buffers and the optimizer's state, which are held between steps and
    /// never evicted.
    pub state: u64,
    /// Full budget (100 %), in bytes: the smallest budget found under which nothing is evicted.
    pub full_budget: u64,
    pub(super) asked: String,
    pub(super) threshold: Option<u64>,
    pub(super) margin: String,
    pub(super) is_auto: bool,
    pub(super) names: OptionNames,
}

impl std::error::Error for Refusal {}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { asked, names, .. } = self;
        match (self.passing, self.threshold) {
            (Some((percent, bytes)), _) => write!(
                f,
                "a budget of {asked} is too small; {} {percent}% ({}) passes",
                names.budget,
                ByteSize::apart(self.budget, bytes)[1]
            )?,
            (None, Some(threshold)) => write!(
                f,
                "no budget passes with an eviction threshold of {}; raise {}, or drop it",
                ByteSize(threshold),
                names.threshold
            )?,
            (None, None) => write!(f, "a budget of {asked} is too small; raise the budget")?,
        }
        f.write_str(&self.margin)?;
        if self.is_auto {
            write!(f, "\n  this is more than the free memory; lower {}", names.batch)?;
        }
        let [state, full_budget] = [self.state, self.full_budget].map(ByteSize);
        write!(
            f,
            "\n  parameters and optimizer state take {state}; without evictions the run takes {full_budget}"
        )?;
        let error = self.error.as_ref().map(Error::to_string).unwrap_or_default();
        error.trim_end().lines().try_for_each(|line| write!(f, "\n  {line}"))
    }
}
