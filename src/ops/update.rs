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
use super::samples::{Draw, Operand, SHAPES, floats};
use crate::layout::{Dims, Layout};
use crate::op::Outputs;

/// Sizes of many tensors that are updated at once.
const MANY: [&[&[usize]]; 2] =
    [&[&[3, 5], &[], &[0], &[40_001], &[1]], &[&[2usize, 3] as &[usize]; 70]];

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

/// Operands for updates of one tensor of each shape, and of many.
fn sample_operands(states: usize) -> impl Iterator<Item = Vec<Operand>> {
    let one = SHAPES.iter().map(|shape| vec![*shape]);
    let all = one.chain(MANY.iter().map(|shapes| shapes.to_vec()));
    all.map(move |shapes| {
        let written = shapes.iter().flat_map(|shape| vec![floats(shape); states + 1]);
        written.chain(shapes.iter().map(|shape| floats(shape))).collect()
    })
}

/// Operands for an update of one to three tensors.
fn draw_operands(states: usize, draw: &mut Draw) -> Vec<Operand> {
    let shapes: Vec<Dims> = (0..=draw.below(3)).map(|_| draw.shape(0, 4)).collect();
    let mut operands = Vec::new();
    for shape in &shapes {
        operands.extend((0..=states).map(|_| draw.packed(*shape)));
    }
    operands.extend(shapes.iter().map(|shape| draw.packed(*shape)));
    operands
}

/// Layouts of an absurd size for an update of one tensor.
fn absurd_layouts(states: usize, draw: &mut Draw) -> Vec<Layout> {
    vec![Layout::contiguous(FLOAT, draw.absurd_dims()); states + 2]
}
