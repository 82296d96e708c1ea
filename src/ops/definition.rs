//! What there is to know about an op, all in one place: its module has one `impl Definition`, and one
//! `impl Kernel` unless it only looks at its input otherwise. What is missing does not compile.

use super::check::{Fault, contiguous, typed};
use super::gradient::{Gradient, Recorded};
use super::samples::{Draw, Sample};
use super::{FLOAT, Op};
use crate::device::{DeviceError, cpu};
use crate::layout::{DType, Layout};
use crate::op::Outputs;
use std::fmt;

#[cfg(feature = "cuda")]
use crate::device::cuda::{self, Gpu, Libraries};

/// What `exp`, `ln` and their like count as in [`Definition::flops`]: a polynomial and the steps around it.
pub(super) const TRANSCENDENTAL: f64 = 10.0;

/// An op.
pub(super) trait Definition: fmt::Debug {
    /// Unique among ops; for events, recordings, cost models and messages.
    fn name(&self) -> &str;

    /// What it wants of its inputs.
    fn inputs(&self) -> Inputs;

    /// Its outputs, of inputs that are as [`Definition::inputs`] wants them.
    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault>;

    /// Floating-point operations of one run:
    ///
    /// - matrix products and convolutions: two (multiply, add) for each term of each sum;
    /// - elementwise ops, normalizations and softmaxes: a fixed number per element, [`TRANSCENDENTAL`] for
    ///   each exponential or logarithm in them;
    /// - poolings: one per element of each window; reductions: one per element;
    /// - ops that only move or fill: one per element, so that nothing that takes time counts as free;
    /// - views: none.
    fn flops(&self, inputs: &[Layout], outputs: &[Layout]) -> f64;

    /// What runs it; `None` if its outputs are views.
    fn kernel(&self) -> Option<&dyn Kernel>;

    /// How gradients of its inputs follow from those of its outputs. What the closure captures is what the
    /// gradient reads: the tape keeps that, and lets everything else go.
    fn gradient(&self, of: &Recorded<'_>) -> Gradient;

    /// Shapes that are worth a test of their own: large ones, odd ones, some without elements.
    fn samples(&self) -> Vec<Sample>;

    /// The op with other attributes, and operands that fit, of sizes as `draw` gives them.
    fn draw(&self, draw: &mut Draw) -> Sample;

    /// The op with any attributes at all, such as would overflow, and inputs that fit it but for their sizes.
    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>);
}

/// What only the type of an op knows.
pub(super) trait Registered: Definition + Sized {
    /// One of each name.
    fn each() -> Vec<Self>;

    /// The files of its CUDA kernels.
    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static crate::device::cuda::Family>;
}

/// How an op runs. Workspaces are bytes, and depend on nothing but the arguments.
pub(super) trait Kernel {
    /// How many of the first inputs it updates in place; its outputs are these.
    fn updates(&self) -> usize {
        0
    }

    /// Scratch bytes of [`Kernel::cpu`].
    fn cpu_workspace(&self, _inputs: &[Layout], _outputs: &[Layout]) -> u64 {
        0
    }

    /// Runs it on the processor.
    fn cpu(&self, run: cpu::Operands<'_>) -> Result<(), DeviceError>;

    /// Scratch bytes of [`Kernel::cuda`].
    #[cfg(feature = "cuda")]
    fn cuda_workspace(
        &self,
        _libraries: &Libraries,
        _inputs: &[Layout],
        _outputs: &[Layout],
    ) -> u64 {
        0
    }

    /// Runs it on a GPU. Some output has elements.
    #[cfg(feature = "cuda")]
    fn cuda(&self, gpu: &mut Gpu, run: &cuda::Operands<'_>) -> Result<(), DeviceError>;
}

/// What an op wants of its inputs, said once: errors, and copies of what is not packed, follow from it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Inputs {
    /// These.
    Each(&'static [Input]),
    /// At least one, all like this; messages number them.
    Many(Input),
    /// Any number, all packed; the op checks the rest.
    Packed,
}

/// What an op wants of one input.
#[derive(Clone, Copy, Debug)]
pub(super) struct Input {
    /// What messages call it.
    role: &'static str,
    /// `None`: any.
    dtype: Option<DType>,
    packed: bool,
}

impl Input {
    /// Floats of any strides.
    pub const fn floats(role: &'static str) -> Self {
        Self { role, dtype: Some(FLOAT), packed: false }
    }

    /// Contiguous floats.
    pub const fn packed(role: &'static str) -> Self {
        Self { role, dtype: Some(FLOAT), packed: true }
    }

    /// Contiguous integers.
    pub const fn packed_ints(role: &'static str) -> Self {
        Self { role, dtype: Some(DType::I32), packed: true }
    }

    /// Of any type, and any strides.
    pub const fn any(role: &'static str) -> Self {
        Self { role, dtype: None, packed: false }
    }

    /// Of any type, contiguous.
    pub const fn any_packed(role: &'static str) -> Self {
        Self { role, dtype: None, packed: true }
    }

    fn check(&self, role: &str, x: &Layout) -> Result<(), Fault> {
        if let Some(dtype) = self.dtype {
            typed(x, role, dtype)?;
        }
        if self.packed { contiguous(x, role) } else { Ok(()) }
    }
}

impl Inputs {
    /// Whether input number `i` must be contiguous.
    pub fn is_packed(&self, i: usize) -> bool {
        match self {
            Self::Each(inputs) => inputs.get(i).is_some_and(|input| input.packed),
            Self::Many(input) => input.packed,
            Self::Packed => true,
        }
    }

    /// Fails unless the inputs are as many, of the types and as contiguous as wanted.
    pub fn check(&self, inputs: &[Layout]) -> Result<(), Fault> {
        match self {
            Self::Each(wanted) if wanted.len() != inputs.len() => {
                Err(format!("takes {} inputs, {} were given", wanted.len(), inputs.len()))
            }
            Self::Each(wanted) => {
                wanted.iter().zip(inputs).try_for_each(|(w, x)| w.check(w.role, x))
            }
            Self::Many(_) if inputs.is_empty() => {
                Err("takes at least 1 input, 0 were given".to_owned())
            }
            Self::Many(wanted) => inputs
                .iter()
                .enumerate()
                .try_for_each(|(i, x)| wanted.check(&format!("{}{i}", wanted.role), x)),
            Self::Packed => inputs
                .iter()
                .enumerate()
                .try_for_each(|(i, x)| contiguous(x, &format!("input {i}"))),
        }
    }
}
