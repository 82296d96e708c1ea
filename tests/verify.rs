//! Verification finds an op whose second run gives other bits, with plans and without. Verification
//! never reports an op that gives the same bits.

use remat::device::{DeviceError, cpu};
use remat::error::{OtherBits, RuntimeError};
use remat::ops::CustomOp;
use remat::prelude::*;
use remat::{Builder, DType, Layout, Plan, PolicyKind, Stats};
use std::sync::atomic::{AtomicU32, Ordering};

/// Fault of an op's later runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    Nothing,
    /// Flips the last bit of the element.
    One(usize),
    All,
    /// Turns the element from 0 into -0.
    Sign(usize),
    /// Turns the element from NaN into another NaN.
    Nan(usize),
    /// Adds one to this element of the second output.
    Second(usize),
}

/// `(x) -> (x + 1 as a float type, number of positive elements so far)`. Every run after the first
/// has the fault `wrong`.
#[derive(Debug)]
struct Odd {
    wrong: Wrong,
    dtype: DType,
    runs: AtomicU32,
}

/// Index of the element that is 0, and of the one that is NaN.
const ZERO: usize = 700;
const NAN: usize = 701;

impl CustomOp for Odd {
    fn name(&self) -> &str {
        "odd"
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Vec<Layout>, String> {
        let shape = *inputs[0].shape();
        Ok([self.dtype, DType::I32].map(|dtype| Layout::contiguous(dtype, shape)).into())
    }

    fn cpu(&self, mut operands: cpu::Operands<'_>) -> Result<(), DeviceError> {
        let [x] = operands.floats();
        let again = self.runs.fetch_add(1, Ordering::SeqCst) > 0;
        let wrong = if again { self.wrong } else { Wrong::Nothing };
        let bits = |at: usize| {
            let value = match at {
                ZERO if wrong == Wrong::Sign(ZERO) => -0.0,
                ZERO => 0.0,
                NAN => f32::NAN,
                _ => x[at] + 1.0,
            };
            // A `bf16` is the upper half of an f32.
            let bits =
                if self.dtype == DType::BF16 { value.to_bits() >> 16 } else { value.to_bits() };
            match wrong {
                Wrong::One(one) | Wrong::Nan(one) if one == at => bits ^ 1,
                Wrong::All => !bits,
                _ => bits,
            }
        };
        if self.dtype == DType::BF16 {
            let out = operands.write::<u16>(0);
            out.iter_mut().enumerate().for_each(|(at, y)| *y = bits(at) as u16);
        } else {
            let out = operands.write::<u32>(0);
            out.iter_mut().enumerate().for_each(|(at, y)| *y = bits(at));
        }
        let mut above = 0;
        for (at, (count, x)) in operands.write::<i32>(1).iter_mut().zip(x).enumerate() {
            above += i32::from(*x > 0.0);
            *count = above + i32::from(wrong == Wrong::Second(at));
        }
        Ok(())
    }
}

const SHAPE: [usize; 2] = [32, 32];
const LAYERS: usize = 12;
/// Layer that runs the faulty op.
const ODD: usize = 3;

/// Program whose steps differ only in their data.
#[derive(Clone, Copy, Debug)]
struct Program {
    dtype: DType,
    steps: usize,
    /// Step in which the op is faulty.
    step: usize,
    wrong: Wrong,
    /// Whether handles are dropped as soon as nothing reads them.
    lets_go: bool,
    /// Number of reads in the faulty step after which one more op makes the step leave its plan.
    twist: Option<usize>,
}

/// Bytes read, or the error, each with the number of its step.
type Read = Vec<(usize, Result<Vec<u8>, Error>)>;

struct Ran {
    read: Read,
    /// Errors of the syncs at the ends of steps, with their steps.
    synced: Vec<(usize, Error)>,
    stats: Stats,
}

impl Program {
    fn new(wrong: Wrong) -> Self {
        Self { dtype: DType::F32, steps: 40, step: 30, wrong, lets_go: false, twist: None }
    }

    fn run(self, builder: Builder) -> Ran {
        let runtime = builder.threads(1).min_evict_bytes(0u64).cpu().unwrap();
        let (mut read, mut synced) = (Read::new(), Vec::new());
        for step in 0..self.steps {
            let wrong = if step == self.step { self.wrong } else { Wrong::Nothing };
            self.step(&runtime, step, wrong, &mut read).unwrap();
            runtime.step().unwrap();
            if let Err(error) = runtime.sync() {
                synced.push((step, error));
            }
        }
        let stats = runtime.stats().unwrap();
        Ran { read, synced, stats }
    }

    fn step(
        self,
        runtime: &Runtime,
        step: usize,
        wrong: Wrong,
        read: &mut Read,
    ) -> Result<(), Error> {
        let data = (0..SHAPE[0] * SHAPE[1]).map(|i| ((i * 7 + step * 13) % 23) as f32 / 23.0 - 0.5);
        let mut kept = vec![runtime.tensor(&SHAPE, data.collect())?];
        let mut counts = None;
        for layer in 0..LAYERS {
            let x = &kept[layer];
            kept.push(if layer == ODD {
                let op = Odd { wrong, dtype: self.dtype, runs: AtomicU32::new(0) };
                let [y, count]: [Tensor; 2] = Tensor::apply(op, &[x])?.into_inner().unwrap();
                counts = Some(count);
                y
            } else if layer == ODD + 1 {
                x.cast(DType::F32)?
            } else {
                x.sin()?
            });
        }
        if self.lets_go {
            // Every second value is read only by later layers, so its handle is dropped here.
            let mut layer = 0;
            kept.retain(|_| {
                layer += 1;
                layer % 2 == 0
            });
        }
        let counts = counts.expect("a layer is odd");
        let mut number = 0;
        let mut get = |tensor: &Tensor, read: &mut Read| {
            if step == self.step && self.twist == Some(number) {
                drop(tensor.reshape(&[SHAPE[0] * SHAPE[1]]));
            }
            number += 1;
            read.push((step, tensor.to_host().map(|host| host.as_bytes().to_vec())));
        };
        while let Some(x) = kept.pop() {
            get(&x, read);
            if kept.len() == 2 {
                get(&counts, read);
            }
        }
        Ok(())
    }
}

fn bytes() -> u64 {
    4 * (SHAPE[0] * SHAPE[1]) as u64
}

/// Compares the reads with those without a budget. Returns the number of wrong values read without
/// an error, and all errors with their steps.
fn compare(ran: Ran, expected: &Ran) -> (usize, Vec<(usize, Error)>) {
    let (mut silent, mut errors) = (0, ran.synced);
    assert_eq!(ran.read.len(), expected.read.len());
    for ((step, value), (_, right)) in ran.read.into_iter().zip(&expected.read) {
        match value {
            Err(error) => errors.push((step, error)),
            Ok(bits) => silent += usize::from(bits != *right.as_ref().unwrap()),
        }
    }
    (silent, errors)
}

fn as_other_bits(error: &Error) -> &OtherBits {
    match error {
        Error::OtherBits(found) => found,
        other => panic!("{other}"),
    }
}

/// Expected report of a fault: the output, the first wrong element, and whether there are more.
fn told(wrong: Wrong) -> (usize, usize, bool) {
    match wrong {
        Wrong::One(at) | Wrong::Sign(at) | Wrong::Nan(at) => (0, at, false),
        Wrong::Second(at) => (1, at, false),
        Wrong::All => (0, 0, true),
        Wrong::Nothing => unreachable!(),
    }
}

const WRONGS: [Wrong; 6] = [
    Wrong::One(0),
    Wrong::One(777),
    Wrong::All,
    Wrong::Sign(ZERO),
    Wrong::Nan(NAN),
    Wrong::Second(1023),
];

/// Each fault is named with its op, step and element, and no wrong value is read. The test runs
/// several policies and budgets, with plans and without.
///
/// Without verification, wrong values are read.
#[test]
fn an_op_that_gives_other_bits_is_named_with_its_step_and_element() {
    let (mut found, mut by_plan, mut unseen, mut right) = (0, 0, 0, 0);
    let mut found_by_plan = 0;
    for dtype in [DType::F32, DType::BF16] {
        let expected = Program { dtype, ..Program::new(Wrong::Nothing) }.run(Runtime::builder());
        for (number, wrong) in WRONGS.into_iter().enumerate() {
            for tensors in [4, 5, 6] {
                for plan in [Plan::Off, Plan::Auto] {
                    let policies = [PolicyKind::Lru, PolicyKind::Dtr, PolicyKind::default()];
                    let policy = policies[(number + tensors as usize) % 3];
                    let builder =
                        || Runtime::builder().budget(tensors * bytes()).policy(policy).plan(plan);
                    let program = Program { dtype, ..Program::new(wrong) };
                    let at = format!("{dtype:?} {wrong:?} {tensors} {plan:?} {policy}");
                    let ran = program.run(builder().verify_recomputed(1.0));
                    let stats = ran.stats;
                    let (silent, errors) = compare(ran, &expected);
                    assert_eq!(silent, 0, "{at}");
                    assert_eq!(stats.unverified_values, 0, "{at}");
                    assert!(stats.verified_values > 0, "{at}: {stats:?}");
                    by_plan += usize::from(stats.planned_steps_evicting > 10);
                    for (step, error) in &errors {
                        let other = as_other_bits(error);
                        let (output, element, more) = told(wrong);
                        assert_eq!((*step, other.step), (30, 31), "{at}: {error}");
                        assert_eq!((&*other.op, other.output), ("odd", output), "{at}: {error}");
                        assert_eq!(other.elements, element..element + 1, "{at}: {error}");
                        assert_eq!(other.more, more, "{at}: {error}");
                        let text = error.to_string();
                        assert!(text.starts_with("odd(f32[32, 32]) gave other bits"), "{text}");
                        assert!(text.contains(&format!("element {element} was ")), "{text}");
                    }
                    found += usize::from(!errors.is_empty());
                    let plans = stats.planned_steps_evicting > 10 && stats.left_plans > 0;
                    found_by_plan += usize::from(plans && !errors.is_empty());
                    right += usize::from(errors.is_empty());
                    // Without verification, wrong values are read, without an error.
                    let (silent, errors) = compare(program.run(builder()), &expected);
                    assert!(errors.is_empty(), "{at}");
                    unseen += usize::from(silent > 0);
                }
            }
        }
    }
    println!(
        "{found} found, {by_plan} by plan, {unseen} unseen without, {right} that did not run again"
    );
    assert!(found > 40 && by_plan > 20 && unseen > 20, "{found} {by_plan} {unseen} {right}");
    assert!(found_by_plan > 15, "{found_by_plan}");
}

/// A step leaves its plan at each of its reads in turn. After leaving, the engine has the hashes of
/// the values that were made by plan.
#[test]
fn where_a_plan_is_left_what_it_kept_is_known() {
    let (mut found, mut left) = (0, 0);
    for lets_go in [false, true] {
        let program = Program { lets_go, ..Program::new(Wrong::Nothing) };
        let expected = program.run(Runtime::builder());
        for twist in 0..LAYERS + 2 {
            for tensors in [4, 5] {
                let builder = Runtime::builder()
                    .budget(tensors * bytes())
                    .policy(PolicyKind::Lru)
                    .plan(Plan::Auto)
                    .verify_recomputed(1.0);
                let program = Program { wrong: Wrong::One(500), twist: Some(twist), ..program };
                let ran = program.run(builder);
                let stats = ran.stats;
                let (silent, errors) = compare(ran, &expected);
                assert!(silent == 0 || stats.unverified_values > 0, "{twist} {tensors} {lets_go}");
                assert!(lets_go || silent == 0, "{twist} {tensors}: {stats:?}");
                errors.iter().for_each(|(_, error)| {
                    assert_eq!(as_other_bits(error).elements, 500..501);
                });
                found += usize::from(!errors.is_empty());
                left += stats.left_plans;
            }
        }
    }
    println!("{found} found, {left} plans left");
    assert!(found > 10 && left > 10, "{found} {left}");
}

/// Right values are never reported, and a hash is freed with the last handle of its value. A share
/// below 1 verifies the same values in each run.
#[test]
fn a_share_is_the_same_each_time_and_what_is_kept_goes() {
    for plan in [Plan::Off, Plan::Auto] {
        for lets_go in [false, true] {
            let program = Program { lets_go, ..Program::new(Wrong::Nothing) };
            let expected = program.run(Runtime::builder());
            let counts = |share: f64| {
                let builder =
                    Runtime::builder().budget(5 * bytes()).policy(PolicyKind::Dtr).plan(plan);
                let ran = program.run(builder.verify_recomputed(share));
                let stats = ran.stats;
                let (silent, errors) = compare(ran, &expected);
                assert_eq!((silent, errors.len()), (0, 0), "{plan:?} {share}");
                assert_eq!((stats.hash_bytes, stats.host_bytes), (0, 0), "{plan:?} {share}");
                (stats.verified_values, stats.unverified_values, stats.hashed_bytes)
            };
            let (all, none, hashed) = counts(1.0);
            assert!(all > 100 && none == 0, "{plan:?}: {all} {none}");
            let part = counts(0.25);
            assert_eq!(part, counts(0.25), "{plan:?}");
            let (some, others, part_hashed) = part;
            assert_eq!(some + others, all, "{plan:?}");
            assert!(some > all / 8 && some < all / 2, "{plan:?}: {some} of {all}");
            assert!(part_hashed > hashed / 8 && part_hashed < hashed / 2);
        }
    }
}

/// Hashes of evicted storages count as host memory.
#[test]
fn hashes_count_as_host_bytes() -> Result<(), Error> {
    let held = |share: Option<f64>| {
        let builder = Runtime::builder().budget("64KiB").policy(PolicyKind::Lru);
        let builder = match share {
            Some(share) => builder.verify_recomputed(share),
            None => builder,
        };
        let runtime = builder.cpu()?;
        let x = runtime.ones(&[1024])?;
        let made = (0..40).map(|_| x.sin()).collect::<Result<Vec<_>, _>>()?;
        runtime.sync()?;
        let before = runtime.stats()?;
        drop((x, made));
        runtime.sync()?;
        let after = runtime.stats()?;
        assert_eq!((after.hash_bytes, after.host_bytes), (0, 0));
        Ok::<_, Error>((before.evictions, before.hash_bytes, before.host_bytes))
    };
    let (evictions, hashes, host) = held(Some(1.0))?;
    assert!(evictions > 20 && hashes >= 4 * 32 * evictions && hashes == host, "{hashes} {host}");
    assert!(hashes < evictions * 4096 / 8, "{hashes}");
    assert_eq!(held(None)?, (evictions, 0, 0));
    Ok(())
}

/// Commands that need a lost value fail at once with the error of the lost value. Commands that
/// need no lost value succeed. `sync` does not report an error that a read already reported.
#[test]
fn outputs_with_other_bits_stay_lost_and_the_rest_goes_on() -> Result<(), Error> {
    let runtime = Runtime::builder().budget("1MiB").verify_recomputed(1.0).cpu()?;
    let x = runtime.tensor(&SHAPE, vec![0.5; 1024])?;
    let op = Odd { wrong: Wrong::One(9), dtype: DType::F32, runs: AtomicU32::new(0) };
    let [y, count]: [Tensor; 2] = Tensor::apply(op, &[&x])?.into_inner().unwrap();
    let z = y.cos()?;
    let bits = |tensor: &Tensor| tensor.to_host().map(|host| host.as_bytes().to_vec());
    let values = [&x, &z].map(bits);
    runtime.drop_now(&y)?;
    let ops = |runtime: &Runtime| runtime.stats().map(|stats| stats.recomputed_ops);
    let error = y.to_vec::<f32>().unwrap_err();
    assert_eq!(as_other_bits(&error).elements, 9..10);
    let ran = ops(&runtime)?;
    // The op's other output was overwritten by the same run, so it is lost too.
    for lost in [&y, &count] {
        let error = lost.to_host().unwrap_err();
        assert_eq!(as_other_bits(&error).elements, 9..10);
    }
    let lost = y.sin()?;
    assert!(matches!(lost.to_vec::<f32>(), Err(Error::OtherBits(_))));
    assert_eq!(ops(&runtime)?, ran, "nothing is run for it again");
    runtime.sync()?;
    runtime.step()?;
    runtime.sync()?;
    for (tensor, before) in [&x, &z].into_iter().zip(values) {
        assert!(bits(tensor)? == before?);
    }
    Ok(())
}

/// An upload is restored from its host copy, and a random op runs again from its seed. Upload and
/// rerun restore the same bits.
#[test]
fn uploads_and_random_ops_are_compared_too() -> Result<(), Error> {
    let runtime = Runtime::builder().budget("1MiB").verify_recomputed(1.0).cpu()?;
    let put = runtime.tensor(&SHAPE, vec![f32::NAN; 1024])?;
    let drawn = runtime.normal(&SHAPE, 0.0, 1.0)?;
    for tensor in [&put, &drawn] {
        let before = tensor.to_host()?;
        runtime.drop_now(tensor)?;
        assert_eq!(tensor.to_host()?.as_bytes(), before.as_bytes());
    }
    let stats = runtime.stats()?;
    assert_eq!((stats.verified_values, stats.unverified_values), (2, 0));
    assert_eq!(stats.hashed_bytes, 4 * bytes());
    Ok(())
}

#[test]
fn invalid_shares_and_devices_without_values_are_refused() {
    let settings = |result: Result<Runtime, Error>| match result.map(drop).unwrap_err() {
        Error::Runtime(error) => match &*error {
            RuntimeError::Settings(message) => message.clone(),
            other => panic!("{other}"),
        },
        other => panic!("{other}"),
    };
    for share in [0.0, -0.5, 1.5, f64::NAN, f64::INFINITY] {
        let message = settings(Runtime::builder().budget("1MiB").verify_recomputed(share).cpu());
        assert!(message.contains(&format!("is {share}; give a number above 0 and at most 1")));
    }
    let message = settings(Runtime::builder().verify_recomputed(1.0).sim());
    assert!(message.contains("sim") && message.contains("cannot be verified"), "{message}");
}
