//! Batch normalization: one pass for the statistics of each channel, one to apply them.
//!
//! The variance comes from one pass because elements are taken relative to the mean of the first run of
//! their channel, which is near that of all: of the sum of squares, hardly anything cancels.

mod sums;

use self::sums::Adder;
use super::split::{PIECE, pieces, whole_rows};
use super::wide::widest;

/// Sizes of `x`, seen as `[n, c, inner]`.
#[derive(Clone, Copy, Debug)]
pub struct Channels {
    /// Number of channels.
    pub c: usize,
    /// Elements of one channel that lie together.
    pub inner: usize,
}

/// What is added up for each channel.
type Sums = [f64; 2];

/// Runs below this length are too short for lanes.
const SHORT: usize = 16;
/// Channels that are enough to share among threads.
const MANY: usize = 16;

/// Per-channel inputs of [`train`].
#[derive(Clone, Copy, Debug)]
pub struct Parameters<'a> {
    /// Factor.
    pub gamma: &'a [f32],
    /// Summand.
    pub beta: &'a [f32],
    /// Mean to be updated, or to be used.
    pub running_mean: &'a [f32],
    /// Variance to be updated, or to be used.
    pub running_var: &'a [f32],
    /// Added to the variance.
    pub eps: f32,
}

/// Per-channel outputs of [`train`].
#[derive(Debug)]
pub struct Statistics<'a> {
    /// Mean of this batch.
    pub mean: &'a mut [f32],
    /// `1 / sqrt(var + eps)` of this batch.
    pub inv_std: &'a mut [f32],
    /// Updated mean.
    pub running_mean: &'a mut [f32],
    /// Updated variance.
    pub running_var: &'a mut [f32],
}

/// `y = (x - mean) * inv_std * gamma + beta` with the statistics of `x`. A channel of one element
/// counts as having no variance.
pub fn train(
    y: &mut [f32],
    out: Statistics<'_>,
    x: &[f32],
    with: Parameters<'_>,
    momentum: f32,
    of: Channels,
) {
    let Channels { c, inner } = of;
    if x.is_empty() {
        return;
    }
    let count = (x.len() / c) as f64;
    let about: Vec<f32> = x[..c * inner].chunks_exact(inner).map(mean).collect();
    let sums = sums(
        x,
        x,
        &about,
        of,
        #[inline(always)]
        |about, x, _| [x - about, (x - about) * (x - about)],
    );
    let mix = |old: f32, new: f64| {
        ((1.0 - f64::from(momentum)) * f64::from(old) + f64::from(momentum) * new) as f32
    };
    let mut terms = Vec::with_capacity(c);
    for (i, [sum, squares]) in sums.into_iter().enumerate() {
        let shift = sum / count;
        let mean = f64::from(about[i]) + shift;
        // At least zero; NaN stays.
        let spread = squares - sum * shift;
        let spread = if spread < 0.0 { 0.0 } else { spread };
        let inv_std = 1.0 / (spread / count + f64::from(with.eps)).sqrt();
        out.mean[i] = mean as f32;
        out.inv_std[i] = inv_std as f32;
        out.running_mean[i] = mix(with.running_mean[i], mean);
        out.running_var[i] = mix(with.running_var[i], spread / (count - 1.0).max(1.0));
        let scale = inv_std * f64::from(with.gamma[i]);
        // What rounding took from the mean goes into the summand.
        let beta = f64::from(with.beta[i]) - (mean - f64::from(out.mean[i])) * scale;
        terms.push([out.mean[i], scale as f32, beta as f32]);
    }
    normalize(y, x, &terms, of);
}

/// `y = (x - running_mean) / sqrt(running_var + eps) * gamma + beta`.
pub fn infer(y: &mut [f32], x: &[f32], with: Parameters<'_>, of: Channels) {
    let scale = |i: usize| with.gamma[i] / (with.running_var[i] + with.eps).sqrt();
    let terms: Vec<_> = (0..of.c).map(|i| [with.running_mean[i], scale(i), with.beta[i]]).collect();
    normalize(y, x, &terms, of);
}

fn normalize(y: &mut [f32], x: &[f32], terms: &[[f32; 3]], of: Channels) {
    apply(
        y,
        x,
        x,
        terms,
        of,
        #[inline(always)]
        |[mean, scale, beta], x, _| (x - mean) * scale + beta,
    );
}

/// `dbeta = sum dy`, `dgamma = sum dy * x'` and `dx = gamma * inv_std * (dy - (dbeta + x' * dgamma) / m)`,
/// where `x' = (x - mean) * inv_std` and `m` is the number of elements of a channel.
pub fn grad(
    [dx, dgamma, dbeta]: [&mut [f32]; 3],
    [x, gamma, mean, inv_std, dy]: [&[f32]; 5],
    of: Channels,
) {
    let count = (x.len() / of.c.max(1)) as f64;
    let sums = sums(
        x,
        dy,
        mean,
        of,
        #[inline(always)]
        |mean, x, dy| [dy, (x - mean) * dy],
    );
    let mut terms = Vec::with_capacity(of.c);
    for (i, [plain, weighted]) in sums.into_iter().enumerate() {
        let inv = f64::from(inv_std[i]);
        dbeta[i] = plain as f32;
        dgamma[i] = (weighted * inv) as f32;
        let scale = gamma[i] * inv_std[i];
        terms.push([mean[i], scale, (plain / count) as f32, (weighted * inv * inv / count) as f32]);
    }
    apply(
        dx,
        x,
        dy,
        &terms,
        of,
        #[inline(always)]
        |[mean, scale, plain, weighted], x, dy| scale * ((dy - plain) - (x - mean) * weighted),
    );
}

/// The mean of a run.
fn mean(x: &[f32]) -> f32 {
    (x.iter().map(|&x| f64::from(x)).sum::<f64>() / x.len() as f64) as f32
}

/// Adds up `terms(about[channel], x, dy)` over all elements of each channel.
fn sums(
    x: &[f32],
    dy: &[f32],
    about: &[f32],
    Channels { c, inner }: Channels,
    terms: impl Fn(f32, f32, f32) -> [f32; 2] + Sync,
) -> Vec<Sums> {
    let whole = c * inner;
    if x.is_empty() {
        return vec![[0.0; 2]; c];
    }
    let n = x.len() / whole;
    // Channels are shared among threads; few of them, or short runs of them, are cut along the batch too.
    let per_chunk = match inner {
        0..SHORT => (PIECE / whole).max(1),
        _ if c < MANY => n.div_ceil(MANY).max(PIECE / whole).max(1),
        _ => n,
    };
    let mut partial = vec![[0.0; 2]; n.div_ceil(per_chunk) * c];
    let batch = |chunk: usize| chunk * per_chunk..((chunk + 1) * per_chunk).min(n);
    if inner < SHORT {
        pieces(&mut partial, c, x.len(), |chunk, sums| {
            for i in batch(chunk) {
                let runs = x[i * whole..][..whole]
                    .chunks_exact(inner)
                    .zip(dy[i * whole..][..whole].chunks_exact(inner));
                for ((sums, &about), (x, dy)) in sums.iter_mut().zip(about).zip(runs) {
                    x.iter().zip(dy).for_each(|(&x, &dy)| {
                        *sums = joined(*sums, terms(about, x, dy).map(f64::from))
                    });
                }
            }
        });
    } else {
        pieces(&mut partial, 1, x.len(), |task, sums| {
            let channel = task % c;
            let about = about[channel];
            let mut adder = Adder::default();
            for i in batch(task / c) {
                let at = i * whole + channel * inner;
                adder.add(
                    &x[at..][..inner],
                    &dy[at..][..inner],
                    #[inline(always)]
                    |x, dy| terms(about, x, dy),
                );
            }
            sums[0] = adder.finish();
        });
    }
    let later = partial.split_off(c);
    for chunk in later.chunks_exact(c) {
        partial.iter_mut().zip(chunk).for_each(|(all, &chunk)| *all = joined(*all, chunk));
    }
    partial
}

fn joined(a: Sums, b: Sums) -> Sums {
    [a[0] + b[0], a[1] + b[1]]
}

/// `out = f(terms[channel], x, dy)` for each element.
fn apply<const T: usize>(
    out: &mut [f32],
    x: &[f32],
    dy: &[f32],
    terms: &[[f32; T]],
    Channels { c, inner }: Channels,
    f: impl Fn([f32; T], f32, f32) -> f32 + Sync,
) {
    let (len, work) = (whole_rows(inner), out.len());
    pieces(out, len, work, |i, part| {
        let at = i * len;
        let runs = x[at..].chunks(inner.max(1)).zip(dy[at..].chunks(inner.max(1)));
        let channels = terms.iter().cycle().skip(at / inner.max(1) % c);
        for ((out, (x, dy)), &terms) in part.chunks_mut(inner.max(1)).zip(runs).zip(channels) {
            let operands = out.iter_mut().zip(x.iter().zip(dy));
            // Choosing the width takes longer than a short run.
            if inner < SHORT {
                operands.for_each(|(out, (&x, &dy))| *out = f(terms, x, dy));
                continue;
            }
            widest(
                #[inline(always)]
                || {
                    for (out, (&x, &dy)) in operands {
                        *out = f(terms, x, dy);
                    }
                },
            );
        }
    });
}
