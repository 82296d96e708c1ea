//! Checks that schedules compute the same values as the step, that their loads equal a naive count,
//! and that the loads are within the budgets.

use super::*;
use crate::capture::tests::random;
use crate::order::{self, Reach};
use crate::reuse::BestFit;
use crate::{CapturedBuffer, CapturedOp, Limits, Planner};
use remat_rng::mix;

fn with_factors() -> Vec<Box<dyn Rematerializer>> {
    let mut with_factors = all();
    with_factors.push(Box::new(StaticDtr { time_factor: 1.0, memory_factor: 0.0 }));
    with_factors
}

/// Forward and backward pass of `layers` layers: `y = f(x, w)`, then `dx = b(dy, x, w)` and
/// `w -= dw`, from the last to the first.
fn network(layers: usize, bytes: u64) -> Capture {
    let mut buffers = vec![CapturedBuffer::kept(3); layers];
    let mut ops = Vec::new();
    let make = |buffers: &mut Vec<CapturedBuffer>, bytes| {
        buffers.push(CapturedBuffer::transient(bytes));
        buffers.len() - 1
    };
    let mut values = vec![make(&mut buffers, bytes)];
    ops.push(CapturedOp::new("put").makes([values[0]]));
    for weight in 0..layers {
        let made = make(&mut buffers, bytes);
        ops.push(CapturedOp::new("f").reads([values[weight], weight]).makes([made]).costs(2.0));
        values.push(made);
    }
    let mut gradient = values[layers];
    for weight in (0..layers).rev() {
        let (dx, dw) = (make(&mut buffers, bytes), make(&mut buffers, 3));
        let reads = [gradient, values[weight], weight];
        ops.push(CapturedOp::new("b").reads(reads).makes([dx, dw]).costs(4.0));
        ops.push(CapturedOp::new("sgd").reads([dw]).updates([weight]).costs(1.0));
        gradient = dx;
    }
    Capture::new(buffers, ops).unwrap()
}

/// Hashes that stand for values: the inputs of each op at its first run, and the buffers at the
/// end.
fn computed(schedule: &RecomputeSchedule<'_>) -> (Vec<Vec<u64>>, Vec<Option<u64>>) {
    let capture = schedule.capture();
    let there = |(number, buffer): (usize, &CapturedBuffer)| buffer.before.then_some(number as u64);
    let mut values: Vec<Option<u64>> = capture.buffers().iter().enumerate().map(there).collect();
    let mut found = vec![Vec::new(); capture.ops().len()];
    for &action in schedule.actions() {
        match action {
            Action::Drop(buffer) => values[buffer] = None,
            Action::Run(op) => {
                let this = &capture.ops()[op];
                let inputs: Vec<u64> =
                    this.uses().map(|buffer| values[buffer].expect("it is there")).collect();
                let result = inputs.iter().fold(mix(7, op as u64), |hash, &input| mix(hash, input));
                for (output, &buffer) in this.updates.iter().chain(&this.makes).enumerate() {
                    values[buffer] = Some(mix(result, output as u64));
                }
                if found[op].is_empty() {
                    found[op] = inputs;
                }
            }
        }
    }
    let kept = |(value, buffer): (Option<u64>, &CapturedBuffer)| value.filter(|_| buffer.after);
    (found, values.into_iter().zip(capture.buffers()).map(kept).collect())
}

/// Load by definition. A buffer is alive at each run that makes or uses the buffer. The buffer is
/// also alive from a run that makes or uses it to its next use, unless it is dropped or made in
/// between.
fn naive_load(schedule: &RecomputeSchedule<'_>) -> u64 {
    let capture = schedule.capture();
    let runs: Vec<usize> = schedule.runs().collect();
    let mut load = vec![0; runs.len()];
    for (number, buffer) in capture.buffers().iter().enumerate() {
        let mut alive = vec![false; runs.len()];
        // Position of the run since which the buffer is in memory; `None` while the buffer is
        // dropped.
        let mut since = buffer.before.then_some(0);
        let mut at = 0;
        for &action in schedule.actions() {
            match action {
                Action::Drop(dropped) if dropped == number => since = None,
                Action::Drop(_) => {}
                Action::Run(op) => {
                    let op = &capture.ops()[op];
                    if op.makes.contains(&number) {
                        since = Some(at);
                        alive[at] = true;
                    }
                    if op.uses().any(|used| used == number) {
                        alive[since.expect("it is there")..=at].fill(true);
                    }
                    at += 1;
                }
            }
        }
        match since {
            Some(since) if buffer.after => alive[since..].fill(true),
            Some(0) if buffer.before && !alive.is_empty() => alive[0] = true,
            _ => {}
        }
        load.iter_mut().zip(alive).filter(|one| one.1).for_each(|(load, _)| *load += buffer.bytes);
    }
    let with_workspace = |(load, &op): (&u64, &usize)| load + capture.ops()[op].workspace;
    load.iter().zip(&runs).map(with_workspace).max().unwrap_or(0)
}

#[test]
fn schedules_compute_what_the_step_does() {
    let mut reruns = [0; 3];
    let networks = (1..12).map(|layers| network(layers, 10));
    for (number, capture) in (0..60).map(|seed| random(seed, 18)).chain(networks).enumerate() {
        for reach in [Reach::Held(0), Reach::Offline] {
            let scheduler = order::named("reverse-dfs").unwrap();
            let order = scheduler.order(&capture, reach, &Limits::none()).unwrap();
            let once = RecomputeSchedule::once(&order);
            let expected = computed(&once);
            assert_eq!(once.load().unwrap(), order.load());
            for (one, reruns) in with_factors().iter().zip(&mut reruns) {
                for share in [100, 90, 80, 70, 60, 40, 20] {
                    let budget = order.load() * share / 100;
                    let what = format!("{number} {} {share}", one.name());
                    let schedule = match one.schedule(&order, budget) {
                        Ok(schedule) => schedule,
                        Err(ScheduleError::Budget { least, .. }) => {
                            assert!(least > budget, "{what}");
                            continue;
                        }
                        Err(error) => panic!("{what}: {error}"),
                    };
                    let load = schedule.load().unwrap();
                    assert!(load <= budget, "{what}");
                    assert_eq!(load, naive_load(&schedule), "{what}");
                    assert_eq!(computed(&schedule), expected, "{what}");
                    assert!(schedule.slowdown() >= 1.0);
                    assert_eq!(order.load() <= budget, schedule.reruns() == 0, "{what}");
                    let lifetimes = schedule.lifetimes().unwrap();
                    let planned = BestFit.plan(&lifetimes, &Limits::none()).unwrap();
                    assert!(planned.placement.bytes() >= load);
                    *reruns += schedule.reruns();
                    let again = one.schedule(&order, budget).unwrap();
                    assert_eq!(again.actions(), schedule.actions(), "{what}");
                }
            }
        }
    }
    assert!(reruns.iter().all(|&reruns| reruns > 100), "{reruns:?}");
}

#[test]
fn segments_take_memory_by_the_root_of_the_layers() {
    for layers in [16, 64, 256] {
        let capture = network(layers, 100);
        let order = capture.program();
        let error = Sqrt.schedule(&order, 0).unwrap_err();
        let ScheduleError::Budget { least, .. } = error else { panic!("{error}") };
        let weights = 3 * layers as u64;
        let rows = (least - weights) as f64 / 100.0;
        let root = (layers as f64).sqrt();
        assert!(rows > root && rows < 2.0 * root + 6.0, "{layers}: {rows}");
        let schedule = Sqrt.schedule(&order, least).unwrap();
        // The forward op of each layer runs at most twice.
        assert!(schedule.slowdown() > 1.1 && schedule.slowdown() <= 9.0 / 7.0);
    }
}

#[test]
fn dtr_ahead_of_time_costs_little_where_little_is_missing() {
    let capture = network(64, 100);
    let order = capture.program();
    let mut last = 1.0;
    for share in [100, 90, 80, 60, 40, 30] {
        let budget = order.load() * share / 100;
        let slowdown = StaticDtr::default().schedule(&order, budget).unwrap().slowdown();
        println!("{share} %: {slowdown:.3}");
        assert!(slowdown >= last && slowdown < 1.6, "{share}: {slowdown}");
        last = slowdown;
    }
}

#[test]
fn invalid_schedules_are_errors() {
    use Action::{Drop, Run};
    // Buffers 0 to 3 are w, y, z and a result. f makes y from w, g makes z from y, and h updates z
    // in place. k reads y and z, and may run only once. sgd updates w in place.
    let capture = Capture::new(
        vec![
            CapturedBuffer::kept(1),
            CapturedBuffer::transient(1),
            CapturedBuffer::transient(1),
            CapturedBuffer::result(1),
        ],
        vec![
            CapturedOp::new("f").reads([0]).makes([1]),
            CapturedOp::new("g").reads([1]).makes([2]),
            CapturedOp::new("h").updates([2]),
            CapturedOp { rematerializable: false, ..CapturedOp::new("k") }.reads([1, 2]).makes([3]),
            CapturedOp::new("sgd").updates([0]),
        ],
    )
    .unwrap();
    let [f, g, h, k, sgd] = [0, 1, 2, 3, 4].map(Run);
    for (actions, expected) in [
        (vec![f, g, h, k], "op 4 never runs"),
        (vec![g], "buffer 1 is not resident at action 0: run its op again first"),
        (vec![f, sgd, g, h, k, Run(9)], "action 5 runs op 9, but the step has no such op"),
        (vec![sgd, f], "action 0 runs op 4, before op 0 has run"),
        (vec![f, Drop(1), g], "buffer 1 is not resident at action 2"),
        (vec![f, Drop(1), Drop(1)], "buffer 1 is not resident at action 2"),
        (vec![f, Drop(7)], "buffer 7 is not resident at action 1"),
        (vec![f, Drop(0)], "action 1 evicts buffer 0, which cannot be recomputed"),
        (vec![f, g, h, Drop(2)], "action 3 evicts buffer 2, which cannot be recomputed"),
        (vec![f, g, h, h], "action 3 runs op 2 again, which may run only once"),
        (vec![f, g, h, k, k], "action 4 runs op 3 again, which may run only once"),
        (vec![f, g, h, g], "action 3 runs op 1 again, but a buffer of the op was updated"),
        (vec![f, g, h, sgd, f], "action 4 runs op 0 again, but a buffer of the op was updated"),
        (vec![f, g, h, k, Drop(3)], "action 4 evicts buffer 3"),
    ] {
        let error = RecomputeSchedule::new(&capture, actions).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    let actions = vec![f, g, Drop(1), h, f, Drop(2), g];
    assert!(
        RecomputeSchedule::new(&capture, actions)
            .unwrap_err()
            .to_string()
            .contains("evicts buffer 2")
    );
    let actions = vec![f, g, Drop(2), g, Drop(1), h, f, k, sgd];
    let schedule = RecomputeSchedule::new(&capture, actions).unwrap();
    assert_eq!((schedule.reruns(), schedule.lives().len()), (2, 6));
}

#[test]
fn rematerializers_have_names() {
    for one in all() {
        assert_eq!(named(one.name()).unwrap().name(), one.name());
    }
    assert_eq!(
        named("none").err().unwrap().to_string(),
        "no rematerializer is called `none`; choose one of sqrt, static-dtr",
    );
}

/// Each layer has two ops, like a convolution and its bias. Only the second op reads the value
/// between the two ops. The value between the two ops is therefore dropped at once. The value is
/// made again whenever the output of the second op is made again.
#[test]
fn values_used_up_within_a_segment_are_recomputed() {
    let layers = 64;
    let mut buffers = vec![CapturedBuffer::kept(0)];
    buffers.resize(1 + 3 * layers, CapturedBuffer::transient(100));
    let op =
        |reads: &[usize], made: usize| CapturedOp::new("f").reads(reads).makes([made]).costs(1.0);
    let (between, value, gradient) = (1, 1 + layers, 1 + 2 * layers);
    let mut ops = Vec::new();
    for layer in 0..layers {
        let before = if layer == 0 { 0 } else { value + layer - 1 };
        ops.push(op(&[before], between + layer));
        ops.push(op(&[between + layer], value + layer));
    }
    for layer in (0..layers).rev() {
        let after = if layer + 1 == layers { 0 } else { gradient + layer + 1 };
        ops.push(op(&[value + layer, after], gradient + layer));
    }
    let capture = Capture::new(buffers, ops).unwrap();
    let order = capture.program();
    let schedule = Sqrt.schedule(&order, order.load() / 3).unwrap();
    assert!(schedule.slowdown() <= 5.0 / 3.0);
    // A value between the two ops lives for more than two ops only at the end of a segment, which
    // is rare.
    let is_between = |life: &&Life| (between..value).contains(&life.buffer);
    let lives = schedule.lives();
    let waits = lives.iter().filter(is_between).filter(|life| life.end - life.begin > 2);
    let waits = waits.count();
    assert!(waits < layers / 4, "{waits}");
}
