use super::{Draw, SHAPES, Sample, Sampled, arranged, floats};
use crate::layout::{Dims, Layout};
use crate::ops::{Concat, Contiguous, FLOAT, Fill, Flip, Op, Pad};

impl Sampled for Contiguous {
    fn samples(&self) -> Vec<Sample> {
        let mut all: Vec<_> = SHAPES.iter().flat_map(|shape| arranged(shape)).collect();
        all.push(floats(&[10, 9, 33, 31]).view(|x| x.permute(&[0, 2, 3, 1])));
        all.into_iter().map(|x| Sample::new(*self, [x])).collect()
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        let shape = draw.shape(0, 4);
        Sample::new(*self, [draw.arranged(&shape)])
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        ((*self).into(), vec![draw.absurd_layout()])
    }
}

impl Sampled for Pad {
    fn samples(&self) -> Vec<Sample> {
        let mut all = Vec::new();
        for shape in SHAPES {
            let padded = |axis| Sample::new(Self { axis, before: 1, after: 2 }, [floats(shape)]);
            all.extend((0..shape.len()).map(padded));
        }
        all
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        let shape = draw.shape(1, 4);
        let (axis, before, after) = (draw.below(shape.len()), draw.size(), draw.size());
        Sample::new(Self { axis, before, after }, [draw.packed(shape)])
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        let x = Layout::contiguous(FLOAT, draw.absurd_dims());
        let axis = draw.below(x.rank() + 1);
        let [before, after] = draw.absurd_pair();
        (Self { axis, before, after }.into(), vec![x])
    }
}

impl Sampled for Concat {
    fn samples(&self) -> Vec<Sample> {
        let mut all = Vec::new();
        for shape in SHAPES {
            let three = |axis| Sample::new(Self { axis }, vec![floats(shape); 3]);
            all.extend((0..shape.len()).map(three));
        }
        let parts: Vec<_> = (0..100).map(|i| floats(&[1000, i % 7])).collect();
        all.push(Sample::new(Self { axis: 1 }, parts));
        all
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        let shape = draw.shape(1, 4);
        let axis = draw.below(shape.len());
        let parts: Vec<_> = (0..1 + draw.below(4))
            .map(|_| {
                let size = draw.size();
                draw.packed(shape.with(axis, size))
            })
            .collect();
        Sample::new(Self { axis }, parts)
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        let shape = draw.absurd_dims();
        let (axis, size) = (draw.below(shape.len() + 1), draw.absurd_size());
        let other = if axis < shape.len() { shape.with(axis, size) } else { shape };
        let [x, other] = [shape, other].map(|shape| Layout::contiguous(FLOAT, shape));
        (Self { axis }.into(), vec![x, other, x, other])
    }
}

impl Sampled for Flip {
    fn samples(&self) -> Vec<Sample> {
        let mut all = Vec::new();
        for shape in SHAPES {
            let flipped = |axis| Sample::new(Self { axis }, [floats(shape)]);
            all.extend((0..shape.len()).map(flipped));
        }
        all
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        let shape = draw.shape(1, 4);
        Sample::new(Self { axis: draw.below(shape.len()) }, [draw.packed(shape)])
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        let x = Layout::contiguous(FLOAT, draw.absurd_dims());
        (Self { axis: draw.below(x.rank() + 1) }.into(), vec![x])
    }
}

impl Sampled for Fill {
    fn samples(&self) -> Vec<Sample> {
        let of = |shape: &&[usize]| Sample::new(Self { shape: Dims::new(shape), ..*self }, []);
        SHAPES.iter().map(of).collect()
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        Sample::new(Self { shape: draw.shape(0, 4), value: draw.float() }, [])
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        let op = Self { shape: draw.absurd_dims(), value: draw.absurd_number() };
        (op.into(), Vec::new())
    }
}
