use super::{SHAPES, absurd, add, beside, cpu, draw_operands, operands, rows};
use crate::device::{self, DeviceError};
use crate::error::Error;
use crate::layout::{Dims, Layout};
use crate::op::Outputs;
use crate::ops::check::{Fault, fresh, shaped};
use crate::ops::definition::{Definition, Input, Inputs, Kernel, Registered};
use crate::ops::gradient::{Gradient, InputGradients, Recorded, sum_to};
use crate::ops::samples::{Draw, Sample};
use crate::ops::{FLOAT, Op, Tensor};
use smallvec::smallvec;

#[cfg(feature = "cuda")]
use super::cuda;

/// `(x [.., n], gamma [n], mean [..], inv_std [..], dy [.., n]) -> (dx [.., n], dgamma [n], dbeta [n])`, with
/// `x' = (x - mean) * inv_std` and means along the last dimension:
///
/// - `dx = inv_std * (z - mean(z) - x' * mean(z * x'))`, where `z = gamma * dy`
/// - `dgamma = sum dy * x'` and `dbeta = sum dy`, over all rows
///
/// With `mean` and `inv_std` of `x`, it is the gradient of [`LayerNorm`](super::LayerNorm); but they are inputs like any
/// other, with gradients of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LayerNormGrad;

impl Definition for LayerNormGrad {
    fn name(&self) -> &str {
        "layer_norm_grad"
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
        let (rows, n) = rows(x)?;
        shaped(&inputs[1], "gamma", FLOAT, &[n])?;
        shaped(&inputs[2], "mean", FLOAT, &rows)?;
        shaped(&inputs[3], "inv_std", FLOAT, &rows)?;
        shaped(&inputs[4], "dy", FLOAT, x.shape())?;
        let vector = fresh(FLOAT, [n])?;
        Ok(Outputs::fresh([fresh(FLOAT, *x.shape())?, vector, vector]))
    }

    fn flops(&self, _inputs: &[Layout], outputs: &[Layout]) -> f64 {
        // z, x' (2) and two sums (3); dx (4); and the sums over rows (3).
        outputs[0].elements() as f64 * 13.0
    }

    fn kernel(&self) -> Option<&dyn Kernel> {
        Some(self)
    }

    fn gradient(&self, of: &Recorded<'_>) -> Gradient {
        let normal = [0, 2, 3].map(|i| of.wanted(i));
        let second = Second {
            x: of.input(0),
            mean: of.input(2),
            inv_std: of.input(3),
            of_gamma: of.wanted(1).then(|| of.input(4)),
            of_dy: of.wanted(4).then(|| of.input(1)),
            of_normal: normal.contains(&true).then(|| ([of.input(1), of.input(4)], normal)),
        };
        Gradient::of_all(move |cotangents| second.gradients(cotangents))
    }

    fn samples(&self) -> Vec<Sample> {
        let shapes = SHAPES.iter().copied().chain([&[5, 0][..]]);
        shapes.map(|shape| Sample::new(*self, operands(shape))).collect()
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        let shape = draw.shape(1, 4);
        Sample::new(*self, draw_operands(draw, shape))
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        let [x, n, rows] = absurd(draw);
        (Self.into(), vec![x, n, rows, rows, x])
    }
}

impl Kernel for LayerNormGrad {
    fn cpu_workspace(&self, inputs: &[Layout], _outputs: &[Layout]) -> u64 {
        cpu::workspace_of_grad(inputs[2].elements(), inputs[1].elements())
    }

    fn cpu(&self, mut run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
        cpu::grad(run.outputs(), run.floats(), run.workspace());
        Ok(())
    }

    #[cfg(feature = "cuda")]
    fn cuda_workspace(
        &self,
        _libraries: &device::cuda::Libraries,
        inputs: &[Layout],
        _outputs: &[Layout],
    ) -> u64 {
        cuda::workspace_of_grad(inputs[2].elements(), inputs[1].elements())
    }

    #[cfg(feature = "cuda")]
    fn cuda(
        &self,
        gpu: &mut device::cuda::Gpu,
        run: &device::cuda::Operands<'_>,
    ) -> Result<(), DeviceError> {
        let scratch = device::cuda::Scratch::of(gpu, run);
        cuda::grad(gpu, run.outputs, run.inputs, scratch)
    }
}

impl Registered for LayerNormGrad {
    fn each() -> Vec<Self> {
        vec![Self]
    }

    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static device::cuda::Family> {
        vec![&cuda::FAMILY]
    }
}

/// What the gradient of [`LayerNormGrad`] reads.
struct Second {
    x: Tensor,
    mean: Tensor,
    inv_std: Tensor,
    /// `dy`, where the gradient of `gamma` is wanted.
    of_gamma: Option<Tensor>,
    /// `gamma`, where that of `dy` is wanted.
    of_dy: Option<Tensor>,
    /// `gamma` and `dy`, where that of `x`, `mean` or `inv_std` is wanted: which of them, in order.
    of_normal: Option<([Tensor; 2], [bool; 3])>,
}

impl Second {
    /// Gradients of the inputs, `u`, `v` and `w` being those of `dx`, `dgamma` and `dbeta`. With
    /// `project(t) = t - mean(t) - x' mean(t x')`; a sum of products is the same whichever factor is projected:
    ///
    /// - of `dy`: `gamma inv_std project(u) + v x' + w`
    /// - of `gamma`: `inv_std project(u) dy`, summed over rows
    /// - of `x'`: `h = v dy - inv_std (mean(z x') u + mean(u x') z)`; and of that
    /// - of `x`: `inv_std h`; of `mean`: minus that, summed along the row
    /// - of `inv_std`: `project(u) z + h (x - mean)`, summed along the row
    fn gradients(&self, cotangents: &[Option<Tensor>]) -> Result<InputGradients, Error> {
        let [u, v, w] = [0, 1, 2].map(|i| cotangents[i].as_ref());
        let (x, inv_std) = (&self.x, &beside(&self.inv_std)?);
        let centered = &x.sub(&beside(&self.mean)?)?;
        let normal = &centered.mul(inv_std)?;
        let [mut dx, mut dgamma, mut dmean, mut dinv_std, mut ddy, mut h] = [const { None }; 6];
        if let Some(u) = u {
            let weight = &mean(&u.mul(normal)?)?;
            let projected = &u.sub(&mean(u)?)?.sub(&normal.mul(weight)?)?;
            let scaled = &projected.mul(inv_std)?;
            if let Some(dy) = &self.of_gamma {
                dgamma = Some(sum_to(&scaled.mul(dy)?, &Dims::new(&x.shape()[x.rank() - 1..]))?);
            }
            if let Some(gamma) = &self.of_dy {
                ddy = Some(scaled.mul(gamma)?);
            }
            if let Some(([gamma, dy], [.., wants_inv_std])) = &self.of_normal {
                let z = &dy.mul(gamma)?;
                let both = u.mul(&mean(&z.mul(normal)?)?)?.add(&z.mul(weight)?)?;
                h = Some(both.mul(&inv_std.neg()?)?);
                if *wants_inv_std {
                    dinv_std = Some(sum(&projected.mul(z)?)?);
                }
            }
        }
        if let Some(v) = v {
            if self.of_dy.is_some() {
                add(&mut ddy, normal.mul(v)?)?;
            }
            if let Some(([_, dy], _)) = &self.of_normal {
                add(&mut h, dy.mul(v)?)?;
            }
        }
        if let (Some(w), Some(_)) = (w, &self.of_dy) {
            add(&mut ddy, w.broadcast(x.shape())?)?;
        }
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
        Ok(smallvec![dx, dgamma, dmean, dinv_std, ddy])
    }
}

/// The sum of each row.
fn sum(t: &Tensor) -> Result<Tensor, Error> {
    t.sum_along(&[t.rank() - 1], false)
}

/// The mean of each row, to lie beside it.
fn mean(t: &Tensor) -> Result<Tensor, Error> {
    t.mean_along(&[t.rank() - 1], true)
}
