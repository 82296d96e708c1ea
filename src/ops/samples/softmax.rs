use super::{Draw, Sample, Sampled, floats};
use crate::layout::Layout;
use crate::ops::{FLOAT, LogSoftmax, LogSoftmaxGrad, Op, Softmax, SoftmaxGrad};

impl Sampled for Softmax {
    fn samples(&self) -> Vec<Sample> {
        samples(*self, 1)
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        drawn(*self, 1, draw)
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        absurd(*self, 1, draw)
    }
}

impl Sampled for SoftmaxGrad {
    fn samples(&self) -> Vec<Sample> {
        samples(*self, 2)
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        drawn(*self, 2, draw)
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        absurd(*self, 2, draw)
    }
}

impl Sampled for LogSoftmax {
    fn samples(&self) -> Vec<Sample> {
        samples(*self, 1)
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        drawn(*self, 1, draw)
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        absurd(*self, 1, draw)
    }
}

impl Sampled for LogSoftmaxGrad {
    fn samples(&self) -> Vec<Sample> {
        samples(*self, 2)
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        drawn(*self, 2, draw)
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        absurd(*self, 2, draw)
    }
}

/// Numbers of rows and of elements of a row: few and many, short and long.
pub(super) const ROWS: [[usize; 2]; 10] = [
    [1, 1],
    [1000, 1001],
    [3, 300_001],
    [300_001, 3],
    [1, 1 << 20],
    [1 << 19, 1],
    [0, 5],
    [5, 0],
    [9000, 10],
    [90, 1000],
];

/// Samples of an op that takes `operands` operands of one shape.
fn samples(op: impl Into<Op> + Copy, operands: usize) -> Vec<Sample> {
    ROWS.iter().map(|shape| Sample::new(op, vec![floats(shape); operands])).collect()
}

/// An op on operands of one random shape.
fn drawn(op: impl Into<Op>, operands: usize, draw: &mut Draw) -> Sample {
    let shape = draw.shape(1, 4);
    Sample::new(op, (0..operands).map(|_| draw.packed(shape)).collect::<Vec<_>>())
}

/// An op on operands of one absurd shape.
fn absurd(op: impl Into<Op>, operands: usize, draw: &mut Draw) -> (Op, Vec<Layout>) {
    (op.into(), vec![Layout::contiguous(FLOAT, draw.absurd_dims()); operands])
}
