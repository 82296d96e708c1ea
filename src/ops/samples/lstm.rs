use super::{Draw, Operand, Sample, Sampled, floats, inside, repeated, turned};
use crate::layout::{Dims, Layout};
use crate::ops::{FLOAT, LstmSteps, LstmStepsGrad, Op};

impl Sampled for LstmSteps {
    fn samples(&self) -> Vec<Sample> {
        let sample = |given: Given| {
            let [h0, c0] = given.memory;
            let inputs: [Operand; 5] = [given.gates, given.weight, given.bias, h0, c0];
            Sample::new(*self, inputs)
        };
        samples().map(sample).collect()
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        let [n, t, h] = draw.sizes();
        let sums = draw.packed([n, t, 4 * h]);
        let weight = draw.arranged(&[4 * h, h].into());
        let bias = draw.packed([4 * h]);
        let [h0, c0] = [(); 2].map(|()| draw.arranged(&[n, h].into()));
        Sample::new(*self, [sums, weight, bias, h0, c0])
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        let [sums, weight, memory, _] = absurd(draw);
        let bias = Layout::contiguous(FLOAT, [weight.shape()[0]]);
        ((*self).into(), vec![sums, weight, bias, memory, memory])
    }
}

impl Sampled for LstmStepsGrad {
    fn samples(&self) -> Vec<Sample> {
        let sample = |given: Given| {
            let ([c, dy], [a, b]) = (given.units, given.memory);
            Sample::new(*self, [given.gates, c, a.clone(), given.weight, dy, b, a])
        };
        samples().map(sample).collect()
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        let [n, t, h] = draw.sizes();
        let (gates, c) = (draw.packed([n, t, 4 * h]), draw.packed([n, t, h]));
        let [c0, dh_last, dc_last] = [(); 3].map(|()| draw.arranged(&[n, h].into()));
        let weight = draw.arranged(&[4 * h, h].into());
        let dy = draw.arranged(&[n, t, h].into());
        Sample::new(*self, [gates, c, c0, weight, dy, dh_last, dc_last])
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        let [gates, weight, memory, units] = absurd(draw);
        ((*self).into(), vec![gates, units, memory, weight, units, memory, memory])
    }
}

/// Operands of a sample.
struct Given {
    /// Values of all gates; packed, like `bias`.
    gates: Operand,
    weight: Operand,
    bias: Operand,
    /// Two tensors with one float for each unit: states, or gradients of states.
    memory: [Operand; 2],
    /// Two tensors with one float for each unit of each step. The first tensor is packed, and the
    /// second is not.
    units: [Operand; 2],
}

/// Operands of the fixed samples. Sizes lie near the sizes of the kernels' blocks, or are 0.
fn samples() -> impl Iterator<Item = Given> {
    let sizes = [
        [1, 1, 1],
        [2, 3, 4],
        [3, 5, 17],
        [5, 2, 48],
        [16, 3, 33],
        [33, 2, 20],
        [150, 2, 12],
        [70, 1, 64],
        [19, 4, 130],
        [0, 3, 4],
        [3, 0, 4],
        [3, 4, 0],
    ];
    sizes.into_iter().enumerate().map(|(i, [n, t, h])| {
        let (memory, units) = ([n, h], [n, t, h]);
        Given {
            gates: floats(&[n, t, 4 * h]),
            weight: if i % 3 == 1 { turned(&[4 * h, h]) } else { floats(&[4 * h, h]) },
            bias: floats(&[4 * h]),
            memory: match i % 3 {
                0 => [floats(&memory), repeated(&[1, 1], &memory)],
                1 => [inside(&memory), turned(&memory)],
                _ => [repeated(&[h], &memory), floats(&memory)],
            },
            units: [
                floats(&units),
                if i % 2 == 0 {
                    inside(&units)
                } else {
                    floats(&[t, n, h]).view(|x| x.permute(&[1, 0, 2]))
                },
            ],
        }
    })
}

/// Draws layouts of the gates, the weight, a step's state, and units. Sizes may overflow.
fn absurd(draw: &mut Draw) -> [Layout; 4] {
    let ([n, t], h) = (draw.absurd_pair(), draw.absurd_size());
    let gates = h.wrapping_mul(4);
    let layout = |shape: &[usize]| Layout::contiguous(FLOAT, Dims::new(shape));
    [layout(&[n, t, gates]), layout(&[gates, h]), layout(&[n, h]), layout(&[n, t, h])]
}
