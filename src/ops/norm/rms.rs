use super::{View, cpu, cuts_of_grad, gradients, infer_grad, rows};
use crate::device::{self, DeviceError};
use crate::error::Error;
use crate::layout::Layout;
use crate::op::Outputs;
use crate::ops::bf16::{Cut, Cuts, Made, along_longest};
use crate::ops::check::{Fault, fresh, number, shaped};
use crate::ops::definition::{Definition, Input, Inputs, Kernel, Registered};
use crate::ops::gradient::{Gradient, Recorded};
use crate::ops::{FLOAT, Tensor};

#[cfg(feature = "cuda")]
use super::cuda;

/// `(x [.., n], gamma [n]) -> (y [.., n], inv_rms [..])`, for rows along the last dimension:
/// `y = x * inv_rms * gamma`, with `inv_rms = 1 / sqrt(mean(x^2) + eps)` of each row (Zhang and
/// Sennrich, 2019).
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct RmsNorm {
    /// Number added to the mean of squares.
    #[cfg_attr(feature = "serde", serde(with = "crate::ops::attributes::float"))]
    pub eps: f32,
}

/// `(x [.., n], gamma [n], inv_rms [..], dy [.., n]) -> (dx [.., n], dgamma [n])`, with
/// `x' = x * inv_rms` and means along the last dimension:
///
/// - `dx = inv_rms * (z - x' * mean(z * x'))`, where `z = gamma * dy`
/// - `dgamma = sum dy * x'`, over all rows
///
/// If `inv_rms` is the statistic of `x`, the op computes the gradient of [`RmsNorm`]. The op treats
/// `inv_rms` as an ordinary input, which has a gradient of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RmsNormGrad;

impl Tensor {
    /// RMS normalization along the last dimension: `x / sqrt(mean(x^2) + eps) * gamma`. `gamma` has
    /// one element for each element of a row. See [`RmsNorm`].
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[2, 2], vec![2.0, -2.0, 4.0, 4.0])?;
    /// let y = x.rms_norm(&runtime.ones(&[2])?, 0.0)?;
    /// assert_eq!(y.to_vec::<f32>()?, [1.0, -1.0, 1.0, 1.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if:
    ///
    /// - this tensor is a scalar, does not hold floats, or has rows without elements;
    /// - `gamma` does not have one element for each element of a row;
    /// - `eps` is negative or not finite.
    pub fn rms_norm(&self, gamma: &Self, eps: f32) -> Result<Self, Error> {
        Self::call1(RmsNorm { eps }, &[self, gamma])
    }
}

impl Definition for RmsNorm {
    fn name(&self) -> &str {
        "rms_norm"
    }

    fn inputs(&self) -> Inputs {
        Inputs::Each(const { &[Input::packed("x"), Input::packed("gamma")] })
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault> {
        let x = &inputs[0];
        let (rows, n) = rows(x)?;
        shaped(&inputs[1], "gamma", FLOAT, &[n])?;
        number(self.eps, "eps", 0.0)?;
        if n == 0 && rows.elements() > 0 {
            return Err(format!("x is {x}, expected at least one element per row"));
        }
        Ok(Outputs::fresh([fresh(FLOAT, *x.shape())?, fresh(FLOAT, rows)?]))
    }

    fn cuts(&self, inputs: &[Layout], _outputs: &[Layout]) -> Option<Cuts> {
        let rows = along_longest(inputs[0].shape(), inputs[0].rank() - 1);
        Some(Cuts::new([rows, Cut::Whole], [Made::activations(rows), Made::plain(rows)]))
    }

    fn flops(&self, _inputs: &[Layout], outputs: &[Layout]) -> f64 {
        // Flops of each element: 2 for the sum of squares, and two multiplications.
        outputs[0].elements() as f64 * 4.0
    }

    fn kernel(&self) -> Option<&dyn Kernel> {
        Some(self)
    }

    fn gradient(&self, of: &Recorded<'_>) -> Gradient {
        gradients::of_norm(of, View::of_rows(&of.shape(0)), false, RmsNormGrad)
    }
}

impl Kernel for RmsNorm {
    fn cpu(&self, mut run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
        cpu::rms(run.outputs(), run.floats(), self.eps);
        Ok(())
    }

    #[cfg(feature = "cuda")]
    fn cuda(
        &self,
        gpu: &mut device::cuda::Gpu,
        run: &device::cuda::Operands<'_>,
    ) -> Result<(), DeviceError> {
        let [y, inv_rms] = [&run.outputs[0], &run.outputs[1]];
        cuda::forward(gpu, [y, inv_rms, &run.inputs[0], &run.inputs[1]], None, self.eps)
    }
}

impl Registered for RmsNorm {
    fn each() -> Vec<Self> {
        vec![Self { eps: 1e-5 }]
    }

    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static device::cuda::Family> {
        vec![&cuda::FAMILY]
    }
}

impl Definition for RmsNormGrad {
    fn name(&self) -> &str {
        "rms_norm_grad"
    }

    fn inputs(&self) -> Inputs {
        Inputs::Each(
            const {
                &[
                    Input::packed("x"),
                    Input::packed("gamma"),
                    Input::packed("inv_rms"),
                    Input::packed("dy"),
                ]
            },
        )
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault> {
        let (rows, n) = rows(&inputs[0])?;
        infer_grad(inputs, n, &["inv_rms"], &rows)
    }

    fn cuts(&self, inputs: &[Layout], _outputs: &[Layout]) -> Option<Cuts> {
        let rows = along_longest(inputs[0].shape(), inputs[0].rank() - 1);
        Some(cuts_of_grad(rows, 1))
    }

    fn flops(&self, _inputs: &[Layout], outputs: &[Layout]) -> f64 {
        // Flops of each element: z (1), x' (1), a sum (2), dx (3), and the sum over rows (2).
        outputs[0].elements() as f64 * 9.0
    }

    fn kernel(&self) -> Option<&dyn Kernel> {
        Some(self)
    }

    fn gradient(&self, of: &Recorded<'_>) -> Gradient {
        gradients::of_grad(of, View::of_rows(&of.shape(0)), false)
    }
}

impl Kernel for RmsNormGrad {
    fn cpu_workspace(&self, inputs: &[Layout], _outputs: &[Layout]) -> u64 {
        // The kernel also computes sums of `dy`. RMS normalization does not use the sums of `dy`,
        // but the kernel needs workspace for them.
        let n = inputs[1].elements();
        cpu::workspace_of_grad(inputs[2].elements(), n)
            .saturating_add((n * size_of::<f32>()) as u64)
    }

    fn cpu(&self, mut run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
        let ([dx, dgamma], [x, gamma, inv_std, dy]) = (run.outputs(), run.floats());
        let (sums, workspace) = run.workspace::<u32>().split_at_mut(gamma.len());
        let of = cpu::GradInputs { x, gamma, mean: None, inv_std, dy };
        cpu::grad([dx, dgamma, bytemuck::cast_slice_mut(sums)], of, workspace);
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
        let inputs = std::array::from_fn(|i| &run.inputs[i]);
        cuda::grad(gpu, [&run.outputs[0], &run.outputs[1]], inputs, None, scratch)
    }
}

impl Registered for RmsNormGrad {
    fn each() -> Vec<Self> {
        vec![Self]
    }

    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static device::cuda::Family> {
        vec![&cuda::FAMILY]
    }
}
