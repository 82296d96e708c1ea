use super::cpu::{self, Parameters, Statistics};
use super::{BatchNormGrad, BatchNormParameters, beside, channels, seen};
use crate::device::{self, DeviceError};
use crate::error::Error;
use crate::layout::Layout;
use crate::op::Outputs;
use crate::ops::bf16::{Cut, Cuts, Made};
use crate::ops::check::{Fault, fresh, number};
use crate::ops::definition::{Definition, Input, Inputs, Kernel, Registered};
use crate::ops::gradient::{Gradient, InputGradients, Recorded};
use crate::ops::{FLOAT, Tensor};
use smallvec::{SmallVec, smallvec};

#[cfg(feature = "cuda")]
use crate::device::cuda::{Gpu, Libraries, Scratch};

/// `(x [n, c, ..], gamma [c], beta [c], running_mean [c], running_var [c]) -> (y, mean [c], inv_std
/// [c], new_running_mean [c], new_running_var [c])`:
///
/// - `y = (x - mean) * inv_std * gamma + beta`, with `mean` and `inv_std = 1 / sqrt(var + eps)` of
///   the batch, channel by channel;
/// - `new_running_mean = (1 - momentum) * running_mean + momentum * mean`. `new_running_var` is
///   computed in the same way from the unbiased variance of the batch.
///
/// The op updates no tensor in place, so a recomputation gives the results of the first run. The
/// gradient treats the running statistics as constants.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct BatchNorm {
    /// Weight of the newest batch in the running statistics.
    #[cfg_attr(feature = "serde", serde(with = "crate::ops::attributes::float"))]
    pub momentum: f32,
    /// Number added to the variance.
    #[cfg_attr(feature = "serde", serde(with = "crate::ops::attributes::float"))]
    pub eps: f32,
}

/// Results of [`Tensor::batch_norm`].
#[derive(Clone, Debug)]
pub struct BatchNormOutput {
    /// Normalized tensor.
    pub y: Tensor,
    /// Mean of each channel of the batch.
    pub mean: Tensor,
    /// `1 / sqrt(var + eps)` of each channel of the batch.
    pub inv_std: Tensor,
    /// Running mean, updated with this batch.
    pub running_mean: Tensor,
    /// Running variance, updated with this batch.
    pub running_var: Tensor,
}

impl Tensor {
    /// Batch normalization of `[n, c, ..]` with the statistics of the batch. `momentum` is the
    /// weight of this batch in the running statistics. `eps` is added to the variance. See
    /// [`BatchNorm`].
    ///
    /// ```
    /// # use remat::prelude::*;
    /// use remat::ops::BatchNormParameters;
    ///
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let [zeros, ones] = [runtime.zeros(&[1])?, runtime.ones(&[1])?];
    /// let with = BatchNormParameters {
    ///     gamma: &ones,
    ///     beta: &zeros,
    ///     running_mean: &zeros,
    ///     running_var: &ones,
    /// };
    /// let out = runtime.tensor(&[2, 1], vec![1.0, 3.0])?.batch_norm(&with, 0.5, 0.0)?;
    /// assert_eq!(out.y.to_vec::<f32>()?, [-1.0, 1.0]);
    /// assert_eq!(out.mean.to_vec::<f32>()?, [2.0]);
    /// assert_eq!(out.running_mean.to_vec::<f32>()?, [1.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if this tensor does not hold floats, has fewer than two elements in a channel,
    /// or a parameter does not have one element for each channel.
    pub fn batch_norm(
        &self,
        with: &BatchNormParameters<'_>,
        momentum: f32,
        eps: f32,
    ) -> Result<BatchNormOutput, Error> {
        let outputs = Self::call(BatchNorm { momentum, eps }, &with.beside(self))?;
        let [y, mean, inv_std, running_mean, running_var] =
            std::array::from_fn(|i| outputs[i].clone());
        Ok(BatchNormOutput { y, mean, inv_std, running_mean, running_var })
    }
}

impl Definition for BatchNorm {
    fn name(&self) -> &str {
        "batch_norm"
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
        let x = &inputs[0];
        let roles = ["gamma", "beta", "running_mean", "running_var"];
        let c = channels(x, &roles, &inputs[1..])?;
        number(self.momentum, "momentum", f32::NEG_INFINITY)?;
        number(self.eps, "eps", 0.0)?;
        let each = x.elements().checked_div(c).unwrap_or(2);
        if each < 2 {
            let values = ["no value", "1 value"][each];
            return Err(format!(
                "x is {x} and has {values} of each channel, but training needs at least 2 values for a deviation: take a \
                 larger batch or larger images, or evaluate with Mode::Infer"
            ));
        }
        let statistic = fresh(FLOAT, [c])?;
        Ok(Outputs::fresh([fresh(FLOAT, *x.shape())?, statistic, statistic, statistic, statistic]))
    }

    fn cuts(&self, _inputs: &[Layout], _outputs: &[Layout]) -> Option<Cuts> {
        let (images, channels) = (Cut::Along(1), Cut::Along(0));
        Some(Cuts::new(
            [images, channels, channels, channels, channels],
            [
                Made::activations(images),
                Made::plain(channels),
                Made::plain(channels),
                Made::plain(channels),
                Made::plain(channels),
            ],
        ))
    }

    fn flops(&self, _inputs: &[Layout], outputs: &[Layout]) -> f64 {
        // Flops of each element: 4 for the sum and the sum of squares, then a subtraction, two
        // multiplications and an addition.
        outputs[0].elements() as f64 * 8.0
    }

    fn kernel(&self) -> Option<&dyn Kernel> {
        Some(self)
    }

    fn gradient(&self, of: &Recorded<'_>) -> Gradient {
        let wanted = [0, 1, 2].map(|i| of.wanted(i));
        let [x, gamma] = [0, 1].map(|i| of.input(i));
        let [mean, inv_std] = [1, 2].map(|i| of.output(i));
        Gradient::of_all(move |dys| {
            let mut all: InputGradients = smallvec![None; 3];
            if let Some(dy) = &dys[0] {
                let found = Tensor::call(BatchNormGrad, &[&x, &gamma, &mean, &inv_std, dy])?;
                all = found.into_iter().zip(wanted).map(|(dx, w)| w.then_some(dx)).collect();
            }
            if wanted[0] {
                for more in of_statistics([&x, &mean, &inv_std], [&dys[1], &dys[2]])? {
                    all[0] = Some(match &all[0] {
                        Some(dx) => dx.add(&more)?,
                        None => more,
                    });
                }
            }
            Ok(all)
        })
    }
}

/// Contributions of the gradients of `mean` and `inv_std` to the gradient of `x`: `dmean / m` and
/// `-inv_std^3 (x - mean) dinv_std / m`. Each channel has `m` elements.
fn of_statistics(
    [x, mean, inv_std]: [&Tensor; 3],
    [dmean, dinv_std]: [&Option<Tensor>; 2],
) -> Result<SmallVec<[Tensor; 2]>, Error> {
    let share = x.shape()[1] as f32 / x.layout().elements() as f32;
    let mut all = SmallVec::new();
    if let Some(dmean) = dmean {
        all.push(beside(&dmean.affine(share, 0.0)?, x.rank())?.broadcast(x.shape())?);
    }
    if let Some(dinv_std) = dinv_std {
        let factor = inv_std.square()?.mul(inv_std)?.mul(dinv_std)?.affine(-share, 0.0)?;
        let centered = x.sub(&beside(mean, x.rank())?)?;
        all.push(centered.mul(&beside(&factor, x.rank())?)?);
    }
    Ok(all)
}

impl Kernel for BatchNorm {
    fn cpu_workspace(&self, inputs: &[Layout], _outputs: &[Layout]) -> u64 {
        seen(&inputs[0]).workspace()
    }

    fn cpu(&self, mut run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
        let [x, gamma, beta, running_mean, running_var] = run.floats();
        let with = Parameters { gamma, beta, running_mean, running_var, eps: self.eps };
        let [y, mean, inv_std, running_mean, running_var] = run.outputs();
        let statistics = Statistics { mean, inv_std, running_mean, running_var };
        cpu::train(y, statistics, x, with, self.momentum, seen(run.input(0)), run.workspace());
        Ok(())
    }

    #[cfg(feature = "cuda")]
    fn cuda_workspace(&self, _: &Libraries, inputs: &[Layout], _outputs: &[Layout]) -> u64 {
        super::cuda::workspace_of_train(&inputs[0])
    }

    #[cfg(feature = "cuda")]
    fn cuda(&self, gpu: &mut Gpu, run: &device::cuda::Operands<'_>) -> Result<(), DeviceError> {
        let scratch = Scratch::of(gpu, run);
        super::cuda::train(gpu, run.outputs, run.inputs, self, scratch)
    }
}

impl Registered for BatchNorm {
    fn each() -> Vec<Self> {
        vec![Self { momentum: 0.1, eps: 1e-5 }]
    }

    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static crate::device::cuda::Family> {
        vec![&super::cuda::FAMILY]
    }
}
