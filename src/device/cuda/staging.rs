//! Copies to and from the host, through pinned host memory of at most 528 MiB. The pinned memory
//! does not count against the budget.

use super::memory::Span;
use super::pinned::{Piece, Pool};
use crate::device::DeviceError;
use cudarc::driver::CudaStream;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a large piece of pinned memory. The number is small, so that the host fills one piece
/// while the device copies another.
const LARGE: usize = 2 << 20;

/// Largest number of large pieces. The host waits while half a GiB is being copied.
const MOST_LARGE: usize = 256;

/// Bytes of a piece for small values.
const SMALL: usize = 64 << 10;

/// Largest number of small pieces.
const MOST_SMALL: usize = 256;

/// Number of pieces that the device may fill during a download before the host reads the oldest
/// piece.
const AHEAD: usize = 4;

/// Pinned memory for copies in both directions.
pub(super) struct Staging {
    small: Pool,
    large: Pool,
}

impl Staging {
    pub(super) fn new(stream: &Arc<CudaStream>) -> Self {
        Self {
            small: Pool::new(Arc::clone(stream), SMALL, MOST_SMALL),
            large: Pool::new(Arc::clone(stream), LARGE, MOST_LARGE),
        }
    }

    fn pool(&mut self, bytes: usize) -> &mut Pool {
        if bytes <= SMALL { &mut self.small } else { &mut self.large }
    }

    /// Copies bytes to the device, in the order of the stream. The caller may change the bytes as
    /// soon as this function returns. The function waits for the device only if the device still
    /// uses all pieces of pinned memory.
    ///
    /// # Panics
    /// Panics if `to` is shorter than `bytes`.
    pub(super) fn upload(&mut self, bytes: &[u8], to: Span<'_>) -> Result<(), DeviceError> {
        for (i, chunk) in bytes.chunks(LARGE).enumerate() {
            let pool = self.pool(chunk.len());
            let mut piece = pool.take()?;
            piece.send(chunk, to.part(chunk_at(i, chunk)))?;
            pool.lend(piece)?;
        }
        Ok(())
    }

    /// Copies bytes from the device, after all work that was submitted before. Waits for the
    /// device.
    ///
    /// # Panics
    /// Panics if `from` is shorter than `bytes`.
    pub(super) fn download(&mut self, from: Span<'_>, bytes: &mut [u8]) -> Result<(), DeviceError> {
        let mut ahead: VecDeque<(Piece, &mut [u8])> = VecDeque::new();
        for (i, chunk) in bytes.chunks_mut(LARGE).enumerate() {
            if ahead.len() == AHEAD {
                self.collect(&mut ahead)?;
            }
            let mut piece = self.pool(chunk.len()).take()?;
            piece.fetch(from.part(chunk_at(i, chunk)), 0..chunk.len())?;
            piece.lend()?;
            ahead.push_back((piece, chunk));
        }
        while !ahead.is_empty() {
            self.collect(&mut ahead)?;
        }
        Ok(())
    }

    /// Waits for the oldest chunk of a download, and copies the chunk to its target.
    fn collect(&mut self, ahead: &mut VecDeque<(Piece, &mut [u8])>) -> Result<(), DeviceError> {
        let Some((mut piece, chunk)) = ahead.pop_front() else { return Ok(()) };
        chunk.copy_from_slice(piece.read(0..chunk.len())?);
        self.pool(chunk.len()).put_back(piece);
        Ok(())
    }
}

/// Range of bytes of chunk number `i`.
fn chunk_at(i: usize, chunk: &[u8]) -> Range<u64> {
    let start = (i * LARGE) as u64;
    start..start + chunk.len() as u64
}
