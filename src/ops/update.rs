//! Updates of parameters by their gradients, in place: one tensor or many in one op.
//!
//! The inputs are, for each tensor, the parameter and what the optimizer keeps for it; then the gradients, in the same
//! order. With one tensor that is `(param, velocity, grad)`, with two
//! `(param, velocity, param, velocity, grad, grad)`.

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
use crate::layout::Layout;
use crate::op::Outputs;

/// The outputs of an update, where `states` names what is kept for a parameter.
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

/// How many of the inputs are written, where so many states are kept for a parameter.
const fn written(states: usize, inputs: usize) -> usize {
    inputs / (states + 2) * (states + 1)
}

/// Elements of all parameters, where so many states are kept for one.
fn elements(states: usize, outputs: &[Layout]) -> f64 {
    outputs.iter().step_by(states + 1).map(|param| param.elements() as f64).sum()
}
