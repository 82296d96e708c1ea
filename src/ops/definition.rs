//! What an op must define. Its module has one `impl Definition` and, unless the op is a view, one `impl Kernel`. A
//! missing part is a compile error.

use super::FLOAT;
use super::bf16::Cuts;
use super::check::{Fault, contiguous, typed};
use super::gradient::{Gradient, Recorded};
use crate::device::{DeviceError, cpu};
use crate::layout::{DType, Layout};
use crate::op::Outputs;
use std::fmt;

#[cfg(feature = "cuda")]
use crate::device::cuda::{self, Gpu, Libraries};

/// Flops that `exp`, `ln` and the like count as in [`Definition::flops`]: a polynomial and the steps around it.
pub(super) const TRANSCENDENTAL: f64 = 10.0;

/// An op.
pub(super) trait Definition: fmt::Debug {
    /// Itself, whether it lies in a box or not.
    fn definition(&self) -> &dyn Definition
    where
        Self: Sized,
    {
        self
    }

    /// Unique among ops; for events, recordings, cost models and messages.
    fn name(&self) -> &str;

    /// What it requires of its inputs.
    fn inputs(&self) -> Inputs;

    /// Its outputs, for inputs that meet [`Definition::inputs`].
    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault>;

    /// Floating-point operations of one run:
    ///
    /// - matrix products and convolutions: two (multiply, add) for each term of each sum;
    /// - elementwise ops, normalizations and softmaxes: a fixed number per element, [`TRANSCENDENTAL`] for
    ///   each exponential or logarithm in them;
    /// - poolings: one per element of each window; reductions: one per element;
    /// - ops that only copy or fill: one per element, so that nothing that takes time is free;
    /// - views: none.
    fn flops(&self, inputs: &[Layout], outputs: &[Layout]) -> f64;

    /// Its kernels; `None` if its outputs are views.
    fn kernel(&self) -> Option<&dyn Kernel>;

    /// What a piece of it has of each operand, so that its floats may be `bf16`: see [`bf16`](super::bf16). The layouts are
    /// as without that type. `None`: its floats are f32, or it takes any type as it is.
    fn cuts(&self, _inputs: &[Layout], _outputs: &[Layout]) -> Option<Cuts> {
        None
    }

    /// How to compute the gradients of its inputs from those of its outputs. The tape keeps the tensors that the
    /// closure captures, and no others.
    fn gradient(&self, of: &Recorded<'_>) -> Gradient;
}

/// What the type of an op knows, without a value.
pub(super) trait Registered: Definition + Sized {
    /// One op of each name.
    fn each() -> Vec<Self>;

    /// The files of its CUDA kernels.
    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static crate::device::cuda::Family>;
}

/// How an op runs. Workspaces are in bytes, and depend only on the arguments.
pub(super) trait Kernel {
    /// How many of its first inputs it updates in place, of so many. If any, they are its outputs.
    fn updates(&self, _inputs: usize) -> usize {
        0
    }

    /// Scratch bytes of [`Kernel::cpu`].
    fn cpu_workspace(&self, _inputs: &[Layout], _outputs: &[Layout]) -> u64 {
        0
    }

    /// Runs it on the CPU.
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

    /// Runs it on a GPU. At least one output has elements. Kernels rely on operands as [`cuda::Kernels::cuda`] wants them:
    /// nothing else calls this.
    #[cfg(feature = "cuda")]
    fn cuda(&self, gpu: &mut Gpu, run: &cuda::Operands<'_>) -> Result<(), DeviceError>;
}

/// What an op requires of its inputs. Both the checks and the packing of inputs that are not contiguous follow from it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Inputs {
    /// As many inputs as listed, each as stated.
    Each(&'static [Input]),
    /// At least one input, each as stated. Messages number them.
    Many(Input),
    /// Any number of contiguous inputs; the op checks the rest.
    Packed,
}

/// What an op requires of one input.
#[derive(Clone, Copy, Debug)]
pub(super) struct Input {
    /// Its name in messages.
    role: &'static str,
    /// `None`: any.
    dtype: Option<DType>,
    packed: bool,
}

impl Input {
    /// Floats with any strides.
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

    /// Any type, any strides.
    pub const fn any(role: &'static str) -> Self {
        Self { role, dtype: None, packed: false }
    }

    /// Any type, contiguous.
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

    /// Whether input number `i` must be floats, or the op checks.
    pub fn is_float(&self, i: usize) -> bool {
        match self {
            Self::Each(inputs) => inputs.get(i).is_some_and(|input| input.dtype == Some(FLOAT)),
            Self::Many(input) => input.dtype == Some(FLOAT),
            Self::Packed => true,
        }
    }

    /// Checks the number of inputs, their types, and that they are contiguous where required.
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
