//! Sizes of the operands of attention and of its gradient.

use super::Attention;
use crate::layout::{Dims, Layout};
use crate::ops::FLOAT;
use crate::ops::check::{Fault, number, rank, shaped};

/// Sizes of queries `[b, h, t, d]` and of keys `[b, h, s, d]`.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub b: usize,
    pub h: usize,
    pub t: usize,
    pub s: usize,
    pub d: usize,
    pub causal: bool,
    /// Factor in the scores `scale * q k^T`.
    pub scale: f32,
}

impl Shape {
    /// Sizes of the operands of an attention op. An error if the op does not accept the shapes or
    /// types of the operands.
    pub fn new(op: Attention, inputs: &[Layout]) -> Result<Self, Fault> {
        let [b, h, _, d] = rank(&inputs[0], "q")?;
        let [_, _, s, _] = rank(&inputs[1], "k")?;
        shaped(&inputs[1], "k", FLOAT, &[b, h, s, d])?;
        shaped(&inputs[2], "v", FLOAT, &[b, h, s, d])?;
        if let Some(scale) = op.scale {
            number(scale, "scale", f32::NEG_INFINITY)?;
        }
        Ok(Self::of(op, inputs))
    }

    /// Sizes of the operands of an attention op. The caller has already checked their shapes and
    /// types.
    pub fn of(op: Attention, inputs: &[Layout]) -> Self {
        let size = |i: usize, axis: usize| inputs[i].shape()[axis];
        let d = size(0, 3);
        let scale = op.scale.unwrap_or_else(|| (1.0 / (d.max(1) as f64).sqrt()) as f32);
        let [b, h, t, s] = [size(0, 0), size(0, 1), size(0, 2), size(1, 2)];
        Self { b, h, t, s, d, causal: op.causal, scale }
    }

    /// Shape of `q`, `y` and their gradients.
    pub fn queries(&self) -> Dims {
        [self.b, self.h, self.t, self.d].into()
    }

    /// Shape of the gradients of `k` and `v`.
    pub fn keys(&self) -> Dims {
        [self.b, self.h, self.s, self.d].into()
    }

    /// Shape of tensors with one element for each query.
    pub fn rows(&self) -> Dims {
        [self.b, self.h, self.t].into()
    }

    /// Number of heads of all entries of the batch.
    pub const fn heads(&self) -> usize {
        self.b * self.h
    }

    /// Number of keys that a query sees.
    pub fn seen(&self, query: usize) -> usize {
        if self.causal { self.s.min(query + 1) } else { self.s }
    }

    /// Number of scores that are computed.
    pub fn scores(&self) -> f64 {
        let [b, h, t, s] = [self.b, self.h, self.t, self.s].map(|size| size as f64);
        let short = t.min(s);
        let of_head =
            if self.causal { short * (short + 1.0) / 2.0 + (t - short) * s } else { t * s };
        b * h * of_head
    }
}
