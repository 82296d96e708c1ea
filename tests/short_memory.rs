//! If memory is short, an allocation that fits after evictions or moves succeeds. An allocation
//! that cannot fit fails with the reason, and no other value is lost. The allocation succeeds
//! later, when enough memory is free.

use crate::common::toy::{
    Bytes, GRANULE, Toy, ToyDevice, ToyEngine, engine, engine_by, engine_with, mix, settings,
};
use remat::error::{Failure, RegenerationError};
use remat::unstable::graph::TensorKey;
use remat::{CostModelKind, Error, OutOfMemory, PolicyKind, RecomputeLimit};
use std::sync::atomic::Ordering;

const BLOCK: usize = GRANULE as usize;

fn one(engine: &mut ToyEngine, bytes: usize, salt: u64, inputs: &[TensorKey]) -> TensorKey {
    engine.apply(mix(bytes, salt), inputs).unwrap()[0]
}

fn leaf(engine: &mut ToyEngine, bytes: usize, salt: u64) -> TensorKey {
    let key = one(engine, bytes, salt, &[]);
    engine.commit(key).unwrap();
    key
}

fn out_of_memory(error: Error) -> Failure<OutOfMemory> {
    match error {
        Error::OutOfMemory(report) => report,
        other => panic!("not for memory: {other}"),
    }
}

#[test]
fn a_hopeless_request_evicts_nothing() {
    let scratch = Toy::Mix { bytes: BLOCK, salt: 1, scratch: 12 * GRANULE };
    let outputs = Toy::Split { bytes: vec![5 * BLOCK, 5 * BLOCK], salt: 2 };
    for op in [mix(11 * BLOCK, 3), scratch, outputs, mix(usize::MAX >> 2, 4)] {
        let mut engine = engine(10 * GRANULE);
        let _leaf = leaf(&mut engine, BLOCK, 5);
        let cached: Vec<TensorKey> =
            (0..9).map(|seed| engine.put(Bytes::of(BLOCK, seed))).collect();
        let name = format!("{op:?}");
        let report = out_of_memory(engine.apply(op, &[cached[0]]).unwrap_err());
        assert!(cached.iter().all(|&key| engine.is_resident(key)), "{name}: {report}");
        assert_eq!(engine.stats().evictions, 0, "{name}");
        engine.check();
    }
}

#[test]
fn a_read_that_does_not_fit_keeps_the_tensor() {
    let mut engine = engine(8 * GRANULE);
    let y = one(&mut engine, 4 * BLOCK, 1, &[]);
    let bits = engine.get(y).unwrap();
    assert!(engine.drop_now(y).unwrap());
    let big = leaf(&mut engine, 5 * BLOCK, 2);
    for _ in 0..3 {
        let report = out_of_memory(engine.get(y).unwrap_err());
        assert_eq!((report.leaves, report.wanted), (5 * GRANULE, 4 * GRANULE), "{report}");
        out_of_memory(engine.commit(y).unwrap_err());
        engine.check();
    }
    assert!(engine.take_failure().is_none(), "whoever asked was told");
    engine.del(big);
    assert_eq!(engine.get(y).unwrap(), bits);
}

/// With the budget that the report names, the op succeeds. With one byte less, the op fails.
#[test]
fn the_report_names_the_budget_that_would_do() {
    let attempt = |budget: u64| {
        let mut engine = engine(budget);
        leaf(&mut engine, 3 * BLOCK + 1, 1);
        let x = engine.put(Bytes::of(BLOCK, 2));
        engine.apply(mix(4 * BLOCK + 3, 3), &[x]).map(|_| ())
    };
    // The report is right if the budget is not a whole number of granules, too.
    for budget in [7 * GRANULE, 8 * GRANULE, 9 * GRANULE + 9, 9 * GRANULE + 15] {
        let report = out_of_memory(attempt(budget).unwrap_err());
        let text = report.to_string();
        assert_eq!(report.op_needed(), 10 * GRANULE, "{text}");
        assert!(text.contains(&format!("needs a budget of {}", 10 * GRANULE)), "{text}");
        assert!(text.contains("mix(u8[16])") && text.contains("wanted 80 B"), "{text}");
    }
    attempt(10 * GRANULE).unwrap();
}

#[test]
fn the_report_blames_a_policy_that_does_not_evict() {
    let mut engine =
        engine_with(4 * GRANULE, settings(), PolicyKind::None, CostModelKind::default());
    let x = engine.put(Bytes::of(3 * BLOCK, 1));
    engine.label(x, "the batch").unwrap();
    let report = out_of_memory(engine.apply(mix(2 * BLOCK, 2), &[]).unwrap_err());
    let text = report.to_string();
    assert!(text.contains("the policy does not evict"), "{text}");
    assert!(text.contains("the batch (evictable)"), "{text}");
    assert_eq!(report.evictable, 3 * GRANULE);
}

/// Small tensors are spared only while there are other candidates.
#[test]
fn the_filter_for_small_tensors_lets_every_feasible_program_pass() {
    let policy = PolicyKind::default();
    for evictor in [policy.build(0), policy.build_sampled(0)] {
        let mut settings = settings();
        settings.min_evict_bytes = Some(u64::MAX);
        let mut engine = engine_by(4 * GRANULE, settings, evictor, CostModelKind::default());
        let keys: Vec<TensorKey> = (0..20).map(|seed| engine.put(Bytes::of(BLOCK, seed))).collect();
        for (seed, &key) in keys.iter().enumerate() {
            assert_eq!(engine.get(key).unwrap(), *Bytes::of(BLOCK, seed as u64));
        }
        assert!(engine.take_failure().is_none());
    }
}

#[test]
fn small_tensors_stay_while_there_is_something_else() {
    let mut settings = settings();
    settings.min_evict_bytes = Some(2 * GRANULE);
    let mut engine = engine_with(8 * GRANULE, settings, PolicyKind::Lru, CostModelKind::default());
    let small = engine.put(Bytes::of(BLOCK, 1));
    let large = [2, 3].map(|seed| engine.put(Bytes::of(3 * BLOCK, seed)));
    engine.put(Bytes::of(2 * BLOCK, 4));
    assert!(engine.is_resident(small), "the oldest, but small");
    assert!(!engine.is_resident(large[0]));
}

/// Blocks are moved together if enough bytes are free, but not in one piece.
#[test]
fn a_fragmented_arena_is_compacted_before_anything_is_evicted() {
    let mut engine = engine(10 * GRANULE);
    let keys: Vec<TensorKey> = (0..10).map(|seed| engine.put(Bytes::of(BLOCK, seed))).collect();
    for i in (0..10).step_by(2) {
        engine.del(keys[i]);
    }
    assert_eq!(engine.stats().used_bytes, 5 * GRANULE);
    let wide = one(&mut engine, 5 * BLOCK, 11, &[keys[1], keys[9]]);
    let stats = engine.stats();
    assert_eq!((stats.evictions, stats.recomputed_ops, stats.compactions), (0, 0, 1));
    assert!(stats.moved_bytes > 0);
    engine.check();
    for i in (1..10).step_by(2) {
        assert!(engine.is_resident(keys[i]));
        assert_eq!(engine.get(keys[i]).unwrap(), *Bytes::of(BLOCK, i as u64));
    }
    let bits = engine.get(wide).unwrap();
    assert!(engine.drop_now(wide).unwrap());
    assert_eq!(engine.get(wide).unwrap(), bits);
    engine.device().watch.check();
}

/// Regression: a copy failed halfway through the moves. The moves before it were not recorded, and
/// the blocks were read from their old places.
#[test]
fn a_move_that_fails_leaves_all_values_readable() {
    for broken in 1..=2 {
        let mut engine = engine(7 * GRANULE);
        let sizes = [1, 2, 1, 2, 1].map(|blocks| blocks * BLOCK);
        let keys = [0, 1, 2, 3, 4].map(|i| engine.put(Bytes::of(sizes[i], i as u64)));
        for i in [0, 2, 4] {
            engine.del(keys[i]);
        }
        engine.device().watch.fail_copy.store(broken, Ordering::Relaxed);
        let error = engine.apply(mix(3 * BLOCK, 20), &[]).unwrap_err();
        assert!(matches!(error, Error::Device(_)), "{error}");
        engine.device().watch.fail_copy.store(0, Ordering::Relaxed);
        for _ in 0..2 {
            engine.check();
            for i in [1, 3] {
                assert_eq!(engine.get(keys[i]).unwrap(), *Bytes::of(sizes[i], i as u64));
            }
            engine.apply(mix(3 * BLOCK, 21), &[]).unwrap();
        }
        engine.device().watch.check();
        assert_eq!(engine.stats().compactions, 1);
    }
}

#[test]
fn before_each_op_memory_is_brought_below_the_threshold() {
    let mut settings = settings();
    settings.eviction_threshold = Some(5 * GRANULE);
    let mut engine =
        engine_with(100 * GRANULE, settings, PolicyKind::default(), CostModelKind::default());
    let keys: Vec<TensorKey> = (0..20).map(|seed| engine.put(Bytes::of(BLOCK, seed))).collect();
    assert!(engine.stats().peak_bytes <= 6 * GRANULE);
    for pair in keys.windows(2) {
        one(&mut engine, BLOCK, 1, pair);
        assert!(engine.stats().used_bytes <= 6 * GRANULE, "the threshold and one output");
    }
    // The threshold is soft: pinned storages may exceed it.
    one(&mut engine, BLOCK, 2, &keys);
    assert_eq!(engine.stats().used_bytes, 21 * GRANULE);
}

#[test]
fn recomputing_beyond_the_limit_is_an_error() {
    let beyond = |limit| {
        let mut settings = settings();
        settings.recompute_limit = Some(limit);
        let mut engine =
            engine_with(3 * GRANULE, settings, PolicyKind::default(), CostModelKind::Bytes);
        let mut chain = vec![engine.put(Bytes::of(BLOCK, 1))];
        for salt in 0..30 {
            chain.push(one(&mut engine, BLOCK, salt, &[chain[chain.len() - 1]]));
        }
        // The chain is read backwards, and three of its values fit in memory. Without a limit, the
        // reads would recompute many times.
        let error = chain.iter().rev().find_map(|&key| engine.get(key).err());
        engine.check();
        match error.expect("it thrashes") {
            Error::Regeneration(error) => (*error, engine.stats()),
            error => panic!("{error}"),
        }
    };
    let (error, stats) = beyond(RecomputeLimit::Multiple(2.0));
    let RegenerationError::RecomputeLimit { ratio, limit } = error else { panic!("{error}") };
    assert!(ratio > limit && ratio < limit + 0.5, "{ratio}");
    // The limit allows as much recomputation as the first limit, because all work of the program
    // was done before any recomputation.
    let (error, again) = beyond(RecomputeLimit::Cost(2.0 * stats.base_cost));
    let RegenerationError::RecomputeCost { cost, limit } = error else { panic!("{error}") };
    assert_eq!((cost, limit), (stats.recompute_cost, 2.0 * stats.base_cost));
    assert_eq!(again.recomputed_ops, stats.recomputed_ops);
    let text = error.to_string();
    assert!(text.contains(&limit.to_string()) && text.contains("raise the budget"), "{text}");
}

#[test]
fn settings_that_make_no_sense_are_errors() {
    let error_on = |device: ToyDevice, change: fn(&mut remat::unstable::engine::Settings)| {
        let mut settings = settings();
        change(&mut settings);
        let policy = PolicyKind::default().build(0);
        let made = remat::unstable::engine::Engine::new(
            device,
            settings,
            policy,
            CostModelKind::Flops.build(),
        );
        made.expect_err("no sense").to_string()
    };
    assert!(error_on(ToyDevice::new(0), |_| ()).contains("a budget of 0 bytes"));
    for granularity in [0, 48, 1 << 32] {
        let text = error_on(ToyDevice::new(1 << 20).with_granularity(granularity), |_| ());
        assert!(text.contains(&format!("granularity is {granularity};")), "{text}");
    }
    let error = |change| error_on(ToyDevice::new(1 << 20), change);
    assert!(error(|s| s.eviction_threshold = Some(u64::MAX)).contains("threshold"));
    use RecomputeLimit::{Cost, Multiple};
    assert!(error(|s| s.recompute_limit = Some(Multiple(f64::NAN))).contains("NaN"));
    assert!(error(|s| s.recompute_limit = Some(Multiple(-1.0))).contains("-1"));
    assert!(error(|s| s.recompute_limit = Some(Cost(f64::NAN))).contains("NaN"));
    assert!(error(|s| s.recompute_limit = Some(Cost(-1.0))).contains("-1"));
}
