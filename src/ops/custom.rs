//! Ops of one's own, with kernels of one's own, on the crate's devices.

use super::check::{Fault, countable};
use super::definition::{Definition, Inputs, Kernel};
use super::gradient::{Gradient, Recorded};
use super::samples::{Draw, Sample};
use super::{Op, Tensor, Tensors};
use crate::device::{self, DeviceError, cpu};
use crate::error::Error;
use crate::layout::Layout;
use crate::op::{Output, Outputs};
use std::fmt;
use std::sync::Arc;

/// An op of one's own. Its fields are its attributes. It runs wherever the crate's ops do: on the cpu, on a GPU if
/// it has a kernel for it, simulated, on a tape, and again after an eviction. See `examples/08_your_own_op.rs`.
///
/// Inputs are contiguous when it runs; [`Tensor::apply`] packs those that are not. Outputs are fresh tensors.
///
/// # Contract
/// A run on the same bits must give the same bits, whatever was in the outputs and the workspace before, and with
/// any number of threads: that is what makes evicting and recomputing invisible.
pub trait CustomOp: fmt::Debug + Send + Sync + 'static {
    /// For events, recordings, cost models and messages. Ops that do different work need different names.
    fn name(&self) -> &str;

    /// Types and shapes of the outputs, contiguous and with offset 0, of these contiguous inputs.
    ///
    /// # Errors
    /// If the inputs do not fit; the message says which and why.
    fn infer(&self, inputs: &[Layout]) -> Result<Vec<Layout>, String>;

    /// Floating-point operations of one run, for the `flops` cost model. Default: one per output element.
    fn flops(&self, _inputs: &[Layout], outputs: &[Layout]) -> f64 {
        outputs.iter().map(|output| output.elements() as f64).sum()
    }

    /// Scratch bytes of a run on the cpu. Default: none.
    fn cpu_workspace(&self, _inputs: &[Layout], _outputs: &[Layout]) -> u64 {
        0
    }

    /// Runs it on the cpu: outputs are overwritten entirely.
    ///
    /// # Errors
    /// If it cannot be run.
    fn cpu(&self, operands: cpu::Operands<'_>) -> Result<(), DeviceError>;

    /// Its kernel on a GPU, if it has one.
    fn cuda(&self) -> Option<CudaKernel> {
        None
    }

    /// Its gradient. Default: none; on a tape it is an error.
    fn gradient(&self, _of: &Recorded<'_>) -> Gradient {
        Gradient::missing()
    }
}

/// A kernel of a [`CustomOp`]: an `extern "C" __global__` function with the parameters
///
/// 1. `const float *` or `const int *`: the first element of each input,
/// 2. `float *` or `int *`: the first element of each output,
/// 3. `u64`: the number of elements of the largest output, which is how many threads there are at least
///    (in blocks of 256, one-dimensional),
/// 4. `float`: each of `numbers`.
///
/// In front of the source is put what the crate's own kernels share; it has `u64`.
#[derive(Clone, Debug)]
pub struct CudaKernel {
    source: &'static str,
    name: &'static str,
    numbers: Vec<f32>,
}

impl CudaKernel {
    /// The function `name` of CUDA C++, which is compiled when it first runs.
    ///
    /// # Safety
    /// The function has the parameters that are said above, and whatever the shapes that [`CustomOp::infer`] lets
    /// pass, its threads read nothing but elements of the inputs, and write nothing but elements of the outputs.
    #[must_use]
    #[allow(unsafe_code)]
    pub const unsafe fn new(source: &'static str, name: &'static str, numbers: Vec<f32>) -> Self {
        Self { source, name, numbers }
    }

    /// CUDA C++.
    #[must_use]
    pub const fn source(&self) -> &'static str {
        self.source
    }

    /// The name of the function.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// What it is given at the end.
    #[must_use]
    pub fn numbers(&self) -> &[f32] {
        &self.numbers
    }
}

/// A [`CustomOp`]. Two of them are equal if their names and attributes print the same.
#[derive(Clone)]
pub struct Custom(Arc<dyn CustomOp>);

impl<C: CustomOp> From<C> for Op {
    fn from(op: C) -> Self {
        Self::Custom(Custom(Arc::new(op)))
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
    /// Runs an op, such as a [`CustomOp`], on one or more tensors. What it wants contiguous is packed where it is not.
    ///
    /// # Errors
    /// If there are no inputs, or they do not fit.
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
        outputs.iter().try_for_each(|output| countable(output.dtype(), output.shape()))?;
        Ok(outputs.into_iter().map(Output::Fresh).collect())
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

    fn samples(&self) -> Vec<Sample> {
        Vec::new()
    }

    fn draw(&self, _draw: &mut Draw) -> Sample {
        Sample { op: Op::Custom(self.clone()), operands: Vec::new() }
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        (Op::Custom(self.clone()), vec![draw.absurd_layout()])
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
        let CudaKernel { source, name, numbers } = self.0.cuda().ok_or_else(|| {
            DeviceError::new(format!(
                "{} has no kernel for the GPU: implement CustomOp::cuda, or run it on the cpu",
                self.0.name()
            ))
        })?;
        let operands: Vec<_> =
            run.inputs.iter().chain(run.outputs).map(|place| gpu.first(place)).collect();
        let sizes = run.outputs.iter().map(|place| place.layout.elements() as u64);
        let count = sizes.max().unwrap_or(0);
        let mut parameters: Vec<&dyn Parameter> = Vec::new();
        parameters.extend(operands.iter().map(|operand| operand as &dyn Parameter));
        parameters.push(&count);
        parameters.extend(numbers.iter().map(|number| number as &dyn Parameter));
        let kernel = Family::new(name, source).kernel(name);
        // SAFETY: the parameters that `CudaKernel::new` demands, whose caller answers for the rest.
        unsafe { gpu.launch(kernel, Grid::of_threads(count), &parameters) }
    }
}
