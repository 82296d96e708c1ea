//! What a step does it with.

/// Bytes that a step uses. Views are no buffers: who reads a view reads the buffer that it looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapturedBuffer {
    /// Its size.
    pub bytes: u64,
    /// Its address must be a multiple of this, a power of two.
    pub align: u64,
    /// Whether it is there before the step.
    pub before: bool,
    /// Whether it is there after the step.
    pub after: bool,
}

impl CapturedBuffer {
    /// Made by the step, and gone when the step is over.
    #[must_use]
    pub const fn transient(bytes: u64) -> Self {
        Self { bytes, align: 1, before: false, after: false }
    }

    /// There before the step and after it.
    #[must_use]
    pub const fn kept(bytes: u64) -> Self {
        Self { bytes, align: 1, before: true, after: true }
    }

    /// There before the step, for this step only.
    #[must_use]
    pub const fn input(bytes: u64) -> Self {
        Self { bytes, align: 1, before: true, after: false }
    }

    /// Made by the step for who comes after it.
    #[must_use]
    pub const fn result(bytes: u64) -> Self {
        Self { bytes, align: 1, before: false, after: true }
    }

    /// Its address is to be a multiple of `align`, a power of two.
    #[must_use]
    pub const fn aligned(self, align: u64) -> Self {
        Self { align, ..self }
    }
}

/// What a buffer is to its step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// There before and after, and never written: a parameter that is only used, a constant.
    Kept,
    /// There before and after, and written over in place: a parameter that is trained, the state of an optimizer.
    Updated,
    /// There before, or uploaded, and gone after: the images of a batch, the old value of what a step makes anew.
    Input,
    /// Made and gone: an activation, a gradient.
    Transient,
    /// Made and there after: a loss, the new value of what a step makes anew.
    Result,
}
