use super::softmax::ROWS;
use super::{Draw, Operand, Sample, Sampled, floats, ints};
use crate::layout::{DType, Dims, Layout};
use crate::ops::{CrossEntropy, CrossEntropyGrad, FLOAT, Op};

impl Sampled for CrossEntropy {
    fn samples(&self) -> Vec<Sample> {
        samples(|logits, labels| Sample::new(*self, [logits, labels]))
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        let (logits, labels) = drawn(draw);
        let label_smoothing = [0.0, 0.25][draw.below(2)];
        Sample::new(Self { label_smoothing, ..*self }, [logits, labels])
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        let op = Self { label_smoothing: draw.absurd_number(), ..*self };
        (op.into(), absurd(draw).into())
    }
}

impl Sampled for CrossEntropyGrad {
    fn samples(&self) -> Vec<Sample> {
        samples(|log_probs, labels| Sample::new(*self, [log_probs, labels, floats(&[])]))
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        let (log_probs, labels) = drawn(draw);
        let label_smoothing = [0.0, 0.25][draw.below(2)];
        Sample::new(Self { label_smoothing, ..*self }, [log_probs, labels, draw.packed([])])
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        let [log_probs, labels] = absurd(draw);
        let dloss = Layout::contiguous(FLOAT, Dims::SCALAR);
        let op = Self { label_smoothing: draw.absurd_number(), ..*self };
        (op.into(), vec![log_probs, labels, dloss])
    }
}

/// Samples of logits and labels. Shapes without classes are left out, because no label would be
/// valid.
fn samples(sample: impl Fn(Operand, Operand) -> Sample) -> Vec<Sample> {
    let with_classes = ROWS.iter().filter(|[_, classes]| *classes > 0);
    with_classes.map(|&[n, classes]| sample(floats(&[n, classes]), ints(&[n], classes))).collect()
}

/// Draws logits and labels.
fn drawn(draw: &mut Draw) -> (Operand, Operand) {
    let classes = draw.size();
    let n = if classes == 0 { 0 } else { draw.size() };
    (draw.packed([n, classes]), ints(&[n], classes))
}

/// Draws layouts of logits and labels whose sizes may overflow.
fn absurd(draw: &mut Draw) -> [Layout; 2] {
    let [n, classes] = draw.absurd_pair();
    [Layout::contiguous(FLOAT, [n, classes]), Layout::contiguous(DType::I32, [n])]
}
