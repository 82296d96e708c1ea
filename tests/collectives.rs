//! Collectives among ranks that are threads: values, sums in the order of the ranks, and failures.
//! All ranks learn of a failure in the collective in which it happens.

use remat::device::{DeviceError, cpu};
use remat::ops::CustomOp;
use remat::prelude::*;
use remat::unstable::collective::{Ranks, Threads, threads};
use remat::{Layout, PolicyKind};
use remat_rng::SplitMix64;

/// Runs `work` on each of `count` ranks, with a buffer of `buffer` bytes, and returns the results.
fn on_ranks<T: Send + 'static>(
    count: usize,
    buffer: usize,
    work: impl Fn(Ranks) -> T + Clone + Send + 'static,
) -> Vec<T> {
    let start = |fabric: Threads| {
        let work = work.clone();
        std::thread::spawn(move || work(Ranks::with_buffer(fabric, buffer)))
    };
    let ranks: Vec<_> = threads(count).into_iter().map(start).collect();
    ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
}

fn values(rank: usize, elements: usize) -> Vec<f32> {
    let mut numbers = SplitMix64::new(rank as u64 + 1);
    (0..elements).map(|_| (numbers.below(1 << 20) as f32 - 500_000.0) / 777.0).collect()
}

fn runtime(kilobytes: u64) -> Runtime {
    Runtime::builder().budget(kilobytes << 10).threads(1).cpu().unwrap()
}

#[test]
fn sums_are_made_in_the_order_of_the_ranks() {
    for (count, elements) in [(1, 7), (2, 1), (2, 1000), (3, 1000), (4, 999), (5, 3), (7, 4097)] {
        let mut expected = values(0, elements);
        for rank in 1..count {
            expected.iter_mut().zip(values(rank, elements)).for_each(|(sum, x)| *sum += x);
        }
        for buffer in [1 << 10, 3000, 1 << 20] {
            let sums = on_ranks(count, buffer, move |ranks| {
                let runtime = runtime(1 << 11);
                let mut x = runtime.tensor(&[elements], values(ranks.rank(), elements)).unwrap();
                runtime.update(ranks.all_reduce("x"), &mut [&mut x], &[]).unwrap();
                let mut mean = runtime.tensor(&[elements], values(ranks.rank(), elements)).unwrap();
                runtime.update(ranks.all_mean("mean"), &mut [&mut mean], &[]).unwrap();
                [x, mean].map(|x| x.to_vec::<f32>().unwrap())
            });
            for [sum, mean] in sums {
                assert_eq!(sum, expected, "{count} ranks, {elements} elements, {buffer} bytes");
                let of_all = expected.iter().map(|sum| sum / count as f32);
                assert!(of_all.eq(mean), "{count} ranks, {elements} elements, {buffer} bytes");
            }
        }
    }
}

#[test]
fn parts_are_scattered_gathered_and_broadcast() {
    for count in 1..=4 {
        for buffer in [1 << 10, 1 << 16] {
            let found = on_ranks(count, buffer, move |ranks| {
                let runtime = runtime(1 << 11);
                let rank = ranks.rank();
                let x = runtime.tensor(&[5 * count, 60], values(rank, 300 * count)).unwrap();
                let part = Tensor::apply(ranks.reduce_scatter("x"), &[&x]).unwrap().remove(0);
                assert_eq!(part.shape(), [5, 60]);
                let sum = Tensor::apply(ranks.all_gather("part"), &[&part]).unwrap().remove(0);
                assert_eq!(sum.shape(), [5 * count, 60]);
                let mut whole = x.clone();
                runtime.update(ranks.all_reduce("whole"), &mut [&mut whole], &[]).unwrap();
                assert_eq!(sum.to_vec::<f32>().unwrap(), whole.to_vec::<f32>().unwrap());
                let labels = runtime.tensor(&[3], vec![rank as i32, -1, 7]).unwrap();
                let all = Tensor::apply(ranks.all_gather("labels"), &[&labels]).unwrap().remove(0);
                let root = count - 1;
                let mut last = runtime.tensor(&[700], values(rank, 700)).unwrap();
                runtime.update(ranks.broadcast("last", root), &mut [&mut last], &[]).unwrap();
                assert_eq!(last.to_vec::<f32>().unwrap(), values(root, 700));
                all.to_vec::<i32>().unwrap()
            });
            for all in found {
                let expected = (0..count).flat_map(|rank| [rank as i32, -1, 7]);
                assert!(expected.eq(all), "{count} ranks");
            }
        }
    }
}

/// Op that fails.
#[derive(Debug)]
struct Broken;

impl CustomOp for Broken {
    fn name(&self) -> &str {
        "broken"
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Vec<Layout>, String> {
        Ok(vec![inputs[0]])
    }

    fn cpu(&self, _operands: cpu::Operands<'_>) -> Result<(), DeviceError> {
        Err(DeviceError::new("on purpose"))
    }
}

/// A rank whose op fails skips the collective of this op. All ranks learn of the failure in this
/// collective, and go on with the next collective.
#[test]
fn a_failure_on_one_rank_is_a_failure_on_all_in_the_same_collective() {
    for count in 2..=4 {
        for bad in 0..count {
            let found = on_ranks(count, 1 << 10, move |ranks| {
                let runtime = runtime(64);
                let mut w = runtime.ones(&[10]).unwrap();
                let mut reasons = Vec::new();
                for step in 0..4 {
                    let mut gradient = w.sin().unwrap();
                    if ranks.rank() == bad && step == 1 {
                        gradient = Tensor::apply(Broken, &[&gradient]).unwrap().remove(0);
                    }
                    runtime.update(ranks.all_reduce("w"), &mut [&mut gradient], &[]).unwrap();
                    let step = remat::unstable::ops::Accumulate;
                    runtime.update(step, &mut [&mut w], &[&gradient]).unwrap();
                    runtime.step().unwrap();
                    reasons.push(runtime.sync().err().map(|error| error.to_string()));
                }
                (reasons, w.to_vec::<f32>().unwrap())
            });
            let (_, expected) = &found[0];
            for (rank, (reasons, w)) in found.iter().enumerate() {
                assert_eq!(w, expected, "{count} ranks, rank {rank}");
                for (step, reason) in reasons.iter().enumerate() {
                    let reason = reason.as_deref().unwrap_or_default();
                    assert_eq!(reason.contains("on purpose"), step == 1, "rank {rank}: {reason}");
                    let told = reason.contains(&format!("rank {bad} failed: "));
                    assert_eq!(told, step == 1 && rank != bad, "rank {rank}: {reason}");
                }
            }
        }
    }
}

#[test]
fn collectives_that_differ_are_the_same_error_on_all_ranks() {
    type Call = fn(&Ranks, &Runtime, bool);
    let cases: [(Call, &str); 4] = [
        (
            |ranks, runtime, odd| {
                let mut x = runtime.ones(&[if odd { 9 } else { 8 }]).unwrap();
                runtime.update(ranks.all_reduce("x"), &mut [&mut x], &[]).unwrap();
            },
            "on rank 0, collective 1 is an all-reduce as a sum of 32 B of f32; on rank 1, collective 1 is an \
             all-reduce as a sum of 36 B of f32",
        ),
        (
            |ranks, runtime, odd| {
                let mut x = runtime.ones(&[8]).unwrap();
                let name = if odd { "x" } else { "y" };
                runtime.update(ranks.all_reduce(name), &mut [&mut x], &[]).unwrap();
            },
            "on rank 0 and rank 1 of tensors with other names",
        ),
        (
            |ranks, runtime, odd| {
                let mut x = runtime.ones(&[8]).unwrap();
                let op = if odd { ranks.all_mean("x") } else { ranks.all_reduce("x") };
                runtime.update(op, &mut [&mut x], &[]).unwrap();
            },
            "on rank 1, collective 1 is an all-reduce as a mean of 32 B",
        ),
        (
            |ranks, runtime, odd| {
                let mut x = runtime.ones(&[8]).unwrap();
                match odd {
                    true => drop(Tensor::apply(ranks.all_gather("x"), &[&x]).unwrap()),
                    false => runtime.update(ranks.broadcast("x", 0), &mut [&mut x], &[]).unwrap(),
                }
            },
            "on rank 0, collective 1 is a broadcast from rank 0 of 32 B of f32; on rank 1, collective 1 is an all-gather",
        ),
    ];
    for (call, words) in cases {
        let errors = on_ranks(3, 1 << 10, move |ranks| {
            let runtime = runtime(64);
            let mut first = runtime.ones(&[8]).unwrap();
            runtime.update(ranks.all_reduce("first"), &mut [&mut first], &[]).unwrap();
            call(&ranks, &runtime, ranks.rank() == 1);
            let error = runtime.sync().unwrap_err().to_string();
            assert_eq!(first.to_vec::<f32>().unwrap(), [3.0; 8]);
            // After the failure, collectives communicate nothing, and no rank waits.
            let mut later = runtime.ones(&[8]).unwrap();
            runtime.update(ranks.all_reduce("later"), &mut [&mut later], &[]).unwrap();
            let again = runtime.sync().unwrap_err().to_string();
            let why = |text: &str| text.split_once(": ").unwrap().1.to_owned();
            assert_eq!(why(&again), why(&error));
            why(&error)
        });
        for error in &errors {
            assert!(error.contains(words), "{error}");
            assert_eq!(*error, errors[0]);
        }
    }
}

#[test]
fn a_rank_that_leaves_ends_the_collectives_of_the_others() {
    let found = on_ranks(3, 1 << 10, |ranks| {
        let runtime = runtime(64);
        if ranks.rank() == 2 {
            return "left".to_owned();
        }
        let mut x = runtime.ones(&[8]).unwrap();
        runtime.update(ranks.all_reduce("x"), &mut [&mut x], &[]).unwrap();
        runtime.sync().unwrap_err().to_string()
    });
    assert!(
        found[0].contains("rank 2 has left") && found[1].contains("rank 2 has left"),
        "{found:?}"
    );
}

/// Ranks under different budgets and policies recompute different ops, but get the same sums.
#[test]
fn ranks_may_recompute_what_they_like() {
    let train = |ranks: &Ranks, kilobytes: u64, policy: PolicyKind, seed: u64| {
        let builder = Runtime::builder().budget(kilobytes << 10).policy(policy).threads(1);
        let runtime = builder.cpu().unwrap();
        let mut numbers = SplitMix64::new(seed);
        let mut w = runtime.tensor(&[256], values(9, 256)).unwrap();
        for _ in 0..12 {
            let data: Vec<f32> = (0..256).map(|_| numbers.below(100) as f32 / 100.0).collect();
            let mut passed = vec![runtime.tensor(&[256], data).unwrap()];
            for _ in 0..12 {
                let next = (passed.last().unwrap() * &w).unwrap().tanh().unwrap();
                passed.push(next);
            }
            let mut gradient = w.cos().unwrap();
            while let Some(x) = passed.pop() {
                gradient = ((gradient * &x).unwrap() + &x).unwrap();
            }
            runtime.update(ranks.all_mean("w"), &mut [&mut gradient], &[]).unwrap();
            let step = remat::unstable::ops::Accumulate;
            runtime.update(step, &mut [&mut w], &[&(gradient * 0.01).unwrap()]).unwrap();
            runtime.step().unwrap();
        }
        (w.to_vec::<f32>().unwrap(), runtime.stats().unwrap())
    };
    let policies: Vec<PolicyKind> = PolicyKind::all().collect();
    let mut recomputed = 0;
    for case in 0..40_usize {
        let count = 2 + case % 3;
        let policies = policies.clone();
        let found = on_ranks(count, 1 << 10, move |ranks| {
            let at = case + 3 * ranks.rank();
            let kilobytes = [10, 12, 16, 64][at % 4];
            train(&ranks, kilobytes, policies[at % policies.len()], ranks.rank() as u64)
        });
        let plentiful = on_ranks(count, 1 << 16, move |ranks| {
            train(&ranks, 1 << 10, PolicyKind::None, ranks.rank() as u64)
        });
        recomputed += found.iter().map(|(_, stats)| stats.recomputed_ops).sum::<u64>();
        for (w, _) in &found {
            assert_eq!(*w, plentiful[0].0, "case {case}");
        }
    }
    assert!(recomputed > 1000, "{recomputed}");
}
