//! The training loop, and the test after it.

use super::interrupt::{self, Phase};
use super::progress::Progress;
use super::recording::Done;
use super::schedule::Schedule;
use super::session::{Session, Setup, Step};
use super::terminal::Shows;
use remat::data::{Batches, Dataset};
use remat::{Error, Runtime, Stats};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What is to be done.
pub struct Course<'a> {
    pub setup: &'a Setup,
    pub data: &'a Dataset,
    /// Of the order of the images.
    pub seed: u64,
    pub schedule: Schedule,
    /// Whether there is a test.
    pub test: bool,
    pub shows: Shows,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ending {
    /// All steps were done.
    Done,
    /// By Ctrl-C.
    Interrupted,
    /// In this loss, at this step, counted from 1.
    Diverged { since: usize, loss: f32 },
    /// The last step left a network that gives no numbers any more.
    Broken,
}

/// What came of a run.
pub struct Outcome {
    pub ending: Ending,
    /// Learned values in the network.
    pub parameters: usize,
    pub training: Training,
    /// Whether the recording, if any, is safe.
    pub recorded: Result<(), Error>,
    /// `None`: Ctrl-C came in the middle of a step.
    pub params_sha256: Option<String>,
    /// `None`: there was none, or it did not end.
    pub test: Option<Test>,
    /// Of the whole run, test included.
    pub peak_bytes: u64,
}

/// What came of training.
#[derive(Debug, Default)]
pub struct Training {
    /// The loss of each step that was done, in order.
    losses: Vec<f32>,
    /// How long each of them took.
    times: Vec<Duration>,
    /// At the end, a step that was given up included.
    pub stats: Stats,
    pub seconds: Duration,
    /// Whether a step was given up, half done.
    is_given_up: bool,
}

/// What came of the test.
#[derive(Clone, Copy, Debug)]
pub struct Test {
    /// The part of the images that is classified right.
    pub accuracy: f64,
    pub seconds: Duration,
}

impl Training {
    /// Steps that were done.
    pub const fn steps(&self) -> usize {
        self.losses.len()
    }

    pub fn last_loss(&self) -> Option<f32> {
        self.losses.last().copied()
    }

    pub fn median_step(&self) -> Option<Duration> {
        let mut times = self.times.clone();
        times.sort_unstable();
        let middle = times.get(times.len().checked_sub(1)? / 2..=times.len() / 2)?;
        Some(middle.iter().sum::<Duration>() / middle.len() as u32)
    }

    /// Whether, and from when on, the loss is no number.
    fn ending(&self) -> Ending {
        match self.losses.iter().position(|loss| !loss.is_finite()) {
            Some(step) => Ending::Diverged { since: step + 1, loss: self.losses[step] },
            None if interrupt::is_requested() => Ending::Interrupted,
            None => Ending::Done,
        }
    }
}

/// Trains a fresh network, then tests it under the same budget.
pub fn learn(runtime: Runtime, course: &Course<'_>, done: &Done) -> Result<Outcome, Error> {
    let mut session = Session::new(runtime, course.setup)?;
    let training = train(&mut session, course, done)?;
    done.run();
    let recorded = session.runtime().finish_recording();
    let params_sha256 = match training.is_given_up {
        true => None,
        false => Some(session.digest()?),
    };
    let (ending, test) = match training.ending() {
        Ending::Done if course.test => test(&mut session, course)?,
        ending => (ending, None),
    };
    Ok(Outcome {
        ending,
        parameters: session.parameters(),
        training,
        recorded,
        params_sha256,
        test,
        peak_bytes: session.runtime().stats()?.peak_bytes,
    })
}

/// Runs all steps, or until Ctrl-C, or until the loss is no number. While the device is at one step the
/// next is being given, so it never waits; and what a step came to is known one step later.
fn train(session: &mut Session, course: &Course<'_>, done: &Done) -> Result<Training, Error> {
    let Course { setup, data, schedule, .. } = course;
    Phase::Training.begin();
    let mut progress = Progress::of_training(schedule.steps, course.shows);
    let mut batches = Batches::new(data.train.len(), setup.batch, course.seed);
    tracing::debug!(target: "remat", steps = schedule.steps, "training");
    let mut training = Training::default();
    let start = Instant::now();
    let mut then = start;
    let mut given = 0;
    let mut under_way: Option<Step> = None;
    loop {
        let goes_on = given < schedule.steps
            && !interrupt::is_requested()
            && training.last_loss().is_none_or(f32::is_finite);
        let next = goes_on.then(|| {
            let (images, labels) = data.train.batch(batches.next_batch());
            given += 1;
            session.step(Arc::new(images), Arc::new(labels), schedule.rate(given - 1))
        });
        if let Some(previous) = under_way.take() {
            let answer = previous.wait();
            // Whatever it says: some of its updates may have been given up.
            if interrupt::is_abandoned() {
                training.is_given_up = true;
                break;
            }
            let (loss, stats) = answer?;
            let now = Instant::now();
            training.times.push(now - std::mem::replace(&mut then, now));
            training.losses.push(loss);
            done.steps(training.steps());
            progress.step(training.steps(), loss, &stats);
        }
        under_way = next.transpose()?;
        if under_way.is_none() {
            session.runtime().sync()?;
            break;
        }
    }
    training.seconds = start.elapsed();
    training.stats = session.runtime().stats()?;
    Ok(training)
}

/// Tests in batches like those of training, until the end or Ctrl-C.
fn test(session: &mut Session, course: &Course<'_>) -> Result<(Ending, Option<Test>), Error> {
    let images = &course.data.test;
    Phase::Test.begin();
    let mut progress = Progress::of_test(images.len(), course.shows);
    tracing::debug!(target: "remat", images = images.len(), "testing");
    let start = Instant::now();
    let indices: Vec<usize> = (0..images.len()).collect();
    let (mut right, mut done) = (0, 0);
    for indices in indices.chunks(course.setup.batch) {
        let (x, labels) = images.batch(indices);
        let answer = match session.infer(Arc::new(x)) {
            Err(_) if interrupt::is_requested() => return Ok((Ending::Interrupted, None)),
            answer => answer?,
        };
        let values = answer.as_f32().expect("logits are floats");
        if !values.iter().all(|value| value.is_finite()) {
            return Ok((Ending::Broken, None));
        }
        let rows = values.chunks(images.classes);
        let labels = labels.as_i32().expect("labels are integers");
        right += rows.zip(labels).filter(|&(row, &label)| largest(row) == label as usize).count();
        done += indices.len();
        progress.tested(done);
        if interrupt::is_requested() {
            return Ok((Ending::Interrupted, None));
        }
    }
    let accuracy = right as f64 / images.len() as f64;
    Ok((Ending::Done, Some(Test { accuracy, seconds: start.elapsed() })))
}

/// Position of the largest value.
fn largest(row: &[f32]) -> usize {
    (1..row.len()).fold(0, |best, i| if row[i] > row[best] { i } else { best })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_between_the_middle_two() {
        for (times, median) in
            [(&[][..], None), (&[3], Some(3)), (&[5, 1], Some(3)), (&[9, 1, 2], Some(2))]
        {
            let times = times.iter().copied().map(Duration::from_secs).collect();
            let training = Training { times, ..Training::default() };
            assert_eq!(training.median_step(), median.map(Duration::from_secs));
        }
    }
}
