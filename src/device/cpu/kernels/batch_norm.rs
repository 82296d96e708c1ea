//! Batch normalization: one pass for the statistics of each channel, one to apply them.
//!
//! Sums are kept in f64. Elements are taken relative to the first of their channel, so the variance
//! comes from one pass: what cancels in it is at most `elements` times its size, and f64 has room for that.

use super::lanes::Lanes;
use super::split::{PIECE, pieces, whole_rows};

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
    let first: Vec<f32> = x[..c * inner].iter().step_by(inner).copied().collect();
    let sums = sums(x, x, &first, of, |[sum, squares], from, x, _| {
        let d = f64::from(x - from);
        [sum + d, squares + d * d]
    });
    let mix = |old: f32, new: f64| {
        ((1.0 - f64::from(momentum)) * f64::from(old) + f64::from(momentum) * new) as f32
    };
    for (i, [sum, squares]) in sums.into_iter().enumerate() {
        let shift = sum / count;
        let mean = f64::from(first[i]) + shift;
        // At least zero; NaN stays.
        let spread = squares - sum * shift;
        let spread = if spread < 0.0 { 0.0 } else { spread };
        out.mean[i] = mean as f32;
        out.inv_std[i] = (1.0 / (spread / count + f64::from(with.eps)).sqrt()) as f32;
        out.running_mean[i] = mix(with.running_mean[i], mean);
        out.running_var[i] = mix(with.running_var[i], spread / (count - 1.0).max(1.0));
    }
    normalize(y, x, out.mean, out.inv_std, with, of);
}

/// `y = (x - running_mean) / sqrt(running_var + eps) * gamma + beta`.
pub fn infer(y: &mut [f32], x: &[f32], with: Parameters<'_>, of: Channels) {
    let inv_std: Vec<f32> =
        with.running_var.iter().map(|var| 1.0 / (var + with.eps).sqrt()).collect();
    normalize(y, x, with.running_mean, &inv_std, with, of);
}

fn normalize(
    y: &mut [f32],
    x: &[f32],
    mean: &[f32],
    inv_std: &[f32],
    with: Parameters<'_>,
    of: Channels,
) {
    let terms: Vec<[f32; 3]> =
        (0..of.c).map(|i| [mean[i], inv_std[i] * with.gamma[i], with.beta[i]]).collect();
    apply(y, x, x, &terms, of, |[mean, scale, beta], x, _| (x - mean) * scale + beta);
}

/// `dbeta = sum dy`, `dgamma = sum dy * x'` and `dx = gamma * inv_std * (dy - (dbeta + x' * dgamma) / m)`,
/// where `x' = (x - mean) * inv_std` and `m` is the number of elements of a channel.
pub fn grad(
    [dx, dgamma, dbeta]: [&mut [f32]; 3],
    [x, gamma, mean, inv_std, dy]: [&[f32]; 5],
    of: Channels,
) {
    let count = (x.len() / of.c.max(1)) as f64;
    let sums = sums(x, dy, mean, of, |[plain, weighted], mean, x, dy| {
        [plain + f64::from(dy), weighted + f64::from((x - mean) * dy)]
    });
    let mut terms = Vec::with_capacity(of.c);
    for (i, [plain, weighted]) in sums.into_iter().enumerate() {
        let inv = f64::from(inv_std[i]);
        dbeta[i] = plain as f32;
        dgamma[i] = (weighted * inv) as f32;
        let scale = gamma[i] * inv_std[i];
        terms.push([mean[i], scale, (plain / count) as f32, (weighted * inv * inv / count) as f32]);
    }
    apply(dx, x, dy, &terms, of, |[mean, scale, plain, weighted], x, dy| {
        scale * ((dy - plain) - (x - mean) * weighted)
    });
}

/// Adds up all elements of each channel with `add(sums, about[channel], x, dy)`.
fn sums(
    x: &[f32],
    dy: &[f32],
    about: &[f32],
    Channels { c, inner }: Channels,
    add: impl Fn(Sums, f32, f32, f32) -> Sums + Sync,
) -> Vec<Sums> {
    let whole = c * inner;
    let n = if whole == 0 { 0 } else { x.len() / whole };
    // Channels are shared among threads; few of them, or short runs of them, are cut along the batch too.
    let per_chunk = match inner {
        0..SHORT => (PIECE / whole.max(1)).max(1),
        _ if c < MANY => n.div_ceil(MANY).max(PIECE / whole).max(1),
        _ => n.max(1),
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
                    *sums = x.iter().zip(dy).fold(*sums, |sums, (&x, &dy)| add(sums, about, x, dy));
                }
            }
        });
    } else {
        pieces(&mut partial, 1, x.len(), |task, sums| {
            let channel = task % c;
            let about = about[channel];
            let mut lanes = Lanes::new([0.0; 2]);
            for i in batch(task / c) {
                let at = i * whole + channel * inner;
                lanes.add_pairs(&x[at..][..inner], &dy[at..][..inner], |sums, x, dy| {
                    add(sums, about, x, dy)
                });
            }
            sums[0] = lanes.join(joined);
        });
    }
    let (mut sums, mut later) = (partial, Vec::new());
    if c < sums.len() {
        later = sums.split_off(c);
    }
    for chunk in later.chunks_exact(c.max(1)) {
        sums.iter_mut().zip(chunk).for_each(|(all, &chunk)| *all = joined(*all, chunk));
    }
    sums
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
            for (out, (&x, &dy)) in out.iter_mut().zip(x.iter().zip(dy)) {
                *out = f(terms, x, dy);
            }
        }
    });
}
