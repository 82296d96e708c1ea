//! Host copies go through pinned memory, which the device reads and writes by itself.

#![allow(unsafe_code)]

use super::driver::failed;
use super::launch::Ptr;
use super::pinned::Pinned;
use crate::device::DeviceError;
use cudarc::driver::{CudaEvent, CudaStream, result};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of pinned memory.
const BYTES: usize = 16 << 20;

/// Bytes copied at a time: so many pieces that the host fills one while the device takes another.
const PIECE: usize = 2 << 20;

/// A ring of pinned memory. Pieces are given out in order and come back when the device is done with them.
pub(super) struct Staging {
    stream: Arc<CudaStream>,
    /// Of [`BYTES`] bytes.
    memory: Pinned,
    /// Where the next piece begins.
    next: usize,
    /// Pieces that the device has yet to take, oldest first.
    busy: VecDeque<(Range<usize>, CudaEvent)>,
    /// Events to use again.
    spare: Vec<CudaEvent>,
}

impl Staging {
    pub(super) fn new(stream: Arc<CudaStream>) -> Result<Self, DeviceError> {
        let memory = Pinned::new(BYTES)?;
        Ok(Self { stream, memory, next: 0, busy: VecDeque::new(), spare: Vec::new() })
    }

    /// Copies bytes to the device, in the stream's order. They may change as soon as this returns.
    pub(super) fn upload(&mut self, bytes: &[u8], to: Ptr) -> Result<(), DeviceError> {
        for (i, chunk) in bytes.chunks(PIECE).enumerate() {
            let piece = self.piece(chunk.len())?;
            // SAFETY: nobody else uses the piece: its last event was waited for.
            let pinned = unsafe { self.memory.slice(&piece) };
            pinned.copy_from_slice(chunk);
            let to = to.plus((i * PIECE) as u64);
            // SAFETY: the target is the caller's; the piece stays as it is until its event.
            unsafe { result::memcpy_htod_async(to.0, &*pinned, self.stream.cu_stream()) }
                .map_err(|e| failed("copying to the device", e))?;
            self.lend(piece)?;
        }
        Ok(())
    }

    /// Copies bytes from the device, once all that was given before is done. Waits for it.
    pub(super) fn download(&mut self, from: Ptr, bytes: &mut [u8]) -> Result<(), DeviceError> {
        // Uploads that are still on their way come before anyway.
        let mut chunks: VecDeque<(Range<usize>, &mut [u8])> = VecDeque::new();
        for (i, chunk) in bytes.chunks_mut(PIECE).enumerate() {
            // A few in flight: the device fills one while the host empties another.
            if chunks.len() == BYTES / PIECE / 2 {
                self.collect(&mut chunks)?;
            }
            let piece = self.piece(chunk.len())?;
            let from = from.plus((i * PIECE) as u64);
            // SAFETY: nobody else uses the piece; it is not touched before its event.
            let pinned = unsafe { self.memory.slice(&piece) };
            // SAFETY: the source is the caller's.
            unsafe { result::memcpy_dtoh_async(pinned, from.0, self.stream.cu_stream()) }
                .map_err(|e| failed("copying to the host", e))?;
            self.lend(piece.clone())?;
            chunks.push_back((piece, chunk));
        }
        while !chunks.is_empty() {
            self.collect(&mut chunks)?;
        }
        Ok(())
    }

    /// Waits for the oldest chunk, and copies it out.
    fn collect(
        &mut self,
        chunks: &mut VecDeque<(Range<usize>, &mut [u8])>,
    ) -> Result<(), DeviceError> {
        let Some((piece, chunk)) = chunks.pop_front() else { return Ok(()) };
        while self.busy.iter().any(|(busy, _)| *busy == piece) {
            self.take_back()?;
        }
        // SAFETY: the device is done with it.
        chunk.copy_from_slice(unsafe { self.memory.slice(&piece) });
        Ok(())
    }

    /// A piece that nobody uses.
    fn piece(&mut self, len: usize) -> Result<Range<usize>, DeviceError> {
        if self.next + len > BYTES {
            self.next = 0;
        }
        let piece = self.next..self.next + len;
        // Rounded up, so that pieces begin where the device copies fastest.
        self.next = piece.end.next_multiple_of(256).min(BYTES);
        let meets = |(busy, _): &(Range<usize>, CudaEvent)| {
            busy.start < piece.end && piece.start < busy.end
        };
        while self.busy.iter().any(meets) {
            self.take_back()?;
        }
        Ok(piece)
    }

    /// Gives a piece to the device, until what was just told is done.
    fn lend(&mut self, piece: Range<usize>) -> Result<(), DeviceError> {
        let event = match self.spare.pop() {
            Some(event) => event,
            None => {
                self.stream.context().new_event(None).map_err(|e| failed("making an event", e))?
            }
        };
        event.record(&self.stream).map_err(|e| failed("recording an event", e))?;
        self.busy.push_back((piece, event));
        Ok(())
    }

    /// Waits until the device is done with the oldest piece.
    fn take_back(&mut self) -> Result<(), DeviceError> {
        let Some((_, event)) = self.busy.pop_front() else { return Ok(()) };
        event.synchronize().map_err(|e| failed("waiting for the device", e))?;
        self.spare.push(event);
        Ok(())
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        while !self.busy.is_empty() {
            let _ = self.take_back();
        }
    }
}
