use super::*;
use crate::runtime::Runtime;
use crate::tune::Tuner;

#[test]
fn less_than_the_state_is_never_rehearsed() {
    let start = |runtime: &Runtime| -> Result<_, Error> {
        let runtime = runtime.clone();
        Ok(move || runtime.step())
    };
    let tuner = Tuner::new(Runtime::builder);
    let rehearsal = Rehearsal::new(&tuner, &start).unwrap();
    let needs = Needs {
        full_budget: 10 << 20,
        peak: 10 << 20,
        state: u64::MAX,
        threshold: None,
        is_measured: false,
    };
    let chooser = Chooser { rehearsal: &rehearsal, needs };
    assert!(chooser.passes(100, CHOSEN_RATIO).unwrap().is_none());
}
