use super::{Draw, Operand, Sample, Sampled, floats};
use crate::layout::{Dims, Layout};
use crate::ops::{BatchNorm, BatchNormGrad, BatchNormInfer, FLOAT, Op};

impl Sampled for BatchNorm {
    fn samples(&self) -> Vec<Sample> {
        // A channel needs at least two elements to have a standard deviation.
        let each = |shape: &[usize]| shape.iter().product::<usize>().checked_div(shape[1]);
        let fit = SHAPES.iter().filter(|shape| each(shape).is_none_or(|each| each > 1));
        fit.map(|shape| Sample::new(*self, operands(shape))).collect()
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        let mut shape = draw.shape(2, 4);
        match shape.elements() {
            0 => shape = shape.with(1, 0),
            elements if elements == shape[1] => shape = shape.with(0, 2),
            _ => {}
        }
        let op = Self { momentum: [0.0, 0.1, 1.0][draw.below(3)], eps: draw_eps(draw) };
        Sample::new(op, draw_operands(draw, shape))
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        let [x, c] = absurd(draw);
        let op = Self { momentum: draw.absurd_number(), eps: draw.absurd_number() };
        (op.into(), vec![x, c, c, c, c])
    }
}

impl Sampled for BatchNormInfer {
    fn samples(&self) -> Vec<Sample> {
        SHAPES.iter().map(|shape| Sample::new(*self, operands(shape))).collect()
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        let (op, shape) = (Self { eps: draw_eps(draw) }, draw.shape(2, 4));
        Sample::new(op, draw_operands(draw, shape))
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        let [x, c] = absurd(draw);
        (Self { eps: draw.absurd_number() }.into(), vec![x, c, c, c, c])
    }
}

impl Sampled for BatchNormGrad {
    fn samples(&self) -> Vec<Sample> {
        SHAPES
            .iter()
            .map(|shape| Sample::new(*self, with_dy(operands(shape), floats(shape))))
            .collect()
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        let shape = draw.shape(2, 4);
        let operands = draw_operands(draw, shape);
        Sample::new(*self, with_dy(operands, draw.packed(shape)))
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        let [x, c] = absurd(draw);
        (Self.into(), vec![x, c, c, c, x])
    }
}

/// Operands of [`BatchNormGrad`], from the operands of [`BatchNorm`]. The running variance serves
/// as `inv_std`, which must be positive, too.
fn with_dy([x, gamma, _, mean, inv_std]: [Operand; 5], dy: Operand) -> [Operand; 5] {
    [x, gamma, mean, inv_std, dy]
}

/// Shapes of the fixed samples, with few and many channels. In some shapes, the elements of a
/// channel are contiguous, in others they are not.
const SHAPES: [&[usize]; 18] = [
    &[2, 3],
    &[1, 1, 1],
    &[2048, 512],
    &[64, 16_384],
    &[2, 400_001],
    &[400_001, 2],
    &[30_001, 33],
    &[501, 4095],
    &[3, 100_001, 3],
    &[300, 50, 7, 9],
    &[64, 64, 2, 2],
    &[2000, 5, 3, 3],
    &[8, 16, 65, 63],
    &[1, 50_001, 16],
    &[1, 50_001, 4, 5],
    &[2, 3, 401, 403],
    &[2, 0, 4],
    &[0, 100_001, 4],
];

/// `x`, `gamma`, `beta`, `running_mean` and `running_var`.
fn operands(shape: &[usize]) -> [Operand; 5] {
    let c = &shape[1..2];
    [floats(shape), floats(c), floats(c), floats(c), floats(c).positive()]
}

/// Draws contiguous operands of a batch norm on `x`, where `x` has the shape `shape`. Some operands
/// have an offset.
fn draw_operands(draw: &mut Draw, shape: Dims) -> [Operand; 5] {
    let c = [shape[1]];
    let [gamma, beta, mean] = [(); 3].map(|()| draw.packed(c));
    [draw.packed(shape), gamma, beta, mean, draw.packed(c).positive()]
}

/// Draws an epsilon that is so large that it changes results and keeps divisors away from 0.
fn draw_eps(draw: &mut Draw) -> f32 {
    [0.25, 1.0, 4.0][draw.below(3)]
}

/// Draws layouts of `x`, whose sizes may overflow, and of a vector for its channels.
fn absurd(draw: &mut Draw) -> [Layout; 2] {
    let shape = draw.absurd_dims();
    let c = Dims::new(&shape[shape.len().min(1)..shape.len().min(2)]);
    [Layout::contiguous(FLOAT, shape), Layout::contiguous(FLOAT, c)]
}
