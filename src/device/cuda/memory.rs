//! Memory of the device: a large allocation for all tensors, and a small allocation. The small
//! allocation holds a record of faults that kernels find, and a buffer for moves.

#![allow(unsafe_code)]

use super::driver::failed;
use super::launch::Ptr;
use crate::device::DeviceError;
use cudarc::driver::{CudaStream, result, sys};
use remat_memory::ByteSize;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of the small allocation, which holds the fault record and the buffer for moves. The driver
/// allocates memory in multiples of 2 MiB.
const ASIDE: u64 = 2 << 20;

/// Offset of the buffer for moves in the small allocation.
const BUFFER: u64 = 256;

/// One allocation, freed on drop.
struct Allocation {
    base: sys::CUdeviceptr,
}

impl Allocation {
    fn new(bytes: u64) -> Result<Self, result::DriverError> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        // SAFETY: the contents of new memory are undefined, and are not read before they are
        // written. `Memory::new` clears the fault record, and every operand is written before a
        // kernel reads it.
        unsafe { result::malloc_sync(bytes.max(1)) }.map(|base| Self { base })
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: the memory was allocated in `new`, and is freed only here. `cuMemFree` waits for
        // running work.
        let _ = unsafe { result::free_sync(self.base) };
    }
}

/// Range of bytes that stays allocated as long as the [`Memory`] lives. Only [`Memory`] makes
/// spans, so every span is valid.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span<'a> {
    first: Ptr,
    bytes: u64,
    of: PhantomData<&'a Memory>,
}

impl Span<'_> {
    /// Address of the first byte.
    pub(crate) const fn first(self) -> Ptr {
        self.first
    }

    /// Number of bytes.
    pub(super) const fn bytes(self) -> u64 {
        self.bytes
    }

    /// Span of a range of this span's bytes.
    ///
    /// # Panics
    /// Panics if the range reaches outside the span.
    pub(super) fn part(self, Range { start, end }: Range<u64>) -> Self {
        assert!(
            start <= end && end <= self.bytes,
            "bytes {start} to {end} are not within the {} bytes of the span",
            self.bytes
        );
        Self { first: self.first.plus(start), bytes: end - start, ..self }
    }
}

/// Memory for tensors, addressed by offsets from 0.
pub(crate) struct Memory {
    tensors: Allocation,
    bytes: u64,
    aside: Allocation,
    /// Stream for copies. The stream is the last field, so that it is dropped last: its context
    /// must live until the allocations are freed.
    stream: Arc<CudaStream>,
}

impl Memory {
    pub(super) fn new(stream: Arc<CudaStream>, bytes: u64) -> Result<Self, DeviceError> {
        let take = |bytes: u64| {
            Allocation::new(bytes).map_err(|error| match (error.0, result::mem_get_info()) {
                (sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY, Ok((free, total))) => {
                    let [free, total] = [free, total].map(|bytes| ByteSize(bytes as u64));
                    DeviceError::new(format!(
                        "the device has {free} of {total} free, but not {} in one piece; choose a smaller budget",
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

    /// Clears the fault record.
    pub(super) fn forget_faults(&self) -> Result<(), DeviceError> {
        self.zero(self.faults())
    }

    /// Span of all bytes for tensors.
    pub(super) const fn all(&self) -> Span<'_> {
        Span { first: Ptr(self.tensors.base), bytes: self.bytes, of: PhantomData }
    }

    /// Span of the fault record, in the small allocation.
    pub(super) const fn faults(&self) -> Span<'_> {
        Span { first: Ptr(self.aside.base), bytes: BUFFER, of: PhantomData }
    }

    /// Fills a span with zeros.
    pub(super) fn zero(&self, span: Span<'_>) -> Result<(), DeviceError> {
        if span.bytes == 0 {
            return Ok(());
        }
        // SAFETY: a `Span` guarantees that its bytes are allocated. The driver waits for running
        // work before it frees the memory.
        unsafe {
            result::memset_d8_async(span.first.0, 0, span.bytes as usize, self.stream.cu_stream())
        }
        .map_err(|e| failed("filling with zeros", e))
    }

    /// Copies `bytes` bytes from offset `from` to offset `to`; the ranges may overlap.
    pub(super) fn copy(&self, from: u64, to: u64, bytes: u64) -> Result<(), DeviceError> {
        let [source, target] =
            [from, to].map(|at| self.all().part(at..at.saturating_add(bytes)).first);
        // The driver does not define the result of a copy between ranges that overlap. A move over
        // a short distance is therefore done in pieces whose source and target do not overlap. The
        // order of the pieces is such that no piece overwrites bytes that a later piece reads.
        let distance = from.abs_diff(to);
        let copy = |source: Ptr, target: Ptr, bytes: u64| {
            // SAFETY: both ranges are within allocations of `self`. The ranges do not overlap,
            // because a piece that is copied directly is at most `distance` long, and the buffer is
            // outside the memory for tensors.
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
