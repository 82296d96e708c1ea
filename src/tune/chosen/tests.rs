use super::*;

/// Flags of a program, as messages name them.
const FLAGS: OptionNames = OptionNames {
    budget: "--budget",
    threshold: "--eviction-threshold",
    batch: "--batch",
    ..OptionNames::WORDS
};

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
    names: FLAGS,
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
        (PLAN, "budget 4.00 MiB (default), 40 % of the 10.00 MiB needed without evictions"),
        (auto, "budget 40.00 GiB (auto); the run needs 10.00 MiB, so nothing is evicted"),
        (
            smallest,
            "budget 9.00 MiB (default), 90 % of the 10.00 MiB needed without evictions\n  \
             the default of 40 % is too small; parameters and optimizer state take 2.00 MiB",
        ),
        (
            asked,
            "budget 8.00 MiB, 80 % of the 10.00 MiB needed without evictions; evicts above \
             6.00 MiB",
        ),
    ] {
        assert_eq!(chosen.to_string(), text);
    }
}

#[test]
fn a_warning_blames_what_is_to_blame() {
    let warning = |chosen: &ChosenBudget| {
        chosen.warnings().iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    };
    assert_eq!(warning(&PLAN), "");
    let kept = |mebibytes: u64| Rehearsed { unevictable_bytes: mebibytes << 20, ..PLAN.rehearsed };
    assert_eq!(warning(&ChosenBudget { rehearsed: kept(2), ..with_threshold(2) }), "");
    let text = "the eviction threshold of 2.00 MiB cannot be met, because up to 3.00 MiB cannot be evicted \
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
}

#[test]
fn a_default_budget_above_what_is_free_is_refused_and_no_other() {
    let free = |reason, free| ChosenBudget { reason, free, ..PLAN }.too_large();
    let refused = free(Reason::Usual, Some(3 << 20)).unwrap().to_string();
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
