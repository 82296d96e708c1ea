//! What ways to find an order have in common, and their names.

use super::super::{Capture, Limits};
use super::{
    AsWritten, BreadthFirst, DepthFirst, Exact, LeastPeak, Order, OrderError, ReverseDepthFirst,
    Sink,
};

/// Which orders may be taken: see the [module](super).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// All that keep the edges: for who runs the step as a whole.
    Offline,
    /// Those that a running program can be given, with at most so many commands held back: `Held(usize::MAX)` for all of
    /// them, and `Held(0)` for the program's own only.
    Held(usize),
}

/// A way to order the ops of a step.
pub trait Scheduler {
    /// By which it is asked for, such as `least-peak`.
    fn name(&self) -> &'static str;

    /// An order within reach. The same each time, unless a time limit cuts a search.
    ///
    /// # Errors
    ///
    /// More than it can do in reasonable time or memory.
    fn order<'a>(
        &self,
        capture: &'a Capture,
        reach: Reach,
        limits: &Limits,
    ) -> Result<Order<'a>, OrderError>;
}

/// All of them, from the simplest to the one that takes longest.
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

/// The one of this name.
///
/// # Errors
///
/// There is none: the error lists those that there are.
pub fn named(name: &str) -> Result<Box<dyn Scheduler>, UnknownOrder> {
    let names = || all().iter().map(|one| one.name()).collect::<Vec<_>>().join(", ");
    let found = all().into_iter().find(|one| one.name() == name);
    found.ok_or_else(|| UnknownOrder { name: name.to_owned(), names: names() })
}

/// A name of no scheduler.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no order `{name}`; there are {names}")]
pub struct UnknownOrder {
    name: String,
    names: String,
}
