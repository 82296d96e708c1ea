//! Gradient of the LSTM steps, composed of other ops step by step, and the gradient of the
//! gradient.

use super::shape::Shape;
use crate::error::Error;
use crate::ops::{FLOAT, Tensor};

type Result<T> = std::result::Result<T, Error>;

/// Values of all steps that the gradient reads.
pub(super) struct Steps<'a> {
    shape: Shape,
    c0: Tensor,
    weight: &'a Tensor,
    /// Values of each step.
    at: Vec<Step>,
}

/// Values of one step, `[n, h]` each.
struct Step {
    i: Tensor,
    f: Tensor,
    g: Tensor,
    o: Tensor,
    c: Tensor,
    /// `tanh(c)`
    tanh: Tensor,
}

/// Gradients of the outputs of the steps; `None` for zero.
pub(super) struct Cotangents<'a> {
    pub dy: Option<&'a Tensor>,
    pub dc: Option<&'a Tensor>,
    pub dgates: Option<&'a Tensor>,
    pub dh_last: Option<&'a Tensor>,
    pub dc_last: Option<&'a Tensor>,
}

/// Gradients of the inputs of the steps, and of intermediate values.
pub(super) struct Back {
    /// Gradient of the sums of each step, `[n, 4h]`.
    dsums: Vec<Tensor>,
    /// Complete gradients of `y` and `c` of each step, with the contributions of later steps.
    reached: Vec<[Tensor; 2]>,
    pub dh0: Tensor,
    pub dc0: Tensor,
}

impl Back {
    /// Gradients of the sums of all steps as `[n, t, 4h]`. If there are no steps, returns `like`,
    /// which has the shape `[n, 0, 4h]`.
    pub fn dsums(&self, like: &Tensor) -> Result<Tensor> {
        stacked(&self.dsums).unwrap_or_else(|| Ok(like.clone()))
    }
}

/// Stacks `t` tensors `[n, ..]` to `[n, t, ..]`; `None` if there are no tensors.
fn stacked(steps: &[Tensor]) -> Option<Result<Tensor>> {
    (!steps.is_empty()).then(|| Tensor::stack(&steps.iter().collect::<Vec<_>>(), 1))
}

/// Step `s` of a tensor `[n, t, ..]`.
fn step(of: &Tensor, s: usize) -> Result<Tensor> {
    let [n, len] = [of.shape()[0], of.shape()[2]];
    of.slice(1, s..s + 1)?.reshape(&[n, len])
}

/// Splits a tensor `[n, 4h]` into four parts `[n, h]`, one for each gate.
fn parts(of: &Tensor, h: usize) -> Result<[Tensor; 4]> {
    let part = |k: usize| of.slice(1, k * h..(k + 1) * h);
    Ok([part(0)?, part(1)?, part(2)?, part(3)?])
}

/// Derivative of a sigmoid whose output is `x`: `x (1 - x)`.
fn slope_of_sigmoid(x: &Tensor) -> Result<Tensor> {
    x.sub(&x.square()?)
}

/// Derivative of a tanh whose output is `x`: `1 - x^2`.
fn slope_of_tanh(x: &Tensor) -> Result<Tensor> {
    x.square()?.affine(-1.0, 1.0)
}

/// Product of all tensors.
fn times(of: &[&Tensor]) -> Result<Tensor> {
    of[1..].iter().try_fold(of[0].clone(), |product, x| product.mul(x))
}

/// Sum of all tensors.
fn plus(of: &[Tensor]) -> Result<Tensor> {
    of[1..].iter().try_fold(of[0].clone(), |sum, x| sum.add(x))
}

impl<'a> Steps<'a> {
    pub fn new(gates: &Tensor, c: &Tensor, c0: &Tensor, weight: &'a Tensor) -> Result<Self> {
        let shape = Shape::of(gates.layout());
        // Convert the operands to f32. With `bf16` operands, each of the twenty or so ops of a step
        // would round its results.
        let [gates, c, c0] = [gates, c, c0].map(|x| x.cast(FLOAT));
        let (gates, c, c0) = (gates?, c?, c0?);
        let of_step = |s: usize| {
            let [i, f, g, o] = parts(&step(&gates, s)?, shape.h)?;
            let c = step(&c, s)?;
            Ok(Step { i, f, g, o, tanh: c.tanh()?, c })
        };
        let at = (0..shape.t).map(of_step).collect::<Result<_>>()?;
        Ok(Self { shape, c0, weight, at })
    }

    /// Cell state before step `s`.
    fn before(&self, s: usize) -> &Tensor {
        s.checked_sub(1).map_or(&self.c0, |s| &self.at[s].c)
    }

    fn zeros(&self) -> Result<Tensor> {
        self.c0.scalar(0.0)?.broadcast(&self.shape.memory())
    }

    /// Computes the gradient by the formulas of [`LstmStepsGrad`](super::LstmStepsGrad).
    pub fn backward(&self, of: &Cotangents<'_>) -> Result<Back> {
        let or_zeros = |given: Option<&Tensor>| given.cloned().map_or_else(|| self.zeros(), Ok);
        let (mut dh, mut dc) = (or_zeros(of.dh_last)?, or_zeros(of.dc_last)?);
        let (mut dsums, mut reached) = (Vec::new(), Vec::new());
        for (s, Step { i, f, g, o, tanh, .. }) in self.at.iter().enumerate().rev() {
            if let Some(dy) = of.dy {
                dh = dh.add(&step(dy, s)?)?;
            }
            if let Some(more) = of.dc {
                dc = dc.add(&step(more, s)?)?;
            }
            dc = dc.add(&times(&[&dh, o, &slope_of_tanh(tanh)?])?)?;
            let mut of_gates = [dc.mul(g)?, dc.mul(self.before(s))?, dc.mul(i)?, dh.mul(tanh)?];
            if let Some(dgates) = of.dgates {
                let more = parts(&step(dgates, s)?, self.shape.h)?;
                for (sum, more) in of_gates.iter_mut().zip(more) {
                    *sum = sum.add(&more)?;
                }
            }
            let [di, df, dg, d_o] = &of_gates;
            let of_step = Tensor::concat(
                &[
                    &di.mul(&slope_of_sigmoid(i)?)?,
                    &df.mul(&slope_of_sigmoid(f)?)?,
                    &dg.mul(&slope_of_tanh(g)?)?,
                    &d_o.mul(&slope_of_sigmoid(o)?)?,
                ],
                1,
            )?;
            let next = [of_step.matmul(self.weight)?, dc.mul(f)?];
            let [dh_before, dc_before] = next;
            reached.push([dh, dc]);
            dsums.push(of_step);
            (dh, dc) = (dh_before, dc_before);
        }
        dsums.reverse();
        reached.reverse();
        Ok(Back { dsums, reached, dh0: dh, dc0: dc })
    }
}

/// Operands of [`LstmStepsGrad`](super::LstmStepsGrad), whose gradients are computed.
pub(super) struct Second<'a> {
    pub steps: Steps<'a>,
    pub dy: &'a Tensor,
    pub dh_last: &'a Tensor,
    pub dc_last: &'a Tensor,
}

impl Second<'_> {
    /// Computes the gradients of `gates`, `c`, `c0`, `weight`, `dy`, `dh_last` and `dc_last`;
    /// `None` stands for zero. `u`, `v` and `w` are the gradients of `dsums`, `dh0` and `dc0`.
    ///
    /// The gradient is computed from the last step to the first, so the gradient of the gradient is
    /// computed from the first step to the last. At step `s`, `v` and `w` are the gradients of the
    /// `dh` and `dc` that step `s` passes to the previous step. After the last step, `v` and `w`
    /// are the gradients of `dh_last` and `dc_last`. `z` is the gradient of `dsums[s]`. Each
    /// product in the formula of `dsums[s]` passes a part of `z` to its factors.
    pub fn gradients(&self, [u, v, w]: [Option<&Tensor>; 3]) -> Result<[Option<Tensor>; 7]> {
        let Self { steps, dy, dh_last, dc_last } = self;
        let Steps { shape, weight, .. } = steps;
        // Recompute `dsums`, `dh` and `dc` of each step.
        let back = steps.backward(&Cotangents {
            dy: Some(dy),
            dc: None,
            dgates: None,
            dh_last: Some(dh_last),
            dc_last: Some(dc_last),
        })?;
        let or_zeros = |given: Option<&Tensor>| given.cloned().map_or_else(|| steps.zeros(), Ok);
        let (mut v, mut w) = (or_zeros(v)?, or_zeros(w)?);
        let mut of_weight: Option<Tensor> = None;
        let mut of_c0 = None;
        let (mut of_gates, mut of_c, mut of_dy) = (Vec::new(), Vec::<Tensor>::new(), Vec::new());
        for (s, Step { i, f, g, o, tanh, .. }) in steps.at.iter().enumerate() {
            let [dh, dc] = &back.reached[s];
            let before = steps.before(s);
            // Gradients through the products `dh = dsums[s] weight` and `dc = dc f`.
            let term = back.dsums[s].t()?.matmul(&v)?;
            of_weight = Some(match of_weight {
                Some(sum) => sum.add(&term)?,
                None => term,
            });
            // The gradient of `dsums[s]` is the sum of the gradient through `dh`, and step `s` of
            // `u`.
            let mut z = v.matmul(&weight.t()?)?;
            if let Some(u) = u {
                z = z.add(&step(u, s)?)?;
            }
            let [zi, zf, zg, zo] = parts(&z, shape.h)?;
            let [si, sf, so] = [i, f, o].map(slope_of_sigmoid);
            let (si, sf, sg, so) = (si?, sf?, slope_of_tanh(g)?, so?);
            let st = slope_of_tanh(tanh)?;
            let bent = |x: &Tensor| x.affine(-2.0, 1.0);
            // Gradients of the factors of the products in the formulas, through `z` and `w`.
            let reaches_dc = plus(&[
                w.mul(f)?,
                times(&[&zi, g, &si])?,
                times(&[&zf, before, &sf])?,
                times(&[&zg, i, &sg])?,
            ])?;
            let reaches_dh = times(&[&zo, tanh, &so])?.add(&times(&[&reaches_dc, o, &st])?)?;
            let reaches_i = times(&[&zi, dc, g, &bent(i)?])?.add(&times(&[&zg, dc, &sg])?)?;
            let reaches_f = w.mul(dc)?.add(&times(&[&zf, dc, before, &bent(f)?])?)?;
            let reaches_g =
                times(&[&zi, dc, &si])?.add(&times(&[&zg, dc, i, g])?.affine(-2.0, 0.0)?)?;
            let reaches_o =
                times(&[&zo, dh, tanh, &bent(o)?])?.add(&times(&[&reaches_dc, dh, &st])?)?;
            let reaches_tanh = times(&[&zo, dh, &so])?
                .add(&times(&[&reaches_dc, dh, o, tanh])?.affine(-2.0, 0.0)?)?;
            let reaches_before = times(&[&zf, dc, &sf])?;
            // `before` is `c` of the previous step, or `c0` at the first step.
            match of_c.last_mut() {
                Some(last) => *last = last.add(&reaches_before)?,
                None => of_c0 = Some(reaches_before),
            }
            of_c.push(reaches_tanh.mul(&st)?);
            of_gates.push(Tensor::concat(&[&reaches_i, &reaches_f, &reaches_g, &reaches_o], 1)?);
            of_dy.push(reaches_dh.clone());
            (v, w) = (reaches_dh, reaches_dc);
        }
        let [of_gates, of_c, of_dy] =
            [of_gates, of_c, of_dy].map(|steps| stacked(&steps).transpose());
        Ok([of_gates?, of_c?, of_c0, of_weight, of_dy?, Some(v), Some(w)])
    }
}
