//! Updates that could not be made: the value that the handle has afterwards, and the calls that
//! report the reason.

use crate::common::faulty::{Fault, Faults};
use crate::common::learner::faulty_cpu;
use remat::evict::{Policy, View};
use remat::ops::{Distribution, Op};
use remat::unstable::event::Event;
use remat::unstable::graph::StorageKey;
use remat::unstable::ops::Accumulate;
use remat::{CostModel, Error, HostTensor, Run, Runtime, Tensor, Update};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

fn start() -> Runtime {
    Runtime::builder().budget("64KiB").threads(1).cpu().unwrap()
}

fn host(values: &[f32]) -> HostTensor {
    HostTensor::f32([values.len()], values.to_vec()).unwrap()
}

/// A tensor that is lost for lack of memory.
fn lost(runtime: &Runtime, shape: &[usize]) -> Tensor {
    let huge = runtime.full(&[1 << 20], 1.0).unwrap();
    let sum = huge.square().unwrap().sum().unwrap();
    sum.broadcast(shape).unwrap()
}

fn add(runtime: &Runtime, target: &mut Tensor, other: &Tensor) {
    runtime.update(Accumulate, &mut [target], &[other]).unwrap();
}

/// After a skipped update of a view, the handle still names its part of the storage. Views of the
/// handle have the right bits, even views that were made before the failure is reported.
#[test]
fn views_of_a_part_whose_update_was_skipped_have_its_bits() {
    let runtime = start();
    let numbers: Vec<f32> = (0..24).map(|i| i as f32).collect();
    let whole = runtime.put(HostTensor::f32([4, 3, 2], numbers.clone()).unwrap()).unwrap();
    for (start, told_first) in [0, 1, 2].into_iter().flat_map(|n| [(n, true), (n, false)]) {
        let mut part = whole.slice(0, start..start + 2).unwrap();
        let fresh = whole.slice(0, start..start + 2).unwrap();
        let gradient = lost(&runtime, &[2, 3, 2]);
        add(&runtime, &mut part, &gradient);
        let views = |x: &Tensor| {
            let turned = x.permute(&[2, 0, 1])?;
            let sliced = turned.slice(2, 1..3)?;
            let back = sliced.permute(&[1, 2, 0])?;
            let flat = x.reshape(&[12])?;
            let rows = flat.slice(0, 3..7)?.broadcast(&[3, 4])?;
            let both = rows.permute(&[1, 0])?;
            Ok::<_, Error>([turned, sliced, back, flat, rows, both])
        };
        let before = (!told_first).then(|| views(&part).unwrap());
        assert!(runtime.sync().is_err());
        let found = before.unwrap_or_else(|| views(&part).unwrap());
        for (found, expected) in found.iter().zip(&views(&fresh).unwrap()) {
            assert_eq!(runtime.get(found).unwrap(), runtime.get(expected).unwrap());
        }
        runtime.step().unwrap();
    }
}

/// Cost model that panics before the second update of a step, once armed.
#[derive(Debug)]
struct Panics {
    armed: Arc<AtomicBool>,
    updates: usize,
}

impl CostModel for Panics {
    fn cost(&mut self, _: Run<'_>) -> f64 {
        1.0
    }

    fn wants_time(&mut self, run: Run<'_>) -> bool {
        if self.armed.load(Ordering::Relaxed) && run.op == "accumulate" {
            self.updates += 1;
            assert!(self.updates != 2, "on purpose");
        }
        false
    }
}

/// Regression: the runtime ended if one of several updates failed after the tensor of an earlier
/// update had been replaced.
#[test]
fn several_updates_that_fail_in_the_middle_leave_a_runtime_that_goes_on() {
    for (replaced, device) in [(false, false), (true, false), (false, true), (true, true)] {
        let armed = Arc::<AtomicBool>::default();
        let faults = Arc::<Faults>::default();
        let costs = Panics { armed: Arc::clone(&armed), updates: 0 };
        let builder = Runtime::builder().budget("64KiB").cost_model(costs);
        let runtime = faulty_cpu(builder, &faults).unwrap();
        let [mut a, mut b, mut c] = [1.0, 2.0, 3.0].map(|x| runtime.put(host(&[x; 4])).unwrap());
        let gradient = runtime.put(host(&[10.0; 4])).unwrap();
        if replaced {
            let value = gradient.square().unwrap();
            runtime.replace(&mut a, &value).unwrap();
        }
        runtime.stats().unwrap();
        match device {
            // Calls 0 to 2 ask for workspaces, and call 3 is the first update.
            true => faults.at_call(4, Fault::Fails),
            false => armed.store(true, Ordering::Relaxed),
        }
        let updates = [&mut a, &mut b, &mut c].map(|x| Update {
            op: Op::from(Accumulate),
            targets: vec![x],
            others: vec![&gradient],
        });
        runtime.update_all(updates.into()).unwrap();
        let error = runtime.sync().unwrap_err();
        assert!(error.to_string().contains("on purpose"), "{error}");
        runtime.sync().expect("it is reported once");
        let first = if replaced { 110.0 } else { 11.0 };
        assert_eq!(runtime.get(&a).unwrap(), host(&[first; 4]), "made before the failure");
        if device {
            assert!(runtime.get(&b).is_err(), "the device may have written over it");
        } else {
            assert_eq!(runtime.get(&b).unwrap(), host(&[2.0; 4]));
        }
        assert_eq!(runtime.get(&c).unwrap(), host(&[3.0; 4]));
    }
}

/// Regression: after 64 unreported failures, an update was skipped without an error.
#[test]
fn an_update_is_never_skipped_in_silence() {
    let runtime = start();
    let mut x = runtime.put(host(&[1.0; 4])).unwrap();
    for earlier in [0, 1, 63, 64, 65, 200] {
        for marked in [false, true] {
            (0..earlier).for_each(|_| drop(lost(&runtime, &[4])));
            if marked {
                runtime.step().unwrap();
            }
            let gradient = lost(&runtime, &[4]);
            add(&runtime, &mut x, &gradient);
            assert!(runtime.get(&x).is_err(), "{earlier} failures before, {marked}");
            assert_eq!(runtime.get(&x).unwrap(), host(&[1.0; 4]));
            while runtime.sync().is_err() {}
            runtime.step().unwrap();
        }
    }
}

/// Regression: several ops of a step failed in short memory. A program that caught the first
/// failure and went on got the other failures in later steps.
#[test]
fn the_failures_of_a_step_are_reported_as_one() {
    let runtime = start();
    let mut all = [1.0, 2.0, 3.0, 4.0].map(|x| runtime.put(host(&[x; 4])).unwrap());
    let elsewhere = lost(&runtime, &[4]);
    runtime.step().unwrap();
    for round in 0..2 {
        for x in &mut all {
            let gradient = lost(&runtime, &[4]);
            add(&runtime, x, &gradient);
        }
        assert!(runtime.get(&all[3]).is_err());
        for (x, value) in all.iter().zip([1.0, 2.0, 3.0, 4.0]) {
            assert_eq!(runtime.get(x).unwrap(), host(&[value; 4]));
        }
        // The failure of the step before the first round is reported separately.
        assert_eq!(runtime.sync().is_err(), round == 0);
        runtime.sync().unwrap();
        runtime.step().unwrap();
    }
    assert!(runtime.get(&elsewhere).is_err(), "what is lost says why, as often as it is read");
    runtime.sync().unwrap();
}

/// Policy that keeps the set of evicted storages, from the events that it receives.
#[derive(Debug)]
struct Books(Arc<Mutex<(HashSet<StorageKey>, usize)>>);

impl Policy for Books {
    fn score(&mut self, _: StorageKey, _: View<'_>) -> f64 {
        1.0
    }

    fn on(&mut self, event: &Event, view: View<'_>) {
        let mut books = self.0.lock().unwrap();
        match *event {
            Event::DidEvict { storage, .. } => {
                assert!(books.0.insert(storage), "it was evicted before");
                assert!(view.graph.own_cost(storage) > 0.0, "what it costs is known");
                books.1 += 1;
            }
            Event::DidRegenerate { storage, .. } | Event::WillForget { storage } => {
                assert!(books.0.remove(&storage), "it was not evicted");
            }
            _ => {}
        }
    }
}

/// Regression: a policy received the eviction of a deferred value, but never an event when the
/// value was made.
#[test]
fn a_policy_hears_when_what_was_put_off_comes_in() {
    let books = Arc::default();
    let builder = Runtime::builder().budget("8KiB").threads(1);
    let runtime = builder.policy(Books(Arc::clone(&books))).cpu().unwrap();
    for _ in 0..3 {
        let leaf = runtime.put_leaf(host(&[1.0; 2048])).unwrap();
        let put = runtime.put(host(&[2.0; 512])).unwrap();
        let drawn = runtime.random(&[512], Distribution::Uniform { low: 0.0, high: 1.0 }).unwrap();
        assert_eq!(runtime.stats().unwrap().used_bytes, 8 << 10);
        drop(leaf);
        for x in [&put, &drawn, &put, &drawn] {
            let value = runtime.get(x).unwrap();
            runtime.drop_now(x).unwrap();
            assert_eq!(runtime.get(x).unwrap(), value);
            runtime.drop_now(x).unwrap();
        }
        runtime.sync().unwrap();
        assert_eq!(books.lock().unwrap().0.len(), 2);
        drop((put, drawn));
        runtime.sync().unwrap();
        assert!(books.lock().unwrap().0.is_empty());
    }
    assert!(books.lock().unwrap().1 > 20);
}

/// Regression: a leaf that was deferred for lack of memory stayed evictable forever, and kept its
/// host copy.
#[test]
fn a_leaf_without_room_is_one_once_it_has_room() {
    let runtime = Runtime::builder().budget("8KiB").threads(1).cpu().unwrap();
    let first = runtime.put_leaf(host(&[1.0; 2000])).unwrap();
    let second = runtime.put_leaf(host(&[2.0; 1000])).unwrap();
    assert_eq!(runtime.stats().unwrap().host_bytes, 4000);
    assert!(matches!(runtime.get(&second), Err(Error::OutOfMemory(_))));
    drop(first);
    let doubled = second.add(&second).unwrap();
    assert_eq!(runtime.get(&doubled).unwrap(), host(&[4.0; 1000]));
    assert_eq!(runtime.stats().unwrap().host_bytes, 0);
    let before = runtime.stats().unwrap().evictions;
    runtime.drop_now(&second).unwrap();
    assert_eq!(runtime.stats().unwrap().evictions, before);
}
