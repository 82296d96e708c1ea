//! Tensors without elements: every op, with permuted, broadcast and sliced operands.

use super::{Arg, Rig, Rng};
use crate::device::Device;
use crate::host::HostTensor;
use crate::layout::Dims;
use crate::ops::samples::one_of_each;
use crate::ops::{Conv2d, Op, Pool2d, Reduction};

impl Rng {
    /// Nothing as often as not.
    fn few(&mut self) -> usize {
        [0, 0, 0, 1, 2, 5][self.below(6)]
    }

    fn few_dims(&mut self, least: usize, most: usize) -> Dims {
        let rank = least + self.below(most + 1 - least);
        Dims::new(&(0..rank).map(|_| self.few()).collect::<Vec<_>>())
    }

    /// Contiguous floats, at the front of their storage or further in.
    fn packed(&mut self, shape: impl Into<Dims>) -> Arg {
        let x = self.floats(shape);
        if self.below(2) == 0 { x } else { x.one_further() }
    }

    /// What broadcasts to `shape`.
    fn part(&mut self, shape: &[usize]) -> Arg {
        let mut part = Dims::new(&shape[self.below(shape.len() + 1)..]);
        for size in part.iter_mut() {
            *size = if self.below(3) == 0 { 1 } else { *size };
        }
        self.arranged(&part)
    }
}

/// An op like `op`, of operands of random sizes. `None`: there is nothing to run.
fn example(op: &Op, rng: &mut Rng) -> Option<(Op, Vec<Arg>)> {
    let any = rng.few_dims(0, 4);
    let some = rng.few_dims(1, 4);
    let axis = rng.below(some.len());
    Some(match *op {
        Op::Unary(_) | Op::Affine { .. } => (op.clone(), vec![rng.arranged(&any)]),
        Op::Binary(_) => (op.clone(), vec![rng.part(&any), rng.part(&any)]),
        Op::MatMul => {
            let [m, k, n] = [(); 3].map(|()| rng.few());
            let lead = rng.few_dims(0, 3);
            let mut operand = |rows: usize, columns: usize| {
                let lead = *rng.part(&lead).layout.shape();
                rng.arranged(&Dims::new(&[&lead[..], &[rows, columns]].concat()))
            };
            (op.clone(), vec![operand(m, k), operand(k, n)])
        }
        Op::Conv2d(_) | Op::Conv2dGradInput { .. } | Op::Conv2dGradWeight { .. } => {
            let [n, c, o, h, w] = [(); 5].map(|()| rng.few());
            let [kernel, stride] = [(); 2].map(|()| [1 + rng.below(3), 1 + rng.below(3)]);
            // Wide enough for a window.
            let padding = kernel.map(|k| k.div_ceil(2) + rng.below(2));
            let conv = Conv2d { stride, padding };
            let [rows, columns] =
                [(h, 0), (w, 1)].map(|(n, i)| (n + 2 * padding[i] - kernel[i]) / stride[i] + 1);
            let x = rng.packed([n, c, h, w]);
            let weight = rng.packed([o, c, kernel[0], kernel[1]]);
            let y = rng.packed([n, o, rows, columns]);
            match op {
                Op::Conv2d(_) => (Op::Conv2d(conv), vec![x, weight]),
                Op::Conv2dGradInput { .. } => {
                    (Op::Conv2dGradInput { conv, input: [h, w] }, vec![y, weight])
                }
                _ => (Op::Conv2dGradWeight { conv, kernel }, vec![x, y]),
            }
        }
        Op::BatchNorm { .. } | Op::BatchNormGrad | Op::BatchNormInfer { .. } => {
            let mut shape = rng.few_dims(2, 4);
            if matches!(op, Op::BatchNorm { .. }) && shape.elements() == 0 {
                // A channel must have elements to have a mean.
                shape[1] = 0;
            }
            let c = shape[1];
            let [gamma, beta, mean] = [(); 3].map(|()| rng.packed([c]));
            let (x, dy, var) = (rng.packed(shape), rng.packed(shape), rng.positive([c]));
            match op {
                Op::BatchNormGrad => (op.clone(), vec![x, gamma, mean, var, dy]),
                _ => (op.clone(), vec![x, gamma, beta, mean, var]),
            }
        }
        Op::MaxPool2d(_)
        | Op::MaxPool2dGrad { .. }
        | Op::AvgPool2d(_)
        | Op::AvgPool2dGrad { .. } => {
            let ([n, c], input) = ([(); 2].map(|()| rng.few()), [(); 2].map(|()| 1 + rng.below(4)));
            let kernel = input.map(|n| 1 + rng.below(n));
            let padding = kernel.map(|k| rng.below(k / 2 + 1));
            let pool = Pool2d { kernel, stride: [1 + rng.below(3), 1 + rng.below(3)], padding };
            let [rows, columns] =
                [0, 1].map(|i| (input[i] + 2 * padding[i] - kernel[i]) / pool.stride[i] + 1);
            let (x, y) = ([n, c, input[0], input[1]], [n, c, rows, columns]);
            match op {
                Op::MaxPool2d(_) => (Op::MaxPool2d(pool), vec![rng.packed(x)]),
                Op::AvgPool2d(_) => (Op::AvgPool2d(pool), vec![rng.packed(x)]),
                Op::AvgPool2dGrad { .. } => {
                    (Op::AvgPool2dGrad { pool, input }, vec![rng.packed(y)])
                }
                _ => {
                    let places = rng.numbers(n * c * rows * columns, input[0] * input[1]);
                    let places = places.view(|l| l.reshape(&Dims::new(&y)));
                    (Op::MaxPool2dGrad { pool, input }, vec![places, rng.packed(y)])
                }
            }
        }
        Op::Reduce { kind, .. } => {
            let mut axes = rng.axes(any.len());
            axes.truncate(rng.below(any.len() + 1));
            let keep_dims = rng.below(2) == 0;
            let mut shape = any;
            if kind == Reduction::Max {
                // There is no largest of none.
                axes.iter().for_each(|&axis| shape[axis] = shape[axis].max(1));
            }
            (Op::Reduce { kind, axes: Dims::new(&axes), keep_dims }, vec![rng.arranged(&shape)])
        }
        Op::Softmax | Op::LogSoftmax => (op.clone(), vec![rng.packed(some)]),
        Op::SoftmaxGrad | Op::LogSoftmaxGrad => {
            (op.clone(), vec![rng.packed(some), rng.packed(some)])
        }
        Op::CrossEntropy | Op::CrossEntropyGrad => {
            let classes = rng.few();
            let n = if classes == 0 { 0 } else { rng.few() };
            let (logits, labels) = (rng.packed([n, classes]), rng.numbers(n, classes));
            let mut args = vec![logits, labels];
            if matches!(op, Op::CrossEntropyGrad) {
                args.push(rng.packed([]));
            }
            (op.clone(), args)
        }
        Op::Contiguous => (Op::Contiguous, vec![rng.arranged(&any)]),
        Op::Pad { .. } => {
            (Op::Pad { axis, before: rng.few(), after: rng.few() }, vec![rng.packed(some)])
        }
        Op::Concat { .. } => {
            let parts = 1 + rng.below(4);
            let mut part = || {
                let size = rng.few();
                rng.packed(some.with(axis, size))
            };
            (Op::Concat { axis }, (0..parts).map(|_| part()).collect())
        }
        Op::Gather { .. } | Op::ScatterAdd { .. } => {
            let size = some[axis];
            let n = if size == 0 { 0 } else { rng.few() };
            let index = rng.numbers(n, size);
            match op {
                Op::Gather { .. } => (Op::Gather { axis }, vec![rng.packed(some), index]),
                _ => (Op::ScatterAdd { axis, size }, vec![rng.packed(some.with(axis, n)), index]),
            }
        }
        Op::Fill { value, .. } => (Op::Fill { shape: any, value }, vec![]),
        Op::Random { distribution, key, counter, .. } => {
            (Op::Random { distribution, shape: any, key, counter }, vec![])
        }
        Op::SgdMomentum { .. } => {
            (op.clone(), vec![rng.packed(any), rng.packed(any), rng.packed(any)])
        }
        Op::Accumulate => (Op::Accumulate, vec![rng.packed(any), rng.arranged(&any)]),
        Op::Reshape { .. } | Op::Permute { .. } | Op::Slice { .. } | Op::Broadcast { .. } => {
            return None;
        }
    })
}

/// It runs, and makes all of what it should make: whatever was there before makes no difference.
pub fn any_op_of_no_elements<D: Device<Op = Op, Host = HostTensor>>(rig: &mut Rig<D>) {
    let mut rng = Rng::new(20);
    for op in &one_of_each() {
        for _ in 0..60 {
            let Some((op, args)) = example(op, &mut rng) else { break };
            rig.junk = f32::NAN;
            let some = rig.run(&op, &args);
            rig.junk = 7.5;
            for (i, (a, b)) in some.iter().zip(rig.run(&op, &args)).enumerate() {
                assert!(a.as_bytes() == b.as_bytes(), "output {i} of {op:?} of {args:?} is unset");
            }
        }
    }
}

/// No number is in a range without elements.
pub fn what_is_not_there_is_refused<D: Device<Op = Op, Host = HostTensor>>(rig: &mut Rig<D>) {
    let numbers = || Arg::i32([3], vec![0, 1, 2]);
    let nothing = || Arg::f32([3, 0], vec![]);
    for (op, args, what) in [
        (Op::Gather { axis: 1 }, vec![nothing(), numbers()], "index"),
        (Op::CrossEntropy, vec![nothing(), numbers()], "label"),
    ] {
        let error = rig.try_run(&op, &args).unwrap_err().to_string();
        let expected = format!("{what} 0 at position 0 is out of range, expected 0..0");
        assert_eq!(error, expected, "{op:?}");
    }
}
