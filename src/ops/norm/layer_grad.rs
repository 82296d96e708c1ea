use super::second::Second;
use super::{View, cpu, rows};
use crate::device::{self, DeviceError};
use crate::layout::Layout;
use crate::op::Outputs;
use crate::ops::FLOAT;
use crate::ops::bf16::{Cut, Cuts, Made, along_longest};
use crate::ops::check::{Fault, fresh, shaped};
use crate::ops::definition::{Definition, Input, Inputs, Kernel, Registered};
use crate::ops::gradient::{Gradient, Recorded};

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

    fn cuts(&self, inputs: &[Layout], _outputs: &[Layout]) -> Option<Cuts> {
        let rows = along_longest(inputs[0].shape(), inputs[0].rank() - 1);
        Some(Cuts::new(
            [rows, Cut::Whole, rows, rows, rows],
            [Made::activations(rows), Made::sum(), Made::sum()],
        ))
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
            view: View::of_rows(&of.shape(0)),
            x: of.input(0),
            mean: Some(of.input(2)),
            inv_std: of.input(3),
            of_gamma: of.wanted(1).then(|| of.input(4)),
            of_dy: of.wanted(4).then(|| of.input(1)),
            of_normal: normal.contains(&true).then(|| ([of.input(1), of.input(4)], normal)),
        };
        Gradient::of_all(move |cotangents| {
            let found = second.gradients([0, 1, 2].map(|i| cotangents[i].as_ref()))?;
            Ok(found.into_iter().collect())
        })
    }
}

impl Kernel for LayerNormGrad {
    fn cpu_workspace(&self, inputs: &[Layout], _outputs: &[Layout]) -> u64 {
        cpu::workspace_of_grad(inputs[2].elements(), inputs[1].elements())
    }

    fn cpu(&self, mut run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
        let [dx, dgamma, dbeta] = run.outputs();
        let [x, gamma, mean, inv_std, dy] = run.floats();
        let of = cpu::Rows { x, gamma, mean: Some(mean), inv_std, dy };
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
