//! Tests that convert replays of traces to schedules, and compare these with the schedules that
//! `remat_plan` finds.

use super::*;
use crate::bound::Effort;
use crate::lab::{Status, Trace};
use remat_plan::schedule::{Rematerializer, Sqrt, StaticDtr};
use std::path::Path;

fn in_crate(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

#[test]
fn a_replay_is_a_schedule() {
    let mut reruns = 0;
    for file in ["tests/data/small.log", "tests/data/resnet20-v3.jsonl.gz"] {
        let trace = Trace::open(in_crate(file)).unwrap();
        let program = trace.program();
        let captured = program.capture_whole(1).unwrap();
        let once = captured.capture.cost();
        assert!((once / program.base_cost() - 1.0).abs() < 1e-9);
        for policy in ["dtr-eq", "learned", "ancestors", "lru"] {
            let full = Replay::new(policy.parse().unwrap(), 1).unbudgeted(program).unwrap();
            for share in [100, 80, 70, 60] {
                let replay = Replay::new(policy.parse().unwrap(), full.full_budget * share / 100);
                let outcome = replay.run(program).unwrap();
                let what = format!("{file} {policy} {share}");
                if !matches!(outcome.status, Status::Done) {
                    let schedule = replay.schedule(program, &captured);
                    assert!(matches!(schedule, Err(NoSchedule::Failed { .. })), "{what}");
                    continue;
                }
                let schedule = replay.schedule(program, &captured).unwrap();
                let slowdown = outcome.slowdown().unwrap();
                assert!((schedule.slowdown() / slowdown - 1.0).abs() < 1e-9, "{what}");
                assert_eq!(schedule.reruns() as u64, outcome.stats.recomputed_ops, "{what}");
                assert!(schedule.load().unwrap() <= replay.budget, "{what}");
                reruns += schedule.reruns();
            }
        }
    }
    assert!(reruns > 100, "{reruns}");
}

/// Prints the costs of schedules at shares of the full budget, next to the lower bound: `cargo test
/// --lib schedule -- --ignored --nocapture`.
#[test]
#[ignore = "figures, which take minutes"]
fn figures() {
    let folder = in_crate("../shared/data/traces");
    let Ok(files) = std::fs::read_dir(&folder) else {
        eprintln!("skipped, there is no {}", folder.display());
        return;
    };
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    for file in files {
        let trace = Trace::open(&file).unwrap();
        let program = trace.program();
        let captured = program.capture_whole(1).unwrap();
        let order = captured.capture.program();
        let plain = Replay::new("learned".parse().unwrap(), 1);
        let full = plain.unbudgeted(program).unwrap().full_budget;
        println!("{}: {} ops, full {full}, load {}", trace.name(), order.ops().len(), order.load());
        let demand = plain.demand(program);
        for share in [80, 60, 50, 40, 30] {
            let budget = full * share / 100;
            let replay = Replay { budget, ..plain.clone() };
            let mut row = format!("  {share} %:");
            let mut tell = |name: &str, result: Result<(f64, u64), String>| match result {
                Ok((slowdown, load)) => {
                    let percent = 100.0 * load as f64 / full as f64;
                    row += &format!(" {name} {slowdown:.4} ({percent:.1} %)");
                }
                Err(error) => row += &format!(" {name} - ({error})"),
            };
            let of =
                |schedule: &RecomputeSchedule<'_>| (schedule.slowdown(), schedule.load().unwrap());
            let replayed = replay.schedule(program, &captured);
            tell("learned", replayed.map(|one| of(&one)).map_err(|error| error.to_string()));
            let by_time = StaticDtr { memory_factor: 0.0, ..StaticDtr::default() };
            let ahead: [(&str, &dyn Rematerializer); 3] = [
                ("static-dtr", &StaticDtr::default()),
                ("static-dtr, memory factor 0,", &by_time),
                ("sqrt", &Sqrt),
            ];
            for (name, one) in ahead {
                let found = one.schedule(&order, budget).map(|found| of(&found));
                let found = found.map_err(|error| match error {
                    ScheduleError::Budget { least, .. } => {
                        format!("least {:.1} %", 100.0 * least as f64 / full as f64)
                    }
                    error => error.to_string(),
                });
                tell(name, found);
            }
            let bound = demand.bound_by(budget, Effort::default());
            tell(
                "bound",
                bound.map(|one| (1.0 + one.excess(), budget)).map_err(|_| "no".to_owned()),
            );
            println!("{row}");
        }
    }
}
