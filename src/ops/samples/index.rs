use super::{Draw, SHAPES, Sample, Sampled, floats, ints};
use crate::layout::{DType, Dims, Layout};
use crate::ops::{FLOAT, Gather, OneHot, Op, ScatterAdd};

impl Sampled for Gather {
    fn samples(&self) -> Vec<Sample> {
        let of = |(shape, axis, n): (&[usize], usize, usize)| {
            Sample::new(Self { axis }, [floats(shape), ints(&[n], shape[axis])])
        };
        samples().into_iter().map(of).collect()
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        let (shape, axis, n) = self::draw(draw);
        Sample::new(Self { axis }, [draw.packed(shape), ints(&[n], shape[axis])])
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        let x = Layout::contiguous(FLOAT, draw.absurd_dims());
        let (axis, n) = (draw.below(x.rank() + 1), draw.absurd_size());
        (Self { axis }.into(), vec![x, Layout::contiguous(DType::I32, [n])])
    }
}

impl Sampled for ScatterAdd {
    fn samples(&self) -> Vec<Sample> {
        let of = |(shape, axis, n): (&[usize], usize, usize)| {
            let (size, taken) = (shape[axis], Dims::new(shape).with(axis, n));
            Sample::new(Self { axis, size }, [floats(&taken), ints(&[n], size)])
        };
        samples().into_iter().map(of).collect()
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        let (shape, axis, n) = self::draw(draw);
        let size = shape[axis];
        Sample::new(Self { axis, size }, [draw.packed(shape.with(axis, n)), ints(&[n], size)])
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        let shape = draw.absurd_dims();
        let (axis, [n, size]) = (draw.below(shape.len() + 1), draw.absurd_pair());
        let shape = if axis < shape.len() { shape.with(axis, n) } else { shape };
        let inputs = [Layout::contiguous(FLOAT, shape), Layout::contiguous(DType::I32, [n])];
        (Self { axis, size }.into(), inputs.into())
    }
}

impl Sampled for OneHot {
    fn samples(&self) -> Vec<Sample> {
        let small = SHAPES.into_iter().filter(|shape| shape.iter().product::<usize>() < 500_000);
        small.map(|shape| Sample::new(Self { classes: 5 }, [ints(shape, 5)])).collect()
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        let (shape, classes) = (draw.shape(0, 3), draw.size().max(1));
        Sample::new(Self { classes }, [ints(&shape, classes)])
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        let index = Layout::contiguous(DType::I32, draw.absurd_dims());
        (Self { classes: draw.absurd_size() }.into(), vec![index])
    }
}

/// For each fixed sample, a shape, an axis, and the length of the index. The length is 0 if the
/// axis has no entries.
fn samples() -> Vec<(&'static [usize], usize, usize)> {
    let mut all: Vec<(&'static [usize], usize, usize)> = vec![(&[700, 100], 0, 1000)];
    for shape in SHAPES {
        for (axis, &size) in shape.iter().enumerate() {
            let entry = Dims::new(shape).with(axis, 1).elements();
            let numbers = [0, 5, 5001].into_iter().filter(|&n| n == 0 || size > 0);
            all.extend(numbers.filter(|n| n * entry <= 2_000_000).map(|n| (shape, axis, n)));
        }
    }
    all
}

/// Draws a shape, an axis, and a length of the index. The length is 0 if the axis has no entries.
fn draw(draw: &mut Draw) -> (Dims, usize, usize) {
    let shape = draw.shape(1, 4);
    let axis = draw.below(shape.len());
    (shape, axis, if shape[axis] == 0 { 0 } else { draw.size() })
}
