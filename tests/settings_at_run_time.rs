//! Settings that change while the program holds tensors: the budget, the threshold, the policy, and
//! whether compute paths are kept. The bits stay the same, and the budget holds at every instant.

use crate::common::toy::{Bytes, GRANULE, ToyEngine, engine, mix};
use remat::prelude::*;
use remat::unstable::graph::TensorKey;
use remat::unstable::memory::SplitRule;
use remat::{Dead, PolicyKind};
use remat_rng::SplitMix64;

/// Runs the same commands for a seed, and calls `change` before each. Returns the values read.
fn play(engine: &mut ToyEngine, seed: u64, mut change: impl FnMut(&mut ToyEngine)) -> Vec<Vec<u8>> {
    let mut draw = SplitMix64::new(seed);
    let mut held: Vec<TensorKey> = vec![];
    let mut read = vec![];
    for salt in 0..80 {
        change(engine);
        let bytes = 1 + draw.below(3 * GRANULE as usize);
        match (draw.below(10), held.len()) {
            (0..=1, _) | (_, 0) => held.push(engine.put(Bytes::of(bytes, salt))),
            (_, n) if n > 10 => engine.del(held.swap_remove(draw.below(n))),
            (3, n) => read.push(engine.get(held[draw.below(n)]).unwrap().0),
            (4, _) => engine.step(),
            (_, n) => {
                let inputs = [0; 2].map(|_| held[draw.below(n)]);
                held.push(engine.apply(mix(bytes, salt), &inputs).unwrap()[0]);
            }
        }
        engine.check();
        assert!(engine.stats().used_bytes <= engine.budget());
    }
    for &key in &held {
        read.push(engine.get(key).unwrap().0);
    }
    assert!(engine.take_failure().is_none());
    read
}

#[test]
fn settings_may_change_at_any_time_and_the_bits_stay() {
    let mut evictions = 0;
    for seed in 0..40 {
        let plenty = 400 * GRANULE;
        let expected = play(&mut engine(plenty), seed, |_| {});
        let mut draw = SplitMix64::new(seed + 1000);
        let mut changed = engine(plenty);
        let read = play(&mut changed, seed, |engine| match draw.below(8) {
            0 => {
                let budget =
                    (45 + draw.below(20) as u64) * GRANULE - draw.below(GRANULE as usize) as u64;
                engine.set_budget(budget).unwrap();
                assert_eq!(engine.budget(), budget);
            }
            1 => engine.set_budget(plenty).unwrap(),
            2 => {
                let threshold = draw.below(engine.budget() as usize) as u64;
                engine.set_eviction_threshold(Some(threshold)).unwrap();
            }
            3 => engine.set_eviction_threshold(None).unwrap(),
            4 => {
                let kinds: Vec<PolicyKind> = PolicyKind::all().collect();
                let kind = kinds[draw.below(kinds.len())];
                engine.set_evictor(kind.build(seed)).unwrap();
            }
            5 if draw.below(6) == 0 && engine.budget() == plenty => {
                engine.disable().unwrap();
                let (tensors, storages, paths) = engine.graph().counts();
                assert!(storages <= tensors && paths == 0, "no history is left");
            }
            _ => engine.enable(),
        });
        assert_eq!(read, expected, "seed {seed}");
        evictions += changed.stats().evictions;
    }
    assert!(evictions > 200, "{evictions} evictions");
}

#[test]
fn a_budget_that_cannot_be_is_an_error_with_the_figures_and_changes_nothing() {
    let mut engine = engine(8 * GRANULE);
    let x = engine.put(Bytes::of(3 * GRANULE as usize, 1));
    engine.commit(x).unwrap();
    let y = engine.apply(mix(2 * GRANULE as usize, 2), &[x]).unwrap()[0];
    let before = engine.stats();
    for (budget, words) in [
        (0, "that cannot be evicted"),
        (2 * GRANULE, "48 B that cannot be evicted"),
        (9 * GRANULE, "above 128 B, the budget that the runtime was opened with"),
        (u64::MAX, "above 128 B"),
    ] {
        let error = engine.set_budget(budget).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        assert_eq!(engine.stats(), before);
    }
    // The blocks of the remaining tensors are moved below the new budget.
    engine.set_budget(3 * GRANULE).unwrap();
    assert!(!engine.is_resident(y) && engine.is_resident(x));
    assert!(engine.get(y).is_err(), "there is no room for it");
    engine.set_budget(8 * GRANULE).unwrap();
    assert_eq!(engine.get(y).unwrap().0.len(), 2 * GRANULE as usize);
    engine.check();
}

#[test]
fn a_runtime_without_history_evicts_nothing_and_keeps_every_value() {
    let runtime = Runtime::builder().budget("64KiB").threads(1).cpu().unwrap();
    let x = runtime.tensor(&[1024], vec![1.5f32; 1024]).unwrap();
    let y = (&x + 1.0).unwrap();
    runtime.drop_now(&y).unwrap();
    runtime.disable().unwrap();
    let stats = runtime.stats().unwrap();
    assert_eq!((stats.paths, stats.host_bytes, stats.used_bytes), (0, 0, 8 << 10));
    let z = (&y * 2.0).unwrap();
    runtime.drop_now(&z).unwrap();
    let stats = runtime.stats().unwrap();
    assert_eq!((stats.paths, stats.used_bytes), (0, 12 << 10), "it is a leaf");
    runtime.enable().unwrap();
    let w = (&z * 2.0).unwrap();
    runtime.drop_now(&w).unwrap();
    assert_eq!(runtime.stats().unwrap().used_bytes, 12 << 10);
    assert_eq!(w.to_vec::<f32>().unwrap(), vec![10.0; 1024]);
}

#[test]
fn disabling_fails_and_keeps_history_if_values_do_not_fit_without_it() {
    let runtime = Runtime::builder().budget("16KiB").threads(1).cpu().unwrap();
    let kept: Vec<Tensor> = (0..8).map(|i| runtime.full(&[1024], i as f32).unwrap()).collect();
    let error = runtime.disable().unwrap_err().to_string();
    assert!(error.contains("out of memory: disable"), "{error}");
    for (i, x) in kept.iter().enumerate() {
        assert_eq!(x.to_vec::<f32>().unwrap(), vec![i as f32; 1024]);
    }
}

/// Training under budgets with several split rules and with growing regions.
#[test]
fn memory_may_be_taken_as_tensorflow_does_and_the_bits_stay() {
    let train = |builder: remat::Builder| -> (Vec<f32>, remat::Stats) {
        let runtime = builder.seed(3).threads(1).cpu().unwrap();
        let mut w = runtime.normal(&[48, 48], 0.0, 0.1).unwrap();
        for _ in 0..4 {
            let tape = Tape::new(&runtime);
            tape.watch(&mut w);
            let mut x = runtime.ones(&[100, 48]).unwrap();
            for _ in 0..6 {
                x = x.matmul(&w).unwrap().relu().unwrap();
            }
            let loss = x.square().unwrap().mean().unwrap();
            let gradients = tape.backward(&loss).unwrap();
            let dw = (gradients.get(&w).unwrap() * 0.1).unwrap();
            w = (&w - &dw).unwrap();
            runtime.commit(&w).unwrap();
            runtime.step().unwrap();
        }
        (w.to_vec().unwrap(), runtime.stats().unwrap())
    };
    let (bits, unbudgeted) = train(Runtime::builder().budget("64MiB"));
    let peak = unbudgeted.peak_bytes;
    for share in [60, 80, 100, 200] {
        for rule in [SplitRule::Exact, SplitRule::tensorflow_with_fraction(0.02, peak)] {
            for grows in [false, true] {
                for dead in [Dead::Linger, Dead::Drop, Dead::Keep] {
                    let budget = peak * share / 100;
                    let builder = Runtime::builder().budget(budget).dead(dead);
                    let (found, stats) = train(builder.split_rule(rule).allow_growth(grows));
                    assert_eq!(found, bits, "{share} % {rule:?} {grows}");
                    assert!(stats.peak_bytes <= budget);
                }
            }
        }
    }
}

/// Evictions do not depend on how far ahead the caller is, nor on when the worker finds dropped
/// handles.
#[test]
fn evictions_do_not_depend_on_time() {
    let run = |sleeps: u64| {
        let mut draw = SplitMix64::new(sleeps);
        let runtime = Runtime::builder().budget("40KiB").min_evict_bytes(0u64).sim().unwrap();
        let mut held: Vec<Tensor> = vec![runtime.ones(&[1024]).unwrap()];
        let mut choice = SplitMix64::new(7);
        for _ in 0..150 {
            let pick = choice.below(held.len());
            match choice.below(3) {
                0 if held.len() > 4 => drop(held.swap_remove(pick)),
                _ => {
                    let made = held[pick].square().unwrap();
                    held.push(made);
                }
            }
            if sleeps > 0 && draw.below(4) == 0 {
                std::thread::sleep(std::time::Duration::from_millis(12 * draw.below(3) as u64));
            }
        }
        let stats = runtime.stats().unwrap();
        (stats.evictions, stats.evicted_bytes, stats.recomputed_ops, stats.fake_deletes)
    };
    let expected = run(0);
    assert!(expected.0 > 20);
    for sleeps in 1..4 {
        assert_eq!(run(sleeps), expected);
    }
}
