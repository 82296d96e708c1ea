use super::{LayerNormGrad, View, cpu, gradients, rows};
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

/// `(x [.., n], gamma [n], beta [n]) -> (y [.., n], mean [..], inv_std [..])`, for rows along the
/// last dimension: `y = (x - mean) * inv_std * gamma + beta`. `mean` and
/// `inv_std = 1 / sqrt(var + eps)` are statistics of each row, with the biased variance (Ba, Kiros
/// and Hinton, 2016).
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct LayerNorm {
    /// Number added to the variance.
    #[cfg_attr(feature = "serde", serde(with = "crate::ops::attributes::float"))]
    pub eps: f32,
}

impl Tensor {
    /// Layer normalization along the last dimension: `(x - mean) / sqrt(var + eps) * gamma + beta`.
    /// `gamma` and `beta` have one element for each element of a row. See [`LayerNorm`].
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("64KiB").cpu()?;
    /// let x = runtime.tensor(&[2, 2], vec![1.0, 3.0, 5.0, 1.0])?;
    /// let y = x.layer_norm(&runtime.ones(&[2])?, &runtime.zeros(&[2])?, 0.0)?;
    /// assert_eq!(y.to_vec::<f32>()?, [-1.0, 1.0, 1.0, -1.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if:
    ///
    /// - this tensor is a scalar, does not hold floats, or has rows without elements;
    /// - a parameter does not have one element for each element of a row;
    /// - `eps` is negative or not finite.
    pub fn layer_norm(&self, gamma: &Self, beta: &Self, eps: f32) -> Result<Self, Error> {
        Self::call1(LayerNorm { eps }, &[self, gamma, beta])
    }
}

impl Definition for LayerNorm {
    fn name(&self) -> &str {
        "layer_norm"
    }

    fn inputs(&self) -> Inputs {
        Inputs::Each(const { &[Input::packed("x"), Input::packed("gamma"), Input::packed("beta")] })
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault> {
        let [x, gamma, beta] = [&inputs[0], &inputs[1], &inputs[2]];
        let (rows, n) = rows(x)?;
        shaped(gamma, "gamma", FLOAT, &[n])?;
        shaped(beta, "beta", FLOAT, &[n])?;
        number(self.eps, "eps", 0.0)?;
        if n == 0 && rows.elements() > 0 {
            return Err(format!("x is {x}, expected at least one element per row"));
        }
        let statistic = fresh(FLOAT, rows)?;
        Ok(Outputs::fresh([fresh(FLOAT, *x.shape())?, statistic, statistic]))
    }

    fn cuts(&self, inputs: &[Layout], _outputs: &[Layout]) -> Option<Cuts> {
        let rows = along_longest(inputs[0].shape(), inputs[0].rank() - 1);
        Some(Cuts::new(
            [rows, Cut::Whole, Cut::Whole],
            [Made::activations(rows), Made::plain(rows), Made::plain(rows)],
        ))
    }

    fn flops(&self, _inputs: &[Layout], outputs: &[Layout]) -> f64 {
        // Flops of each element: 4 for the sum and the sum of squared distances, then a
        // subtraction, two multiplications and an addition.
        outputs[0].elements() as f64 * 8.0
    }

    fn kernel(&self) -> Option<&dyn Kernel> {
        Some(self)
    }

    fn gradient(&self, of: &Recorded<'_>) -> Gradient {
        gradients::of_norm(of, View::of_rows(&of.shape(0)), true, LayerNormGrad)
    }
}

impl Kernel for LayerNorm {
    fn cpu(&self, mut run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
        cpu::layer(run.outputs(), run.floats(), self.eps);
        Ok(())
    }

    #[cfg(feature = "cuda")]
    fn cuda(
        &self,
        gpu: &mut device::cuda::Gpu,
        run: &device::cuda::Operands<'_>,
    ) -> Result<(), DeviceError> {
        let [y, mean, inv_std] = [&run.outputs[0], &run.outputs[1], &run.outputs[2]];
        let [x, gamma, beta] = [&run.inputs[0], &run.inputs[1], &run.inputs[2]];
        cuda::forward(gpu, [y, inv_std, x, gamma], Some([mean, beta]), self.eps)
    }
}

impl Registered for LayerNorm {
    fn each() -> Vec<Self> {
        vec![Self { eps: 1e-5 }]
    }

    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static device::cuda::Family> {
        vec![&cuda::FAMILY]
    }
}
