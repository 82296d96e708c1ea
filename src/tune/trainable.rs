//! Programs that can be rehearsed.

use crate::error::Error;
use crate::runtime::Runtime;

/// A program that can be started on any runtime, and then does training steps one by one.
///
/// A closure can be a program. The closure takes a runtime, makes the network, and returns a
/// closure that runs a step.
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
/// Rehearsals run the program on a device that only counts bytes and costs. In a rehearsal,
/// [`Runtime::get`] returns zeros, so a step must not depend on the values that it reads. Several
/// rehearsals may run at the same time, each on its own thread.
pub trait Trainable: Sync {
    /// A started program.
    type Training: Training;

    /// Makes the parameters and the optimizer, before the first step.
    ///
    /// ```
    /// use remat::prelude::*;
    /// use remat::tune::Trainable;
    ///
    /// let start = |runtime: &Runtime| -> Result<_, Error> {
    ///     let (runtime, mut x) = (runtime.clone(), runtime.ones(&[64])?);
    ///     Ok(move || {
    ///         x = x.sin()?;
    ///         runtime.step()
    ///     })
    /// };
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let mut step = Trainable::start(&start, &runtime)?;
    /// step()?;
    /// assert_eq!(runtime.stats()?.steps, 1);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if an op refuses its operands, or the memory does not suffice.
    fn start(&self, runtime: &Runtime) -> Result<Self::Training, Error>;

    /// Whether the steps repeat. If no two steps are alike, for example because each step has a
    /// different tree, steps cannot be predicted.
    fn repeats(&self) -> bool {
        true
    }

    /// Whether the program tests between steps, and not only after the last step.
    fn tests_between(&self) -> bool {
        false
    }
}

/// A started program. A closure that runs one step is a started program without a test.
///
/// ```
/// use remat::prelude::*;
/// use remat::tune::Training;
///
/// /// A program whose test is a forward pass.
/// struct Learning(Runtime, Tensor);
///
/// impl Training for Learning {
///     fn step(&mut self) -> Result<(), Error> {
///         self.1 = self.1.sin()?;
///         self.0.step()
///     }
///
///     fn test(&mut self) -> Result<(), Error> {
///         self.1.mean()?;
///         Ok(())
///     }
/// }
/// # Ok::<(), Error>(())
/// ```
pub trait Training {
    /// Runs a step, which ends with [`Runtime::step`].
    ///
    /// # Errors
    /// Fails if an op refuses its operands, or the memory does not suffice.
    fn step(&mut self) -> Result<(), Error>;

    /// Runs a test, if the program has a test. The test has enough batches to show its memory use.
    ///
    /// # Errors
    /// Fails as [`Training::step`] does.
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
