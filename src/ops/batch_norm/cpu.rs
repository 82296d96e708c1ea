//! Batch normalization on the CPU. The first pass computes the statistics of each channel, and the
//! second pass applies the statistics.
//!
//! One pass is enough for the variance, because the code subtracts the mean of the channel's first
//! run (contiguous elements) from each element. The mean of the first run is near the mean of the
//! channel, so the sum of squares loses hardly any digits by cancellation.
//!
//! Channels are divided among threads. The first pass writes two floats for each channel to the
//! workspace. If there are few channels, the batch is also cut into parts. The partial sums of each
//! part are also in the workspace; they are much smaller than the tensor.

mod sums;

use self::sums::Adder;
use crate::device::cpu::split::{PIECE, pieces, pieces_of, whole_rows};
use crate::device::cpu::wide::widest;
use std::ops::Range;

/// Sizes of `x` with all dimensions after the channels merged: `[n, c, inner]`.
#[derive(Clone, Copy, Debug)]
pub struct ChannelSizes {
    /// Number of entries of the batch.
    pub n: usize,
    /// Number of channels.
    pub c: usize,
    /// Number of contiguous elements of one channel in one entry of the batch.
    pub inner: usize,
}

/// Two running sums of a channel.
type Sums = [f64; 2];

/// Length below which runs (contiguous elements of a channel) are too short for SIMD lanes.
const SHORT: usize = 16;
/// Number of tasks that keeps all threads busy.
const MANY: usize = 16;
/// Number of channels that are computed together. The number is so small that the terms of the
/// channels stay in registers or the cache.
const BLOCK: usize = 256;
/// Smallest number of elements of a channel in a partial sum, for channels with short runs.
const LEAST: usize = 128;

impl ChannelSizes {
    /// Number of elements of one entry of the batch, with all its channels.
    const fn whole(&self) -> usize {
        self.c * self.inner
    }

    const fn elements(&self) -> usize {
        self.n * self.whole()
    }

    /// Number of entries of the batch that go into one partial sum. The tensor must have elements.
    fn rows(&self) -> usize {
        let (tasks, least) = if self.inner < SHORT {
            (self.c.div_ceil(BLOCK), LEAST.div_ceil(self.inner))
        } else {
            (self.c, 1)
        };
        if tasks >= MANY {
            return self.n;
        }
        self.n.div_ceil(MANY).max(PIECE / self.whole()).max(least)
    }

    /// Bytes of workspace of [`train`] and [`grad`].
    pub fn workspace(&self) -> u64 {
        (self.workspace_len() as u64).saturating_mul(size_of::<u32>() as u64)
    }

    /// Length of the workspace in words: the two floats of each channel that [`apply`] reads, and
    /// the partial sums if the batch is cut.
    fn workspace_len(&self) -> usize {
        if self.elements() == 0 {
            return 0;
        }
        let partial = match self.n.div_ceil(self.rows()) {
            1 => 0,
            // Add one word, so that the sums can be aligned.
            parts => 1 + parts * self.c * (size_of::<Sums>() / size_of::<u32>()),
        };
        2 * self.c + partial
    }

    /// Splits the workspace into two floats for each channel, and the partial sums.
    fn scratch<'a>(&self, workspace: &'a mut [u32]) -> ([&'a mut [f32]; 2], &'a mut [Sums]) {
        let (terms, partial) = workspace.split_at_mut(2 * self.c);
        let (first, second) = bytemuck::cast_slice_mut(terms).split_at_mut(self.c);
        let (_, partial, _) = bytemuck::pod_align_to_mut(partial);
        ([first, second], partial)
    }
}

/// Per-channel inputs of [`train`].
#[derive(Clone, Copy, Debug)]
pub struct Parameters<'a> {
    /// Factor of the normalized elements.
    pub gamma: &'a [f32],
    /// Term added after the multiplication by `gamma`.
    pub beta: &'a [f32],
    /// Running mean: [`train`] updates it, and [`infer`] subtracts it.
    pub running_mean: &'a [f32],
    /// Running variance: [`train`] updates it, and [`infer`] divides by its root.
    pub running_var: &'a [f32],
    /// Number added to the variance.
    pub eps: f32,
}

/// Per-channel outputs of [`train`].
#[derive(Debug)]
pub struct Statistics<'a> {
    /// Mean of each channel of the batch.
    pub mean: &'a mut [f32],
    /// `1 / sqrt(var + eps)` for each channel of the batch.
    pub inv_std: &'a mut [f32],
    /// Updated running mean.
    pub running_mean: &'a mut [f32],
    /// Updated running variance.
    pub running_var: &'a mut [f32],
}

/// Computes `y = (x - mean) * inv_std * gamma + beta` with the statistics of `x`. A channel of one
/// element has a variance of 0.
pub fn train(
    y: &mut [f32],
    out: Statistics<'_>,
    x: &[f32],
    with: Parameters<'_>,
    momentum: f32,
    of: ChannelSizes,
    workspace: &mut [u32],
) {
    if x.is_empty() {
        return;
    }
    let count = (x.len() / of.c) as f64;
    let ([scale, summand], partial) = of.scratch(workspace);
    let Statistics { mean, inv_std, running_mean, running_var } = out;
    moments(
        x,
        of,
        partial,
        [&mut *mean, inv_std, running_mean, running_var, &mut *scale, &mut *summand],
        |channel, about, sums| {
            let [mean, spread] = mean_and_spread(about, sums, count);
            let inv_std = 1.0 / (spread / count + f64::from(with.eps)).sqrt();
            let scale = inv_std * f64::from(with.gamma[channel]);
            // `normalize` computes `(x - mean) * scale + summand` with the mean rounded to f32.
            // Correct the rounding error of the mean by the summand.
            let lost = mean - f64::from(mean as f32);
            [
                mean as f32,
                inv_std as f32,
                mix(momentum, with.running_mean[channel], mean),
                mix(momentum, with.running_var[channel], spread / (count - 1.0).max(1.0)),
                scale as f32,
                (f64::from(with.beta[channel]) - lost * scale) as f32,
            ]
        },
    );
    normalize(y, x, of, |channels, [means, scales, summands]| {
        means.copy_from_slice(&mean[channels.clone()]);
        scales.copy_from_slice(&scale[channels.clone()]);
        summands.copy_from_slice(&summand[channels]);
    });
}

/// Computes the mean and the unbiased variance of each channel. `kept` computes from them the
/// values that the function writes to `out`.
pub fn statistics<const N: usize>(
    x: &[f32],
    of: ChannelSizes,
    workspace: &mut [u32],
    out: [&mut [f32]; N],
    kept: impl Fn(f64, f64) -> [f32; N] + Sync,
) {
    if x.is_empty() {
        return;
    }
    let count = (x.len() / of.c) as f64;
    let (_, partial) = of.scratch(workspace);
    moments(x, of, partial, out, |_, about, sums| {
        let [mean, spread] = mean_and_spread(about, sums, count);
        kept(mean, spread / (count - 1.0).max(1.0))
    });
}

/// Running statistic after a batch. `old` is the running statistic before the batch, `new` is the
/// statistic of the batch, and `momentum` is the weight of `new`.
pub fn mix(momentum: f32, old: f32, new: f64) -> f32 {
    ((1.0 - f64::from(momentum)) * f64::from(old) + f64::from(momentum) * new) as f32
}

/// Adds up, over each channel, the differences of the elements from `about(channel)` and the
/// squares of these differences; see [`sums`].
fn moments<const N: usize>(
    x: &[f32],
    of: ChannelSizes,
    partial: &mut [Sums],
    out: [&mut [f32]; N],
    finish: impl Fn(usize, f32, Sums) -> [f32; N] + Sync,
) {
    sums(
        [x, x],
        of,
        |channel| average(&x[channel * of.inner..][..of.inner]),
        #[inline(always)]
        |about, x, _| [x - about, (x - about) * (x - about)],
        partial,
        out,
        finish,
    );
}

/// Mean of a channel of `count` elements, and the sum of squared differences from the mean.
fn mean_and_spread(about: f32, [sum, squares]: Sums, count: f64) -> [f64; 2] {
    let shift = sum / count;
    // A negative spread is a rounding error, so the comparison below sets it to 0. The comparison
    // keeps NaN.
    let spread = squares - sum * shift;
    [f64::from(about) + shift, if spread < 0.0 { 0.0 } else { spread }]
}

/// Computes `y = (x - running_mean) / sqrt(running_var + eps) * gamma + beta`.
pub fn infer(y: &mut [f32], x: &[f32], with: Parameters<'_>, of: ChannelSizes) {
    normalize(y, x, of, |channels, [means, scales, summands]| {
        means.copy_from_slice(&with.running_mean[channels.clone()]);
        summands.copy_from_slice(&with.beta[channels.clone()]);
        let parameters = with.gamma[channels.clone()].iter().zip(&with.running_var[channels]);
        widest(
            #[inline(always)]
            || {
                for (scale, (gamma, var)) in scales.iter_mut().zip(parameters) {
                    *scale = gamma / (var + with.eps).sqrt();
                }
            },
        );
    });
}

/// Computes `y = (x - mean) * scale + summand`. `known` writes the mean, the scale and the summand
/// of each channel.
fn normalize(
    y: &mut [f32],
    x: &[f32],
    of: ChannelSizes,
    known: impl Fn(Range<usize>, [&mut [f32]; 3]) + Sync,
) {
    apply(
        y,
        [x, x],
        of,
        known,
        #[inline(always)]
        |[mean, scale, summand], x, _| (x - mean) * scale + summand,
    );
}

/// Computes `dbeta = sum dy`, `dgamma = sum dy * x'` and
/// `dx = gamma * inv_std * (dy - (dbeta + x' * dgamma) / m)`, where `x' = (x - mean) * inv_std` and
/// `m` is the number of elements of a channel.
pub fn grad(
    [dx, dgamma, dbeta]: [&mut [f32]; 3],
    [x, gamma, mean, inv_std, dy]: [&[f32]; 5],
    of: ChannelSizes,
    workspace: &mut [u32],
) {
    if x.is_empty() {
        return [dgamma, dbeta].into_iter().for_each(|sums| sums.fill(0.0));
    }
    let count = (x.len() / of.c) as f64;
    let ([plain, weighted], partial) = of.scratch(workspace);
    sums(
        [x, dy],
        of,
        |channel| mean[channel],
        #[inline(always)]
        |mean, x, dy| [dy, (x - mean) * dy],
        partial,
        [dgamma, dbeta, &mut *plain, &mut *weighted],
        |channel, _, [plain, weighted]| {
            let inv = f64::from(inv_std[channel]);
            [
                (weighted * inv) as f32,
                plain as f32,
                (plain / count) as f32,
                (weighted * inv * inv / count) as f32,
            ]
        },
    );
    apply(
        dx,
        [x, dy],
        of,
        |channels, [means, scales, plains, weights]| {
            means.copy_from_slice(&mean[channels.clone()]);
            plains.copy_from_slice(&plain[channels.clone()]);
            weights.copy_from_slice(&weighted[channels.clone()]);
            let factors = gamma[channels.clone()].iter().zip(&inv_std[channels]);
            scales.iter_mut().zip(factors).for_each(|(scale, (gamma, inv))| *scale = gamma * inv);
        },
        #[inline(always)]
        |[mean, scale, plain, weighted], x, dy| scale * ((dy - plain) - (x - mean) * weighted),
    );
}

/// Mean of a run.
fn average(x: &[f32]) -> f32 {
    (x.iter().map(|&x| f64::from(x)).sum::<f64>() / x.len() as f64) as f32
}

/// Adds up `terms(about(channel), x, dy)` over all elements of each channel. `finish(channel,
/// about(channel), sums)` computes the channel's results from the sums, and the function writes the
/// results to `out`.
fn sums<const N: usize>(
    operands: [&[f32]; 2],
    of: ChannelSizes,
    about: impl Fn(usize) -> f32 + Sync,
    terms: impl Fn(f32, f32, f32) -> [f32; 2] + Sync,
    partial: &mut [Sums],
    mut out: [&mut [f32]; N],
    finish: impl Fn(usize, f32, Sums) -> [f32; N] + Sync,
) {
    let (n, rows) = (of.n, of.rows());
    if n <= rows {
        // Number of channels in a task. If runs are short, a task has at most `BLOCK` channels.
        // Otherwise, the channels of a task have about `PIECE` elements together.
        let len = match of.inner {
            0..SHORT => of.c.div_ceil(of.c.div_ceil(BLOCK)),
            inner => PIECE / (n * inner),
        };
        pieces_of(out, len, of.elements(), |first, mut out| {
            let channels = first..first + out[0].len();
            of_channels(operands, of, channels, 0..n, &about, &terms, |channel, about, sums| {
                let values = finish(channel, about, sums);
                out.iter_mut().zip(values).for_each(|(out, value)| out[channel - first] = value);
            });
        });
        return;
    }
    // Compute `about` of each channel once, and store the value in `out[0]` until the first result
    // of the channel overwrites it.
    out[0].iter_mut().enumerate().for_each(|(channel, kept)| *kept = about(channel));
    let kept = &*out[0];
    let partial = &mut partial[..n.div_ceil(rows) * of.c];
    pieces(partial, of.c, of.elements(), |part, partial| {
        let batch = part * rows..((part + 1) * rows).min(n);
        let about = |channel: usize| kept[channel];
        of_channels(operands, of, 0..of.c, batch, about, &terms, |channel, _, sums| {
            partial[channel] = sums;
        });
    });
    for channel in 0..of.c {
        let all = partial[channel..].iter().step_by(of.c).copied().reduce(joined);
        let values = finish(channel, out[0][channel], all.unwrap_or_default());
        out.iter_mut().zip(values).for_each(|(out, value)| out[channel] = value);
    }
}

fn joined(a: Sums, b: Sums) -> Sums {
    [a[0] + b[0], a[1] + b[1]]
}

/// Adds up the terms of `channels` over the entries `batch`, and calls
/// `emit(channel, about(channel), sums)` for each channel.
fn of_channels(
    [x, dy]: [&[f32]; 2],
    of: ChannelSizes,
    channels: Range<usize>,
    batch: Range<usize>,
    about: impl Fn(usize) -> f32,
    terms: impl Fn(f32, f32, f32) -> [f32; 2],
    mut emit: impl FnMut(usize, f32, Sums),
) {
    let inner = of.inner;
    // Long runs: compute one channel after another, each in SIMD lanes.
    if inner >= SHORT {
        for channel in channels {
            let about = about(channel);
            let mut adder = Adder::default();
            for i in batch.clone() {
                let at = i * of.whole() + channel * inner;
                adder.add(
                    &x[at..][..inner],
                    &dy[at..][..inner],
                    #[inline(always)]
                    |x, dy| terms(about, x, dy),
                );
            }
            emit(channel, about, adder.finish());
        }
        return;
    }
    // Short runs: compute a block of neighbouring channels together, so that memory is read in
    // order.
    for first in channels.clone().step_by(BLOCK) {
        let len = BLOCK.min(channels.end - first);
        let [mut firsts, mut seconds] = [[0.0; BLOCK]; 2];
        let abouts: [f32; BLOCK] =
            std::array::from_fn(|i| if i < len { about(first + i) } else { 0.0 });
        for i in batch.clone() {
            let at = i * of.whole() + first * inner;
            let [x, dy] = [x, dy].map(|x| &x[at..][..len * inner]);
            let sums = firsts.iter_mut().zip(&mut seconds).zip(&abouts);
            let add = |first: &mut f64, second: &mut f64, about, x, dy| {
                let [a, b] = terms(about, x, dy);
                *first += f64::from(a);
                *second += f64::from(b);
            };
            widest(
                #[inline(always)]
                || {
                    if inner == 1 {
                        let elements = x.iter().zip(dy);
                        for (((first, second), &about), (&x, &dy)) in sums.zip(elements) {
                            add(first, second, about, x, dy);
                        }
                        return;
                    }
                    let runs = x.chunks_exact(inner).zip(dy.chunks_exact(inner));
                    for (((first, second), &about), (x, dy)) in sums.zip(runs) {
                        x.iter().zip(dy).for_each(|(&x, &dy)| add(first, second, about, x, dy));
                    }
                },
            );
        }
        for i in 0..len {
            emit(first + i, abouts[i], [firsts[i], seconds[i]]);
        }
    }
}

/// Computes `out = f(terms, x, dy)` for each element. `terms` are the values that belong to the
/// element's channel, such as the mean. `known(channels, terms)` writes the terms of a range of
/// channels to `terms`, which has one list for each kind of term.
fn apply<const T: usize>(
    out: &mut [f32],
    [x, dy]: [&[f32]; 2],
    ChannelSizes { c, inner, .. }: ChannelSizes,
    known: impl Fn(Range<usize>, [&mut [f32]; T]) + Sync,
    f: impl Fn([f32; T], f32, f32) -> f32 + Sync,
) {
    let (len, work) = (whole_rows(inner), out.len());
    pieces(out, len, work, |i, mut part| {
        let mut at = i * len;
        let mut terms = [[0.0; BLOCK]; T];
        while !part.is_empty() {
            let first = at / inner % c;
            let channels = BLOCK.min(c - first).min(part.len() / inner);
            known(first..first + channels, terms.each_mut().map(|terms| &mut terms[..channels]));
            let (out, rest) = part.split_at_mut(channels * inner);
            let [x, dy] = [x, dy].map(|x| &x[at..][..out.len()]);
            (at, part) = (at + out.len(), rest);
            let terms = &terms;
            widest(
                #[inline(always)]
                || {
                    let of_channel = |i: usize| std::array::from_fn(|t| terms[t][i]);
                    if inner == 1 {
                        for (i, (out, (&x, &dy))) in
                            out.iter_mut().zip(x.iter().zip(dy)).enumerate()
                        {
                            *out = f(of_channel(i), x, dy);
                        }
                        return;
                    }
                    let runs = x.chunks_exact(inner).zip(dy.chunks_exact(inner));
                    for (i, (out, (x, dy))) in out.chunks_exact_mut(inner).zip(runs).enumerate() {
                        let terms = of_channel(i);
                        for (out, (&x, &dy)) in out.iter_mut().zip(x.iter().zip(dy)) {
                            *out = f(terms, x, dy);
                        }
                    }
                },
            );
        }
    });
}
