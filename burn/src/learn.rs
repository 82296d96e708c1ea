//! Search for forecasts of the steps of a training while it runs.

use remat::Error;
use remat::evict::{Forecast, Learn};
use remat::unstable::program::{Learner, Rehearse, Turn};
use remat::unstable::step::StepFuture;

/// Effort of the default policy's search.
pub(crate) const BY_DEFAULT: Learn =
    if cfg!(feature = "lab") { Learn::Portfolio } else { Learn::Ahead };

/// Function that finds a sufficient budget for out-of-memory errors; `None` without the feature
/// `lab`.
#[cfg(feature = "lab")]
pub(crate) const REHEARSE: Option<Rehearse> = Some(remat::unstable::lab::passing_budget);
#[cfg(not(feature = "lab"))]
pub(crate) const REHEARSE: Option<Rehearse> = None;

/// Makes the learner of this effort, for [`Driver::learn_by`](remat::unstable::program::Driver::learn_by).
///
/// # Errors
/// An error if the effort needs a search, and this crate was built without the feature `lab`.
#[cfg(feature = "lab")]
pub(crate) fn learner(learn: Learn, seed: u64) -> Result<Option<Box<dyn Learner>>, Error> {
    Ok(remat::unstable::lab::learner(learn, seed))
}

#[cfg(not(feature = "lab"))]
pub(crate) fn learner(learn: Learn, _seed: u64) -> Result<Option<Box<dyn Learner>>, Error> {
    if learn == Learn::Ahead {
        return Ok(None);
    }
    let policy = remat::PolicyKind::Learned(learn);
    let wrong = format!(
        "the policy {policy} needs the feature `lab` of remat-burn: add the feature, or choose `learned`"
    );
    Err(remat::error::RuntimeError::Settings(wrong).into())
}

/// Learner that skips searches that would take much host memory in addition to the budget.
#[derive(Debug)]
pub(crate) struct Modest(pub Box<dyn Learner>);

impl Modest {
    /// Bytes of host memory that a search takes for each command of a step, deletions not counted.
    const COMMAND_BYTES: u64 = 2400;
    /// Divisor: a search may take at most the budget divided by this number.
    const SHARE: u64 = 16;
}

impl Learner for Modest {
    fn wants(&self, step: &StepFuture, budget: u64) -> bool {
        step.len() as u64 * Self::COMMAND_BYTES <= budget / Self::SHARE
    }

    fn begin(&mut self, turn: Turn) {
        self.0.begin(turn);
    }

    fn prepare(&mut self, step: u64, budget: u64, ops: u64) {
        self.0.prepare(step, budget, ops);
    }

    fn forecast(&mut self, step: u64, budget: u64, ops: u64) -> Option<Forecast> {
        self.0.forecast(step, budget, ops)
    }

    fn improves(&self) -> bool {
        self.0.improves()
    }

    fn bytes(&self) -> u64 {
        self.0.bytes()
    }
}
