//! The training loop, with the tests during and after it.

use super::checkpoint::{self, Kept};
use super::failure::Failure;
use super::interrupt::{self, Phase};
use super::journal::{self, Journal};
use super::progress::Progress;
use super::recording::LoopProgress;
use super::resume::Resumed;
use super::session::{Answer, Session, Setup, Step};
use super::task::{Part, Score};
use super::terminal::{Shows, warn};
use remat::checkpoint::CheckpointError;
use remat::data::Batches;
use remat::optim::Schedule;
use remat::{Error, Runtime, Stats};
use std::path::Path;
use std::time::{Duration, Instant};

/// The settings of a run.
pub struct Course<'a> {
    pub setup: &'a Setup<'a>,
    /// Seed of the order of the examples.
    pub seed: u64,
    pub schedule: Schedule,
    /// Number of steps of the run. For a resumed run, the steps done before are included.
    pub steps: usize,
    /// Whether the run ends with a test.
    pub test: bool,
    /// Number of steps between tests.
    pub eval_every: Option<usize>,
    /// State at the beginning of the run.
    pub from: &'a Resumed,
    /// Metadata for checkpoints, without the number of finished steps, which [`Kept::after`] sets.
    pub kept: Kept,
    /// File for checkpoints.
    pub save: Option<&'a Path>,
    /// Number of steps between checkpoints. Another checkpoint is written at the end.
    pub save_every: Option<usize>,
    pub shows: Shows,
    pub quiet: bool,
}

impl Course<'_> {
    /// Writes the checkpoint after `done` steps, if `save` names a file. The inner result is the
    /// failure to write the file, which does not end the run.
    fn save(&self, session: &mut Session, done: usize) -> Result<Result<(), Failure>, Stop> {
        let Some(path) = self.save else { return Ok(Ok(())) };
        match session.save(path, self.kept.after(done).text()) {
            Err(CheckpointError::Runtime(error)) => Err(error.into()),
            saved => Ok(saved.map_err(checkpoint::failure)),
        }
    }
}

/// End of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ending {
    /// All steps were done.
    Done,
    /// The run was ended by Ctrl-C.
    Interrupted,
    /// At step `since`, counted from 1, the loss became `loss`, which is NaN or infinite.
    Diverged { since: usize, loss: f32 },
    /// After the last step, outputs of the network are NaN or infinite.
    Broken,
}

/// Result of a run.
pub struct Outcome {
    pub ending: Ending,
    /// Number of learned values in the network.
    pub parameters: usize,
    pub training: Training,
    /// Whether the recording, if any, was written.
    pub recorded: Result<(), Error>,
    /// Whether the last checkpoint, if any, was written.
    pub saved: Result<(), Failure>,
    /// Hash of the parameters and buffers; `None` if a step was abandoned by Ctrl-C.
    pub params_sha256: Option<String>,
    /// Result of the test; `None` without a test, or if Ctrl-C ended the test.
    pub test: Option<Test>,
    /// Most bytes in use at once in the whole run, test included.
    pub peak_bytes: u64,
}

/// Result of the training.
#[derive(Debug, Default)]
pub struct Training {
    /// Number of steps done before this run, if the run was resumed.
    before: usize,
    /// Loss of each step of the run, in order.
    losses: Vec<f32>,
    /// Duration of each step of the run.
    times: Vec<Duration>,
    /// Statistics after the last step, also if that step was abandoned.
    pub stats: Stats,
    pub seconds: Duration,
    /// Time in which this rank sent, received, or waited for other ranks.
    pub waited: Duration,
    /// Whether a step was abandoned halfway.
    is_given_up: bool,
    /// Whether the run was interrupted. All ranks agree on this value.
    is_interrupted: bool,
}

/// Result of the test.
#[derive(Clone, Copy, Debug)]
pub struct Test {
    pub score: Score,
    pub seconds: Duration,
}

impl Training {
    /// Number of finished steps, including the steps done before this run.
    pub const fn steps(&self) -> usize {
        self.before + self.losses.len()
    }

    /// Whether the last loss is finite.
    fn is_sound(&self) -> bool {
        self.last_loss().is_none_or(f32::is_finite)
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

    /// How the training ended: by a loss that is not finite, by Ctrl-C, or after all steps.
    fn ending(&self) -> Ending {
        match self.losses.iter().position(|loss| !loss.is_finite()) {
            Some(step) => {
                Ending::Diverged { since: self.before + step + 1, loss: self.losses[step] }
            }
            None if self.is_interrupted => Ending::Interrupted,
            None => Ending::Done,
        }
    }
}

/// Reason why a run could not be finished.
pub enum Stop {
    /// The runtime failed.
    Error(Error),
    /// Something outside the runtime failed.
    Failure(Failure),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

impl From<CheckpointError> for Stop {
    fn from(error: CheckpointError) -> Self {
        match error {
            CheckpointError::Runtime(error) => Self::Error(error),
            error => Self::Failure(checkpoint::failure(error)),
        }
    }
}

/// Trains a fresh or loaded network, then tests it under the same budget.
pub fn run(
    runtime: Runtime,
    course: &Course<'_>,
    journal: &mut Journal,
    done: &LoopProgress,
) -> Result<Outcome, Stop> {
    let mut session = Session::new(runtime, course.setup)?;
    match course.from {
        Resumed::Nothing => {}
        Resumed::Run(checkpoint, _) => session.load(checkpoint)?,
        Resumed::Weights(checkpoint, _) => session.load_network(checkpoint)?,
    }
    let training = train(&mut session, course, journal, done)?;
    done.run();
    let recorded = session.runtime().finish_recording();
    let saved = match training.is_sound() && !training.is_given_up {
        true => course.save(&mut session, training.steps())?,
        false => Ok(()),
    };
    let (ending, test) = match training.ending() {
        Ending::Done if course.test => test(&mut session, course.setup, course.shows)?,
        ending => (ending, None),
    };
    if let Some(test) = &test {
        journal.test(&test.score, &session.runtime().stats()?);
    }
    // Compute the digest after the test, because the digest reads tensors. A rehearsal computes no
    // digest, so its predicted evictions end before this point.
    let params_sha256 = match training.is_given_up {
        true => None,
        false => Some(session.digest()?),
    };
    Ok(Outcome {
        ending,
        parameters: session.parameters(),
        training,
        recorded,
        saved,
        params_sha256,
        test,
        peak_bytes: session.runtime().stats()?.peak_bytes,
    })
}

/// Runs the steps until all are done, until Ctrl-C, or until a loss is NaN or infinite. While the
/// device works on a step, the next step is issued, so that the device never waits. Therefore the
/// loop issues the next step before it reads the loss of a step.
fn train(
    session: &mut Session,
    course: &Course<'_>,
    journal: &mut Journal,
    done: &LoopProgress,
) -> Result<Training, Stop> {
    let Course { setup, schedule, steps, .. } = course;
    let mut progress = Progress::of_training(*steps, course.shows);
    let mut batches = Batches::new(setup.task.examples(), setup.examples(), course.seed);
    tracing::debug!(target: "remat", steps, "training");
    let before = course.kept.done;
    let mut training = Training { before, ..Training::default() };
    // Several ranks agree in each step whether one of them was interrupted.
    let is_interrupted_alone = || setup.several.is_none() && interrupt::is_requested();
    let waited = || setup.several.map_or(Duration::ZERO, |several| several.ranks.waited());
    let waited_before = waited();
    let start = Instant::now();
    let mut then = start;
    let mut given = before;
    // Skip the batches of the steps done before this run, so that the examples have the same order
    // as in an uninterrupted run.
    (0..before).for_each(|_| {
        batches.next_batch();
    });
    let mut under_way: Option<Step> = None;
    loop {
        // Decide whether a test or a checkpoint precedes the next step.
        let is_due =
            |every: Option<usize>| given > before && every.is_some_and(|n| given.is_multiple_of(n));
        let (is_tested, is_saved) = (is_due(course.eval_every), is_due(course.save_every));
        training.is_interrupted |= is_interrupted_alone();
        let goes_on = given < *steps && !training.is_interrupted && training.is_sound();
        // A test or a checkpoint waits until the previous step is done. No further step is issued
        // in the meantime.
        let waits = (is_tested || is_saved) && under_way.is_some();
        let next = (goes_on && !waits).then(|| {
            let (step, indices) = (given, batches.next_batch());
            given += 1;
            let part = |part| {
                let first = part * setup.batch;
                setup.task.batch(&Part::new(indices, first..first + setup.batch, step))
            };
            session.step(part, schedule.rate(step))
        });
        // The next step is already issued, so the loop can wait for the previous step.
        if let Some(previous) = under_way.take() {
            let answer = previous.wait();
            // The step counts as abandoned whatever its results, because some of its updates may
            // not have been done.
            if interrupt::is_abandoned() {
                if setup.several.is_some() {
                    return Err(Failure::interrupted("the step was abandoned").into());
                }
                training.is_given_up = true;
                break;
            }
            let Answer { loss, stats, is_interrupted } = answer?;
            training.is_interrupted |= is_interrupted;
            let now = Instant::now();
            let time = now - std::mem::replace(&mut then, now);
            training.times.push(time);
            training.losses.push(loss);
            let step = training.steps();
            journal.step(&journal::Done { step, loss, lr: schedule.rate(step - 1), time, stats });
            done.steps(step);
            progress.step(step, loss, &stats);
        }
        under_way = next.transpose()?;
        // No step is running at this point, so the parameters are those after `given` steps.
        if waits && goes_on {
            if is_saved && training.is_sound() {
                let saved = course.save(session, given)?;
                if let Some(failure) = saved.err().filter(|_| !course.quiet) {
                    warn(format_args!("after {given} steps: {failure}; the run continues"));
                }
            }
            if is_tested && let Some(score) = score(session, setup, |_| {})? {
                journal.test(&score, &session.runtime().stats()?);
                progress.test(given, &setup.task.tell(&score));
            }
            then = Instant::now();
        } else if under_way.is_none() {
            session.runtime().sync()?;
            break;
        }
    }
    training.is_interrupted |= is_interrupted_alone();
    training.seconds = start.elapsed();
    training.waited = waited().saturating_sub(waited_before);
    training.stats = session.runtime().stats()?;
    Ok(training)
}

/// Runs the test after training.
pub fn test(
    session: &mut Session,
    setup: &Setup<'_>,
    shows: Shows,
) -> Result<(Ending, Option<Test>), Error> {
    let task = setup.task;
    Phase::Test.begin();
    let mut progress = Progress::of_test(task.tests(), task.example(), shows);
    tracing::debug!(target: "remat", examples = task.tests(), "testing");
    let start = Instant::now();
    match score(session, setup, |done| progress.tested(done))? {
        None => Ok((Ending::Interrupted, None)),
        Some(score) if !score.loss.is_finite() => Ok((Ending::Broken, None)),
        Some(score) => Ok((Ending::Done, Some(Test { score, seconds: start.elapsed() }))),
    }
}

/// Tests the network, in batches as large as in training. Stops early if an output is NaN or
/// infinite. Returns `None` if Ctrl-C ended the test.
fn score(
    session: &mut Session,
    setup: &Setup<'_>,
    mut done: impl FnMut(usize),
) -> Result<Option<Score>, Error> {
    let task = setup.task;
    let indices: Vec<usize> = (0..task.tests()).collect();
    let (mut score, mut tested) = (Score::default(), 0);
    for indices in indices.chunks(setup.batch) {
        match session.score(task.test_batch(indices)) {
            Err(_) if interrupt::is_requested() => return Ok(None),
            of_batch => score.add(of_batch?),
        }
        if !score.loss.is_finite() {
            break;
        }
        tested += indices.len();
        done(tested);
        if interrupt::is_requested() {
            return Ok(None);
        }
    }
    Ok(Some(score))
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
