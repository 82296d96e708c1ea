//! How long calls took: events in the stream, read back later.

#![allow(unsafe_code)]

use super::driver::failed;
use crate::device::DeviceError;
use crate::sync::OnceLock;
use cudarc::driver::{CudaContext, CudaEvent, CudaStream, sys};
use std::collections::VecDeque;
use std::sync::Arc;

/// Events before and after calls.
pub(super) struct Timing {
    stream: Arc<CudaStream>,
    /// Of calls whose time was not taken yet, oldest first.
    awaited: VecDeque<[CudaEvent; 2]>,
    /// To use again.
    spare: Vec<[CudaEvent; 2]>,
}

impl Timing {
    pub(super) const fn new(stream: Arc<CudaStream>) -> Self {
        Self { stream, awaited: VecDeque::new(), spare: Vec::new() }
    }

    fn context(&self) -> &Arc<CudaContext> {
        self.stream.context()
    }

    /// Before a call.
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

    /// After it.
    pub(super) fn end(&mut self, events: [CudaEvent; 2]) -> Result<(), DeviceError> {
        events[1].record(&self.stream).map_err(|e| failed("recording an event", e))?;
        self.awaited.push_back(events);
        Ok(())
    }

    /// Seconds of the oldest call that are known and were not taken yet.
    pub(super) fn take(&mut self) -> Option<f64> {
        let events = self.awaited.front()?;
        // A broken device gives no times; they are not waited for.
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
    // Not the bindings' function, which drivers before CUDA 12.8 do not have; this one is in all.
    let function = FUNCTION.get_or_init(|| {
        // SAFETY: the library is loaded, for there are events, and the type is that of the function.
        unsafe { sys::culib().get::<ElapsedTime>(b"cuEventElapsedTime\0").ok().map(|f| *f) }
    });
    let mut milliseconds = 0.0;
    // SAFETY: both events live, and the time goes to a place that outlives the call.
    let result = unsafe { (*function)?(&raw mut milliseconds, start.cu_event(), end.cu_event()) };
    (result == sys::CUresult::CUDA_SUCCESS).then_some(milliseconds)
}
