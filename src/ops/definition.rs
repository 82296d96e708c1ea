//! Contract of an op. The module of an op has one `impl Definition` and, unless the op is a view,
//! one `impl Kernel`. An op that lacks a part does not compile.

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

/// Number of flops that [`Definition::flops`] counts for one `exp`, `ln` or similar function: a
/// polynomial, and the steps before and after the polynomial.
pub(super) const TRANSCENDENTAL: f64 = 10.0;

/// Description of an op: inputs, outputs, work, kernels and gradient.
pub(super) trait Definition: fmt::Debug {
    /// Returns the op itself, or the op inside the box if the op is boxed.
    fn definition(&self) -> &dyn Definition
    where
        Self: Sized,
    {
        self
    }

    /// Name of the op in events, recordings, cost models and messages. No two ops have the same
    /// name.
    fn name(&self) -> &str;

    /// Requirements that the inputs must meet.
    fn inputs(&self) -> Inputs;

    /// Layouts of the outputs, for inputs that meet the requirements of [`Definition::inputs`].
    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault>;

    /// Floating-point operations of one run:
    ///
    /// - matrix products and convolutions: two (multiply, add) for each term of each sum;
    /// - elementwise ops, normalizations and softmaxes: a fixed number per element, including
    ///   [`TRANSCENDENTAL`] for each exponential or logarithm;
    /// - poolings: one per element of each window; reductions: one per element;
    /// - ops that only copy or fill: one per element, because copying and filling take time, too;
    /// - views: none.
    fn flops(&self, inputs: &[Layout], outputs: &[Layout]) -> f64;

    /// Kernels of the op; `None` if its outputs are views.
    fn kernel(&self) -> Option<&dyn Kernel>;

    /// Describes how an op on `bf16` is cut into pieces: the part of each operand that belongs to a
    /// piece; see [`bf16`](super::bf16). In `_inputs` and `_outputs`, the type f32 stands in place
    /// of `bf16`. Returns `None` if the op requires f32, or if the op's own kernels accept any
    /// type.
    fn cuts(&self, _inputs: &[Layout], _outputs: &[Layout]) -> Option<Cuts> {
        None
    }

    /// Rule that computes the gradients of the inputs from the gradients of the outputs. The tape
    /// keeps only the tensors that the rule captures.
    fn gradient(&self, of: &Recorded<'_>) -> Gradient;
}

/// Functions of an op's type that need no value of the type.
pub(super) trait Registered: Definition + Sized {
    /// One op for each name that the type has.
    fn each() -> Vec<Self>;

    /// Files of the CUDA kernels.
    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static crate::device::cuda::Family>;
}

/// Execution of an op on the devices. Workspaces are in bytes, and depend only on the arguments.
pub(super) trait Kernel {
    /// Number of leading inputs that the op updates in place, for an op with `_inputs` inputs. The
    /// updated inputs are the first outputs.
    fn updates(&self, _inputs: usize) -> usize {
        0
    }

    /// Bytes of workspace of [`Kernel::cpu`].
    fn cpu_workspace(&self, _inputs: &[Layout], _outputs: &[Layout]) -> u64 {
        0
    }

    /// Runs the op on the CPU.
    fn cpu(&self, run: cpu::Operands<'_>) -> Result<(), DeviceError>;

    /// Bytes of workspace of [`Kernel::cuda`].
    #[cfg(feature = "cuda")]
    fn cuda_workspace(
        &self,
        _libraries: &Libraries,
        _inputs: &[Layout],
        _outputs: &[Layout],
    ) -> u64 {
        0
    }

    /// Runs the op on a GPU. At least one output has elements. The only caller is
    /// [`cuda::Kernels::cuda`]. [`cuda::Kernels::cuda`] requires valid operands (see its safety
    /// section), and the kernels rely on this requirement.
    #[cfg(feature = "cuda")]
    fn cuda(&self, gpu: &mut Gpu, run: &cuda::Operands<'_>) -> Result<(), DeviceError>;
}

/// Requirements for the inputs of an op. The requirements determine which checks the inputs must
/// pass, and which inputs are packed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Inputs {
    /// Exactly the listed inputs, each with its own requirements.
    Each(&'static [Input]),
    /// At least one input. All inputs have equal requirements, and messages name an input by its
    /// number.
    Many(Input),
    /// Any number of contiguous inputs; the op checks their number, types and shapes.
    Packed,
}

/// Requirements for one input.
#[derive(Clone, Copy, Debug)]
pub(super) struct Input {
    /// Name of the input in messages.
    role: &'static str,
    /// Required type; `None` for any type.
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

    /// Whether input number `i` must be floats, or the op itself checks the input.
    pub fn is_float(&self, i: usize) -> bool {
        match self {
            Self::Each(inputs) => inputs.get(i).is_some_and(|input| input.dtype == Some(FLOAT)),
            Self::Many(input) => input.dtype == Some(FLOAT),
            Self::Packed => true,
        }
    }

    /// Checks the number of inputs, the types of the inputs, and that inputs are contiguous where
    /// required.
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
