use crate::sync::atomic::{AtomicU64, Ordering};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// What tells one failure from all others of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FailureKey(u64);

/// Something that went wrong, once: what it was, by [`Deref`], and a key. Clones share both.
pub struct Failure<T>(Arc<(FailureKey, T)>);

impl<T> Failure<T> {
    /// It happens now.
    pub(super) fn new(what: T) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let key = FailureKey(NEXT.fetch_add(1, Ordering::Relaxed));
        Self(Arc::new((key, what)))
    }

    /// Tells this failure otherwise, under its key.
    pub(crate) fn map(&self, with: impl FnOnce(&T) -> T) -> Self {
        Self(Arc::new((self.key(), with(&self.0.1))))
    }

    /// Which failure it is.
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

/// As what went wrong.
impl<T: fmt::Debug> fmt::Debug for Failure<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// As what went wrong.
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
