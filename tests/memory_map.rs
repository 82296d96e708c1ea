//! Map of device memory, with names of tensors.

use crate::common::toy::{Bytes, GRANULE, Toy, engine, mix};
use remat::Error;

const BLOCK: usize = GRANULE as usize;

#[test]
fn a_snapshot_has_the_names_of_tensors() {
    let mut engine = engine(8 * GRANULE);
    let batch = engine.put(Bytes::of(2 * BLOCK, 1));
    engine.label(batch, "the batch").unwrap();
    let gone = engine.put(Bytes::of(BLOCK, 2));
    let mixed = engine.apply(mix(BLOCK - 1, 3), &[batch]).unwrap()[0];
    engine.del(gone);
    let snapshot = engine.snapshot();
    let map: Vec<_> = snapshot
        .chunks
        .iter()
        .map(|chunk| {
            let holder = chunk.holder.as_ref();
            (chunk.offset / GRANULE, holder.map(|h| (h.name.as_str(), h.requested)))
        })
        .collect();
    let block = BLOCK as u64;
    assert_eq!(
        map,
        [(0, Some(("the batch", 2 * block))), (2, None), (3, Some(("mix", block - 1))), (4, None)]
    );
    assert_eq!((snapshot.stats.used, snapshot.stats.reserved), (3 * GRANULE, 8 * GRANULE));
    engine.del(mixed);
}

/// The error lists the largest holders of the arena's report, including outputs that are already
/// placed for the current op.
#[test]
fn the_out_of_memory_error_lists_what_the_op_at_hand_already_has() {
    let mut engine = engine(8 * GRANULE);
    let batch = engine.put(Bytes::of(2 * BLOCK, 1));
    engine.label(batch, "the batch").unwrap();
    let op = Toy::Mix { bytes: 3 * BLOCK, salt: 1, scratch: 4 * GRANULE };
    let Err(Error::OutOfMemory(report)) = engine.apply(op, &[batch]) else { panic!("it fits") };
    let because = "in use by this op";
    assert_eq!(
        report.holders,
        [
            ("the current op".into(), 3 * GRANULE, because),
            ("the batch".into(), 2 * GRANULE, because)
        ]
    );
    assert_eq!(report.pinned, 5 * GRANULE);
    engine.check();
}
