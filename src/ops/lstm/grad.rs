use super::second::{Second, Steps};
use super::shape::{Shape, rows};
use super::{FLOAT, cpu};
use crate::device::{self, DeviceError};
use crate::layout::Layout;
use crate::op::Outputs;
use crate::ops::bf16::{Cut, Cuts, Made};
use crate::ops::check::{Fault, fresh, shaped};
use crate::ops::definition::{Definition, Input, Inputs, Kernel, Registered, TRANSCENDENTAL};
use crate::ops::gradient::{Gradient, Recorded};

#[cfg(feature = "cuda")]
use super::cuda;

/// `(gates [n, t, 4h], c [n, t, h], c0 [n, h], weight [4h, h], dy [n, t, h], dh_last [n, h],
/// dc_last [n, h]) -> (dsums [n, t, 4h], dh0 [n, h], dc0 [n, h])`, the gradient of
/// [`LstmSteps`](super::LstmSteps), computed from the last step to the first. Except for the
/// derivatives of the gates' functions, the gradient of step `s` is
///
/// ```text
/// dh = dy[s] + dh                                              from dh_last, and in the end dh0
/// dc = dc + dh o (1 - tanh(c[s])^2)                            from dc_last
/// di, df, dg, do = dc g, dc c[s - 1], dc i, dh tanh(c[s])      times the slopes: dsums[s]
/// dc = dc f                                                    in the end dc0
/// dh = dsums[s] weight
/// ```
///
/// The gradient of the weight is one matrix product with the `dsums` of all steps. The gradient of
/// the bias is a sum of the `dsums` of all steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LstmStepsGrad;

impl Definition for LstmStepsGrad {
    fn name(&self) -> &str {
        "lstm_steps_grad"
    }

    fn inputs(&self) -> Inputs {
        Inputs::Each(
            const {
                &[
                    Input::packed("gates"),
                    Input::packed("c"),
                    Input::floats("c0"),
                    Input::floats("weight"),
                    Input::floats("dy"),
                    Input::floats("dh_last"),
                    Input::floats("dc_last"),
                ]
            },
        )
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault> {
        let shape = Shape::new(&inputs[0], "gates", &inputs[3])?;
        for (i, role) in [(1, "c"), (4, "dy")] {
            shaped(&inputs[i], role, FLOAT, &shape.of_units())?;
        }
        for (i, role) in [(2, "c0"), (5, "dh_last"), (6, "dc_last")] {
            shaped(&inputs[i], role, FLOAT, &shape.memory())?;
        }
        let memory = fresh(FLOAT, shape.memory())?;
        Ok(Outputs::fresh([fresh(FLOAT, shape.of_gates())?, memory, memory]))
    }

    fn cuts(&self, _inputs: &[Layout], _outputs: &[Layout]) -> Option<Cuts> {
        let each = Cut::Along(0);
        let inputs = [each, each, each, Cut::Whole, each, each, each];
        Some(Cuts::new(inputs, [Made::activations(each); 3]))
    }

    fn flops(&self, inputs: &[Layout], _outputs: &[Layout]) -> f64 {
        let shape = Shape::of(&inputs[0]);
        // Flops of each unit: a sum, an exponential, 5 and 4 operations for the formulas above, 12
        // for the derivatives, and 1 for `dc`.
        shape.units() * (8.0 * shape.h as f64 + TRANSCENDENTAL + 22.0)
    }

    fn kernel(&self) -> Option<&dyn Kernel> {
        Some(self)
    }

    fn gradient(&self, of: &Recorded<'_>) -> Gradient {
        let [gates, c, c0, weight, dy, dh_last, dc_last] =
            [0, 1, 2, 3, 4, 5, 6].map(|i| of.input(i));
        let wanted = [0, 1, 2, 3, 4, 5, 6].map(|i| of.wanted(i));
        Gradient::of_all(move |cotangents| {
            let steps = Steps::new(&gates, &c, &c0, &weight)?;
            let second = Second { steps, dy: &dy, dh_last: &dh_last, dc_last: &dc_last };
            let found = second.gradients([0, 1, 2].map(|i| cotangents[i].as_ref()))?;
            Ok(found.into_iter().zip(wanted).map(|(dx, wanted)| dx.filter(|_| wanted)).collect())
        })
    }
}

impl Kernel for LstmStepsGrad {
    fn cpu_workspace(&self, inputs: &[Layout], _outputs: &[Layout]) -> u64 {
        cpu::workspace_of_grad(&Shape::of(&inputs[0]))
    }

    fn cpu(&self, mut run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
        let shape = Shape::of(run.input(0));
        let [gates, c, c0, weight, dy, dh_last, dc_last] = run.floats();
        let [c0, dy, dh_last, dc_last] = [(c0, 2), (dy, 4), (dh_last, 5), (dc_last, 6)]
            .map(|(data, i)| rows(data, run.input(i)));
        let weight = (weight, run.input(3));
        let of = cpu::GivenBack { gates, c, c0, weight, dy, dh_last, dc_last };
        let (out, workspace) = (run.outputs(), run.workspace());
        cpu::grad(&shape, out, &of, workspace);
        Ok(())
    }

    #[cfg(feature = "cuda")]
    fn cuda_workspace(
        &self,
        _libraries: &device::cuda::Libraries,
        inputs: &[Layout],
        _outputs: &[Layout],
    ) -> u64 {
        cuda::workspace_of_grad(&Shape::of(&inputs[0]), &inputs[3])
    }

    #[cfg(feature = "cuda")]
    fn cuda(
        &self,
        gpu: &mut device::cuda::Gpu,
        run: &device::cuda::Operands<'_>,
    ) -> Result<(), DeviceError> {
        cuda::grad(gpu, run)
    }
}

impl Registered for LstmStepsGrad {
    fn each() -> Vec<Self> {
        vec![Self]
    }

    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static device::cuda::Family> {
        vec![&cuda::FAMILY]
    }
}
