//! A recorded step of ResNet-20, captured and planned.

use remat::unstable::lab::Trace;
use remat::unstable::memory::ALIGNMENT;
use remat::unstable::plan::order::{LeastPeak, Reach, Scheduler};
use remat::unstable::plan::{self, BestFit, Capture, First, Gaps, Limits, Planner, TwoLevel};

/// Captures the second of two steps, since the first makes the parameters.
fn captured() -> Capture {
    let path = format!("{}/tests/data/resnet20-v3.jsonl.gz", env!("CARGO_MANIFEST_DIR"));
    let trace = Trace::open(path).unwrap();
    let steps = trace.program().steps();
    assert_eq!(steps.len(), 2);
    trace.program().capture(steps[1].clone(), ALIGNMENT).unwrap()
}

#[test]
fn a_step_is_placed_in_hardly_more_than_its_load() {
    let capture = captured();
    let lifetimes = capture.program().lifetimes().unwrap();
    let ratio = |planner: &dyn Planner| {
        let planned = planner.plan(&lifetimes, &Limits::none()).unwrap();
        planned.placement.bytes() as f64 / lifetimes.load() as f64
    };
    let best = ratio(&Gaps::by(First::Size));
    assert!(best < 1.0005, "{best}: 1.000 was expected");
    // The placement of a simple allocator takes slightly more bytes.
    assert!(best < ratio(&BestFit) && ratio(&BestFit) < 1.002);
    let quick = ["pushdown", "gaps-size", "gaps-area", "two-level"];
    for name in quick {
        let planned = ratio(&*plan::named(name).unwrap());
        assert!((1.0..1.01).contains(&planned), "{name}: {planned}");
    }
}

#[test]
fn a_better_order_is_placed_below_the_load_of_the_programs() {
    let capture = captured();
    let own = capture.program().load();
    let order = LeastPeak.order(&capture, Reach::Offline, &Limits::none()).unwrap();
    assert!(order.load() < own - own / 20, "{} of {own}", order.load());
    let planned = TwoLevel::default().plan(&order.lifetimes().unwrap(), &Limits::none()).unwrap();
    assert!(planned.placement.bytes() < own, "{} of {own}", planned.placement.bytes());
}
