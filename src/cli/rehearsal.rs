//! Rehearsals: a training on blank batches, with steps and tests, which the library's tuner runs on
//! a simulated device.

use super::args::MemoryArgs;
use super::failure::Failure;
use super::interrupt;
use super::session::{Session, Setup};
use super::target::Target;
use super::task::Batch;
use remat::tune::{OptionNames, Rehearsal, Trainable, Training, TuneError, Tuner};
use remat::unstable::program::Plan;
use remat::{Error, Runtime};

/// Number of full test batches in a rehearsal. The second batch begins with memory as the first
/// batch left it. Therefore the second batch represents all later batches.
const TEST_BATCHES: usize = 2;

/// Names of the command-line options, for messages of the library.
const FLAGS: OptionNames = OptionNames {
    budget: "--budget",
    threshold: "--eviction-threshold",
    batch: "--batch",
    cost_model: "--cost",
    cache: "--learn-cache",
};

/// A training on blank batches, which have the right shapes and meaningless values.
pub struct Blank<'a> {
    setup: &'a Setup<'a>,
    batch: Batch,
    /// Batches of the test; the last batch may be smaller.
    tests: Vec<Batch>,
}

impl<'a> Blank<'a> {
    /// Makes a training with a test on `tested` examples.
    pub fn new(setup: &'a Setup<'a>, tested: usize) -> Result<Self, Failure> {
        let batch = setup.task.blank(setup.batch)?;
        let full = (tested / setup.batch).min(TEST_BATCHES);
        let rest = tested % setup.batch;
        let mut tests = vec![batch.clone(); full];
        if rest > 0 {
            tests.push(setup.task.blank(rest)?);
        }
        Ok(Self { setup, batch, tests })
    }
}

impl Trainable for Blank<'_> {
    type Training = BlankTraining;

    fn start(&self, runtime: &Runtime) -> Result<BlankTraining, Error> {
        let session = Session::new(runtime.clone(), self.setup)?;
        Ok(BlankTraining { session, batch: self.batch.clone(), tests: self.tests.clone() })
    }

    /// Whether all steps have the same ops. False if the examples are trees, because each step then
    /// has a different tree.
    fn repeats(&self) -> bool {
        self.batch.tree.is_none()
    }

    fn tests_between(&self) -> bool {
        self.setup.tests_between
    }
}

/// A training on blank batches that has begun.
pub struct BlankTraining {
    session: Session,
    batch: Batch,
    tests: Vec<Batch>,
}

impl Training for BlankTraining {
    fn step(&mut self) -> Result<(), Error> {
        self.session.give(|_| self.batch.clone(), 0.0)?.wait().map(drop)
    }

    fn test(&mut self) -> Result<(), Error> {
        for batch in self.tests.iter().take_while(|_| !interrupt::is_requested()) {
            self.session.score(batch.clone())?;
        }
        Ok(())
    }
}

/// Tuner for runs with the options in `memory`.
pub fn tuner<'a>(target: &Target, memory: &'a MemoryArgs, seed: u64, plan: Plan) -> Tuner<'a> {
    Tuner::new(move || memory.builder().seed(seed).plan(plan))
        .device(target.stand_in())
        .names(FLAGS)
        .interrupt_when(interrupt::is_requested)
}

/// Most bytes in use at once in a simulated test without a budget.
pub fn peak(target: &Target, blank: &Blank<'_>, memory: &MemoryArgs) -> Result<u64, Failure> {
    let tuner = tuner(target, memory, 0, Plan::Off).steps(0);
    Ok(Rehearsal::new(&tuner, blank)?.unlimited()?.peak_bytes)
}

impl From<TuneError> for Failure {
    fn from(error: TuneError) -> Self {
        let message = error.to_string();
        match error {
            TuneError::Failed(error) => error.into(),
            TuneError::Interrupted => Self::interrupted(message),
            TuneError::FreeUnknown(_) => Self::new(message),
            _ => Self::usage(message),
        }
    }
}

#[cfg(test)]
mod tests;
