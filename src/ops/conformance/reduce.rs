use super::{Arg, Rig, Rng, each_index};
use crate::device::Device;
use crate::host::HostTensor;
use crate::layout::Dims;
use crate::ops::{ArgReduce, CumSum, Extreme, Op, Reduce, Reduction};

/// Shape and elements of the expected result.
fn reference(kind: Reduction, x: &Arg, axes: &[usize], keep_dims: bool) -> (Vec<usize>, Vec<f64>) {
    let shape = x.shape();
    let kept: Vec<usize> =
        (0..shape.len()).map(|i| if axes.contains(&i) { 1 } else { shape[i] }).collect();
    let start = match kind {
        Reduction::Max => f64::NEG_INFINITY,
        Reduction::Min => f64::INFINITY,
        _ => 0.0,
    };
    let mut out = vec![start; kept.iter().product()];
    let elements = x.elements();
    let mut next = 0;
    each_index(shape, |index| {
        let at = kept
            .iter()
            .zip(index)
            .fold(0, |at, (&size, &i)| at * size + if size == 1 { 0 } else { i });
        let x = elements[next];
        next += 1;
        out[at] = match kind {
            Reduction::Max | Reduction::Min if x.is_nan() || out[at].is_nan() => f64::NAN,
            Reduction::Max => out[at].max(x),
            Reduction::Min => out[at].min(x),
            _ => out[at] + x,
        };
    });
    if kind == Reduction::Mean {
        let count: usize = axes.iter().map(|&axis| shape[axis]).product();
        out.iter_mut().for_each(|x| *x /= count as f64);
    }
    let shape =
        (0..shape.len()).filter(|i| keep_dims || !axes.contains(i)).map(|i| kept[i]).collect();
    (shape, out)
}

fn check<D: Device<Op = Op, Host = HostTensor>>(
    rig: &mut Rig<D>,
    x: &Arg,
    axes: &[usize],
    keep_dims: bool,
) {
    for kind in [Reduction::Sum, Reduction::Mean, Reduction::Max, Reduction::Min] {
        let (shape, expected) = reference(kind, x, axes, keep_dims);
        let nothing = [(Reduction::Max, f64::NEG_INFINITY), (Reduction::Min, f64::INFINITY)];
        if nothing.iter().any(|(of, start)| *of == kind && expected.contains(start)) {
            // Skip the case, because an empty list has no maximum.
            continue;
        }
        let op: Op = Reduce { kind, axes: Dims::new(axes), keep_dims }.into();
        let found = rig.run(&op, std::slice::from_ref(x));
        super::close(&found[0], &shape, &expected, 1e-6, &format!("{op:?} of {:?}", x.layout));
    }
}

pub fn any_axes_and_strides<D: Device<Op = Op, Host = HostTensor>>(rig: &mut Rig<D>) {
    let mut rng = Rng::new(4);
    for _ in 0..400 {
        let shape = rng.shape(5, 7);
        let x = rng.arranged(&shape);
        let mut axes = rng.axes(shape.len());
        axes.truncate(rng.below(shape.len() + 1));
        check(rig, &x, &axes, rng.below(2) == 0);
    }
    let x = Arg::f32([2, 3], vec![1.0, f32::NAN, 5.0, 2.0, -1.0, f32::INFINITY]);
    check(rig, &x, &[1], false);
    check(rig, &x, &[0], false);
}

pub fn large_reductions<D: Device<Op = Op, Host = HostTensor>>(rig: &mut Rig<D>) {
    let mut rng = Rng::new(5);
    let x = rng.floats([400_000]);
    check(rig, &x, &[0], false);
    for shape in [[3, 100_001], [100_001, 3], [700, 500], [9, 33_333], [40_000, 9]] {
        let x = rng.floats(shape);
        check(rig, &x, &[0], false);
        check(rig, &x, &[1], true);
        check(rig, &x, &[0, 1], false);
        let turned = x.view(|l| l.permute(&[1, 0]));
        check(rig, &turned, &[0], false);
        check(rig, &turned, &[0, 1], false);
    }
    let x = rng.floats([8, 10, 57, 57]);
    check(rig, &x, &[0, 2, 3], false);
    check(rig, &x, &[1], false);
    check(rig, &x.view(|l| l.permute(&[0, 2, 3, 1])?.slice(2, 1, 50)), &[0, 1], false);
    // Sum ten million equal numbers, broadcast from one element: the rounding errors must not grow
    // with the length of the sum.
    let ones = Arg::f32([1], vec![0.1]).view(|l| l.broadcast_to(&Dims::new(&[10_000_000])));
    let op: Op = Reduce { kind: Reduction::Mean, axes: Dims::new(&[0]), keep_dims: false }.into();
    rig.expect(&op, &[ones], &[], &[f64::from(0.1f32)], 1e-7);
}

pub fn places_of_extremes<D: Device<Op = Op, Host = HostTensor>>(rig: &mut Rig<D>) {
    let mut rng = Rng::new(6);
    let mut shapes: Vec<Vec<usize>> =
        (0..100).map(|_| [&*rng.shape(3, 6), &[1 + rng.below(6)]].concat()).collect();
    shapes.extend([vec![3, 50_001], vec![50_001, 3], vec![700, 33], vec![9, 40, 300]]);
    for shape in shapes {
        let axis = rng.below(shape.len());
        if shape[axis] == 0 {
            continue;
        }
        let few = rng.below(2) == 0;
        // In some cases, use few distinct values, so that several elements are the largest. In
        // others, use NaN.
        let values = |x: f32| match few {
            true if x > 1.9 => f32::NAN,
            true => x.round(),
            false => x,
        };
        let floats = rng.floats(Dims::new(&shape));
        let data = floats.host.as_f32().unwrap().iter().map(|&x| values(x)).collect();
        let x = Arg::f32(Dims::new(&shape), data);
        for kind in [Extreme::Max, Extreme::Min] {
            let keep_dims = rng.below(2) == 0;
            let op: Op = ArgReduce { kind, axis, keep_dims }.into();
            let found = rig.run(&op, std::slice::from_ref(&x)).remove(0);
            let elements = x.elements();
            let inner: usize = shape[axis + 1..].iter().product();
            let n = shape[axis];
            let outer: usize = shape[..axis].iter().product();
            let mut expected = Vec::new();
            for i in 0..outer * inner {
                let at = |k: usize| elements[(i / inner * n + k) * inner + i % inner];
                let better = |a: f64, b: f64| match kind {
                    _ if a.is_nan() || b.is_nan() => a.is_nan() && !b.is_nan(),
                    Extreme::Max => a > b,
                    Extreme::Min => a < b,
                };
                let best = (0..n).fold(0, |best, k| if better(at(k), at(best)) { k } else { best });
                expected.push(best as i32);
            }
            assert_eq!(found.as_i32().unwrap(), expected, "{op:?} of {shape:?}");
            let mut kept = shape.clone();
            if keep_dims {
                kept[axis] = 1;
            } else {
                kept.remove(axis);
            }
            assert_eq!(**found.shape(), *kept);
        }
    }
}

pub fn running_sums<D: Device<Op = Op, Host = HostTensor>>(rig: &mut Rig<D>) {
    let mut rng = Rng::new(7);
    let mut shapes: Vec<Vec<usize>> =
        (0..100).map(|_| [&*rng.shape(3, 6), &[rng.size(6)]].concat()).collect();
    shapes.extend([vec![3, 50_001], vec![50_001, 3], vec![700, 33], vec![9, 40, 300]]);
    for shape in shapes {
        let x = rng.floats(Dims::new(&shape));
        for (axis, &n) in shape.iter().enumerate() {
            for reverse in [false, true] {
                let mut expected = x.elements();
                let inner: usize = shape[axis + 1..].iter().product();
                for i in 0..expected.len() {
                    let along = i / inner % n;
                    // With `reverse`, go from the last element to the first.
                    let i = if reverse { expected.len() - 1 - i } else { i };
                    if along > 0 {
                        expected[i] += expected[if reverse { i + inner } else { i - inner }];
                    }
                }
                let op: Op = CumSum { axis, reverse }.into();
                rig.expect(&op, std::slice::from_ref(&x), &shape, &expected, 1e-6);
            }
        }
    }
}

pub fn nothing_to_join<D: Device<Op = Op, Host = HostTensor>>(rig: &mut Rig<D>) {
    let empty = Arg::f32([3, 0], vec![]);
    let op =
        |kind, axis| -> Op { Reduce { kind, axes: Dims::new(&[axis]), keep_dims: false }.into() };
    rig.expect(&op(Reduction::Sum, 1), std::slice::from_ref(&empty), &[3], &[0.0; 3], 0.0);
    rig.expect(&op(Reduction::Mean, 1), std::slice::from_ref(&empty), &[3], &[f64::NAN; 3], 0.0);
    rig.expect(&op(Reduction::Sum, 0), std::slice::from_ref(&empty), &[0], &[], 0.0);
    rig.expect(&op(Reduction::Max, 0), &[empty], &[0], &[], 0.0);
}
