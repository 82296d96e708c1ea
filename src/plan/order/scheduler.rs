//! The contract of schedulers, and their names.

use super::super::{Capture, Limits};
use super::{
    AsWritten, BreadthFirst, DepthFirst, Exact, LeastPeak, Order, OrderError, ReverseDepthFirst,
    Sink,
};

/// Orders that may be taken: see the [module](super).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// All orders that keep the edges, for a caller that runs the step as a whole.
    Offline,
    /// Orders that a running program can get with at most this number of commands held back.
    /// `Held(usize::MAX)` allows all of them, `Held(0)` only the program's own order.
    Held(usize),
}

/// A method of ordering the ops of a step.
pub trait Scheduler {
    /// Name of the scheduler, as [`named`] takes names: `least-peak`, for example.
    fn name(&self) -> &'static str;

    /// Finds an order within reach. The result is the same each time, unless a time limit cuts a
    /// search.
    ///
    /// # Errors
    ///
    /// [`OrderError`] if the step is more than the scheduler can do in reasonable time or memory.
    fn order<'a>(
        &self,
        capture: &'a Capture,
        reach: Reach,
        limits: &Limits,
    ) -> Result<Order<'a>, OrderError>;
}

/// All schedulers, from the simplest to the slowest.
#[must_use]
pub fn all() -> Vec<Box<dyn Scheduler>> {
    vec![
        Box::new(AsWritten),
        Box::new(BreadthFirst),
        Box::new(DepthFirst),
        Box::new(ReverseDepthFirst),
        Box::new(Sink),
        Box::new(LeastPeak),
        Box::new(Exact::default()),
    ]
}

/// Finds a scheduler by its name.
///
/// # Errors
///
/// [`UnknownOrder`], with the names of all schedulers, if none has this name.
pub fn named(name: &str) -> Result<Box<dyn Scheduler>, UnknownOrder> {
    let names = || all().iter().map(|one| one.name()).collect::<Vec<_>>().join(", ");
    let found = all().into_iter().find(|one| one.name() == name);
    found.ok_or_else(|| UnknownOrder { name: name.to_owned(), names: names() })
}

/// Error: no scheduler has the name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no order `{name}`; there are {names}")]
pub struct UnknownOrder {
    name: String,
    names: String,
}
