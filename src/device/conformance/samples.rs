use super::{Arg, Rig, Rng, close_sums, each_index};
use crate::device::{Call, Device, Place};
use crate::host::HostTensor;
use crate::layout::{DType, Dims, Layout};
use crate::ops::{Binary, Conv2d, Distribution, Op, Pool2d, Reduction, Unary};

const POOL: Pool2d = Pool2d { kernel: [3, 3], stride: [2, 2], padding: [1, 1] };
const CONV: Conv2d = Conv2d { stride: [1, 1], padding: [1, 1] };

/// Every op that has a kernel, on tensors large enough to be shared among threads.
pub fn samples() -> Vec<(Op, Vec<Arg>)> {
    let rng = &mut Rng::new(18);
    let image = [10, 9, 33, 31];
    let mut samples = Vec::new();
    let mut add = |op: Op, args: Vec<Arg>| samples.push((op, args));
    for f in [Unary::Relu, Unary::Exp, Unary::Tanh, Unary::Sigmoid] {
        add(Op::Unary(f), vec![rng.floats(image)]);
    }
    add(Op::Affine { scale: 2.0, shift: 1.0 }, vec![rng.floats(image)]);
    for other in [&image[..], &[9, 1, 1], &[31]] {
        add(Op::Binary(Binary::Mul), vec![rng.floats(image), rng.floats(Dims::new(other))]);
    }
    add(
        Op::MatMul,
        vec![rng.floats([300, 70]), rng.floats([300, 70]).view(|l| l.permute(&[1, 0]))],
    );
    add(Op::MatMul, vec![rng.floats([3, 2, 90, 50]), rng.floats([2, 50, 80])]);
    add(Op::Conv2d(CONV), vec![rng.floats(image), rng.floats([12, 9, 3, 3])]);
    let grad = [10, 12, 33, 31];
    let op = Op::Conv2dGradInput { conv: CONV, input: [33, 31] };
    add(op, vec![rng.floats(grad), rng.floats([12, 9, 3, 3])]);
    add(
        Op::Conv2dGradWeight { conv: CONV, kernel: [3, 3] },
        vec![rng.floats(image), rng.floats(grad)],
    );
    for shape in
        [&image[..], &[4, 40, 31, 31], &[3000, 40], &[2000, 5, 3, 3], &[1500, 300], &[40, 5000]]
    {
        let (c, shape) = (shape[1], Dims::new(shape));
        let [a, b, mean] = [(); 3].map(|()| rng.floats([c]));
        let var = rng.positive([c]);
        let (x, dy) = (rng.floats(shape), rng.floats(shape));
        let args = vec![x.clone(), a.clone(), b, mean.clone(), var.clone()];
        add(Op::BatchNorm { momentum: 0.1, eps: 1e-5 }, args.clone());
        add(Op::BatchNormInfer { eps: 1e-5 }, args);
        add(Op::BatchNormGrad, vec![x, a, mean, var, dy]);
    }
    add(Op::MaxPool2d(POOL), vec![rng.floats(image)]);
    add(Op::AvgPool2d(POOL), vec![rng.floats(image)]);
    let small = Dims::new(&[10, 9, 17, 16]);
    add(Op::AvgPool2dGrad { pool: POOL, input: [33, 31] }, vec![rng.floats(small)]);
    let op = Op::MaxPool2dGrad { pool: POOL, input: [33, 31] };
    add(op, vec![places_in_windows(rng, small), rng.floats(small)]);
    for kind in [Reduction::Sum, Reduction::Mean, Reduction::Max] {
        for axes in [&[0][..], &[1], &[3], &[0, 2, 3], &[0, 1, 2, 3]] {
            add(
                Op::Reduce { kind, axes: Dims::new(axes), keep_dims: false },
                vec![rng.floats(image)],
            );
        }
        for shape in [[300_000, 1], [100_000, 3], [3, 100_000], [900, 600]] {
            add(
                Op::Reduce { kind, axes: Dims::new(&[0]), keep_dims: false },
                vec![rng.floats(shape)],
            );
        }
    }
    for row in [10, 1000] {
        let shape = [90_000 / row, row];
        add(Op::Softmax, vec![rng.floats(shape)]);
        add(Op::LogSoftmax, vec![rng.floats(shape)]);
        add(Op::SoftmaxGrad, vec![rng.floats(shape), rng.floats(shape)]);
        add(Op::LogSoftmaxGrad, vec![rng.floats(shape), rng.floats(shape)]);
        let labels = rng.numbers(shape[0], row);
        add(Op::CrossEntropy, vec![rng.floats(shape), labels.clone()]);
        add(Op::CrossEntropyGrad, vec![rng.floats(shape), labels, Arg::f32([], vec![0.5])]);
    }
    add(Op::Contiguous, vec![rng.floats(image).view(|l| l.permute(&[0, 2, 3, 1]))]);
    add(Op::Pad { axis: 2, before: 1, after: 2 }, vec![rng.floats(image)]);
    add(Op::Concat { axis: 1 }, vec![rng.floats(image), rng.floats(image)]);
    add(Op::Gather { axis: 0 }, vec![rng.floats([700, 100]), rng.numbers(1000, 700)]);
    add(
        Op::ScatterAdd { axis: 0, size: 700 },
        vec![rng.floats([1000, 100]), rng.numbers(1000, 700)],
    );
    let shape = Dims::new(&[100_001]);
    add(Op::Fill { shape, value: 1.5 }, vec![]);
    for distribution in [
        Distribution::Uniform { low: -1.0, high: 2.0 },
        Distribution::Normal { mean: 0.0, std: 1.0 },
    ] {
        add(Op::Random { distribution, shape, key: 3, counter: 4 }, vec![]);
    }
    let [p, v, g] = [(); 3].map(|()| rng.floats(shape));
    add(Op::Accumulate, vec![p.clone(), g.clone()]);
    add(Op::SgdMomentum { lr: 0.1, momentum: 0.9, weight_decay: 1e-4 }, vec![p, v, g]);
    samples
}

/// For each window of [`POOL`] over images of 33 by 31, a place in it.
fn places_in_windows(rng: &mut Rng, windows: Dims) -> Arg {
    let mut places = Vec::new();
    each_index(&windows, |index| {
        let [.., row, column] = *index else { unreachable!() };
        let (row, column) = (2 * row + rng.below(2), 2 * column + rng.below(2));
        places.push((row.min(32) * 31 + column.min(30)) as i32);
    });
    Arg::i32(windows, places)
}

/// The outputs of all [`samples`].
pub fn results<D: Device<Op = Op, Host = HostTensor>>(
    rig: &mut Rig<D>,
) -> Vec<(Op, Vec<HostTensor>)> {
    samples().into_iter().map(|(op, args)| (op.clone(), rig.run(&op, &args))).collect()
}

/// Fails unless all outputs are the same bit for bit.
pub fn assert_same_bits(a: &[(Op, Vec<HostTensor>)], b: &[(Op, Vec<HostTensor>)]) {
    for ((op, a), (_, b)) in a.iter().zip(b) {
        for (i, (a, b)) in a.iter().zip(b).enumerate() {
            assert!(a.as_bytes() == b.as_bytes(), "output {i} of {op:?} differs");
        }
    }
}

pub fn same_bits_again<D: Device<Op = Op, Host = HostTensor>>(rig: &mut Rig<D>) {
    let (first, second) = (results(rig), results(rig));
    assert_same_bits(&first, &second);
    for (op, outputs) in first {
        for output in outputs {
            let set = output.as_f32().is_none_or(|x| x.iter().all(|x| !x.is_nan()));
            assert!(set, "{op:?} left elements unset");
        }
    }
}

/// Contiguous operands that begin one element into their storage: where no vector would.
pub fn operands_may_begin_anywhere<D: Device<Op = Op, Host = HostTensor>>(rig: &mut Rig<D>) {
    for (op, args) in samples() {
        let moved: Vec<Arg> = args.iter().map(Arg::one_further).collect();
        let (usual, moved) = (rig.run(&op, &args), rig.run(&op, &moved));
        for (usual, moved) in usual.iter().zip(&moved) {
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
    assert!(run(Op::Reshape { shape: Dims::new(&[4]) }, &[place(0, [4])], place(256, [4])));
    let neg = || Op::Unary(Unary::Neg);
    assert!(!run(neg(), &[place(0, [4])], place(256, [4])));
    assert!(run(neg(), &[place(0, [4])], place(8, [4])), "output over input");
    assert!(run(neg(), &[place(0, [4])], place(super::BYTES - 8, [4])), "outside");
    assert!(rig.device.read(place(super::BYTES, [1])).is_err());
    assert!(rig.device.read(Place { storage: 0, layout: Layout::raw(4) }).is_err());
    assert!(rig.device.write(&HostTensor::scalar(1.0), place(0, [1])).is_err(), "another shape");
}
