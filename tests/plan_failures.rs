//! If the device fails in a step by plan, the values lost and the errors reported are those of a
//! step without a plan.

use crate::common::cells;
use crate::common::faulty::{Fault, Faults};
use crate::common::learner::{Learner, Net, batch, faulty_cpu};
use crate::common::say_nothing_of_what_is_on_purpose;
use remat::{Plan, Runtime};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Budget, examples per batch, and the number of steps before the failure.
#[derive(Clone, Copy, Debug)]
struct In {
    bytes: u64,
    examples: usize,
    steps: u64,
}

const PLENTY: In = In { bytes: 64 << 20, examples: 8, steps: 8 };

/// Whether the step failed, whether the next step failed, and the bits left.
type Left = (bool, bool, Option<Vec<(String, Vec<u8>)>>);

/// If steps recompute, the device calls of a step by plan do not correspond to those of a step
/// without. But each failure leaves the state that some failure without a plan leaves, or loses
/// nothing.
#[test]
fn a_step_that_recomputes_by_plan_loses_no_more_than_any_other() {
    loses_no_more(Net::Mlp, 64);
}

#[test]
#[ignore = "takes two minutes"]
fn a_step_of_a_residual_net_that_recomputes_by_plan_loses_no_more_than_any_other() {
    loses_no_more(Net::Residual, 16);
}

/// Checks a network with a batch of `examples`, so large that a step's values take more memory than
/// the state.
fn loses_no_more(net: Net, examples: usize) {
    say_nothing_of_what_is_on_purpose();
    let all = peak(net, examples);
    let short = (10..20).map(|twentieths| In { bytes: all * twentieths / 20, examples, steps: 16 });
    let short = short.into_iter().find(|&short| recomputes_by_plan(short, net));
    let short = short.expect("one is too short for all that a step makes");
    let fault = |call: u64| [Fault::Fails, Fault::Panics][call as usize % 2];
    let left = |((failed, next, bits), happened): (Outcome, bool)| {
        let is_past = failed.as_ref().is_err_and(|error| error.starts_with("sync failed"));
        (!is_past && happened).then_some((failed.is_err(), next.is_err(), bits))
    };
    let of = |plan, call| left(run_in(short, net, plan, call, fault(call)));
    let plain: Vec<Left> = (0..).map_while(|call| of(Plan::Off, call)).collect();
    let (unharmed, _) = run_in(short, net, Plan::Off, 1 << 40, Fault::Fails);
    let (mut calls, mut harmless) = (0, 0);
    for (call, auto) in cells(0.., 3).map_while(|call| Some((call, of(Plan::Auto, call)?))) {
        calls += 1;
        let nothing_lost = !auto.0 && !auto.1 && auto.2 == unharmed.2;
        harmless += usize::from(nothing_lost);
        if !nothing_lost && !plain.contains(&auto) {
            let _ = std::panic::take_hook();
            panic!("{net:?}, call {call}: {:?}", (auto.0, auto.1));
        }
    }
    println!(
        "{net:?} in {} bytes: {} calls without a plan, {calls} by plan, {harmless} of them harmless",
        short.bytes,
        plain.len()
    );
    assert!(calls > 6 && harmless > 0, "{calls}, {harmless}");
}

/// Results of the step in which call number `call` failed and of the next step, and the bits left.
type Outcome = (Result<u32, String>, Result<u32, String>, Option<Vec<(String, Vec<u8>)>>);

fn run(net: Net, plan: Plan, call: u64, fault: Fault) -> (Outcome, bool) {
    run_in(PLENTY, net, plan, call, fault)
}

/// Peak bytes of a run without evictions.
fn peak(net: Net, examples: usize) -> u64 {
    let runtime = faulty_cpu(Runtime::builder().budget(PLENTY.bytes), &Arc::default()).unwrap();
    let mut learner = Learner::new(runtime, net, true).unwrap();
    (0..2).for_each(|seed| _ = learner.step(batch(examples, seed)).unwrap());
    learner.runtime.stats().unwrap().peak_bytes
}

/// Whether the last step runs by plan and recomputes.
fn recomputes_by_plan(memory: In, net: Net) -> bool {
    let builder = Runtime::builder().budget(memory.bytes).plan(Plan::Auto);
    let Ok(runtime) = faulty_cpu(builder, &Arc::default()) else { return false };
    let Ok(mut learner) = Learner::new(runtime, net, true) else { return false };
    let mut step = |seed| learner.step(batch(memory.examples, seed)).is_ok();
    if !(1..memory.steps).all(&mut step) {
        return false;
    }
    let before = learner.runtime.stats().unwrap();
    let steps = learner.step(batch(memory.examples, 0)).is_ok();
    let after = learner.runtime.stats().unwrap();
    steps
        && after.planned_steps_evicting > before.planned_steps_evicting
        && after.recomputed_ops > before.recomputed_ops
}

fn run_in(memory: In, net: Net, plan: Plan, call: u64, fault: Fault) -> (Outcome, bool) {
    let faults = Arc::<Faults>::default();
    let builder = Runtime::builder().budget(memory.bytes).plan(plan);
    let mut learner = Learner::new(faulty_cpu(builder, &faults).unwrap(), net, true).unwrap();
    let mut step = |seed| {
        let done = learner.step(batch(memory.examples, seed));
        // Each failure is reported once, by the read of the loss or by the sync.
        let told = learner.runtime.sync();
        done.and_then(|loss| told.map(|()| loss.to_bits())).map_err(|error| error.to_string())
    };
    for seed in 0..memory.steps {
        step(seed).unwrap();
    }
    faults.at_call(call, fault);
    let failed = step(memory.steps);
    let happened = faults.disarm();
    let next = step(memory.steps + 1);
    let planned = learner.runtime.stats().unwrap().planned_steps;
    assert_eq!(planned > 0, plan == Plan::Auto, "{planned}");
    let bits = catch_unwind(AssertUnwindSafe(|| learner.bits())).ok();
    ((failed, next, bits), happened)
}

#[test]
fn a_step_by_plan_fails_as_any_other() {
    say_nothing_of_what_is_on_purpose();
    for net in [Net::Mlp, Net::Residual] {
        let mut failures = 0;
        for call in 0.. {
            let fault = [Fault::Fails, Fault::Panics][call as usize % 2];
            let (off, happened) = run(net, Plan::Off, call, fault);
            // The end of a step by plan copies replacements, which takes additional calls of the
            // device.
            let is_past = off.0.as_ref().is_err_and(|error| error.starts_with("sync failed"));
            if !happened || is_past {
                break;
            }
            let (auto, _) = run(net, Plan::Auto, call, fault);
            failures += usize::from(off.0.is_err());
            // After the plan is left, a failed query is repeated. The query then succeeds, because
            // the fault happens only once.
            let asked = off
                .0
                .as_ref()
                .is_err_and(|error| error.contains("its workspace") || error.contains("TiB"));
            let said = ((&off.0, &off.1), (&auto.0, &auto.1));
            assert!(off == auto || asked, "{net:?}, call {call}: {:?}\n{:?}", said.0, said.1);
        }
        println!("{net:?}: {failures} failures");
        assert!(failures > 20);
    }
}
