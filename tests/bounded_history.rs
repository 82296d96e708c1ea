//! The history of compute paths is bounded: after the handles of a step are dropped, its slots in
//! the graph are freed. Ten thousand steps hold no more slots than ten, whatever way the loop
//! updates its state.

use crate::common::toy::{Bytes, Toy, ToyEngine, engine, mix};
use remat::unstable::graph::TensorKey;

const SIZE: usize = 64;

fn one(engine: &mut ToyEngine, op: Toy, inputs: &[TensorKey]) -> TensorKey {
    engine.apply(op, inputs).unwrap()[0]
}

/// Runs the forward and backward pass of a small network. Returns loss and gradient.
fn gradient(engine: &mut ToyEngine, step: u64, w: TensorKey) -> (TensorKey, TensorKey) {
    let x = engine.put(Bytes::of(SIZE, step));
    let a = one(engine, mix(SIZE, 1), &[x, w]);
    let b = one(engine, mix(SIZE, 2), &[a]);
    let mask = one(engine, Toy::Draw { bytes: SIZE, key: 3, counter: step }, &[]);
    let c = one(engine, mix(SIZE, 4), &[b, w, mask]);
    engine.del(b);
    let loss = one(engine, mix(8, 5), &[c]);
    let db = one(engine, mix(SIZE, 6), &[c, mask, w]);
    for gone in [c, mask] {
        engine.del(gone);
    }
    let g = one(engine, mix(SIZE, 7), &[db, a, x]);
    for gone in [db, a, x] {
        engine.del(gone);
    }
    (loss, g)
}

/// Trains for `steps` steps. Returns final bits, and the most slots held at the end of a step:
/// among the first ten, and among all.
fn train(
    engine: &mut ToyEngine,
    steps: u64,
    mut update: impl FnMut(&mut ToyEngine, u64, [TensorKey; 2], TensorKey) -> [TensorKey; 2],
) -> (Vec<u8>, usize, usize) {
    let mut state = [1, 2].map(|seed| engine.put(Bytes::of(SIZE, seed << 32)));
    let mut losses = std::collections::VecDeque::new();
    let (mut early, mut late) = (0, 0);
    for step in 0..steps {
        let (loss, g) = gradient(engine, step, state[0]);
        state = update(engine, step, state, g);
        losses.push_back(loss);
        if losses.len() > 3 {
            engine.del(losses.pop_front().unwrap());
        }
        let stats = engine.stats();
        let slots = stats.tensors + stats.storages + stats.paths;
        if step < 10 {
            early = early.max(slots);
        }
        late = late.max(slots);
    }
    engine.check();
    let bits = [state[0], state[1], losses[0], losses[1], losses[2]];
    let bits = bits.iter().flat_map(|&key| engine.get(key).unwrap().0).collect();
    (bits, early, late)
}

fn in_place(
    engine: &mut ToyEngine,
    step: u64,
    [w, m]: [TensorKey; 2],
    g: TensorKey,
) -> [TensorKey; 2] {
    let op = Toy::Update { targets: 2, fresh: None, salt: step };
    let made = engine.apply(op, &[w, m, g]).unwrap();
    engine.del(g);
    [made[0], made[1]]
}

fn functional(
    engine: &mut ToyEngine,
    step: u64,
    [w, m]: [TensorKey; 2],
    g: TensorKey,
) -> [TensorKey; 2] {
    let new_m = one(engine, mix(SIZE, step), &[m, g]);
    let new_w = one(engine, mix(SIZE, step), &[w, new_m]);
    for gone in [g, w, m] {
        engine.del(gone);
    }
    engine.step();
    [new_w, new_m]
}

#[test]
fn ten_thousand_steps_in_place() {
    let mut tight = engine(64 * 7);
    let (bits, early, late) = train(&mut tight, 10_000, in_place);
    assert!(late <= early, "{early} slots after ten steps, {late} after ten thousand");
    assert!(tight.stats().recomputed_ops > 0, "the budget is tight");
    assert_eq!(bits, train(&mut engine(1 << 20), 10_000, in_place).0);
}

#[test]
fn ten_thousand_steps_that_replace_their_state() {
    let mut tight = engine(64 * 7);
    let (bits, early, late) = train(&mut tight, 10_000, functional);
    assert!(late <= early, "{early} slots after ten steps, {late} after ten thousand");
    assert!(tight.stats().recomputed_ops > 0, "the budget is tight");
    assert_eq!(bits, train(&mut engine(1 << 20), 10_000, functional).0);
}

/// A parameter that could not become a leaf at the end of its step, for lack of memory, becomes a
/// leaf later.
#[test]
fn a_step_end_without_room_is_made_up_for_later() {
    let mut engine = engine(64 * 4);
    let mut w = engine.put(Bytes::of(64, 1));
    for step in 0..50 {
        let new = one(&mut engine, mix(64, step), &[w]);
        engine.del(w);
        w = new;
        assert!(engine.drop_now(w).unwrap() || !engine.is_resident(w) || step > 0);
        // In every second step, a leaf leaves too little memory for two blocks at once.
        let leaf = (step % 2 == 0).then(|| {
            let leaf = engine.apply(mix(64 * 3, 1000 + step), &[]).unwrap()[0];
            engine.commit(leaf).unwrap();
            leaf
        });
        engine.step();
        if let Some(leaf) = leaf {
            engine.del(leaf);
        }
        engine.check();
        assert!(engine.stats().storages <= 6, "{:?}", engine.stats());
    }
    engine.get(w).unwrap();
}
