use super::{Draw, SHAPES, Sample, Sampled, floats};
use crate::layout::Layout;
use crate::ops::{CumSum, FLOAT, Op};

impl Sampled for CumSum {
    fn samples(&self) -> Vec<Sample> {
        let mut all = Vec::new();
        for (i, shape) in SHAPES.iter().enumerate() {
            for axis in 0..shape.len() {
                let op = Self { axis, reverse: (axis + i).is_multiple_of(2) };
                all.push(Sample::new(op, [floats(shape)]));
            }
        }
        all
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        let shape = draw.shape(1, 4);
        let op = Self { axis: draw.below(shape.len()), reverse: draw.flip() };
        Sample::new(op, [draw.packed(shape)])
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        let x = Layout::contiguous(FLOAT, draw.absurd_dims());
        (Self { axis: draw.below(x.rank() + 1), reverse: draw.flip() }.into(), vec![x])
    }
}
