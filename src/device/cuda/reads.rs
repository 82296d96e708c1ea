//! Small values on their way to the host: nobody waits for them, and the device is given more work meanwhile.

#![allow(unsafe_code)]

use super::driver::failed;
use super::fault::{self, Fault};
use super::gpu::Gpu;
use super::pinned::Pinned;
use crate::device::{DeviceError, Place};
use crate::layout::Layout;
use cudarc::driver::{CudaEvent, result};
use std::collections::VecDeque;
use std::ops::Range;

/// Bytes of a slot: a value, behind what kernels found wrong so far. Larger values are waited for.
const SLOT: usize = 64 << 10;

/// Where in a slot the value is.
const VALUE: usize = 256;

/// Values at a time.
const SLOTS: usize = 32;

/// Values that the device has yet to give.
pub(super) struct Reads {
    memory: Pinned,
    /// Slots that nobody uses, with events to use again.
    free: Vec<(usize, CudaEvent)>,
    /// Oldest first.
    awaited: VecDeque<Read>,
}

struct Read {
    slot: usize,
    /// What the elements there are, the first of them in front.
    layout: Layout,
    bytes: usize,
    done: CudaEvent,
}

/// Where in memory a part of a slot is.
const fn part(slot: usize, from: usize, bytes: usize) -> Range<usize> {
    let start = slot * SLOT + from;
    start..start + bytes
}

impl Reads {
    pub(super) fn new(gpu: &Gpu) -> Result<Self, DeviceError> {
        let free = (0..SLOTS).map(|slot| Ok((slot, gpu.context().new_event(None)?)));
        let free: Result<_, _> = free.collect();
        Ok(Self {
            memory: Pinned::new(SLOTS * SLOT)?,
            free: free.map_err(|e| failed("making an event", e))?,
            awaited: VecDeque::new(),
        })
    }

    /// Starts to copy a tensor, as it is once all that was given before is done. `false` if it is too large, or
    /// too many are on their way.
    pub(super) fn start(&mut self, gpu: &Gpu, from: &Place) -> Result<bool, DeviceError> {
        let bytes = 4 * (from.layout.span() - from.layout.offset());
        if bytes > SLOT - VALUE {
            return Ok(false);
        }
        let Some((slot, done)) = self.free.pop() else { return Ok(false) };
        let copy = |from, to: &Range<usize>| {
            // SAFETY: the slot is free, and not touched before its event.
            let pinned = unsafe { self.memory.slice(to) };
            // SAFETY: the source is a live part of the device's memory.
            unsafe { result::memcpy_dtoh_async(pinned, from, gpu.stream()) }
        };
        let copied = copy(gpu.first(from).0, &part(slot, VALUE, bytes))
            .and_then(|()| copy(gpu.fault().0, &part(slot, 0, size_of::<Fault>())))
            .and_then(|()| done.record(gpu.events()));
        copied.map_err(|e| failed("copying to the host", e))?;
        self.awaited.push_back(Read { slot, layout: from.layout, bytes, done });
        Ok(true)
    }

    /// The oldest value, if the device is done with it: its words from the first to the last element, and how
    /// they lie. A fault that kernels found before is an error.
    pub(super) fn take(&mut self, gpu: &Gpu) -> Option<Result<(Vec<u32>, Layout), DeviceError>> {
        let done = self.awaited.front()?.done.try_is_complete();
        if matches!(done, Ok(false)) {
            return None;
        }
        let Read { slot, layout, bytes, done: event } = self.awaited.pop_front()?;
        let value = done.map_err(|e| failed("copying to the host", e)).and_then(|_| {
            let mut fault = Fault::default();
            // SAFETY: the device is done with the slot.
            let told = unsafe { self.memory.slice(&part(slot, 0, size_of::<Fault>())) };
            bytemuck::bytes_of_mut(&mut fault).copy_from_slice(told);
            fault::tell(gpu, &fault)?;
            let mut words = vec![0u32; bytes / 4];
            // SAFETY: as above.
            let read = unsafe { self.memory.slice(&part(slot, VALUE, bytes)) };
            bytemuck::cast_slice_mut(&mut words).copy_from_slice(read);
            Ok((words, layout))
        });
        self.free.push((slot, event));
        Some(value)
    }
}

impl Drop for Reads {
    fn drop(&mut self) {
        for read in &self.awaited {
            // The device must be done with the memory. What is wrong with it now can be told to nobody.
            let _ = read.done.synchronize();
        }
    }
}
