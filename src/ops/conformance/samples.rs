use super::{Arg, Rig, Rng, close_sums, is_run};
use crate::device::{Call, Device, Place};
use crate::host::HostTensor;
use crate::layout::{DType, Dims, Layout};
use crate::op::Operation as _;
use crate::ops::samples::{Sample, each, samples};
use crate::ops::{Op, Reshape, Unary};
use std::collections::BTreeSet;

/// Samples, with data, of every op that has a kernel. Samples that do not fit in the rig's memory
/// are left out. The iterator makes the data of each sample when it reaches the sample, because the
/// data of all samples together is large. If the rig skips samples, at least one sample of each op
/// remains, one with elements if there is any. The number `walk` decides which samples remain.
pub fn tasks<D: Device<Op = Op, Host = HostTensor>>(
    rig: &Rig<D>,
    walk: usize,
) -> impl Iterator<Item = (Op, Vec<Arg>)> + use<D> {
    let name = |sample: &Sample| sample.op.name().to_owned();
    let mut all = samples();
    let with_samples: BTreeSet<String> = all.iter().map(name).collect();
    assert_eq!(with_samples.len(), each().len(), "only these have samples: {with_samples:?}");
    all.retain(is_run);
    let with_kernels: BTreeSet<String> = all.iter().map(name).collect();
    all.retain(|sample| rig.holds(sample));
    let held: BTreeSet<String> = all.iter().map(name).collect();
    assert_eq!(held, with_kernels, "there is no room for any sample of some");
    let of_each = held.iter().flat_map(|wanted| {
        let mut own: Vec<&Sample> = all.iter().filter(|sample| name(sample) == *wanted).collect();
        let has_elements = |sample: &Sample| sample.layouts().iter().all(|x| x.elements() > 0);
        let from = walk % own.len();
        let first = (from..own.len()).find(|&i| has_elements(own[i])).unwrap_or(from);
        own.rotate_left(first);
        own.into_iter().step_by(rig.parts).cloned()
    });
    let taken: Vec<Sample> = of_each.collect();
    let mut rng = Rng::new(18);
    taken.into_iter().map(move |sample| (sample.op.clone(), rng.args(&sample)))
}

/// Fails unless `run(way, ..)` gives the same bits for each `way` below `ways`.
pub fn assert_same_bits(
    tasks: impl Iterator<Item = (Op, Vec<Arg>)>,
    ways: usize,
    mut run: impl FnMut(usize, &Op, &[Arg]) -> Vec<HostTensor>,
) {
    for (op, args) in tasks {
        let expected = run(0, &op, &args);
        for way in 1..ways {
            for (i, (a, b)) in expected.iter().zip(run(way, &op, &args)).enumerate() {
                let layouts: Vec<_> = args.iter().map(|arg| arg.layout).collect();
                assert!(
                    a.as_bytes() == b.as_bytes(),
                    "output {i} of {op:?} of {layouts:?} differs"
                );
            }
        }
    }
}

/// Runs each sample several times, with different junk in outputs and workspaces. All runs must
/// give the same bits.
pub fn same_bits_again<D: Device<Op = Op, Host = HostTensor>>(rig: &mut Rig<D>) {
    assert_same_bits(tasks(rig, 0), 2, |way, op, args| {
        rig.junk = [f32::NAN, 7.5][way];
        rig.run(op, args)
    });
}

/// Runs ops on contiguous operands with an offset of one element, so that vector loads are not
/// aligned.
pub fn operands_may_begin_anywhere<D: Device<Op = Op, Host = HostTensor>>(rig: &mut Rig<D>) {
    for (op, args) in tasks(rig, 1) {
        let moved: Vec<Arg> = args.iter().map(Arg::one_further).collect();
        let (usual, moved) = (rig.run(&op, &args), rig.run(&op, &moved));
        for (usual, moved) in usual.iter().zip(&moved) {
            assert_near(moved, usual, 1e-5, &format!("{op:?}"));
        }
    }
}

/// Fails unless integers are equal, and floats are equal up to `tolerance` times the largest float.
pub fn assert_near(found: &HostTensor, expected: &HostTensor, tolerance: f32, what: &str) {
    // Accept equal bytes at once, because elements of both tensors may be NaN, such as a mean of no
    // elements.
    if found.as_bytes() == expected.as_bytes() {
        return;
    }
    match expected.as_f32() {
        Some(_) => close_sums(found, expected, tolerance, what),
        None => assert_eq!(found.as_i32(), expected.as_i32(), "{what}"),
    }
}

pub fn views_overlaps_and_misplaced_operands_are_refused<D: Device<Op = Op, Host = HostTensor>>(
    rig: &mut Rig<D>,
) {
    let place = |storage, shape: [usize; 1]| Place {
        storage,
        layout: Layout::contiguous(DType::F32, shape),
    };
    let mut run = |op: Op, inputs: &[Place], output: Place| {
        rig.device
            .execute(Call {
                op: &op,
                inputs,
                outputs: &[output],
                flops: 0.0,
                workspace: 0..0,
                timed: false,
            })
            .is_err()
    };
    let flat = Reshape { shape: Dims::new(&[4]) };
    assert!(run(flat.into(), &[place(0, [4])], place(256, [4])));
    let neg = || Op::from(Unary::Neg);
    assert!(!run(neg(), &[place(0, [4])], place(256, [4])));
    assert!(run(neg(), &[place(0, [4])], place(8, [4])), "output over input");
    assert!(run(neg(), &[place(0, [4])], place(super::BYTES - 8, [4])), "outside");
    assert!(rig.device.read(place(super::BYTES, [1])).is_err());
    assert!(rig.device.read(place(2, [1])).is_err(), "across elements");
    assert!(rig.device.write(&HostTensor::scalar(1.0), place(0, [1])).is_err(), "another shape");
}
