//! Addresses of buffers: the result of a planner, checked.

use std::collections::BTreeMap;

use super::lifetimes::part_changes;
use super::{Change, Lifetimes};

/// An address for each buffer of some [`Lifetimes`].
///
/// A placement is always valid: addresses are aligned, and no two buffers take the same bytes at
/// the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    offsets: Vec<u64>,
    bytes: u64,
}

impl Placement {
    /// Places buffer `i` at `offsets[i]`. Takes time O(n log n), where n is the number of buffers
    /// and gaps.
    ///
    /// # Errors
    ///
    /// [`PlacementError`] if the number of offsets is wrong, if an offset is not aligned, if a
    /// buffer ends beyond 2^64, or if two buffers take the same bytes at the same time.
    pub fn new(lifetimes: &Lifetimes, offsets: Vec<u64>) -> Result<Self, PlacementError> {
        let buffers = lifetimes.buffers();
        if offsets.len() != buffers.len() {
            return Err(PlacementError::Count { offsets: offsets.len(), buffers: buffers.len() });
        }
        let mut bytes = 0;
        for (number, (buffer, &offset)) in buffers.iter().zip(&offsets).enumerate() {
            if !offset.is_multiple_of(buffer.align) {
                return Err(PlacementError::Unaligned { number, offset, align: buffer.align });
            }
            let end = offset
                .checked_add(buffer.size)
                .ok_or(PlacementError::TooHigh { number, offset })?;
            // A buffer with gaps is counted by its parts below, because its last bytes may be
            // needed at no instant.
            let is_whole = lifetimes.gaps(number).is_empty();
            bytes = if is_whole { end.max(bytes) } else { bytes };
        }
        let parts = lifetimes.parts();
        let begin = |part: usize| offsets[parts[part].buffer] + parts[part].begin;
        let end = |part: usize| offsets[parts[part].buffer] + parts[part].end;
        // Address -> part that takes memory at the current instant. No two parts in the map
        // overlap. Because parts in the map do not overlap, a new part overlaps one of them iff it
        // overlaps the highest of them that begins below its end.
        let mut held = BTreeMap::<u64, usize>::new();
        for change in part_changes(&parts) {
            match change {
                Change::Free(part) => drop(held.remove(&begin(part))),
                Change::Alloc(part) => {
                    if let Some((_, &other)) = held.range(..end(part)).next_back()
                        && end(other) > begin(part)
                    {
                        let (one, other) = (parts[part].buffer, parts[other].buffer);
                        return Err(PlacementError::Overlap {
                            first: other.min(one),
                            second: other.max(one),
                        });
                    }
                    held.insert(begin(part), part);
                }
            }
        }
        let bytes = (0..parts.len()).map(end).fold(bytes, u64::max);
        Ok(Self { offsets, bytes })
    }

    /// Address of each buffer, in bytes.
    #[must_use]
    pub fn offsets(&self) -> &[u64] {
        &self.offsets
    }

    /// Size of the memory that the placement needs: the highest end of all parts, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Reasons why offsets are not a valid placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlacementError {
    /// The number of offsets is not the number of buffers.
    #[error("the placement has {offsets} offsets, but there are {buffers} buffers")]
    Count {
        /// Number of offsets given.
        offsets: usize,
        /// Number of buffers.
        buffers: usize,
    },
    /// An offset is not a multiple of the buffer's alignment.
    #[error("buffer {number} at {offset} is not aligned to {align}")]
    Unaligned {
        /// Number of the buffer.
        number: usize,
        /// Offset of the buffer.
        offset: u64,
        /// Alignment of the buffer.
        align: u64,
    },
    /// A buffer ends beyond 2^64.
    #[error("buffer {number} at {offset} ends above the largest address")]
    TooHigh {
        /// Number of the buffer.
        number: usize,
        /// Offset of the buffer.
        offset: u64,
    },
    /// Two buffers share bytes at the same time.
    #[error("buffers {first} and {second} are alive at once and share bytes")]
    Overlap {
        /// Lower number of the two buffers.
        first: usize,
        /// Higher number of the two buffers.
        second: usize,
    },
}
