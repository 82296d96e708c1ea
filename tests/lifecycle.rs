//! Handles and runtimes may be dropped in any order, from any thread, also while a panic unwinds.
//! No call blocks, no sent command is lost, and no value without a handle stays in memory.

use crate::common::toy::{Broken, Bytes, Toy, Watch, compute, mix, runtime, update};
use remat::error::HandleError;
use remat::{Error, HostTensor, Runtime, Tensor};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

fn one(runtime: &Runtime<Toy, Bytes>, op: Toy, inputs: &[&Tensor]) -> Tensor {
    runtime.apply(op, inputs).unwrap().swap_remove(0)
}

#[test]
fn dropping_the_runtime_finishes_what_was_sent() {
    let watch = Arc::<Watch>::default();
    let runtime = runtime(1 << 16, &watch);
    let mut x = runtime.put(Bytes::of(64, 1)).unwrap();
    for salt in 0..5000 {
        x = one(&runtime, mix(64, salt), &[&x]);
    }
    drop(runtime);
    assert_eq!(watch.runs(), 5001);
    assert!(watch.gone.load(Ordering::Acquire), "the device went with it");
    drop(x);
}

#[test]
fn handles_may_outlive_the_runtime() {
    let runtime = runtime(1 << 16, &Arc::default());
    let x = runtime.put(Bytes::of(64, 1)).unwrap();
    let y = one(&runtime, mix(64, 1), &[&x]);
    let copy = y.clone();
    drop((x, runtime));
    assert_eq!(copy.layout().bytes(), 64);
    drop((y, copy));
}

#[test]
fn handles_dropped_while_a_panic_unwinds_are_deleted() {
    let runtime = runtime(1 << 16, &Arc::default());
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let x = runtime.put(Bytes::of(64, 1)).unwrap();
        let _y = one(&runtime, mix(64, 1), &[&x]);
        panic!("on purpose");
    }));
    assert!(panicked.is_err());
    let stats = runtime.stats().unwrap();
    assert_eq!((stats.tensors, stats.storages, stats.used_bytes), (0, 0, 0));
}

#[test]
fn a_handle_is_deleted_when_its_last_clone_goes() {
    let runtime = runtime(1 << 16, &Arc::default());
    let x = runtime.put(Bytes::of(64, 1)).unwrap();
    let clone = x.clone();
    drop(x);
    assert_eq!(runtime.stats().unwrap().tensors, 1);
    assert_eq!(runtime.get(&clone).unwrap(), *Bytes::of(64, 1));
    drop(clone);
    assert_eq!(runtime.stats().unwrap().tensors, 0);
}

/// Threads share a tensor, under a budget so small that the ops of each thread evict values of the
/// others.
#[test]
fn several_threads_give_commands_at_once() {
    let watch = Arc::<Watch>::default();
    // Granules have 256 bytes.
    let runtime = runtime(256 * 14, &watch);
    let shared = runtime.put(Bytes::of(64, 1)).unwrap();
    let start = Bytes::of(64, 1).0.clone();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (runtime, shared, start) = (runtime.clone(), shared.clone(), &start);
            scope.spawn(move || {
                let mut state = one(&runtime, mix(64, thread), &[&shared]);
                let mut value = compute(&mix(64, thread), std::slice::from_ref(start), 0).remove(0);
                for salt in 0..500 {
                    let salt = thread << 32 | salt;
                    let y = one(&runtime, mix(64, salt), &[&state, &shared]);
                    runtime.update(update(salt), &mut [&mut state], &[&y]).unwrap();
                    let y = compute(&mix(64, salt), &[value.clone(), start.clone()], 0).remove(0);
                    value = compute(&update(salt), &[value, y], 0).remove(0);
                }
                assert_eq!(runtime.get(&state).unwrap().0, value, "thread {thread}");
            });
        }
    });
    runtime.sync().unwrap();
    watch.check();
    drop(shared);
    assert_eq!(runtime.stats().unwrap().storages, 0);
}

#[test]
fn a_failure_poisons_what_depends_on_it_and_nothing_else() {
    for how in [Broken::Fails, Broken::Panics] {
        let runtime = runtime(1 << 16, &Arc::default());
        let x = runtime.put(Bytes::of(64, 1)).unwrap();
        let good = one(&runtime, mix(64, 1), &[&x]);
        let broken = Toy::Break { bytes: vec![64, 64], salt: 2, run: 1, how };
        let bad = runtime.apply(broken, &[&good]).unwrap();
        let worse = one(&runtime, mix(64, 3), &[&x, &bad[1]]);
        let view = one(&runtime, Toy::Slice { start: 1, len: 2 }, &[&worse]);
        let mut state = runtime.put(Bytes::of(64, 4)).unwrap();
        runtime.update(update(5), &mut [&mut state], &[&view]).unwrap();
        let unharmed = one(&runtime, mix(64, 6), &[&good]);
        // The first read reports the failure of the skipped update of `state`, not a failure of the
        // tensor that it reads.
        for lost in [&unharmed, &view, &worse, &bad[0]] {
            let error = runtime.get(lost).unwrap_err();
            assert!(matches!(&error, Error::Device(e) if e.op == "break"), "{error}");
            assert!(error.to_string().contains("broken on purpose"), "{error}");
        }
        assert_eq!(runtime.get(&state).unwrap(), *Bytes::of(64, 4), "as it was before the update");
        runtime.get(&unharmed).unwrap();
        runtime.get(&good).unwrap();
    }
}

#[test]
fn the_first_failure_is_told_by_sync_unless_get_has_told_it() {
    let broken = |salt, bytes| Toy::Break { bytes: vec![bytes], salt, run: 1, how: Broken::Fails };
    let runtime = runtime(1 << 16, &Arc::default());
    runtime.sync().unwrap();
    let first = one(&runtime, broken(1, 1), &[]);
    let later = one(&runtime, mix(1, 3), &[&first]);
    assert!(runtime.sync().is_err());
    runtime.sync().expect("told already");
    assert!(runtime.get(&later).is_err());
    runtime.sync().expect("told already");
    let second = one(&runtime, broken(2, 1), &[]);
    assert!(runtime.get(&second).is_err());
    runtime.sync().expect("get has told");
    assert!(runtime.get(&second).is_err(), "as often as it is asked");
}

#[test]
fn mismatched_operands_are_errors_at_the_call() {
    let runtime = Runtime::builder().budget("1MiB").cpu().unwrap();
    let a = runtime.put(HostTensor::f32([2, 3], vec![0.0; 6]).unwrap()).unwrap();
    let b = runtime.put(HostTensor::i32([3], vec![0; 3]).unwrap()).unwrap();
    let message = |result: Result<Tensor, Error>| match result {
        Err(Error::Op(error)) => error.to_string(),
        other => panic!("not an error of the op: {other:?}"),
    };
    let text = message(a.matmul(&a));
    assert!(text.contains("matmul") && text.contains("[2, 3]") && text.contains('3'), "{text}");
    assert!(message(a.add(&b)).contains("i32"));
    assert!(message(a.permute(&[0, 0])).contains("permute"));
    assert!(message(a.reshape(&[7])).contains('7'));
    assert!(message(a.slice(1, 2..4)).contains("slice"));
    assert!(message(Tensor::concat(&[], 0)).contains("concat"));
    assert!(message(runtime.full(&[1; 256], 0.0)).contains("256"));
    assert!(message(runtime.full(&[usize::MAX, 9], 0.0)).contains("fill"));
    runtime.sync().unwrap();
    assert_eq!(runtime.stats().unwrap().ops, 2, "nothing was sent");
}

#[test]
fn tensors_of_another_runtime_are_told_apart() {
    let [here, there] = [0, 1].map(|_| runtime(1 << 16, &Arc::default()));
    let x = here.put(Bytes::of(8, 1)).unwrap();
    let mut y = there.put(Bytes::of(8, 1)).unwrap();
    let foreign = |result: Result<(), Error>, expected: usize| match result {
        Err(Error::Handle(e)) => {
            assert!(matches!(*e, HandleError::Foreign { input, .. } if input == expected), "{e}");
        }
        other => panic!("not foreign: {other:?}"),
    };
    foreign(here.apply(mix(8, 1), &[&x, &y]).map(drop), 1);
    foreign(here.get(&y).map(drop), 0);
    foreign(here.commit(&y), 0);
    foreign(here.drop_now(&y), 0);
    foreign(here.label(&y, "y"), 0);
    foreign(here.update(update(1), &mut [&mut y], &[&x]), 0);
    assert_eq!(there.get(&y).unwrap(), *Bytes::of(8, 1));
    assert!(here.sync().is_ok() && there.sync().is_ok());
}

/// An op's outputs are checked at the call.
#[test]
fn an_op_that_contradicts_itself_is_an_error_at_the_call() {
    let runtime = runtime(1 << 16, &Arc::default());
    let mut x = runtime.put(Bytes::of(8, 1)).unwrap();
    assert!(matches!(runtime.apply(Toy::Liar, &[&x]), Err(Error::Op(_))));
    assert!(matches!(runtime.update(Toy::Liar, &mut [&mut x], &[]), Err(Error::Op(_))));
    runtime.sync().unwrap();
    assert_eq!(runtime.get(&x).unwrap(), *Bytes::of(8, 1));
}
