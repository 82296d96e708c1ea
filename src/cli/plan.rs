//! Dry runs: what a step needs, found without computing anything.

use super::args::MemoryArgs;
use super::failure::{Failure, batch_too_large};
use super::session::{Session, Setup};
use super::target::Target;
use super::terminal;
use super::values::{Budget, Share};
use remat::device::sim::Sim;
use remat::ops::Op;
use remat::policy::PolicyKind;
use remat::{Builder, ByteSize, DType, Dims, Error, HostTensor, Runtime};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Steps of a dry run: after the first, the optimizer's state is there as well.
const STEPS: usize = 3;

/// What the percentages on the command line come to.
#[derive(Debug)]
pub struct Plan {
    /// Stands in for the device: the same peak, nothing computed.
    sim: Sim<Op, HostTensor>,
    /// Whether the budget is what is free, so that there is no more to be had.
    is_auto: bool,
    /// Most bytes in use at once when nothing is ever evicted.
    pub unbudgeted: u64,
    pub budget: u64,
    pub threshold: Option<u64>,
}

impl Plan {
    /// Finds out what a step takes.
    pub fn new(setup: &Setup, memory: &MemoryArgs, target: &Target) -> Result<Self, Failure> {
        let sim = target.sim();
        let everything = Runtime::builder().budget(1u64 << 60).policy(PolicyKind::None);
        let unbudgeted = rehearse(&sim, everything, &batch(setup)?, setup)?;
        let budget = memory.budget.unwrap_or(Budget::Share(setup.model.default_budget()));
        Ok(Self {
            sim,
            is_auto: budget == Budget::Auto,
            unbudgeted,
            budget: match budget {
                Budget::Share(share) => share.of(unbudgeted),
                Budget::Auto => target.available_bytes()?,
            },
            threshold: memory.eviction_threshold.map(|share| share.of(unbudgeted)),
        })
    }

    /// A word for someone whose budget did not do.
    pub fn advice(&self, setup: &Setup, memory: &MemoryArgs) -> String {
        let peak = ByteSize(self.unbudgeted);
        if self.is_auto {
            return format!(
                "unbudgeted, this peaks at {peak}; no more than the budget is free, so lower --batch"
            );
        }
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
                rehearse(&self.sim, builder.recompute_limit(limit), &batch, setup).is_ok()
            })
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [budget, unbudgeted] = [self.budget, self.unbudgeted].map(ByteSize);
        let auto = if self.is_auto { " (auto)" } else { "" };
        let threshold = self.threshold.filter(|&threshold| threshold < self.unbudgeted);
        if self.budget < self.unbudgeted {
            let percent = 100.0 * self.budget as f64 / self.unbudgeted as f64;
            write!(
                f,
                "budget {budget}{auto}, {percent:.1} % of the {unbudgeted} that a step takes unbudgeted"
            )?;
        } else {
            write!(f, "budget {budget}{auto}; a step takes {unbudgeted}")?;
            if threshold.is_none() {
                f.write_str(", so everything fits")?;
            }
        }
        threshold.map_or(Ok(()), |threshold| write!(f, "; evicts above {}", ByteSize(threshold)))
    }
}

/// Images and labels of the right shapes, all zero: their pages are never touched.
type Batch = [Arc<HostTensor>; 2];

fn batch(setup: &Setup) -> Result<Batch, Failure> {
    let [channels, height, width] = setup.shape;
    let elements: u128 =
        [setup.batch, channels, height, width].iter().map(|&n| n as u128).product();
    let zeros = |dtype, shape: Dims| {
        HostTensor::zeros(dtype, shape)
            .map(Arc::new)
            .map_err(|_| batch_too_large(setup.batch, setup.shape, elements.saturating_mul(4)))
    };
    let images = zeros(DType::F32, [setup.batch, channels, height, width].into())?;
    Ok([images, zeros(DType::I32, [setup.batch].into())?])
}

/// The peak of a few steps.
fn rehearse(
    sim: &Sim<Op, HostTensor>,
    builder: Builder,
    [images, labels]: &Batch,
    setup: &Setup,
) -> Result<u64, Error> {
    let sim = sim.clone();
    terminal::muted(|| {
        let mut session = Session::new(builder.device(move || sim)?, setup)?;
        for _ in 0..STEPS {
            session.step(Arc::clone(images), Arc::clone(labels), 0.0)?.wait()?;
        }
        session.runtime().sync()?;
        Ok(session.runtime().stats()?.peak_bytes)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_told_as_a_part_of_what_it_takes_or_as_enough() {
        let plan = |budget: u64, threshold: u64, is_auto| Plan {
            sim: Sim::cpu(),
            is_auto,
            unbudgeted: 10 << 20,
            budget: budget << 20,
            threshold: Some(threshold << 20).filter(|&bytes| bytes > 0),
        };
        for (plan, text) in [
            (
                plan(4, 0, false),
                "budget 4.00 MiB, 40.0 % of the 10.00 MiB that a step takes unbudgeted",
            ),
            (
                plan(8, 6, true),
                "budget 8.00 MiB (auto), 80.0 % of the 10.00 MiB that a step takes unbudgeted; \
                 evicts above 6.00 MiB",
            ),
            (
                plan(40 << 10, 0, true),
                "budget 40.00 GiB (auto); a step takes 10.00 MiB, so everything fits",
            ),
            (plan(10, 20, false), "budget 10.00 MiB; a step takes 10.00 MiB, so everything fits"),
            (plan(20, 9, false), "budget 20.00 MiB; a step takes 10.00 MiB; evicts above 9.00 MiB"),
        ] {
            assert_eq!(plan.to_string(), text);
        }
    }
}
