//! What a path runs.

use super::Store;
use crate::device::Device;
use crate::graph::PathKey;
use crate::layout::Layout;
use crate::op::Operation as _;
use std::sync::Arc;

/// What is run.
pub(crate) enum Work<D: Device> {
    Op(D::Op),
    /// A leaf from host memory: its compute path is the upload.
    Upload(Arc<D::Host>),
}

impl<D: Device> Work<D> {
    pub fn name(&self) -> &str {
        match self {
            Self::Op(op) => op.name(),
            Self::Upload(_) => "put",
        }
    }

    /// Whether recorders say that it may run again.
    pub fn rematerializable(&self) -> bool {
        matches!(self, Self::Op(op) if op.rematerializable())
    }
}

/// A path's op, and how it looks at the storages at its edges.
pub(crate) struct Body<D: Device> {
    pub work: Work<D>,
    /// Of the inputs, then of the outputs. In one piece on the heap: layouts are large.
    pub layouts: Vec<Layout>,
    inputs: usize,
}

impl<D: Device> Body<D> {
    #[inline(always)]
    pub fn new(work: Work<D>, inputs: Vec<Layout>, outputs: impl Iterator<Item = Layout>) -> Self {
        let count = inputs.len();
        let mut layouts = inputs;
        outputs.for_each(|layout| layouts.push(layout));
        Self { work, layouts, inputs: count }
    }

    pub fn inputs(&self) -> &[Layout] {
        &self.layouts[..self.inputs]
    }

    pub fn outputs(&self) -> &[Layout] {
        &self.layouts[self.inputs..]
    }
}

impl<D: Device> Store<D> {
    /// Takes a path's body away, to run it: [`Store::return_body`].
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
