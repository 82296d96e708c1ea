use super::{Arg, Rig, Rng, each_index};
use crate::device::Device;
use crate::device::conv_shape::span;
use crate::host::HostTensor;
use crate::layout::{Dims, Layout, broadcast_shapes};
use crate::ops::{Conv2d, Conv2dGradInput, Conv2dGradWeight, MatMul, Op};

pub fn matrices_of_any_strides<D: Device<Op = Op, Host = HostTensor>>(rig: &mut Rig<D>) {
    let mut rng = Rng::new(12);
    for round in 0..300 {
        let large = if round % 10 == 0 { 70 } else { 0 };
        let [m, k, n] = [(); 3].map(|()| large + rng.size(9));
        let lead = rng.shape(3, 3);
        let mut operand = |rows: usize, columns: usize| {
            let mut sizes: Vec<usize> = lead[rng.below(lead.len() + 1)..].to_vec();
            sizes.iter_mut().for_each(|size| *size = if rng.below(3) == 0 { 1 } else { *size });
            sizes.extend([rows, columns]);
            rng.arranged(&Dims::new(&sizes))
        };
        let (a, b) = (operand(m, k), operand(k, n));
        let outer = |shape: &[usize]| Dims::new(&shape[..shape.len() - 2]);
        let lead = broadcast_shapes(&outer(a.shape()), &outer(b.shape())).unwrap();
        let shape = [&lead[..], &[m, n]].concat();
        let place = |layout: &Layout, index: &[usize], row: usize, column: usize| {
            let own = &layout.strides()[..layout.rank() - 2];
            let sizes = &layout.shape()[..];
            let skip = index.len() - layout.rank();
            let lead: usize = (0..own.len())
                .map(|i| if sizes[i] == 1 { 0 } else { index[skip + i] * own[i] })
                .sum();
            let last = &layout.strides()[own.len()..];
            layout.offset() + lead + row * last[0] + column * last[1]
        };
        let (left, right) = (a.host.as_f32().unwrap(), b.host.as_f32().unwrap());
        let mut expected = Vec::new();
        each_index(&shape, |index| {
            let [.., row, column] = *index else { unreachable!() };
            let term = |i| {
                f64::from(left[place(&a.layout, index, row, i)])
                    * f64::from(right[place(&b.layout, index, i, column)])
            };
            expected.push((0..k).map(term).sum::<f64>());
        });
        rig.expect(&MatMul.into(), &[a.clone(), b.clone()], &shape, &expected, 1e-4);
    }
}

/// An op, the operands of the op, and the shape and elements of the expected result.
pub(super) type Case = (Op, Vec<Arg>, [usize; 4], Vec<f64>);

/// A convolution of random images and its two gradients. Each group has `c` input channels and `o`
/// output channels.
pub(super) fn convolution(
    rng: &mut Rng,
    [n, c, o]: [usize; 3],
    input: [usize; 2],
    kernel: [usize; 2],
    conv: Conv2d,
) -> [Case; 3] {
    let windows = [0, 1].map(|i| {
        (input[i] + 2 * conv.padding[i] - span(kernel[i], conv.dilation[i])) / conv.stride[i] + 1
    });
    let groups = conv.groups;
    let (shape_x, shape_w) =
        ([n, groups * c, input[0], input[1]], [groups * o, c, kernel[0], kernel[1]]);
    let shape_y = [n, groups * o, windows[0], windows[1]];
    let (x, weight, dy) = (rng.floats(shape_x), rng.floats(shape_w), rng.floats(shape_y));
    let (xs, ws, ds) = (x.elements(), weight.elements(), dy.elements());
    let (mut y, mut dx, mut dw) = (vec![0.0; ds.len()], vec![0.0; xs.len()], vec![0.0; ws.len()]);
    let at =
        |shape: [usize; 4], index: [usize; 4]| (0..4).fold(0, |at, i| at * shape[i] + index[i]);
    each_index(&shape_y, |index| {
        let [n, out, row, column] = *index else { unreachable!() };
        each_index(&shape_w[1..], |index| {
            let [c, i, j] = *index else { unreachable!() };
            let (r, s) = (
                row * conv.stride[0] + i * conv.dilation[0],
                column * conv.stride[1] + j * conv.dilation[1],
            );
            let (Some(r), Some(s)) =
                (r.checked_sub(conv.padding[0]), s.checked_sub(conv.padding[1]))
            else {
                return;
            };
            if r < input[0] && s < input[1] {
                let (iy, ix, iw) = (
                    at(shape_y, [n, out, row, column]),
                    at(shape_x, [n, out / o * shape_w[1] + c, r, s]),
                    at(shape_w, [out, c, i, j]),
                );
                y[iy] += xs[ix] * ws[iw];
                dx[ix] += ds[iy] * ws[iw];
                dw[iw] += ds[iy] * xs[ix];
            }
        });
    });
    [
        (conv.into(), vec![x.clone(), weight.clone()], shape_y, y),
        (Conv2dGradInput { conv, input }.into(), vec![dy.clone(), weight], shape_x, dx),
        (Conv2dGradWeight { conv, kernel }.into(), vec![x, dy], shape_w, dw),
    ]
}

pub fn convolutions<D: Device<Op = Op, Host = HostTensor>>(rig: &mut Rig<D>) {
    let mut rng = Rng::new(13);
    for _ in 0..60 {
        let sizes = [(); 3].map(|()| rng.size(4));
        let kernel = [1 + rng.below(3), 1 + rng.below(3)];
        let conv = Conv2d {
            stride: [1 + rng.below(2), 1 + rng.below(2)],
            padding: [rng.below(kernel[0]), rng.below(kernel[1])],
            dilation: [(); 2].map(|()| [1, 1, 2, 3][rng.below(4)]),
            groups: [1, 1, 2, 3][rng.below(4)],
        };
        let input = [0, 1].map(|i| span(kernel[i], conv.dilation[i]) + rng.below(5));
        for (op, args, shape, expected) in convolution(&mut rng, sizes, input, kernel, conv) {
            rig.expect(&op, &args, &shape, &expected, 1e-5);
        }
    }
}
