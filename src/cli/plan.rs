//! Dry runs: what a step needs, found without computing anything.

use super::args::MemoryArgs;
use super::failure::{Failure, batch_too_large};
use super::session::{Session, Setup};
use super::values::Share;
use remat::policy::PolicyKind;
use remat::{ByteSize, DType, Error, HostTensor, Runtime};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Steps of a dry run: after the first, the optimizer's state is there as well.
const STEPS: usize = 3;

/// Most bytes in use at once when nothing is ever evicted.
pub fn unbudgeted_peak(setup: &Setup) -> Result<u64, Failure> {
    let runtime = Runtime::builder().budget(1u64 << 60).policy(PolicyKind::None).sim()?;
    Ok(rehearse(runtime, &batch(setup)?, setup)?)
}

/// A budget above `failed` under which the steps pass on a device that only counts, in percent of
/// `peak`: the first that does in steps of 5 %. `None` if that takes too long to find.
pub fn passing_budget(setup: &Setup, memory: &MemoryArgs, failed: u64, peak: u64) -> Option<Share> {
    /// The answer must come while the person is still looking.
    const PATIENCE: Duration = Duration::from_secs(3);
    /// A budget that recomputes more than this is no good advice.
    const LIMIT: f64 = 10.0;
    let start = Instant::now();
    let batch = batch(setup).ok()?;
    let percents = (1..=20).map(|i| Share::Percent(f64::from(5 * i)));
    let mut above = percents.filter(|share| share.of(peak) > failed);
    above.find(|share| {
        let passes = start.elapsed() < PATIENCE && {
            let limit = memory.recompute_limit.unwrap_or(LIMIT);
            let builder = memory.builder(share.of(peak), None).recompute_limit(limit);
            builder.sim().and_then(|runtime| rehearse(runtime, &batch, setup)).is_ok()
        };
        passes
    })
}

/// Advice for a budget that did not do.
pub fn advice(setup: &Setup, memory: &MemoryArgs, failed: u64, peak: u64) -> String {
    let unbudgeted = ByteSize(peak);
    match passing_budget(setup, memory, failed, peak) {
        Some(share) => format!(
            "unbudgeted, this peaks at {unbudgeted}; in simulation, --budget {share} ({}) passes",
            ByteSize(share.of(peak))
        ),
        None => format!("unbudgeted, this peaks at {unbudgeted}"),
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
fn rehearse(runtime: Runtime, [images, labels]: &Batch, setup: &Setup) -> Result<u64, Error> {
    let mut session = Session::new(runtime, setup)?;
    for _ in 0..STEPS {
        session.step(Arc::clone(images), Arc::clone(labels), 0.0)?.wait()?;
    }
    session.runtime().sync()?;
    Ok(session.runtime().stats()?.peak_bytes)
}
