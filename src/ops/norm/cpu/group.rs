//! Group normalization on the CPU. A row is a group of channels. The elements of a channel are
//! contiguous.

use super::{GradInputs, Sums, statistics_of, sum};
use crate::device::cpu::split::{PIECE, chunks, each, pieces, pieces_of_two};
use crate::device::cpu::wide::widest;

/// Computes `y = (x - mean) * inv_std * gamma + beta` with the statistics of each group. A group
/// has `channels` channels of `inner` elements each, and is not empty.
pub fn group(
    [y, mean, inv_std]: [&mut [f32]; 3],
    [x, gamma, beta]: [&[f32]; 3],
    eps: f32,
    [channels, inner]: [usize; 2],
) {
    let (n, groups) = (channels * inner, (gamma.len() / channels.max(1)).max(1));
    let rows = (PIECE / n.max(1)).max(1);
    let parts = [chunks(y, rows * n), chunks(mean, rows), chunks(inv_std, rows)];
    each(parts, 1, |part, [y, mean, inv_std]| {
        let x = &x[part * rows * n..];
        let statistics = mean.iter_mut().zip(inv_std);
        let all = y.chunks_exact_mut(n).zip(x.chunks_exact(n)).zip(statistics).enumerate();
        for (i, ((y, x), (mean, inv_std))) in all {
            let [about, lost, inv] = statistics_of(x, eps);
            [*mean, *inv_std] = [about, inv];
            let first = (part * rows + i) % groups * channels;
            let runs = y.chunks_exact_mut(inner).zip(x.chunks_exact(inner)).enumerate();
            runs.for_each(|(channel, (y, x))| {
                let (gamma, beta) = (gamma[first + channel], beta[first + channel]);
                widest(
                    #[inline(always)]
                    || {
                        for (y, x) in y.iter_mut().zip(x) {
                            *y = ((x - about) - lost) * inv * gamma + beta;
                        }
                    },
                );
            });
        }
    });
}

/// Smallest number of elements of a channel for which the workspace holds separate sums for each
/// image. With at least this number of elements, the sums are much smaller than the operands.
const LONG: usize = 8;

/// Number of channels that are summed together.
const BLOCK: usize = 64;

/// Bytes of workspace of [`group_grad`] for `rows` groups of `channels` channels of `inner`
/// elements.
pub fn workspace_of_group_grad(rows: usize, [channels, inner]: [usize; 2]) -> u64 {
    if inner < LONG {
        return 0;
    }
    // Add one word, so that the sums can be aligned.
    (size_of::<u32>() as u64)
        .saturating_add((rows as u64).saturating_mul((channels * size_of::<Sums>()) as u64))
}

/// Computes `dx = inv_std * (z - mean(z) - x' * mean(z * x'))`, `dgamma = sum dy * x'` and
/// `dbeta = sum dy`, where `x' = (x - mean) * inv_std` and `z = gamma * dy`.
pub fn group_grad(
    [dx, dgamma, dbeta]: [&mut [f32]; 3],
    of: GradInputs<'_>,
    [channels, inner]: [usize; 2],
    workspace: &mut [u32],
) {
    let n = channels * inner;
    if dx.is_empty() {
        dgamma.fill(0.0);
        dbeta.fill(0.0);
        return;
    }
    let (groups, rows, work) = (dgamma.len() / channels, (PIECE / n).max(1), of.x.len());
    let gamma = |row: usize| &of.gamma[row % groups * channels..][..channels];
    if inner < LONG {
        pieces(dx, rows * n, work, |part, dx| {
            for (i, dx) in dx.chunks_exact_mut(n).enumerate() {
                let row = part * rows + i;
                one(dx, of, row, gamma(row), |_, _| {});
            }
        });
        pieces_of_two((dgamma, BLOCK), (dbeta, BLOCK), work, |part, dgamma, dbeta| {
            let sums = sums_of(of, part * BLOCK, groups, [channels, inner]);
            for (sums, (dgamma, dbeta)) in sums.iter().zip(dgamma.iter_mut().zip(dbeta)) {
                [*dgamma, *dbeta] = sums.map(|sum| sum as f32);
            }
        });
        return;
    }
    let (_, sums, _) = bytemuck::pod_align_to_mut::<u32, Sums>(workspace);
    let sums = &mut sums[..of.inv_std.len() * channels];
    pieces_of_two((dx, rows * n), (&mut *sums, rows * channels), work, |part, dx, sums| {
        let all = dx.chunks_exact_mut(n).zip(sums.chunks_exact_mut(channels)).enumerate();
        all.for_each(|(i, (dx, sums))| {
            let row = part * rows + i;
            one(dx, of, row, gamma(row), |channel, of| sums[channel] = of);
        });
    });
    for (channel, (dgamma, dbeta)) in dgamma.iter_mut().zip(dbeta).enumerate() {
        let of_images = sums[channel..].iter().step_by(groups * channels);
        let all = of_images.fold([0.0; 2], |all: Sums, of| [all[0] + of[0], all[1] + of[1]]);
        [*dgamma, *dbeta] = all.map(|sum| sum as f32);
    }
}

/// Computes the sums over all images, for `BLOCK` channels from `first` on.
fn sums_of(of: GradInputs<'_>, first: usize, groups: usize, sides: [usize; 2]) -> [Sums; BLOCK] {
    let [channels, inner] = sides;
    let mut sums = [[0.0; 2]; BLOCK];
    let all = groups * channels;
    let block = BLOCK.min(all - first);
    for image in 0..of.inv_std.len() / groups {
        let from = (image * all + first) * inner;
        let [x, dy] = [of.x, of.dy].map(|of| of[from..][..block * inner].chunks_exact(inner));
        for (channel, (sums, (x, dy))) in sums.iter_mut().zip(x.zip(dy)).enumerate() {
            let (mean, inv_std) = of.statistics(image * groups + (first + channel) / channels);
            for (x, dy) in x.iter().zip(dy) {
                sums[0] += f64::from(dy * ((x - mean) * inv_std));
                sums[1] += f64::from(*dy);
            }
        }
    }
    sums
}

/// Computes `dx` of one group. Calls `keep` with the sums of each channel of the group.
fn one(
    dx: &mut [f32],
    of: GradInputs<'_>,
    row: usize,
    gamma: &[f32],
    mut keep: impl FnMut(usize, Sums),
) {
    let (n, inner) = (dx.len(), dx.len() / gamma.len());
    let [x, dy] = [of.x, of.dy].map(|all| &all[row * n..][..n]);
    let (mean, inv_std) = of.statistics(row);
    // Store `dy x'` in `dx` for a moment, so that the values can be summed in SIMD lanes.
    widest(
        #[inline(always)]
        || {
            for (dx, (x, dy)) in dx.iter_mut().zip(x.iter().zip(dy)) {
                *dx = dy * ((x - mean) * inv_std);
            }
        },
    );
    let [mut plain, mut weight] = [0.0; 2];
    let runs = dx.chunks_exact(inner).zip(dy.chunks_exact(inner)).zip(gamma).enumerate();
    for (channel, ((weighted, dy), &gamma)) in runs {
        let sums = [sum(weighted, f64::from), sum(dy, f64::from)];
        weight += f64::from(gamma) * sums[0];
        plain += f64::from(gamma) * sums[1];
        keep(channel, sums);
    }
    let [plain, weight] = [plain, weight].map(|sum| (sum / n as f64) as f32);
    let runs = x.chunks_exact(inner).zip(dy.chunks_exact(inner)).zip(gamma);
    for (dx, ((x, dy), gamma)) in dx.chunks_exact_mut(inner).zip(runs) {
        widest(
            #[inline(always)]
            || {
                for (dx, (x, dy)) in dx.iter_mut().zip(x.iter().zip(dy)) {
                    *dx = inv_std * ((gamma * dy - plain) - (x - mean) * inv_std * weight);
                }
            },
        );
    }
}
