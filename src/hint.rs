//! What the compiler cannot know of how often things happen.

/// An error on a path that every op takes: what follows from it is laid out elsewhere, so that the rest of the path takes
/// up less of the instruction cache.
#[inline(always)]
pub(crate) fn cold<E>(error: E) -> E {
    std::hint::cold_path();
    error
}
