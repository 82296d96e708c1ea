//! Checks of steps against their definitions, on random steps.

use super::*;
use remat_rng::SplitMix64;

/// A random step: buffers of all classes, several outputs, updates in place, workspaces, uploads,
/// and values that the host reads.
pub(crate) fn random(seed: u64, ops: usize) -> Capture {
    let mut rng = SplitMix64::new(seed);
    let mut below = |end: usize| (rng.next() % end as u64) as usize;
    let mut buffers: Vec<CapturedBuffer> = (0..1 + below(4))
        .map(|_| {
            let bytes = below(20) as u64;
            if below(3) == 0 { CapturedBuffer::input(bytes) } else { CapturedBuffer::kept(bytes) }
        })
        .collect();
    let names = ["f", "g", "h"];
    let ops = (0..ops).map(|_| {
        let mut all: Vec<usize> = (0..buffers.len()).collect();
        let mut take = |most: usize, below: &mut dyn FnMut(usize) -> usize| {
            // Most picks are buffers that were made recently, so that ops form chains.
            let count = below(most + 1).min(all.len());
            let pick = |_| all.remove(all.len() - 1 - below(all.len()).min(below(all.len())));
            (0..count).map(pick).collect::<Vec<usize>>()
        };
        let op = CapturedOp::new(names[below(names.len())]).costs(below(9) as f64);
        if below(8) == 0 {
            return CapturedOp { waits: true, ..op.reads(take(1, &mut below)) };
        }
        let reads = take(3, &mut below);
        let updates = if below(4) == 0 { take(2, &mut below) } else { Vec::new() };
        let makes: Vec<usize> = (0..below(3)).map(|made| buffers.len() + made).collect();
        for _ in &makes {
            let (bytes, after) = (below(30) as u64, below(10) == 0);
            let buffer = CapturedBuffer { after, ..CapturedBuffer::transient(bytes) };
            buffers.push(buffer.aligned(1 << below(3)));
        }
        let workspace = below(12).saturating_sub(6) as u64;
        CapturedOp { workspace, ..op.reads(reads).updates(updates).makes(makes) }
    });
    let ops = ops.collect();
    Capture::new(buffers, ops).unwrap()
}

/// Whether `second` must run after `first`, by the definition of edges: one of the two ops writes a
/// buffer that both ops name.
pub(crate) fn conflicts(first: &CapturedOp, second: &CapturedOp) -> bool {
    let writes =
        |op: &CapturedOp, buffer| op.makes.contains(&buffer) || op.updates.contains(&buffer);
    let speaks = |op: &CapturedOp, buffer| writes(op, buffer) || op.reads.contains(&buffer);
    (0..100).any(|buffer| {
        speaks(first, buffer)
            && speaks(second, buffer)
            && (writes(first, buffer) || writes(second, buffer))
    })
}

/// Pairs of ops, the first of which must run before the second. The set is transitive: with `(a,
/// b)` and `(b, c)` it contains `(a, c)`.
fn closure(count: usize, edge: impl Fn(usize, usize) -> bool) -> Vec<(usize, usize)> {
    let mut pairs = std::collections::BTreeSet::new();
    for last in 0..count {
        for first in (0..last).rev() {
            let through = |middle: usize| edge(first, middle) && pairs.contains(&(middle, last));
            if edge(first, last) || (first + 1..last).any(through) {
                pairs.insert((first, last));
            }
        }
    }
    pairs.into_iter().collect()
}

#[test]
fn edges_are_those_of_the_definition() {
    for seed in 0..300 {
        let capture = random(seed, seed as usize % 25);
        let (ops, edges) = (capture.ops(), capture.edges());
        let defined = closure(ops.len(), |a, b| conflicts(&ops[a], &ops[b]));
        assert_eq!(closure(ops.len(), |a, b| edges.contains(&(a, b))), defined, "{seed}");
        for &(first, second) in &edges {
            assert!(conflicts(&ops[first], &ops[second]), "{seed}: {first} {second}");
            assert!(capture.predecessors(second).contains(&first));
        }
    }
}

#[test]
fn a_buffer_has_the_class_that_its_life_tells() {
    let op = CapturedOp::new;
    let capture = Capture::new(
        vec![
            CapturedBuffer::kept(1),
            CapturedBuffer::kept(1),
            CapturedBuffer::input(1),
            CapturedBuffer::transient(1),
            CapturedBuffer::transient(1),
            CapturedBuffer::result(1),
        ],
        vec![
            op("put").makes([3]),
            op("f").reads([0, 2, 3]).makes([4, 5]),
            op("update").reads([4]).updates([1]),
        ],
    )
    .unwrap();
    let classes: Vec<Class> = (0..6).map(|buffer| capture.class(buffer)).collect();
    use Class::{Input, Kept, Result, Transient, Updated};
    assert_eq!(classes, [Kept, Updated, Input, Input, Transient, Result]);
}

#[test]
fn invalid_steps_are_errors() {
    let op = || CapturedOp::new("f");
    let kept = CapturedBuffer::kept(8);
    let made = CapturedBuffer::transient(8);
    for (buffers, ops, expected) in [
        (vec![kept], vec![op().reads([1])], "op 0 (`f`) uses buffer 1, which does not exist yet"),
        (vec![made], vec![op().reads([0]), op().makes([0])], "op 0 (`f`) uses buffer 0"),
        (vec![made], vec![op().updates([0]), op().makes([0])], "op 0 (`f`) uses buffer 0"),
        (vec![kept], vec![op().makes([0])], "op 0 (`f`) makes buffer 0, but this number"),
        (vec![made], vec![op().makes([0]), op().makes([0])], "op 1 (`f`) makes buffer 0"),
        (vec![made], vec![op().makes([1])], "op 0 (`f`) makes buffer 1"),
        (vec![made], vec![op().makes([0, 0])], "op 0 (`f`) names buffer 0 twice"),
        (vec![kept], vec![op().reads([0, 0])], "op 0 (`f`) names buffer 0 twice"),
        (vec![kept], vec![op().reads([0]).updates([0])], "op 0 (`f`) names buffer 0 twice"),
        (vec![made], vec![], "buffer 0 never exists"),
        (vec![kept.aligned(3)], vec![], "buffer 0 has an alignment of 3"),
        (vec![], vec![op().costs(-1.0)], "op 0 costs -1"),
        (vec![], vec![op().costs(f64::NAN)], "op 0 costs NaN"),
        (vec![CapturedBuffer::kept(u64::MAX), kept], vec![], "2^64 bytes"),
        (
            vec![CapturedBuffer::kept(u64::MAX)],
            vec![CapturedOp { workspace: 1, ..op() }],
            "2^64 bytes",
        ),
    ] {
        let error = Capture::new(buffers, ops).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn steps_differ_where_anything_but_a_cost_does() {
    let name = Arc::<str>::from("other");
    for seed in 0..40 {
        let capture = random(seed, 12);
        let same = |buffers: &[CapturedBuffer], ops: &[CapturedOp]| {
            let other = Capture::new(buffers.to_vec(), ops.to_vec()).ok()?;
            let is_same = capture.difference(&other).is_none();
            assert_eq!(is_same, other.difference(&capture).is_none());
            assert_eq!(is_same, capture.signature() == other.signature());
            Some(is_same)
        };
        let (buffers, ops) = (capture.buffers(), capture.ops());
        assert_eq!(same(buffers, ops), Some(true));
        assert_ne!(same(buffers, &ops[..11]), Some(true));
        for at in 0..ops.len() {
            let changes: [fn(&mut CapturedOp, &Arc<str>); 8] = [
                |op, _| op.cost += 1.0,
                |op, name| op.name = Arc::clone(name),
                |op, name| op.attributes = Arc::clone(name),
                |op, _| op.workspace += 1,
                |op, _| op.waits ^= true,
                |op, _| op.rematerializable ^= true,
                |op, _| op.updates.truncate(op.updates.len().saturating_sub(1)),
                |op, _| op.reads.truncate(op.reads.len().saturating_sub(1)),
            ];
            for (number, change) in changes.into_iter().enumerate() {
                let mut other = ops.to_vec();
                change(&mut other[at], &name);
                let is_changed = number > 0 && other != ops;
                assert_eq!(same(buffers, &other), Some(!is_changed), "{seed} {at} {number}");
            }
        }
        for number in 0..buffers.len() {
            let mut other = buffers.to_vec();
            other[number].bytes += 1;
            assert_eq!(same(&other, ops), Some(false));
        }
    }
}
