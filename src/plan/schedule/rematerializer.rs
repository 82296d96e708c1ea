//! What ways to find a schedule have in common, and their names.

use super::super::Order;
use super::{RecomputeSchedule, ScheduleError, Sqrt, StaticDtr};

/// A way to find what is dropped and made again.
pub trait Rematerializer {
    /// By which it is asked for, such as `static-dtr`.
    fn name(&self) -> &'static str;

    /// A schedule with the ops in this order, whose load is within the budget. The same each time.
    ///
    /// # Errors
    ///
    /// It finds none: the error says what the best that it found takes.
    fn schedule<'a>(
        &self,
        order: &Order<'a>,
        budget: u64,
    ) -> Result<RecomputeSchedule<'a>, ScheduleError>;
}

/// All of them.
#[must_use]
pub fn all() -> Vec<Box<dyn Rematerializer>> {
    vec![Box::new(Sqrt), Box::new(StaticDtr::default())]
}

/// The one of this name.
///
/// # Errors
///
/// There is none: the error lists those that there are.
pub fn named(name: &str) -> Result<Box<dyn Rematerializer>, UnknownRematerializer> {
    let names = || all().iter().map(|one| one.name()).collect::<Vec<_>>().join(", ");
    let found = all().into_iter().find(|one| one.name() == name);
    found.ok_or_else(|| UnknownRematerializer { name: name.to_owned(), names: names() })
}

/// A name of no rematerializer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nothing that finds schedules is called `{name}`; there are {names}")]
pub struct UnknownRematerializer {
    name: String,
    names: String,
}
