//! Scaled dot-product attention and its gradient, computed tile by tile. The whole matrix of
//! attention probabilities is never in memory at once (Dao et al., "FlashAttention", NeurIPS 2022).

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod grad;
mod second;
mod shape;

pub use grad::AttentionGrad;

use super::bf16::{Cuts, Made, along_longest};
use super::check::{Fault, fresh};
use super::definition::{Definition, Input, Inputs, Kernel, Registered, TRANSCENDENTAL};
use super::gradient::{Gradient, InputGradients, Recorded};
use super::{FLOAT, Tensor};
use crate::device::{self, DeviceError};
use crate::error::Error;
use crate::layout::Layout;
use crate::op::Outputs;
use shape::Shape;

/// `(q [b, h, t, d], k [b, h, s, d], v [b, h, s, d]) -> (y [b, h, t, d], lse [b, h, t])`. The
/// scores are `z = scale * q k^T`. The outputs are `y = softmax(z) v`, and `lse = ln(sum of e^z)`
/// over each row of scores.
///
/// If there are no keys, `y` is zero and `lse` is `-inf`.
///
/// On a GPU, `d` is at most 256.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Attention {
    /// Whether query `i` sees only the keys `0..=i`. As with PyTorch's `is_causal`, both queries
    /// and keys are counted from the first, even if their numbers differ.
    pub causal: bool,
    /// Factor in the scores `scale * q k^T`; `None` for `1 / sqrt(d)`.
    #[cfg_attr(
        feature = "serde",
        serde(
            default,
            skip_serializing_if = "Option::is_none",
            with = "crate::ops::attributes::float::option"
        )
    )]
    pub scale: Option<f32>,
}

impl Tensor {
    /// Scaled dot-product attention of queries `[b, h, t, d]` to `keys` and `values`
    /// `[b, h, s, d]`: `softmax(scale * q k^T) v`. See [`Attention`].
    ///
    /// ```
    /// use remat::ops::Attention;
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("64KiB").cpu()?;
    /// let q = runtime.zeros(&[1, 1, 2, 1])?;
    /// let v = runtime.tensor(&[1, 1, 2, 1], vec![1.0, 3.0])?;
    /// let y = q.attention(&q, &v, Attention { causal: true, scale: None })?;
    /// assert_eq!(y.to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if the operands are not floats of the shapes above, or the scale is not
    /// finite. If `d` is more than 256, the op fails when it runs on a GPU.
    pub fn attention(&self, keys: &Self, values: &Self, op: Attention) -> Result<Self, Error> {
        Ok(Self::call(op, &[self, keys, values])?.swap_remove(0))
    }
}

/// Inputs of [`Attention`]: floats with any strides.
const INPUTS: [Input; 3] = [Input::floats("q"), Input::floats("k"), Input::floats("v")];

impl Definition for Attention {
    fn name(&self) -> &str {
        "attention"
    }

    fn inputs(&self) -> Inputs {
        Inputs::Each(&INPUTS)
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault> {
        let shape = Shape::new(*self, inputs)?;
        Ok(Outputs::fresh([fresh(FLOAT, shape.queries())?, fresh(FLOAT, shape.rows())?]))
    }

    fn cuts(&self, inputs: &[Layout], _outputs: &[Layout]) -> Option<Cuts> {
        let heads = along_longest(inputs[0].shape(), 2);
        Some(Cuts::new([heads; 3], [Made::activations(heads), Made::plain(heads)]))
    }

    fn flops(&self, inputs: &[Layout], _outputs: &[Layout]) -> f64 {
        let shape = Shape::of(*self, inputs);
        // Flops: two matrix products, and for each score an exponential, a multiplication, a
        // comparison, a subtraction and an addition.
        shape.scores() * (4.0 * shape.d as f64 + TRANSCENDENTAL + 4.0)
    }

    fn kernel(&self) -> Option<&dyn Kernel> {
        Some(self)
    }

    fn gradient(&self, of: &Recorded<'_>) -> Gradient {
        let op = AttentionGrad(*self);
        let wanted = [0, 1, 2].map(|i| of.wanted(i));
        let [q, k, v] = [0, 1, 2].map(|i| of.input(i));
        let [y, lse] = [0, 1].map(|i| of.output(i));
        Gradient::of_all(move |dys| {
            // The gradient of a softmax row subtracts `delta = sum(dy * y)`. A gradient of `lse`
            // adds to the gradient of each score in the row, in proportion to the probability of
            // the score. The gradient of `lse` is therefore subtracted from `delta`.
            let (dy, delta) = match (&dys[0], &dys[1]) {
                (Some(dy), None) => (dy.clone(), dy.mul(&y)?.sum_along(&[3], false)?),
                (Some(dy), Some(dlse)) => {
                    (dy.clone(), dy.mul(&y)?.sum_along(&[3], false)?.sub(dlse)?)
                }
                (None, Some(dlse)) => (y.scalar(0.0)?.broadcast(y.shape())?, dlse.neg()?),
                (None, None) => return Ok(InputGradients::new()),
            };
            let found = Tensor::call(op, &[&q, &k, &v, &lse, &delta, &dy])?;
            Ok(found.into_iter().zip(wanted).map(|(dx, wanted)| wanted.then_some(dx)).collect())
        })
    }
}

impl Kernel for Attention {
    fn cpu_workspace(&self, inputs: &[Layout], _outputs: &[Layout]) -> u64 {
        cpu::workspace(&Shape::of(*self, inputs))
    }

    fn cpu(&self, mut run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
        let inputs = [0, 1, 2].map(|i| *run.input(i));
        let shape = Shape::of(*self, &inputs);
        let [q, k, v] = [0, 1, 2].map(|i| cpu::HeadRows::new(run.read(i), &inputs[i]));
        let ([y, lse], workspace) = (run.outputs(), run.workspace());
        cpu::forward(&shape, [y, lse], [q, k, v], workspace);
        Ok(())
    }

    #[cfg(feature = "cuda")]
    fn cuda(
        &self,
        gpu: &mut device::cuda::Gpu,
        run: &device::cuda::Operands<'_>,
    ) -> Result<(), DeviceError> {
        cuda::forward(gpu, *self, run)
    }
}

impl Registered for Attention {
    fn each() -> Vec<Self> {
        vec![Self::default()]
    }

    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static device::cuda::Family> {
        vec![&cuda::FAMILY]
    }
}
