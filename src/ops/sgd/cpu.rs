//! Parameter updates.

use super::SgdMomentum;
use crate::device::cpu::split::{PIECE, pieces_of_two};
use crate::device::cpu::wide::widest;

/// `v = momentum * v + grad + weight_decay * p; p -= lr * v`, in one pass.
pub fn momentum(param: &mut [f32], velocity: &mut [f32], grad: &[f32], step: &SgdMomentum) {
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
