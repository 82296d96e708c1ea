//! Programs that can be rehearsed.

use crate::error::Error;
use crate::runtime::Runtime;

/// A program that can be made anew on any runtime, and then does one training step after the other.
///
/// A closure is one: it takes a runtime, makes the network, and returns a closure that does a step.
///
/// ```
/// use remat::prelude::*;
///
/// let start = |runtime: &Runtime| -> Result<_, Error> {
///     let runtime = runtime.clone();
///     let mut x = runtime.ones(&[64])?;
///     Ok(move || {
///         x = x.sin()?;
///         runtime.step()
///     })
/// };
/// # fn is_trainable(_: impl remat::tune::Trainable) {}
/// # is_trainable(start);
/// ```
///
/// Rehearsals run it on a device that only counts: [`Runtime::get`] gives zeros there, so what a step does must not depend on
/// what it reads. Several rehearsals may run at once, each on a thread of its own.
pub trait Trainable: Sync {
    /// The program under way.
    type Training: Training;

    /// Makes all that is there before the first step: parameters, and an optimizer.
    ///
    /// # Errors
    /// If an op does not take its operands, or the memory does not suffice.
    fn start(&self, runtime: &Runtime) -> Result<Self::Training, Error>;

    /// Whether each step is like the one before. Nothing can be known ahead where none is, as with a tree of its own in each.
    fn repeats(&self) -> bool {
        true
    }

    /// Whether there are tests between steps, and not only after the last.
    fn tests_between(&self) -> bool {
        false
    }
}

/// A program under way. A closure is one, and has no test.
pub trait Training {
    /// Does a step, which ends with [`Runtime::step`].
    ///
    /// # Errors
    /// If an op does not take its operands, or the memory does not suffice.
    fn step(&mut self) -> Result<(), Error>;

    /// Does a test, if the program has one: as many batches as show what memory it takes.
    ///
    /// # Errors
    /// As [`Training::step`].
    fn test(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

impl<F, T> Trainable for F
where
    F: Fn(&Runtime) -> Result<T, Error> + Sync,
    T: Training,
{
    type Training = T;

    fn start(&self, runtime: &Runtime) -> Result<T, Error> {
        self(runtime)
    }
}

impl<F: FnMut() -> Result<(), Error>> Training for F {
    fn step(&mut self) -> Result<(), Error> {
        self()
    }
}
