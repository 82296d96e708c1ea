//! Reads of small values without waiting for the device, through pinned host memory of at most 4
//! MiB. The host can submit more work before a read is finished.

use super::fault::{self, Fault};
use super::fetched::Fetched;
use super::gpu::Gpu;
use super::pinned::{Piece, Pool};
use crate::device::{DeviceError, Place};
use crate::layout::Layout;
use std::collections::VecDeque;
use std::ops::Range;

/// Bytes of a piece of pinned memory. The piece holds the fault record, followed by the value. The
/// host waits when it reads a larger value.
const PIECE: usize = 64 << 10;

/// Offset of the value in a piece of pinned memory.
const VALUE: usize = 256;

/// Largest number of reads that the device has not finished.
const MOST: usize = 64;

/// Range of the fault record in a piece of pinned memory.
const FAULT: Range<usize> = 0..size_of::<Fault>();

/// Reads that the device has not finished.
pub(super) struct Reads {
    pool: Pool,
    /// Reads whose values were not taken yet, oldest first.
    awaited: VecDeque<Read>,
}

struct Read {
    piece: Piece,
    /// Number of bytes from the first to the last element.
    bytes: usize,
    layout: Layout,
}

impl Reads {
    pub(super) fn new(gpu: &Gpu) -> Self {
        Self { pool: Pool::new(gpu.events().clone(), PIECE, MOST), awaited: VecDeque::new() }
    }

    /// Starts to copy a tensor, behind all work that was submitted before. Returns `false` if the
    /// tensor is too large, or if too many reads are not finished.
    pub(super) fn start(&mut self, gpu: &Gpu, from: &Place) -> Result<bool, DeviceError> {
        let source = gpu.span_of(from)?;
        let bytes = source.bytes() as usize;
        if bytes > PIECE - VALUE {
            return Ok(false);
        }
        let Some(mut piece) = self.pool.try_take()? else { return Ok(false) };
        // The driver need not accept the address of an empty tensor, which may be the memory's end.
        if bytes > 0 {
            piece.fetch(source, VALUE..VALUE + bytes)?;
        }
        piece.fetch(gpu.memory().faults(), FAULT)?;
        piece.lend()?;
        self.awaited.push_back(Read { piece, bytes, layout: from.layout });
        Ok(true)
    }

    /// Takes the value of the oldest read, if the read is finished. Returns an error if kernels
    /// found a fault before the read.
    pub(super) fn take(&mut self, gpu: &Gpu) -> Option<Result<Fetched, DeviceError>> {
        match self.awaited.front()?.piece.is_back() {
            Ok(false) => None,
            Ok(true) => self.awaited.pop_front().map(|oldest| self.value(gpu, oldest)),
            Err(error) => {
                self.awaited.pop_front();
                Some(Err(error))
            }
        }
    }

    /// Makes the host value of a finished read.
    fn value(
        &mut self,
        gpu: &Gpu,
        Read { mut piece, bytes, layout }: Read,
    ) -> Result<Fetched, DeviceError> {
        let mut fault = Fault::default();
        bytemuck::bytes_of_mut(&mut fault).copy_from_slice(piece.read(FAULT)?);
        let all = Fetched::new(&layout, |all| {
            all.copy_from_slice(piece.read(VALUE..VALUE + bytes)?);
            Ok(())
        });
        self.pool.put_back(piece);
        fault::tell(gpu, &fault)?;
        all
    }
}
