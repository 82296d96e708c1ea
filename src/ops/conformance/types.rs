//! Tests of ops that only move elements, with elements of every type and tensors of any rank.

use super::{Arg, Rig, Rng, each_index};
use crate::device::{Device, Place};
use crate::host::HostTensor;
use crate::layout::{DType, Dims, Layout, MAX_RANK};
use crate::op::Operation as _;
use crate::ops::{Accumulate, Binary, Concat, Contiguous, Flip, Op, Pad, Reduce, Reduction, Unary};

/// A tensor of random bytes that are valid elements of the type.
fn any(rng: &mut Rng, dtype: DType, shape: &Dims) -> HostTensor {
    let limit = if dtype == DType::Bool { 2 } else { 256 };
    let fill = |bytes: &mut [u8]| bytes.iter_mut().for_each(|byte| *byte = rng.below(limit) as u8);
    HostTensor::written(dtype, *shape, fill).unwrap()
}

/// A shape of `rank` dimensions, of which few are large. Some shapes have no elements.
fn shape(rng: &mut Rng, rank: usize) -> Dims {
    let dims = Dims::from_fn(rank, |_| [1, 1, 2, 2, 3][rng.below(5)]);
    if rank > 0 && rng.below(16) == 0 { dims.with(rng.below(rank), 0) } else { dims }
}

/// A random view of `whole`: permuted, a part of it, repeated, or a combination.
fn seen(rng: &mut Rng, whole: Layout) -> Layout {
    let mut view = whole.permute(&rng.axes(whole.rank())).unwrap();
    for axis in 0..view.rank() {
        let size = view.shape()[axis];
        if rng.below(3) == 0 && size > 1 {
            let start = rng.below(size);
            view = view.slice(axis, start, 1 + rng.below(size - start)).unwrap();
        }
    }
    let repeated = Dims::from_fn(view.rank(), |axis| match view.shape()[axis] {
        1 if rng.below(3) == 0 => 2,
        size => size,
    });
    if rng.below(2) == 0 { view.broadcast_to(&repeated).unwrap() } else { view }
}

/// Bytes of the elements of a view of `host`, in row-major order. The function computes the storage
/// index of each element from the strides.
fn bytes_of(host: &HostTensor, view: &Layout) -> Vec<u8> {
    let size = host.dtype().bytes();
    let mut found = Vec::new();
    each_index(view.shape(), |index| {
        let steps: usize = index.iter().zip(view.strides().iter()).map(|(i, s)| i * s).sum();
        found.extend_from_slice(&host.as_bytes()[(view.offset() + steps) * size..][..size]);
    });
    found
}

/// Calls `body` with tensors of every type and rank, and views of them, several times.
fn each_view(seed: u64, mut body: impl FnMut(&mut Rng, HostTensor, Layout)) {
    let mut rng = Rng::new(seed);
    for dtype in DType::ALL {
        for rank in 0..=10 {
            for _ in 0..4 {
                let shape = shape(&mut rng, rank);
                let host = any(&mut rng, dtype, &shape);
                let view = seen(&mut rng, host.layout());
                body(&mut rng, host, view);
            }
        }
    }
}

pub fn values_and_views_are_read_as_they_are<D: Device<Op = Op, Host = HostTensor>>(
    rig: &mut Rig<D>,
) {
    each_view(31, |rng, host, view| {
        let storage = 256 * rng.below(9) as u64;
        rig.device.write(&host, Place { storage, layout: host.layout() }).unwrap();
        let whole = rig.device.read(Place { storage, layout: host.layout() }).unwrap();
        assert!(whole == host || whole.as_bytes() == host.as_bytes(), "{host:?}");
        let found = rig.device.read(Place { storage, layout: view }).unwrap();
        assert_eq!((found.dtype(), found.shape()), (view.dtype(), view.shape()));
        assert_eq!(found.as_bytes(), bytes_of(&host, &view), "{view:?} of {host:?}");
    });
}

pub fn any_elements_are_packed_padded_and_joined<D: Device<Op = Op, Host = HostTensor>>(
    rig: &mut Rig<D>,
) {
    each_view(32, |rng, host, view| {
        let expected = bytes_of(&host, &view);
        let x = Arg::from(host).view(|_| Some(view));
        let packed = rig.run(&Contiguous.into(), &[x]).remove(0);
        assert_eq!((packed.dtype(), packed.shape()), (view.dtype(), view.shape()));
        assert_eq!(packed.as_bytes(), expected, "{view:?}");
        if view.rank() == 0 {
            return;
        }
        let (axis, before, after) = (rng.below(view.rank()), rng.below(3), rng.below(3));
        let pad = Pad { axis, before, after }.into();
        let padded = rig.run(&pad, &[packed.clone().into()]).remove(0);
        let packed_again = Arg::from(packed.clone());
        let zeros = |n| {
            let zeros = HostTensor::zeros(view.dtype(), view.shape().with(axis, n));
            Arg::from(zeros.unwrap())
        };
        let parts = [zeros(before), packed.into(), zeros(after)];
        let joined = rig.run(&Concat { axis }.into(), &parts).remove(0);
        assert_eq!(padded.as_bytes(), joined.as_bytes(), "{pad:?} of {view:?}");
        let inside = padded.layout().slice(axis, before, view.shape()[axis]).unwrap();
        assert_eq!(bytes_of(&padded, &inside), expected, "{pad:?} of {view:?}");
        let flip = || Op::from(Flip { axis });
        let flipped = rig.run(&flip(), &[packed_again]).remove(0);
        let back = rig.run(&flip(), &[flipped.into()]).remove(0);
        assert_eq!(back.as_bytes(), expected, "flipped twice, {view:?}");
        let nonzero = |bytes: &[u8]| bytes.iter().filter(|&&byte| byte != 0).count();
        assert_eq!(nonzero(padded.as_bytes()), nonzero(&expected), "{pad:?} of {view:?}");
    });
}

/// Moves tensors with any offset and length. The tensors are so large that every copy kernel of a
/// device runs.
pub fn much_of_any_type_is_moved<D: Device<Op = Op, Host = HostTensor>>(rig: &mut Rig<D>) {
    let mut rng = Rng::new(33);
    for dtype in DType::ALL {
        let host = any(&mut rng, dtype, &Dims::new(&[70, 3, 129]));
        let whole = host.layout();
        let views = [
            whole.permute(&[2, 1, 0]),
            whole.slice(0, 1, 69),
            whole.slice(2, 1, 127),
            whole.slice(2, 1, 128).and_then(|part| part.permute(&[0, 2, 1])),
            whole.reshape(&[70 * 3 * 129].into()).and_then(|flat| flat.slice(0, 1, 20_003)),
        ];
        for view in views.map(|view| view.unwrap()) {
            let x = Arg::from(host.clone()).view(|_| Some(view));
            let packed = rig.run(&Contiguous.into(), &[x]).remove(0);
            assert!(packed.as_bytes() == bytes_of(&host, &view), "{view:?}");
        }
    }
}

/// Computes with tensors of many dimensions, which kernels can merge into few loops. The results
/// must not depend on the number of dimensions.
pub fn ranks_are_no_matter_where_loops_are_few<D: Device<Op = Op, Host = HostTensor>>(
    rig: &mut Rig<D>,
) {
    let mut rng = Rng::new(34);
    for rank in MAX_RANK - 1..=10 {
        let sizes: Vec<usize> = (0..rank).map(|axis| 1 + axis % 3).collect();
        let (shape, n) = (Dims::new(&sizes), sizes.iter().product::<usize>());
        let (x, flat) = (rng.floats(shape), [n]);
        let flat = |arg: &Arg| arg.clone().view(|l| l.reshape(&flat.into()));
        let row = rng.floats(Dims::new(&sizes[rank - 3..]));
        let ops: [(Op, Vec<Arg>, Vec<Arg>); 4] = [
            (Unary::Exp.into(), vec![x.clone()], vec![flat(&x)]),
            (Binary::Mul.into(), vec![x.clone(), x.clone()], vec![flat(&x), flat(&x)]),
            (Accumulate.into(), vec![x.clone(), x.clone()], vec![flat(&x), flat(&x)]),
            (
                Binary::Add.into(),
                vec![x.clone(), row.clone()],
                vec![
                    x.clone().view(|l| {
                        l.reshape(&[n / row.layout.elements(), row.layout.elements()].into())
                    }),
                    row.clone().view(|l| l.reshape(&[row.layout.elements()].into())),
                ],
            ),
        ];
        for (op, args, fewer) in ops {
            let (found, expected) = (rig.run(&op, &args).remove(0), rig.run(&op, &fewer).remove(0));
            assert_eq!(found.as_bytes(), expected.as_bytes(), "{op:?} of {args:?}");
            assert_eq!(found.shape(), &shape);
        }
        let sum = |axes: &[usize]| -> Op {
            Reduce { kind: Reduction::Sum, axes: Dims::new(axes), keep_dims: false }.into()
        };
        let all: Vec<usize> = (0..rank).collect();
        let (found, expected) =
            (rig.run(&sum(&all), std::slice::from_ref(&x)), rig.run(&sum(&[0]), &[flat(&x)]));
        assert_eq!(found[0].as_bytes(), expected[0].as_bytes());
        // Sum along all dimensions except one.
        let matrix = x.clone().view(|l| l.reshape(&[n / sizes[rank - 1], sizes[rank - 1]].into()));
        let (found, expected) =
            (rig.run(&sum(&all[..rank - 1]), &[x]), rig.run(&sum(&[0]), &[matrix]));
        assert_eq!(found[0].as_bytes(), expected[0].as_bytes());
    }
}

/// Checks that an op refuses operands which need too many loops before it runs, and accepts packed
/// copies of the operands.
pub fn more_loops_than_there_are_are_refused<D: Device<Op = Op, Host = HostTensor>>(
    rig: &mut Rig<D>,
) {
    let mut rng = Rng::new(35);
    for rank in MAX_RANK + 1..=10 {
        let x = rng.floats(Dims::new(&vec![2; rank]));
        let turned = x.clone().view(|l| l.permute(&(0..rank).rev().collect::<Vec<_>>()));
        let row = rng.floats([2]);
        let sum = Reduce { kind: Reduction::Sum, axes: Dims::SCALAR, keep_dims: false };
        let cases: [(Op, &[&Arg]); 5] = [
            (Unary::Relu.into(), &[&turned]),
            (Binary::Add.into(), &[&turned, &row]),
            (Binary::Add.into(), &[&row, &turned]),
            (Accumulate.into(), &[&x, &turned]),
            (sum.into(), &[&turned]),
        ];
        for (op, args) in cases {
            let layouts: Vec<Layout> = args.iter().map(|arg| arg.layout).collect();
            let error = op.infer(&layouts).unwrap_err().to_string();
            let parts = [op.name(), &turned.layout.to_string(), "at most 6", "contiguous"];
            assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        }
        let packed: Arg = rig.run(&Contiguous.into(), &[turned]).remove(0).into();
        rig.run(&Unary::Relu.into(), &[packed]);
    }
}
