use super::{Arg, Rig, Rng, close_sums, is_run};
use crate::device::{Call, Device, Place};
use crate::host::HostTensor;
use crate::layout::{DType, Dims, Layout};
use crate::op::Operation as _;
use crate::ops::samples::{Sample, each, samples};
use crate::ops::{Op, Reshape, Unary};
use std::collections::BTreeSet;

/// There are a lot of samples, and some devices are slow: each test takes another part of those of each op. A number
/// that has nothing in common with the number of arrangements, so that a part has all of them.
const PARTS: usize = 7;

/// A part of the samples of every op that has a kernel, as far as there is room for them, with data: made when it is
/// their turn.
pub fn tasks<D: Device<Op = Op, Host = HostTensor>>(
    rig: &Rig<D>,
    part: usize,
) -> impl Iterator<Item = (Op, Vec<Arg>)> + use<D> {
    let names = |of: &[Sample]| -> BTreeSet<String> {
        of.iter().map(|sample| sample.op.name().to_owned()).collect()
    };
    let mut all = samples();
    assert_eq!(names(&all).len(), each().len(), "only these have samples: {:?}", names(&all));
    all.retain(is_run);
    let with_kernels = names(&all);
    all.retain(|sample| rig.holds(sample));
    assert_eq!(names(&all), with_kernels, "there is no room for any sample of some");
    let of_one_op = all.chunk_by(|a, b| a.op.name() == b.op.name());
    let some = of_one_op.flat_map(|of| {
        let parts = of.len().min(PARTS);
        of.iter().skip(part % parts).step_by(parts).cloned()
    });
    let some: Vec<Sample> = some.collect();
    let mut rng = Rng::new(18);
    some.into_iter().map(move |sample| (sample.op.clone(), rng.args(&sample)))
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

/// Whatever was there before makes no difference.
pub fn same_bits_again<D: Device<Op = Op, Host = HostTensor>>(rig: &mut Rig<D>) {
    assert_same_bits(tasks(rig, 0), 2, |way, op, args| {
        rig.junk = [f32::NAN, 7.5][way];
        rig.run(op, args)
    });
}

/// Contiguous operands that begin one element into their storage: where no vector would.
pub fn operands_may_begin_anywhere<D: Device<Op = Op, Host = HostTensor>>(rig: &mut Rig<D>) {
    for (op, args) in tasks(rig, 1) {
        let moved: Vec<Arg> = args.iter().map(Arg::one_further).collect();
        let (usual, moved) = (rig.run(&op, &args), rig.run(&op, &moved));
        for (usual, moved) in usual.iter().zip(&moved) {
            // A mean of nothing is no number, here and there.
            if usual.as_bytes() == moved.as_bytes() {
                continue;
            }
            match usual.as_f32() {
                Some(_) => close_sums(moved, usual, 1e-5, &format!("{op:?}")),
                None => assert_eq!(moved.as_i32(), usual.as_i32(), "{op:?}"),
            }
        }
    }
}

pub fn what_is_not_an_op_to_run_is_refused<D: Device<Op = Op, Host = HostTensor>>(
    rig: &mut Rig<D>,
) {
    let place = |storage, shape: [usize; 1]| Place {
        storage,
        layout: Layout::contiguous(DType::F32, shape),
    };
    let mut run = |op: Op, inputs: &[Place], output: Place| {
        rig.device
            .execute(Call { op: &op, inputs, outputs: &[output], workspace: 0..0, timed: false })
            .is_err()
    };
    let flat = Reshape { shape: Dims::new(&[4]) };
    assert!(run(flat.into(), &[place(0, [4])], place(256, [4])));
    let neg = || Op::from(Unary::Neg);
    assert!(!run(neg(), &[place(0, [4])], place(256, [4])));
    assert!(run(neg(), &[place(0, [4])], place(8, [4])), "output over input");
    assert!(run(neg(), &[place(0, [4])], place(super::BYTES - 8, [4])), "outside");
    assert!(rig.device.read(place(super::BYTES, [1])).is_err());
    assert!(rig.device.read(Place { storage: 0, layout: Layout::raw(4) }).is_err());
    assert!(rig.device.write(&HostTensor::scalar(1.0), place(0, [1])).is_err(), "another shape");
}
