//! A failure loses as little as possible: a program can catch an out-of-memory error, take a
//! smaller batch and go on.

use crate::common::faulty::{Fault, Faults};
use crate::common::learner::{Learner, Net, batch, faulty_cpu};
use remat::unstable::ops::Accumulate;
use remat::{Error, HostTensor, Runtime};
use std::sync::Arc;

/// Budgets for each network: a sufficient budget, and one in which some values are recomputed.
const BUDGETS: [(Net, &str); 4] = [
    (Net::Mlp, "16MiB"),
    (Net::Mlp, "40KiB"),
    (Net::Residual, "64MiB"),
    (Net::Residual, "1200KiB"),
];

fn start(net: Net, budget: &str, all_or_none: bool) -> (Learner, Arc<Faults>) {
    let faults = Arc::<Faults>::default();
    let runtime = faulty_cpu(Runtime::builder().budget(budget), &faults).unwrap();
    (Learner::new(runtime, net, all_or_none).unwrap(), faults)
}

/// Regression: the loop had issued its updates before a batch turned out too large, and all
/// parameters were lost.
#[test]
fn a_step_without_memory_at_any_op_changes_nothing_and_half_of_it_can_be_done() {
    for (net, budget) in BUDGETS {
        let [before, after] = [None, Some(4)].map(|then| bits_after(net, budget, then));
        let all = bits_after(net, budget, Some(8));
        assert!(before != after && after != all);
        let (mut ops, mut failed) = (0, 0);
        loop {
            let (mut learner, faults) = start(net, budget, true);
            learner.step(batch(8, 1)).unwrap();
            learner.runtime.sync().unwrap();
            faults.at_run(ops, Fault::NoMemory);
            let done = learner.step(batch(8, 2));
            if !faults.disarm() {
                done.unwrap();
                break;
            }
            let name = format!("{net:?} in {budget}, op {ops}");
            match done {
                // The runtime evicted other tensors and ran the op again.
                Ok(_) => assert!(learner.bits() == all, "{name}"),
                Err(Error::OutOfMemory(_)) => {
                    failed += 1;
                    learner.runtime.sync().expect("told once");
                    assert!(learner.bits() == before, "{name}");
                    learner.step(batch(4, 2)).unwrap_or_else(|e| panic!("{name}: {e}"));
                    assert!(learner.bits() == after, "{name}: the halved batch");
                }
                Err(error) => panic!("{name}: {error}"),
            }
            ops += 1;
        }
        println!("{net:?} in {budget}: failed at {failed} of {ops} ops");
        // In short memory, the runtime repeats a failed run with fewer pinned storages, so fewer
        // ops fail.
        assert!(failed > 20);
    }
}

/// Bits after one step with a batch of 8, and perhaps a second step with a batch of `second`.
fn bits_after(net: Net, budget: &str, second: Option<usize>) -> Vec<(String, Vec<u8>)> {
    let mut learner = start(net, budget, true).0;
    learner.step(batch(8, 1)).unwrap();
    if let Some(size) = second {
        learner.step(batch(size, 2)).unwrap();
    }
    learner.bits()
}

/// If updates are not grouped in one command, a failure leaves each parameter with its old or its
/// new value. No parameter is lost, and training goes on.
#[test]
fn a_step_without_memory_loses_no_parameter() {
    for (net, budget) in BUDGETS {
        let mut expected = start(net, budget, false).0;
        expected.step(batch(8, 1)).unwrap();
        let before = expected.bits();
        expected.step(batch(8, 2)).unwrap();
        let after = expected.bits();
        for op in (0..).step_by(3) {
            let (mut learner, faults) = start(net, budget, false);
            learner.step(batch(8, 1)).unwrap();
            learner.runtime.sync().unwrap();
            faults.at_run(op, Fault::NoMemory);
            let done = learner.step(batch(8, 2));
            if !faults.disarm() {
                break;
            }
            assert!(
                matches!(done, Ok(_) | Err(Error::OutOfMemory(_))),
                "{net:?}, op {op}: {done:?}"
            );
            learner.runtime.sync().expect("told once");
            for ((found, before), after) in learner.bits().iter().zip(&before).zip(&after) {
                assert!(found == before || found == after, "{net:?}, op {op}: {}", found.0);
            }
            learner.step(batch(8, 3)).unwrap();
        }
    }
}

/// The batch is too large already in the first step.
#[test]
fn the_first_step_can_be_done_again_with_half_the_batch() {
    for net in [Net::Mlp, Net::Residual] {
        let mut expected = start(net, "64MiB", true).0;
        expected.step(batch(4, 1)).unwrap();
        let after = expected.bits();
        for op in (0..).step_by(7) {
            let (mut learner, faults) = start(net, "64MiB", true);
            learner.runtime.sync().unwrap();
            faults.at_run(op, Fault::NoMemory);
            if learner.step(batch(8, 1)).is_ok() {
                break;
            }
            faults.disarm();
            learner.step(batch(4, 1)).unwrap();
            assert!(learner.bits() == after, "{net:?}, op {op}");
        }
    }
}

/// The batch is really too large for the budget, and is halved.
#[test]
fn a_batch_that_is_too_large_is_halved_until_it_fits() {
    let runtime = Runtime::builder().budget("1500KiB").threads(2).cpu().unwrap();
    let mut learner = Learner::new(runtime, Net::Residual, true).unwrap();
    let mut size = 4096;
    let mut failed = 0;
    let losses: Vec<f32> = (0..4)
        .map(|step| {
            loop {
                match learner.step(batch(size, step)) {
                    Ok(loss) => return loss,
                    Err(Error::OutOfMemory(_)) => {
                        (size, failed) = (size / 2, failed + 1);
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        })
        .collect();
    assert!(failed > 0 && size >= 8, "{size} after {failed} failures");
    assert!(losses.iter().all(|loss| loss.is_finite()));
    assert!(learner.runtime.stats().unwrap().evictions > 0);
}

/// Regression: if memory was short for a put, its value was lost forever, although its host copy
/// existed.
#[test]
fn a_put_without_room_succeeds_when_there_is_room() {
    let runtime = Runtime::builder().budget("20KiB").threads(1).cpu().unwrap();
    let value = |x: f32| HostTensor::f32([1024], vec![x; 1024]).unwrap();
    let leaves: Vec<_> = (0..5).map(|i| runtime.put_leaf(value(i as f32)).unwrap()).collect();
    let [a, b] = [5.0, 6.0].map(|x| runtime.put(value(x)).unwrap());
    let leaf = runtime.put_leaf(value(7.0)).unwrap();
    runtime.sync().expect("nothing is lost");
    assert_eq!(
        runtime.stats().unwrap().host_bytes,
        3 * 4096,
        "of those that may have to be put again"
    );
    let sum = a.add(&b).unwrap();
    assert!(
        matches!(runtime.get(&sum), Err(Error::OutOfMemory(_))),
        "two and their sum do not fit"
    );
    drop((leaves, sum));
    let sum = a.add(&b).unwrap();
    assert_eq!(runtime.get(&sum).unwrap(), value(11.0));
    assert_eq!(runtime.get(&leaf).unwrap(), value(7.0));
    runtime.sync().unwrap();
}

/// Regression: after a skipped update of a view, the runtime treated the handle as packed, and the
/// engine treated it as a view. A later sync said that an f32[4] cannot take the place of an
/// f32[4].
#[test]
fn a_part_whose_update_was_skipped_can_be_replaced_and_replace() {
    let runtime = Runtime::builder().budget("20KiB").threads(1).cpu().unwrap();
    let host = |values: &[f32]| HostTensor::f32([values.len()], values.to_vec()).unwrap();
    let whole = runtime.put(host(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])).unwrap();
    let mut part = whole.slice(0, 4..8).unwrap();
    let mut other = runtime.put(host(&[9.0; 4])).unwrap();
    let huge = runtime.full(&[4, 1 << 20], 1.0).unwrap();
    let lost = huge.sum_along(&[1], false).unwrap();
    runtime.update(Accumulate, &mut [&mut part], &[&lost]).unwrap();
    assert!(matches!(runtime.sync(), Err(Error::OutOfMemory(_))));
    runtime.step().unwrap();
    runtime.replace(&mut other, &part).unwrap();
    runtime.sync().expect("it is replaced");
    assert_eq!(runtime.get(&other).unwrap(), host(&[4.0, 5.0, 6.0, 7.0]));
    let new = runtime.put(host(&[8.0; 4])).unwrap();
    runtime.replace(&mut part, &new).unwrap();
    runtime.sync().expect("it is replaced");
    assert_eq!(runtime.get(&part).unwrap(), host(&[8.0; 4]));
    assert_eq!(runtime.get(&other).unwrap(), host(&[4.0, 5.0, 6.0, 7.0]));
}
