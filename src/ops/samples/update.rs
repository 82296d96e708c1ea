use super::{Draw, Operand, SHAPES, Sample, Sampled, floats};
use crate::layout::{Dims, Layout};
use crate::ops::{AdamW, FLOAT, Lion, Op, SgdMomentum};

impl Sampled for SgdMomentum {
    fn samples(&self) -> Vec<Sample> {
        let each = [*self, Self { nesterov: true, ..*self }];
        each.iter().flat_map(|op| sample_operands(1).map(|all| Sample::new(*op, all))).collect()
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        let op = Self { nesterov: draw.flip(), ..*self };
        Sample::new(op, draw_operands(1, draw))
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        let [lr, momentum, weight_decay] = [(); 3].map(|()| draw.absurd_number());
        let op = Self { lr, momentum, weight_decay, nesterov: draw.flip() };
        (op.into(), absurd_layouts(1, draw))
    }
}

impl Sampled for AdamW {
    fn samples(&self) -> Vec<Sample> {
        sample_operands(2).map(|all| Sample::new(*self, squares_positive(all))).collect()
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        let op = Self { step: 1 + draw.below(100) as u64, ..*self };
        Sample::new(op, squares_positive(draw_operands(2, draw)))
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        let [lr, beta1, beta2, eps, weight_decay] = [(); 5].map(|()| draw.absurd_number());
        let step = [0, 1, 2, u64::MAX][draw.below(4)];
        let op = Self { lr, beta1, beta2, eps, weight_decay, step };
        (op.into(), absurd_layouts(2, draw))
    }
}

impl Sampled for Lion {
    fn samples(&self) -> Vec<Sample> {
        sample_operands(1).map(|all| Sample::new(*self, all)).collect()
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        Sample::new(*self, draw_operands(1, draw))
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        let [lr, beta1, beta2, weight_decay] = [(); 4].map(|()| draw.absurd_number());
        (Self { lr, beta1, beta2, weight_decay }.into(), absurd_layouts(1, draw))
    }
}

/// Makes the second state of each tensor positive, because the second state of AdamW is an average
/// of squares.
fn squares_positive(mut all: Vec<Operand>) -> Vec<Operand> {
    let written = all.len() / 4 * 3;
    for square in all[..written].iter_mut().skip(2).step_by(3) {
        *square = square.clone().positive();
    }
    all
}

/// Shapes of several tensors that are updated at once.
const MANY: [&[&[usize]]; 2] =
    [&[&[3, 5], &[], &[0], &[40_001], &[1]], &[&[2usize, 3] as &[usize]; 70]];

/// Operands for updates of one tensor of each shape, and of several tensors at once.
fn sample_operands(states: usize) -> impl Iterator<Item = Vec<Operand>> {
    let one = SHAPES.iter().map(|shape| vec![*shape]);
    let all = one.chain(MANY.iter().map(|shapes| shapes.to_vec()));
    all.map(move |shapes| {
        let written = shapes.iter().flat_map(|shape| vec![floats(shape); states + 1]);
        written.chain(shapes.iter().map(|shape| floats(shape))).collect()
    })
}

/// Draws operands for an update of one to three tensors.
fn draw_operands(states: usize, draw: &mut Draw) -> Vec<Operand> {
    let shapes: Vec<Dims> = (0..=draw.below(3)).map(|_| draw.shape(0, 4)).collect();
    let mut operands = Vec::new();
    for shape in &shapes {
        operands.extend((0..=states).map(|_| draw.packed(*shape)));
    }
    operands.extend(shapes.iter().map(|shape| draw.packed(*shape)));
    operands
}

/// Draws layouts for an update of one tensor, whose sizes may overflow.
fn absurd_layouts(states: usize, draw: &mut Draw) -> Vec<Layout> {
    vec![Layout::contiguous(FLOAT, draw.absurd_dims()); states + 2]
}
