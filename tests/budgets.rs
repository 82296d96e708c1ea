//! Budgets that `remat train` checks, and names, before the first step.

use crate::common::cells;
use crate::common::command::{folder, mnist, names, run, stderr, train};

/// Budget `N%` of the text `--budget N% (B MiB) passes`.
fn passing(said: &str) -> String {
    let named = said.split_once("--budget ").and_then(|(_, rest)| rest.split_once(" ("));
    let (percent, rest) = named.unwrap_or_else(|| panic!("no budget is named: {said}"));
    assert!(percent.ends_with('%') && rest.contains("B) passes\n"), "{said}");
    percent.to_owned()
}

#[test]
fn too_small_a_budget_is_refused_before_training_with_one_that_passes() {
    let cases = [
        ("resnet20", "32", "10%"),
        ("resnet20", "32", "40B"),
        ("resnet20", "7", "1KiB"),
        ("resnet20", "1", "300KiB"),
        ("resnet18", "4", "84%"),
        ("resnet20", "32", "41%"),
        ("mlp", "100", "50%"),
    ];
    for (model, batch, budget) in cells(cases, 2) {
        let folder = folder(&format!("small-{model}-{batch}-{budget}"));
        let trace = folder.join("trace.jsonl");
        let args = ["train", model, "--batch", batch, "--steps", "2", "--json", "-", "--budget"];
        let record = ["--record", trace.to_str().unwrap(), "--no-test"];
        let output = run(&[&args[..], &[budget], &record].concat());
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(
            said.contains("\nerror: a budget of ") && said.contains(" is too small; "),
            "{said}"
        );
        assert!(said.contains("\n  parameters and optimizer state take "), "{said}");
        assert!(!said.contains("panicked") && !said.contains("step 1"), "{said}");
        assert!(output.stdout.is_empty());
        assert_eq!(names(&folder), [""; 0]);
        let output = run(&[&args[..], &[&passing(&said)], &record].concat());
        assert!(output.status.success(), "{}", stderr(&output));
    }
}

#[test]
fn without_a_budget_every_run_passes() {
    let mnist = mnist("default-budget", 28, [40, 20]);
    let mnist = format!("idx:{}", mnist.display());
    let mut chosen = Vec::new();
    for (model, data, batches) in [
        ("resnet20", "digits", &["1", "8", "32", "48", "128"][..]),
        ("resnet32", "digits", &["7", "64"]),
        ("resnet18", "digits", &["4"]),
        ("mlp", "digits", &["1", "32", "128"]),
        ("mlp", &mnist, &["1", "8", "32", "128"]),
        ("resnet20", &mnist, &["1", "16"]),
        ("resnet20", "synthetic:3x32x32", &["2"]),
    ] {
        for batch in cells(batches.iter().rev(), 3) {
            let args = [model, "--data", data, "--batch", batch, "--steps", "2"];
            let test = if data == mnist { &[][..] } else { &["--no-test"] };
            let report = train(&[&args[..], test].concat());
            let number = |field: &str| report[field].as_f64().unwrap();
            let part = number("budget_bytes") / number("full_budget_bytes");
            chosen.push((100.0 * part).round() as u64);
        }
    }
    // The usual budget of 40 % is used if it passes, and otherwise a larger one.
    assert!(chosen.contains(&40) && chosen.iter().all(|percent| (40..=100).contains(percent)));
    assert!(chosen.iter().any(|&percent| percent > 40), "{chosen:?}");
}

#[test]
fn all_of_the_budget_it_takes_means_no_eviction() {
    let mnist = mnist("no-eviction", 28, [30, 10]);
    let mnist = format!("idx:{}", mnist.display());
    for (model, data, batches) in [
        ("resnet20", "digits", &["1", "2", "8", "32", "48", "128"][..]),
        ("resnet32", "digits", &["1", "16"]),
        ("resnet18", "digits", &["2", "8"]),
        ("mlp", "digits", &["1", "32", "128"]),
        ("mlp", &mnist, &["1", "8", "128"]),
        ("resnet20", "synthetic:3x32x32", &["3"]),
    ] {
        for batch in cells(batches, 3) {
            for steps in ["1", "6"] {
                let options = ["--min-evict-bytes", "0", "--policy", "lru", "--no-test"];
                let args = [model, "--data", data, "--batch", batch, "--steps", steps];
                let report = train(&[&args[..], &options, &["--budget", "100%"]].concat());
                assert_eq!(report["evictions"], 0, "{args:?}");
                assert_eq!(report["budget_bytes"], report["full_budget_bytes"]);
            }
        }
    }
}

#[test]
fn a_threshold_is_taken_into_account_before_training() {
    let said = |args: &[&str]| {
        let base = ["train", "--batch", "32", "--steps", "2", "--no-test", "--learn", "ahead"];
        let output = run(&[&base[..], args].concat());
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        stderr(&output)
    };
    // The usual budget would be below the threshold.
    let text = said(&["--eviction-threshold", "70%"]);
    assert!(
        text.contains("above the default of 40 %, because of the eviction threshold\n"),
        "{text}"
    );
    assert!(!text.contains("warning"), "{text}");
    // The first threshold is below the bytes that cannot be evicted. The second threshold is also
    // below the parameters and optimizer state.
    let text = said(&["--eviction-threshold", "45%"]);
    assert!(text.contains("warning: the eviction threshold of 2.44 MiB cannot be met, "), "{text}");
    let args = ["--eviction-threshold", "1MiB", "--budget", "100%"];
    let text = said(&args);
    let blame = "times its own work; raise --eviction-threshold, or drop it\n";
    assert!(text.contains(blame), "{text}");
    let expected = "warning: the eviction threshold of 1.00 MiB cannot be met, because up to 2.61 MiB cannot be \
                    evicted (parameters and optimizer state take 2.10 MiB); raise --eviction-threshold to 49%, \
                    or drop it\n";
    assert!(text.contains(expected), "{text}");
    assert_eq!(said(&[&args[..], &["--quiet"]].concat()), "");
}

#[test]
fn a_recompute_limit_is_rehearsed_as_well() {
    let args = ["train", "--batch", "32", "--steps", "2", "--no-test", "--recompute-limit", "0.1"];
    let output = run(&[&args[..], &["--budget", "60%"]].concat());
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("above the recompute limit of 0.1"), "{said}");
    let output = run(&[&args[..], &["--budget", &passing(&said)]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
}
