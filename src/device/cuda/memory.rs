//! The device's memory: one allocation for all tensors, and a little aside.

#![allow(unsafe_code)]

use super::driver::failed;
use super::launch::Ptr;
use crate::bytes::ByteSize;
use crate::device::DeviceError;
use cudarc::driver::{CudaStream, result, sys};
use std::sync::Arc;

/// Bytes beside the tensors': the fault record, and a buffer to move blocks through. The driver gives
/// memory in pieces of this size.
const ASIDE: u64 = 2 << 20;

/// Where the buffer for moves begins there.
const BUFFER: u64 = 256;

/// One allocation, freed with it.
struct Allocation {
    base: sys::CUdeviceptr,
}

impl Allocation {
    fn new(bytes: u64) -> Result<Self, result::DriverError> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        // SAFETY: what is there is not read before it is written: `fault` clears its part first.
        unsafe { result::malloc_sync(bytes.max(1)) }.map(|base| Self { base })
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: allocated in `new`. `cuMemFree` waits for what is still running.
        let _ = unsafe { result::free_sync(self.base) };
    }
}

/// Memory for tensors, addressed by offsets from 0.
pub(crate) struct Memory {
    tensors: Allocation,
    bytes: u64,
    aside: Allocation,
    /// Last, for it holds the context that allocations are freed in.
    stream: Arc<CudaStream>,
}

impl Memory {
    pub(super) fn new(stream: Arc<CudaStream>, bytes: u64) -> Result<Self, DeviceError> {
        let take = |bytes: u64| {
            Allocation::new(bytes).map_err(|error| match (error.0, result::mem_get_info()) {
                (sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY, Ok((free, total))) => {
                    let [free, total] = [free, total].map(|bytes| ByteSize(bytes as u64));
                    DeviceError::new(format!(
                        "the device has {free} of its {total} free, and cannot give {} in one \
                         piece; choose a smaller budget",
                        ByteSize(bytes)
                    ))
                }
                _ => failed("reserving memory", error),
            })
        };
        let memory = Self { aside: take(ASIDE)?, tensors: take(bytes)?, stream, bytes };
        memory.forget_faults()?;
        Ok(memory)
    }

    /// Clears the record of faults.
    pub(super) fn forget_faults(&self) -> Result<(), DeviceError> {
        // SAFETY: as many bytes as were allocated, of which nothing else is kept there.
        unsafe {
            result::memset_d8_async(self.aside.base, 0, BUFFER as usize, self.stream.cu_stream())
        }
        .map_err(|e| failed("clearing the record of faults", e))
    }

    /// How many bytes there are.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The address of offset `start`.
    ///
    /// # Panics
    /// If `start..end` is not within the memory.
    pub(super) fn range(&self, start: u64, end: u64) -> Ptr {
        assert!(
            start <= end && end <= self.bytes,
            "bytes {start} to {end} are not within the {} that are reserved",
            self.bytes
        );
        Ptr(self.tensors.base + start)
    }

    /// An address beside the tensors, below [`BUFFER`].
    pub(super) fn aside(&self, offset: u64) -> Ptr {
        debug_assert!(offset < BUFFER);
        Ptr(self.aside.base + offset)
    }

    /// Fills `bytes` bytes from `from` on with zeros.
    pub(crate) fn zero(&self, from: Ptr, bytes: u64) -> Result<(), DeviceError> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the bytes are the caller's.
        unsafe { result::memset_d8_async(from.0, 0, bytes as usize, self.stream.cu_stream()) }
            .map_err(|e| failed("filling with zeros", e))
    }

    /// Copies `bytes` bytes from offset `from` to offset `to`; the ranges may overlap.
    pub(super) fn copy(&self, from: u64, to: u64, bytes: u64) -> Result<(), DeviceError> {
        let (source, target) = (
            self.range(from, from.saturating_add(bytes)),
            self.range(to, to.saturating_add(bytes)),
        );
        // A copy that overlaps itself is undefined. So it goes in pieces that do not, those first whose
        // target holds nothing that is still wanted.
        let distance = from.abs_diff(to);
        let copy = |source: Ptr, target: Ptr, bytes: u64| {
            // SAFETY: both ranges are within an allocation of `self`, and do not overlap.
            unsafe {
                result::memcpy_dtod_async(
                    target.0,
                    source.0,
                    bytes as usize,
                    self.stream.cu_stream(),
                )
            }
            .map_err(|e| failed("moving a block", e))
        };
        let direct = distance >= bytes.min(ASIDE - BUFFER);
        let piece = if direct { distance.max(1) } else { ASIDE - BUFFER };
        let pieces = bytes.div_ceil(piece);
        for i in 0..if distance == 0 { 0 } else { pieces } {
            let i = if to < from { i } else { pieces - 1 - i };
            let (start, len) = (i * piece, piece.min(bytes - i * piece));
            let (source, target) = (source.plus(start), target.plus(start));
            if direct {
                copy(source, target, len)?;
            } else {
                let buffer = Ptr(self.aside.base + BUFFER);
                copy(source, buffer, len)?;
                copy(buffer, target, len)?;
            }
        }
        Ok(())
    }
}
