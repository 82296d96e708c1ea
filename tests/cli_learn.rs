//! How much `remat train` learns about its steps.

use crate::common::cells;
use crate::common::command::{folder, run, stderr, train};

/// Arguments of twelve steps of resnet20.
fn args<'a>(batch: &'a str, budget: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let args = ["resnet20", "--steps", "12", "--no-test", "--batch", batch, "--budget", budget];
    [&args[..], more].concat()
}

/// With more settings to choose from, a run never recomputes more, because it uses the best of
/// them.
#[test]
fn more_knowledge_recomputes_less_with_the_same_bits() {
    let mut sha256 = None;
    let mut best = f64::INFINITY;
    for learn in ["off", "ahead", "portfolio", "search"] {
        let report = train(&args("32", "60%", &["--learn", learn]));
        let number = |field: &str| report[field].as_f64();
        let recomputed = number("recompute_ratio").unwrap();
        assert!(recomputed > 0.0);
        assert_eq!(
            *sha256.get_or_insert_with(|| report["params_sha256"].clone()),
            report["params_sha256"]
        );
        let simulated = matches!(learn, "portfolio" | "search");
        assert!(!simulated || recomputed <= best, "{learn}: {recomputed} after {best}");
        best = best.min(recomputed);
        // With `ahead`, the rehearsal also runs the policies without predictions.
        let predicted = number("predicted_recompute_ratio").is_some();
        assert!(learn == "ahead" || predicted == simulated, "{learn}");
        if let (Some(predicted), Some(least)) =
            (number("predicted_recompute_ratio"), number("least_recompute_ratio"))
        {
            assert!(0.0 < least && least <= predicted, "{least} of {predicted}");
        }
    }
}

/// The ops simulated before the first step are bounded by the number of steps, whatever the budget.
#[test]
fn learning_is_bounded_in_work() {
    let cases = [
        (&["unrolled-gan", "--batch", "64"][..], 7, &["60%", "40%", "35%"][..]),
        (&["resnet20", "--batch", "16"], 3, &["75%", "65%"]),
        (&["mlp", "--batch", "64"], 5, &["80%", "75%"]),
        (&["mlp", "--batch", "64"], 40, &["80%", "75%"]),
        (
            &["lstm", "--layers", "1", "--width", "32", "--context", "32", "--batch", "16"],
            4,
            &["85%"],
        ),
    ];
    for (network, steps, budgets) in cases {
        for learn in ["ahead", "portfolio"] {
            for budget in cells(budgets, 2) {
                let of_steps = steps.to_string();
                let options =
                    ["--steps", &of_steps, "--no-test", "--budget", budget, "--learn", learn];
                let report = train(&[network, &options].concat());
                let number = |field: &str| report[field].as_u64();
                let Some(simulated) = number("simulated_ops") else { continue };
                // Most networks have two kinds of steps, since the first step makes the optimizer's
                // state. The GAN has four kinds.
                let turns = simulated / (number("ops").unwrap() / steps);
                let most = if learn == "ahead" { 64 } else { (16 * steps).max(128) };
                assert!(turns <= 4 * most, "{network:?} {learn} {budget}: {turns} turns");
            }
        }
    }
}

/// Some runs recompute less in less memory, as the GAN does in 42 % and the transformer in 93 %.
/// Therefore a run may use only a part of its budget.
#[test]
fn more_memory_never_makes_a_run_recompute_more() {
    let vit = ["vit", "--data", "synthetic:3x32x32", "--batch", "4"];
    let cases = [
        (&["unrolled-gan", "--batch", "512"][..], &["41%", "41.5%", "42%"][..]),
        (&vit, &["92%", "93%"]),
        (&["resnet32", "--batch", "16"], &["66%", "67%"]),
        (&["mlp", "--batch", "512"], &["70%", "80%", "90%"]),
    ];
    let mut smaller = 0;
    for (network, budgets) in cells(cases, 2) {
        let mut sha256 = None;
        let mut before = f64::INFINITY;
        for budget in budgets {
            let options = ["--steps", "8", "--no-test", "--budget", budget];
            let report = train(&[network, &options].concat());
            let recomputed = report["recompute_ratio"].as_f64().unwrap();
            assert!(recomputed <= before, "{network:?} {budget}: {recomputed} after {before}");
            // In a budget between two whole percents, a run may recompute even less.
            if !budget.contains('.') {
                before = recomputed;
            }
            let bytes = |field: &str| report[field].as_u64().unwrap();
            let effective = bytes("effective_budget_bytes");
            assert!(bytes("peak_bytes") <= effective && effective <= bytes("budget_bytes"));
            smaller += u32::from(effective < bytes("budget_bytes"));
            let sha = &report["params_sha256"];
            assert_eq!(sha256.get_or_insert_with(|| sha.clone()), sha, "{network:?} {budget}");
        }
    }
    assert!(smaller > 0, "in none is less memory the better");
}

/// A run may use only a part of its budget, but never less than its threshold, and the bits stay
/// the same. The cases are short runs, a threshold, a longer search, and a recording.
#[test]
fn any_run_uses_a_part_of_its_budget() {
    let folder = folder("parts");
    let recording = folder.join("run.jsonl");
    let recording = recording.to_str().unwrap();
    let threshold = ["--eviction-threshold", "41%"];
    let cases: [(&str, &[&str]); 4] = [
        ("1", &[]),
        ("3", &threshold),
        ("3", &["--learn", "search"]),
        ("3", &["--record", recording]),
    ];
    let mut sha256 = [const { None }; 4];
    for (steps, more) in cells(cases, 2) {
        let options = ["unrolled-gan", "--no-test", "--budget", "42%", "--steps", steps];
        let report = train(&[&options[..], more].concat());
        let bytes = |field: &str| report[field].as_u64().unwrap_or(0);
        let effective = bytes("effective_budget_bytes");
        assert!(bytes("peak_bytes") <= effective && effective <= bytes("budget_bytes"));
        assert!(bytes("eviction_threshold_bytes") <= effective, "{more:?}");
        assert!(report["predicted_recompute_ratio"].is_number(), "{more:?}");
        let sha = &report["params_sha256"];
        let first = &mut sha256[steps.parse::<usize>().unwrap()];
        assert_eq!(first.get_or_insert_with(|| sha.clone()), sha, "{more:?}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

/// A step that adds up the gradients of several batches is learned as one step. The gradients of
/// the first batch are kept or evicted by the time of the update.
#[test]
fn steps_of_several_batches_are_learned_as_well() {
    for (parts, budget) in cells([("2", "65%"), ("3", "70%")], 2) {
        let reports = ["ahead", "portfolio"]
            .map(|learn| train(&args("32", budget, &["--accumulate", parts, "--learn", learn])));
        let [ahead, learned] = &reports;
        assert_eq!(ahead["params_sha256"], learned["params_sha256"]);
        let number = |field: &str| learned[field].as_f64().expect("it was simulated");
        let (recomputed, predicted) =
            (number("recompute_ratio"), number("predicted_recompute_ratio"));
        let before = ahead["recompute_ratio"].as_f64().unwrap();
        assert!(recomputed <= before, "{parts}: {recomputed}, without a forecast {before}");
        assert!(recomputed < 1.1 * predicted, "{parts}: {recomputed} of {predicted}");
        let least = number("least_recompute_ratio");
        assert!(0.0 < least && least <= predicted, "{parts}: {least} of {predicted}");
    }
}

/// Learning needs steps that repeat. Learning is therefore not the default for the network whose
/// steps each have a different tree.
#[test]
fn learning_is_the_default_where_steps_repeat() {
    let policy = |more: &[&str]| {
        let report = train(&[&["--steps", "2", "--no-test", "--batch", "8"], more].concat());
        (report["policy"].as_str().unwrap().to_owned(), report["least_recompute_ratio"].clone())
    };
    assert_eq!(policy(&["mlp"]).0, "learned:portfolio");
    let (ancestors, bound) = policy(&["treelstm", "--budget", "60%"]);
    assert_eq!(ancestors, "ancestors");
    assert!(bound.is_null(), "the bound of one tree is none of another");
    assert_eq!(policy(&["treelstm", "--learn", "ahead"]).0, "learned");
    assert_eq!(policy(&["treelstm", "--policy", "dtr"]).0, "dtr");
}

#[test]
fn a_cache_keeps_what_was_found_out() {
    let folder = folder("learn-cache");
    let file = folder.join("forecasts.json");
    let name = file.to_str().unwrap();
    let with = |batch, budget| {
        let report = train(&args(batch, budget, &["--learn-cache", name]));
        [
            "predicted_recompute_ratio",
            "recompute_ratio",
            "evictions",
            "params_sha256",
            "effective_budget_bytes",
        ]
        .map(|field| report[field].clone())
    };
    let first = with("32", "60%");
    let found = std::fs::read(&file).unwrap();
    assert_eq!(with("32", "60%"), first);
    assert_eq!(std::fs::read(&file).unwrap(), found, "nothing new was found");
    // Forecasts for another step and another budget are stored beside the first.
    for (batch, budget) in [("48", "60%"), ("32", "70%")] {
        assert!(with(batch, budget)[0].is_number(), "{batch} {budget}");
    }
    assert!(std::fs::read(&file).unwrap().len() > 2 * found.len());
    assert_eq!(with("32", "60%"), first);

    let refused = |more: &[&str]| {
        let more = [&["--learn-cache", name], more].concat();
        let output = run(&[&["train"][..], &args("32", "60%", &more)].concat());
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        stderr(&output)
    };
    let said = refused(&["--cost", "bytes"]);
    assert!(said.contains("--cost flops, but this is remat "), "{said}");
    std::fs::write(&file, &found[..found.len() / 2]).unwrap();
    let said = refused(&[]);
    assert!(
        said.contains("not a file of forecasts (") && said.contains("delete the file"),
        "{said}"
    );
    assert_eq!(std::fs::read(&file).unwrap(), found[..found.len() / 2], "it is left alone");
}
