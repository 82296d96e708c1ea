//! Many steps of a long short-term memory (LSTM) in one op, and the gradient of the steps. One op
//! for many steps is faster than one op for each step. Work that all steps share is done once, and
//! products that do not depend on earlier steps are computed in one matrix product for all steps.

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod grad;
mod second;
mod shape;

pub use grad::LstmStepsGrad;

use super::bf16::{Cut, Cuts, Made};
use super::check::{Fault, fresh, shaped};
use super::definition::{Definition, Input, Inputs, Kernel, Registered, TRANSCENDENTAL};
use super::gradient::{Gradient, InputGradients, Recorded};
use super::{FLOAT, Tensor};
use crate::device::{self, DeviceError};
use crate::error::Error;
use crate::layout::Layout;
use crate::op::Outputs;
use second::{Cotangents, Steps};
use shape::{Shape, rows};

/// `(sums [n, t, 4h], weight [4h, h], bias [4h], h0 [n, h], c0 [n, h]) -> (y [n, t, h], c [n, t,
/// h], gates [n, t, 4h], h_last [n, h], c_last [n, h])`: `t` steps of a long short-term memory
/// (Hochreiter and Schmidhuber, 1997, with the forget gate of Gers et al., 2000) of `h` units, for
/// `n` sequences. Step `s` is
///
/// ```text
/// i, f, g, o = sums[s] + weight y[s - 1] + bias       in this order, as in PyTorch; y[-1] is h0
/// i, f, g, o = sigmoid(i), sigmoid(f), tanh(g), sigmoid(o)                    which are the gates
/// c[s] = f c[s - 1] + i g                                                         c[-1] is c0
/// y[s] = o tanh(c[s])
/// ```
///
/// `sums` are the products of the input with the weights of each gate. `y` and `c` of the last step
/// are also separate outputs, `h_last` and `c_last`. An op that needs only the last step can then
/// be recomputed without the outputs of all steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LstmSteps;

/// Results of [`Tensor::lstm_steps`].
pub(crate) struct AfterSteps {
    /// Outputs of all steps, `[n, t, h]`.
    pub y: Tensor,
    /// Output of the last step, `[n, h]`.
    pub h: Tensor,
    /// Cell state after the last step, `[n, h]`.
    pub c: Tensor,
}

impl Tensor {
    /// Runs the steps, starting from the state `before`: a pair of `h` and `c`, or `None` for
    /// zeros. See [`LstmSteps`].
    ///
    /// # Errors
    /// [`Error::Op`] if the shapes of the operands do not agree.
    pub(crate) fn lstm_steps(
        &self,
        weight: &Self,
        bias: &Self,
        before: Option<[&Self; 2]>,
    ) -> Result<AfterSteps, Error> {
        let zeros;
        let [h, c] = match before {
            Some(before) => before,
            None => {
                let [n, hidden] = [self.shape()[0], weight.shape()[1]];
                zeros = self.scalar(0.0)?.cast(self.dtype())?.broadcast(&[n, hidden])?;
                [&zeros; 2]
            }
        };
        let mut all = Self::call(LstmSteps, &[self, weight, bias, h, c])?.into_iter();
        let mut next = || all.next().expect("five outputs");
        let (y, _, _, h, c) = (next(), next(), next(), next(), next());
        Ok(AfterSteps { y, h, c })
    }
}

impl Definition for LstmSteps {
    fn name(&self) -> &str {
        "lstm_steps"
    }

    fn inputs(&self) -> Inputs {
        Inputs::Each(
            const {
                &[
                    Input::packed("sums"),
                    Input::floats("weight"),
                    Input::packed("bias"),
                    Input::floats("h0"),
                    Input::floats("c0"),
                ]
            },
        )
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault> {
        let shape = Shape::new(&inputs[0], "sums", &inputs[1])?;
        shaped(&inputs[2], "bias", FLOAT, &[shape.gates()])?;
        for (i, role) in [(3, "h0"), (4, "c0")] {
            shaped(&inputs[i], role, FLOAT, &shape.memory())?;
        }
        let [y, gates] = [shape.of_units(), shape.of_gates()].map(|shape| fresh(FLOAT, shape));
        let (y, last) = (y?, fresh(FLOAT, shape.memory())?);
        Ok(Outputs::fresh([y, y, gates?, last, last]))
    }

    fn cuts(&self, _inputs: &[Layout], _outputs: &[Layout]) -> Option<Cuts> {
        let each = Cut::Along(0);
        let inputs = [each, Cut::Whole, Cut::Whole, each, each];
        Some(Cuts::new(inputs, [Made::activations(each); 5]))
    }

    fn flops(&self, inputs: &[Layout], _outputs: &[Layout]) -> f64 {
        let shape = Shape::of(&inputs[0]);
        // Flops of each gate of each unit: a sum, two more terms, and an exponential. Flops of each
        // unit: one more exponential, and four operations that combine the gates.
        shape.units() * (8.0 * shape.h as f64 + 8.0 + 5.0 * TRANSCENDENTAL + 4.0)
    }

    fn kernel(&self) -> Option<&dyn Kernel> {
        Some(self)
    }

    fn gradient(&self, of: &Recorded<'_>) -> Gradient {
        let [weight, h0, c0] = [1, 3, 4].map(|i| of.input(i));
        let [y, c, gates] = [0, 1, 2].map(|i| of.output(i));
        let wanted = [0, 1, 2, 3, 4].map(|i| of.wanted(i));
        let [n, t, h] = [y.shape()[0], y.shape()[1], y.shape()[2]];
        Gradient::of_all(move |dys| {
            let [dy, dc, dgates, dh_last, dc_last] = [0, 1, 2, 3, 4].map(|i| dys[i].as_ref());
            let [dsums, dh0, dc0] = if dc.is_none() && dgates.is_none() {
                let zero = |shape: &[usize]| gates.scalar(0.0)?.broadcast(shape);
                let or_zero = |given: Option<&Tensor>, shape: &[usize]| {
                    given.map_or_else(|| zero(shape), |given| Ok(given.clone()))
                };
                let dy = or_zero(dy, &[n, t, h])?;
                let [dh_last, dc_last] = [dh_last, dc_last].map(|given| or_zero(given, &[n, h]));
                let inputs = [&gates, &c, &c0, &weight, &dy, &dh_last?, &dc_last?];
                let mut found = Tensor::call(LstmStepsGrad, &inputs)?.into_iter();
                [(); 3].map(|()| found.next().expect("three outputs"))
            } else {
                // `c` and `gates` have gradients only when gradients of gradients are computed.
                let steps = Steps::new(&gates, &c, &c0, &weight)?;
                let back = steps.backward(&Cotangents { dy, dc, dgates, dh_last, dc_last })?;
                let dsums = back.dsums(&gates)?;
                [dsums, back.dh0, back.dc0]
            };
            let flat = || dsums.reshape(&[n * t, 4 * h]);
            let dweight = || -> Result<Tensor, Error> {
                let first = h0.reshape(&[n, 1, h])?;
                let before = match t {
                    0 => y.clone(),
                    1 => first,
                    _ => Tensor::concat(&[&first, &y.slice(1, ..t - 1)?], 1)?,
                };
                flat()?.t()?.matmul(&before.reshape(&[n * t, h])?)
            };
            let mut all = InputGradients::new();
            all.push(wanted[0].then(|| dsums.clone()));
            all.push(wanted[1].then(dweight).transpose()?);
            all.push(wanted[2].then(|| flat()?.sum_along(&[0], false)).transpose()?);
            all.push(wanted[3].then_some(dh0));
            all.push(wanted[4].then_some(dc0));
            Ok(all)
        })
    }
}

impl Kernel for LstmSteps {
    fn cpu_workspace(&self, inputs: &[Layout], _outputs: &[Layout]) -> u64 {
        cpu::workspace(&Shape::of(&inputs[0]))
    }

    fn cpu(&self, mut run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
        let shape = Shape::of(run.input(0));
        let [sums, weight, bias, h0, c0] = run.floats();
        let [h0, c0] = [(h0, 3), (c0, 4)].map(|(data, i)| rows(data, run.input(i)));
        let of = cpu::Given { sums, weight: (weight, run.input(1)), bias, h0, c0 };
        let (out, workspace) = (run.outputs(), run.workspace());
        cpu::forward(&shape, out, &of, workspace);
        Ok(())
    }

    #[cfg(feature = "cuda")]
    fn cuda_workspace(
        &self,
        _libraries: &device::cuda::Libraries,
        inputs: &[Layout],
        _outputs: &[Layout],
    ) -> u64 {
        cuda::workspace(&Shape::of(&inputs[0]), &inputs[1])
    }

    #[cfg(feature = "cuda")]
    fn cuda(
        &self,
        gpu: &mut device::cuda::Gpu,
        run: &device::cuda::Operands<'_>,
    ) -> Result<(), DeviceError> {
        cuda::forward(gpu, run)
    }
}

impl Registered for LstmSteps {
    fn each() -> Vec<Self> {
        vec![Self]
    }

    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static device::cuda::Family> {
        vec![&cuda::FAMILY]
    }
}
