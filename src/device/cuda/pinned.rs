//! Host memory that the device reads and writes by itself.

#![allow(unsafe_code)]

use super::driver::failed;
use crate::device::DeviceError;
use cudarc::driver::result;
use std::ops::Range;

/// Pinned memory, freed with it.
pub(super) struct Pinned {
    memory: *mut u8,
    bytes: usize,
}

// SAFETY: the memory belongs to `self` alone.
unsafe impl Send for Pinned {}

impl Pinned {
    pub(super) fn new(bytes: usize) -> Result<Self, DeviceError> {
        // SAFETY: bytes are written before they are read: by the host on the way to the device, by the
        // device on the way back.
        let memory = unsafe { result::malloc_host(bytes, 0) }
            .map_err(|e| failed("reserving pinned host memory", e))?
            .cast();
        Ok(Self { memory, bytes })
    }

    /// A part of it.
    ///
    /// # Safety
    /// Neither the device nor another slice uses it.
    #[allow(clippy::mut_from_ref)] // The memory is the driver's; see above.
    pub(super) unsafe fn slice<'a>(&self, part: &Range<usize>) -> &'a mut [u8] {
        assert!(part.start <= part.end && part.end <= self.bytes);
        // SAFETY: within the allocation, which outlives what its owner does with it; the rest is the
        // caller's.
        unsafe { std::slice::from_raw_parts_mut(self.memory.add(part.start), part.len()) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: allocated in `new`; whoever lent it to the device has waited for it.
        let _ = unsafe { result::free_host(self.memory.cast()) };
    }
}
