//! A run, as far as it can be told before it is made.

use super::{Engine, LastRun};
use crate::cost::Run;
use crate::device::Device;
use crate::graph::PathKey;
use crate::guard::{caught, guarded};
use crate::layout::Layout;
use crate::op::Operation as _;
use crate::store::{Body, Work};

impl<D: Device> Engine<D> {
    /// A run of an op on inputs and outputs that look like these. What cannot be told is 0.
    pub(crate) fn expect_op(
        &mut self,
        op: &D::Op,
        inputs: &[Layout],
        outputs: &[Layout],
    ) -> LastRun {
        let name = op.name();
        let flops = caught(|| format!("{name}: its flops"), || op.flops(inputs, outputs));
        let workspace = self.scratch_of(op, inputs, outputs).unwrap_or(0);
        let device = &mut self.store.device;
        let seconds = guarded(name, || Ok(device.foretell(op))).ok().flatten();
        let run = Run { op: name, inputs, outputs, flops: flops.unwrap_or(0.0), seconds };
        let rematerializable = op.rematerializable();
        LastRun {
            cost: self.cost_of(run).unwrap_or(0.0),
            flops: run.flops,
            workspace,
            rematerializable,
        }
    }

    /// What a path runs.
    pub(crate) fn body(&self, path: PathKey) -> &Body<D> {
        &self.store.bodies[path]
    }

    /// The next run of a path.
    pub(crate) fn expect_path(&mut self, path: PathKey) -> LastRun {
        let body = self.store.bodies.remove(path).expect("a path has a body");
        let run = self.expect_body(&body);
        self.store.bodies.insert(path, body);
        let cost = self.store.graph.path(path).cost;
        LastRun { cost, ..run }
    }

    /// An upload of a value from the host.
    pub(crate) fn expect_write(&mut self, host: &D::Host) -> LastRun {
        let (op, outputs) = ("put", [D::layout_of(host)]);
        let device = &mut self.store.device;
        let seconds = guarded(op, || Ok(device.foretell_write(host))).ok().flatten();
        let cost = self.cost_of(Run { op, inputs: &[], outputs: &outputs, flops: 0.0, seconds });
        LastRun { cost: cost.unwrap_or(0.0), ..LastRun::default() }
    }

    /// The run of a path's body.
    pub(super) fn expect_body(&mut self, body: &Body<D>) -> LastRun {
        match &body.work {
            Work::Op(op) => self.expect_op(op, body.inputs(), body.outputs()),
            Work::Upload(host) => self.expect_write(host),
        }
    }
}
