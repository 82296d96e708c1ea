//! Host memory that the device reads and writes by itself.

#![allow(unsafe_code)]

use super::driver::failed;
use crate::device::DeviceError;
use cudarc::driver::{CudaEvent, CudaStream, result};
use std::collections::VecDeque;
use std::sync::Arc;

/// A piece of pinned memory, and when the device is done with it.
pub(super) struct Piece {
    memory: *mut u8,
    bytes: usize,
    done: CudaEvent,
}

// SAFETY: the memory belongs to `self` alone.
unsafe impl Send for Piece {}

impl Piece {
    fn new(stream: &CudaStream, bytes: usize) -> Result<Self, DeviceError> {
        let done = stream.context().new_event(None).map_err(|e| failed("making an event", e))?;
        // SAFETY: bytes are written before they are read: by the host on the way to the device, by the
        // device on the way back.
        let memory = unsafe { result::malloc_host(bytes, 0) }
            .map_err(|e| failed("reserving pinned host memory", e))?;
        Ok(Self { memory: memory.cast(), bytes, done })
    }

    /// Its bytes. Whoever has given them to the device does not touch them before it is done.
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the whole allocation, which lives as long as `self`.
        unsafe { std::slice::from_raw_parts_mut(self.memory, self.bytes) }
    }

    /// From now on the device is done with it once all is done that was given so far.
    pub(super) fn lend(&self, stream: &CudaStream) -> Result<(), DeviceError> {
        self.done.record(stream).map_err(|e| failed("recording an event", e))
    }

    /// Whether the device is done with it.
    pub(super) fn is_back(&self) -> Result<bool, DeviceError> {
        self.done.try_is_complete().map_err(|e| failed("waiting for the device", e))
    }

    /// Waits until it is.
    pub(super) fn wait(&self) -> Result<(), DeviceError> {
        self.done.synchronize().map_err(|e| failed("waiting for the device", e))
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        // What is wrong with the device now can be told to nobody.
        let _ = self.wait();
        // SAFETY: allocated in `new`, and the device is done with it.
        let _ = unsafe { result::free_host(self.memory.cast()) };
    }
}

/// Pieces of one size, made as they are needed.
pub(super) struct Pool {
    stream: Arc<CudaStream>,
    /// Of a piece.
    bytes: usize,
    /// So many pieces may still be made.
    left: usize,
    free: Vec<Piece>,
    /// Pieces that come back by themselves, oldest first.
    lent: VecDeque<Piece>,
}

impl Pool {
    /// Up to `most` pieces of so many bytes.
    pub(super) const fn new(stream: Arc<CudaStream>, bytes: usize, most: usize) -> Self {
        Self { stream, bytes, left: most, free: Vec::new(), lent: VecDeque::new() }
    }

    /// A piece that nobody uses, without waiting for one. `None`: all are in use.
    pub(super) fn try_take(&mut self) -> Result<Option<Piece>, DeviceError> {
        if let Some(piece) = self.free.pop() {
            return Ok(Some(piece));
        }
        if let Some(oldest) = self.lent.front()
            && oldest.is_back()?
        {
            return Ok(self.lent.pop_front());
        }
        if self.left == 0 {
            return Ok(None);
        }
        match Piece::new(&self.stream, self.bytes) {
            Ok(piece) => {
                self.left -= 1;
                Ok(Some(piece))
            }
            // There is memory for no more just now, and those there are come back.
            Err(_) if !self.lent.is_empty() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A piece that nobody uses.
    pub(super) fn take(&mut self) -> Result<Piece, DeviceError> {
        if let Some(piece) = self.try_take()? {
            return Ok(piece);
        }
        match self.lent.pop_front() {
            Some(oldest) => oldest.wait().map(|()| oldest),
            None => Err(DeviceError::new("cuda: all pinned memory is in use")),
        }
    }

    /// Gives a piece back that the device is done with.
    pub(super) fn put_back(&mut self, piece: Piece) {
        self.free.push(piece);
    }

    /// Gives a piece back once the device is done with it.
    pub(super) fn lend(&mut self, piece: Piece) -> Result<(), DeviceError> {
        piece.lend(&self.stream)?;
        self.lent.push_back(piece);
        Ok(())
    }
}
