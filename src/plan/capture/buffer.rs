//! Buffers of a captured step, and their classes.

/// A block of bytes that a step uses. Views are no buffers: reading a view is reading the buffer
/// that it looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapturedBuffer {
    /// Size in bytes.
    pub bytes: u64,
    /// Alignment of the address: a power of two.
    pub align: u64,
    /// Whether the buffer exists before the step.
    pub before: bool,
    /// Whether the buffer exists after the step.
    pub after: bool,
}

impl CapturedBuffer {
    /// Buffer made by the step, and freed by the end of the step.
    #[must_use]
    pub const fn transient(bytes: u64) -> Self {
        Self { bytes, align: 1, before: false, after: false }
    }

    /// Buffer present before and after the step.
    #[must_use]
    pub const fn kept(bytes: u64) -> Self {
        Self { bytes, align: 1, before: true, after: true }
    }

    /// Buffer present before the step, and freed by the end of the step.
    #[must_use]
    pub const fn input(bytes: u64) -> Self {
        Self { bytes, align: 1, before: true, after: false }
    }

    /// Buffer made by the step, and left at the end.
    #[must_use]
    pub const fn result(bytes: u64) -> Self {
        Self { bytes, align: 1, before: false, after: true }
    }

    /// Sets the alignment, a power of two.
    #[must_use]
    pub const fn aligned(self, align: u64) -> Self {
        Self { align, ..self }
    }
}

/// Role of a buffer in its step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Exists before and after, and is never written: a parameter that is only used, a constant.
    Kept,
    /// Exists before and after, and is overwritten in place: a parameter that is trained, the state
    /// of an optimizer.
    Updated,
    /// Exists before, or is uploaded, and is freed: the images of a batch, the old value of a
    /// tensor that the step makes anew.
    Input,
    /// Made and freed by the step: an activation, a gradient.
    Transient,
    /// Made by the step and left: a loss, the new value of a tensor that the step makes anew.
    Result,
}
