//! A Burn operation as an op of remat's: what it is, and what it needs to run again with the same bits.

use crate::form::Form;
use remat::Layout;
use remat::op::{OpError, Operation, Outputs};
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// An operation that can be run as often as it takes.
#[derive(Clone, Debug)]
pub(crate) struct BurnOp(Arc<Body>);

#[derive(Debug)]
pub(crate) struct Body {
    pub form: Arc<Form>,
    /// How the views that it reads are made; `None` if it reads none.
    pub looks: Option<Box<Looks>>,
    /// Of random ops: what to seed the backend with.
    pub seed: Option<u64>,
    /// Whether Burn has no more use for the first input.
    pub ends_first: bool,
    /// Whether the next run may write over the first input.
    gives_first: AtomicBool,
}

impl BurnOp {
    /// The others as in [`Body`].
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
    /// The next run may write over the first input. Not over others: Flex swaps the operands of a sum to do so, and a sum of two
    /// NaN has the sign of the first, which must be the same when it is made again.
    pub fn give_first(&self) {
        self.gives_first.store(true, Ordering::Relaxed);
    }

    /// Whether this run may: no later one may then.
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

/// Views, which are there for one run or one read only: remat keeps the storages that they look at.
#[derive(Clone, Debug, Default)]
pub(crate) struct Looks {
    /// Ops that make one each, and of what. Later ones may look at what earlier ones made.
    pub steps: Vec<(BurnOp, Seen)>,
    /// What each input is.
    pub inputs: SmallVec<[Seen; 4]>,
}

/// What an op reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// What is at the place of this input.
    Input(u32),
    /// What this step of [`Looks::steps`] made.
    Step(u32),
}

impl Looks {
    /// One more input, which these ops make of the storage that it looks at.
    pub fn add(&mut self, ops: &[BurnOp]) {
        let storage = Seen::Input(self.inputs.len() as u32);
        let seen = ops.iter().fold(storage, |seen, op| {
            // Views of one view have the ops that make it in common.
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
    /// A bit that no place has.
    const STEP: u64 = 1 << 62;

    /// The number that the interpreter knows it by, where the storages of the inputs are `at` these.
    pub const fn number(self, at: &[u64]) -> u64 {
        match self {
            Self::Input(input) => at[input as usize],
            Self::Step(step) => Self::STEP | step as u64,
        }
    }
}
