use super::{beside, channels, cpu, others, seen};
use crate::device::{self, DeviceError};
use crate::error::Error;
use crate::layout::Layout;
use crate::op::Outputs;
use crate::ops::bf16::{Cut, Cuts, Made};
use crate::ops::check::{Fault, fresh, shaped};
use crate::ops::definition::{Definition, Input, Inputs, Kernel, Registered};
use crate::ops::gradient::{Gradient, InputGradients, Recorded};
use crate::ops::{FLOAT, Tensor};
use smallvec::smallvec;

#[cfg(feature = "cuda")]
use crate::device::cuda::{Gpu, Libraries, Scratch};

/// `(x [n, c, ..], gamma [c], mean [c], inv_std [c], dy [n, c, ..]) -> (dx [n, c, ..], dgamma [c],
/// dbeta [c])`, with `x' = (x - mean) * inv_std` and `m` elements in each channel:
///
/// - `dbeta = sum dy`, `dgamma = sum dy * x'`
/// - `dx = gamma * inv_std * (dy - (dbeta + x' * dgamma) / m)`
///
/// If `mean` and `inv_std` are the statistics of `x`, the op computes the gradient of
/// [`BatchNorm`](super::BatchNorm). The op treats `mean` and `inv_std` as ordinary inputs, which
/// have gradients of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct BatchNormGrad;

impl Definition for BatchNormGrad {
    fn name(&self) -> &str {
        "batch_norm_grad"
    }

    fn inputs(&self) -> Inputs {
        Inputs::Each(
            const {
                &[
                    Input::packed("x"),
                    Input::packed("gamma"),
                    Input::packed("mean"),
                    Input::packed("inv_std"),
                    Input::packed("dy"),
                ]
            },
        )
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault> {
        let x = &inputs[0];
        let c = channels(x, &["gamma", "mean", "inv_std"], &inputs[1..4])?;
        shaped(&inputs[4], "dy", FLOAT, x.shape())?;
        Ok(Outputs::fresh([fresh(FLOAT, *x.shape())?, fresh(FLOAT, [c])?, fresh(FLOAT, [c])?]))
    }

    fn cuts(&self, _inputs: &[Layout], _outputs: &[Layout]) -> Option<Cuts> {
        let (images, channels) = (Cut::Along(1), Cut::Along(0));
        Some(Cuts::new(
            [images, channels, channels, channels, images],
            [Made::activations(images), Made::plain(channels), Made::plain(channels)],
        ))
    }

    fn flops(&self, _inputs: &[Layout], outputs: &[Layout]) -> f64 {
        outputs[0].elements() as f64 * 10.0
    }

    fn kernel(&self) -> Option<&dyn Kernel> {
        Some(self)
    }

    fn gradient(&self, of: &Recorded<'_>) -> Gradient {
        let [wants_x, wants_gamma, wants_mean, wants_inv_std, wants_dy] =
            std::array::from_fn(|i| of.wanted(i));
        let wants_normal = wants_x || wants_mean || wants_inv_std;
        let [x, mean, inv_std] = [0, 2, 3].map(|i| of.input(i));
        let gamma = (wants_normal || wants_dy).then(|| of.input(1));
        let dy = (wants_normal || wants_gamma).then(|| of.input(4));
        Gradient::of_all(move |cotangents| {
            let normal = Normal::new(&x, &mean, &inv_std)?;
            let channels = |t: Option<&Tensor>| t.map(|t| beside(t, x.rank())).transpose();
            let (u, dy) = (cotangents[0].as_ref(), dy.as_ref());
            let [v, w] = [channels(cotangents[1].as_ref())?, channels(cotangents[2].as_ref())?];
            let gamma = channels(gamma.as_ref())?;
            let scale = gamma.as_ref().map(|gamma| gamma.mul(&normal.inv_std)).transpose()?;
            let second = Second { normal, gamma, scale, dy, u, v, w };
            let rest = if wants_gamma || wants_inv_std { second.rest()? } else { None };
            let h = if wants_normal { second.of_normal()? } else { None };
            let mut all: InputGradients = smallvec![None; 5];
            if let (Some(h), true) = (&h, wants_x) {
                all[0] = Some(h.mul(&second.normal.inv_std)?);
            }
            if wants_gamma {
                all[1] = second.of_gamma(rest.as_ref())?;
            }
            if let (Some(h), true) = (&h, wants_mean) {
                all[2] = Some(second.of_mean(h)?);
            }
            if wants_inv_std {
                all[3] = second.of_inv_std(h.as_ref(), rest.as_ref())?;
            }
            if wants_dy {
                all[4] = second.of_dy()?;
            }
            Ok(all)
        })
    }
}

impl Kernel for BatchNormGrad {
    fn cpu_workspace(&self, inputs: &[Layout], _outputs: &[Layout]) -> u64 {
        seen(&inputs[0]).workspace()
    }

    fn cpu(&self, mut run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
        cpu::grad(run.outputs(), run.floats(), seen(run.input(0)), run.workspace());
        Ok(())
    }

    #[cfg(feature = "cuda")]
    fn cuda_workspace(&self, _: &Libraries, inputs: &[Layout], _outputs: &[Layout]) -> u64 {
        super::cuda::workspace_of_grad(&inputs[0])
    }

    #[cfg(feature = "cuda")]
    fn cuda(&self, gpu: &mut Gpu, run: &device::cuda::Operands<'_>) -> Result<(), DeviceError> {
        let scratch = Scratch::of(gpu, run);
        super::cuda::grad(gpu, run.outputs, run.inputs, scratch)
    }
}

impl Registered for BatchNormGrad {
    fn each() -> Vec<Self> {
        vec![Self]
    }

    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static crate::device::cuda::Family> {
        vec![&super::cuda::FAMILY]
    }
}

/// Normalized input `x' = (x - mean) * inv_std`, and `inv_std` shaped to broadcast to `x'`.
struct Normal {
    centered: Tensor,
    value: Tensor,
    inv_std: Tensor,
}

impl Normal {
    fn new(x: &Tensor, mean: &Tensor, inv_std: &Tensor) -> Result<Self, Error> {
        let inv_std = beside(inv_std, x.rank())?;
        let centered = x.sub(&beside(mean, x.rank())?)?;
        let value = centered.mul(&inv_std)?;
        Ok(Self { centered, value, inv_std })
    }

    /// Mean of `z` in each channel.
    fn mean(&self, z: &Tensor) -> Result<Tensor, Error> {
        z.mean_along(&others(z.rank()), true)
    }

    /// Mean of `z x'` in each channel, which is the coefficient of `x'` when `z` is projected on
    /// `x'`.
    fn weight(&self, z: &Tensor) -> Result<Tensor, Error> {
        self.mean(&z.mul(&self.value)?)
    }

    /// Computes `z - mean(z) - x' weight(z)`. For `z = dy`, the result is `dx` without the factor
    /// `gamma * inv_std`.
    fn project(&self, z: &Tensor) -> Result<Tensor, Error> {
        z.sub(&self.mean(z)?)?.sub(&self.value.mul(&self.weight(z)?)?)
    }
}

/// Operands of the gradient of [`BatchNormGrad`]. `u`, `v` and `w` are the gradients of `dx`,
/// `dgamma` and `dbeta`. Vectors with one element for each channel are shaped to broadcast to `x`.
struct Second<'a> {
    normal: Normal,
    gamma: Option<Tensor>,
    /// `gamma * inv_std`. `gamma` and `scale` are `Some` unless only the gradient of `gamma` is
    /// wanted.
    scale: Option<Tensor>,
    /// `Some` unless only the gradient of `dy` is wanted.
    dy: Option<&'a Tensor>,
    u: Option<&'a Tensor>,
    v: Option<Tensor>,
    w: Option<Tensor>,
}

impl Second<'_> {
    /// Gradient of `scale`: `sum(u project(dy))`.
    fn rest(&self) -> Result<Option<Tensor>, Error> {
        let (Some(u), Some(dy)) = (self.u, self.dy) else { return Ok(None) };
        let product = u.mul(&self.normal.project(dy)?)?;
        product.sum_along(&others(u.rank()), true).map(Some)
    }

    /// Gradient of `x'`: `v dy - scale (weight(dy) u + weight(u) dy)`.
    fn of_normal(&self) -> Result<Option<Tensor>, Error> {
        let (Some(dy), Some(scale)) = (self.dy, &self.scale) else { return Ok(None) };
        let mut h = None;
        if let Some(v) = &self.v {
            h = plus(h, dy.mul(v)?)?;
        }
        if let Some(u) = self.u {
            let normal = &self.normal;
            let both = u.mul(&normal.weight(dy)?)?.add(&dy.mul(&normal.weight(u)?)?)?;
            h = plus(h, both.mul(&scale.neg()?)?)?;
        }
        Ok(h)
    }

    /// Gradient of `gamma`: `inv_std rest`, where `rest` is the gradient of `scale`.
    fn of_gamma(&self, rest: Option<&Tensor>) -> Result<Option<Tensor>, Error> {
        rest.map(|rest| vector(&rest.mul(&self.normal.inv_std)?)).transpose()
    }

    /// Gradient of `mean`: `-inv_std sum(h)`, where `h` is the gradient of `x'`.
    fn of_mean(&self, h: &Tensor) -> Result<Tensor, Error> {
        let sum = h.sum_along(&others(h.rank()), true)?;
        vector(&sum.mul(&self.normal.inv_std)?.neg()?)
    }

    /// Gradient of `inv_std`: `sum(h (x - mean)) + gamma rest`, where `h` is the gradient of `x'`
    /// and `rest` is the gradient of `scale`.
    fn of_inv_std(
        &self,
        h: Option<&Tensor>,
        rest: Option<&Tensor>,
    ) -> Result<Option<Tensor>, Error> {
        let mut sum = None;
        if let Some(h) = h {
            let product = h.mul(&self.normal.centered)?;
            sum = plus(sum, product.sum_along(&others(h.rank()), true)?)?;
        }
        if let (Some(rest), Some(gamma)) = (rest, &self.gamma) {
            sum = plus(sum, rest.mul(gamma)?)?;
        }
        sum.as_ref().map(vector).transpose()
    }

    /// Gradient of `dy`: `scale project(u) + v x' + w`.
    fn of_dy(&self) -> Result<Option<Tensor>, Error> {
        let x = &self.normal.value;
        let mut sum = None;
        if let (Some(u), Some(scale)) = (self.u, &self.scale) {
            sum = plus(sum, self.normal.project(u)?.mul(scale)?)?;
        }
        if let Some(v) = &self.v {
            sum = plus(sum, x.mul(v)?)?;
        }
        if let Some(w) = &self.w {
            sum = plus(sum, w.broadcast(x.shape())?)?;
        }
        Ok(sum)
    }
}

/// Reshapes `[1, c, 1, ..]` to `[c]`.
fn vector(beside: &Tensor) -> Result<Tensor, Error> {
    beside.reshape(&beside.shape()[1..2])
}

fn plus(sum: Option<Tensor>, term: Tensor) -> Result<Option<Tensor>, Error> {
    sum.map_or_else(|| Ok(term.clone()), |sum| sum.add(&term)).map(Some)
}
