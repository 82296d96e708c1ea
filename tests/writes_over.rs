//! Ops that write over a value that can be restored ([`Outputs::Over`]): the new value can be evicted,
//! and the two values need memory for one.

use crate::common::toy::{Broken, Bytes, Toy, ToyEngine, engine, expected, mix, one, over, read};
use remat::Error;
use remat::op::Outputs;
use remat::unstable::graph::TensorKey;
use std::sync::atomic::Ordering;

const SIZE: usize = 64;

/// A value, and what a chain of three ops makes of it.
fn chain() -> [Vec<u8>; 3] {
    let x = Bytes::of(SIZE, 1).0.clone();
    let y = expected(&mix(SIZE, 2), &[&x]);
    let z = expected(&over(3), &[&y]);
    [expected(&over(4), &[&z]), y, x]
}

fn run_chain(engine: &mut ToyEngine) -> (TensorKey, TensorKey) {
    let x = engine.put(Bytes::of(SIZE, 1));
    let y = one(engine, mix(SIZE, 2), &[x]);
    let z = one(engine, over(3), &[y]);
    (x, one(engine, over(4), &[z]))
}

#[test]
fn two_values_need_memory_for_one_in_the_first_run_and_in_reruns() {
    // The input of the chain, and one of its values, fill all the memory.
    let mut engine = engine(2 * SIZE as u64);
    let (x, z) = run_chain(&mut engine);
    let [last, _, first] = chain();
    assert_eq!(read(&mut engine, z), last);
    let stats = engine.stats();
    assert_eq!((stats.peak_bytes, stats.evictions, stats.recomputed_ops), (2 * SIZE as u64, 0, 0));
    assert_eq!(stats.fake_deletes, 2, "the old values count as deleted, and not as evicted");
    for _ in 0..3 {
        assert!(engine.drop_now(z).unwrap(), "the new value is no leaf");
        assert_eq!(read(&mut engine, z), last);
    }
    let stats = engine.stats();
    assert_eq!((stats.peak_bytes, stats.recomputed_ops), (2 * SIZE as u64, 9));
    assert_eq!(read(&mut engine, x), first);
}

#[test]
fn an_old_value_that_is_still_held_stays() {
    for views in [false, true] {
        let mut engine = engine(1 << 10);
        let x = engine.put(Bytes::of(SIZE, 1));
        let y = one(&mut engine, mix(SIZE, 2), &[x]);
        let other = match views {
            true => one(&mut engine, Toy::Slice { start: 0, len: 9 }, &[y]),
            false => engine.alias(y).unwrap(),
        };
        let z = one(&mut engine, over(3), &[y]);
        let [_, of_y, _] = chain();
        let of_z = expected(&over(3), &[&of_y]);
        assert_eq!(read(&mut engine, other), of_y[..if views { 9 } else { SIZE }]);
        for key in [z, other] {
            assert!(engine.drop_now(key).unwrap());
        }
        assert_eq!(read(&mut engine, z), of_z);
        assert_eq!(read(&mut engine, other), of_y[..if views { 9 } else { SIZE }]);
    }
}

#[test]
fn an_op_that_also_reads_the_old_value_elsewhere_works_on_a_copy() {
    let mut engine = engine(3 * SIZE as u64);
    let x = engine.put(Bytes::of(SIZE, 1));
    let y = one(&mut engine, mix(SIZE, 2), &[x]);
    let z = one(&mut engine, over(3), &[y, y, x]);
    let [_, of_y, of_x] = chain();
    let of_z = expected(&over(3), &[&of_y, &of_y, &of_x]);
    assert_eq!(read(&mut engine, z), of_z);
    assert!(engine.drop_now(z).unwrap());
    assert_eq!(read(&mut engine, z), of_z);
}

#[test]
fn over_a_leaf_is_an_update() {
    let mut engine = engine(1 << 10);
    let x = engine.put(Bytes::of(SIZE, 1));
    engine.commit(x).unwrap();
    let [.., of_x] = chain();
    let y = one(&mut engine, over(3), &[x]);
    assert_eq!(read(&mut engine, y), expected(&over(3), &[&of_x]));
    assert!(!engine.drop_now(y).unwrap(), "nothing can restore the old value");
    assert_eq!(engine.stats().storages, 1);
}

#[test]
fn after_a_failure_the_handle_names_the_old_value_which_is_restored() {
    for how in [Broken::Fails, Broken::Panics] {
        let mut engine = engine(2 * SIZE as u64);
        let x = engine.put(Bytes::of(SIZE, 1));
        let y = one(&mut engine, mix(SIZE, 2), &[x]);
        let [_, of_y, _] = chain();
        let broken = Toy::Over { salt: 3, run: 1, how };
        let error = engine.apply(broken, &[y]).unwrap_err();
        assert!(error.to_string().contains("broken on purpose"), "{error}");
        assert_eq!(read(&mut engine, y), of_y, "the half written bytes are not read");

        // The second run fails. The next run restores the old value and the new one.
        let z = one(&mut engine, Toy::Over { salt: 5, run: 2, how }, &[y]);
        assert!(engine.drop_now(z).unwrap());
        let error = engine.get(z).unwrap_err();
        assert!(error.to_string().contains("broken on purpose"), "{error}");
        assert_eq!(read(&mut engine, z), expected(&over(5), &[&of_y]));
    }
}

#[test]
fn without_room_for_a_copy_nothing_is_lost() {
    let mut engine = engine(3 * SIZE as u64);
    let x = engine.put(Bytes::of(SIZE, 1));
    let y = one(&mut engine, mix(SIZE, 2), &[x]);
    let other = engine.alias(y).unwrap();
    let full = one(&mut engine, mix(SIZE, 9), &[x]);
    engine.commit(full).unwrap();
    engine.commit(x).unwrap();
    let z = engine.issue(over(3), &[y], &Outputs::Over).unwrap().0[0];
    let error = engine.take_failure().expect("there is no room for two");
    assert!(matches!(error, Error::OutOfMemory(_)), "{error}");
    let [_, of_y, _] = chain();
    assert_eq!(read(&mut engine, z), of_y, "the new handle names the old value");
    assert_eq!(read(&mut engine, other), of_y);
}

#[test]
fn a_copy_that_fails_leaves_the_old_value() {
    let mut engine = engine(1 << 10);
    let x = engine.put(Bytes::of(SIZE, 1));
    let y = one(&mut engine, mix(SIZE, 2), &[x]);
    let other = engine.alias(y).unwrap();
    engine.device().watch.fail_copy.store(1, Ordering::Relaxed);
    assert!(matches!(engine.apply(over(3), &[y]), Err(Error::Device(_))));
    let [_, of_y, _] = chain();
    assert_eq!(read(&mut engine, y), of_y);
    assert_eq!(read(&mut engine, other), of_y);
}

#[test]
fn over_a_part_of_a_value_makes_a_value_of_that_size() {
    let mut engine = engine(1 << 10);
    let x = engine.put(Bytes::of(SIZE, 1));
    let y = one(&mut engine, mix(SIZE, 2), &[x]);
    let part = one(&mut engine, Toy::Slice { start: 8, len: 40 }, &[y]);
    let z = one(&mut engine, over(3), &[part]);
    let [_, of_y, _] = chain();
    let of_z = expected(&over(3), &[&of_y[8..48]]);
    assert_eq!(read(&mut engine, z), of_z);
    assert!(engine.drop_now(z).unwrap(), "it can be restored");
    assert!(engine.drop_now(y).unwrap());
    assert_eq!(read(&mut engine, z), of_z);
    assert_eq!(read(&mut engine, y), of_y);
}
