//! Parameters of policies, growth and the split rule, as a user gives them.

use crate::common::cells;
use crate::common::command::{folder, run, same_bits, stderr, train};
use serde_json::Value;
use std::fs;

fn simulated(args: &[&str]) -> Vec<Value> {
    let output = run(&[args, &["--json", "-"]].concat());
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Giving parameters by flags or in the text of the policy makes the same run. A replay with the
/// recorded text has the run's evictions.
#[test]
fn runs_with_parameters_replay() {
    let folder = folder("parameters");
    let recording = folder.join("run.jsonl").into_os_string().into_string().unwrap();
    let mut evictions = Vec::new();
    for (flags, policy) in [
        ("megengine", "megengine"),
        ("megengine --own-cost", "megengine:own-cost"),
        (
            "megengine --exponents 1,0.5,2 --rerun-factor 1.5",
            "megengine:bytes=0.5:staleness=2:rerun=1.5",
        ),
        ("megengine-article --rerun-factor 3", "megengine-article:rerun=3"),
        ("dtr --exponents 1,1,0.5", "dtr:staleness=0.5"),
    ] {
        let run = |policy: &str| {
            let args = "resnet20 --batch 64 --steps 3 --budget 55% --no-test --cost flops --policy";
            let args: Vec<&str> = args.split(' ').chain(policy.split(' ')).collect();
            train(&[&args[..], &["--record", &recording]].concat())
        };
        let (by_flags, by_text) = (run(flags), run(policy));
        let text = fs::read_to_string(&recording).unwrap();
        let canonical = policy.parse::<remat::PolicyKind>().unwrap().to_string();
        let begin: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        assert_eq!([&begin, &by_flags, &by_text].map(|said| &said["policy"]), [&*canonical; 3]);
        let budget = by_text["effective_budget_bytes"].to_string();
        let args = ["simulate", &recording, "--policy", policy, "--budget", &budget];
        let replayed = &simulated(&args)[0];
        for key in ["evictions", "recomputed_ops", "max_regeneration_depth"] {
            assert_eq!(by_flags[key], by_text[key], "{key} by {policy}");
            assert_eq!(by_text[key], replayed[key], "{key} by {policy}");
        }
        let swept = simulated(&["sweep", &recording, "--policy", policy, "--budget", &budget]);
        assert_eq!(swept[0]["evictions"], by_text["evictions"], "{policy}");
        evictions.push((policy, by_text["evictions"].clone(), by_text["recomputed_ops"].clone()));
    }
    // The parameters must make a difference, or the test shows nothing.
    assert!(evictions[0].1 != evictions[1].1 || evictions[0].2 != evictions[1].2, "{evictions:?}");
    // A list of policies with parameters is separated by commas.
    let list = "megengine,megengine:own-cost,dtr:staleness=0.5";
    let swept = simulated(&["sweep", &recording, "--policy", list, "--budget", "60%"]);
    let policies: Vec<&str> = swept.iter().map(|row| row["policy"].as_str().unwrap()).collect();
    assert_eq!(policies, ["megengine", "megengine:own-cost", "(own+exact)/(size*stale^0.5)"]);
}

#[test]
fn parameters_that_make_no_sense_are_refused_in_words() {
    for (args, said) in [
        (
            "train --policy megengine:own",
            "parameter `own` of `megengine:own`: megengine has own-cost, cost=X",
        ),
        (
            "train --policy megengine:rerun=0",
            "parameter `rerun=0` of `megengine:rerun=0`: give a number above 0",
        ),
        ("sweep x.jsonl --policy dtr:rerun=2", "dtr has cost=X, bytes=X, staleness=X"),
        ("simulate x.jsonl --policy megengine:cost=", "give a finite number, such as cost=1.5"),
        (
            "train --policy lru --rerun-factor 2",
            "--rerun-factor needs --policy megengine or megengine-article",
        ),
        ("train --policy megengine --rerun-factor 0", "give a number above 0"),
        ("train --split-rule best", "choose exact, tensorflow, or tensorflow:SIZE"),
        (
            "train --split-rule tensorflow:x",
            "invalid value 'tensorflow:x' for '--split-rule <RULE>'",
        ),
    ] {
        let output = run(&args.split(' ').collect::<Vec<_>>());
        let message = stderr(&output);
        assert!(output.status.code() == Some(2) && message.contains(said), "{args}: {message}");
    }
}

/// Growth decides how memory is taken from the device, and the split rule decides how much of a
/// hole a block takes. Growth and the split rule change no bit of the result.
#[test]
fn growth_and_the_split_rule_change_no_bit() {
    same_bits(
        &["resnet20", "--batch", "32", "--steps", "2", "--seed", "1", "--threads", "2"],
        &[
            &["--budget", "100%"],
            &["--budget", "60%", "--allow-growth"],
            &["--budget", "80%", "--split-rule", "tensorflow"],
            &["--budget", "80%", "--split-rule", "tensorflow:64KiB", "--allow-growth"],
            &[
                "--budget",
                "60%",
                "--split-rule",
                "exact",
                "--policy",
                "megengine",
                "--rerun-factor",
                "2",
            ],
        ],
    );
    // The split rule reaches the arena: with another split rule, the run has other evictions in
    // this budget.
    let run = |more: &[&str]| {
        let args = ["resnet20", "--batch", "64", "--steps", "2", "--no-test", "--budget", "7MiB"];
        train(&[&args[..], &["--cost", "flops", "--policy", "lru", "--plan", "off"], more].concat())
    };
    let (exact, tensorflow) = (run(&[]), run(&["--split-rule", "tensorflow"]));
    assert_ne!(exact["evictions"], tensorflow["evictions"]);
}

/// 100 % is the budget in which the run evicts nothing, with the holes that its split rule leaves.
#[test]
fn nothing_is_evicted_in_the_whole_budget_by_any_split_rule() {
    let models = [
        ["resnet18", "--batch", "3", "--optimizer", "lion"],
        ["resnet20", "--batch", "8", "--optimizer", "sgd"],
        ["lstm", "--batch", "4", "--optimizer", "adamw"],
        ["unet", "--batch", "2", "--optimizer", "sgd"],
    ];
    let rules = ["exact", "tensorflow", "tensorflow:64KiB"];
    let ways = rules.map(|rule| [&[][..], &["--allow-growth"]].map(|growth| (rule, growth)));
    let ways = ways.as_flattened();
    let all = models.iter().flat_map(|model| ways.iter().map(move |way| (model, *way)));
    for (model, (rule, growth)) in cells(all, 5) {
        let options = "--steps 2 --no-test --plan off --policy lru --cost flops --budget 100%";
        let options: Vec<&str> = options.split(' ').collect();
        let told = train(&[&model[..], &options, &["--split-rule", rule], growth].concat());
        assert_eq!(told["evictions"], 0, "{model:?}, {rule}, {growth:?}");
    }
}
