use super::{Draw, Operand, SHAPES, Sample, Sampled, arranged, floats, turned};
use crate::layout::{Dims, Layout};
use crate::ops::{Accumulate, Affine, Binary, Clamp, FLOAT, LeakyRelu, Op, Powf, Unary, Where};
use std::convert::identity;

impl Sampled for Unary {
    fn samples(&self) -> Vec<Sample> {
        let large = [1023, 512];
        let mut all = vec![floats(&large), turned(&large)];
        if *self == Self::Relu {
            all.extend(SHAPES.iter().flat_map(|shape| arranged(shape)));
        }
        all.into_iter().map(|x| of_one(*self, x)).collect()
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        let shape = draw.shape(0, 4);
        of_one(*self, draw.arranged(&shape))
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        ((*self).into(), vec![draw.absurd_layout()])
    }
}

/// A sample of `function`, with an operand for which the result is not NaN.
fn of_one(function: Unary, x: Operand) -> Sample {
    match function {
        Unary::Log | Unary::Sqrt | Unary::Recip => Sample::new(function, [x.positive()]),
        _ => Sample::new(function, [x]),
    }
}

impl Sampled for Binary {
    fn samples(&self) -> Vec<Sample> {
        let large = [1023, 512];
        let mut all = vec![
            of_two(*self, floats(&large), floats(&large)),
            of_two(*self, turned(&large), floats(&[1])),
        ];
        if *self == Self::Add {
            for shape in SHAPES {
                for x in arranged(shape) {
                    all.push(Sample::new(*self, [x.clone(), floats(shape)]));
                    all.push(Sample::new(*self, [floats(&[]), x]));
                }
            }
        }
        all
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        let shape = draw.shape(0, 4);
        let [a, b] = [draw.part(&shape), draw.part(&shape)];
        of_two(*self, a, b)
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        let shape = draw.absurd_dims();
        let part = Dims::new(&shape[draw.below(shape.len() + 1)..]);
        let inputs = [shape, part].map(|shape| Layout::contiguous(FLOAT, shape));
        ((*self).into(), inputs.into())
    }
}

/// A sample of `function`, with operands for which the result is not NaN.
fn of_two(function: Binary, a: Operand, b: Operand) -> Sample {
    match function {
        Binary::Div => Sample::new(function, [a, b.positive()]),
        Binary::Pow => Sample::new(function, [a.positive(), b]),
        Binary::BinaryCrossEntropy => Sample::new(function, [a.shares(), b.shares()]),
        _ => Sample::new(function, [a, b]),
    }
}

/// Samples of ops with numbers as attributes.
///
/// A row has the op with its numbers, the ranges from which the numbers are drawn, and the
/// restriction of operands that avoids NaN results.
macro_rules! with_numbers {
    ($($Function:ident { $($field:ident),* }: |$draw:ident| [$($drawn:expr),*], $ranged:expr;)*) => {$(
        impl Sampled for $Function {
            fn samples(&self) -> Vec<Sample> {
                let all = SHAPES.iter().flat_map(|shape| arranged(shape));
                all.map(|x| Sample::new(*self, [$ranged(x)])).collect()
            }

            fn draw(&self, $draw: &mut Draw) -> Sample {
                let shape = $draw.shape(0, 4);
                let [$($field),*] = [$($drawn),*];
                Sample::new(Self { $($field),* }, [$ranged($draw.arranged(&shape))])
            }

            fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
                let op = Self { $($field: draw.absurd_number()),* };
                (op.into(), vec![draw.absurd_layout()])
            }
        }
    )*};
}

with_numbers! {
    Affine { scale, shift }: |draw| [draw.float(), draw.float()], identity;
    Clamp { min, max }: |draw| [[-1e30, 0.0][draw.below(2)], [0.0, 1e30][draw.below(2)]],
        identity;
    LeakyRelu { slope }: |draw| [draw.float()], identity;
    Powf { exponent }: |draw| [[2.0, 3.0, 0.5, -1.5, 0.0, 1.0][draw.below(6)]], Operand::positive;
}

impl Sampled for Accumulate {
    fn samples(&self) -> Vec<Sample> {
        let of = |shape: &[usize]| {
            arranged(shape).into_iter().map(|x| (shape.to_vec(), x)).collect::<Vec<_>>()
        };
        let all = SHAPES.iter().flat_map(|shape| of(shape));
        all.map(|(shape, x)| Sample::new(*self, [floats(&shape), x])).collect()
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        let shape = draw.shape(0, 4);
        let acc = draw.packed(shape);
        Sample::new(*self, [acc, draw.arranged(&shape)])
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        let x = Layout::contiguous(FLOAT, draw.absurd_dims());
        ((*self).into(), vec![x, x])
    }
}

impl Sampled for Where {
    fn samples(&self) -> Vec<Sample> {
        let mut all = Vec::new();
        for shape in SHAPES {
            for x in arranged(shape) {
                all.push(Sample::new(*self, [floats(shape), x.clone(), floats(shape)]));
                all.push(Sample::new(*self, [x, floats(&[]), floats(shape)]));
            }
        }
        all
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        let shape = draw.shape(0, 4);
        Sample::new(*self, [draw.part(&shape), draw.part(&shape), draw.part(&shape)])
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        let shape = draw.absurd_dims();
        let part = Dims::new(&shape[draw.below(shape.len() + 1)..]);
        let inputs = [part, shape, part].map(|shape| Layout::contiguous(FLOAT, shape));
        ((*self).into(), inputs.into())
    }
}
