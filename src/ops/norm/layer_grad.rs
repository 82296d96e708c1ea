use super::{GRAD_INPUTS, View, cpu, cuts_of_grad, gradients, infer_grad, rows};
use crate::device::{self, DeviceError};
use crate::layout::Layout;
use crate::op::Outputs;
use crate::ops::bf16::{Cuts, along_longest};
use crate::ops::check::Fault;
use crate::ops::definition::{Definition, Inputs, Kernel, Registered};
use crate::ops::gradient::{Gradient, Recorded};

#[cfg(feature = "cuda")]
use super::cuda;

/// `(x [.., n], gamma [n], mean [..], inv_std [..], dy [.., n]) -> (dx [.., n], dgamma [n], dbeta
/// [n])`, with `x' = (x - mean) * inv_std` and means along the last dimension:
///
/// - `dx = inv_std * (z - mean(z) - x' * mean(z * x'))`, where `z = gamma * dy`
/// - `dgamma = sum dy * x'` and `dbeta = sum dy`, over all rows
///
/// If `mean` and `inv_std` are the statistics of `x`, the op computes the gradient of
/// [`LayerNorm`](super::LayerNorm). The op treats `mean` and `inv_std` as ordinary inputs, which
/// have gradients of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LayerNormGrad;

impl Definition for LayerNormGrad {
    fn name(&self) -> &str {
        "layer_norm_grad"
    }

    fn inputs(&self) -> Inputs {
        GRAD_INPUTS
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault> {
        let (rows, n) = rows(&inputs[0])?;
        infer_grad(inputs, n, &["mean", "inv_std"], &rows)
    }

    fn cuts(&self, inputs: &[Layout], _outputs: &[Layout]) -> Option<Cuts> {
        let rows = along_longest(inputs[0].shape(), inputs[0].rank() - 1);
        Some(cuts_of_grad(rows, 2))
    }

    fn flops(&self, _inputs: &[Layout], outputs: &[Layout]) -> f64 {
        // Flops of each element: z (1), x' (2), two sums (3), dx (4), and the sums over rows (3).
        outputs[0].elements() as f64 * 13.0
    }

    fn kernel(&self) -> Option<&dyn Kernel> {
        Some(self)
    }

    fn gradient(&self, of: &Recorded<'_>) -> Gradient {
        gradients::of_grad(of, View::of_rows(&of.shape(0)), true)
    }
}

impl Kernel for LayerNormGrad {
    fn cpu_workspace(&self, inputs: &[Layout], _outputs: &[Layout]) -> u64 {
        cpu::workspace_of_grad(inputs[2].elements(), inputs[1].elements())
    }

    fn cpu(&self, mut run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
        let [dx, dgamma, dbeta] = run.outputs();
        let [x, gamma, mean, inv_std, dy] = run.floats();
        let of = cpu::GradInputs { x, gamma, mean: Some(mean), inv_std, dy };
        cpu::grad([dx, dgamma, dbeta], of, run.workspace());
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
        let [dx, dgamma, dbeta] = [&run.outputs[0], &run.outputs[1], &run.outputs[2]];
        let [x, gamma, mean, inv_std, dy] = std::array::from_fn(|i| &run.inputs[i]);
        let inputs = [x, gamma, inv_std, dy];
        cuda::grad(gpu, [dx, dgamma], inputs, Some([mean, dbeta]), scratch)
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
