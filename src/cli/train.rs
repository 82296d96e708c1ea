//! `remat train`

use super::args::TrainArgs;
use super::failure::Failure;
use super::learn::{Outcome, learn};
use super::output::{Output, check_distinct};
use super::plan::Plan;
use super::progress::Progress;
use super::recording::{Finished, Recording};
use super::report::{Counters, Report};
use super::schedule::Schedule;
use super::session::Setup;
use super::target::{About, Target};
use super::terminal::{print_result, say};
use remat::data::Batches;
use remat::{Error, PolicyKind};

/// Passes over the images when nothing else is said.
const EPOCHS: usize = 20;

/// Trains, tests and reports.
pub fn run(args: &TrainArgs) -> Result<(), Failure> {
    let TrainArgs { model, device, memory, learning, output } = args;
    if let Some(contradiction) = device.contradiction().or_else(|| memory.contradiction()) {
        return Err(Failure::usage(contradiction));
    }
    check_distinct(&[("--record", &output.record), ("--json", &output.json)], &[])?;
    let json = output.json.as_deref().map(Output::create).transpose()?;
    let target = Target::open(device)?;
    let data = learning.data.load(learning.seed)?;
    let setup = Setup {
        model: *model,
        shape: data.train.shape,
        classes: data.train.classes,
        batch: learning.batch,
        momentum: learning.momentum,
        weight_decay: learning.weight_decay,
    };
    let plan = Plan::new(&setup, memory, &target)?;
    let batches = Batches::new(data.train.len(), setup.batch, learning.seed);
    let epochs = learning.epochs.unwrap_or(EPOCHS);
    let steps = learning.steps.unwrap_or_else(|| epochs.saturating_mul(batches.per_epoch()));

    let mut builder = memory.builder(plan.budget, plan.threshold).seed(learning.seed);
    let finished = Finished::default();
    if let Some(path) = &output.record {
        let recording = Recording::create(path, &finished);
        builder = builder.record(recording.map_err(|e| Failure::writing(path, e))?);
    }
    let about = target.about();
    let runtime = target.start(builder)?;
    if !output.quiet {
        say(format_args!(
            "{model} on {}: {} images, {steps} steps of {}",
            learning.data,
            data.train.len(),
            setup.batch
        ));
        say(format_args!("device {about}"));
        say(&plan);
    }
    let schedule = Schedule { peak: learning.lr, steps };
    let progress = Progress::new(steps, output.quiet);
    let outcome = learn(runtime, &setup, &data, batches, schedule, progress, &finished);
    let outcome = outcome.map_err(|error| match error {
        Error::OutOfMemory(_) => Failure::from(error).advice(&plan.advice(&setup, memory)),
        _ => error.into(),
    })?;
    let report = report(args, &plan, steps, about, data.test.len(), &outcome);
    deliver(&report, args, json)?;
    match (outcome.recorded, &output.record) {
        (Err(error), Some(path)) => Err(Failure::writing(path, error)),
        _ => Ok(()),
    }
}

fn report(
    args: &TrainArgs,
    plan: &Plan,
    steps: usize,
    device: About,
    test_images: usize,
    outcome: &Outcome,
) -> Report {
    let TrainArgs { model, memory, learning, .. } = args;
    let (exponents, own_cost) = match memory.policy() {
        PolicyKind::MegEngine { exponents: e, own_cost } => {
            (Some([e.cost, e.bytes, e.staleness]), Some(own_cost))
        }
        _ => (None, None),
    };
    Report {
        model: model.to_string(),
        data: learning.data.to_string(),
        batch: learning.batch,
        steps,
        seed: learning.seed,
        device,
        policy: memory.policy().to_string(),
        exponents,
        own_cost,
        cost_model: memory.cost.to_string(),
        budget_bytes: plan.budget,
        eviction_threshold_bytes: plan.threshold,
        unbudgeted_peak_bytes: plan.unbudgeted,
        peak_bytes: outcome.peak_bytes,
        final_loss: outcome.loss,
        test_accuracy: outcome.test_accuracy,
        test_images,
        parameters: outcome.parameters,
        params_sha256: outcome.params_sha256.clone(),
        train_seconds: outcome.seconds.as_secs_f64(),
        seconds_per_step_median: outcome.median_step.as_secs_f64(),
        counters: Counters::from(&outcome.stats),
    }
}

/// Prints and writes the result.
fn deliver(report: &Report, args: &TrainArgs, json: Option<Output>) -> Result<(), Failure> {
    if !args.output.quiet {
        if matches!(json, Some(Output::Stdout)) {
            say(report);
        } else {
            print_result(&report.to_string())?;
        }
    }
    let Some(json) = json else { return Ok(()) };
    let text = serde_json::to_string_pretty(report);
    json.deliver(&text.map_err(|e| Failure::new(format!("the result has no JSON form: {e}")))?)
}
