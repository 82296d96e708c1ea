//! Hints for the compiler on how often a path is taken.

/// Marks a path as rare, and returns `error`. The compiler puts the code of a rare path elsewhere,
/// so that the usual path of every op takes up less of the instruction cache.
#[inline(always)]
pub(crate) fn cold<E>(error: E) -> E {
    std::hint::cold_path();
    error
}
