//! Predictions of the cost, flops and workspace of a run, before the run.

use super::{Engine, LastRun};
use crate::cost::Run;
use crate::device::Device;
use crate::graph::PathKey;
use crate::guard::guarded;
use crate::layout::{Layout, bytes_of};
use crate::op::Operation as _;
use crate::store::{Body, Work};

impl<D: Device> Engine<D> {
    /// Predicts a run of an op on inputs and outputs of given layouts. A number that cannot be
    /// predicted is 0.
    pub(crate) fn expect_op(
        &mut self,
        op: &D::Op,
        inputs: &[Layout],
        outputs: &[Layout],
    ) -> LastRun {
        let (flops, bytes) = Self::effort_of_op(op, inputs, outputs).unwrap_or_default();
        let workspace = self.scratch_of(op, inputs, outputs).unwrap_or(0);
        let device = &mut self.store.device;
        let seconds = guarded(op.name(), || Ok(device.foretell(op))).ok().flatten();
        let cost = self.cost_of(Run { op: op.name(), inputs, outputs, flops, bytes, seconds });
        let rematerializable = op.rematerializable();
        LastRun { cost: cost.unwrap_or(0.0), flops, workspace, rematerializable }
    }

    /// Predicts a run of a path's body.
    pub(super) fn expect_body(&mut self, body: &Body<D>) -> LastRun {
        let host = match &body.work {
            Work::Op(op) => return self.expect_op(op, body.inputs(), body.outputs()),
            Work::Upload(host) => host,
        };
        let (op, outputs) = (body.work.name(), body.outputs());
        let device = &mut self.store.device;
        let seconds = guarded(op, || Ok(device.foretell_write(host))).ok().flatten();
        let bytes = bytes_of(outputs);
        let cost = self.cost_of(Run { op, inputs: &[], outputs, flops: 0.0, bytes, seconds });
        LastRun { cost: cost.unwrap_or(0.0), ..LastRun::default() }
    }

    /// Body of a path, and a prediction of its next run. The cost is taken from the path; only
    /// flops and workspace are computed.
    pub(crate) fn body(&self, path: PathKey) -> (&Body<D>, LastRun) {
        let body = &self.store.bodies[path];
        let (inputs, outputs) = (body.inputs(), body.outputs());
        let run = LastRun {
            cost: self.store.graph.path(path).cost,
            flops: self.effort_of(&body.work, inputs, outputs).unwrap_or_default().0,
            workspace: self.scratch_bytes(&body.work, inputs, outputs).unwrap_or(0),
            rematerializable: body.work.rematerializable(),
        };
        (body, run)
    }
}
