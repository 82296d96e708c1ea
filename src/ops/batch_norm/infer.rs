use super::cpu::{self, Parameters};
use super::{BatchNormParameters, beside, channels, others, seen};
use crate::device::{self, DeviceError};
use crate::error::Error;
use crate::layout::Layout;
use crate::op::Outputs;
use crate::ops::bf16::{Cut, Cuts, Made};
use crate::ops::check::{Fault, fresh, number};
use crate::ops::definition::{Definition, Input, Inputs, Kernel, Registered};
use crate::ops::gradient::{Gradient, InputGradients, Recorded};
use crate::ops::{FLOAT, Tensor};
use smallvec::smallvec;

#[cfg(feature = "cuda")]
use crate::device::cuda::{Gpu, Libraries, Scratch};

/// `(x [n, c, ..], gamma [c], beta [c], running_mean [c], running_var [c]) -> (y)`: `y = (x -
/// running_mean) / sqrt(running_var + eps) * gamma + beta`, channel by channel. The gradient treats
/// the running statistics as constants.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct BatchNormInfer {
    /// Number added to the variance.
    #[cfg_attr(feature = "serde", serde(with = "crate::ops::attributes::float"))]
    pub eps: f32,
}

impl Tensor {
    /// Batch normalization of `[n, c, ..]` with the running statistics. See [`BatchNormInfer`].
    ///
    /// ```
    /// # use remat::prelude::*;
    /// use remat::ops::BatchNormParameters;
    ///
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[2, 1], vec![3.0, 5.0])?;
    /// let with = BatchNormParameters {
    ///     gamma: &runtime.ones(&[1])?,
    ///     beta: &runtime.zeros(&[1])?,
    ///     running_mean: &runtime.full(&[1], 1.0)?,
    ///     running_var: &runtime.full(&[1], 4.0)?,
    /// };
    /// assert_eq!(x.batch_norm_infer(&with, 0.0)?.to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if this tensor does not hold floats, or a parameter does not have one element
    /// for each channel.
    pub fn batch_norm_infer(
        &self,
        with: &BatchNormParameters<'_>,
        eps: f32,
    ) -> Result<Self, Error> {
        Self::call1(BatchNormInfer { eps }, &with.beside(self))
    }
}

impl Definition for BatchNormInfer {
    fn name(&self) -> &str {
        "batch_norm_infer"
    }

    fn inputs(&self) -> Inputs {
        Inputs::Each(
            const {
                &[
                    Input::packed("x"),
                    Input::packed("gamma"),
                    Input::packed("beta"),
                    Input::packed("running_mean"),
                    Input::packed("running_var"),
                ]
            },
        )
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault> {
        let roles = ["gamma", "beta", "running_mean", "running_var"];
        channels(&inputs[0], &roles, &inputs[1..])?;
        number(self.eps, "eps", 0.0)?;
        Ok(Outputs::fresh([fresh(FLOAT, *inputs[0].shape())?]))
    }

    fn cuts(&self, _inputs: &[Layout], _outputs: &[Layout]) -> Option<Cuts> {
        let (images, channels) = (Cut::Along(1), Cut::Along(0));
        Some(Cuts::new(
            [images, channels, channels, channels, channels],
            [Made::activations(images)],
        ))
    }

    fn flops(&self, _inputs: &[Layout], outputs: &[Layout]) -> f64 {
        outputs[0].elements() as f64 * 4.0
    }

    fn kernel(&self) -> Option<&dyn Kernel> {
        Some(self)
    }

    fn gradient(&self, of: &Recorded<'_>) -> Gradient {
        let (rank, eps) = (of.shape(0).len(), self.eps);
        // `detach` makes the running statistics constants, also in a gradient of this gradient.
        let statistic = |i| of.input(i).detach();
        let var = (of.wanted(0) || of.wanted(1)).then(|| statistic(4));
        let gamma = of.wanted(0).then(|| of.input(1));
        let centered = of.wanted(1).then(|| [of.input(0), statistic(3)]);
        let wants_beta = of.wanted(2);
        Gradient::of_first(move |dy| {
            let mut dx: InputGradients = smallvec![None; 3];
            if let Some(var) = &var {
                let inv_std = var.affine(1.0, eps)?.sqrt()?.recip()?;
                if let Some(gamma) = &gamma {
                    dx[0] = Some(dy.mul(&beside(&gamma.mul(&inv_std)?, rank)?)?);
                }
                if let Some([x, mean]) = &centered {
                    let normal = x.sub(&beside(mean, rank)?)?.mul(&beside(&inv_std, rank)?)?;
                    dx[1] = Some(dy.mul(&normal)?.sum_along(&others(rank), false)?);
                }
            }
            if wants_beta {
                dx[2] = Some(dy.sum_along(&others(rank), false)?);
            }
            Ok(dx)
        })
    }
}

impl Kernel for BatchNormInfer {
    fn cpu(&self, mut run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
        let [x, gamma, beta, running_mean, running_var] = run.floats();
        let with = Parameters { gamma, beta, running_mean, running_var, eps: self.eps };
        cpu::infer(run.write(0), x, with, seen(run.input(0)));
        Ok(())
    }

    #[cfg(feature = "cuda")]
    fn cuda_workspace(&self, _: &Libraries, inputs: &[Layout], _outputs: &[Layout]) -> u64 {
        super::cuda::workspace_of_infer(&inputs[0])
    }

    #[cfg(feature = "cuda")]
    fn cuda(&self, gpu: &mut Gpu, run: &device::cuda::Operands<'_>) -> Result<(), DeviceError> {
        let scratch = Scratch::of(gpu, run);
        super::cuda::infer(gpu, &run.outputs[0], run.inputs, self.eps, scratch)
    }
}

impl Registered for BatchNormInfer {
    fn each() -> Vec<Self> {
        vec![Self { eps: 1e-5 }]
    }

    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static crate::device::cuda::Family> {
        vec![&super::cuda::FAMILY]
    }
}
