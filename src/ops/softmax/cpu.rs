//! Softmax and cross entropy over rows, on the CPU.

use super::cross_entropy::Targets;
use crate::device::DeviceError;
use crate::device::cpu::lanes::Lanes;
use crate::device::cpu::math::exp;
use crate::device::cpu::numbers::check_all_below_but;
use crate::device::cpu::split::{pieces, whole_rows};
use crate::device::cpu::wide::widest;

/// `y = e^x / sum e^x` over rows of `row` elements.
pub fn softmax(y: &mut [f32], [x]: [&[f32]; 1], row: usize) {
    rows(y, row, |i, y| {
        let (_, sum) = exponentials(y, &x[i * row..][..row]);
        let scale = (1.0 / sum) as f32;
        y.iter_mut().for_each(|y| *y *= scale);
    });
}

/// `y = x - ln sum e^x` over rows of `row` elements.
pub fn log_softmax(y: &mut [f32], [x]: [&[f32]; 1], row: usize) {
    rows(y, row, |i, y| {
        let x = &x[i * row..][..row];
        let (max, sum) = exponentials(y, x);
        let log = sum.ln() as f32;
        y.iter_mut().zip(x).for_each(|(y, x)| *y = (x - max) - log);
    });
}

/// `dx = y * (dy - sum y dy)` over rows of `row` elements.
pub fn softmax_grad(dx: &mut [f32], [y, dy]: [&[f32]; 2], row: usize) {
    rows(dx, row, |i, dx| {
        let (y, dy) = (&y[i * row..][..row], &dy[i * row..][..row]);
        // Store the products in `dx` for a moment, so that the sum below can use SIMD lanes.
        dx.iter_mut().zip(y.iter().zip(dy)).for_each(|(dx, (y, dy))| *dx = y * dy);
        let dot = sum(dx) as f32;
        dx.iter_mut().zip(y.iter().zip(dy)).for_each(|(dx, (y, dy))| *dx = y * (dy - dot));
    });
}

/// `dx = dy - e^y * sum dy` over rows of `row` elements.
pub fn log_softmax_grad(dx: &mut [f32], [y, dy]: [&[f32]; 2], row: usize) {
    rows(dx, row, |i, dx| {
        let (y, dy) = (&y[i * row..][..row], &dy[i * row..][..row]);
        let sum = sum(dy) as f32;
        let operands = y.iter().zip(dy);
        widest(
            #[inline(always)]
            || {
                for (dx, (&y, dy)) in dx.iter_mut().zip(operands) {
                    *dx = dy - exp(y) * sum;
                }
            },
        );
    });
}

/// Computes the log-softmax of each row, and the loss.
///
/// The loss of a row is minus the dot product of targets and log-probabilities. The result is the
/// mean loss of the rows whose label is not `ignore`.
pub fn cross_entropy(
    loss: &mut f32,
    log_probs: &mut [f32],
    logits: &[f32],
    labels: &[i32],
    classes: usize,
    Targets { on, off, ignore }: Targets,
) -> Result<(), DeviceError> {
    check_all_below_but(labels, classes, Some(ignore), "label")?;
    log_softmax(log_probs, [logits], classes);
    let (mut total, mut count) = (0.0, 0usize);
    for (i, &label) in labels.iter().enumerate().filter(|(_, label)| **label != ignore) {
        let row = &log_probs[i * classes..][..classes];
        total += f64::from(on) * f64::from(row[label as usize]);
        if off != 0.0 {
            total += f64::from(off) * sum(row);
        }
        count += 1;
    }
    *loss = (-total / count as f64) as f32;
    Ok(())
}

/// Computes `(e^log_probs - targets) * dloss / count`, or 0 in rows whose label is `ignore`.
pub fn cross_entropy_grad(
    dlogits: &mut [f32],
    log_probs: &[f32],
    labels: &[i32],
    dloss: f32,
    classes: usize,
    Targets { on, off, ignore }: Targets,
) -> Result<(), DeviceError> {
    check_all_below_but(labels, classes, Some(ignore), "label")?;
    let count = labels.iter().filter(|&&label| label != ignore).count();
    let scale = dloss / count as f32;
    rows(dlogits, classes, |i, dx| {
        if labels[i] == ignore {
            return dx.fill(0.0);
        }
        let log_probs = &log_probs[i * classes..];
        widest(
            #[inline(always)]
            || {
                for (dx, &y) in dx.iter_mut().zip(log_probs) {
                    *dx = (exp(y) - off) * scale;
                }
            },
        );
        let label = labels[i] as usize;
        dx[label] = (exp(log_probs[label]) - (on + off)) * scale;
    });
    Ok(())
}

/// Calls `body(i, row)` for each row of `out`.
fn rows(out: &mut [f32], row: usize, body: impl Fn(usize, &mut [f32]) + Sync) {
    let (len, work) = (whole_rows(row), out.len());
    pieces(out, len, work, |i, part| {
        let first = i * len / row.max(1);
        part.chunks_mut(row.max(1)).enumerate().for_each(|(j, out)| body(first + j, out));
    });
}

/// Writes `e^(x - max)` to `y`. Returns the largest element and the sum of `y`.
fn exponentials(y: &mut [f32], x: &[f32]) -> (f32, f64) {
    // The comparison may pass over a NaN, but the NaN then makes the sum below NaN.
    let larger = |a: f32, b: f32| if a > b { a } else { b };
    let mut lanes = Lanes::new(f32::NEG_INFINITY);
    lanes.add(x, larger);
    let max = lanes.join(larger);
    widest(
        #[inline(always)]
        || {
            for (y, x) in y.iter_mut().zip(x) {
                *y = exp(x - max);
            }
        },
    );
    (max, sum(y))
}

fn sum(x: &[f32]) -> f64 {
    let mut lanes = Lanes::new(0.0);
    lanes.add(x, |all, x: f32| all + f64::from(x));
    lanes.join(|a, b| a + b)
}
