//! The training loop, and the test after it.

use super::progress::Progress;
use super::recording::Finished;
use super::schedule::Schedule;
use super::session::{Session, Setup, Step};
use remat::data::{Batches, Dataset, Images};
use remat::{Error, Runtime, Stats};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What came of a run.
pub struct Outcome {
    /// Learned values in the network.
    pub parameters: usize,
    /// Of the last step.
    pub loss: f32,
    /// At the end of training.
    pub stats: Stats,
    /// Of training.
    pub seconds: Duration,
    pub median_step: Duration,
    /// Whether the recording, if any, is safe.
    pub recorded: Result<(), Error>,
    pub params_sha256: String,
    pub test_accuracy: f64,
    /// Of the whole run, test included.
    pub peak_bytes: u64,
}

/// Trains a fresh network, then tests it under the same budget.
pub fn learn(
    runtime: Runtime,
    setup: &Setup,
    data: &Dataset,
    mut batches: Batches,
    schedule: Schedule,
    progress: Progress,
    finished: &Finished,
) -> Result<Outcome, Error> {
    let mut session = Session::new(runtime, setup)?;
    let start = Instant::now();
    let (loss, stats, mut times) =
        all_steps(&mut session, &data.train, &mut batches, schedule, progress)?;
    let seconds = start.elapsed();
    finished.set();
    let median = times.len() / 2;
    Ok(Outcome {
        parameters: session.parameters(),
        loss,
        stats,
        seconds,
        median_step: *times.select_nth_unstable(median).1,
        recorded: session.runtime().finish_recording(),
        params_sha256: session.digest()?,
        test_accuracy: session.accuracy(&data.test, setup.batch)?,
        peak_bytes: session.runtime().stats()?.peak_bytes,
    })
}

/// Runs all steps: the last loss, the counters, and how long each took. While the device is at one step
/// the next is being given, so it never waits; and a step that fails is known one step later.
fn all_steps(
    session: &mut Session,
    images: &Images,
    batches: &mut Batches,
    schedule: Schedule,
    mut progress: Progress,
) -> Result<(f32, Stats, Vec<Duration>), Error> {
    let mut times = Vec::new();
    let mut last = (f32::NAN, Stats::default());
    let mut then = Instant::now();
    let mut under_way: Option<Step> = None;
    for step in 0..=schedule.steps {
        let next = (step < schedule.steps).then(|| {
            let (images, labels) = images.batch(batches.next_batch());
            session.step(Arc::new(images), Arc::new(labels), schedule.rate(step))
        });
        if let Some(previous) = under_way.take() {
            last = previous.wait()?;
            let now = Instant::now();
            times.push(now - std::mem::replace(&mut then, now));
            progress.step(step, last.0, &last.1);
        }
        under_way = next.transpose()?;
    }
    session.runtime().sync()?;
    Ok((last.0, last.1, times))
}
