use super::{Draw, Sample, Sampled, floats};
use crate::layout::{Dims, Layout};
use crate::ops::{Broadcast, FLOAT, Op, Permute, Reshape, Slice, Split};

impl Sampled for Reshape {
    fn samples(&self) -> Vec<Sample> {
        vec![Sample::new(Self { shape: Dims::new(&[24]) }, [floats(&[4, 6])])]
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        let from = draw.shape(0, 4);
        let shape = if draw.flip() { Dims::new(&[from.elements()]) } else { reversed(&from) };
        Sample::new(Self { shape }, [draw.packed(from)])
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        let shape = draw.absurd_dims();
        let x = Layout::contiguous(FLOAT, shape);
        (Self { shape: reversed(&shape) }.into(), vec![x])
    }
}

impl Sampled for Permute {
    fn samples(&self) -> Vec<Sample> {
        vec![Sample::new(Self { axes: Dims::new(&[1, 0]) }, [floats(&[4, 6])])]
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        let shape = draw.shape(0, 4);
        let axes = Dims::new(&draw.axes(shape.len()));
        Sample::new(Self { axes }, [draw.arranged(&shape)])
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        let x = Layout::contiguous(FLOAT, draw.absurd_dims());
        let axes: Vec<usize> = (0..x.rank()).rev().collect();
        (Self { axes: Dims::new(&axes) }.into(), vec![x])
    }
}

impl Sampled for Slice {
    fn samples(&self) -> Vec<Sample> {
        let x = || floats(&[4, 6]);
        let of = |(axis, start, len)| Sample::new(Self { axis, start, len }, [x()]);
        [(0, 1, 2), (1, 6, 0), (1, 0, 6)].map(of).into()
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        let shape = draw.shape(1, 4);
        let axis = draw.below(shape.len());
        let size = shape[axis];
        let start = draw.below(size.max(1));
        let len = if size == 0 { 0 } else { 1 + draw.below(size - start) };
        Sample::new(Self { axis, start, len }, [draw.arranged(&shape)])
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        let x = draw.absurd_layout();
        let axis = draw.below(x.rank() + 1);
        let [start, len] = draw.absurd_pair();
        (Self { axis, start, len }.into(), vec![x])
    }
}

impl Sampled for Split {
    fn samples(&self) -> Vec<Sample> {
        let of = |(axis, size)| Sample::new(Self { axis, size }, [floats(&[4, 6])]);
        let mut all: Vec<Sample> = [(0, 1), (0, 4), (1, 4), (1, 100)].map(of).into();
        all.push(Sample::new(Self { axis: 1, size: 3 }, [floats(&[2, 0, 5])]));
        all
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        let shape = draw.shape(1, 4);
        let axis = draw.below(shape.len());
        let size = 1 + draw.below(3);
        Sample::new(Self { axis, size }, [draw.arranged(&shape)])
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        let x = draw.absurd_layout();
        let axis = draw.below(x.rank() + 1);
        (Self { axis, size: draw.absurd_size() }.into(), vec![x])
    }
}

impl Sampled for Broadcast {
    fn samples(&self) -> Vec<Sample> {
        vec![Sample::new(Self { shape: Dims::new(&[3, 4, 6]) }, [floats(&[4, 6])])]
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        let shape = draw.shape(0, 4);
        Sample::new(Self { shape }, [draw.part(&shape)])
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        let shape = draw.absurd_dims();
        let part = Dims::new(&shape[draw.below(shape.len() + 1)..]);
        (Self { shape }.into(), vec![Layout::contiguous(FLOAT, part)])
    }
}

fn reversed(shape: &[usize]) -> Dims {
    Dims::from_fn(shape.len(), |axis| shape[shape.len() - 1 - axis])
}
