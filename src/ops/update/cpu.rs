//! Updates of parameters on the CPU. Each update makes one pass over its operands.

use super::{AdamW, Lion, SgdMomentum, adamw, lion};
use crate::device::cpu::Operands;
use crate::device::cpu::split::{PIECE, pieces, pieces_of};
use crate::device::cpu::wide::widest;

/// Work on one parameter: the slices to write (the parameter and its states), and the gradient of
/// the parameter.
type Task<'a, const N: usize> = ([&'a mut [f32]; N], &'a [f32]);

/// Calls `update` with pieces of the slices that are written for a parameter, and of the
/// parameter's gradient.
fn one_pass<const N: usize>(
    mut run: Operands<'_>,
    update: impl Fn([&mut [f32]; N], &[f32]) + Sync,
) {
    let tensors = run.inputs() / (N + 1);
    let mut tasks: Vec<Task<'_, N>> = (0..tensors)
        .map(|k| (std::array::from_fn(|i| run.write(k * N + i)), run.read::<f32>(tensors * N + k)))
        .collect();
    let work: usize = tasks.iter().map(|(_, grad)| grad.len()).sum();
    pieces(&mut tasks, 1, work, |_, task| {
        for (out, grad) in task {
            let out = out.each_mut().map(|out| &mut **out);
            pieces_of(out, PIECE, work, |first, parts| {
                let grad = &grad[first..][..parts[0].len()];
                widest(
                    #[inline(always)]
                    || update(parts, grad),
                );
            });
        }
    });
}

/// See [`SgdMomentum`].
pub fn sgd_momentum(run: Operands<'_>, by: &SgdMomentum) {
    let SgdMomentum { lr, momentum, weight_decay, nesterov } = *by;
    if nesterov {
        one_pass(
            run,
            #[inline(always)]
            |[param, velocity], grad| {
                for ((p, v), g) in param.iter_mut().zip(velocity).zip(grad) {
                    let g = g + weight_decay * *p;
                    *v = momentum * *v + g;
                    *p -= lr * (g + momentum * *v);
                }
            },
        );
    } else {
        one_pass(
            run,
            #[inline(always)]
            |[param, velocity], grad| {
                for ((p, v), g) in param.iter_mut().zip(velocity).zip(grad) {
                    *v = momentum * *v + g + weight_decay * *p;
                    *p -= lr * *v;
                }
            },
        );
    }
}

/// See [`AdamW`].
pub fn adamw(run: Operands<'_>, by: &AdamW) {
    let adamw::AdamwStep { keep, beta1, rest1, beta2, rest2, eps, size, spread } = by.step();
    one_pass(
        run,
        #[inline(always)]
        |[param, average, square], grad| {
            for (((p, m), v), g) in param.iter_mut().zip(average).zip(square).zip(grad) {
                *m = beta1 * *m + rest1 * g;
                *v = beta2 * *v + rest2 * (g * g);
                *p = keep * *p - size * (*m / (v.sqrt() * spread + eps));
            }
        },
    );
}

/// See [`Lion`].
pub fn lion(run: Operands<'_>, by: &Lion) {
    let lion::LionStep { keep, beta1, rest1, beta2, rest2, lr } = by.step();
    one_pass(
        run,
        #[inline(always)]
        |[param, average], grad| {
            for ((p, m), g) in param.iter_mut().zip(average).zip(grad) {
                let along = beta1 * *m + rest1 * g;
                *p = keep * *p - lr * sign(along);
                *m = beta2 * *m + rest2 * g;
            }
        },
    );
}

/// Sign of `x`: -1, 0 or 1; NaN stays NaN.
#[inline(always)]
fn sign(x: f32) -> f32 {
    if x > 0.0 {
        1.0
    } else if x < 0.0 {
        -1.0
    } else {
        x
    }
}
