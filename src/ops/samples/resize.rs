use super::{Draw, Sample, Sampled, floats};
use crate::layout::Layout;
use crate::ops::{FLOAT, Interpolation, Op, Resize};

impl Sampled for Resize {
    fn samples(&self) -> Vec<Sample> {
        let mut all = Vec::new();
        for sampling in EACH {
            for (shape, axis, size) in [
                (&[5, 7, 33][..], 1, 14),
                (&[5, 33, 7], 2, 3),
                (&[1], 0, 9),
                (&[9], 0, 1),
                (&[2, 0, 4], 2, 8),
                (&[40_001], 0, 100_000),
                (&[300, 100, 20], 1, 33),
                (&[3, 64, 40, 40], 2, 80),
                (&[3, 64, 40, 40], 3, 13),
            ] {
                for transposed in [false, true] {
                    let op = Self { axis, size, sampling, transposed };
                    all.push(Sample::new(op, [floats(shape)]));
                }
            }
        }
        all
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        let shape = draw.shape(1, 4);
        let axis = draw.below(shape.len());
        let op = Self {
            axis,
            size: 1 + draw.below(5),
            sampling: EACH[draw.below(EACH.len())],
            transposed: draw.flip(),
        };
        Sample::new(op, [draw.packed(shape.with(axis, shape[axis].max(1)))])
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        let x = Layout::contiguous(FLOAT, draw.absurd_dims());
        let (axis, size) = (draw.below(x.rank() + 1), draw.absurd_size());
        (Self { axis, size, ..*self }.into(), vec![x])
    }
}

/// All ways to resample.
const EACH: [Interpolation; 4] = [
    Interpolation::Nearest,
    Interpolation::Linear,
    Interpolation::LinearAlignCorners,
    Interpolation::Area,
];
