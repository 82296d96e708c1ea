use super::group::{sides, sizes};
use super::{GRAD_INPUTS, View, cpu, cuts_of_grad, gradients, infer_grad};
use crate::device::{self, DeviceError};
use crate::layout::Layout;
use crate::op::Outputs;
use crate::ops::bf16::{Cut, Cuts};
use crate::ops::check::Fault;
use crate::ops::definition::{Definition, Inputs, Kernel, Registered};
use crate::ops::gradient::{Gradient, Recorded};

#[cfg(feature = "cuda")]
use super::cuda;

/// `(x [n, c, ..], gamma [c], mean [n, groups], inv_std [n, groups], dy [n, c, ..]) -> (dx [n, c,
/// ..], dgamma [c], dbeta [c])`, with `x' = (x - mean) * inv_std` and means over groups:
///
/// - `dx = inv_std * (z - mean(z) - x' * mean(z * x'))`, where `z = gamma * dy`
/// - `dgamma = sum dy * x'` and `dbeta = sum dy`, over the elements of a channel
///
/// If `mean` and `inv_std` are the statistics of `x`, the op computes the gradient of
/// [`GroupNorm`](super::GroupNorm). The op treats `mean` and `inv_std` as ordinary inputs, which
/// have gradients of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct GroupNormGrad {
    /// Number of groups.
    pub groups: usize,
}

impl Definition for GroupNormGrad {
    fn name(&self) -> &str {
        "group_norm_grad"
    }

    fn inputs(&self) -> Inputs {
        GRAD_INPUTS
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault> {
        let [n, channels] = sizes(&inputs[0], self.groups)?;
        infer_grad(inputs, channels, &["mean", "inv_std"], &[n, self.groups])
    }

    fn cuts(&self, _inputs: &[Layout], _outputs: &[Layout]) -> Option<Cuts> {
        Some(cuts_of_grad(Cut::Along(0), 2))
    }

    fn flops(&self, _inputs: &[Layout], outputs: &[Layout]) -> f64 {
        // Flops of each element: x' (2), two sums (3) and dx (6).
        outputs[0].elements() as f64 * 11.0
    }

    fn kernel(&self) -> Option<&dyn Kernel> {
        Some(self)
    }

    fn gradient(&self, of: &Recorded<'_>) -> Gradient {
        gradients::of_grad(of, View::of_groups(&of.shape(0), self.groups), true)
    }
}

impl Kernel for GroupNormGrad {
    fn cpu_workspace(&self, inputs: &[Layout], _outputs: &[Layout]) -> u64 {
        cpu::workspace_of_group_grad(inputs[2].elements(), sides(&inputs[0], self.groups))
    }

    fn cpu(&self, mut run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
        let ([dx, dgamma, dbeta], workspace) = (run.outputs(), run.workspace());
        let [x, gamma, mean, inv_std, dy] = run.floats();
        let of = cpu::GradInputs { x, gamma, mean: Some(mean), inv_std, dy };
        cpu::group_grad([dx, dgamma, dbeta], of, sides(run.input(0), self.groups), workspace);
        Ok(())
    }

    #[cfg(feature = "cuda")]
    fn cuda_workspace(
        &self,
        _libraries: &device::cuda::Libraries,
        inputs: &[Layout],
        _outputs: &[Layout],
    ) -> u64 {
        cuda::workspace_of_group_grad(&inputs[0])
    }

    #[cfg(feature = "cuda")]
    fn cuda(
        &self,
        gpu: &mut device::cuda::Gpu,
        run: &device::cuda::Operands<'_>,
    ) -> Result<(), DeviceError> {
        let scratch = device::cuda::Scratch::of(gpu, run);
        cuda::group_grad(gpu, run.outputs, run.inputs, self.groups, scratch)
    }
}

impl Registered for GroupNormGrad {
    fn each() -> Vec<Self> {
        vec![Self { groups: 1 }]
    }

    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static device::cuda::Family> {
        vec![&cuda::FAMILY]
    }
}
