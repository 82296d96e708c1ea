//! Gradients of all normalizations, and gradients of the gradients. The gradients of gradients are
//! composed of other ops.

use super::View;
use crate::error::Error;
use crate::ops::gradient::{Gradient, InputGradients, Recorded};
use crate::ops::{Op, Tensor};
use smallvec::SmallVec;

/// Gradient of a normalization. The op `grad` computes the contribution of the gradient of the
/// normalized output. If the statistics have gradients, their contribution is added to the gradient
/// of `x`. The statistics are `inv_std` and, if the normalization subtracts it, the mean.
pub(super) fn of_norm(
    of: &Recorded<'_>,
    view: View,
    takes_mean: bool,
    grad: impl Into<Op>,
) -> Gradient {
    let wanted: SmallVec<[bool; 3]> = (0..of.inputs()).map(|i| of.wanted(i)).collect();
    let (grad, x, gamma) = (grad.into(), of.input(0), of.input(1));
    let last = 1 + usize::from(takes_mean);
    let (mean, inv_std) = (takes_mean.then(|| of.output(1)), of.output(last));
    Gradient::of_all(move |dys| {
        let mut all: InputGradients = wanted.iter().map(|_| None).collect();
        if let Some(dy) = &dys[0] {
            let statistics = mean.iter().chain([&inv_std]);
            let read: Vec<&Tensor> =
                [&x, &gamma].into_iter().chain(statistics).chain([dy]).collect();
            let found = Tensor::call(grad.clone(), &read)?.into_iter().zip(&wanted);
            all = found.map(|(dx, wanted)| wanted.then_some(dx)).collect();
        }
        if wanted[0] {
            let statistics = [mean.as_ref().and(dys[1].as_ref()), dys[last].as_ref()];
            through_statistics(view, &x, mean.as_ref(), &inv_std, statistics, &mut all[0])?;
        }
        Ok(all)
    })
}

/// Gradient of an op that computes the gradient of a normalization. The inputs of that op are `x`,
/// `gamma`, the statistics (see [`of_norm`]), and `dy`.
pub(super) fn of_grad(of: &Recorded<'_>, view: View, takes_mean: bool) -> Gradient {
    let inv_std = 2 + usize::from(takes_mean);
    let dy = inv_std + 1;
    let normal = [of.wanted(0), takes_mean && of.wanted(2), of.wanted(inv_std)];
    let second = Second {
        view,
        x: of.input(0),
        mean: takes_mean.then(|| of.input(2)),
        inv_std: of.input(inv_std),
        of_gamma: of.wanted(1).then(|| of.input(dy)),
        of_dy: of.wanted(dy).then(|| of.input(1)),
        of_normal: normal.contains(&true).then(|| ([of.input(1), of.input(dy)], normal)),
    };
    Gradient::of_all(move |cotangents| {
        let flows = [0, 1, 2].map(|i| cotangents.get(i).and_then(Option::as_ref));
        let [dx, dgamma, dmean, dinv_std, ddy] = second.gradients(flows)?;
        let of_mean = takes_mean.then_some(dmean);
        Ok([dx, dgamma].into_iter().chain(of_mean).chain([dinv_std, ddy]).collect())
    })
}

/// Operands that the gradient of the gradient of a normalization reads.
struct Second {
    view: View,
    x: Tensor,
    /// `None` if the normalization does not subtract the mean.
    mean: Option<Tensor>,
    inv_std: Tensor,
    /// `dy`, if the gradient of `gamma` is wanted.
    of_gamma: Option<Tensor>,
    /// `gamma`, if the gradient of `dy` is wanted.
    of_dy: Option<Tensor>,
    /// `gamma` and `dy`, and whether the gradients of `x`, `mean` and `inv_std` are wanted. `None`
    /// if all three gradients are unwanted.
    of_normal: Option<([Tensor; 2], [bool; 3])>,
}

/// Gradients of `x`, `gamma`, `mean`, `inv_std` and `dy`.
type Found = [Option<Tensor>; 5];

impl Second {
    /// Computes the gradients; `u`, `v` and `w` are the gradients of `dx`, `dgamma` and `dbeta`.
    /// Let `project(t) = t - mean(t) - x' mean(t x')`, with the second term only if the mean is
    /// subtracted, and `z = gamma dy`. The sum of `project(s) t` equals the sum of `s project(t)`.
    /// The gradients are
    ///
    /// - of `dy`: `gamma inv_std project(u) + v x' + w`
    /// - of `gamma`: `inv_std project(u) dy`, summed over rows
    /// - of `x'`: `h = v dy - inv_std (mean(z x') u + mean(u x') z)`
    /// - of `x`: `inv_std h`; of `mean`: `-inv_std h`, summed along the row
    /// - of `inv_std`: `project(u) z + h (x - mean)`, summed along the row
    fn gradients(&self, [u, v, w]: [Option<&Tensor>; 3]) -> Result<Found, Error> {
        let view = self.view;
        let whole = |t: &Tensor| view.whole(t);
        // Reshape all operands so that they broadcast to the shape `view`.
        let u = u.map(whole).transpose()?;
        let [v, w] = [v, w].map(|t| t.map(|t| view.parameter(t)).transpose());
        let (v, w) = (v?, w?);
        let (x, inv_std) = (whole(&self.x)?, &view.statistic(&self.inv_std)?);
        let centered = &match &self.mean {
            Some(mean) => x.sub(&view.statistic(mean)?)?,
            None => x.clone(),
        };
        let normal = &centered.mul(inv_std)?;
        let [mut dx, mut dgamma, mut dmean, mut dinv_std, mut ddy, mut h] = [const { None }; 6];
        // `u`, the gradient of `dx`, contributes to the gradients of `gamma`, `dy`, `x'` and
        // `inv_std`.
        if let Some(u) = &u {
            let weight = &mean(&u.mul(normal)?)?;
            let plain = if self.mean.is_some() { &u.sub(&mean(u)?)? } else { u };
            let projected = &plain.sub(&normal.mul(weight)?)?;
            let scaled = &projected.mul(inv_std)?;
            if let Some(dy) = &self.of_gamma {
                let sums = scaled.mul(&whole(dy)?)?.sum_along(&[0, 3], false)?;
                dgamma = Some(sums.reshape(&[view.groups * view.channels])?);
            }
            if let Some(gamma) = &self.of_dy {
                ddy = Some(scaled.mul(&view.parameter(gamma)?)?);
            }
            if let Some(([gamma, dy], [.., wants_inv_std])) = &self.of_normal {
                let z = &whole(dy)?.mul(&view.parameter(gamma)?)?;
                let both = u.mul(&mean(&z.mul(normal)?)?)?.add(&z.mul(weight)?)?;
                h = Some(both.mul(&inv_std.neg()?)?);
                if *wants_inv_std {
                    dinv_std = Some(sum(&projected.mul(z)?)?);
                }
            }
        }
        // `v`, the gradient of `dgamma = sum(dy x')`, contributes to the gradients of `dy` and
        // `x'`.
        if let Some(v) = &v {
            if self.of_dy.is_some() {
                add(&mut ddy, normal.mul(v)?)?;
            }
            if let Some(([_, dy], _)) = &self.of_normal {
                add(&mut h, whole(dy)?.mul(v)?)?;
            }
        }
        // `w`, the gradient of `dbeta = sum(dy)`, contributes to the gradient of `dy`.
        if let (Some(w), Some(_)) = (&w, &self.of_dy) {
            add(&mut ddy, w.broadcast(x.shape())?)?;
        }
        // `h`, the gradient of `x' = (x - mean) inv_std`, contributes to the gradients of `x`,
        // `mean` and `inv_std`.
        if let (Some(h), Some((_, [wants_x, wants_mean, wants_inv_std]))) = (h, &self.of_normal) {
            let scaled = h.mul(inv_std)?;
            if *wants_mean {
                dmean = Some(sum(&scaled)?.neg()?);
            }
            if *wants_inv_std {
                add(&mut dinv_std, sum(&h.mul(centered)?)?)?;
            }
            dx = wants_x.then_some(scaled);
        }
        // Reshape each gradient to the shape of its operand.
        let shaped = |t: Option<Tensor>, like: &Tensor| {
            t.map(|t| t.contiguous()?.reshape(like.shape())).transpose()
        };
        Ok([
            shaped(dx, &self.x)?,
            dgamma,
            shaped(dmean, &self.inv_std)?,
            shaped(dinv_std, &self.inv_std)?,
            shaped(ddy, &self.x)?,
        ])
    }
}

/// Adds the part of the gradient of `x` that passes through the statistics of a normalization to
/// `dx`. The part through `mean` is `dmean / n`. The part through `inv_std` is `-inv_std^3 (x -
/// mean) dinv_std / n`.
fn through_statistics(
    view: View,
    x: &Tensor,
    mean: Option<&Tensor>,
    inv_std: &Tensor,
    [dmean, dinv_std]: [Option<&Tensor>; 2],
    dx: &mut Option<Tensor>,
) -> Result<(), Error> {
    let share = 1.0 / (view.channels * view.inner) as f32;
    if let Some(dmean) = dmean {
        let part = view.statistic(&dmean.affine(share, 0.0)?)?.broadcast(&view.shape())?;
        add(dx, part.contiguous()?.reshape(x.shape())?)?;
    }
    if let Some(dinv_std) = dinv_std {
        let cube = inv_std.square()?.mul(inv_std)?;
        let factor = view.statistic(&cube.mul(dinv_std)?.affine(-share, 0.0)?)?;
        let whole = view.whole(x)?;
        let centered = match mean {
            Some(mean) => whole.sub(&view.statistic(mean)?)?,
            None => whole,
        };
        add(dx, centered.mul(&factor)?.reshape(x.shape())?)?;
    }
    Ok(())
}

/// Adds a term to a sum. A sum without terms is `None`.
pub(super) fn add(sum: &mut Option<Tensor>, term: Tensor) -> Result<(), Error> {
    *sum = Some(match sum.take() {
        Some(sum) => sum.add(&term)?,
        None => term,
    });
    Ok(())
}

/// Sum of each row.
fn sum(t: &Tensor) -> Result<Tensor, Error> {
    t.sum_along(&[2, 3], false)
}

/// Mean of each row, shaped to broadcast to the row.
fn mean(t: &Tensor) -> Result<Tensor, Error> {
    t.mean_along(&[2, 3], true)
}
