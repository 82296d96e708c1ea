//! A device that fails in the middle of a step that runs by plan: what is lost and what is told is as without a plan.

use crate::common::faulty::{Fault, Faults};
use crate::common::learner::{Learner, Net, batch, faulty_cpu};
use crate::common::say_nothing_of_what_is_on_purpose;
use remat::{Plan, Runtime};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// What became of the step in which call number `call` failed, of the next one, and of what is there then.
type Outcome = (Result<u32, String>, Result<u32, String>, Option<Vec<(String, Vec<u8>)>>);

fn run(net: Net, plan: Plan, call: u64, fault: Fault) -> (Outcome, bool) {
    let faults = Arc::<Faults>::default();
    let builder = Runtime::builder().budget("64MiB").plan(plan);
    let mut learner = Learner::new(faulty_cpu(builder, &faults).unwrap(), net, true).unwrap();
    let mut step = |seed| {
        let done = learner.step(batch(8, seed));
        // Each failure is told once.
        let told = learner.runtime.sync();
        done.and_then(|loss| told.map(|()| loss.to_bits())).map_err(|error| error.to_string())
    };
    for seed in 0..8 {
        step(seed).unwrap();
    }
    faults.at_call(call, fault);
    let failed = step(8);
    let happened = faults.disarm();
    let next = step(9);
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
            // At the end of a planned step, what replaces something is copied, which are calls of its own.
            let is_past = off.0.as_ref().is_err_and(|error| error.starts_with("sync failed"));
            if !happened || is_past {
                break;
            }
            let (auto, _) = run(net, Plan::Auto, call, fault);
            failures += usize::from(off.0.is_err());
            // A question that fails is asked again once the plan is left, and this one fails once.
            let asked = off
                .0
                .as_ref()
                .is_err_and(|error| error.contains("its workspace") || error.contains("TiB"));
            if off != auto && !asked {
                panic!("{net:?}, call {call}: {:?}\n{:?}", (&off.0, &off.1), (&auto.0, &auto.1));
            }
        }
        println!("{net:?}: {failures} failures");
        assert!(failures > 20);
    }
}
