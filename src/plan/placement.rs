//! Where each buffer is: what a planner answers, and the check of it.

use std::collections::BTreeMap;

use super::lifetimes::part_changes;
use super::{Change, Lifetimes};

/// An address for each buffer of some [`Lifetimes`].
///
/// There is no way to have one in which buffers that must not share bytes do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    offsets: Vec<u64>,
    bytes: u64,
}

impl Placement {
    /// Buffer i at `offsets[i]`. Takes n log n time for n buffers and gaps.
    ///
    /// # Errors
    ///
    /// Not as many offsets as buffers, one that is not aligned or too high, or two buffers at the same bytes at the same
    /// time.
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
            // One with gaps may take no room up there, or none at all.
            let is_whole = lifetimes.gaps(number).is_empty();
            bytes = if is_whole { end.max(bytes) } else { bytes };
        }
        let parts = lifetimes.parts();
        let begin = |part: usize| offsets[parts[part].buffer] + parts[part].begin;
        let end = |part: usize| offsets[parts[part].buffer] + parts[part].end;
        // Those that take room now, by address: none overlap, so only neighbours have to be asked.
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

    /// The address of each buffer, in bytes.
    #[must_use]
    pub fn offsets(&self) -> &[u64] {
        &self.offsets
    }

    /// High water: the highest end of what takes room.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Why offsets are no placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlacementError {
    /// Not one for each.
    #[error("{offsets} offsets for {buffers} buffers")]
    Count {
        /// How many were given.
        offsets: usize,
        /// How many are needed.
        buffers: usize,
    },
    /// Not where the buffer can be.
    #[error("buffer {number} at {offset} is not aligned to {align}")]
    Unaligned {
        /// Which buffer.
        number: usize,
        /// Where it was put.
        offset: u64,
        /// What that should be a multiple of.
        align: u64,
    },
    /// Ends beyond 2^64.
    #[error("buffer {number} at {offset} ends beyond all addresses")]
    TooHigh {
        /// Which buffer.
        number: usize,
        /// Where it was put.
        offset: u64,
    },
    /// Two in one place.
    #[error("buffers {first} and {second} take room at once and share bytes")]
    Overlap {
        /// The one with the lower number.
        first: usize,
        /// The one with the higher number.
        second: usize,
    },
}
