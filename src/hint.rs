//! Hints for the compiler on how often things happen.

/// Marks a path as rare, and returns `error`. The code that follows is laid out elsewhere, so that
/// the usual path of every op takes up less of the instruction cache.
#[inline(always)]
pub(crate) fn cold<E>(error: E) -> E {
    std::hint::cold_path();
    error
}
