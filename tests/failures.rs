//! A failure loses the values that depend on it and no others. The error names the op that failed
//! first.

use crate::common::toy::{Broken, Bytes, Toy, engine, mix, update};
use remat::op::Outputs;
use remat::unstable::program::{Apply, Command, Driver, TensorId};
use remat::{Error, Layout};

/// A split into three that fails on run number `run`.
fn split(run: u32, how: Broken) -> Toy {
    Toy::Break { bytes: vec![64, 64, 64], salt: 1, run, how }
}

/// Regression: a failed rerun may write half an output. An output of the same op that was still
/// resident was overwritten, and was read later with wrong bits.
#[test]
fn a_run_that_fails_does_not_damage_the_siblings_it_found_in_place() {
    for how in [Broken::Fails, Broken::Panics] {
        let mut engine = engine(1 << 16);
        let x = engine.put(Bytes::of(64, 1));
        let made = engine.apply(split(2, how), &[x]).unwrap();
        let before = made.iter().map(|&y| engine.get(y).unwrap()).collect::<Vec<_>>();
        assert!(engine.drop_now(made[1]).unwrap());
        let error = engine.get(made[1]).unwrap_err();
        assert!(matches!(&error, Error::Device(e) if e.op == "break"), "{error}");
        engine.check();
        for (&y, before) in made.iter().zip(before) {
            assert_eq!(engine.get(y).unwrap(), before);
        }
        engine.device().watch.check();
    }
}

/// Regression: the report of a failed request panicked if an output of the running op was already
/// in memory. The report names all storages in memory.
#[test]
fn running_out_of_memory_beside_a_resident_sibling_is_an_error() {
    let mut engine = engine(256);
    let made = engine.apply(Toy::Split { bytes: vec![64, 64], salt: 1 }, &[]).unwrap();
    assert!(engine.drop_now(made[0]).unwrap());
    let leaf = engine.apply(mix(160, 2), &[]).unwrap()[0];
    engine.commit(leaf).unwrap();
    assert!(engine.is_resident(made[1]));
    let error = engine.get(made[0]).unwrap_err();
    let Error::OutOfMemory(report) = &error else { panic!("{error}") };
    assert_eq!((report.wanted, report.pinned, report.leaves), (64, 64, 160), "{error}");
    engine.del(leaf);
    engine.get(made[0]).unwrap();
    engine.check();
}

/// An update first regenerates the values that need the old value. If a regeneration fails, and an
/// input of the update is lost, the update is not made.
#[test]
fn an_update_whose_input_is_lost_to_a_failed_run_is_not_made() {
    let mut engine = engine(1 << 16);
    let x = engine.put(Bytes::of(64, 1));
    let made = engine.apply(split(2, Broken::Fails), &[]).unwrap();
    let y = engine.apply(mix(64, 3), &[x, made[1]]).unwrap()[0];
    let read = [made[0], made[1]].map(|key| engine.get(key).unwrap());
    assert!(engine.drop_now(y).unwrap() && engine.drop_now(made[1]).unwrap());
    let error = engine.apply(update(2), &[x, made[0]]).unwrap_err();
    assert!(matches!(&error, Error::Device(e) if e.op == "break"), "{error}");
    assert_eq!(engine.get(x).unwrap(), *Bytes::of(64, 1), "the old value is still there");
    engine.check();
    engine.device().watch.check();
    assert_eq!([made[0], made[1]].map(|key| engine.get(key).unwrap()), read);
    engine.get(y).unwrap();
}

/// Regression: when an op could not be issued, an earlier unreported failure was lost.
#[test]
fn a_failure_waits_until_somebody_is_told() {
    let mut engine = engine(1 << 16);
    let x = engine.put(Bytes::of(64, 1));
    let broken = Toy::Break { bytes: vec![8], salt: 1, run: 1, how: Broken::Fails };
    let outputs = remat::op::Operation::infer(&broken, &[]).unwrap();
    engine.issue(broken, &[], &outputs).unwrap();
    engine.apply(mix(8, 2), &[x]).unwrap();
    assert!(matches!(engine.apply(Toy::Liar, &[x]), Err(Error::Op(_))));
    assert!(matches!(engine.take_failure(), Some(Error::Device(_))));
    assert!(engine.take_failure().is_none());
}

/// Regression: a cancelled command was mistaken for an earlier cancelled command, and its failure
/// was never reported.
#[test]
fn a_failure_that_looks_like_an_earlier_one_is_told_all_the_same() {
    let mut engine = engine(1 << 16);
    let x = engine.put(Bytes::of(64, 1));
    let y = engine.apply(mix(64, 2), &[x]).unwrap()[0];
    assert!(engine.drop_now(y).unwrap());
    engine.interrupt_when(|| true);
    let op = mix(64, 3);
    let outputs = remat::op::Operation::infer(&op, &[engine.layout(y).unwrap()]).unwrap();
    let lost = engine.issue(op, &[y], &outputs).unwrap().0[0];
    let first = engine.take_failure().unwrap();
    let error = engine.commit(y).unwrap_err();
    engine.fail(error.clone());
    let second = engine.take_failure().expect("it is another one");
    assert_eq!((first.to_string(), error.key()), (second.to_string(), second.key()));
    assert_ne!(first.key(), second.key());
    // A value that was lost to the first failure causes no new failure, whichever command reads it.
    let known = engine.commit(lost).unwrap_err();
    assert_eq!(known.key(), first.key());
    engine.fail(known);
    assert!(engine.take_failure().is_none());
}

/// By the key of an error, users know whether the failure was reported before.
#[test]
fn all_outputs_lost_to_a_failure_carry_its_key() {
    let mut engine = engine(1 << 16);
    let x = engine.put(Bytes::of(64, 1));
    let mut lost = |run| {
        let broken = split(run, Broken::Fails);
        let outputs = remat::op::Operation::infer(&broken, &[]).unwrap();
        let (made, why) = engine.issue(broken, &[x], &outputs).unwrap();
        let [a, b, _] = made[..] else { panic!("three outputs") };
        let [a, b] = [a, b].map(|key| engine.get(key).unwrap_err());
        assert_eq!(a.key(), b.key());
        assert_eq!(why.unwrap().key(), a.key());
        a
    };
    let (first, second) = (lost(1), lost(2));
    assert_eq!(first.to_string(), second.to_string());
    assert_ne!(first.key(), second.key());
}

/// A framework that runs each op before its program goes on learns at each op whether the op ran.
#[test]
fn a_driver_tells_of_each_op_whether_it_ran() {
    for how in [Broken::Fails, Broken::Panics] {
        let mut driver = Driver::new(engine(1 << 10));
        let id = TensorId;
        driver.execute(Command::Put { tensor: id(0), host: Bytes::of(64, 1), leaf: false });
        let mut apply = |op: Toy, inputs: &[u64], outputs: Outputs, made| {
            let inputs: Vec<_> = inputs.iter().copied().map(id).collect();
            let told = driver.apply(Apply::new(op, inputs, outputs, id(made)));
            let later = driver.take_failure();
            assert!(later.is_none(), "who was told is not told again: {later:?}");
            told.map_err(|error| (error.is_of_memory(), error.key()))
        };
        let bytes = |bytes| Outputs::fresh([Layout::raw(bytes)]);
        let three = Outputs::fresh([64; 3].map(Layout::raw));
        assert!(apply(mix(64, 2), &[0], bytes(64), 1).is_ok());
        let (of_memory, broken) = apply(split(1, how), &[1], three, 2).unwrap_err();
        assert!(!of_memory);
        // All ops that need a lost value fail for the same reason: views, updates, and effects, too.
        let lost = Err((false, broken));
        assert_eq!(apply(mix(64, 3), &[1, 3], bytes(64), 5), lost);
        assert_eq!(apply(mix(64, 3), &[5], bytes(64), 6), lost);
        assert_eq!(apply(update(4), &[0, 3], Outputs::updates(1), 7), lost);
        assert_eq!(apply(mix(0, 3), &[3], Outputs::default(), 8), lost);
        assert_eq!(apply(mix(0, 3), &[3], Outputs::view(0, Layout::raw(8)), 8), lost);
        // The skipped update left the old value, and the reason was told.
        assert!(apply(mix(64, 3), &[7], bytes(64), 9).is_ok());
        let (of_memory, large) = apply(mix(2000, 3), &[7], bytes(2000), 10).unwrap_err();
        assert!(of_memory && large != broken);
        let (of_memory, _) = apply(mix(2000, 3), &[], bytes(2000), 11).unwrap_err();
        assert!(of_memory, "an op that could run later did not run now");
        assert!(apply(mix(64, 3), &[99], bytes(64), 12).is_err(), "an unknown number");
        assert!(apply(update(4), &[7, 9], Outputs::updates(1), 13).is_ok());
    }
}
