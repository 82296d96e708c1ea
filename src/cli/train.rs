//! `remat train`: rehearsal, training and test of a network.

use super::args::{LearningArgs, OutputArgs, Precision, TrainArgs, verifying};
use super::checkpoint::{Kept, Options};
use super::distinct::{self, Input};
use super::failure::Failure;
use super::foreign;
use super::interrupt::{self, Phase};
use super::journal::Journal;
use super::model::{Model, OwnModel};
use super::output::{self, Output};
use super::ranks::World;
use super::recording::{LoopProgress, Recording};
use super::rehearsal::{self, Blank};
use super::report::{Counters, EndingName, OfRank, Report, Verified};
use super::resume::{Resumed, resume};
use super::session::{Setup, Several};
use super::sizes::SizeArgs;
use super::source::Source;
use super::sync::{Mutex, lock};
use super::target::{About, Target};
use super::task::Task;
use super::task::denoise::DenoiseTask;
use super::task::images::ImageTask;
use super::task::ring::RingTask;
use super::task::text::TextTask;
use super::task::trees::TreeTask;
use super::terminal::{Shows, say, show, warn};
use super::tokenizer::Tokenizer;
use super::training_loop::{self, Course, Ending, Outcome, Stop};
use super::waiting::Waiting;
use super::words::{Counted, OnRanks};
use indicatif::HumanCount;
use remat::data::{Augment, Batches, Text};
use remat::tune::{self, ChosenBudget, Forecasts, Rehearsal, TuneError, Tuned, Warning};
use remat::unstable::program::Plan;
use remat::{ByteSize, Error, PolicyKind, Runtime};
use std::path::PathBuf;

/// Rehearses, trains, tests and reports.
pub fn run(args: &TrainArgs, options: &Options, world: &World) -> Result<(), Failure> {
    let TrainArgs { memory, learning, optimizer, checkpoints, output, .. } = args;
    let done = LoopProgress::default();
    // A failure on one rank is a failure of all ranks, so that no rank waits for a rank that has
    // ended.
    let opened = world.agree(Opened::new(args, options, world, &done))?;
    let Opened { json, recording, target, task, several, resumed, kept } = opened;
    world.compare(&kept)?;
    let setup = setup(args, &*task, several.as_ref());
    let steps = steps(args, &setup);
    let data = &learning.data;
    let title = format!("{} on {data}", args.model);
    let (log, plot) = (output.log.as_deref(), output.plot.as_deref());
    let journal = Journal::create(log, plot, title, kept.done, output.quiet);
    let mut journal = world.agree(journal)?;
    let about = target.about();
    let shows = Shows::now(output.quiet);
    // A phase begins before the first line about it, so that Ctrl-C after this line ends this phase.
    Phase::Rehearsal.begin();
    if !output.quiet {
        say(format_args!(
            "{} on {data}: {}, {} of {}{}",
            args.model,
            Counted(task.examples() as u64, task.example()),
            Counted(steps as u64, "step"),
            setup.examples(),
            OnRanks(world.size())
        ));
        if let Some(path) = &checkpoints.resume {
            match &resumed {
                Resumed::Weights(file, fit) => {
                    foreign::tell(file, fit, path);
                    say(
                        "the file has only weights: optimizer, steps and random numbers begin anew",
                    );
                }
                _ => {
                    let done = Counted(kept.done as u64, "step");
                    say(format_args!("resuming {} after {done}", path.display()));
                }
            }
        }
        say(format_args!("device {about}"));
        task.remarks().iter().for_each(warn);
        if setup.examples() > task.examples() {
            warn(format_args!(
                "a batch of {} repeats {}s, because the data has only {}; lower --batch",
                HumanCount(setup.examples() as u64),
                task.example(),
                HumanCount(task.examples() as u64)
            ));
        }
    }
    // A rehearsal on blank batches chooses the budget and the threshold.
    let tested = if learning.no_test && learning.eval_every.is_none() { 0 } else { task.tests() };
    let blank = Blank::new(&setup, tested)?;
    // A recording needs the evictions and regenerations of each command, which a step that runs by
    // plan does not report.
    let plan = if recording.is_some() { Plan::Off } else { memory.plan.into() };
    let waiting = Mutex::new(None);
    let told = |at: tune::Progress| {
        lock(&waiting).get_or_insert_with(|| Waiting::new(shows)).at(at.to_string());
    };
    let stop_waiting = || drop(lock(&waiting).take());
    let mut tuner =
        rehearsal::tuner(&target, memory, learning.seed, plan).steps(steps).progress(told);
    if let Some(budget) = memory.budget() {
        tuner = tuner.budget(budget);
    }
    if let Some(threshold) = memory.eviction_threshold {
        tuner = tuner.eviction_threshold(threshold);
    }
    if let Some(path) = &memory.learn_cache {
        tuner = tuner.cache(path);
    }
    let rehearsal = Rehearsal::new(&tuner, &blank)?;
    let chosen = world.agree(rehearsal.choose().map_err(Failure::from))?;
    stop_waiting();
    journal.unbudgeted(chosen.unbudgeted_peak());
    if !output.quiet {
        say(&chosen);
        chosen.warnings().iter().for_each(warn);
    }
    // Search for forecasts in the chosen budget, by simulated runs.
    let (tuned, learned_by) = learn(world, &rehearsal, chosen)?;
    stop_waiting();
    let chosen = tuned.chosen();
    if !output.quiet {
        let not_kept = |warning: &&Warning| matches!(warning, Warning::NotKept(_));
        tuned.warnings().iter().filter(not_kept).for_each(warn);
        if tuned.budget() < chosen.budget() {
            let [part, all] = [tuned.budget(), chosen.budget()].map(ByteSize);
            say(format_args!(
                "using {part} of the budget of {all}, because a step recomputes less under the smaller limit"
            ));
        }
    }
    // The real run, with the chosen budget and forecasts.
    Phase::Training.begin();
    let mut builder = tuned.builder();
    if let Some(recording) = recording {
        builder = builder.record(recording);
    }
    let runtime = target.start(verifying(builder, memory.verify))?;
    let before = kept.done;
    let course = Course {
        setup: &setup,
        seed: learning.seed,
        schedule: optimizer.schedule(steps),
        steps,
        test: !learning.no_test,
        eval_every: learning.eval_every,
        from: &resumed,
        kept,
        save: checkpoints.save.as_deref(),
        save_every: checkpoints.save_every,
        shows,
        quiet: output.quiet,
    };
    let outcome = training_loop::run(runtime, &course, &mut journal, &done).map_err(|stop| {
        let failure = match stop {
            // Several ranks do not rehearse again, because the other ranks end the job in the
            // meantime.
            Stop::Error(error) if error.is_of_memory() && setup.several.is_none() => {
                let failure = too_small(&tuned, &rehearsal, &error);
                stop_waiting();
                failure
            }
            Stop::Error(error) => error.into(),
            Stop::Failure(failure) => failure,
        };
        match setup.several {
            Some(_) => failure.at(&format!("step {}", 1 + before.max(done.count()))),
            None => failure,
        }
    })?;
    let ranks = match several {
        None => Vec::new(),
        Some(_) => {
            world.exchange("results", OfRank::new(world.rank(), learned_by, &tuned, &outcome))?
        }
    };
    world.end();
    let thrashed = outcome.training.stats.thrashed_steps;
    // A warning that was given before the run is not repeated.
    if thrashed > 0 && !chosen.rehearsed().thrashes && !output.quiet {
        let thrashed = Counted(thrashed, "step");
        let cure = chosen.cure();
        warn(format_args!("{thrashed} recomputed several times the work of a step; {cure}"));
    }
    // The report and all files are delivered even if the run ended early.
    let alike = OfRank::alike(&ranks);
    let report = report(args, &*task, &tuned, steps, about, &outcome, ranks);
    let judged = judge(&outcome, steps, args).and(alike);
    let recorded = match (outcome.recorded, &output.record) {
        (Err(error), Some(path)) => Err(output::unwritten(path, error)),
        _ => Ok(()),
    };
    // The first failure in the list determines the exit code, so the failure of the run precedes
    // the failures of its files.
    output::all([
        judged.map_err(|failure| failure.told_by(world.is_first())),
        outcome.saved,
        print(&report, args),
        recorded.map_err(Failure::beside),
        Output::deliver_to(json, || output::json(&report)).map_err(Failure::beside),
        journal.finish().map_err(Failure::beside),
    ])
}

/// Searches for forecasts. The first of all ranks with the same options searches for all of these
/// ranks. Returns the tuned run, and the number of the rank that searched.
fn learn<'a>(
    world: &World,
    rehearsal: &Rehearsal<'_, 'a, Blank<'_>>,
    chosen: ChosenBudget,
) -> Result<(Tuned<'a>, usize), Failure> {
    if world.several().is_none() {
        return Ok((rehearsal.learn(chosen)?, world.rank()));
    }
    let key = rehearsal.key(&chosen);
    let keys = world.exchange("options of rehearsals", key.clone())?;
    let searcher = keys.iter().position(|other| *other == key).unwrap_or(world.rank());
    let searches = searcher == world.rank();
    let own = world.each(|| match searches {
        true => rehearsal.learn(chosen.clone()).map(Some),
        false => Ok(None),
    })?;
    let own = match interrupt::is_requested() {
        true => Err(TuneError::Interrupted),
        false => own,
    };
    let own = world.agree(own.map_err(Failure::from))?;
    let found = own.as_ref().and_then(Tuned::forecasts).cloned();
    let mut all = world.exchange("forecasts", found)?;
    let tuned = own.unwrap_or_else(|| rehearsal.learned(chosen, all.swap_remove(searcher)));
    Ok((tuned, searcher))
}

/// Failure of a run that ran out of memory, although its rehearsal passed.
fn too_small(
    tuned: &Tuned<'_>,
    rehearsal: &Rehearsal<'_, '_, Blank<'_>>,
    error: &Error,
) -> Failure {
    if tuned.budget() < tuned.chosen().budget() {
        let [part, all] = ByteSize::apart(tuned.budget(), tuned.chosen().budget());
        return Failure::usage(format!(
            "{part} of the budget of {all} passed the rehearsal, but is too small for the run; use the whole budget \
             with --learn ahead\n  {error}"
        ));
    }
    rehearsal.too_small(tuned.chosen(), error).into()
}

/// Parts of a run that are opened before it begins, so that a wrong argument or a file that cannot
/// be written fails early.
struct Opened {
    json: Option<Output>,
    recording: Option<Recording>,
    target: Target,
    task: Box<dyn Task>,
    several: Option<Several>,
    /// The run begins with a checkpoint of `remat train`, with weights of another library, or with
    /// a new network.
    resumed: Resumed,
    kept: Kept,
}

impl Opened {
    fn new(
        args: &TrainArgs,
        options: &Options,
        world: &World,
        done: &LoopProgress,
    ) -> Result<Self, Failure> {
        let TrainArgs { device, memory, learning, optimizer, checkpoints, output, .. } = args;
        // Check the arguments before any file or device is opened.
        let contradiction = device.contradiction().or_else(|| memory.contradiction());
        if let Some(contradiction) = contradiction.or_else(|| optimizer.contradiction()) {
            return Err(Failure::usage(contradiction));
        }
        // No output may overwrite another output or an input.
        let outputs = [
            ("--record", &output.record),
            ("--json", &output.json),
            ("--log", &output.log),
            ("--plot", &output.plot),
            ("--save", &checkpoints.save),
            ("--learn-cache", &memory.learn_cache),
        ];
        let mut inputs = Input::kept(learning.data.path());
        inputs.extend(Input::kept(learning.tokenizer.as_deref()));
        let resumed = checkpoints.resume.as_deref();
        let opened = resumed.map(|path| checkpoints.names.open(path)).transpose()?;
        // `--save` may replace the checkpoint that the run resumes from. `--save` may not replace a
        // file of another library.
        let may_become = matches!(opened, Some((_, None))).then_some("--save");
        let files = opened.iter().flat_map(|(file, _)| file.files()).chain(resumed);
        inputs.extend(files.map(|path| Input { path, may_become }));
        distinct::check(&outputs, &inputs)?;
        interrupt::listen(output.quiet)?;
        checkpoints.check()?;
        let json = output.json.as_deref().map(Output::create).transpose()?;
        let recording = record(output, done)?;
        let target = Target::open(device, world.local(), output.quiet)?;
        let task = task(args)?;
        let several = world.several();
        let several =
            several.map(|ranks| Several::new(ranks, &*task, learning.batch)).transpose()?;
        let examples = setup(args, &*task, several.as_ref()).examples();
        world.fits(task.examples(), examples, task.example())?;
        let new = Kept::new(options, &*task, world.size());
        let resumed = resumed.zip(opened);
        let resumed =
            resumed.map(|(path, opened)| resume(path, opened, &new, &*task)).transpose()?;
        let resumed = resumed.unwrap_or(Resumed::Nothing);
        let kept = match &resumed {
            Resumed::Run(_, kept) => kept.clone(),
            Resumed::Weights(..) | Resumed::Nothing => new,
        };
        Ok(Self { json, recording, target, task, several, resumed, kept })
    }
}

/// Settings of the training.
fn setup<'a>(args: &'a TrainArgs, task: &'a dyn Task, several: Option<&'a Several>) -> Setup<'a> {
    let TrainArgs { learning, optimizer, .. } = args;
    let tests_between = learning.eval_every.is_some();
    Setup { tests_between, several, ..Setup::alone(task, learning.batch, optimizer) }
}

/// Makes the task: a network with data.
pub fn task(args: &TrainArgs) -> Result<Box<dyn Task>, Failure> {
    let TrainArgs { model, sizes, learning, .. } = args;
    let LearningArgs { ref data, seed, image_size, random_crop, random_flip, precision, .. } =
        *learning;
    if image_size.is_some() && !matches!(data, Source::Images(_)) {
        let message = format!(
            "--image-size needs --data images:DIR, but the data is {data}; change --data, or drop --image-size"
        );
        return Err(Failure::usage(message));
    }
    sizes.check(*model)?;
    if learning.tokenizer.is_some() && !matches!(model, Model::Text(_)) {
        let message = format!(
            "--tokenizer is for text models, but {model} is not a text model; drop --tokenizer"
        );
        return Err(Failure::usage(message));
    }
    let changes = [("--random-crop", random_crop > 0), ("--random-flip", random_flip)];
    let changes = changes.iter().find(|(_, given)| *given);
    if let Some((option, _)) = changes.filter(|_| !matches!(model, Model::Images(_))) {
        let message = match model {
            Model::Text(_) => {
                format!("{option} changes images, but {data} is a text; drop {option}")
            }
            _ => {
                format!("{option} is for networks that classify images; drop {option}")
            }
        };
        return Err(Failure::usage(message));
    }
    let made_up = match *model {
        Model::Own(OwnModel::TreeLstm) => Some(Source::Trees),
        Model::Own(OwnModel::UnrolledGan) => Some(Source::Ring),
        _ => None,
    };
    if let Some(source) = made_up
        && (*data != source || precision != Precision::F32)
    {
        let message = format!("{model} needs --data {source} and --precision f32");
        return Err(Failure::usage(message));
    }
    match *model {
        Model::Images(of_images) => {
            let task = ImageTask {
                model: of_images,
                sizes: *sizes,
                data: data.images(*model, seed, image_size)?,
                augment: Augment { crop: random_crop, flip: random_flip },
                storage: precision.into(),
                seed,
            };
            // Make the network on a simulated device first. If this fails, the images are too small
            // for the network, which is an error in the arguments.
            let dry = Runtime::builder().budget(1u64 << 60).sim()?;
            task.network(&dry).map_err(|error| Failure::usage(error.to_string()))?;
            Ok(Box::new(task))
        }
        Model::Text(of_text) => {
            let (text, sizes) = text(args)?;
            Ok(Box::new(TextTask::new(of_text, sizes, text, precision.into(), seed)?))
        }
        Model::Own(OwnModel::TreeLstm) => Ok(Box::new(TreeTask::new(seed))),
        Model::Own(OwnModel::UnrolledGan) => Ok(Box::new(RingTask::new(seed))),
        Model::Own(OwnModel::UNet) => Ok(Box::new(DenoiseTask {
            data: data.images(*model, seed, image_size)?,
            storage: precision.into(),
            seed,
        })),
    }
}

/// The text as tokens, and the sizes of the network, among them the number of different tokens.
fn text(args: &TrainArgs) -> Result<(Text, SizeArgs), Failure> {
    let TrainArgs { model, mut sizes, ref learning, .. } = *args;
    let bytes = learning.data.text(model)?;
    let Some(tokenizer) = &learning.tokenizer else {
        return match sizes.vocabulary() {
            Text::VOCABULARY => Ok((bytes, sizes)),
            other => Err(foreign::needs_tokenizer(&"the network", other)),
        };
    };
    let tokenizer = Tokenizer::open(tokenizer)?;
    sizes.vocabulary = Some(tokenizer.fits(sizes.vocabulary)?);
    let whole = std::str::from_utf8(bytes.bytes()).expect("texts are UTF-8");
    // The test part of the text begins at the same byte as without a tokenizer, rounded down to a
    // whole character.
    let at = whole.floor_char_boundary(bytes.train_len());
    let mut tokens = tokenizer.encode(&whole[..at])?;
    let train = tokens.len();
    tokens.extend(tokenizer.encode(&whole[at..])?);
    Ok((Text::of_tokens(tokens, train), sizes))
}

/// Number of steps of the run.
fn steps(args: &TrainArgs, setup: &Setup<'_>) -> usize {
    let learning = &args.learning;
    let epochs = learning.epochs.unwrap_or(args.model.usual_epochs());
    let an_epoch = Batches::per_epoch(setup.task.examples(), setup.examples());
    learning.steps.unwrap_or_else(|| epochs.saturating_mul(an_epoch))
}

/// Starts the recording if `--record` is given.
fn record(output: &OutputArgs, done: &LoopProgress) -> Result<Option<Recording>, Failure> {
    let Some(path) = &output.record else { return Ok(None) };
    let steps = output.record_steps.unwrap_or(usize::MAX);
    let recording = Recording::create(path, steps, done);
    recording.map(Some).map_err(|e| output::unwritten(path, e))
}

/// Returns a failure if the run ended early or diverged.
fn judge(outcome: &Outcome, asked: usize, args: &TrainArgs) -> Result<(), Failure> {
    let (lr, done) = (args.optimizer.lr(), outcome.training.steps());
    let steps = Counted(asked as u64, "step");
    match outcome.ending {
        Ending::Done => Ok(()),
        Ending::Interrupted => Err(Failure::interrupted(match done < asked {
            true => format!("interrupted after {done} of {steps}"),
            false if args.learning.no_test => format!("interrupted after {steps}"),
            false => format!("interrupted after {steps}, before the end of the test"),
        })),
        Ending::Diverged { since, loss } => Err(Failure::new(format!(
            "the loss is {loss} since step {since} of {steps}; lower --lr, which is {lr}"
        ))),
        Ending::Broken => Err(Failure::new(format!(
            "after {steps} the outputs of the network are not finite; lower --lr, which is {lr}"
        ))),
    }
}

fn report(
    args: &TrainArgs,
    task: &dyn Task,
    tuned: &Tuned<'_>,
    steps: usize,
    device: About,
    outcome: &Outcome,
    ranks: Vec<OfRank>,
) -> Report {
    let TrainArgs { model, memory, learning, optimizer, .. } = args;
    let (chosen, found) = (tuned.chosen(), tuned.forecasts());
    let policy = memory.policy();
    let (exponents, own_cost, rerun_factor) = match policy {
        PolicyKind::MegEngine { exponents, own_cost, rerun_factor } => {
            (Some(exponents), Some(own_cost), Some(rerun_factor))
        }
        PolicyKind::MegEngineArticle(constants) => {
            (Some(constants.exponents), None, Some(constants.rerun_factor))
        }
        _ => (None, None, None),
    };
    let (ending, diverged_since_step) = match outcome.ending {
        Ending::Done => (EndingName::Done, None),
        Ending::Interrupted => (EndingName::Interrupted, None),
        Ending::Diverged { since, .. } => (EndingName::Diverged, Some(since)),
        Ending::Broken => (EndingName::Diverged, None),
    };
    let training = &outcome.training;
    Report {
        model: model.to_string(),
        data: learning.data.to_string(),
        example: task.example(),
        batch: learning.batch,
        accumulate: optimizer.accumulate,
        ranks,
        optimizer: optimizer.optimizer.to_string(),
        ending,
        steps: training.steps(),
        steps_asked: steps,
        seed: learning.seed,
        device,
        policy: policy.to_string(),
        exponents: exponents.map(|e| [e.cost, e.bytes, e.staleness]),
        own_cost,
        rerun_factor,
        cost_model: memory.cost.to_string(),
        budget_bytes: chosen.budget(),
        effective_budget_bytes: tuned.budget(),
        eviction_threshold_bytes: chosen.threshold(),
        full_budget_bytes: chosen.full_budget(),
        unbudgeted_peak_bytes: chosen.unbudgeted_peak(),
        state_bytes: chosen.state(),
        peak_bytes: outcome.peak_bytes,
        final_loss: training.last_loss(),
        diverged_since_step,
        test_accuracy: outcome.test.map(|test| test.score.accuracy()),
        test_loss: outcome.test.map(|test| test.score.mean_loss()),
        test_examples: task.tests(),
        test_told: outcome.test.map(|test| task.tell(&test.score)),
        test_seconds: outcome.test.map(|test| test.seconds.as_secs_f64()),
        parameters: outcome.parameters,
        params_sha256: outcome.params_sha256.clone(),
        train_seconds: training.seconds.as_secs_f64(),
        seconds_per_step_median: training.median_step().map(|time| time.as_secs_f64()),
        learn_seconds: found.map(|found| found.time.as_secs_f64()),
        simulated_ops: found.map(|found| found.simulated_ops),
        predicted_recompute_ratio: found.and_then(Forecasts::predicted),
        least_recompute_ratio: found
            .map(|found| found.least)
            .filter(|_| memory.policy().searches()),
        counters: Counters::from(&training.stats),
        verified: memory.verify.map(|_| Verified::from(&training.stats)),
    }
}

/// Prints the result.
fn print(report: &Report, args: &TrainArgs) -> Result<(), Failure> {
    let OutputArgs { json, record, plot, quiet, .. } = &args.output;
    let takes_stdout = |path: &PathBuf| output::is_stdout(path);
    let stdout_is_taken = [json, record, plot].into_iter().flatten().any(takes_stdout);
    if *quiet { Ok(()) } else { show(report, stdout_is_taken) }
}
