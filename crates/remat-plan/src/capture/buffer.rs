//! Buffers of a captured step, and their classes.

/// A block of bytes that a step uses. A view is not a buffer: an op that reads a view reads the
/// buffer that holds the bytes of the view.
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

    /// Buffer made by the step, and present after the step.
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
    /// Exists before and after the step, and is never written: a constant, or a parameter that is
    /// not trained.
    Kept,
    /// Exists before and after the step, and is overwritten in place: a parameter that is trained,
    /// or the state of an optimizer.
    Updated,
    /// Exists before the step or is uploaded, and is freed by the end of the step: the images of a
    /// batch, or the old value of a tensor for which the step makes a new value.
    Input,
    /// Made and freed by the step: an activation, a gradient.
    Transient,
    /// Made by the step, and exists after the step: a loss, or the new value of a tensor whose old
    /// value is freed.
    Result,
}
