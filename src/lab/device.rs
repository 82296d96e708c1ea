//! The device of a replay, which takes sizes and costs from the trace.

use crate::command::{RecordedOp, RecordedValue};
use crate::device::{Call, Device, DeviceError, Memory, Place, Took};
use crate::layout::Layout;

/// Device that only counts bytes and costs, and computes nothing.
#[derive(Debug)]
pub(super) struct TraceDevice {
    pub memory: Memory,
}

impl Device for TraceDevice {
    type Op = RecordedOp;
    type Host = RecordedValue;

    fn name(&self) -> &str {
        "trace"
    }

    fn memory(&self) -> Memory {
        self.memory
    }

    fn layout_of(host: &RecordedValue) -> Layout {
        host.layout
    }

    fn write(&mut self, host: &RecordedValue, _to: Place) -> Result<Took, DeviceError> {
        Ok(Took::Seconds(host.next_cost()))
    }

    fn read(&mut self, from: Place) -> Result<RecordedValue, DeviceError> {
        Ok(RecordedValue::there(from.layout))
    }

    fn copy(&mut self, _from: u64, _to: u64, _bytes: u64) -> Result<(), DeviceError> {
        Ok(())
    }

    fn workspace(&self, op: &RecordedOp, _inputs: &[Layout], _outputs: &[Layout]) -> u64 {
        op.workspace
    }

    fn foretell(&mut self, op: &RecordedOp) -> Option<f64> {
        Some(op.next_cost())
    }

    fn foretell_write(&mut self, host: &RecordedValue) -> Option<f64> {
        Some(host.next_cost())
    }

    fn execute(&mut self, call: Call<'_, RecordedOp>) -> Result<Took, DeviceError> {
        Ok(Took::Seconds(call.op.next_cost()))
    }
}
