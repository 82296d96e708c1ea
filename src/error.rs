//! Errors, grouped by what a user can do about them.
//!
//! [`Error`] has a variant for each family of errors. A variant holds the family's own error type,
//! wrapped in a [`Failure`]. A failure has a key, which its clones share. Two failures never have
//! the same key, even if their texts are equal.

mod failure;
mod kinds;
mod other_bits;
mod out_of_memory;

pub use failure::{Failure, FailureKey};
pub use kinds::{CallbackError, DeviceFault, HandleError, RegenerationError, RuntimeError};
pub use other_bits::OtherBits;
pub use out_of_memory::{OutOfMemory, PassingBudget};

use crate::host::HostError;
use crate::op::OpError;

/// Error of the engine or the runtime. An error is cheap to clone, because many tensors can be lost
/// to one failed op.
///
/// ```
/// use remat::Error;
/// use remat::error::RegenerationError;
///
/// fn advice(error: &Error) -> &str {
///     match error {
///         Error::OutOfMemory(_) => "take a smaller batch, or a larger budget",
///         Error::Regeneration(e) if **e == RegenerationError::Cancelled => "as you wish",
///         _ => "see the message",
///     }
/// }
/// assert_eq!(advice(&RegenerationError::Cancelled.into()), "as you wish");
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An op does not accept the number, types or shapes of its inputs. Nothing was done.
    #[error(transparent)]
    Op(Failure<OpError>),
    /// A [`HostTensor`](crate::HostTensor) could not be made.
    #[error(transparent)]
    Host(Failure<HostError>),
    /// An op, an upload or a read needs more memory than can be freed. The program may succeed with
    /// a larger budget or a smaller batch.
    #[error(transparent)]
    OutOfMemory(Failure<OutOfMemory>),
    /// The device failed, or a kernel panicked.
    #[error(transparent)]
    Device(Failure<DeviceFault>),
    /// Code that a user gave to the runtime panicked, or returned an invalid value.
    #[error(transparent)]
    Callback(Failure<CallbackError>),
    /// The regeneration of evicted tensors was given up.
    #[error(transparent)]
    Regeneration(Failure<RegenerationError>),
    /// An op gave different bits when it ran again. The difference is found only with
    /// [`Builder::verify_recomputed`](crate::Builder::verify_recomputed).
    #[error(transparent)]
    OtherBits(Failure<OtherBits>),
    /// A handle or key cannot be used with the runtime or engine that got it.
    #[error(transparent)]
    Handle(Failure<HandleError>),
    /// The runtime cannot be started, has stopped, or could not write its recording.
    #[error(transparent)]
    Runtime(Failure<RuntimeError>),
}

impl Error {
    /// Whether a larger budget may help.
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let large = runtime.ones(&[1 << 20])?;
    /// assert!(large.to_vec::<f32>().unwrap_err().is_of_memory());
    /// assert!(!large.reshape(&[3]).unwrap_err().is_of_memory());
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn is_of_memory(&self) -> bool {
        match self {
            Self::OutOfMemory(_) => true,
            Self::Regeneration(error) => **error != RegenerationError::Cancelled,
            _ => false,
        }
    }

    /// Copy of the error without [`OutOfMemory::passing`].
    #[cfg(feature = "lab")]
    pub(crate) fn without_passing(&self) -> Self {
        match self {
            Self::OutOfMemory(error) => {
                let without = |error: &OutOfMemory| OutOfMemory { passing: None, ..error.clone() };
                Self::OutOfMemory(error.map(without))
            }
            other => other.clone(),
        }
    }

    /// Key of the failure. All values that are lost to one failure return errors with the same key.
    /// Two failures never share a key, even if their texts are equal.
    ///
    /// ```
    /// use remat::error::RegenerationError;
    /// use remat::prelude::*;
    ///
    /// let [first, second] = [(); 2].map(|()| Error::from(RegenerationError::Cancelled));
    /// assert_eq!(first.key(), first.clone().key());
    /// assert_ne!(first.key(), second.key());
    /// ```
    #[must_use]
    pub fn key(&self) -> FailureKey {
        match self {
            Self::Op(e) => e.key(),
            Self::Host(e) => e.key(),
            Self::OutOfMemory(e) => e.key(),
            Self::Device(e) => e.key(),
            Self::Callback(e) => e.key(),
            Self::Regeneration(e) => e.key(),
            Self::OtherBits(e) => e.key(),
            Self::Handle(e) => e.key(),
            Self::Runtime(e) => e.key(),
        }
    }
}

macro_rules! families {
    ($($variant:ident: $error:ty),* $(,)?) => {$(
        /// Makes a new failure.
        impl From<$error> for Error {
            fn from(error: $error) -> Self {
                Self::$variant(Failure::new(error))
            }
        }
    )*};
}

families! {
    Op: OpError,
    Host: HostError,
    OutOfMemory: OutOfMemory,
    Device: DeviceFault,
    Callback: CallbackError,
    Regeneration: RegenerationError,
    OtherBits: OtherBits,
    Handle: HandleError,
    Runtime: RuntimeError,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression test: two errors of equal text, such as two cancelled regenerations, counted as
    /// one failure.
    #[test]
    fn clones_are_one_failure_and_those_that_look_alike_are_two() {
        let limit = || RegenerationError::RegenerationLimit { runs: 3, paths: 1, limit: 2.0 };
        let errors: [fn() -> Error; 3] = [
            || RegenerationError::Cancelled.into(),
            || OpError::new("add", "no").into(),
            || HandleError::Unknown.into(),
        ];
        for error in errors
            .into_iter()
            .map(|make| [make(), make()])
            .chain([[limit().into(), limit().into()]])
        {
            let [a, b] = error;
            assert_eq!(a.to_string(), b.to_string());
            assert_eq!(a.key(), a.clone().key());
            assert_ne!(a.key(), b.key());
        }
    }
}
