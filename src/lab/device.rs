//! The device of a replay: sizes and costs are those of the trace.

use crate::cost::{CostModel, Run};
use crate::device::{Call, Device, DeviceError, Memory, Place, Took};
use crate::layout::Layout;
use crate::op::{self, OpError, Outputs};
use std::sync::Arc;

/// An op of a trace.
#[derive(Debug)]
pub(super) struct TraceOp {
    pub name: Arc<str>,
    pub cost: f64,
    pub flops: f64,
    pub workspace: u64,
    pub rematerializable: bool,
}

impl op::Operation for TraceOp {
    fn name(&self) -> &str {
        &self.name
    }

    /// Outputs are given where an op is issued, not inferred.
    fn infer(&self, _inputs: &[Layout]) -> Result<Outputs, OpError> {
        Err(OpError::new(&*self.name, "a trace tells what its ops make"))
    }

    fn flops(&self, _inputs: &[Layout], _outputs: &[Layout]) -> f64 {
        self.flops
    }

    fn rematerializable(&self) -> bool {
        self.rematerializable
    }
}

/// A value from the host, of which size and cost are known.
#[derive(Debug)]
pub(super) struct Upload {
    pub bytes: u64,
    pub cost: f64,
}

/// Costs what the trace says. Nothing is computed.
#[derive(Debug)]
pub(super) struct TraceDevice {
    pub memory: Memory,
}

impl Device for TraceDevice {
    type Op = TraceOp;
    type Host = Upload;

    fn name(&self) -> &str {
        "trace"
    }

    fn memory(&self) -> Memory {
        self.memory
    }

    fn layout_of(host: &Upload) -> Layout {
        Layout::raw(host.bytes as usize)
    }

    fn write(&mut self, host: &Upload, _to: Place) -> Result<Took, DeviceError> {
        Ok(Took::Seconds(host.cost))
    }

    fn read(&mut self, from: Place) -> Result<Upload, DeviceError> {
        Ok(Upload { bytes: from.layout.bytes(), cost: 0.0 })
    }

    fn copy(&mut self, _from: u64, _to: u64, _bytes: u64) -> Result<(), DeviceError> {
        Ok(())
    }

    fn workspace(&self, op: &TraceOp, _inputs: &[Layout], _outputs: &[Layout]) -> u64 {
        op.workspace
    }

    fn execute(&mut self, call: Call<'_, TraceOp>) -> Result<Took, DeviceError> {
        Ok(Took::Seconds(call.op.cost))
    }
}

/// The cost that the trace recorded.
#[derive(Debug)]
pub(super) struct Recorded;

impl CostModel for Recorded {
    fn cost(&mut self, run: Run<'_>) -> f64 {
        run.seconds.unwrap_or(0.0)
    }
}
