use super::{Draw, Operand, Sample, Sampled, floats};
use crate::device::conv_shape::span;
use crate::layout::Layout;
use crate::op::Outputs;
use crate::ops::conv2d::sides;
use crate::ops::definition::Definition as _;
use crate::ops::{Conv2d, Conv2dGradInput, Conv2dGradWeight, FLOAT, Op};

impl Sampled for Conv2d {
    fn samples(&self) -> Vec<Sample> {
        all().map(|(conv, [x, weight, _])| Sample::new(conv, [x, weight])).collect()
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        let (conv, [x, weight, _]) = drawn(draw);
        Sample::new(conv, [x, weight])
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        let (conv, [x, weight, _]) = absurd(draw);
        (conv.into(), vec![x, weight])
    }
}

impl Sampled for Conv2dGradInput {
    fn samples(&self) -> Vec<Sample> {
        let of = |(conv, [x, weight, dy]): (_, [Operand; 3])| {
            let input = sides(*x.seen.shape());
            Sample::new(Self { conv, input }, [dy, weight])
        };
        all().map(of).collect()
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        let (conv, [x, weight, dy]) = drawn(draw);
        let input = sides(*x.seen.shape());
        Sample::new(Self { conv, input }, [dy, weight])
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        let (conv, [x, weight, dy]) = absurd(draw);
        let input = sides(*x.shape());
        (Self { conv, input }.into(), vec![dy, weight])
    }
}

impl Sampled for Conv2dGradWeight {
    fn samples(&self) -> Vec<Sample> {
        let of = |(conv, [x, weight, dy]): (_, [Operand; 3])| {
            let kernel = sides(*weight.seen.shape());
            Sample::new(Self { conv, kernel }, [x, dy])
        };
        all().map(of).collect()
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        let (conv, [x, weight, dy]) = drawn(draw);
        let kernel = sides(*weight.seen.shape());
        Sample::new(Self { conv, kernel }, [x, dy])
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        let (conv, [x, weight, dy]) = absurd(draw);
        let kernel = sides(*weight.shape());
        (Self { conv, kernel }.into(), vec![x, dy])
    }
}

/// Number of windows along height and along width, at least one along each.
fn windows(conv: Conv2d, input: [usize; 2], kernel: [usize; 2]) -> [usize; 2] {
    [0, 1].map(|i| {
        (input[i] + 2 * conv.padding[i] - span(kernel[i], conv.dilation[i])) / conv.stride[i] + 1
    })
}

/// Fixed samples: few and many images, large and odd kernels, strides and paddings, and tensors
/// without elements.
fn all() -> impl Iterator<Item = (Conv2d, [Operand; 3])> {
    [
        ([1, 1, 1, 1], [1, 1, 1], [1, 1], [0, 0]),
        ([8, 16, 32, 32], [16, 3, 3], [1, 1], [1, 1]),
        ([10, 9, 33, 31], [12, 3, 3], [1, 1], [1, 1]),
        ([8, 16, 31, 33], [17, 3, 3], [2, 2], [1, 1]),
        ([3, 3, 65, 64], [13, 7, 7], [2, 2], [3, 3]),
        ([2, 3, 128, 128], [24, 16, 16], [16, 16], [0, 0]),
        // A convolution whose input gradient has one phase for each kernel element.
        ([2, 2, 128, 128], [3, 64, 64], [64, 64], [0, 0]),
        ([300, 5, 6, 4], [3, 1, 1], [1, 1], [0, 0]),
        ([40, 40, 9, 9], [40, 1, 1], [2, 2], [0, 0]),
        ([1, 2, 1, 20_001], [2, 1, 5], [1, 1], [0, 2]),
        ([1, 2, 20_001, 1], [2, 5, 1], [3, 1], [2, 0]),
        ([2, 1, 3, 3], [1, 9, 9], [1, 1], [8, 8]),
        ([2, 2, 5, 5], [2, 3, 3], [1000, 999], [500, 499]),
        ([0, 3, 8, 8], [4, 3, 3], [1, 1], [1, 1]),
        ([2, 0, 8, 8], [4, 3, 3], [1, 1], [1, 1]),
        ([2, 3, 8, 8], [0, 3, 3], [1, 1], [1, 1]),
        ([2, 3, 0, 8], [4, 3, 3], [1, 1], [2, 1]),
    ]
    .into_iter()
    .map(|(x, weight, stride, padding)| (x, weight, Conv2d::new(stride, padding)))
    .chain(dilated_or_in_groups())
    .map(|([n, c, h, w], [o, kh, kw], conv)| {
        let [rows, columns] = windows(conv, [h, w], [kh, kw]);
        let weight = [o, c / conv.groups, kh, kw];
        (conv, [[n, c, h, w], weight, [n, o, rows, columns]].map(|shape| floats(&shape)))
    })
}

/// Sizes `[n, c, h, w]` of the images, sizes `[o, kh, kw]` of the weight without its input
/// channels, and the convolution.
type Sizes = ([usize; 4], [usize; 3], Conv2d);

fn dilated_or_in_groups() -> [Sizes; 9] {
    let plain = Conv2d::new([1, 1], [1, 1]);
    let apart = |dilation| Conv2d { dilation, ..Conv2d::new([1, 1], [2, 2]) };
    let groups = |groups| Conv2d { groups, ..plain };
    [
        ([3, 8, 33, 31], [12, 3, 3], apart([2, 2])),
        ([2, 3, 40, 17], [5, 3, 2], apart([7, 3])),
        ([2, 4, 19, 20], [6, 3, 3], Conv2d { stride: [2, 3], ..apart([3, 2]) }),
        ([4, 24, 17, 16], [24, 3, 3], groups(24)),
        ([3, 6, 9, 10], [18, 3, 3], Conv2d { stride: [2, 2], ..groups(6) }),
        ([5, 12, 7, 7], [8, 1, 1], Conv2d { padding: [0, 0], ..groups(4) }),
        ([2, 6, 21, 20], [4, 3, 3], Conv2d { dilation: [2, 2], ..groups(2) }),
        ([2, 0, 8, 8], [6, 3, 3], groups(3)),
        ([2, 6, 8, 8], [0, 3, 3], groups(3)),
    ]
}

/// Draws a convolution, and `x`, the weight and `y`.
fn drawn(draw: &mut Draw) -> (Conv2d, [Operand; 3]) {
    let [n, c, o, h, w] = draw.sizes();
    let [kernel, stride] = [(); 2].map(|()| [1 + draw.below(3), 1 + draw.below(3)]);
    let dilation = [(); 2].map(|()| [1, 1, 2, 3][draw.below(4)]);
    let groups = [1, 1, 2, 3][draw.below(4)];
    // Draw enough padding for at least one window.
    let padding = [0, 1].map(|i| span(kernel[i], dilation[i]).div_ceil(2) + draw.below(2));
    let conv = Conv2d { stride, padding, dilation, groups };
    let [rows, columns] = windows(conv, [h, w], kernel);
    let weight = [groups * o, c, kernel[0], kernel[1]];
    let shapes = [[n, groups * c, h, w], weight, [n, groups * o, rows, columns]];
    (conv, shapes.map(|shape| draw.packed(shape)))
}

/// Draws a convolution, and layouts whose sizes may overflow. If the convolution is not valid, `y`
/// has the layout of `x`.
fn absurd(draw: &mut Draw) -> (Conv2d, [Layout; 3]) {
    let [[n, c], [h, w], [kh, kw]] = [(); 3].map(|()| draw.absurd_pair());
    let [stride, padding] = [(); 2].map(|()| draw.absurd_pair());
    let plain = draw.flip();
    let dilation = if plain { [1, 1] } else { draw.absurd_pair() };
    let groups = if plain { 1 } else { draw.absurd_size() };
    let conv = Conv2d { stride, padding, dilation, groups };
    let shapes = [[n, c, h, w], [draw.absurd_size(), c.checked_div(groups).unwrap_or(c), kh, kw]];
    let [x, weight] = shapes.map(|shape| Layout::contiguous(FLOAT, shape));
    let y = match conv.infer(&[x, weight]) {
        Ok(Outputs::Fresh(made)) => made[0],
        _ => x,
    };
    (conv, [x, weight, y])
}
