use crate::sync::atomic::{AtomicU64, Ordering};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// Key of a failure, unique in the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FailureKey(u64);

/// A failure that happened once: an error, accessible through [`Deref`], and a key. Clones share
/// the error and the key.
///
/// ```
/// use remat::error::RegenerationError;
/// use remat::prelude::*;
///
/// let error = Error::from(RegenerationError::Cancelled);
/// let Error::Regeneration(failure) = error else { panic!("{error}") };
/// assert_eq!(*failure, RegenerationError::Cancelled);
/// assert_eq!(failure.key(), failure.clone().key());
/// ```
pub struct Failure<T>(Arc<(FailureKey, T)>);

impl<T> Failure<T> {
    /// Makes a failure with a new key.
    pub(super) fn new(what: T) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let key = FailureKey(NEXT.fetch_add(1, Ordering::Relaxed));
        Self(Arc::new((key, what)))
    }

    /// Changes the error of the failure and keeps the key.
    pub(crate) fn map(&self, with: impl FnOnce(&T) -> T) -> Self {
        Self(Arc::new((self.key(), with(&self.0.1))))
    }

    /// Key of the failure.
    #[must_use]
    pub fn key(&self) -> FailureKey {
        self.0.0
    }
}

impl<T> Deref for Failure<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.1
    }
}

impl<T> Clone for Failure<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// Prints the error.
impl<T: fmt::Debug> fmt::Debug for Failure<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Prints the error.
impl<T: fmt::Display> fmt::Display for Failure<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: std::error::Error> std::error::Error for Failure<T> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        (**self).source()
    }
}
