//! Host copies go through pinned memory: beside the budget, but no more than half a GiB.

use super::memory::Span;
use super::pinned::{Piece, Pool};
use crate::device::DeviceError;
use cudarc::driver::CudaStream;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Bytes copied at a time: so few that the host fills one piece while the device takes another.
const LARGE: usize = 2 << 20;

/// Pieces of them: batches of half a GiB altogether are on their way before anyone waits.
const MOST_LARGE: usize = 256;

/// Bytes of a piece for small values.
const SMALL: usize = 64 << 10;

/// Pieces of those.
const MOST_SMALL: usize = 256;

/// Pieces that a download has on their way.
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

    /// Copies bytes to the device, in the stream's order. They may change as soon as this returns. It waits for
    /// the device only where a great deal is on its way already.
    ///
    /// # Panics
    /// If there is less room.
    pub(super) fn upload(&mut self, bytes: &[u8], to: Span<'_>) -> Result<(), DeviceError> {
        for (i, chunk) in bytes.chunks(LARGE).enumerate() {
            let pool = self.pool(chunk.len());
            let mut piece = pool.take()?;
            piece.send(chunk, to.part(chunk_at(i, chunk)))?;
            pool.lend(piece)?;
        }
        Ok(())
    }

    /// Copies bytes from the device, once all that was given before is done. Waits for it.
    ///
    /// # Panics
    /// If there are fewer.
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

    /// Waits for the oldest chunk, and copies it out.
    fn collect(&mut self, ahead: &mut VecDeque<(Piece, &mut [u8])>) -> Result<(), DeviceError> {
        let Some((mut piece, chunk)) = ahead.pop_front() else { return Ok(()) };
        chunk.copy_from_slice(piece.read(0..chunk.len())?);
        self.pool(chunk.len()).put_back(piece);
        Ok(())
    }
}

/// Where chunk number `i` is among all bytes.
fn chunk_at(i: usize, chunk: &[u8]) -> Range<u64> {
    let start = (i * LARGE) as u64;
    start..start + chunk.len() as u64
}
