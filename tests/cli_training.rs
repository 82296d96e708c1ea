//! How `remat train` learns: optimizers, schedules, gradients in parts, checkpoints.

#[path = "common/command.rs"]
mod command;

use command::{run, stderr, train};
use serde_json::Value;

fn digest(args: &[&str]) -> String {
    train(args)["params_sha256"].as_str().expect("a hash").to_owned()
}

#[test]
fn a_budget_changes_no_bit_of_any_optimizer() {
    let base = ["resnet20", "--batch", "64", "--steps", "2", "--no-test"];
    let mut seen = Vec::new();
    for options in [
        "--optimizer adamw",
        "--optimizer lion --schedule constant",
        "--nesterov --schedule step --warmup 1",
        "--optimizer adamw --clip 0.5 --accumulate 2",
    ] {
        let options: Vec<&str> = options.split(' ').collect();
        let with = |budget| {
            let report = train(&[&base[..], &options, &["--budget", budget]].concat());
            assert!(report["peak_bytes"].as_u64() <= report["budget_bytes"].as_u64());
            (report["params_sha256"].to_string(), report["evictions"].as_u64().unwrap())
        };
        let ((ample, none), (tight, some)) = (with("200%"), with("60%"));
        assert_eq!(ample, tight, "{options:?}");
        assert!(none == 0 && some > 0, "{options:?}");
        assert!(!seen.contains(&ample), "{options:?} made no difference");
        seen.push(ample);
    }
}

#[test]
fn parts_of_a_batch_come_to_the_whole() {
    let loss = |args: &[&str]| {
        let report = train(&[&["mlp", "--steps", "8", "--no-test"], args].concat());
        assert_eq!(report["ending"], "done");
        report["final_loss"].as_f64().unwrap()
    };
    let whole = loss(&["--batch", "64"]);
    for parts in ["2", "4"] {
        let batch = (64 / parts.parse::<usize>().unwrap()).to_string();
        let found = loss(&["--batch", &batch, "--accumulate", parts]);
        assert!((found - whole).abs() < 1e-4, "{found} in {parts} parts, {whole} as a whole");
    }
    assert!((loss(&["--batch", "16"]) - whole).abs() > 1e-3);
}

#[test]
fn a_norm_that_is_never_reached_clips_nothing() {
    let base = ["mlp", "--steps", "3", "--no-test"];
    let with = |clip| digest(&[&base[..], &["--clip", clip]].concat());
    assert_eq!(with("1e9"), digest(&base));
    assert_ne!(with("0.01"), digest(&base));
}

#[test]
fn the_report_says_how_it_learned() {
    let args = ["mlp", "--steps", "2", "--optimizer", "lion", "--accumulate", "3", "--batch", "8"];
    let report = train(&args);
    assert_eq!(report["optimizer"], "lion");
    assert_eq!((&report["batch"], &report["accumulate"]), (&Value::from(8), &Value::from(3)));
}

#[test]
fn options_of_learning_are_checked() {
    for (args, message) in [
        ("--optimizer adam", "[possible values: sgd, adamw, lion]"),
        ("--optimizer adamw --nesterov", "--nesterov needs --optimizer sgd; choose that"),
        ("--schedule linear", "[possible values: constant, cosine, step]"),
        ("--warmup -1", "give a whole number from 0 up"),
        ("--clip 0", "give a number above 0"),
        ("--accumulate 0", "give a whole number from 1 to 65536"),
    ] {
        let args: Vec<&str> = args.split(' ').collect();
        let output = run(&[&["train"], &args[..]].concat());
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains("error: ") && said.contains(message), "{args:?}: {said}");
    }
}
