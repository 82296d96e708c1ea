//! `remat train`

use super::args::TrainArgs;
use super::failure::Failure;
use super::plan;
use super::progress::Progress;
use super::report::{Counters, Report};
use super::schedule::Schedule;
use super::session::{Session, Setup, Step};
use super::terminal::{print_result, say};
use remat::data::{Batches, Images};
use remat::trace::{Event, JsonLines, Recorder, WholeFile};
use remat::{ByteSize, PolicyKind, Stats};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Passes over the images when nothing else is said.
const EPOCHS: usize = 20;

/// Trains, tests and reports.
pub fn run(args: &TrainArgs) -> Result<(), Failure> {
    let TrainArgs { model, memory, learning, output } = args;
    if let Some(contradiction) = memory.contradiction() {
        return Err(Failure::usage(contradiction));
    }
    // What cannot be written should be known before an hour of training, not after.
    let json = output.json.as_deref().filter(|path| path.as_os_str() != "-");
    let json =
        json.map(|path| (path, WholeFile::create(path).map_err(|e| Failure::writing(path, e))));
    let json = json.map(|(path, file)| file.map(|file| (path, file))).transpose()?;

    let data = learning.data.load(learning.seed)?;
    let setup = Setup {
        model: *model,
        shape: data.train.shape,
        classes: data.train.classes,
        batch: learning.batch,
        momentum: learning.momentum,
        weight_decay: learning.weight_decay as f32,
        seed: learning.seed,
    };
    let unbudgeted = plan::unbudgeted_peak(&setup)?;
    let budget = memory.budget.of(unbudgeted);
    let threshold = memory.eviction_threshold.map(|share| share.of(unbudgeted));

    let mut builder = memory.builder(budget, threshold).seed(setup.seed);
    let threads = learning
        .threads
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    builder = builder.threads(threads);
    let whole = Arc::<AtomicBool>::default();
    if let Some(path) = &output.record {
        let lines = JsonLines::create(path).map_err(|e| Failure::writing(path, e))?;
        builder = builder.record(WholeRuns { lines: Some(lines), whole: Arc::clone(&whole) });
    }
    let runtime = builder.cpu()?;
    let explain = |failure: Failure, error_is_memory: bool| {
        if error_is_memory {
            failure.advice(&plan::advice(&setup, memory, budget, unbudgeted))
        } else {
            failure
        }
    };
    let out_of_memory = |error: remat::Error| {
        let memory = matches!(error, remat::Error::OutOfMemory(_));
        explain(error.into(), memory)
    };

    let mut session = Session::new(runtime, &setup).map_err(out_of_memory)?;
    let mut batches = Batches::new(data.train.len(), setup.batch, setup.seed);
    let epochs = learning.epochs.unwrap_or(EPOCHS);
    let steps = learning.steps.unwrap_or_else(|| epochs.saturating_mul(batches.per_epoch()));
    let parameters = session.parameters();
    if !output.quiet {
        say(format_args!(
            "{model} ({parameters} parameters) on {}: {} images, {steps} steps of {}",
            learning.data,
            data.train.len(),
            setup.batch
        ));
        say(format_args!(
            "budget {}, {:.0} % of the {} that this takes unbudgeted",
            ByteSize(budget),
            100.0 * budget as f64 / unbudgeted as f64,
            ByteSize(unbudgeted)
        ));
    }
    let schedule = Schedule { peak: learning.lr, steps };
    let progress = Progress::new(steps, output.quiet);
    let trained = learn(&mut session, &data.train, &mut batches, schedule, progress)
        .map_err(out_of_memory)?;

    whole.store(true, Ordering::Relaxed);
    let recorded = session.runtime().finish_recording();
    let params_sha256 = session.digest().map_err(out_of_memory)?;
    let test_accuracy = session.accuracy(&data.test, setup.batch).map_err(out_of_memory)?;
    let peak_bytes = session.runtime().stats()?.peak_bytes;

    let (exponents, own_cost) = match memory.policy() {
        PolicyKind::MegEngine { exponents: e, own_cost } => {
            (Some([e.cost, e.bytes, e.staleness]), Some(own_cost))
        }
        _ => (None, None),
    };
    let report = Report {
        model: model.to_string(),
        data: learning.data.to_string(),
        batch: setup.batch,
        steps,
        seed: setup.seed,
        device: "cpu",
        threads,
        policy: memory.policy.name(),
        exponents,
        own_cost,
        cost_model: memory.cost.to_string(),
        budget_bytes: budget,
        eviction_threshold_bytes: threshold,
        unbudgeted_peak_bytes: unbudgeted,
        peak_bytes,
        final_loss: trained.loss,
        test_accuracy,
        test_images: data.test.len(),
        parameters,
        params_sha256,
        train_seconds: trained.seconds.as_secs_f64(),
        seconds_per_step_median: trained.median_step.as_secs_f64(),
        counters: Counters::from(&trained.stats),
    };
    deliver(&report, args, json)?;
    match (recorded, &output.record) {
        (Err(error), Some(path)) => Err(Failure::writing(path, error)),
        _ => Ok(()),
    }
}

/// What came of training.
struct Trained {
    loss: f32,
    stats: Stats,
    seconds: Duration,
    median_step: Duration,
}

/// Runs all steps. While the device is at one, the next is being given, so it never waits; and a step
/// that fails is known one step later.
fn learn(
    session: &mut Session,
    images: &Images,
    batches: &mut Batches,
    schedule: Schedule,
    mut progress: Progress,
) -> Result<Trained, remat::Error> {
    let start = Instant::now();
    let mut last = start;
    let mut times = Vec::new();
    let mut result = (f32::NAN, Stats::default());
    let mut under_way: Option<Step> = None;
    for step in 0..=schedule.steps {
        let next = (step < schedule.steps).then(|| {
            let (images, labels) = images.batch(batches.next_batch());
            session.step(Arc::new(images), Arc::new(labels), schedule.rate(step))
        });
        if let Some(previous) = under_way.take() {
            result = previous.wait()?;
            let now = Instant::now();
            times.push(now - std::mem::replace(&mut last, now));
            progress.step(step, result.0, &result.1);
        }
        under_way = next.transpose()?;
    }
    session.runtime().sync()?;
    let median = times.len() / 2;
    let median_step = *times.select_nth_unstable(median).1;
    let (loss, stats) = result;
    Ok(Trained { loss, stats, seconds: start.elapsed(), median_step })
}

/// Prints and writes the result.
fn deliver(
    report: &Report,
    args: &TrainArgs,
    file: Option<(&Path, WholeFile)>,
) -> Result<(), Failure> {
    let to_stdout = args.output.json.as_deref() == Some(Path::new("-"));
    let json = || {
        let json = serde_json::to_string_pretty(report);
        json.map_err(|error| Failure::new(format!("the result has no JSON form: {error}")))
    };
    if !args.output.quiet {
        if to_stdout {
            say(report);
        } else {
            print_result(&report.to_string())?;
        }
    }
    if to_stdout {
        print_result(&json()?)?;
    }
    if let Some((path, mut file)) = file {
        let written = writeln!(file, "{}", json()?).and_then(|()| file.finish());
        written.map_err(|error| Failure::writing(path, error))?;
    }
    Ok(())
}

/// Keeps the trace of a run that went to its end, and no other.
#[derive(Debug)]
struct WholeRuns {
    lines: Option<JsonLines>,
    whole: Arc<AtomicBool>,
}

impl Recorder for WholeRuns {
    fn record(&mut self, event: &Event) {
        if let Some(lines) = &mut self.lines {
            lines.record(event);
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        match self.lines.take() {
            Some(mut lines) if self.whole.load(Ordering::Relaxed) => lines.finish(),
            _ => Ok(()),
        }
    }
}
