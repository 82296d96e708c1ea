//! Gradients of gradients of attention, composed of other ops. Unlike attention itself, the
//! composition holds the whole matrix of probabilities in memory.

use super::Attention;
use super::shape::Shape;
use crate::error::Error;
use crate::layout::Layout;
use crate::ops::Tensor;

/// Operands of [`AttentionGrad`](super::AttentionGrad), whose gradients are computed.
pub(super) struct Second {
    pub op: Attention,
    pub q: Tensor,
    pub k: Tensor,
    pub v: Tensor,
    pub lse: Tensor,
    pub delta: Tensor,
    pub dy: Tensor,
    /// Whether the gradient of each operand is wanted.
    pub wanted: [bool; 6],
}

impl Second {
    /// Computes the gradients of `q`, `k`, `v`, `lse`, `delta` and `dy`. `u`, `w` and `x` are the
    /// gradients of `dq`, `dk` and `dv`.
    ///
    /// The differentiated value is the sum of `ds * g + p * (dy x^T)`, where
    /// `g = scale * (u k^T + q w^T)`, `ds = p * e` and `e = dy v^T - delta`. The gradient through
    /// the exponent of `p = e^(scale * q k^T - lse)` is `a = p * (e * g + dy x^T)`. The gradient
    /// through `e` is `b = p * g`. The gradients are therefore
    ///
    /// - of `q`: `scale * (a k + ds w)`; of `k`: `scale * (a^T q + ds^T u)`; of `v`: `b^T dy`
    /// - of `lse` and `delta`: minus `a` and `b`, summed along rows
    /// - of `dy`: `b v + p x`
    pub fn gradients(&self, [u, w, x]: [Option<&Tensor>; 3]) -> Result<[Option<Tensor>; 6], Error> {
        let Self { q, k, v, dy, wanted, .. } = self;
        let layouts: [Layout; 3] = [q, k, v].map(|t| *t.layout());
        let shape = Shape::of(self.op, &layouts);
        let scaled = |t: &Tensor| t.affine(shape.scale, 0.0);
        let column = |t: &Tensor| t.reshape(&[shape.b, shape.h, shape.t, 1]);
        let p = &self.probabilities(&shape)?;
        let e = &dy.matmul(&v.transpose()?)?.sub(&column(&self.delta)?)?;
        let ds = &p.mul(e)?;
        let mut g = None;
        if let Some(u) = u {
            add(&mut g, scaled(&u.matmul(&k.transpose()?)?)?)?;
        }
        if let Some(w) = w {
            add(&mut g, scaled(&q.matmul(&w.transpose()?)?)?)?;
        }
        let mut through_p = g.as_ref().map(|g| ds.mul(g)).transpose()?;
        if let Some(x) = x {
            add(&mut through_p, p.mul(&dy.matmul(&x.transpose()?)?)?)?;
        }
        let a = &through_p.expect("the gradient of an output");
        let b = g.map(|g| p.mul(&g)).transpose()?;
        let mut all = [const { None }; 6];
        if wanted[0] {
            add(&mut all[0], scaled(&a.matmul(k)?)?)?;
            if let Some(w) = w {
                add(&mut all[0], scaled(&ds.matmul(w)?)?)?;
            }
        }
        if wanted[1] {
            add(&mut all[1], scaled(&a.transpose()?.matmul(q)?)?)?;
            if let Some(u) = u {
                add(&mut all[1], scaled(&ds.transpose()?.matmul(u)?)?)?;
            }
        }
        if wanted[3] {
            all[3] = Some(a.sum_along(&[3], false)?.neg()?);
        }
        if let Some(b) = &b {
            if wanted[2] {
                all[2] = Some(b.transpose()?.matmul(dy)?);
            }
            if wanted[4] {
                all[4] = Some(b.sum_along(&[3], false)?.neg()?);
            }
            if wanted[5] {
                all[5] = Some(b.matmul(v)?);
            }
        }
        if let (Some(x), true) = (x, wanted[5]) {
            add(&mut all[5], p.matmul(x)?)?;
        }
        Ok(all)
    }

    /// Probabilities `e^(scale * q k^T - lse)`; 0 for a key that the query does not see.
    fn probabilities(&self, shape: &Shape) -> Result<Tensor, Error> {
        let lse = self.lse.reshape(&[shape.b, shape.h, shape.t, 1])?;
        let scores = self.q.matmul(&self.k.transpose()?)?.affine(shape.scale, 0.0)?.sub(&lse)?;
        if !self.op.causal {
            return scores.exp();
        }
        let ones = |shape: &[usize]| self.q.scalar(1.0)?.broadcast(shape)?.contiguous();
        let [queries, keys] = [ones(&[shape.t, 1])?.cumsum(0)?, ones(&[1, shape.s])?.cumsum(1)?];
        let hidden = keys.gt(&queries)?;
        scores.masked_fill(&hidden, f32::NEG_INFINITY)?.exp()
    }
}

/// Adds a term to a sum. A sum without terms is `None`.
fn add(sum: &mut Option<Tensor>, term: Tensor) -> Result<(), Error> {
    *sum = Some(match sum.take() {
        Some(sum) => sum.add(&term)?,
        None => term,
    });
    Ok(())
}
