//! Regeneration of any depth needs no call stack. The work of a regeneration is linear in the ops
//! that must run.

use crate::common::toy::{Bytes, GRANULE, ToyEngine, engine_with, mix, settings};
use remat::Dead;
use remat::unstable::graph::TensorKey;
use remat::{CostModelKind, PolicyKind};

const BLOCK: usize = GRANULE as usize;

fn engine(blocks: u64, dead: Dead) -> ToyEngine {
    let mut settings = settings();
    settings.dead = dead;
    engine_with(blocks * GRANULE, settings, PolicyKind::default(), CostModelKind::Flops)
}

fn one(engine: &mut ToyEngine, salt: u64, inputs: &[TensorKey]) -> TensorKey {
    engine.apply(mix(BLOCK, salt), inputs).unwrap()[0]
}

/// Runs `body` on a stack too small for a hundred thousand frames of any recursion.
fn on_a_small_stack(body: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(128 << 10);
    thread.spawn(body).unwrap().join().unwrap();
}

#[test]
fn a_chain_of_a_hundred_thousand_ops_comes_back() {
    const LENGTH: u64 = 100_000;
    let cases = [(Dead::Drop, 3), (Dead::Drop, 2 * LENGTH), (Dead::Keep, 3)];
    for (dead, blocks) in cases {
        on_a_small_stack(move || {
            let mut engine = engine(blocks, dead);
            let mut x = engine.put(Bytes::of(BLOCK, 1));
            for salt in 0..LENGTH {
                let y = one(&mut engine, salt, &[x]);
                engine.del(x);
                x = y;
            }
            let bits = engine.get(x).unwrap();
            assert!(engine.drop_now(x).unwrap());
            assert_eq!(engine.get(x).unwrap(), bits);
            let stats = engine.stats();
            assert_eq!(stats.recomputed_ops, LENGTH + 1, "each op runs once more");
            assert_eq!(stats.max_regeneration_depth as u64, LENGTH + 1);
            engine.check();
            // The whole history is freed at once.
            engine.del(x);
            assert_eq!(engine.stats().storages, 0);
        });
    }
}

/// Repeats `y = g(f(x), x)` or `y = g(x, f(x))`, and keeps only the last value.
fn residual_blocks(engine: &mut ToyEngine, depth: u64, skip_first: bool) -> TensorKey {
    let mut x = engine.put(Bytes::of(BLOCK, 1));
    for salt in 0..depth {
        let f = one(engine, 3 * salt, &[x]);
        let f2 = one(engine, 3 * salt + 1, &[f]);
        engine.del(f);
        let inputs = if skip_first { [x, f2] } else { [f2, x] };
        let y = one(engine, 3 * salt + 2, &inputs);
        engine.del(f2);
        engine.del(x);
        x = y;
    }
    x
}

#[test]
fn a_chain_of_diamonds_comes_back_in_linear_work() {
    const DEPTH: u64 = 30;
    for dead in [Dead::Linger, Dead::Drop, Dead::Keep] {
        for skip_first in [true, false] {
            for (blocks, at_most) in [(200, 3 * DEPTH + 1), (4, 4 * (3 * DEPTH + 1))] {
                let mut engine = engine(blocks, dead);
                let y = residual_blocks(&mut engine, DEPTH, skip_first);
                let bits = engine.get(y).unwrap();
                assert!(engine.drop_now(y).unwrap());
                let before = engine.stats().recomputed_ops;
                assert_eq!(engine.get(y).unwrap(), bits);
                let runs = engine.stats().recomputed_ops - before;
                assert!(
                    runs <= at_most,
                    "{runs} runs with {blocks} blocks, {dead:?}, {skip_first}"
                );
                engine.check();
            }
        }
    }
}

/// A long chain of ops, the spine, in which each op needs a branch. The ops of a branch read values
/// that can be evicted. While an op waits for its branch, its inputs stay in memory.
///
/// A regeneration that never released inputs would fill all of memory. A regeneration that evicted
/// its latest values would never end.
#[test]
fn waiting_steps_do_not_exhaust_memory_by_what_they_hold() {
    for dead in [Dead::Linger, Dead::Drop, Dead::Keep] {
        for (spine, branch) in [(1, 100), (20, 10), (200, 6)] {
            // Each op of a branch reads a separate value, or one of three shared values.
            for shared in [false, true] {
                let mut engine = engine(5, dead);
                let mut values = Vec::new();
                let mut x = engine.put(Bytes::of(BLOCK, 1));
                let mut salt = 0;
                for _ in 0..spine {
                    let mut b = engine.put(Bytes::of(BLOCK, salt));
                    for _ in 0..branch {
                        salt += 1;
                        if !shared || values.len() < 3 {
                            values.push(engine.put(Bytes::of(BLOCK, salt << 32)));
                        }
                        let a = values[salt as usize % values.len()];
                        let c = one(&mut engine, salt, &[a, b]);
                        engine.del(b);
                        b = c;
                    }
                    salt += 1;
                    let y = one(&mut engine, salt, &[x, b]);
                    engine.del(b);
                    engine.del(x);
                    x = y;
                }
                let bits = engine.get(x).unwrap();
                assert!(engine.drop_now(x).unwrap());
                let before = engine.stats().recomputed_ops;
                let name = format!("{spine} by {branch}, {dead:?}, {shared}");
                let again = engine.get(x).unwrap_or_else(|e| panic!("{name}: {e}"));
                assert_eq!(again, bits);
                let runs = engine.stats().recomputed_ops - before;
                assert!(runs <= 3 * spine * (branch + 1), "{name}: {runs} runs");
                engine.check();
            }
        }
    }
}
