//! Where each buffer is: what a planner answers, and the check of it.

use std::collections::BTreeMap;

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
    /// Buffer i at `offsets[i]`. Takes n log n time for n buffers.
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
            bytes = bytes.max(end);
        }
        // Those alive, by address: none overlap, so only neighbours have to be asked.
        let mut alive = BTreeMap::<u64, usize>::new();
        for change in lifetimes.changes() {
            match change {
                Change::Free(i) if buffers[i].size > 0 => drop(alive.remove(&offsets[i])),
                Change::Alloc(i) if buffers[i].size > 0 => {
                    let end = offsets[i] + buffers[i].size;
                    if let Some((_, &other)) = alive.range(..end).next_back()
                        && offsets[other] + buffers[other].size > offsets[i]
                    {
                        return Err(PlacementError::Overlap {
                            first: other.min(i),
                            second: other.max(i),
                        });
                    }
                    alive.insert(offsets[i], i);
                }
                _ => {}
            }
        }
        Ok(Self { offsets, bytes })
    }

    /// The address of each buffer, in bytes.
    #[must_use]
    pub fn offsets(&self) -> &[u64] {
        &self.offsets
    }

    /// High water: the highest end of a buffer.
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
    #[error("buffers {first} and {second} are alive at once and share bytes")]
    Overlap {
        /// The one with the lower number.
        first: usize,
        /// The one with the higher number.
        second: usize,
    },
}
