//! Checks that orders keep the edges, that their loads equal a naive count, and that no order has a
//! lower load than the exact order.

use super::*;
use crate::capture::tests::{conflicts, random};
use crate::reuse::BestFit;
use crate::{CapturedBuffer, CapturedOp, Decoder, Limits, Planner};

const REACHES: [Reach; 5] =
    [Reach::Offline, Reach::Held(usize::MAX), Reach::Held(5), Reach::Held(1), Reach::Held(0)];

/// Load by definition: the largest sum, over all ops, of the bytes that are alive while the op
/// runs.
fn naive_load(capture: &Capture, ops: &[usize]) -> u64 {
    let at = |op: usize| ops.iter().position(|&other| other == op).unwrap();
    let is_alive = |number: usize, now: usize| {
        let buffer = &capture.buffers()[number];
        let made = capture.ops().iter().position(|op| op.makes.contains(&number));
        let first = made.map_or(0, at);
        let uses = capture.ops().iter().enumerate();
        let uses =
            uses.filter(|(_, op)| op.reads.contains(&number) || op.updates.contains(&number));
        let last = uses.map(|(op, _)| at(op)).max().unwrap_or(first);
        first <= now && (buffer.after || now <= last)
    };
    let alive = |now: usize| -> u64 {
        let all = capture.buffers().iter().enumerate();
        all.filter(|&(number, _)| is_alive(number, now)).map(|(_, buffer)| buffer.bytes).sum()
    };
    let with_workspace = |(now, &op): (usize, &usize)| alive(now) + capture.ops()[op].workspace;
    let before = alive(0).min(if ops.is_empty() { u64::MAX } else { 0 });
    ops.iter().enumerate().map(with_workspace).max().unwrap_or(before)
}

/// Whether a program can run in this order with at most `most` ops held back. Ops arrive one at a
/// time, and only as many as needed.
fn can_be_replayed(capture: &Capture, ops: &[usize], most: usize) -> bool {
    let mut come: Vec<usize> = Vec::new();
    let mut ran: Vec<usize> = Vec::new();
    for &op in ops {
        while !come.contains(&op) {
            // The host waits for an op that has not run, so no further op arrives.
            if come.iter().any(|one| capture.ops()[*one].waits && !ran.contains(one)) {
                return false;
            }
            come.push(come.len());
        }
        ran.push(op);
        if come.len() - ran.len() > most {
            return false;
        }
    }
    true
}

fn keeps_edges(capture: &Capture, ops: &[usize]) -> bool {
    let all = capture.ops();
    ops.iter().enumerate().all(|(at, &second)| {
        ops[at + 1..].iter().all(|&first| first > second || !conflicts(&all[first], &all[second]))
    })
}

#[test]
fn all_orders_are_orders_and_take_what_a_naive_count_says() {
    for seed in 0..120 {
        let capture = random(seed, seed as usize % 24);
        let count = capture.ops().len();
        for reach in REACHES {
            for scheduler in all() {
                let order = match scheduler.order(&capture, reach, &Limits::none()) {
                    Ok(order) => order,
                    Err(OrderError::TooMany { .. }) => continue,
                    Err(error) => panic!("{error}"),
                };
                let ops = order.ops();
                let what = format!("{seed} {} {reach:?}", scheduler.name());
                let mut sorted = ops.to_vec();
                sorted.sort_unstable();
                assert!(sorted.into_iter().eq(0..count), "{what}");
                assert!(keeps_edges(&capture, ops), "{what}");
                assert_eq!(order.load(), naive_load(&capture, ops), "{what}");
                if let Reach::Held(most) = reach {
                    assert!(can_be_replayed(&capture, ops, most), "{what}");
                }
                let lifetimes = order.lifetimes().unwrap();
                assert_eq!(lifetimes.load(), order.load(), "{what}");
                let planned = BestFit.plan(&lifetimes, &Limits::none()).unwrap();
                assert!(planned.placement.bytes() >= order.load(), "{what}");
                let again = scheduler.order(&capture, reach, &Limits::none()).unwrap();
                assert_eq!(again.ops(), ops, "{what}");
            }
        }
    }
}

#[test]
fn held_is_the_fewest_ops_a_program_must_hold_back() {
    let (mut held_some, mut offline) = (0, 0);
    for seed in 0..200 {
        let capture = random(seed, 1 + seed as usize % 15);
        for scheduler in all() {
            let Ok(order) = scheduler.order(&capture, Reach::Offline, &Limits::none()) else {
                continue;
            };
            let least = (0..20).find(|&most| can_be_replayed(&capture, order.ops(), most));
            assert_eq!(order.held(), least, "{seed} {}", scheduler.name());
            held_some += usize::from(least.is_some_and(|least| least > 0));
            offline += usize::from(least.is_none());
            // An order that the reach allows is not changed by `within`.
            let ops = order.clone().into_ops();
            if let Some(held) = least {
                assert_eq!(order.within(Reach::Held(held)).ops(), ops);
            }
        }
    }
    assert!(held_some > 100 && offline > 100, "{held_some} {offline}");
}

/// Least load of all orders that the reach allows, found by trying every order.
fn least_load(capture: &Capture, reach: Reach) -> u64 {
    fn go_on(capture: &Capture, reach: Reach, ops: &mut Vec<usize>, least: &mut u64) {
        let count = capture.ops().len();
        if ops.len() == count {
            let most = match reach {
                Reach::Offline => None,
                Reach::Held(most) => Some(most),
            };
            if most.is_none_or(|most| can_be_replayed(capture, ops, most)) {
                *least = naive_load(capture, ops).min(*least);
            }
            return;
        }
        for op in 0..count {
            let is_ready = |op: usize| capture.predecessors(op).iter().all(|one| ops.contains(one));
            if !ops.contains(&op) && is_ready(op) {
                ops.push(op);
                go_on(capture, reach, ops, least);
                ops.pop();
            }
        }
    }
    let mut least = u64::MAX;
    go_on(capture, reach, &mut Vec::new(), &mut least);
    least
}

#[test]
fn the_exact_order_is_the_best_of_all() {
    let (mut better, mut tight) = (0, 0);
    for seed in 0..150 {
        let capture = random(1000 + seed, seed as usize % 7);
        for reach in REACHES {
            let exact = Exact::default().order(&capture, reach, &Limits::none()).unwrap();
            assert_eq!(exact.load(), least_load(&capture, reach), "{seed} {reach:?}");
            assert!(floor(&capture) <= exact.load(), "{seed}");
            tight += usize::from(floor(&capture) == exact.load());
            better += usize::from(exact.load() < capture.program().load());
        }
    }
    assert!(better > 20 && tight < 5 * 150, "{better} {tight}");
}

#[test]
fn none_is_better_than_the_exact_order() {
    let mut better = [0; 7];
    for seed in 0..60 {
        let capture = random(2000 + seed, 10 + seed as usize % 8);
        for reach in REACHES {
            let exact = Exact::default().order(&capture, reach, &Limits::none()).unwrap();
            for (scheduler, better) in all().iter().zip(&mut better) {
                let order = scheduler.order(&capture, reach, &Limits::none()).unwrap();
                assert!(exact.load() <= order.load(), "{seed} {}", scheduler.name());
                *better += usize::from(order.load() > exact.load());
            }
        }
    }
    // Each of the other schedulers sometimes misses the least load; the exact scheduler never does.
    assert!(better[..6].iter().all(|&better| better > 0) && better[6] == 0, "{better:?}");
}

#[test]
fn the_best_is_never_worse_than_the_programs_own() {
    let mut taken = 0;
    for seed in 0..60 {
        let capture = random(3000 + seed, 20);
        for reach in REACHES {
            let best = best_of(&capture, &all(), reach, &BestFit, &Limits::none()).unwrap();
            let own = capture.program();
            let planned = BestFit.plan(&own.lifetimes().unwrap(), &Limits::none()).unwrap();
            assert!(best.load <= own.load() && best.planned <= planned.placement.bytes());
            assert!(best.order.is_within(reach));
            assert_eq!(best.load, best.order.load());
            taken += usize::from(best.name != "program");
        }
    }
    assert!(taken > 30, "{taken}");
}

#[test]
fn invalid_orders_are_errors() {
    let capture = Capture::new(
        vec![CapturedBuffer::kept(1), CapturedBuffer::transient(1)],
        vec![
            CapturedOp::new("f").reads([0]).makes([1]),
            CapturedOp::new("read").reads([0]),
            CapturedOp::new("update").reads([1]).updates([0]),
        ],
    )
    .unwrap();
    for (ops, expected) in [
        (vec![1, 0], "the order has 2 ops, but the step has 3"),
        (vec![0, 1, 0], "op 0 occurs twice, or is not an op of the step"),
        (vec![0, 1, 3], "op 3 occurs twice, or is not an op of the step"),
        (vec![1, 2, 0], "op 2 (`update`) runs before op 0 (`f`), which must run first"),
        (vec![0, 2, 1], "op 2 (`update`) runs before op 1 (`read`), which must run first"),
    ] {
        assert_eq!(Order::new(&capture, ops).unwrap_err().to_string(), expected);
    }
    assert_eq!(Order::new(&capture, vec![1, 0, 2]).unwrap().held(), Some(1));
}

#[test]
fn schedulers_have_names() {
    for scheduler in all() {
        assert_eq!(named(scheduler.name()).unwrap().name(), scheduler.name());
    }
    assert_eq!(
        named("fastest").err().unwrap().to_string(),
        "no order is called `fastest`; choose one of program, bfs, dfs, reverse-dfs, sink, least-peak, exact",
    );
}

#[test]
fn a_search_refuses_what_is_too_wide() {
    // Any op may run first, and each op leaves more bytes in use than before it.
    let count = 20;
    let buffers = (0..count).map(|bytes| CapturedBuffer::result(1 + bytes as u64));
    let wide =
        (0..count).map(|made| CapturedOp { workspace: 10, ..CapturedOp::new("f") }.makes([made]));
    let capture = Capture::new(buffers.collect(), wide.collect()).unwrap();
    let exact = Exact { sets: 1000 };
    let error = exact.order(&capture, Reach::Offline, &Limits::none()).unwrap_err();
    assert!(error.to_string().starts_with("exact searches at most 1000 sets of ops"), "{error}");
    let late = Limits::within(std::time::Duration::ZERO);
    let error = exact.order(&capture, Reach::Offline, &late).unwrap_err();
    assert!(error.to_string().starts_with("exact ran out of time"), "{error}");
    // `least-peak`, which compares all ready ops, and `sink`, which compares all users of a buffer,
    // also stop when the time is up.
    for name in ["least-peak", "sink"] {
        let error = named(name).unwrap().order(&capture, Reach::Offline, &late).unwrap_err();
        assert!(error.to_string().starts_with(&format!("{name} ran out of time")), "{error}");
    }
}

#[test]
fn casts_put_first_sink() {
    for (layers, width, tokens) in [(1, 64, 16), (4, 256, 64), (24, 1024, 128), (40, 5120, 512)] {
        let decoder = Decoder { layers, width, tokens };
        let capture = decoder.capture().unwrap();
        let own = capture.program();
        let sink = Sink.order(&capture, Reach::Held(usize::MAX), &Limits::none()).unwrap();
        let (square, row) = (width * width, tokens * width);
        let parameters = 12 * square * layers as u64;
        // Each op of the first layer has three numbers. The first number is the rows of activations
        // in use. The second number is the half-precision weights in use if each weight is cast
        // when needed. The third number is the weights already freed if all weights are cast first.
        // Weights are counted in units of `width^2` parameters.
        let ops = [(4, 3, 0), (5, 0, 3), (3, 1, 3), (3, 0, 4), (5, 4, 4), (9, 0, 8), (6, 4, 8)];
        let most = |bytes: fn((u64, u64, u64), [u64; 3]) -> u64| {
            ops.iter().map(|&op| bytes(op, [parameters, square, row])).max().unwrap()
        };
        let first =
            most(|(rows, _, gone), [all, square, row]| 2 * (3 * all - gone * square + rows * row));
        let late =
            most(|(rows, cast, _), [all, square, row]| 2 * (2 * all + cast * square + rows * row));
        assert_eq!((own.load(), sink.load()), (first, late));
        // No order has a lower load.
        assert_eq!(floor(&capture), sink.load());
        println!("{decoder:?}: program {}, sink {}", own.load(), sink.load());
    }
}
