//! Normalization of rows on the CPU. The code reads each row several times while the row is in the
//! cache.
//!
//! The gradients of `gamma` and `beta` are sums over rows. If there are many rows, the rows are cut
//! into parts. The sums of each part are written to the workspace, and are then added in the order
//! of the parts. The size of a part depends only on the shape. The sums are much smaller than the
//! rows.

mod group;

pub use group::{group, group_grad, workspace_of_group_grad};

use crate::device::cpu::lanes::Lanes;
use crate::device::cpu::split::{
    PIECE, chunks, each, pieces, pieces_of, pieces_of_two, whole_rows,
};
use crate::device::cpu::wide::widest;
use std::ops::Range;

/// Two running sums of each element of a row: `dy x'` and `dy`.
type Sums = [f64; 2];

/// Smallest number of rows in a part.
const LEAST: usize = 32;
/// Number of neighbouring elements of a row that are summed at a time.
const BLOCK: usize = 256;

/// Computes `y = (x - mean) * inv_std * gamma + beta` with the statistics of each row.
pub fn layer([y, mean, inv_std]: [&mut [f32]; 3], [x, gamma, beta]: [&[f32]; 3], eps: f32) {
    let n = gamma.len().max(1);
    let rows = whole_rows(n) / n;
    let parts = [chunks(y, rows * n), chunks(mean, rows), chunks(inv_std, rows)];
    each(parts, 1, |part, [y, mean, inv_std]| {
        let x = &x[part * rows * n..];
        let statistics = mean.iter_mut().zip(inv_std);
        let rows = y.chunks_exact_mut(n).zip(x.chunks_exact(n)).zip(statistics);
        rows.for_each(|((y, x), (mean, inv_std))| {
            let [about, lost, inv] = statistics_of(x, eps);
            [*mean, *inv_std] = [about, inv];
            widest(
                #[inline(always)]
                || {
                    for ((y, x), (gamma, beta)) in y.iter_mut().zip(x).zip(gamma.iter().zip(beta)) {
                        *y = ((x - about) - lost) * inv * gamma + beta;
                    }
                },
            );
        });
    });
}

/// Computes `y = x * inv_rms * gamma` with the statistic of each row.
pub fn rms([y, inv_rms]: [&mut [f32]; 2], [x, gamma]: [&[f32]; 2], eps: f32) {
    let n = gamma.len().max(1);
    let rows = whole_rows(n) / n;
    each([chunks(y, rows * n), chunks(inv_rms, rows)], 1, |part, [y, inv_rms]| {
        let x = &x[part * rows * n..];
        let rows = y.chunks_exact_mut(n).zip(x.chunks_exact(n)).zip(inv_rms);
        rows.for_each(|((y, x), inv_rms)| {
            let squares = sum(
                x,
                #[inline(always)]
                |x| f64::from(x) * f64::from(x),
            );
            let inv = (1.0 / (squares / n as f64 + f64::from(eps)).sqrt()) as f32;
            *inv_rms = inv;
            widest(
                #[inline(always)]
                || {
                    for ((y, x), gamma) in y.iter_mut().zip(x).zip(gamma) {
                        *y = x * inv * gamma;
                    }
                },
            );
        });
    });
}

/// Mean of a row, rounding error of the mean, and `1 / sqrt(var + eps)`.
fn statistics_of(x: &[f32], eps: f32) -> [f32; 3] {
    let count = x.len() as f64;
    let mean = sum(x, f64::from) / count;
    let squares = sum(
        x,
        #[inline(always)]
        |x| (f64::from(x) - mean) * (f64::from(x) - mean),
    );
    let inv_std = (1.0 / (squares / count + f64::from(eps)).sqrt()) as f32;
    let about = mean as f32;
    [about, (mean - f64::from(about)) as f32, inv_std]
}

/// Sum of `of(element)` over all elements.
#[inline(always)]
fn sum(x: &[f32], of: impl Fn(f32) -> f64) -> f64 {
    let mut lanes = Lanes::new(0.0);
    lanes.add(
        x,
        #[inline(always)]
        |all, x: f32| all + of(x),
    );
    lanes.join(|a, b| a + b)
}

/// Number of rows in a part, for rows of `n` elements.
fn part(n: usize) -> usize {
    LEAST.max(PIECE / n.max(1))
}

/// Bytes of workspace of [`grad`] for `rows` rows of `n` elements: the sums of each part, or 0 if
/// there is only one part.
pub fn workspace_of_grad(rows: usize, n: usize) -> u64 {
    match rows.div_ceil(part(n)) {
        0 | 1 => 0,
        // Add one word, so that the sums can be aligned.
        parts => (size_of::<u32>() + parts * n * size_of::<Sums>()) as u64,
    }
}

/// Computes `dx = inv_std * (z - mean(z) - x' * mean(z * x'))`, `dgamma = sum dy * x'` and
/// `dbeta = sum dy`, where `x' = (x - mean) * inv_std` and `z = gamma * dy`.
pub fn grad([dx, dgamma, dbeta]: [&mut [f32]; 3], of: GradInputs<'_>, workspace: &mut [u32]) {
    let (x, rows, n, part) = (of.x, of.inv_std.len(), of.gamma.len(), part(of.gamma.len()));
    let parts = rows.div_ceil(part);
    if parts <= 1 {
        of.dx(dx, 0);
        pieces_of([dgamma, dbeta], BLOCK, x.len(), |first, [dgamma, dbeta]| {
            of.sums(0..rows, first..first + dgamma.len(), |i, sums| {
                [dgamma[i], dbeta[i]] = sums.map(|sum| sum as f32);
            });
        });
        return;
    }
    let (_, partial, _) = bytemuck::pod_align_to_mut::<u32, Sums>(workspace);
    let partial = &mut partial[..parts * n];
    pieces_of_two((dx, part * n), (&mut *partial, n), x.len(), |i, dx, partial| {
        let (first, work) = (i * part, dx.len());
        of.dx(dx, first);
        pieces(partial, BLOCK, work, |block, partial| {
            let elements = block * BLOCK..block * BLOCK + partial.len();
            of.sums(first..rows.min(first + part), elements, |i, sums| partial[i] = sums);
        });
    });
    let (partial, work) = (&*partial, partial.len());
    pieces_of([dgamma, dbeta], BLOCK, work, |first, [dgamma, dbeta]| {
        for (i, (dgamma, dbeta)) in dgamma.iter_mut().zip(dbeta).enumerate() {
            let parts = partial[first + i..].iter().step_by(n);
            let all = parts.fold([0.0; 2], |all: Sums, part| [all[0] + part[0], all[1] + part[1]]);
            [*dgamma, *dbeta] = all.map(|sum| sum as f32);
        }
    });
}

/// Inputs of the gradient of a normalization.
#[derive(Clone, Copy)]
pub struct GradInputs<'a> {
    pub x: &'a [f32],
    pub gamma: &'a [f32],
    /// Mean of each row. If the normalization does not subtract the mean, the field is `None`, and
    /// the code uses 0 for the mean and for `mean(z)`.
    pub mean: Option<&'a [f32]>,
    pub inv_std: &'a [f32],
    pub dy: &'a [f32],
}

impl GradInputs<'_> {
    /// Mean and `inv_std` of a row.
    fn statistics(&self, row: usize) -> (f32, f32) {
        (self.mean.map_or(0.0, |mean| mean[row]), self.inv_std[row])
    }

    /// Computes `dx` for the rows from `first` on.
    fn dx(&self, dx: &mut [f32], first: usize) {
        let (n, len, work) = (self.gamma.len(), whole_rows(self.gamma.len()), dx.len());
        pieces(dx, len, work, |piece, dx| {
            let first = first + piece * len / n;
            dx.chunks_exact_mut(n).enumerate().for_each(|(i, dx)| self.dx_of_row(dx, first + i));
        });
    }

    fn dx_of_row(&self, dx: &mut [f32], row: usize) {
        let n = dx.len();
        let [x, dy] = [self.x, self.dy].map(|all| &all[row * n..][..n]);
        let (mean, inv_std) = self.statistics(row);
        // Store `z`, and later `z x'`, in `dx` for a moment, so that the values can be summed in
        // SIMD lanes.
        write(
            dx,
            [x, self.gamma, dy],
            #[inline(always)]
            |_, [_, gamma, dy]| gamma * dy,
        );
        let plain = match self.mean {
            Some(_) => (sum(dx, f64::from) / n as f64) as f32,
            None => 0.0,
        };
        write(
            dx,
            [x, self.gamma, dy],
            #[inline(always)]
            |z, [x, _, _]| z * ((x - mean) * inv_std),
        );
        let weight = (sum(dx, f64::from) / n as f64) as f32;
        write(
            dx,
            [x, self.gamma, dy],
            #[inline(always)]
            |_, [x, gamma, dy]| inv_std * ((gamma * dy - plain) - (x - mean) * inv_std * weight),
        );
    }

    /// Computes the sums over `rows` for each column in `elements`. Calls `emit` with the index of
    /// each column, counted from the start of `elements`, and with the sums of the column.
    fn sums(&self, rows: Range<usize>, elements: Range<usize>, mut emit: impl FnMut(usize, Sums)) {
        let n = self.gamma.len();
        for first in elements.clone().step_by(BLOCK) {
            let len = BLOCK.min(elements.end - first);
            let [mut weighted, mut plain] = [[0.0; BLOCK]; 2];
            widest(
                #[inline(always)]
                || {
                    for row in rows.clone() {
                        let [x, dy] = [self.x, self.dy].map(|all| &all[row * n + first..][..len]);
                        let (mean, inv_std) = self.statistics(row);
                        let sums = weighted.iter_mut().zip(&mut plain);
                        for ((weighted, plain), (x, &dy)) in sums.zip(x.iter().zip(dy)) {
                            *weighted += f64::from(dy * ((x - mean) * inv_std));
                            *plain += f64::from(dy);
                        }
                    }
                },
            );
            for i in 0..len {
                emit(first - elements.start + i, [weighted[i], plain[i]]);
            }
        }
    }
}

/// Computes `out = f(out, operands)` for each element of a row.
#[inline(always)]
fn write(out: &mut [f32], [x, gamma, dy]: [&[f32]; 3], f: impl Fn(f32, [f32; 3]) -> f32) {
    widest(
        #[inline(always)]
        || {
            let operands = x.iter().zip(gamma).zip(dy);
            for (out, ((&x, &gamma), &dy)) in out.iter_mut().zip(operands) {
                *out = f(*out, [x, gamma, dy]);
            }
        },
    );
}
