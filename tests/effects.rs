//! Ops without outputs run once, for their effect elsewhere and for their cost.

use crate::common::toy::{
    Broken, Bytes, GRANULE, Toy, engine, engine_with, mix, runtime, settings,
};
use remat::unstable::graph::TensorKey;
use remat::{CostModelKind, Error, PolicyKind};
use std::sync::Arc;

const BLOCK: usize = GRANULE as usize;

/// Op without outputs that would fail in a second run.
fn effect(salt: u64) -> Toy {
    Toy::Break { bytes: vec![], salt, run: 2, how: Broken::Fails }
}

fn broken(how: Broken) -> Toy {
    Toy::Break { bytes: vec![], salt: 0, run: 1, how }
}

#[test]
fn they_run_once_whatever_is_evicted_before_and_after() {
    let mut regenerated = 0;
    for policy in PolicyKind::all() {
        for (blocks, threshold) in [(100, None), (6, None), (4, None), (100, Some(5 * GRANULE))] {
            let mut settings = settings();
            settings.eviction_threshold = threshold;
            let bytes = blocks * GRANULE;
            let mut engine = engine_with(bytes, settings, policy, CostModelKind::Bytes);
            let mut chain = vec![engine.put(Bytes::of(BLOCK, 1))];
            let mut effects = 0;
            for salt in 0..12 {
                let last = chain[chain.len() - 1];
                chain.push(engine.apply(mix(BLOCK, salt), &[last]).unwrap()[0]);
                let inputs = [chain[chain.len() / 2], chain[0]];
                let before = engine.stats();
                match salt % 2 {
                    0 => assert!(engine.apply(effect(salt), &inputs).unwrap().is_empty()),
                    _ => {
                        let (keys, failed) =
                            engine.issue(effect(salt), &inputs, &Default::default()).unwrap();
                        assert!(keys.is_empty() && failed.is_none());
                    }
                }
                effects += 1;
                assert!(inputs.iter().all(|&key| engine.is_resident(key)), "they were read");
                let after = engine.stats();
                assert_eq!(after.ops, before.ops + 1);
                let cost = after.base_cost - before.base_cost;
                assert!((cost - 2.0 * BLOCK as f64 / 1e8).abs() < 1e-15, "{cost}");
                // No tensor, storage or path was added.
                assert_eq!(after.paths, before.paths);
                assert_eq!((after.tensors, after.storages), (before.tensors, before.storages));
                engine.check();
            }
            for &key in chain.iter().rev() {
                engine.get(key).unwrap();
            }
            let stats = engine.stats();
            assert_eq!(engine.device().watch.runs(), stats.ops + stats.recomputed_ops);
            assert_eq!(stats.ops, chain.len() as u64 + effects);
            assert!(engine.take_failure().is_none());
            engine.device().watch.check();
            regenerated += stats.recomputed_ops;
        }
    }
    assert!(regenerated > 0);
}

#[test]
fn a_failure_is_told_once_and_loses_nothing() {
    for how in [Broken::Fails, Broken::Panics] {
        let mut engine = engine(4 * GRANULE);
        let x = engine.put(Bytes::of(BLOCK, 1));
        let y = engine.apply(mix(BLOCK, 2), &[x]).unwrap()[0];
        let bits = engine.get(y).unwrap();
        let error = engine.apply(broken(how), &[x, y]).unwrap_err();
        assert!(matches!(error, Error::Device(_)), "{error}");
        assert!(engine.take_failure().is_none(), "whoever asked was told");
        engine
            .issue(Toy::Break { bytes: vec![], salt: 9, run: 1, how }, &[y], &Default::default())
            .unwrap();
        let later = engine.take_failure().expect("it is kept");
        assert!(later.to_string().contains("broken on purpose"), "{later}");
        assert!(engine.take_failure().is_none(), "once");
        engine.check();
        // No storage stays pinned.
        engine.apply(mix(4 * BLOCK, 3), &[]).unwrap();
        assert_eq!(engine.get(y).unwrap(), bits);
    }
}

#[test]
fn with_inputs_that_are_lost_they_do_not_run() {
    let mut engine = engine(8 * GRANULE);
    let x = engine.put(Bytes::of(BLOCK, 1));
    let fails = Toy::Break { bytes: vec![BLOCK], salt: 5, run: 1, how: Broken::Fails };
    let outputs = remat::op::Outputs::fresh([remat::Layout::raw(BLOCK)]);
    let lost: TensorKey = engine.issue(fails, &[x], &outputs).unwrap().0[0];
    let runs = engine.device().watch.runs();
    engine.issue(effect(6), &[x, lost], &Default::default()).unwrap();
    let error = engine.apply(effect(6), &[lost]).unwrap_err();
    assert_eq!(engine.device().watch.runs(), runs);
    assert_eq!(engine.get(lost).unwrap_err().key(), error.key());
    assert!(engine.take_failure().is_none(), "it is one failure");
}

#[test]
fn a_runtime_runs_them_in_order() {
    let watch = Arc::default();
    let runtime = runtime(1 << 16, &watch);
    let x = runtime.put(Bytes(vec![1; 100])).unwrap();
    assert!(runtime.apply(effect(1), &[&x]).unwrap().is_empty());
    runtime.sync().unwrap();
    assert_eq!(watch.runs(), 2, "the upload and the op");
    assert!(runtime.apply(broken(Broken::Panics), &[&x]).unwrap().is_empty());
    let error = runtime.sync().unwrap_err().to_string();
    assert!(error.contains("broken on purpose"), "{error}");
    runtime.sync().unwrap();
    assert_eq!(runtime.get(&x).unwrap().0, [1; 100]);
}
