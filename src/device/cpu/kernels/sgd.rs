//! Parameter updates.

use super::split::{PIECE, pieces_of_two};
use super::wide::widest;

/// Numbers of a step.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Learning rate.
    pub lr: f32,
    /// How much of the velocity is kept.
    pub momentum: f32,
    /// L2 penalty.
    pub weight_decay: f32,
}

/// `v = momentum * v + grad + weight_decay * p; p -= lr * v`, in one pass.
pub fn momentum(param: &mut [f32], velocity: &mut [f32], grad: &[f32], step: Step) {
    let work = param.len();
    pieces_of_two((param, PIECE), (velocity, PIECE), work, |i, param, velocity| {
        let grad = &grad[i * PIECE..][..param.len()];
        widest(
            #[inline(always)]
            || {
                for ((p, v), g) in param.iter_mut().zip(velocity).zip(grad) {
                    *v = step.momentum * *v + g + step.weight_decay * *p;
                    *p -= step.lr * *v;
                }
            },
        );
    });
}
