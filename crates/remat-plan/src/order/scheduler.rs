//! Interface of schedulers, and their names.

use super::{
    AsWritten, BreadthFirst, DepthFirst, Exact, LeastPeak, Order, OrderError, ReverseDepthFirst,
    Sink,
};
use crate::{Capture, Limits};

/// Orders that a scheduler may return, as the [module](super) explains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// All orders that keep the edges, for a caller that runs the step as a whole.
    Offline,
    /// Orders that a running program can follow with at most this number of commands held back.
    /// `Held(usize::MAX)` allows every order that a running program can follow; `Held(0)` allows
    /// only the order of the program.
    Held(usize),
}

/// A method of ordering the ops of a step.
pub trait Scheduler {
    /// Name by which [`named`] finds the scheduler: `least-peak`, for example.
    fn name(&self) -> &'static str;

    /// Finds an order that `reach` allows. Each call gives the same order, unless the time limit
    /// ends the search.
    ///
    /// # Errors
    ///
    /// [`OrderError`] if the scheduler cannot order the step within its limits on time or memory.
    fn order<'a>(
        &self,
        capture: &'a Capture,
        reach: Reach,
        limits: &Limits,
    ) -> Result<Order<'a>, OrderError>;
}

/// All schedulers. The simplest come first, the slowest comes last.
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
/// [`UnknownOrder`], with the names of all schedulers, if no scheduler has this name.
pub fn named(name: &str) -> Result<Box<dyn Scheduler>, UnknownOrder> {
    let names = || all().iter().map(|one| one.name()).collect::<Vec<_>>().join(", ");
    let found = all().into_iter().find(|one| one.name() == name);
    found.ok_or_else(|| UnknownOrder { name: name.to_owned(), names: names() })
}

/// Error: no scheduler has the name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no order is called `{name}`; choose one of {names}")]
pub struct UnknownOrder {
    name: String,
    names: String,
}
