//! Regenerating a value runs at most a small multiple of the ops from which the value is made,
//! whatever the shape of its history. Otherwise, the regeneration ends with an error.

use crate::common::history::{Evicted, History};

use remat::Dead;
use remat::error::RegenerationError;
use remat::{CostModel, Error, PolicyKind, Run};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const FATES: [Dead; 3] = [Dead::Linger, Dead::Drop, Dead::Keep];

fn policies() -> Vec<PolicyKind> {
    PolicyKind::all().collect()
}

/// Regression: regenerating `y[i + 1] = g(f(y[i], y[i / 2]))` took time that doubled with every few
/// values, because each `y[i / 2]` was evicted and had to be regenerated for the next value.
///
/// About `2 log2 n` free slots suffice for twice the work.
#[test]
fn long_skips_come_back_in_twice_the_work() {
    for n in [250, 500, 1000, 2000, 4000] {
        let history = History::long_skips(n);
        let slots = 2 * n.ilog2() as usize + 4;
        let mut with_twelve = Vec::new();
        for dead in FATES {
            for slots in [12, slots, 2 * slots] {
                // 12 slots are too few for the longest chain, so an error is allowed.
                let may_fail = slots == 12;
                if may_fail && n > 2000 {
                    continue;
                }
                let mut evicted =
                    Evicted::new(&history, slots, PolicyKind::default(), |s| s.dead = dead);
                match evicted.read() {
                    Ok(runs) => {
                        println!(
                            "{n} with {slots} slots, {dead:?}: {:.2} n",
                            runs as f64 / n as f64
                        );
                        assert!(runs <= 40 * n as u64, "{runs} runs");
                        with_twelve.extend((slots == 12).then_some(runs));
                    }
                    Err((error, runs)) => {
                        println!("{n} with {slots} slots, {dead:?}: {runs} runs, {error}");
                        assert!(may_fail && runs <= 100 * 2 * n as u64, "{n}, {slots}: {error}");
                    }
                }
            }
        }
        if let [dropped, kept] = with_twelve[..] {
            assert!(dropped <= kept, "{n}: keeping what is dead takes fewer runs");
        }
    }
}

/// In twice the memory of the frontier, no policy recomputes more than 40 times the needed values.
#[test]
fn with_room_for_twice_the_frontier_little_is_repeated() {
    let mut families = vec![
        ("long skips", History::long_skips(150)),
        ("diamonds", History::diamonds(100, 2)),
        ("wide diamonds", History::diamonds(30, 7)),
        ("grid", History::grid(18, 18)),
        ("long grid", History::grid(60, 5)),
        ("tree", History::tree(7, false)),
        ("tree by level", History::tree(7, true)),
        ("there and back", History::there_and_back(100)),
    ];
    for seed in 0..12 {
        families.push(("random", History::random(300, 100, 1, seed)));
        families.push(("random, short", History::random(300, 8, 1, seed)));
        families.push(("random, mixed sizes", History::random(300, 100, 9, seed)));
    }
    let mut worst: Vec<(&str, f64)> = Vec::new();
    for (name, history) in &families {
        let (needed, room) = (history.distinct(), 2 * history.frontier());
        let mut most = 0.0f64;
        for policy in policies() {
            for dead in FATES {
                let mut evicted = Evicted::new(history, room, policy, |s| s.dead = dead);
                let runs = evicted.read().unwrap_or_else(|(e, _)| panic!("{name}, {policy}: {e}"));
                let ratio = runs as f64 / needed as f64;
                assert!(ratio <= 40.0, "{name}, {policy}, {dead:?}: {runs} runs of {needed}");
                most = most.max(ratio);
            }
        }
        match worst.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => *known = known.max(most),
            None => worst.push((*name, most)),
        }
    }
    for (name, ratio) in worst {
        println!("{name}: at most {ratio:.2} times the ops that are needed");
    }
}

/// In less memory than the frontier, regeneration may be impossible. The limit on runs then ends it
/// with an error. When more memory is free, the value can be read.
#[test]
fn with_little_room_it_comes_back_or_ends_with_an_error() {
    let mut families = vec![
        History::long_skips(60),
        History::diamonds(40, 3),
        History::grid(12, 12),
        History::tree(6, true),
        History::there_and_back(60),
    ];
    families.extend((0..10).map(|seed| History::random(150, 60, 5, seed)));
    for history in &families {
        let frontier = history.frontier();
        for room in [frontier / 4, frontier / 2, frontier * 3 / 4, frontier] {
            for policy in [PolicyKind::DtrEq, PolicyKind::Lru, PolicyKind::Random] {
                for (dead, limit) in [(Dead::Drop, 1.0), (Dead::Drop, 20.0), (Dead::Keep, 20.0)] {
                    let mut evicted = Evicted::new(history, room.max(1), policy, |s| {
                        s.dead = dead;
                        s.regeneration_limit = limit;
                    });
                    let most = (limit * history.distinct() as f64) as u64 + 1;
                    match evicted.read() {
                        // Costs are in bytes, so the number of runs is only roughly in proportion.
                        Ok(runs) => assert!(runs <= 9 * most, "{runs} runs, {most} at most"),
                        Err((Error::OutOfMemory(_), _)) => {}
                        Err((Error::Regeneration(_), runs)) => {
                            assert!(runs <= 9 * most, "{runs} runs, {most} at most");
                        }
                        Err((error, _)) => panic!("{error}"),
                    }
                }
            }
        }
    }
}

#[test]
fn the_limit_says_what_was_done_and_what_to_do() {
    let history = History::long_skips(200);
    let mut evicted =
        Evicted::new(&history, 20, PolicyKind::default(), |s| s.regeneration_limit = 1.1);
    let (error, _) = evicted.read().expect_err("twice the work is above the limit");
    let text = error.to_string();
    let Error::Regeneration(error) = error else { panic!("{text}") };
    assert!(matches!(*error, RegenerationError::RegenerationLimit { paths: 401, .. }), "{text}");
    assert!(text.contains("raise the budget or the limit") && text.contains("1.1 times"), "{text}");
    assert!(evicted.read().is_err(), "as often as it is asked");
}

/// Cost model whose first `good` runs take a second each, and later ones `cost`.
#[derive(Debug)]
struct Stalls {
    runs: usize,
    good: usize,
    /// Cost of each later run.
    cost: f64,
}

impl CostModel for Stalls {
    fn cost(&mut self, _: Run<'_>) -> f64 {
        self.runs += 1;
        if self.runs <= self.good { 1.0 } else { self.cost }
    }
}

/// The limit applies to the planned work. A run that takes longer than its earlier runs therefore
/// does not end a regeneration.
#[test]
fn a_stalled_measurement_does_not_end_a_regeneration() {
    for n in [100, 200] {
        let history = History::long_skips(n);
        for good in [history.sources.len() + 2, 3 * n] {
            let costs = Box::new(Stalls { runs: 0, good, cost: 1e6 });
            let room = 2 * n.ilog2() as usize + 4;
            let policy = PolicyKind::default();
            let mut evicted = Evicted::with_costs(&history, room, policy, costs, |_| {});
            let runs = evicted.read().unwrap_or_else(|(error, _)| panic!("{n}, {good}: {error}"));
            assert!(runs <= 5 * n as u64, "{runs} runs");
        }
    }
}

/// Regression: without a limit, or if ops cost nothing, a regeneration never switched to a
/// schedule.
#[test]
fn no_limit_and_no_costs_are_no_reason_to_repeat_itself() {
    let n = 150;
    let history = History::long_skips(n);
    for limit in [100.0, f64::INFINITY] {
        let costs = Box::new(Stalls { runs: 0, good: 0, cost: 0.0 });
        let mut evicted =
            Evicted::with_costs(&history, 14, PolicyKind::default(), costs, |settings| {
                settings.regeneration_limit = limit;
            });
        let runs = evicted.read().unwrap_or_else(|(error, _)| panic!("{limit}: {error}"));
        assert!(runs <= 40 * n as u64, "{limit}: {runs} runs");
    }
}

/// An interrupted regeneration ends before its next run, and the value can be read afterwards.
#[test]
fn a_regeneration_that_is_interrupted_leaves_all_as_it_was() {
    let history = History::long_skips(100);
    for room in [18, 400] {
        for after in [0, 1, 2, 50, 150, 250] {
            let mut evicted = Evicted::new(&history, room, PolicyKind::default(), |_| {});
            let asked = Arc::<AtomicU64>::default();
            let count = Arc::clone(&asked);
            evicted.engine.interrupt_when(move || count.fetch_add(1, Ordering::Relaxed) >= after);
            match evicted.read() {
                Err((Error::Regeneration(e), runs)) => {
                    assert_eq!((*e, runs), (RegenerationError::Cancelled, after));
                }
                Ok(runs) => assert!(runs <= after, "{runs} runs"),
                Err((error, _)) => panic!("{error}"),
            }
            evicted.engine.interrupt_when(|| false);
            evicted.read().unwrap();
        }
    }
}
