use super::*;
use crate::cli::command::{Cli, Command};
use crate::cli::model::Model;
use crate::cli::session::Setup;
use crate::cli::sizes::SizeArgs;
use crate::cli::task::images::ImageTask;
use clap::Parser as _;
use remat::DType;
use remat::data::{Augment, Dataset};
use remat::device::sim::Sim;
use std::sync::Arc;

const PLAN: ChosenBudget = ChosenBudget {
    needs: Needs {
        full_budget: 10 << 20,
        peak: 10 << 20,
        state: 2 << 20,
        threshold: None,
        is_measured: false,
    },
    budget: 4 << 20,
    reason: Reason::Usual,
    rehearsed: Rehearsed {
        evictions: 5,
        peak_bytes: 0,
        state_bytes: 2 << 20,
        unevictable_bytes: 0,
        recompute_ratio: 0.5,
        step_ratio: 0.5,
        thrashes: false,
        is_settled: true,
        policy: None,
        is_stopped: false,
        simulated_ops: 0,
    },
    threshold_thrashes: false,
    free: None,
};
const NONE: Rehearsed = Rehearsed { evictions: 0, ..PLAN.rehearsed };
const THRASH: Rehearsed = Rehearsed { thrashes: true, step_ratio: 5.25, ..PLAN.rehearsed };

fn with_threshold(mebibytes: u64) -> ChosenBudget {
    ChosenBudget { needs: Needs { threshold: Some(mebibytes << 20), ..PLAN.needs }, ..PLAN }
}

#[test]
fn a_budget_is_told_with_its_reason() {
    let auto = ChosenBudget { budget: 40 << 30, reason: Reason::Auto, rehearsed: NONE, ..PLAN };
    let smallest = ChosenBudget { budget: 9 << 20, reason: Reason::Passes, ..PLAN };
    let asked = ChosenBudget { reason: Reason::Asked, budget: 8 << 20, ..with_threshold(6) };
    for (chosen, text) in [
        (PLAN, "budget 4.00 MiB (default), 40 % of the 10.00 MiB it takes without evictions"),
        (auto, "budget 40.00 GiB (auto); it takes 10.00 MiB, so nothing is evicted"),
        (
            smallest,
            "budget 9.00 MiB (default), 90 % of the 10.00 MiB it takes without evictions\n  \
             the usual 40 % is too small; parameters and optimizer state take 2.00 MiB",
        ),
        (
            asked,
            "budget 8.00 MiB, 80 % of the 10.00 MiB it takes without evictions; evicts above \
             6.00 MiB",
        ),
    ] {
        assert_eq!(chosen.to_string(), text);
    }
}

#[test]
fn a_warning_blames_what_is_to_blame() {
    let warning = |chosen: &ChosenBudget| chosen.warnings().join("; ");
    assert_eq!(warning(&PLAN), "");
    let kept = |mebibytes: u64| Rehearsed { unevictable_bytes: mebibytes << 20, ..PLAN.rehearsed };
    assert_eq!(warning(&ChosenBudget { rehearsed: kept(2), ..with_threshold(2) }), "");
    let text = "the eviction threshold of 2.00 MiB cannot be met, as up to 3.00 MiB cannot be evicted \
                (parameters and optimizer state take 2.00 MiB); raise --eviction-threshold to 30%, or drop it";
    assert_eq!(warning(&ChosenBudget { rehearsed: kept(3), ..with_threshold(2) }), text);
    let large = Rehearsed { peak_bytes: 3 << 20, ..PLAN.rehearsed };
    let large = ChosenBudget { rehearsed: large, free: Some(2 << 20), ..PLAN };
    let text = "the run takes 3.00 MiB, but only 2.00 MiB are free; lower --budget or --batch";
    assert_eq!(warning(&large), text);
    let text = "a step will recompute 5.2 times its own work; ";
    let thrash = ChosenBudget { rehearsed: THRASH, ..PLAN };
    assert_eq!(warning(&thrash), format!("{text}raise --budget"));
    let both = ChosenBudget { rehearsed: THRASH, ..with_threshold(3) };
    assert_eq!(warning(&both), format!("{text}raise --budget and --eviction-threshold"));
    let threshold = ChosenBudget { threshold_thrashes: true, ..both };
    assert_eq!(warning(&threshold), format!("{text}raise --eviction-threshold, or drop it"));
    // What was said before is not said again.
    assert_eq!(threshold.late_warning(3), None);
    assert_eq!(PLAN.late_warning(0), None);
    let late = PLAN.late_warning(3).unwrap();
    assert_eq!(late, "3 steps recomputed several times the work of a step; raise --budget");
}

fn rehearse<R>(options: &str, then: impl FnOnce(&Rehearsal<'_>) -> R) -> R {
    rehearse_steps(4, options, then)
}

/// ResNet-20 on digits, with these options.
fn rehearse_steps<R>(steps: usize, options: &str, then: impl FnOnce(&Rehearsal<'_>) -> R) -> R {
    let args = ["remat", "train"].into_iter().chain(options.split_whitespace());
    let Some(Command::Train(args)) = Cli::parse_from(args).command else { panic!("{options}") };
    let Model::Images(model) = args.model else { panic!("{options}") };
    let task = ImageTask {
        model,
        sizes: SizeArgs::default(),
        data: Dataset::digits(),
        augment: Augment::default(),
        storage: DType::F32,
        seed: 0,
    };
    let batch = args.learning.batch;
    let setup = Setup { task: &task, batch, tests_between: false, optimizer: &args.optimizer };
    then(&Rehearsal::new(Arc::new(Sim::cpu), &setup, &args.memory, 0, steps, 40).unwrap())
}

fn choose(options: &str) -> Result<ChosenBudget, Failure> {
    let target = Target::Cpu { threads: 1 };
    rehearse(options, |rehearsal| ChosenBudget::new(rehearsal, &target, Shows::Nothing))
}

#[test]
fn a_budget_of_its_own_choice_passes_with_a_margin_where_costs_vary() {
    let (fixed, varying) =
        (choose("--batch 32").unwrap(), choose("--batch 32 --cost measured").unwrap());
    assert!(varying.to_string().ends_with("a budget 5 % smaller passes the rehearsal, too"));
    assert!(!fixed.to_string().contains("rehearsal"));
    rehearse("--batch 32 --cost measured", |rehearsal| {
        let less = (varying.budget as f64 * (1.0 - MARGIN)) as u64;
        assert!(rehearsal.under(less, None, None).unwrap().is_ok());
    });
}

#[test]
fn a_threshold_that_cannot_be_met_is_told_of_one_that_can() {
    let (mut told, mut met) = (0, 0);
    for model in ["mlp", "resnet20"] {
        for percent in [5, 20, 35, 50, 65, 80, 95] {
            let threshold = |percent| format!("{model} --batch 32 --eviction-threshold {percent}%");
            let warnings = choose(&threshold(percent)).unwrap().warnings().join(" ");
            let enough = warnings.split_once("raise --eviction-threshold to ");
            let Some((enough, _)) = enough.and_then(|(_, text)| text.split_once('%')) else {
                assert!(!warnings.contains("cannot be met"), "{warnings}");
                met += 1;
                continue;
            };
            told += 1;
            let enough = enough.parse().unwrap();
            assert!(enough > percent);
            let warnings = choose(&threshold(enough)).unwrap().warnings().join(" ");
            assert!(!warnings.contains("cannot be met"), "{model} {percent} {enough}: {warnings}");
        }
    }
    assert!(told >= 4 && met >= 4, "{told} {met}");
}

#[test]
fn a_default_budget_above_what_is_free_is_refused_and_no_other() {
    let free = |reason, free| ChosenBudget { reason, free, ..PLAN }.too_large();
    let refused = format!("{:?}", free(Reason::Usual, Some(3 << 20)).unwrap());
    assert!(refused.contains("would be 4.00 MiB, but only 3.00 MiB are free"), "{refused}");
    assert!(free(Reason::Passes, Some(3 << 20)).is_some());
    for (reason, bytes) in [
        (Reason::Asked, Some(3 << 20)),
        (Reason::Auto, Some(3 << 20)),
        (Reason::Usual, Some(4 << 20)),
        (Reason::Usual, None),
    ] {
        assert!(free(reason, bytes).is_none(), "{reason:?} {bytes:?}");
    }
}

#[test]
fn less_than_the_state_is_never_rehearsed() {
    rehearse("--batch 1", |rehearsal| {
        let waiting = Waiting::new(Shows::Nothing);
        let needs = Needs { state: u64::MAX, ..PLAN.needs };
        let chooser = Chooser { rehearsal, waiting, needs };
        assert!(chooser.passes(100, CHOSEN_RATIO).unwrap().is_none());
    });
}

#[test]
fn a_run_of_one_step_evicts_where_its_budget_says_it_does() {
    for model in ["mlp", "resnet20"] {
        for batch in [1, 32] {
            let options = format!("{model} --batch {batch} --policy none");
            rehearse_steps(1, &options, |rehearsal| {
                let needs = Needs::of(rehearsal, &Waiting::new(Shows::Nothing)).unwrap();
                assert!(rehearsal.under(needs.full_budget, None, None).unwrap().is_ok());
                // Nothing in use is above it, and little less is too little.
                assert!(needs.peak <= needs.full_budget);
                let less = needs.peak - 1;
                assert!(rehearsal.under(less, None, None).unwrap().is_err(), "{options}");
            });
        }
    }
}

#[test]
fn a_run_that_fails_all_the_same_is_told_of_a_larger_budget_that_passes() {
    let options = "--batch 32 --budget 60%";
    let chosen = choose(options).unwrap();
    rehearse(options, |rehearsal| {
        let error = rehearsal.under(chosen.state(), None, None).unwrap().unwrap_err();
        let told = |budget| {
            let failure = chosen.too_small(budget, rehearsal, Shows::Nothing, &error);
            let message = format!("{failure:?}");
            assert!(message.contains("out of memory"), "{message}");
            message
        };
        let message = told(chosen.budget());
        assert!(message.contains("is too small; --budget 61% ("), "{message}");
        let message = told(chosen.budget() - 1);
        assert!(message.contains("is too small; --learn ahead takes all of it"), "{message}");
    });
}
