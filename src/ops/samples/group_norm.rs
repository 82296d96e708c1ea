use super::{Draw, Operand, Sample, Sampled, floats};
use crate::layout::{Dims, Layout};
use crate::ops::{FLOAT, GroupNorm, GroupNormGrad, Op};

impl Sampled for GroupNorm {
    fn samples(&self) -> Vec<Sample> {
        let sample = |&(shape, groups): &(&[usize], usize)| {
            let [x, gamma, ..] = operands(Dims::new(shape), groups, |dims| floats(&dims));
            Sample::new(Self { groups, ..*self }, [x, gamma.clone(), gamma])
        };
        SHAPES.iter().map(sample).collect()
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        let (mut shape, groups) = self::draw(draw);
        // A group must have elements to have a mean.
        if shape[0] > 0 {
            shape = Dims::from_fn(shape.len(), |axis| {
                shape[axis].max([1, groups][usize::from(axis == 1)])
            });
        }
        // The epsilon is large enough to change results and to keep divisors away from 0.
        let eps = [0.25, 1.0, 4.0][draw.below(3)];
        let [x, gamma, ..] = operands(shape, groups, |dims| draw.packed(dims));
        Sample::new(Self { groups, eps }, [x, gamma, draw.packed([shape[1]])])
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        let (groups, [x, channels, _]) = absurd(draw);
        (Self { groups, eps: draw.absurd_number() }.into(), vec![x, channels, channels])
    }
}

impl Sampled for GroupNormGrad {
    fn samples(&self) -> Vec<Sample> {
        let shapes = SHAPES.iter().copied().chain([(&[5, 2, 0][..], 2), (&[5, 0], 2)]);
        let sample = |(shape, groups): (&[usize], usize)| {
            Sample::new(Self { groups }, operands(Dims::new(shape), groups, |dims| floats(&dims)))
        };
        shapes.map(sample).collect()
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        let (shape, groups) = self::draw(draw);
        Sample::new(Self { groups }, operands(shape, groups, |dims| draw.packed(dims)))
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        let (groups, [x, channels, rows]) = absurd(draw);
        (Self { groups }.into(), vec![x, channels, rows, rows, x])
    }
}

/// Shapes of the fixed samples, and the number of groups of each shape.
///
/// The shapes have few and many channels, short and long channels, and no images.
const SHAPES: [(&[usize], usize); 12] = [
    (&[1, 1], 1),
    (&[5, 12], 3),
    (&[300, 1000], 10),
    (&[2, 6, 7], 2),
    (&[3, 32, 28, 28], 8),
    (&[3, 6, 5, 4, 3], 6),
    (&[2, 8, 40_000], 2),
    (&[2, 3, 100_001], 1),
    (&[100, 512, 4], 32),
    (&[0, 4, 3], 2),
    (&[0, 4, 0], 2),
    (&[40_001, 2, 3], 1),
];

/// Draws a shape and a number of groups that divides the channels.
fn draw(draw: &mut Draw) -> (Dims, usize) {
    let mut shape = draw.shape(2, 4);
    let groups = 1 + draw.below(2);
    let most = if draw.flip() { 1 } else { 2 };
    shape = shape.with(1, groups * shape[1].min(most));
    (shape, groups)
}

/// `x`, `gamma`, `mean`, `inv_std` and `dy`. `make` makes each operand from its shape.
fn operands(shape: Dims, groups: usize, mut make: impl FnMut(Dims) -> Operand) -> [Operand; 5] {
    let (channels, rows) = (Dims::new(&[shape[1]]), Dims::new(&[shape[0], groups]));
    let [x, gamma, mean, inv_std, dy] = [shape, channels, rows, rows, shape].map(&mut make);
    [x, gamma, mean, inv_std.positive(), dy]
}

/// Draws a number of groups, and layouts of `x`, of a vector for its channels, and of a statistic
/// for each group. Sizes may overflow.
fn absurd(draw: &mut Draw) -> (usize, [Layout; 3]) {
    let (shape, groups) = (draw.absurd_dims(), [1, 2, draw.absurd_size()][draw.below(3)]);
    let channels = shape.get(1).copied().unwrap_or(1);
    let n = shape.first().copied().unwrap_or(1);
    let all = [shape, Dims::new(&[channels]), Dims::new(&[n, groups])];
    (groups, all.map(|dims| Layout::contiguous(FLOAT, dims)))
}
