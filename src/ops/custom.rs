//! Users' own ops, with their own kernels, on the crate's devices.

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

/// An op of your own: a type whose fields are the attributes of the op. The op runs on the CPU, in
/// the simulator, on a tape, and on a GPU if the op has a CUDA kernel. The runtime evicts and
/// rematerializes the results like the results of the crate's ops. See
/// `examples/08_your_own_op.rs`.
///
/// Inputs are contiguous when the op runs: [`Tensor::apply`] packs inputs that are not contiguous.
/// Outputs are fresh tensors, or new values of inputs ([`CustomOp::updates`]). Inputs and outputs
/// may be of any type and rank that `infer` accepts.
///
/// ```
/// use remat::device::{DeviceError, cpu};
/// use remat::{Layout, ops::CustomOp, prelude::*};
///
/// #[derive(Debug)]
/// struct Double;
///
/// impl CustomOp for Double {
///     fn name(&self) -> &str {
///         "double"
///     }
///
///     fn infer(&self, inputs: &[Layout]) -> Result<Vec<Layout>, String> {
///         Ok(inputs.to_vec())
///     }
///
///     fn cpu(&self, mut operands: cpu::Operands<'_>) -> Result<(), DeviceError> {
///         let ([x], [y]) = (operands.floats(), operands.outputs());
///         x.iter().zip(y).for_each(|(x, y)| *y = 2.0 * x);
///         Ok(())
///     }
/// }
///
/// let runtime = Runtime::builder().budget("1MiB").cpu()?;
/// let x = runtime.tensor(&[2], vec![1.0, 2.0])?;
/// assert_eq!(Tensor::apply(Double, &[&x])?[0].to_vec::<f32>()?, [2.0, 4.0]);
/// # Ok::<(), Error>(())
/// ```
///
/// # Contract
/// Equal input bits must give equal output bits, for any number of threads and any previous
/// contents of outputs and workspace. A rematerialized tensor then has the bits that were evicted.
/// An op that cannot promise equal bits must declare that it runs [once](CustomOp::once).
pub trait CustomOp: Any + fmt::Debug + Send + Sync {
    /// Name in events, recordings, cost models and messages. Ops that compute different functions
    /// need different names, and must not use the names of the crate's ops.
    fn name(&self) -> &str;

    /// Attributes as text in your own format, for recordings. Name and text together must be enough
    /// to make the op again. To execute a recording, register a reader for the text with
    /// `ops::Library`. The default is `None`. A recording without attributes can still be
    /// simulated, because a simulation needs only sizes and costs. A recording without attributes
    /// can be executed only if the registered reader accepts `None`.
    fn attributes(&self) -> Option<String> {
        None
    }

    /// Whether each call must run exactly once, as with an op that has effects outside of the
    /// device. The runtime never evicts the outputs of an op that runs once. Default: false.
    ///
    /// A call may be unable to run, because an input is lost or memory is short. The runtime then
    /// calls [`CustomOp::skipped`] in place of the run.
    ///
    /// After a run that returns [`DeviceError::out_of_memory`], the runtime evicts a tensor and
    /// repeats the run. An op that runs once may return an out-of-memory error only before it has
    /// any effect.
    fn once(&self) -> bool {
        false
    }

    /// Number of leading inputs that the op updates in place, if it has `_inputs` inputs. The new
    /// values are the outputs, and [`CustomOp::infer`] returns no layouts for them. At the start of
    /// a run, each output contains the old value of an updated input, and the slice of the updated
    /// input is empty. Call [`Runtime::update`](crate::Runtime::update) to apply an op that updates
    /// inputs. Default: 0.
    fn updates(&self, _inputs: usize) -> usize {
        0
    }

    /// Tells the op that one of its calls will never run, because of the failure `_why`. The
    /// runtime calls this function in place of the run, in the order of calls, on the runtime's
    /// thread. The function must not wait for the runtime. Default: does nothing.
    ///
    /// ```
    /// use remat::device::{DeviceError, cpu};
    /// use remat::{Layout, ops::CustomOp, prelude::*};
    /// use std::sync::{Arc, Mutex};
    ///
    /// /// Sends each value to a log, once.
    /// #[derive(Debug)]
    /// struct Send(Arc<Mutex<Vec<String>>>);
    ///
    /// impl CustomOp for Send {
    ///     fn name(&self) -> &str {
    ///         "send"
    ///     }
    ///
    ///     fn infer(&self, _inputs: &[Layout]) -> Result<Vec<Layout>, String> {
    ///         Ok(vec![])
    ///     }
    ///
    ///     fn once(&self) -> bool {
    ///         true
    ///     }
    ///
    ///     fn cpu(&self, operands: cpu::Operands<'_>) -> Result<(), DeviceError> {
    ///         let [x] = operands.floats();
    ///         self.0.lock().unwrap().push(format!("{x:?}"));
    ///         Ok(())
    ///     }
    ///
    ///     fn skipped(&self, _why: &(dyn std::error::Error + 'static)) {
    ///         self.0.lock().unwrap().push("skipped".to_owned());
    ///     }
    /// }
    ///
    /// let log = Arc::new(Mutex::new(Vec::new()));
    /// let runtime = Runtime::builder().budget("1KiB").cpu()?;
    /// let x = runtime.tensor(&[2], vec![1.0, 2.0])?;
    /// Tensor::apply(Send(log.clone()), &[&x])?;
    /// // This tensor does not fit the budget, so there is nothing to send.
    /// let large = x.reshape(&[2, 1])?.broadcast(&[2, 1000])?.contiguous()?;
    /// Tensor::apply(Send(log.clone()), &[&large])?;
    /// assert!(runtime.sync().is_err());
    /// assert_eq!(*log.lock().unwrap(), ["[1.0, 2.0]", "skipped"]);
    /// # Ok::<(), Error>(())
    /// ```
    fn skipped(&self, _why: &(dyn std::error::Error + 'static)) {}

    /// Layouts of the outputs, for contiguous inputs with the layouts `inputs`. The layouts of the
    /// outputs must be contiguous, with offset 0.
    ///
    /// # Errors
    /// If the op does not accept the inputs. The message says which input is wrong, and why.
    fn infer(&self, inputs: &[Layout]) -> Result<Vec<Layout>, String>;

    /// Floating-point operations of one run, for the `flops` cost model. The default is one per
    /// output element.
    fn flops(&self, _inputs: &[Layout], outputs: &[Layout]) -> f64 {
        outputs.iter().map(|output| output.elements() as f64).sum()
    }

    /// Bytes of workspace of a run on the CPU. The default is 0.
    fn cpu_workspace(&self, _inputs: &[Layout], _outputs: &[Layout]) -> u64 {
        0
    }

    /// Runs the op on the CPU. The op must write every element of every output.
    ///
    /// # Errors
    /// If the op cannot be run.
    fn cpu(&self, operands: cpu::Operands<'_>) -> Result<(), DeviceError>;

    /// Kernel that runs the op on a GPU. The default is `None`, which means that the op does not
    /// run on a GPU.
    fn cuda(&self) -> Option<CudaKernel> {
        None
    }

    /// Gradient of the op. By default, the op has no gradient, and using the op on a tape is an
    /// error.
    fn gradient(&self, _of: &Recorded<'_>) -> Gradient {
        Gradient::missing()
    }
}

/// A kernel of a [`CustomOp`]: an `extern "C" __global__` function with these parameters:
///
/// 1. for each input, a pointer to the first element: `const float *`, `const int *` or the like,
/// 2. for each output, a pointer to the first element: `float *`, `int *` or the like,
/// 3. `u64`: the number of elements of the largest output. At least as many threads are launched as
///    the largest output has elements, in one-dimensional blocks of 256,
/// 4. `float`, for each of `numbers`.
///
/// The source is compiled behind the prelude of the crate's own kernels; the prelude defines `u64`.
#[derive(Clone, Debug)]
pub struct CudaKernel {
    /// Rust type of the ops that may run the kernel.
    #[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "only a GPU runs it"))]
    of: TypeId,
    source: &'static str,
    name: &'static str,
    numbers: Vec<f32>,
}

impl CudaKernel {
    /// Makes a kernel from the function `name` of the CUDA C++ text `source`. Only ops of the type
    /// of `op` may run the kernel. The source is compiled at the first run. Sources are compared by
    /// their address in memory, not by their text.
    ///
    /// ```
    /// use remat::ops::CudaKernel;
    /// # use remat::{Layout, device::{DeviceError, cpu}, ops::CustomOp};
    /// # #[derive(Debug)]
    /// # struct Double;
    /// # impl CustomOp for Double {
    /// #     fn name(&self) -> &str { "double" }
    /// #     fn infer(&self, inputs: &[Layout]) -> Result<Vec<Layout>, String> {
    /// #         Ok(inputs.to_vec())
    /// #     }
    /// #     fn cpu(&self, _operands: cpu::Operands<'_>) -> Result<(), DeviceError> { Ok(()) }
    /// # }
    ///
    /// const SOURCE: &str = r#"
    ///     extern "C" __global__ void twice(const float *x, float *y, u64 n)
    ///     {
    ///         u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    ///         if (i < n) y[i] = 2.0f * x[i];
    ///     }"#;
    /// // SAFETY: the op has one input and one output of the same size, and no numbers.
    /// let kernel = unsafe { CudaKernel::new(&Double, SOURCE, "twice", vec![]) };
    /// assert_eq!(kernel.name(), "twice");
    /// ```
    ///
    /// # Safety
    /// The caller guarantees that the function has the parameters listed at [`CudaKernel`]. For all
    /// shapes that the `infer` of `op` accepts, the threads read only elements of the inputs, and
    /// write only elements of the outputs.
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

    /// CUDA C++ source.
    #[must_use]
    pub const fn source(&self) -> &'static str {
        self.source
    }

    /// Name of the function.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Numbers that the function receives as its last parameters.
    #[must_use]
    pub fn numbers(&self) -> &[f32] {
        &self.numbers
    }
}

/// A [`CustomOp`]. Two custom ops are equal if their names and their `Debug` output are equal.
#[derive(Clone)]
pub struct Custom(Arc<dyn CustomOp>);

impl<C: CustomOp> From<C> for Op {
    fn from(op: C) -> Self {
        Self::Custom(Custom(Arc::new(op)))
    }
}

impl Custom {
    /// Attributes as text; see [`CustomOp::attributes`].
    pub(super) fn attributes(&self) -> Option<String> {
        self.0.attributes()
    }

    /// Whether each call must run exactly once; see [`CustomOp::once`].
    pub(super) fn once(&self) -> bool {
        self.0.once()
    }

    /// Tells the op that a call is skipped; see [`CustomOp::skipped`].
    pub(super) fn skipped(&self, why: &(dyn std::error::Error + 'static)) {
        self.0.skipped(why);
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
    /// Runs an op, such as a [`CustomOp`], on one or more tensors. Inputs that must be contiguous
    /// are packed first.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// use remat::unstable::ops::CumSum;
    ///
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[3], vec![1.0, 2.0, 3.0])?;
    /// let outputs = Tensor::apply(CumSum { axis: 0, reverse: true }, &[&x])?;
    /// assert_eq!(outputs[0].to_vec::<f32>()?, [6.0, 5.0, 3.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if there are no inputs, or the op does not accept the inputs.
    pub fn apply(op: impl Into<Op>, inputs: &[&Self]) -> Result<Tensors, Error> {
        let op = op.into();
        if inputs.is_empty() {
            let name = op.definition().name();
            let message = "has no inputs; use Runtime::apply for an op without inputs";
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
        let targets = self.0.updates(inputs.len());
        if targets > inputs.len() {
            return Err(format!("updates {targets} inputs, but has {}", inputs.len()));
        }
        Ok(match (targets, Outputs::fresh(outputs)) {
            (1.., Outputs::Fresh(fresh)) => Outputs::Updates { targets, fresh },
            (_, fresh) => fresh,
        })
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
    fn updates(&self, inputs: usize) -> usize {
        self.0.updates(inputs)
    }

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
        // SAFETY: the parameters are those listed at [`CudaKernel`]. The caller of
        // `CudaKernel::new` guarantees that the function has the listed parameters. The caller also
        // guarantees that the function stays within its operands, for all operands that the op's
        // `infer` accepts.
        unsafe { gpu.launch(kernel, Grid::of_threads(count), &parameters) }
    }
}
