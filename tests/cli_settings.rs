//! `remat simulate` on recordings of runs whose settings changed.

use crate::common::command::{folder, run, stderr};
use remat::prelude::*;
use remat::trace::JsonLines;
use remat::unstable::evict::Formula;
use remat::{PolicyKind, Stats};
use serde_json::Value;
use std::path::Path;

/// Records equal steps that make, read and drop values. Calls `before` before each.
fn record(path: &Path, builder: remat::Builder, before: impl Fn(&Runtime, usize)) -> Stats {
    let runtime = builder.record(JsonLines::create(path).unwrap()).sim().unwrap();
    let x = runtime.ones(&[1024]).unwrap();
    for step in 0..6 {
        before(&runtime, step);
        let mut made = vec![x.square().unwrap()];
        for i in 0..8 {
            made.push((&made[i] + 1.0).unwrap().square().unwrap());
        }
        for y in made.iter().rev() {
            runtime.get(y).unwrap();
        }
        drop(made);
        runtime.step().unwrap();
    }
    runtime.finish_recording().unwrap();
    runtime.stats().unwrap()
}

fn simulated(recording: &str, options: &[&str]) -> Value {
    let output = run(&[&["simulate", recording, "--json", "-"], options].concat());
    assert!(output.status.success(), "{options:?}: {}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

const BUDGET: u64 = 48 << 10;

#[test]
fn a_run_whose_settings_changed_is_replayed_with_them_unless_told_otherwise() {
    let folder = folder("settings");
    let path = folder.join("run.jsonl");
    let recording = path.to_str().unwrap();
    let builder = || Runtime::builder().budget(BUDGET);
    let ran = record(&path, builder().eviction_threshold(44 << 10), |runtime, step| match step {
        1 => runtime.set_budget(24 << 10).unwrap(),
        2 => runtime.set_policy(PolicyKind::DtrEq).unwrap(),
        3 => runtime.set_budget(BUDGET).unwrap(),
        4 => runtime.set_eviction_threshold(Some(28 << 10)).unwrap(),
        5 => runtime.set_eviction_threshold(None).unwrap(),
        _ => {}
    });
    assert!(ran.evictions > 20, "{}", ran.evictions);
    let of = |replayed: &Value| {
        ["evictions", "recomputed_ops", "budget_bytes", "changes"].map(|key| replayed[key].as_u64())
    };
    let figures = [ran.evictions, ran.recomputed_ops, BUDGET, 5].map(Some);
    assert_eq!(of(&simulated(recording, &[])), figures);
    assert_eq!(simulated(recording, &[])["policy"], "learned");
    // A budget in the options holds for the whole replay. Settings without an option are as in the
    // run.
    let budget = BUDGET.to_string();
    let roomy = simulated(recording, &["--budget", &budget]);
    assert_eq!(of(&roomy)[2..], [Some(BUDGET), Some(3)]);
    assert!(roomy["evictions"].as_u64().unwrap() < ran.evictions);
    let by_lru = simulated(recording, &["--policy", "lru"]);
    assert_eq!((&by_lru["policy"], by_lru["changes"].as_u64()), (&"lru".into(), Some(4)));
    let threshold = simulated(recording, &["--eviction-threshold", "20KiB"]);
    assert_eq!(
        (threshold["threshold_bytes"].as_u64(), threshold["changes"].as_u64()),
        (Some(20 << 10), Some(3))
    );
    let all = ["--budget", &budget, "--eviction-threshold", &budget, "--policy", "lru"];
    let plain = simulated(recording, &all);
    assert_eq!((of(&plain)[3], plain["evictions"].as_u64()), (None, Some(0)));
    let said = run(&["simulate", recording]);
    assert!(String::from_utf8_lossy(&said.stdout).contains("settings    5 changes, as in the run"));
}

#[test]
fn a_run_by_a_policy_without_a_name_wants_another() {
    let folder = folder("settings-own");
    let path = folder.join("run.jsonl");
    let recording = path.to_str().unwrap();
    record(&path, Runtime::builder().budget(BUDGET), |runtime, step| {
        if step == 2 {
            runtime.set_policy(Formula::LRU.policy()).unwrap();
        }
    });
    let refused = run(&["simulate", recording]);
    assert_eq!(refused.status.code(), Some(2));
    let said = stderr(&refused);
    assert!(said.contains("run: from instruction ") && said.contains("--policy NAME"), "{said}");
    assert_eq!(simulated(recording, &["--policy", "dtr"])["policy"], "dtr");
}

/// The history draws each budget of the run at its time.
#[test]
fn the_history_of_a_run_draws_each_budget() {
    let folder = folder("settings-history");
    let (path, svg) = (folder.join("run.jsonl"), folder.join("run.svg"));
    record(&path, Runtime::builder().budget(BUDGET), |runtime, step| {
        runtime.set_budget(if step % 2 == 0 { BUDGET } else { 32 << 10 }).unwrap();
    });
    let history = remat::unstable::lab::Trace::open(&path).unwrap().history().unwrap().clone();
    let budgets: Vec<u64> = history.timeline.budgets.iter().map(|(_, bytes)| *bytes).collect();
    assert_eq!(budgets, [BUDGET, 32 << 10].repeat(3));
    let times: Vec<f64> = history.timeline.budgets.iter().map(|(at, _)| *at).collect();
    assert!(times.is_sorted() && times[0] < times[5]);
    let output = run(&["history", path.to_str().unwrap(), "--plot", svg.to_str().unwrap()]);
    assert!(output.status.success(), "{}", stderr(&output));
    let drawn = std::fs::read_to_string(svg).unwrap();
    let lines = drawn.split("<path").filter(|path| path.contains("stroke-dasharray=\"none\""));
    let steps: Vec<usize> = lines.map(|line| line.matches('V').count()).collect();
    assert_eq!(steps, [6]);
}
