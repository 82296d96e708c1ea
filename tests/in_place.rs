//! An update in place never changes the value of other handles: handles and views of the old value
//! keep the old value. A value made from the old value is never recomputed from the new one.

use crate::common::toy::{Bytes, GRANULE, Toy, compute, engine, expected, mix, one, read, update};
use remat::Error;

const SIZE: usize = 64;

#[test]
fn without_other_handles_the_storage_is_taken_over() {
    // One parameter and one gradient fill all the memory.
    let mut engine = engine(2 * SIZE as u64);
    let w = engine.put(Bytes::of(SIZE, 1));
    let g = engine.put(Bytes::of(SIZE, 2));
    let (old, grad) = (read(&mut engine, w), read(&mut engine, g));
    let new = one(&mut engine, update(3), &[w, g]);
    assert_eq!(read(&mut engine, new), expected(&update(3), &[&old, &grad]));
    assert!(matches!(engine.get(w), Err(Error::Handle(_))), "the old handle is consumed");
    assert!(!engine.drop_now(new).unwrap(), "the new value is a leaf");
    assert_eq!(engine.stats().storages, 2);
}

/// Values that need the old value become leaves. Evicted ones are regenerated first.
#[test]
fn dependents_of_the_old_value_become_leaves_before_an_update() {
    let mut engine = engine(1 << 12);
    let w = engine.put(Bytes::of(SIZE, 1));
    let old = read(&mut engine, w);
    let here = one(&mut engine, mix(SIZE, 2), &[w]);
    let between = one(&mut engine, mix(SIZE, 3), &[w]);
    let beyond = one(&mut engine, mix(SIZE, 4), &[between]);
    engine.del(between);
    assert!(engine.drop_now(beyond).unwrap());
    let new = one(&mut engine, update(5), &[w]);
    assert_eq!(engine.stats().storages, 3, "neither the old value nor a step between is kept");
    let between = expected(&mix(SIZE, 3), &[&old]);
    for (key, value) in [
        (here, expected(&mix(SIZE, 2), &[&old])),
        (beyond, expected(&mix(SIZE, 4), &[&between])),
        (new, expected(&update(5), &[&old])),
    ] {
        assert!(!engine.drop_now(key).unwrap(), "a leaf now");
        assert_eq!(read(&mut engine, key), value);
    }
}

/// An update works on a copy, and keeps the old value, if a dependent of the old value cannot be
/// regenerated now.
#[test]
fn a_dependent_that_does_not_fit_now_keeps_the_old_value() {
    let granules = |n: u64| n * GRANULE;
    let mut engine = engine(granules(8));
    let w = engine.put(Bytes::of(16, 1));
    let old = read(&mut engine, w);
    let wide = one(&mut engine, mix(96, 2), &[w]);
    assert!(engine.drop_now(wide).unwrap());
    let leaf = one(&mut engine, mix(16, 3), &[]);
    engine.commit(leaf).unwrap();
    // The wide value needs 6 granules beside the parameter, the leaf and the gradient, which is one
    // granule too many.
    let g = engine.put(Bytes::of(16, 4));
    let grad = read(&mut engine, g);
    let new = one(&mut engine, update(5), &[w, g]);
    assert_eq!(read(&mut engine, new), expected(&update(5), &[&old, &grad]));
    for gone in [leaf, g, new] {
        engine.del(gone);
    }
    assert_eq!(read(&mut engine, wide), expected(&mix(96, 2), &[&old]));
    engine.del(wide);
    assert_eq!(engine.stats().storages, 0);
}

#[test]
fn another_handle_keeps_the_old_value() {
    let mut engine = engine(1 << 12);
    let w = engine.put(Bytes::of(SIZE, 1));
    let old = read(&mut engine, w);
    let other = engine.alias(w).unwrap();
    let new = one(&mut engine, update(2), &[w]);
    assert_eq!(read(&mut engine, other), old);
    assert_eq!(read(&mut engine, new), expected(&update(2), &[&old]));
}

/// The old value stays for its other handle, so the values made from it need not become leaves.
#[test]
fn an_update_by_copy_leaves_dependents_evictable() {
    let mut engine = engine(1 << 12);
    let w = engine.put(Bytes::of(SIZE, 1));
    let y = one(&mut engine, mix(SIZE, 2), &[w]);
    let before = read(&mut engine, y);
    let _other = engine.alias(w).unwrap();
    one(&mut engine, update(3), &[w]);
    assert!(engine.drop_now(y).unwrap(), "still evictable");
    assert_eq!(read(&mut engine, y), before);
}

#[test]
fn a_view_keeps_the_old_value() {
    let mut engine = engine(1 << 12);
    let w = engine.put(Bytes::of(SIZE, 1));
    let old = read(&mut engine, w);
    let view = one(&mut engine, Toy::Slice { start: 8, len: 5 }, &[w]);
    let turned = one(&mut engine, Toy::Turn { rows: 8 }, &[w]);
    let before = read(&mut engine, turned);
    let new = one(&mut engine, update(2), &[w]);
    assert_eq!(read(&mut engine, view), old[8..13]);
    assert_eq!(read(&mut engine, turned), before);
    assert_eq!(read(&mut engine, new), expected(&update(2), &[&old]));
}

#[test]
fn an_update_of_a_part_leaves_the_whole() {
    for keep_whole in [true, false] {
        let mut engine = engine(1 << 12);
        let w = engine.put(Bytes::of(SIZE, 1));
        let old = read(&mut engine, w);
        let part = one(&mut engine, Toy::Slice { start: 8, len: 40 }, &[w]);
        if !keep_whole {
            engine.del(w);
        }
        let new = one(&mut engine, update(2), &[part]);
        assert_eq!(read(&mut engine, new), expected(&update(2), &[&old[8..48]]));
        assert_eq!(engine.get(w).is_ok(), keep_whole);
        assert_eq!(engine.stats().storages, 1 + usize::from(keep_whole));
    }
}

/// The kernel would overwrite the input while it still reads the input through another operand.
#[test]
fn an_input_that_is_also_read_is_copied() {
    let mut engine = engine(1 << 12);
    let w = engine.put(Bytes::of(SIZE, 1));
    let old = read(&mut engine, w);
    let part = one(&mut engine, Toy::Slice { start: 0, len: 9 }, &[w]);
    let new = one(&mut engine, update(2), &[w, part]);
    assert_eq!(read(&mut engine, new), expected(&update(2), &[&old, &old[..9]]));
    let two = Toy::Update { targets: 2, fresh: Some(7), salt: 3 };
    let value = read(&mut engine, new);
    let made = engine.apply(two.clone(), &[new, new]).unwrap();
    let values = compute(&two, &[value.clone(), value], 0);
    for (&key, value) in made.iter().zip(&values) {
        assert_eq!(&read(&mut engine, key), value);
    }
}

#[test]
fn a_value_that_is_not_contiguous_cannot_be_updated() {
    let mut engine = engine(1 << 12);
    let w = engine.put(Bytes::of(SIZE, 1));
    let turned = one(&mut engine, Toy::Turn { rows: 8 }, &[w]);
    let before = read(&mut engine, turned);
    assert!(matches!(engine.apply(update(2), &[turned]), Err(Error::Op(_))));
    assert_eq!(read(&mut engine, turned), before, "nothing was done");
}

/// Regression test: a gradient became a leaf by an update, and stayed until all gradients computed
/// from it were gone, although none of them was larger.
#[test]
fn a_leaf_without_a_handle_gives_way_to_smaller_values() {
    let mut engine = engine(1 << 12);
    for (sizes, gives_way) in [([SIZE / 2; 2], true), ([SIZE, 1], false)] {
        let before = engine.stats().storages;
        let leaf = engine.put(Bytes::of(SIZE, 1));
        engine.commit(leaf).unwrap();
        let value = read(&mut engine, leaf);
        let between = one(&mut engine, mix(SIZE, 2), &[leaf]);
        let near = expected(&mix(SIZE, 2), &[&value]);
        let ops = [mix(sizes[0], 3), mix(sizes[1], 4)];
        let held = ops.each_ref().map(|op| one(&mut engine, op.clone(), &[between]));
        engine.del(between);
        engine.del(leaf);
        let kept = if gives_way { 2 } else { 4 };
        assert_eq!(engine.stats().storages, before + kept, "{sizes:?}");
        for (key, op) in held.into_iter().zip(ops) {
            assert_eq!(engine.drop_now(key).unwrap(), !gives_way, "{sizes:?}");
            assert_eq!(read(&mut engine, key), expected(&op, &[&near]), "{sizes:?}");
            engine.del(key);
        }
        assert_eq!(engine.stats().storages, before);
    }
}

/// A leaf does not give way to an evicted value, which would have to be regenerated for that.
#[test]
fn a_leaf_without_a_handle_stays_for_an_evicted_value() {
    let mut engine = engine(1 << 12);
    let leaf = engine.put(Bytes::of(SIZE, 1));
    engine.commit(leaf).unwrap();
    let value = read(&mut engine, leaf);
    let held = one(&mut engine, mix(SIZE / 2, 2), &[leaf]);
    assert!(engine.drop_now(held).unwrap());
    engine.del(leaf);
    assert_eq!(engine.stats().storages, 2);
    assert_eq!(read(&mut engine, held), expected(&mix(SIZE / 2, 2), &[&value]));
    assert!(engine.drop_now(held).unwrap(), "the value can still be evicted");
}
