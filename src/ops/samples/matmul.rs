use super::{Draw, Operand, Sample, Sampled, floats, inside, repeated, turned};
use crate::layout::{Dims, Layout, MAX_RANK};
use crate::ops::{FLOAT, MatMul, Op};

impl Sampled for MatMul {
    fn samples(&self) -> Vec<Sample> {
        let of = |a: &Operand, b: &Operand| Sample::new(*self, [a.clone(), b.clone()]);
        let mut all = vec![
            of(&floats(&[300, 70]), &turned(&[70, 300])),
            of(&floats(&[3, 2, 90, 50]), &floats(&[2, 50, 80])),
        ];
        for ([m, k, n], batch, shared) in [
            ([1, 1, 1], 1, false),
            ([700, 800, 900], 1, false),
            ([1, 300_001, 1], 1, false),
            ([300_001, 1, 3], 1, false),
            ([3, 5, 200_001], 1, false),
            ([257, 64, 33], 40, false),
            ([2, 3, 2], 30_001, true),
            ([0, 3, 4], 5, false),
            ([3, 0, 4], 5, true),
            ([300, 0, 1001], 1, false),
            ([3, 4, 0], 5, false),
            ([3, 4, 5], 0, false),
        ] {
            let (a, b) = ([batch, m, k], [if shared { 1 } else { batch }, k, n]);
            for a in [floats(&a), turned(&a), inside(&a)] {
                all.extend([floats(&b), turned(&b)].map(|b| of(&a, &b)));
            }
            all.push(of(&repeated(&[1, k], &[m, k]), &repeated(&[k, 1], &[k, n])));
        }
        all
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        let [m, k, n] = draw.sizes();
        let lead = draw.shape(0, 3);
        let operands = [[m, k], [k, n]].map(|[rows, columns]| {
            let lead = *draw.part(&lead).seen.shape();
            draw.arranged(&stacked(&lead, rows, columns))
        });
        Sample::new(*self, operands)
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        let ([m, k], n, shape) = (draw.absurd_pair(), draw.absurd_size(), draw.absurd_dims());
        let a = stacked(&shape[..shape.len().min(MAX_RANK - 2)], m, k);
        let inputs = [a, stacked(&[], k, n)].map(|shape| Layout::contiguous(FLOAT, shape));
        ((*self).into(), inputs.into())
    }
}

/// Shape of a stack of matrices.
fn stacked(lead: &[usize], rows: usize, columns: usize) -> Dims {
    Dims::new(&[lead, &[rows, columns]].concat())
}
