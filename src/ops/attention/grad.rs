use super::second::Second;
use super::shape::Shape;
use super::{Attention, INPUTS, cpu};
use crate::device::{self, DeviceError};
use crate::layout::Layout;
use crate::op::Outputs;
use crate::ops::FLOAT;
use crate::ops::bf16::{Cuts, Made, along_longest};
use crate::ops::check::{Fault, fresh, shaped};
use crate::ops::definition::{Definition, Input, Inputs, Kernel, Registered, TRANSCENDENTAL};
use crate::ops::gradient::{Gradient, Recorded};

#[cfg(feature = "cuda")]
use super::cuda;

/// `(q [b, h, t, d], k [b, h, s, d], v [b, h, s, d], lse [b, h, t], delta [b, h, t], dy [b, h, t,
/// d]) -> (dq, dk, dv)`, the gradient of [`Attention`], where `delta = sum of dy * y` along rows.
/// The op recomputes the probabilities `p = e^(scale * q k^T - lse)`. With `ds = p * (dy v^T -
/// delta)`, the outputs are
///
/// - `dq = scale * ds k`
/// - `dk = scale * ds^T q`
/// - `dv = p^T dy`
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct AttentionGrad(pub Attention);

impl Definition for AttentionGrad {
    fn name(&self) -> &str {
        "attention_grad"
    }

    fn inputs(&self) -> Inputs {
        Inputs::Each(
            const {
                let [q, k, v] = INPUTS;
                &[q, k, v, Input::packed("lse"), Input::packed("delta"), Input::floats("dy")]
            },
        )
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault> {
        let shape = Shape::new(self.0, inputs)?;
        shaped(&inputs[3], "lse", FLOAT, &shape.rows())?;
        shaped(&inputs[4], "delta", FLOAT, &shape.rows())?;
        shaped(&inputs[5], "dy", FLOAT, &shape.queries())?;
        let [dq, dk] = [shape.queries(), shape.keys()].map(|shape| fresh(FLOAT, shape));
        let dk = dk?;
        Ok(Outputs::fresh([dq?, dk, dk]))
    }

    fn cuts(&self, inputs: &[Layout], _outputs: &[Layout]) -> Option<Cuts> {
        let heads = along_longest(inputs[0].shape(), 2);
        Some(Cuts::new([heads; 6], [Made::activations(heads); 3]))
    }

    fn flops(&self, inputs: &[Layout], _outputs: &[Layout]) -> f64 {
        let shape = Shape::of(self.0, inputs);
        // Flops: five matrix products, and for each score an exponential, three multiplications and
        // two subtractions.
        shape.scores() * (10.0 * shape.d as f64 + TRANSCENDENTAL + 5.0)
    }

    fn kernel(&self) -> Option<&dyn Kernel> {
        Some(self)
    }

    fn gradient(&self, of: &Recorded<'_>) -> Gradient {
        let [q, k, v, lse, delta, dy] = [0, 1, 2, 3, 4, 5].map(|i| of.input(i));
        let wanted = [0, 1, 2, 3, 4, 5].map(|i| of.wanted(i));
        let second = Second { op: self.0, q, k, v, lse, delta, dy, wanted };
        Gradient::of_all(move |cotangents| {
            let found = second.gradients([0, 1, 2].map(|i| cotangents[i].as_ref()))?;
            Ok(found.into_iter().collect())
        })
    }
}

impl Kernel for AttentionGrad {
    fn cpu_workspace(&self, inputs: &[Layout], _outputs: &[Layout]) -> u64 {
        cpu::workspace_of_grad(&Shape::of(self.0, inputs))
    }

    fn cpu(&self, mut run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
        let inputs = [0, 1, 2, 3, 4, 5].map(|i| *run.input(i));
        let shape = Shape::of(self.0, &inputs);
        let [q, k, v, dy] = [0, 1, 2, 5].map(|i| cpu::HeadRows::new(run.read(i), &inputs[i]));
        let [lse, delta] = [3, 4].map(|i| run.read(i));
        let ([dq, dk, dv], workspace) = (run.outputs(), run.workspace());
        cpu::grad(&shape, [dq, dk, dv], cpu::Given { q, k, v, lse, delta, dy }, workspace);
        Ok(())
    }

    #[cfg(feature = "cuda")]
    fn cuda(
        &self,
        gpu: &mut device::cuda::Gpu,
        run: &device::cuda::Operands<'_>,
    ) -> Result<(), DeviceError> {
        cuda::grad(gpu, self.0, run)
    }
}

impl Registered for AttentionGrad {
    fn each() -> Vec<Self> {
        vec![Self::default()]
    }

    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static device::cuda::Family> {
        vec![&cuda::FAMILY]
    }
}
