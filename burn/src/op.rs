//! Burn operations as ops of remat, with everything needed to run them again with the same bits.

use crate::form::Form;
use remat::Layout;
use remat::op::{OpError, Operation, Outputs};
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Operation that can run any number of times.
#[derive(Clone, Debug)]
pub(crate) struct BurnOp(Arc<Body>);

#[derive(Debug)]
pub(crate) struct Body {
    pub form: Arc<Form>,
    /// Ops that make those inputs that are views; `None` if no input is a view.
    pub looks: Option<Box<Looks>>,
    /// Seed for the backend, in random ops.
    pub seed: Option<u64>,
    /// Whether Burn no longer uses the first input after this op, so that the op could overwrite
    /// the input.
    pub ends_first: bool,
    /// Whether the next run may overwrite the first input.
    gives_first: AtomicBool,
}

impl BurnOp {
    /// Makes an op. The parameters are the fields of [`Body`].
    pub fn new(
        form: Arc<Form>,
        looks: Option<Box<Looks>>,
        seed: Option<u64>,
        ends_first: bool,
    ) -> Self {
        let gives_first = AtomicBool::new(false);
        Self(Arc::new(Body { form, looks, seed, ends_first, gives_first }))
    }
}

impl Body {
    /// Allows the next run to overwrite the first input.
    ///
    /// Other inputs are never overwritten: to overwrite the second operand of a sum, Flex would
    /// swap the operands. A sum of two NaNs has the sign of its first operand, and that sign must
    /// be the same when the op runs again.
    pub fn give_first(&self) {
        self.gives_first.store(true, Ordering::Relaxed);
    }

    /// Returns whether this run may overwrite the first input, and withdraws the permission for
    /// later runs.
    pub fn takes_first(&self) -> bool {
        self.gives_first.swap(false, Ordering::Relaxed)
    }
}

impl std::ops::Deref for BurnOp {
    type Target = Body;

    fn deref(&self) -> &Body {
        &self.0
    }
}

impl Operation for BurnOp {
    fn name(&self) -> &str {
        &self.form.name
    }

    fn infer(&self, _inputs: &[Layout]) -> Result<Outputs, OpError> {
        Ok(self.form.layouts.clone())
    }

    fn flops(&self, _inputs: &[Layout], _outputs: &[Layout]) -> f64 {
        self.form.flops
    }

    fn rematerializable(&self) -> bool {
        self.form.again
    }
}

/// Views that exist only during a run or a read. Between runs, the backend keeps only the storages
/// of the views.
#[derive(Clone, Debug, Default)]
pub(crate) struct Looks {
    /// Steps that make one view each: the op, and the tensor that the op reads. This tensor may be
    /// the view made by an earlier step.
    pub steps: Vec<(BurnOp, Seen)>,
    /// Tensor to read for each input of the run.
    pub inputs: SmallVec<[Seen; 4]>,
}

/// Tensor that an op reads: an input, or a view made by an earlier step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Storage of this input.
    Input(u32),
    /// View made by this step of [`Looks::steps`].
    Step(u32),
}

impl Looks {
    /// Adds an input of the run, as a view that `ops` make from the input's storage.
    pub fn add(&mut self, ops: &[BurnOp]) {
        let storage = Seen::Input(self.inputs.len() as u32);
        let seen = ops.iter().fold(storage, |seen, op| {
            // Two views of one view begin with equal ops. Each of these common ops becomes only one
            // step.
            let known = self.steps.iter().position(|(other, _)| Arc::ptr_eq(&other.0, &op.0));
            let step = known.unwrap_or_else(|| {
                self.steps.push((op.clone(), seen));
                self.steps.len() - 1
            });
            Seen::Step(step as u32)
        });
        self.inputs.push(seen);
    }
}

impl Seen {
    /// Bit that marks numbers of views. Numbers of storages never reach this bit.
    const STEP: u64 = 1 << 62;

    /// Number of the tensor in Burn's interpreter. `at` has the number of each input's storage.
    pub const fn number(self, at: &[u64]) -> u64 {
        match self {
            Self::Input(input) => at[input as usize],
            Self::Step(step) => Self::STEP | step as u64,
        }
    }
}
