//! What both ops know of their operands, and samples of them.

use super::Attention;
use crate::layout::{Dims, Layout};
use crate::ops::FLOAT;
use crate::ops::check::{Fault, number, rank, shaped};
use crate::ops::samples::{Draw, Operand, floats, inside, repeated, turned};

/// Sizes of queries `[b, h, t, d]` and of keys `[b, h, s, d]`.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub b: usize,
    pub h: usize,
    pub t: usize,
    pub s: usize,
    pub d: usize,
    pub causal: bool,
    /// What scores are multiplied by.
    pub scale: f32,
}

impl Shape {
    /// The sizes, if they fit.
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

    /// The same of operands that fit.
    pub fn of(op: Attention, inputs: &[Layout]) -> Self {
        let size = |i: usize, axis: usize| inputs[i].shape()[axis];
        let d = size(0, 3);
        let scale = op.scale.unwrap_or_else(|| (1.0 / (d.max(1) as f64).sqrt()) as f32);
        let [b, h, t, s] = [size(0, 0), size(0, 1), size(0, 2), size(1, 2)];
        Self { b, h, t, s, d, causal: op.causal, scale }
    }

    /// The shape of `q`, `y` and their gradients.
    pub fn queries(&self) -> Dims {
        [self.b, self.h, self.t, self.d].into()
    }

    /// The shape of gradients of `k` and `v`.
    pub fn keys(&self) -> Dims {
        [self.b, self.h, self.s, self.d].into()
    }

    /// The shape of what there is one of for each query.
    pub fn rows(&self) -> Dims {
        [self.b, self.h, self.t].into()
    }

    /// How many heads there are in all.
    pub const fn heads(&self) -> usize {
        self.b * self.h
    }

    /// How many keys are seen by a query.
    pub fn seen(&self, query: usize) -> usize {
        if self.causal { self.s.min(query + 1) } else { self.s }
    }

    /// How many scores count.
    pub fn scores(&self) -> f64 {
        let [b, h, t, s] = [self.b, self.h, self.t, self.s].map(|size| size as f64);
        let short = t.min(s);
        let of_head =
            if self.causal { short * (short + 1.0) / 2.0 + (t - short) * s } else { t * s };
        b * h * of_head
    }
}

/// Ops with queries and keys that deserve a test: sizes around those of tiles, more queries than keys and fewer, none.
pub fn samples() -> impl Iterator<Item = (Attention, Operand, Operand)> {
    let sizes = [
        [1, 1, 1, 1, 1],
        [2, 3, 5, 7, 4],
        [1, 2, 33, 129, 16],
        [2, 1, 300, 257, 20],
        [1, 1, 64, 64, 256],
        [3, 5, 128, 128, 32],
        [1, 3, 7, 700, 65],
        [1, 1, 1100, 3, 130],
        [0, 3, 4, 5, 6],
        [2, 2, 0, 5, 6],
        [2, 2, 4, 0, 6],
        [2, 2, 4, 5, 0],
    ];
    let packed = sizes.into_iter().enumerate().flat_map(|(i, [b, h, t, s, d])| {
        let scale = if i % 3 == 1 { Some(0.3) } else { None };
        let (q, k) = (floats(&[b, h, t, d]), floats(&[b, h, s, d]));
        [false, true].map(|causal| (Attention { causal, scale }, q.clone(), k.clone()))
    });
    let op = Attention { causal: true, scale: None };
    // As they come out of a product: a row of all heads for each query.
    let beside = |n: usize| floats(&[2, n, 3, 40]).view(|x| x.permute(&[0, 2, 1, 3]));
    packed.chain([
        (op, beside(70), beside(200)),
        (op, turned(&[1, 2, 90, 35]), inside(&[1, 2, 40, 35])),
        (op, repeated(&[1, 2, 1, 8], &[2, 2, 50, 8]), repeated(&[2, 1, 60, 1], &[2, 2, 60, 8])),
    ])
}

/// An op, `q`, `k` and `v` of any strides, and the shape of the queries.
pub fn drawn(draw: &mut Draw) -> (Attention, [Operand; 3], Dims) {
    let [b, h, t, d] = draw.sizes();
    let s = draw.size();
    let op = Attention {
        causal: draw.flip(),
        scale: if draw.flip() { Some(draw.float()) } else { None },
    };
    let [queries, keys] = [t, s].map(|n| Dims::from([b, h, n, d]));
    (op, [queries, keys, keys].map(|shape| draw.arranged(&shape)), queries)
}

/// An op, and queries and keys of absurd sizes.
pub fn absurd(draw: &mut Draw) -> (Attention, [Layout; 2]) {
    let op = Attention {
        causal: draw.flip(),
        scale: if draw.flip() { Some(draw.absurd_number()) } else { None },
    };
    let ([b, h], [t, s], d) = (draw.absurd_pair(), draw.absurd_pair(), draw.absurd_size());
    (op, [t, s].map(|n| Layout::contiguous(FLOAT, [b, h, n, d])))
}
