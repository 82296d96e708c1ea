//! Interface of rematerializers, and their names.

use super::{RecomputeSchedule, ScheduleError, Sqrt, StaticDtr};
use crate::Order;

/// A method of choosing which buffers to drop and recompute.
pub trait Rematerializer {
    /// Name by which [`named`] finds the rematerializer: `static-dtr`, for example.
    fn name(&self) -> &'static str;

    /// Finds a schedule whose load is within the budget and whose first runs are in this order.
    /// Each call gives the same schedule.
    ///
    /// # Errors
    ///
    /// [`ScheduleError::Budget`] if no schedule is found. The error has the least load of the
    /// schedules tried.
    fn schedule<'a>(
        &self,
        order: &Order<'a>,
        budget: u64,
    ) -> Result<RecomputeSchedule<'a>, ScheduleError>;
}

/// All rematerializers.
#[must_use]
pub fn all() -> Vec<Box<dyn Rematerializer>> {
    vec![Box::new(Sqrt), Box::new(StaticDtr::default())]
}

/// Finds a rematerializer by its name.
///
/// # Errors
///
/// [`UnknownRematerializer`], with the names of all rematerializers, if no rematerializer has this
/// name.
pub fn named(name: &str) -> Result<Box<dyn Rematerializer>, UnknownRematerializer> {
    let names = || all().iter().map(|one| one.name()).collect::<Vec<_>>().join(", ");
    let found = all().into_iter().find(|one| one.name() == name);
    found.ok_or_else(|| UnknownRematerializer { name: name.to_owned(), names: names() })
}

/// Error: no rematerializer has the name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no rematerializer is called `{name}`; choose one of {names}")]
pub struct UnknownRematerializer {
    name: String,
    names: String,
}
