use super::{Draw, SHAPES, Sample, Sampled, arranged, floats, turned};
use crate::layout::{Dims, Layout};
use crate::ops::{ArgReduce, FLOAT, Op, Reduce, Reduction};

impl Sampled for Reduce {
    fn samples(&self) -> Vec<Sample> {
        let mut all = Vec::new();
        let mut add = |x, axes: &[usize], keep_dims| {
            all.push(Sample::new(Self { axes: Dims::new(axes), keep_dims, ..*self }, [x]));
        };
        let fits = |shape: &[usize], axes: &[usize]| {
            !self.kind.needs_elements() || axes.iter().all(|&axis| shape[axis] > 0)
        };
        for (i, shape) in SHAPES.into_iter().enumerate() {
            for axes in axes_of(shape.len()).iter().filter(|axes| fits(shape, axes)) {
                arranged(shape).into_iter().for_each(|x| add(x, axes, i % 2 == 0));
            }
        }
        for shape in [
            [4096, 1023],
            [1024, 4095],
            [300, 4097],
            [200_001, 9],
            [63, 70_001],
            [1, 1 << 21],
            [300_000, 1],
            [100_000, 3],
            [3, 100_000],
            [900, 600],
        ] {
            for axes in [&[0][..], &[1], &[0, 1]] {
                add(floats(&shape), axes, false);
                add(turned(&shape), axes, true);
            }
        }
        for axes in [&[0][..], &[1], &[3], &[0, 2, 3], &[0, 1, 2, 3]] {
            add(floats(&[10, 9, 33, 31]), axes, false);
        }
        all
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        let mut shape = draw.shape(0, 4);
        let mut axes = draw.axes(shape.len());
        axes.truncate(draw.below(shape.len() + 1));
        let op = Self { axes: Dims::new(&axes), keep_dims: draw.flip(), ..*self };
        let x = match self.kind {
            Reduction::Sum | Reduction::Mean => draw.arranged(&shape),
            // Draw at least one element. Repeat no element, because the gradient is not unique if
            // several elements are the largest or smallest.
            Reduction::Max | Reduction::Min => {
                axes.iter().for_each(|&axis| shape = shape.with(axis, shape[axis].max(1)));
                draw.packed(shape)
            }
        };
        Sample::new(op, [x])
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        let shape = draw.absurd_dims();
        let axes = match draw.below(4) {
            0 => draw.absurd_dims(),
            _ => Dims::new(&[draw.below(shape.len() + 1)]),
        };
        let op = Self { axes, keep_dims: draw.flip(), ..*self };
        let x = if draw.flip() { Layout::contiguous(FLOAT, shape) } else { draw.absurd_layout() };
        (op.into(), vec![x])
    }
}

impl Sampled for ArgReduce {
    fn samples(&self) -> Vec<Sample> {
        let mut all = Vec::new();
        for shape in SHAPES {
            for axis in (0..shape.len()).filter(|&axis| shape[axis] > 0) {
                all.push(Sample::new(Self { axis, ..*self }, [floats(shape)]));
            }
        }
        all
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        let shape = draw.shape(1, 4);
        let axis = draw.below(shape.len());
        let op = Self { axis, keep_dims: draw.flip(), ..*self };
        Sample::new(op, [draw.packed(shape.with(axis, shape[axis].max(1)))])
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        let x = Layout::contiguous(FLOAT, draw.absurd_dims());
        let axis = draw.below(x.rank() + 1);
        (Self { axis, keep_dims: draw.flip(), ..*self }.into(), vec![x])
    }
}

/// Sets of axes that are reduced in different ways.
fn axes_of(rank: usize) -> Vec<Vec<usize>> {
    let mut all = vec![(0..rank).collect(), vec![]];
    all.extend((0..rank).map(|axis| vec![axis]));
    if rank > 2 {
        all.push((0..rank).filter(|axis| axis % 2 == 0).collect());
    }
    all
}
