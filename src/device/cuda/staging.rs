//! Host copies go through pinned memory: beside the budget, but no more than half a GiB.

use super::launch::Ptr;
use super::pinned::{Piece, Pool};
use crate::device::DeviceError;
use cudarc::driver::CudaStream;
use std::collections::VecDeque;
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
    pub(super) fn upload(&mut self, bytes: &[u8], to: Ptr) -> Result<(), DeviceError> {
        for (i, chunk) in bytes.chunks(LARGE).enumerate() {
            let pool = self.pool(chunk.len());
            let mut piece = pool.take()?;
            piece.send(chunk, to.plus((i * LARGE) as u64))?;
            pool.lend(piece)?;
        }
        Ok(())
    }

    /// Copies bytes from the device, once all that was given before is done. Waits for it.
    pub(super) fn download(&mut self, from: Ptr, bytes: &mut [u8]) -> Result<(), DeviceError> {
        let mut ahead: VecDeque<(Piece, &mut [u8])> = VecDeque::new();
        for (i, chunk) in bytes.chunks_mut(LARGE).enumerate() {
            if ahead.len() == AHEAD {
                self.collect(&mut ahead)?;
            }
            let mut piece = self.pool(chunk.len()).take()?;
            piece.fetch(from.plus((i * LARGE) as u64), 0..chunk.len())?;
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
