use super::{Draw, Operand, Sample, Sampled, floats};
use crate::layout::{Dims, Layout};
use crate::ops::{FLOAT, LayerNorm, LayerNormGrad, Op, RmsNorm, RmsNormGrad};

impl Sampled for LayerNorm {
    fn samples(&self) -> Vec<Sample> {
        let sample = |shape: &&[usize]| {
            let [x, gamma, ..] = operands(shape);
            Sample::new(*self, [x, gamma.clone(), gamma])
        };
        SHAPES.iter().map(sample).collect()
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        let (shape, eps) = draw_rows(draw);
        let [x, gamma, ..] = draw_operands(draw, shape);
        Sample::new(Self { eps }, [x, gamma, draw.packed([shape[shape.len() - 1]])])
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        let [x, n, _] = absurd(draw);
        (Self { eps: draw.absurd_number() }.into(), vec![x, n, n])
    }
}

impl Sampled for LayerNormGrad {
    fn samples(&self) -> Vec<Sample> {
        let shapes = SHAPES.iter().copied().chain([&[5, 0][..]]);
        shapes.map(|shape| Sample::new(*self, operands(shape))).collect()
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        let shape = draw.shape(1, 4);
        Sample::new(*self, draw_operands(draw, shape))
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        let [x, n, rows] = absurd(draw);
        (Self.into(), vec![x, n, rows, rows, x])
    }
}

impl Sampled for RmsNorm {
    fn samples(&self) -> Vec<Sample> {
        let sample = |shape: &&[usize]| {
            let [x, gamma, ..] = operands(shape);
            Sample::new(*self, [x, gamma])
        };
        SHAPES.iter().map(sample).collect()
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        let (shape, eps) = draw_rows(draw);
        let [x, gamma, ..] = draw_operands(draw, shape);
        Sample::new(Self { eps }, [x, gamma])
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        let [x, n, _] = absurd(draw);
        (Self { eps: draw.absurd_number() }.into(), vec![x, n])
    }
}

impl Sampled for RmsNormGrad {
    fn samples(&self) -> Vec<Sample> {
        let shapes = SHAPES.iter().copied().chain([&[5, 0][..]]);
        let sample = |shape| {
            let [x, gamma, _, inv_rms, dy] = operands(shape);
            Sample::new(*self, [x, gamma, inv_rms, dy])
        };
        shapes.map(sample).collect()
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        let shape = draw.shape(1, 4);
        let [x, gamma, _, inv_rms, dy] = draw_operands(draw, shape);
        Sample::new(*self, [x, gamma, inv_rms, dy])
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        let [x, n, rows] = absurd(draw);
        (Self.into(), vec![x, n, rows, x])
    }
}

/// Shapes of the fixed samples: short and long rows, few and many rows, and no rows.
const SHAPES: [&[usize]; 17] = [
    &[1],
    &[7],
    &[200_003],
    &[1, 1],
    &[1, 1 << 20],
    &[3, 300_001],
    &[33, 20_000],
    &[90, 1000],
    &[1000, 1001],
    &[8, 128, 768],
    &[9000, 10],
    &[300_001, 3],
    &[1 << 19, 1],
    &[3, 5, 2, 7, 4, 6],
    &[0, 5],
    &[3, 0, 8],
    &[2, 0, 0],
];

/// Two shapes of operands for an `x` of shape `shape`: a vector with one element for each element
/// of a row, and a statistic of each row.
fn parts(shape: &[usize]) -> [Dims; 2] {
    let (rows, n) = shape.split_at(shape.len().saturating_sub(1));
    [Dims::new(n), Dims::new(rows)]
}

/// `x`, `gamma`, `mean`, `inv_std` and `dy`.
fn operands(shape: &[usize]) -> [Operand; 5] {
    let [n, rows] = parts(shape);
    [floats(shape), floats(&n), floats(&rows), floats(&rows).positive(), floats(shape)]
}

/// Draws contiguous operands of a normalization of `x`, where `x` has the shape `shape`. Some
/// operands have an offset.
fn draw_operands(draw: &mut Draw, shape: Dims) -> [Operand; 5] {
    let [n, rows] = parts(&shape);
    let [x, gamma, mean, inv_std, dy] = [shape, n, rows, rows, shape].map(|dims| draw.packed(dims));
    [x, gamma, mean, inv_std.positive(), dy]
}

/// Draws layouts of `x`, of a vector for the elements of a row, and of a statistic of each row.
/// Sizes may overflow.
fn absurd(draw: &mut Draw) -> [Layout; 3] {
    let shape = draw.absurd_dims();
    let [n, rows] = parts(&shape);
    [shape, n, rows].map(|dims| Layout::contiguous(FLOAT, dims))
}

/// Draws a shape whose rows have at least one element, and an epsilon.
fn draw_rows(draw: &mut Draw) -> (Dims, f32) {
    let mut shape = draw.shape(1, 4);
    let last = shape.len() - 1;
    // A row must have elements to have a mean.
    if !shape[..last].contains(&0) {
        shape = shape.with(last, shape[last].max(1));
    }
    // The epsilon is large enough to change results and to keep divisors away from 0.
    (shape, [0.25, 1.0, 4.0][draw.below(3)])
}
