//! Statistics of batches that the program applies to running statistics later, in an order of its
//! choice.
//!
//! In training with several ranks, each rank processes a part of the batch. All ranks exchange the
//! statistics of their parts, and apply the statistics of all parts in the order of the ranks. The
//! running statistics are then equal to the running statistics of a single rank that processes the
//! parts one after another. The kernel of [`BatchNorm`](super::BatchNorm) computes in f64, so ranks
//! exchange each statistic in full precision, as three floats.

use super::cpu::{self, mix};
use super::{channels, seen};
use crate::command::TensorId;
use crate::device::{self, DeviceError};
use crate::error::Error;
use crate::layout::{DType, Dims, Layout};
use crate::ops::{CustomOp, FLOAT, Tensor};

/// Number of floats that together hold one f64 statistic.
const FLOATS: usize = 3;

/// Statistics of one batch that are not yet applied to the running statistics.
#[derive(Debug)]
pub(crate) struct Deferred {
    /// Ids of the running mean and of the running variance.
    pub running: [TensorId; 2],
    /// Weight of the batch in the running statistics.
    pub momentum: f32,
    /// Statistics of the batch, as computed by [`BatchStatistics`].
    pub statistics: Tensor,
}

impl Tensor {
    /// Whether the runtime keeps the statistics of batches, so that the program can apply them
    /// later.
    pub(crate) fn defers_statistics(&self) -> Result<bool, Error> {
        Ok(self.runs()?.defers_statistics())
    }

    /// Keeps the statistics of this batch `[n, c, ..]` for the running statistics `running`.
    pub(crate) fn defer(&self, running: [TensorId; 2], momentum: f32) -> Result<(), Error> {
        // Detach the tensor: the running statistics are constants in the gradient.
        let x = self.detach().cast(FLOAT)?.contiguous()?;
        let statistics = Self::apply(BatchStatistics, &[&x])?.remove(0);
        self.runs()?.defer(Deferred { running, momentum, statistics })
    }
}

/// `x [n, c, ..] -> [1, 6, c]`: the mean and the unbiased variance of each channel, each as three
/// floats whose sum is the value in f64.
#[derive(Debug)]
struct BatchStatistics;

/// Splits a value into three floats: the value rounded to f32, and twice the remainder rounded to
/// f32.
fn split(value: f64) -> [f32; FLOATS] {
    if !value.is_finite() {
        return [value as f32, 0.0, 0.0];
    }
    let first = value as f32;
    let rest = value - f64::from(first);
    let second = rest as f32;
    [first, second, (rest - f64::from(second)) as f32]
}

/// Value that [`split`] has split into three floats.
fn joined([first, second, third]: [f32; FLOATS]) -> f64 {
    f64::from(first) + (f64::from(second) + f64::from(third))
}

impl CustomOp for BatchStatistics {
    fn name(&self) -> &str {
        "batch_statistics"
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Vec<Layout>, String> {
        let c = channels(&inputs[0], &[], &[])?;
        Ok(vec![Layout::contiguous(DType::F32, Dims::new(&[1, 2 * FLOATS, c]))])
    }

    fn flops(&self, inputs: &[Layout], _outputs: &[Layout]) -> f64 {
        inputs[0].elements() as f64 * 4.0
    }

    fn cpu_workspace(&self, inputs: &[Layout], _outputs: &[Layout]) -> u64 {
        seen(&inputs[0]).workspace()
    }

    fn cpu(&self, mut run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
        let of = seen(run.input(0));
        let out: &mut [f32] = run.write(0);
        let mut rows = out.chunks_exact_mut(of.c.max(1));
        let out: [&mut [f32]; 2 * FLOATS] =
            std::array::from_fn(|_| rows.next().unwrap_or_default());
        cpu::statistics(run.read(0), of, run.workspace(), out, |mean, var| {
            let ([a, b, c], [d, e, f]) = (split(mean), split(var));
            [a, b, c, d, e, f]
        });
        Ok(())
    }
}

/// Updates the running statistics of a batch norm in place: `(mean [c], var [c], all [n, 6,
/// total])`. `all` has the statistics of all batch norms of a network, from `n` ranks. The
/// statistics of this batch norm are `parts` batches of `c` channels, from channel `first` of `all`
/// on. The op applies the statistics batch by batch, and for each batch in the order of the ranks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ApplyStatistics {
    /// Weight of each batch in the running statistics.
    pub momentum: f32,
    /// First channel of this batch norm among the channels of all batch norms.
    pub first: usize,
    /// Number of batches of each rank.
    pub parts: usize,
}

impl CustomOp for ApplyStatistics {
    fn name(&self) -> &str {
        "apply_statistics"
    }

    fn infer(&self, _inputs: &[Layout]) -> Result<Vec<Layout>, String> {
        Ok(Vec::new())
    }

    fn updates(&self, _inputs: usize) -> usize {
        2
    }

    fn cpu(&self, mut run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
        let &Self { momentum, first, parts } = self;
        let (mean, var): (&mut [f32], &mut [f32]) = (run.write(0), run.write(1));
        let total = run.input(2).shape()[2];
        let all: &[f32] = run.read(2);
        for part in 0..parts {
            let start = first + part * mean.len();
            for rank in all.chunks_exact((2 * FLOATS * total).max(1)) {
                let value = |statistic: usize, channel: usize| {
                    let row = |i: usize| (statistic * FLOATS + i) * total;
                    joined(std::array::from_fn(|i| rank[row(i) + start + channel]))
                };
                for channel in 0..mean.len() {
                    mean[channel] = mix(momentum, mean[channel], value(0, channel));
                    var[channel] = mix(momentum, var[channel], value(1, channel));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_floats_keep_a_double() {
        let mut numbers = remat_rng::SplitMix64::new(3);
        for _ in 0..10_000 {
            let value =
                (numbers.below(1 << 52) as f64 + 0.5) * 2f64.powi(numbers.below(60) as i32 - 90);
            assert_eq!(joined(split(value)).to_bits(), value.to_bits());
            assert_eq!(joined(split(-value)), -value);
        }
        assert!(joined(split(f64::NAN)).is_nan());
        assert_eq!(joined(split(f64::INFINITY)), f64::INFINITY);
        assert_eq!(joined(split(0.0)), 0.0);
    }
}
