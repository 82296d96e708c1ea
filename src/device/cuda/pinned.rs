//! Host memory that the device reads and writes by itself.

#![allow(unsafe_code)]

use super::driver::failed;
use super::memory::Span;
use crate::device::DeviceError;
use cudarc::driver::{CudaEvent, CudaStream, result, sys};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// A piece of pinned memory, and when the device is done with it.
///
/// While the device may be at it, there is no reference to its bytes, and it is not freed: whoever drops a
/// piece, after a failure say, waits for the device.
pub(super) struct Piece {
    /// So many bytes, all of them initialized.
    memory: *mut u8,
    bytes: usize,
    stream: Arc<CudaStream>,
    /// Recorded behind all copies, unless there are some since.
    done: CudaEvent,
    /// Whether there are: nothing tells when these are done but the stream.
    loose: bool,
    /// Counts the pieces of a pool.
    _counted: Arc<()>,
}

// SAFETY: the memory belongs to `self` alone.
unsafe impl Send for Piece {}

impl Piece {
    fn new(stream: &Arc<CudaStream>, bytes: usize, counted: Arc<()>) -> Result<Self, DeviceError> {
        let done = stream.context().new_event(None).map_err(|e| failed("making an event", e))?;
        // SAFETY: written below before it is read.
        let memory = unsafe { result::malloc_host(bytes, 0) }
            .map_err(|e| failed("reserving pinned host memory", e))?
            .cast::<u8>();
        // SAFETY: so many bytes were just allocated, and the device was not told of them.
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

    /// Copies bytes to its front, once the device is done with it, and from there to the device.
    pub(super) fn send(&mut self, bytes: &[u8], to: Span<'_>) -> Result<(), DeviceError> {
        assert!(bytes.len() <= self.bytes, "a piece has {} bytes", self.bytes);
        let to = to.part(0..bytes.len() as u64).first();
        self.wait()?;
        self.loose = true;
        // SAFETY: within the allocation, and the device is done with it. The target is as large, and what is
        // copied from stays as it is until the device is done.
        unsafe {
            self.memory.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            let from = self.memory.cast_const().cast();
            sys::cuMemcpyHtoDAsync_v2(to.0, from, bytes.len(), self.stream.cu_stream())
        }
        .result()
        .map_err(|e| failed("copying to the device", e))
    }

    /// Has the device copy as many bytes as `to` has from its memory.
    pub(super) fn fetch(&mut self, from: Span<'_>, to: Range<usize>) -> Result<(), DeviceError> {
        assert!(to.start <= to.end && to.end <= self.bytes, "a piece has {} bytes", self.bytes);
        let from = from.part(0..to.len() as u64).first();
        self.loose = true;
        // SAFETY: within the allocation, which is not read before the device is done. The source is as large.
        unsafe {
            let target = self.memory.add(to.start).cast();
            sys::cuMemcpyDtoHAsync_v2(target, from.0, to.len(), self.stream.cu_stream())
        }
        .result()
        .map_err(|e| failed("copying to the host", e))
    }

    /// From now on the device is done with it once all is done that was given so far.
    pub(super) fn lend(&mut self) -> Result<(), DeviceError> {
        self.done.record(&self.stream).map_err(|e| failed("recording an event", e))?;
        self.loose = false;
        Ok(())
    }

    /// Whether the device is done with it.
    pub(super) fn is_back(&self) -> Result<bool, DeviceError> {
        let back = self.done.try_is_complete().map_err(|e| failed("waiting for the device", e))?;
        Ok(back && !self.loose)
    }

    /// Waits until it is.
    fn wait(&mut self) -> Result<(), DeviceError> {
        let waited = if self.loose { self.stream.synchronize() } else { self.done.synchronize() };
        waited.map_err(|e| failed("waiting for the device", e))?;
        self.loose = false;
        Ok(())
    }

    /// Some of its bytes, once the device is done with it.
    pub(super) fn read(&mut self, part: Range<usize>) -> Result<&[u8], DeviceError> {
        self.wait()?;
        // SAFETY: the whole allocation, which is initialized and lives as long as `self`. The device is done with
        // it, and is given it again by `&mut self` alone.
        let bytes = unsafe { std::slice::from_raw_parts(self.memory, self.bytes) };
        Ok(&bytes[part])
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        // What is wrong with the device now can be told to nobody. It may still be at the memory, which then is
        // not freed.
        if self.wait().is_ok() {
            // SAFETY: allocated in `new`, and the device is done with it.
            let _ = unsafe { result::free_host(self.memory.cast()) };
        }
    }
}

/// Pieces of one size, made as they are needed.
pub(super) struct Pool {
    stream: Arc<CudaStream>,
    /// Of a piece.
    bytes: usize,
    /// So many pieces at most.
    most: usize,
    /// One reference for each piece there is, and this one.
    counted: Arc<()>,
    free: Vec<Piece>,
    /// Pieces that come back by themselves, oldest first.
    lent: VecDeque<Piece>,
}

impl Pool {
    /// Up to `most` pieces of so many bytes.
    pub(super) fn new(stream: Arc<CudaStream>, bytes: usize, most: usize) -> Self {
        let counted = Arc::default();
        Self { stream, bytes, most, counted, free: Vec::new(), lent: VecDeque::new() }
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
        if Arc::strong_count(&self.counted) > self.most {
            return Ok(None);
        }
        match Piece::new(&self.stream, self.bytes, Arc::clone(&self.counted)) {
            Ok(piece) => Ok(Some(piece)),
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
            Some(mut oldest) => oldest.wait().map(|()| oldest),
            None => Err(DeviceError::new("cuda: all pinned memory is in use")),
        }
    }

    /// Gives a piece back that the device is done with.
    pub(super) fn put_back(&mut self, piece: Piece) {
        self.free.push(piece);
    }

    /// Gives a piece back once the device is done with it.
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

    /// On the pretend GPU, a copy into memory that was freed ends the process.
    #[test]
    fn a_piece_is_not_freed_while_the_device_copies_to_it() {
        const BEFORE: u64 = 256 << 20;
        let Some(device) = for_tests(BEFORE) else { return };
        let gpu = &device.gpu;
        let mut pool = Pool::new(gpu.events().clone(), 4096, 1);
        for _ in 0..3 {
            let mut piece = pool.try_take().unwrap().expect("the one there was is gone");
            assert!(pool.try_take().unwrap().is_none());
            // Work that the copy has to wait for.
            gpu.memory().zero(gpu.span(0..BEFORE)).unwrap();
            piece.fetch(gpu.span(0..4096), 0..4096).unwrap();
            // As when the next copy fails.
            drop(piece);
        }
    }

    #[test]
    fn what_was_copied_is_read_once_it_is_there() {
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
