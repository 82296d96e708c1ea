//! Durations of calls, measured by events. The device records the events in the stream, and the
//! host reads their times later.

#![allow(unsafe_code)]

use super::driver::failed;
use crate::device::DeviceError;
use crate::sync::OnceLock;
use cudarc::driver::{CudaContext, CudaEvent, CudaStream, sys};
use std::collections::VecDeque;
use std::sync::Arc;

/// Pairs of events, one event before and one event after each call.
pub(super) struct Timing {
    stream: Arc<CudaStream>,
    /// Events of calls whose duration was not taken yet, oldest first.
    awaited: VecDeque<[CudaEvent; 2]>,
    /// Events that may be used again.
    spare: Vec<[CudaEvent; 2]>,
}

impl Timing {
    pub(super) const fn new(stream: Arc<CudaStream>) -> Self {
        Self { stream, awaited: VecDeque::new(), spare: Vec::new() }
    }

    fn context(&self) -> &Arc<CudaContext> {
        self.stream.context()
    }

    /// Records an event before a call, and returns the pair.
    pub(super) fn start(&mut self) -> Result<[CudaEvent; 2], DeviceError> {
        let events = match self.spare.pop() {
            Some(events) => Ok(events),
            None => {
                let event = || self.context().new_event(Some(sys::CUevent_flags::CU_EVENT_DEFAULT));
                event().and_then(|start| Ok([start, event()?]))
            }
        };
        let events = events.map_err(|e| failed("making an event", e))?;
        events[0].record(&self.stream).map_err(|e| failed("recording an event", e))?;
        Ok(events)
    }

    /// Records the second event of the pair, after the call.
    pub(super) fn end(&mut self, events: [CudaEvent; 2]) -> Result<(), DeviceError> {
        events[1].record(&self.stream).map_err(|e| failed("recording an event", e))?;
        self.awaited.push_back(events);
        Ok(())
    }

    /// Takes the duration, in seconds, of the oldest call whose duration was not taken yet. Returns
    /// `None` if the call is not finished, and NaN if the duration cannot be measured.
    pub(super) fn take(&mut self) -> Option<f64> {
        let events = self.awaited.front()?;
        // A broken device returns an error instead of `Ok(false)`, so the caller never waits for
        // its events.
        if matches!(events[1].try_is_complete(), Ok(false)) {
            return None;
        }
        let milliseconds = elapsed(events);
        self.spare.extend(self.awaited.pop_front());
        Some(f64::from(milliseconds.unwrap_or(f32::NAN)) * 1e-3)
    }
}

/// Milliseconds between two events that have happened.
fn elapsed([start, end]: &[CudaEvent; 2]) -> Option<f32> {
    type ElapsedTime = unsafe extern "C" fn(*mut f32, sys::CUevent, sys::CUevent) -> sys::CUresult;
    static FUNCTION: OnceLock<Option<ElapsedTime>> = OnceLock::new();
    // The bindings use a function that drivers before CUDA 12.8 lack. All drivers have the function
    // that is loaded here.
    let function = FUNCTION.get_or_init(|| {
        // SAFETY: the events show that the library is loaded, and `ElapsedTime` is the type that
        // the driver declares for this function.
        unsafe { sys::culib().get::<ElapsedTime>(b"cuEventElapsedTime\0").ok().map(|f| *f) }
    });
    let mut milliseconds = 0.0;
    // SAFETY: the references keep both events alive, and the driver writes the time to
    // `milliseconds`, which outlives the call.
    let result = unsafe { (*function)?(&raw mut milliseconds, start.cu_event(), end.cu_event()) };
    (result == sys::CUresult::CUDA_SUCCESS).then_some(milliseconds)
}
