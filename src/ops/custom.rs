//! Ops of users, with their own kernels, on the crate's devices.

use super::check::{Fault, countable};
use super::definition::{Definition, Inputs, Kernel};
use super::gradient::{Gradient, Recorded};
use super::{Op, Tensor, Tensors};
use crate::device::{self, DeviceError, cpu};
use crate::error::Error;
use crate::layout::Layout;
use crate::op::Outputs;
use std::any::{Any, TypeId};
use std::fmt;
use std::sync::Arc;

/// An op of your own. Its fields are its attributes. It runs wherever the crate's ops do: on the CPU, on a GPU if it
/// has a kernel for one, in the simulator and on a tape, and it is rematerialized like them. See
/// `examples/08_your_own_op.rs`.
///
/// Inputs are contiguous when it runs; [`Tensor::apply`] packs those that are not. Outputs are fresh tensors. Both may
/// be of any type and rank: `infer` says which it takes.
///
/// # Contract
/// The same input bits must give the same output bits, whatever was in the outputs and the workspace before, and with
/// any number of threads. This makes eviction and rematerialization invisible.
pub trait CustomOp: Any + fmt::Debug + Send + Sync {
    /// Its name in events, recordings, cost models and messages. Ops that do different work need different names, and
    /// none of those of the crate's ops.
    fn name(&self) -> &str;

    /// Its attributes as text, in words of your own, for recordings: all that its name does not say. Register a reader
    /// of them with `ops::Library` to execute what was recorded. Default: none, so that a recording of it can be
    /// replayed by size and cost, but is executed only by a reader that needs no attributes.
    fn attributes(&self) -> Option<String> {
        None
    }

    /// Layouts of the outputs, contiguous and with offset 0, for these contiguous inputs.
    ///
    /// # Errors
    /// If the inputs do not fit; the message says which and why.
    fn infer(&self, inputs: &[Layout]) -> Result<Vec<Layout>, String>;

    /// Floating-point operations of one run, for the `flops` cost model. Default: one per output element.
    fn flops(&self, _inputs: &[Layout], outputs: &[Layout]) -> f64 {
        outputs.iter().map(|output| output.elements() as f64).sum()
    }

    /// Workspace of a run on the CPU, in bytes. Default: 0.
    fn cpu_workspace(&self, _inputs: &[Layout], _outputs: &[Layout]) -> u64 {
        0
    }

    /// Runs it on the CPU. It must write every element of every output.
    ///
    /// # Errors
    /// If it cannot be run.
    fn cpu(&self, operands: cpu::Operands<'_>) -> Result<(), DeviceError>;

    /// Its kernel for a GPU, made for ops of this type. Default: none, so that it cannot run on one.
    fn cuda(&self) -> Option<CudaKernel> {
        None
    }

    /// Its gradient. Default: none, so that using it on a tape is an error.
    fn gradient(&self, _of: &Recorded<'_>) -> Gradient {
        Gradient::missing()
    }
}

/// A kernel of a [`CustomOp`]: an `extern "C" __global__` function with the parameters
///
/// 1. `const float *`, `const int *` or whatever its elements are, for each input: its first element,
/// 2. `float *`, `int *` or the like, for each output: its first element,
/// 3. `u64`: the number of elements of the largest output. At least as many threads are launched, in one-dimensional
///    blocks of 256,
/// 4. `float`, for each of `numbers`.
///
/// The source is compiled after a prelude that the crate's own kernels share; it defines `u64`.
#[derive(Clone, Debug)]
pub struct CudaKernel {
    /// The type of the ops that it is for.
    #[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "only a GPU runs it"))]
    of: TypeId,
    source: &'static str,
    name: &'static str,
    numbers: Vec<f32>,
}

impl CudaKernel {
    /// The function `name` of this CUDA C++ `source`, for `op` and no op of another type. It is compiled when it first
    /// runs; the source is known again by where it is in memory.
    ///
    /// # Safety
    /// The function must have the parameters listed at [`CudaKernel`]. For all shapes that the `infer` of `op` accepts,
    /// its threads must read elements of the inputs only, and write elements of the outputs only.
    #[must_use]
    #[allow(unsafe_code)]
    pub unsafe fn new<C: CustomOp>(
        _op: &C,
        source: &'static str,
        name: &'static str,
        numbers: Vec<f32>,
    ) -> Self {
        Self { of: TypeId::of::<C>(), source, name, numbers }
    }

    /// The CUDA C++ source.
    #[must_use]
    pub const fn source(&self) -> &'static str {
        self.source
    }

    /// The name of the function.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Its last parameters.
    #[must_use]
    pub fn numbers(&self) -> &[f32] {
        &self.numbers
    }
}

/// A [`CustomOp`]. Two are equal if their names and their `Debug` output are.
#[derive(Clone)]
pub struct Custom(Arc<dyn CustomOp>);

impl<C: CustomOp> From<C> for Op {
    fn from(op: C) -> Self {
        Self::Custom(Custom(Arc::new(op)))
    }
}

impl Custom {
    /// See [`CustomOp::attributes`].
    pub(super) fn attributes(&self) -> Option<String> {
        self.0.attributes()
    }
}

impl PartialEq for Custom {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
            || (self.0.name() == other.0.name() && format!("{self:?}") == format!("{other:?}"))
    }
}

impl fmt::Debug for Custom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Tensor {
    /// Runs an op, such as a [`CustomOp`], on one or more tensors. Where it requires contiguous inputs, others are
    /// packed first.
    ///
    /// # Errors
    /// If there are no inputs, or they do not fit the op.
    pub fn apply(op: impl Into<Op>, inputs: &[&Self]) -> Result<Tensors, Error> {
        let op = op.into();
        if inputs.is_empty() {
            let name = op.definition().name();
            let message = "has no inputs here: give it to Runtime::apply";
            return Err(crate::op::OpError::new(name, message).into());
        }
        Self::call(op, inputs)
    }
}

impl Definition for Custom {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn inputs(&self) -> Inputs {
        Inputs::Packed
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault> {
        let outputs = self.0.infer(inputs)?;
        for (i, output) in outputs.iter().enumerate() {
            countable(output.dtype(), output.shape())?;
            if !output.is_contiguous() || output.offset() != 0 {
                return Err(format!("output {i} is {output:?}, expected contiguous with offset 0"));
            }
        }
        Ok(Outputs::fresh(outputs))
    }

    fn flops(&self, inputs: &[Layout], outputs: &[Layout]) -> f64 {
        self.0.flops(inputs, outputs)
    }

    fn kernel(&self) -> Option<&dyn Kernel> {
        Some(self)
    }

    fn gradient(&self, of: &Recorded<'_>) -> Gradient {
        self.0.gradient(of)
    }
}

impl Kernel for Custom {
    fn cpu_workspace(&self, inputs: &[Layout], outputs: &[Layout]) -> u64 {
        self.0.cpu_workspace(inputs, outputs)
    }

    fn cpu(&self, run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
        self.0.cpu(run)
    }

    #[cfg(feature = "cuda")]
    #[allow(unsafe_code)]
    fn cuda(
        &self,
        gpu: &mut device::cuda::Gpu,
        run: &device::cuda::Operands<'_>,
    ) -> Result<(), DeviceError> {
        use crate::device::cuda::{Family, Grid, Parameter};
        let failed = |what| DeviceError::new(format!("{} has {what}", self.0.name()));
        let CudaKernel { of, source, name, numbers } = self.0.cuda().ok_or_else(|| {
            failed("no kernel for the GPU: implement CustomOp::cuda, or run it on the cpu")
        })?;
        let op: &dyn Any = &*self.0;
        if of != op.type_id() {
            return Err(failed("the kernel of another op: give CudaKernel::new the op itself"));
        }
        let operands: Vec<_> =
            run.inputs.iter().chain(run.outputs).map(|place| gpu.first(place)).collect();
        let sizes = run.outputs.iter().map(|place| place.layout.elements() as u64);
        let count = sizes.max().unwrap_or(0);
        let mut parameters: Vec<&dyn Parameter> = Vec::new();
        parameters.extend(operands.iter().map(|operand| operand as &dyn Parameter));
        parameters.push(&count);
        parameters.extend(numbers.iter().map(|number| number as &dyn Parameter));
        let kernel = Family::new(name, source).kernel(name);
        // SAFETY: these are the parameters listed at `CudaKernel`; the caller of `CudaKernel::new` promised the rest, for
        // operands as ops of this type infer them.
        unsafe { gpu.launch(kernel, Grid::of_threads(count), &parameters) }
    }
}
