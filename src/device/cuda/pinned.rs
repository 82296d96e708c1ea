//! Pinned host memory, which the device reads and writes directly.

#![allow(unsafe_code)]

use super::driver::failed;
use super::memory::Span;
use crate::device::DeviceError;
use cudarc::driver::{CudaEvent, CudaStream, result, sys};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// A piece of pinned memory, and an event that happens when the device has stopped using the piece.
///
/// While the device may use the piece, no Rust reference to its bytes exists, and the piece is not
/// freed. Dropping a piece waits until the device no longer uses the piece.
pub(super) struct Piece {
    /// Address of `bytes` bytes, which are all initialized.
    memory: *mut u8,
    bytes: usize,
    stream: Arc<CudaStream>,
    /// Event recorded after the last copy, unless [`Piece::loose`] is set.
    done: CudaEvent,
    /// Whether copies were started after [`Piece::done`] was recorded. To wait for copies that were
    /// started after the event was recorded, the host must synchronize the whole stream.
    loose: bool,
    /// Reference to the pool's counter, by which the pool knows how many pieces exist.
    _counted: Arc<()>,
}

// SAFETY: the memory belongs to this piece alone, and pinned memory may be used and freed on any
// thread.
unsafe impl Send for Piece {}

impl Piece {
    fn new(stream: &Arc<CudaStream>, bytes: usize, counted: Arc<()>) -> Result<Self, DeviceError> {
        let done = stream.context().new_event(None).map_err(|e| failed("making an event", e))?;
        // SAFETY: the memory is written below before it is read.
        let memory = unsafe { result::malloc_host(bytes, 0) }
            .map_err(|e| failed("reserving pinned host memory", e))?
            .cast::<u8>();
        // SAFETY: `bytes` bytes were just allocated, and the device has not used them yet.
        unsafe { memory.write_bytes(0, bytes) };
        Ok(Self {
            memory,
            bytes,
            stream: Arc::clone(stream),
            done,
            loose: false,
            _counted: counted,
        })
    }

    /// Waits until the device no longer uses the piece. Copies `bytes` to the start of the piece,
    /// and starts a copy from the piece to the device.
    pub(super) fn send(&mut self, bytes: &[u8], to: Span<'_>) -> Result<(), DeviceError> {
        assert!(bytes.len() <= self.bytes, "a piece has {} bytes", self.bytes);
        let to = to.part(0..bytes.len() as u64).first();
        self.wait()?;
        self.loose = true;
        // SAFETY: the assertion guarantees that the bytes fit in the allocation, and `wait`
        // guarantees that the device does not use the allocation. `to.part` guarantees that the
        // target has as many bytes as the source. While `loose` is set, the host waits for the
        // device before it changes or frees the piece.
        unsafe {
            self.memory.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            let from = self.memory.cast_const().cast();
            sys::cuMemcpyHtoDAsync_v2(to.0, from, bytes.len(), self.stream.cu_stream())
        }
        .result()
        .map_err(|e| failed("copying to the device", e))
    }

    /// Starts a copy from the device to bytes `to` of the piece.
    pub(super) fn fetch(&mut self, from: Span<'_>, to: Range<usize>) -> Result<(), DeviceError> {
        assert!(to.start <= to.end && to.end <= self.bytes, "a piece has {} bytes", self.bytes);
        let from = from.part(0..to.len() as u64).first();
        self.loose = true;
        // SAFETY: the assertion guarantees that `to` is within the allocation, and `from.part`
        // guarantees that the source has as many bytes as `to`. While `loose` is set, the host
        // waits for the device before it reads the bytes.
        unsafe {
            let target = self.memory.add(to.start).cast();
            sys::cuMemcpyDtoHAsync_v2(target, from.0, to.len(), self.stream.cu_stream())
        }
        .result()
        .map_err(|e| failed("copying to the host", e))
    }

    /// Records the event that marks the end of the device's use: the device no longer uses the
    /// piece once all work that was submitted so far is done.
    pub(super) fn lend(&mut self) -> Result<(), DeviceError> {
        self.done.record(&self.stream).map_err(|e| failed("recording an event", e))?;
        self.loose = false;
        Ok(())
    }

    /// Whether the device no longer uses the piece.
    pub(super) fn is_back(&self) -> Result<bool, DeviceError> {
        let back = self.done.try_is_complete().map_err(|e| failed("waiting for the device", e))?;
        Ok(back && !self.loose)
    }

    /// Waits until the device no longer uses the piece.
    fn wait(&mut self) -> Result<(), DeviceError> {
        let waited = if self.loose { self.stream.synchronize() } else { self.done.synchronize() };
        waited.map_err(|e| failed("waiting for the device", e))?;
        self.loose = false;
        Ok(())
    }

    /// Waits until the device no longer uses the piece, and returns the bytes `part` of the piece.
    pub(super) fn read(&mut self, part: Range<usize>) -> Result<&[u8], DeviceError> {
        self.wait()?;
        // SAFETY: the slice is the whole allocation, which is initialized and lives as long as
        // `self`. `wait` guarantees that the device does not use the allocation. While the slice
        // borrows `self`, no call can start another copy.
        let bytes = unsafe { std::slice::from_raw_parts(self.memory, self.bytes) };
        Ok(&bytes[part])
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        // An error of the device cannot be reported here. After an error, the device may still use
        // the memory, so the memory is not freed.
        if self.wait().is_ok() {
            // SAFETY: the memory was allocated in `new`, and `wait` guarantees that the device no
            // longer uses it.
            let _ = unsafe { result::free_host(self.memory.cast()) };
        }
    }
}

/// A pool of pieces of equal size, which are allocated as needed.
pub(super) struct Pool {
    stream: Arc<CudaStream>,
    /// Bytes of a piece.
    bytes: usize,
    /// Largest number of pieces.
    most: usize,
    /// Counter of pieces. Each piece holds one reference, and so does the pool.
    counted: Arc<()>,
    free: Vec<Piece>,
    /// Pieces that the device may still use, oldest first. A piece becomes free when the device no
    /// longer uses it.
    lent: VecDeque<Piece>,
}

impl Pool {
    /// Makes a pool of up to `most` pieces of `bytes` bytes.
    pub(super) fn new(stream: Arc<CudaStream>, bytes: usize, most: usize) -> Self {
        let counted = Arc::default();
        Self { stream, bytes, most, counted, free: Vec::new(), lent: VecDeque::new() }
    }

    /// Takes a free piece without waiting. `None` if all pieces are in use.
    pub(super) fn try_take(&mut self) -> Result<Option<Piece>, DeviceError> {
        if let Some(piece) = self.free.pop() {
            return Ok(Some(piece));
        }
        if let Some(oldest) = self.lent.front()
            && oldest.is_back()?
        {
            return Ok(self.lent.pop_front());
        }
        if Arc::strong_count(&self.counted) > self.most {
            return Ok(None);
        }
        match Piece::new(&self.stream, self.bytes, Arc::clone(&self.counted)) {
            Ok(piece) => Ok(Some(piece)),
            // The system has no memory for another piece now, but a lent piece will become free
            // later.
            Err(_) if !self.lent.is_empty() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Takes a free piece, or waits for the oldest lent piece.
    pub(super) fn take(&mut self) -> Result<Piece, DeviceError> {
        if let Some(piece) = self.try_take()? {
            return Ok(piece);
        }
        match self.lent.pop_front() {
            Some(mut oldest) => oldest.wait().map(|()| oldest),
            None => Err(DeviceError::new("cuda: all pinned memory is in use")),
        }
    }

    /// Returns a piece that the device no longer uses to the pool.
    pub(super) fn put_back(&mut self, piece: Piece) {
        self.free.push(piece);
    }

    /// Returns a piece to the pool. The piece becomes free once the device no longer uses it.
    pub(super) fn lend(&mut self, mut piece: Piece) -> Result<(), DeviceError> {
        piece.lend()?;
        self.lent.push_back(piece);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::cuda::for_tests;

    /// On the pretend GPU of the tests, a copy into freed memory ends the process.
    #[test]
    fn a_piece_is_not_freed_while_the_device_copies_to_it() {
        const BEFORE: u64 = 256 << 20;
        let Some(device) = for_tests(BEFORE) else { return };
        let gpu = &device.gpu;
        let mut pool = Pool::new(gpu.events().clone(), 4096, 1);
        for _ in 0..3 {
            let mut piece = pool.try_take().unwrap().expect("the one there was is gone");
            assert!(pool.try_take().unwrap().is_none());
            // Fill memory first, so that the copy has to wait in the stream.
            gpu.memory().zero(gpu.span(0..BEFORE)).unwrap();
            piece.fetch(gpu.span(0..4096), 0..4096).unwrap();
            // Drop the piece while the device still uses it, as an error in the next copy would.
            drop(piece);
        }
    }

    #[test]
    fn a_fetched_copy_is_read_once_it_has_arrived() {
        let Some(device) = for_tests(1 << 20) else { return };
        let gpu = &device.gpu;
        let mut pool = Pool::new(gpu.events().clone(), 4096, 2);
        let (mut out, mut back) = (pool.take().unwrap(), pool.take().unwrap());
        let bytes: Vec<u8> = (0..4096).map(|i| (i % 251) as u8).collect();
        out.send(&bytes, gpu.span(0..4096)).unwrap();
        back.fetch(gpu.span(0..4000), 96..4096).unwrap();
        assert_eq!(back.read(96..4096).unwrap(), &bytes[..4000]);
        assert_eq!(back.read(0..96).unwrap(), [0; 96]);
        out.lend().unwrap();
        out.wait().unwrap();
        assert!(out.is_back().unwrap());
    }
}
