//! Without a subscriber, events and spans allocate no memory, because no text is made.

use crate::common::toy::{Bytes, GRANULE, engine, mix};
use crate::counting::allocations;
use crate::{alone, common};

/// Number of allocations while a chain is regenerated from end to end. For a tensor without a
/// label, a new name is made each time the name is requested.
fn taken(labels: bool) -> usize {
    let mut engine = engine(4 * GRANULE);
    let mut chain = vec![engine.put(Bytes::of(16, 1))];
    for i in 0..20 {
        chain.push(engine.apply(mix(16, i), &[chain[i as usize]]).unwrap()[0]);
    }
    if labels {
        chain.iter().for_each(|&key| engine.label(key, "some").unwrap());
    }
    let mut round = || chain.iter().rev().for_each(|&key| drop(engine.get(key).unwrap()));
    round();
    let before = allocations();
    (0..5).for_each(|_| round());
    let taken = allocations() - before;
    assert!(engine.stats().recomputed_ops > 100);
    taken
}

#[test]
fn names_are_made_only_where_somebody_listens() {
    alone("silence::names_are_made_only_where_somebody_listens", || {
        assert_eq!(taken(false), taken(true));
        let everything = common::log::Log::default();
        let told = [false, true].map(|labels| everything.during(|| taken(labels)));
        assert!(told[0] > told[1] + 500, "or the test would see nothing: {told:?}");
    });
}
