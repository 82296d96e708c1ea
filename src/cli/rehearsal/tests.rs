use super::*;
use crate::cli::args::TrainArgs;
use crate::cli::command::{Cli, Command};
use crate::cli::model::ImageModel::{self, Mlp, ResNet20};
use crate::cli::model::Model;
use crate::cli::sizes::SizeArgs;
use crate::cli::task::images::ImageTask;
use crate::cli::task::{Part, Task};
use clap::Parser as _;
use remat::data::{Augment, Dataset};
use remat::error::RegenerationError;
use remat::evict::Learn;
use remat::tune::ChosenBudget;
use remat::{Builder, DType, OutOfMemory, PolicyKind};

const CPU: Target = Target::Cpu { threads: 1, ranks: 1 };

fn digits(model: ImageModel) -> ImageTask {
    ImageTask {
        model,
        sizes: SizeArgs::default(),
        data: Dataset::digits(),
        augment: Augment::default(),
        storage: DType::F32,
        seed: 0,
    }
}

fn setup<'a>(task: &'a dyn Task, batch: usize, args: &'a TrainArgs) -> Setup<'a> {
    Setup::alone(task, batch, &args.optimizer)
}

fn args(args: &str) -> TrainArgs {
    let args = ["remat", "train"].into_iter().chain(args.split_whitespace());
    match Cli::try_parse_from(args).unwrap().command {
        Some(Command::Train(args)) => *args,
        other => panic!("{other:?}"),
    }
}

/// Runs steps and a test on real images. Returns the number of evictions and the peak in bytes.
fn run(
    setup: &Setup<'_>,
    builder: Builder,
    steps: usize,
    tested: usize,
) -> Result<[u64; 2], Error> {
    let mut session = Session::new(builder.threads(1).cpu()?, setup)?;
    let indices = |from: usize, n| (from..from + n).collect::<Vec<_>>();
    for step in 0..steps {
        let batch = |_| setup.task.batch(&Part::whole(&indices(step, setup.batch), step));
        session.step(batch, 0.1)?.wait()?;
    }
    for from in (0..tested).step_by(setup.batch) {
        let n = setup.batch.min(tested - from);
        session.score(setup.task.test_batch(&indices(from, n)))?;
    }
    session.digest()?;
    let stats = session.runtime().stats()?;
    Ok([stats.evictions, stats.peak_bytes])
}

/// Checks that real runs with these options have as many evictions as their rehearsals. Returns the
/// number of evictions.
fn evictions_as_rehearsed(options: &str) -> u64 {
    let mut evictions = 0;
    let args = args(options);
    let memory = &args.memory;
    for (model, batch) in [(ResNet20, 8), (ResNet20, 32), (Mlp, 48)] {
        let task = digits(model);
        let setup = setup(&task, batch, &args);
        let tested = batch + batch / 2;
        let blank = Blank::new(&setup, tested).unwrap();
        let tuner = tuner(&CPU, memory, 7, Plan::Off).steps(3);
        let rehearsal = Rehearsal::new(&tuner, &blank).unwrap();
        let peak = rehearsal.unlimited().unwrap().peak_bytes;
        for percent in [30, 55, 80, 100] {
            let budget = peak * percent / 100;
            let rehearsed = rehearsal.under(budget, None, None).unwrap();
            let ahead = |builder: Builder| match memory.policy().searches() {
                true => builder.policy(PolicyKind::Learned(Learn::Ahead)),
                false => builder,
            };
            let builder = ahead(rehearsal.builder(budget, None));
            let other = rehearsed.as_ref().ok().and_then(|rehearsed| rehearsed.policy);
            let builder = match other {
                Some(policy) => builder.policy(policy),
                None => builder,
            };
            let real = run(&setup, builder, 3, tested);
            match (rehearsed, real) {
                (Ok(rehearsed), Ok(real)) => {
                    assert_eq!([rehearsed.evictions, rehearsed.peak_bytes], real);
                    evictions += real[0];
                }
                (Err(rehearsed), Err(real)) => {
                    // The out-of-memory error of a real run names a budget that passes. The error
                    // of a rehearsal names no budget, because rehearsals are used to find the
                    // passing budget.
                    let without = |error: &Error| match error {
                        Error::OutOfMemory(report) => {
                            OutOfMemory { passing: None, ..OutOfMemory::clone(report) }.to_string()
                        }
                        other => other.to_string(),
                    };
                    assert_eq!(without(&rehearsed), without(&real));
                }
                (rehearsed, real) => {
                    panic!("{options} {model:?} {batch} {percent} %: {rehearsed:?}, {real:?}")
                }
            }
        }
    }
    evictions
}

#[test]
fn a_run_does_what_its_rehearsal_did() {
    let evictions = [
        "",
        "--learn ahead",
        "--policy lru --dead keep",
        "--policy megengine --cost bytes",
        "--policy random",
        "--optimizer adamw --clip 1",
        "--optimizer lion --accumulate 3",
    ]
    .map(evictions_as_rehearsed);
    assert!(evictions.iter().sum::<u64>() > 0);
}

#[test]
fn a_budget_said_to_fit_never_evicts_in_a_long_run() {
    let args = args("--min-evict-bytes 0 --policy lru");
    for (model, batch, steps) in [(ResNet20, 1, 120), (ResNet20, 32, 60), (Mlp, 8, 30)] {
        let task = digits(model);
        let setup = setup(&task, batch, &args);
        let blank = Blank::new(&setup, batch).unwrap();
        let tuner = tuner(&CPU, &args.memory, 0, Plan::Off).steps(steps);
        let rehearsal = Rehearsal::new(&tuner, &blank).unwrap();
        let mut budget = rehearsal.unlimited().unwrap().peak_bytes;
        assert!(!rehearsal.fits(budget / 2).unwrap());
        while !rehearsal.fits(budget).unwrap() {
            budget += budget / 400;
        }
        let runtime = args.memory.builder().budget(budget).sim().unwrap();
        let mut training = blank.start(&runtime).unwrap();
        (0..steps).for_each(|_| training.step().unwrap());
        training.test().unwrap();
        assert_eq!(runtime.stats().unwrap().evictions, 0, "{model:?}, {batch}");
    }
}

#[test]
fn a_recompute_limit_holds_for_the_whole_run() {
    let (args, task) = (args("--policy dtr-eq"), digits(ResNet20));
    let setup = setup(&task, 32, &args);
    let blank = Blank::new(&setup, 0).unwrap();
    let of_steps = |steps| tuner(&CPU, &args.memory, 0, Plan::Off).steps(steps);
    let (short, long) = (of_steps(4), of_steps(1000));
    let short = Rehearsal::new(&short, &blank).unwrap();
    let budget = short.unlimited().unwrap().peak_bytes * 6 / 10;
    let rehearsed = short.under(budget, None, None).unwrap().unwrap();
    // The first step recomputes less than the other steps.
    assert!(rehearsed.recompute_ratio < rehearsed.step_ratio);
    let limit = Some(rehearsed.step_ratio * 0.999);
    assert!(short.under(budget, None, limit).unwrap().is_ok());
    let long = Rehearsal::new(&long, &blank).unwrap();
    let error = long.under(budget, None, limit).unwrap().unwrap_err();
    let Error::Regeneration(error) = error else { panic!("{error}") };
    assert!(matches!(*error, RegenerationError::RecomputeLimit { .. }), "{error}");
}

fn rehearse<R>(options: &str, then: impl FnOnce(&Rehearsal<'_, '_, Blank<'_>>) -> R) -> R {
    rehearse_steps(4, options, then)
}

/// Rehearses ResNet-20 on digits with `options`.
fn rehearse_steps<R>(
    steps: usize,
    options: &str,
    then: impl FnOnce(&Rehearsal<'_, '_, Blank<'_>>) -> R,
) -> R {
    let args = args(options);
    let Model::Images(model) = args.model else { panic!("{options}") };
    let task = digits(model);
    let setup = setup(&task, args.learning.batch, &args);
    let blank = Blank::new(&setup, 40).unwrap();
    let mut tuner = tuner(&CPU, &args.memory, 0, Plan::Off).steps(steps);
    if let Some(budget) = args.memory.budget() {
        tuner = tuner.budget(budget);
    }
    if let Some(threshold) = args.memory.eviction_threshold {
        tuner = tuner.eviction_threshold(threshold);
    }
    then(&Rehearsal::new(&tuner, &blank).unwrap())
}

fn choose(options: &str) -> ChosenBudget {
    rehearse(options, |rehearsal| rehearsal.choose().unwrap())
}

#[test]
fn a_budget_of_its_own_choice_passes_with_a_margin_where_costs_vary() {
    let (fixed, varying) = (choose("--batch 32"), choose("--batch 32 --cost measured"));
    assert!(varying.to_string().ends_with("so this budget has a margin of 5 %"));
    assert!(!fixed.to_string().contains("margin"));
    rehearse("--batch 32 --cost measured", |rehearsal| {
        let less = (varying.budget() as f64 * 0.95) as u64;
        assert!(rehearsal.under(less, None, None).unwrap().is_ok());
    });
}

#[test]
fn a_threshold_that_cannot_be_met_is_told_of_one_that_can() {
    let told = |chosen: &ChosenBudget| {
        chosen.warnings().iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    };
    let (mut failed, mut met) = (0, 0);
    for model in ["mlp", "resnet20"] {
        for percent in [5, 20, 35, 50, 65, 80, 95] {
            let threshold = |percent| format!("{model} --batch 32 --eviction-threshold {percent}%");
            let warnings = told(&choose(&threshold(percent)));
            let enough = warnings.split_once("raise --eviction-threshold to ");
            let Some((enough, _)) = enough.and_then(|(_, text)| text.split_once('%')) else {
                assert!(!warnings.contains("cannot be met"), "{warnings}");
                met += 1;
                continue;
            };
            failed += 1;
            let enough = enough.parse().unwrap();
            assert!(enough > percent);
            let warnings = told(&choose(&threshold(enough)));
            assert!(!warnings.contains("cannot be met"), "{model} {percent} {enough}: {warnings}");
        }
    }
    assert!(failed >= 4 && met >= 4, "{failed} {met}");
}

#[test]
fn a_run_of_one_step_evicts_where_its_budget_says_it_does() {
    for model in ["mlp", "resnet20"] {
        for batch in [1, 32] {
            let options = format!("{model} --batch {batch} --policy none --budget 100%");
            rehearse_steps(1, &options, |rehearsal| {
                let chosen = rehearsal.choose().unwrap();
                assert!(rehearsal.under(chosen.full_budget(), None, None).unwrap().is_ok());
                // The full budget is at least the peak, and a budget one byte below the peak is too
                // small.
                assert!(chosen.unbudgeted_peak() <= chosen.full_budget());
                let less = chosen.unbudgeted_peak() - 1;
                assert!(rehearsal.under(less, None, None).unwrap().is_err(), "{options}");
            });
        }
    }
}

#[test]
fn a_run_that_fails_all_the_same_is_told_of_a_larger_budget_that_passes() {
    rehearse("--batch 32 --budget 60%", |rehearsal| {
        let chosen = rehearsal.choose().unwrap();
        let error = rehearsal.under(chosen.state(), None, None).unwrap().unwrap_err();
        let message = rehearsal.too_small(&chosen, &error).to_string();
        assert!(message.contains("out of memory"), "{message}");
        assert!(message.contains("is too small; --budget 61% ("), "{message}");
    });
}
