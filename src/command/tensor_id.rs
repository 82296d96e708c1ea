//! Numbers of tensors. A runtime assigns numbers with `new_ids` in `runtime.rs`.

use smallvec::SmallVec;
use std::fmt;

/// The number of a tensor in a program. Numbers are counted up, and a number is never reused for
/// another tensor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct TensorId(pub u64);

/// A short list of tensor numbers. A list is made from a slice or a `Vec` by `into`, or by
/// `collect`.
pub type Ids = SmallVec<[TensorId; 3]>;

impl TensorId {
    /// The number that is larger by `count`.
    #[must_use]
    pub const fn plus(self, count: usize) -> Self {
        Self(self.0 + count as u64)
    }

    /// `count` consecutive numbers, beginning with this number.
    pub fn and_next(self, count: usize) -> impl ExactSizeIterator<Item = Self> + Clone {
        (0..count).map(move |i| self.plus(i))
    }

    /// Position in a table of all tensors of a program.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for TensorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
