//! Dry runs: what a step needs, found without computing anything.

use super::args::MemoryArgs;
use super::failure::{Failure, batch_too_large};
use super::session::{Session, Setup};
use super::terminal;
use super::values::Share;
use remat::policy::PolicyKind;
use remat::{Builder, ByteSize, DType, Error, HostTensor, Runtime};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Steps of a dry run: after the first, the optimizer's state is there as well.
const STEPS: usize = 3;

/// What the percentages on the command line come to.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Most bytes in use at once when nothing is ever evicted.
    pub unbudgeted: u64,
    pub budget: u64,
    pub threshold: Option<u64>,
}

impl Plan {
    /// Finds out what a step takes.
    pub fn new(setup: &Setup, memory: &MemoryArgs) -> Result<Self, Failure> {
        let everything = Runtime::builder().budget(1u64 << 60).policy(PolicyKind::None);
        let unbudgeted = rehearse(everything, &batch(setup)?, setup)?;
        Ok(Self {
            unbudgeted,
            budget: memory.budget.unwrap_or(setup.model.default_budget()).of(unbudgeted),
            threshold: memory.eviction_threshold.map(|share| share.of(unbudgeted)),
        })
    }

    /// A word for someone whose budget did not do.
    pub fn advice(&self, setup: &Setup, memory: &MemoryArgs) -> String {
        let peak = ByteSize(self.unbudgeted);
        match self.passing_budget(setup, memory) {
            Some(share) => format!(
                "unbudgeted, this peaks at {peak}; --budget {share} ({}) passes in simulation",
                ByteSize(share.of(self.unbudgeted))
            ),
            None => format!("unbudgeted, this peaks at {peak}"),
        }
    }

    /// The first of 5 %, 10 %, ... above the budget under which the steps pass on a device that only
    /// counts. `None` if that takes too long to find.
    fn passing_budget(&self, setup: &Setup, memory: &MemoryArgs) -> Option<Share> {
        /// The answer must come while the person is still looking.
        const PATIENCE: Duration = Duration::from_secs(3);
        /// A budget that recomputes more than this is no good advice.
        const LIMIT: f64 = 10.0;
        let start = Instant::now();
        let batch = batch(setup).ok()?;
        (1..=20)
            .map(|i| Share::Percent(f64::from(5 * i)))
            .filter(|share| share.of(self.unbudgeted) > self.budget)
            .take_while(|_| start.elapsed() < PATIENCE)
            .find(|share| {
                let limit = memory.recompute_limit.unwrap_or(LIMIT);
                let builder = memory.builder(share.of(self.unbudgeted), None);
                rehearse(builder.recompute_limit(limit), &batch, setup).is_ok()
            })
    }
}

/// Images and labels of the right shapes, all zero: their pages are never touched.
type Batch = [Arc<HostTensor>; 2];

fn batch(setup: &Setup) -> Result<Batch, Failure> {
    let [channels, height, width] = setup.shape;
    let elements: u128 =
        [setup.batch, channels, height, width].iter().map(|&n| n as u128).product();
    let fits = usize::try_from(elements)
        .is_ok_and(|elements| Vec::<f32>::new().try_reserve_exact(elements).is_ok());
    if !fits {
        return Err(batch_too_large(setup.batch, setup.shape, elements.saturating_mul(4)));
    }
    let images = HostTensor::zeros(DType::F32, [setup.batch, channels, height, width]);
    let labels = HostTensor::zeros(DType::I32, [setup.batch]);
    Ok([Arc::new(images), Arc::new(labels)])
}

/// The peak of a few steps.
fn rehearse(builder: Builder, [images, labels]: &Batch, setup: &Setup) -> Result<u64, Error> {
    terminal::muted(|| {
        let mut session = Session::new(builder.sim()?, setup)?;
        for _ in 0..STEPS {
            session.step(Arc::clone(images), Arc::clone(labels), 0.0)?.wait()?;
        }
        session.runtime().sync()?;
        Ok(session.runtime().stats()?.peak_bytes)
    })
}
