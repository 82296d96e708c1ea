//! Ops that update parameters in place from their gradients. One op updates one parameter or many.
//!
//! The inputs list each parameter with its optimizer states, and then the gradients in the order of
//! the parameters. With one parameter, the inputs are `(param,
//! velocity, grad)`. With two parameters, the inputs are `(param, velocity, param, velocity, grad,
//! grad)`.

mod adamw;
mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod lion;
mod sgd;

pub use adamw::AdamW;
pub use lion::Lion;
pub use sgd::SgdMomentum;

use super::FLOAT;
use super::check::{Fault, shaped, typed};
use super::definition::{Definition, Inputs, Kernel, Registered};
use super::gradient::{Gradient, Recorded};
use crate::device::{self, DeviceError};
use crate::layout::Layout;
use crate::op::Outputs;

/// Defines an op for each row of the table. A row has:
///
/// - the op, and its name, which is also the name of the functions on the CPU and in CUDA;
/// - flops per element;
/// - a check that the op's numbers, such as the learning rate, are valid;
/// - usual values of the op's numbers.
macro_rules! updates {
    ($(
        $Op:ident $name:ident: $flops:expr,
            check: $check:expr,
            each: $usual:expr;
    )*) => {$(
        impl Definition for $Op {
            fn name(&self) -> &str {
                stringify!($name)
            }

            fn inputs(&self) -> Inputs {
                Inputs::Packed
            }

            fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault> {
                let check: fn(&Self) -> Result<(), Fault> = $check;
                check(self)?;
                infer(&Self::STATES, inputs)
            }

            fn flops(&self, _inputs: &[Layout], outputs: &[Layout]) -> f64 {
                let flops: fn(&Self) -> f64 = $flops;
                elements(Self::STATES.len(), outputs) * flops(self)
            }

            fn kernel(&self) -> Option<&dyn Kernel> {
                Some(self)
            }

            fn gradient(&self, _of: &Recorded<'_>) -> Gradient {
                Gradient::missing()
            }
        }

        impl Kernel for $Op {
            fn updates(&self, inputs: usize) -> usize {
                written(Self::STATES.len(), inputs)
            }

            fn cpu(&self, run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
                cpu::$name(run, self);
                Ok(())
            }

            #[cfg(feature = "cuda")]
            fn cuda(
                &self,
                gpu: &mut device::cuda::Gpu,
                run: &device::cuda::Operands<'_>,
            ) -> Result<(), DeviceError> {
                cuda::$name(gpu, run, self)
            }
        }

        impl Registered for $Op {
            fn each() -> Vec<Self> {
                vec![$usual]
            }

            #[cfg(all(test, feature = "cuda"))]
            fn families() -> Vec<&'static crate::device::cuda::Family> {
                vec![&cuda::FAMILY]
            }
        }
    )*};
}

updates! {
    SgdMomentum sgd_momentum: |op| if op.nesterov { 8.0 } else { 6.0 },
        check: |_| Ok(()),
        each: Self { lr: 0.1, momentum: 0.9, weight_decay: 1e-4, nesterov: false };
    AdamW adamw: |_| 14.0,
        check: |op| match op.step {
            0 => Err("step is 0, expected at least 1".to_owned()),
            _ => Ok(()),
        },
        each: Self { lr: 1e-3, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.01, step: 1 };
    Lion lion: |_| 10.0,
        check: |_| Ok(()),
        each: Self { lr: 1e-4, beta1: 0.9, beta2: 0.99, weight_decay: 0.1 };
}

/// Outputs of an update. `states` are the names of the states that the optimizer keeps for a
/// parameter.
fn infer(states: &[&str], inputs: &[Layout]) -> Result<Outputs, Fault> {
    let (written, each) = (states.len() + 1, states.len() + 2);
    let tensors = inputs.len() / each;
    if tensors == 0 || !inputs.len().is_multiple_of(each) {
        let names = states.join(", ");
        return Err(format!(
            "takes {each} inputs for each tensor (param, {names}, grad), {} were given",
            inputs.len()
        ));
    }
    for k in 0..tensors {
        let param = &inputs[k * written];
        typed(param, "param", FLOAT)?;
        for (i, state) in states.iter().enumerate() {
            shaped(&inputs[k * written + 1 + i], state, FLOAT, param.shape())?;
        }
        shaped(&inputs[tensors * written + k], "grad", FLOAT, param.shape())?;
    }
    Ok(Outputs::updates(tensors * written))
}

/// Number of inputs that the op updates, if the optimizer keeps `states` states for each parameter.
const fn written(states: usize, inputs: usize) -> usize {
    inputs / (states + 2) * (states + 1)
}

/// Total number of elements of all parameters, if the optimizer keeps `states` states for each
/// parameter.
fn elements(states: usize, outputs: &[Layout]) -> f64 {
    outputs.iter().step_by(states + 1).map(|param| param.elements() as f64).sum()
}
