//! Bodies of compute paths: the op of a path, and the layouts of its operands.

use super::Store;
use crate::device::Device;
use crate::graph::PathKey;
use crate::layout::Layout;
use crate::op::Operation as _;
use std::sync::Arc;

/// Op or upload that a path runs.
pub(crate) enum Work<D: Device> {
    Op(D::Op),
    /// Upload of a leaf from host memory.
    Upload(Arc<D::Host>),
}

impl<D: Device> Work<D> {
    pub fn name(&self) -> &str {
        match self {
            Self::Op(op) => op.name(),
            Self::Upload(_) => "put",
        }
    }

    /// Whether recordings say that the work can run again. Always false for uploads.
    pub fn rematerializable(&self) -> bool {
        matches!(self, Self::Op(op) if op.rematerializable())
    }
}

/// Work of a path, and the layouts of its inputs and outputs.
pub(crate) struct Body<D: Device> {
    pub work: Work<D>,
    /// Layouts of the inputs, followed by the layouts of the outputs. All layouts are in one heap
    /// allocation, because a `Layout` is large.
    pub layouts: Vec<Layout>,
    inputs: usize,
    /// Whether the only output is a new value of the first input ([`Outputs::Over`]).
    ///
    /// [`Outputs::Over`]: crate::op::Outputs::Over
    pub over: bool,
}

impl<D: Device> Body<D> {
    #[inline(always)]
    pub fn new(work: Work<D>, inputs: Vec<Layout>, outputs: impl Iterator<Item = Layout>) -> Self {
        let count = inputs.len();
        let mut layouts = inputs;
        outputs.for_each(|layout| layouts.push(layout));
        Self { work, layouts, inputs: count, over: false }
    }

    pub fn inputs(&self) -> &[Layout] {
        &self.layouts[..self.inputs]
    }

    pub fn outputs(&self) -> &[Layout] {
        &self.layouts[self.inputs..]
    }
}

impl<D: Device> Store<D> {
    /// Takes a path's body out of the table for a run. [`Store::return_body`] puts the body back.
    pub fn take_body(&mut self, path: PathKey) -> Body<D> {
        let body = self.bodies.remove(path).expect("a path has a body");
        self.running.clear();
        self.running.push_str(body.work.name());
        body
    }

    pub fn return_body(&mut self, path: PathKey, body: Body<D>) {
        self.running.clear();
        self.bodies.insert(path, body);
    }
}
