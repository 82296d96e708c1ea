//! Operators of PyTorch as ops of remat.

use crate::ffi::{Kind, rm_forget_record};
use crate::session::Call;
use remat::Layout;
use remat::op::{OpError, Operation, Outputs};
use std::ffi::c_void;
use std::sync::Arc;

/// Op that can run any number of times.
#[derive(Clone, Debug)]
pub(crate) struct TorchOp(Arc<Body>);

#[derive(Debug)]
pub(crate) struct Body {
    pub record: Record,
    name: Arc<str>,
    pub kind: Kind,
    outputs: Outputs,
    /// Floating-point operations; 0 if not known.
    work: f64,
    /// Bytes read and written; 0 for all bytes of inputs and outputs.
    moved: u64,
    again: bool,
}

/// Record of a call, in the shim's memory.
#[derive(Debug)]
pub(crate) struct Record(pub *mut c_void);

// SAFETY: the shim uses a record only under the session's lock, in any thread.
unsafe impl Send for Record {}
// SAFETY: nothing but the pointer can be read without the session's lock.
unsafe impl Sync for Record {}

impl Drop for Record {
    fn drop(&mut self) {
        // SAFETY: the pointer came from the shim, which passed its ownership on, and is dropped once.
        unsafe { rm_forget_record(self.0) };
    }
}

impl TorchOp {
    pub fn new(record: Record, name: Arc<str>, outputs: Outputs, call: &Call<'_>) -> Self {
        let &Call { kind, work, moved, again, .. } = call;
        Self(Arc::new(Body { record, name, kind, outputs, work, moved, again }))
    }
}

impl std::ops::Deref for TorchOp {
    type Target = Body;

    fn deref(&self) -> &Body {
        &self.0
    }
}

impl Operation for TorchOp {
    fn name(&self) -> &str {
        &self.name
    }

    fn infer(&self, _inputs: &[Layout]) -> Result<Outputs, OpError> {
        Ok(self.outputs.clone())
    }

    fn flops(&self, inputs: &[Layout], _outputs: &[Layout]) -> f64 {
        match self.kind {
            Kind::Notice | Kind::Reserve => 0.0,
            // An op that only writes makes no storage. The work of an op that only writes is to
            // move each operand once.
            _ if self.work == 0.0 => {
                inputs.iter().map(|input| input.bytes() as f64 / 4.0).sum::<f64>()
            }
            _ => self.work,
        }
    }

    fn moved(&self, inputs: &[Layout], outputs: &[Layout]) -> u64 {
        match (self.kind, self.moved) {
            (Kind::Notice | Kind::Reserve, _) => 0,
            (_, 0) => inputs.iter().chain(outputs).map(Layout::bytes).sum(),
            (_, moved) => moved,
        }
    }

    fn rematerializable(&self) -> bool {
        self.again
    }
}
