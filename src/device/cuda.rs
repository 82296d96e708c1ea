//! An NVIDIA GPU, by the driver's interface: nothing of CUDA is needed to build, and what is there is
//! found at run time.
//!
//! All tensors lie in one allocation of the budget's size. Kernels, library calls and copies go to one
//! stream, which runs behind the engine: the engine knows which offset holds what once the work it gave is
//! done, and the stream does it in order. The host waits when somebody waits for a value, and where far more
//! is on its way to the device than a batch.
//!
//! Running an op again gives the same bits: kernels add in an order that depends on shapes alone, cuBLAS has
//! a workspace of its own and one stream, and of cuDNN only deterministic algorithms are used.
//!
//! Beside the budget, the driver takes memory for itself (hundreds of MiB on current GPUs), and 2 MiB are
//! taken to move blocks through. On the host, values on their way go through pinned memory: as much as was ever
//! on its way at once, and never more than 540 MiB. No op takes any memory of its own.

pub(crate) mod blas;
mod cache;
mod check;
mod compile;
mod context;
pub(crate) mod dnn;
mod driver;
pub(crate) mod fault;
mod fetched;
pub(crate) mod gpu;
pub(crate) mod kernels;
pub(crate) mod launch;
pub(crate) mod libraries;
#[cfg(test)]
mod library_tests;
mod memory;
mod options;
mod pinned;
mod reads;
pub(crate) mod scratch;
mod staging;
pub(crate) mod strides;
mod timing;
mod versions;
pub(crate) mod windows;

pub use self::context::Context;
pub use self::driver::{Description, devices};
pub use self::gpu::Gpu;
pub use self::libraries::Libraries;
pub use self::options::Options;
pub use self::versions::{Library, libraries};

pub(crate) use self::kernels::Family;
pub(crate) use self::launch::{Grid, Parameter, Ptr, THREADS};
pub(crate) use self::scratch::Scratch;

use self::fetched::Fetched;
use self::reads::Reads;
use self::staging::Staging;
use self::timing::Timing;
use crate::device::{Call, Device, DeviceError, Memory, Place, Reading, Took};
use crate::host::HostTensor;
use crate::layout::Layout;
use crate::op::Operation;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

/// Ops that run on a GPU.
pub trait Kernels: Operation {
    /// Scratch bytes of a run. Depends on nothing but the arguments; libraries choose their algorithms when they
    /// are first asked for a shape.
    fn cuda_workspace(&self, libraries: &Libraries, inputs: &[Layout], outputs: &[Layout]) -> u64;

    /// Runs the op, once all that was given before is done. Not all outputs are without elements.
    ///
    /// # Safety
    /// The outputs are what [`Operation::infer`] says of the inputs, and none is a view. All operands lie within the
    /// memory, and so does the workspace, which begins at a multiple of 256 bytes; outputs and workspace are apart from
    /// each other, and from all inputs but their own old value. [`Cuda`] sees to that; an op that has another one run
    /// in its place does.
    ///
    /// # Errors
    /// If it could not be run.
    #[allow(unsafe_code)]
    unsafe fn cuda(&self, gpu: &mut Gpu, operands: &Operands<'_>) -> Result<(), DeviceError>;
}

/// What an op runs on.
#[derive(Clone, Debug)]
pub struct Operands<'a> {
    /// Where the inputs are, in order.
    pub inputs: &'a [Place],
    /// Where the outputs go.
    pub outputs: &'a [Place],
    /// Scratch bytes.
    pub workspace: Range<u64>,
}

/// Runs ops on an NVIDIA GPU, on the thread that made it.
pub struct Cuda<O> {
    ops: PhantomData<fn(O)>,
    gpu: Gpu,
    timing: Timing,
    staging: Staging,
    reads: Reads,
}

impl<O: Kernels> Cuda<O> {
    /// Opens a GPU, and takes `bytes` bytes of its memory.
    ///
    /// # Errors
    /// Those of [`Context::open`], and if that much memory cannot be had.
    pub fn new(bytes: u64, options: Options) -> Result<Self, DeviceError> {
        Self::of(&Context::open(options)?, bytes)
    }

    /// Takes `bytes` bytes of the memory of a GPU that is open.
    ///
    /// # Errors
    /// If that much memory cannot be had.
    pub fn of(context: &Context, bytes: u64) -> Result<Self, DeviceError> {
        let gpu = Gpu::new(context.clone(), bytes)?;
        Ok(Self {
            ops: PhantomData,
            timing: Timing::new(gpu.events().clone()),
            staging: Staging::new(gpu.events()),
            reads: Reads::new(&gpu),
            gpu,
        })
    }

    /// The GPU that it is of.
    #[must_use]
    pub const fn context(&self) -> &Context {
        self.gpu.context()
    }

    fn run(&mut self, call: &Call<'_, O>) -> Result<(), DeviceError> {
        check::operands(&self.gpu, call)?;
        if call.outputs.iter().all(|place| place.layout.elements() == 0) {
            return Ok(());
        }
        let Call { inputs, outputs, ref workspace, .. } = *call;
        let operands = Operands { inputs, outputs, workspace: workspace.clone() };
        // SAFETY: checked above.
        #[allow(unsafe_code)]
        unsafe {
            call.op.cuda(&mut self.gpu, &operands)
        }
    }
}

impl<O: Kernels> Device for Cuda<O> {
    type Op = O;
    type Host = HostTensor;

    fn name(&self) -> &str {
        "cuda"
    }

    fn memory(&self) -> Memory {
        Memory::arena(self.gpu.memory().all().bytes())
    }

    fn layout_of(host: &HostTensor) -> Layout {
        host.layout()
    }

    fn write(&mut self, host: &HostTensor, to: Place) -> Result<Took, DeviceError> {
        if to.layout != host.layout() {
            return Err(DeviceError::new(format!(
                "{} does not go where {} is",
                host.layout(),
                to.layout
            )));
        }
        let target = self.gpu.span_of(&to)?;
        let events = self.timing.start()?;
        self.staging.upload(host.as_bytes(), target)?;
        self.timing.end(events)?;
        Ok(Took::Later)
    }

    fn read(&mut self, from: Place) -> Result<HostTensor, DeviceError> {
        let source = self.gpu.span_of(&from)?;
        let staging = &mut self.staging;
        let all = Fetched::new(&from.layout, |bytes| staging.download(source, bytes))?;
        self.sync()?;
        all.unpack()
    }

    fn has_bits(&self) -> bool {
        true
    }

    fn bits(&mut self, from: Place, see: &mut dyn FnMut(&[u8])) -> Result<(), DeviceError> {
        see(self.read(from)?.as_bytes());
        Ok(())
    }

    fn read_later(&mut self, from: Place) -> Result<Reading<HostTensor>, DeviceError> {
        if self.reads.start(&self.gpu, &from)? {
            Ok(Reading::Later)
        } else {
            self.read(from).map(Reading::Done)
        }
    }

    fn take_read(&mut self) -> Option<Result<HostTensor, DeviceError>> {
        let value = self.reads.take(&self.gpu)?;
        Some(value.and_then(Fetched::unpack))
    }

    fn copy(&mut self, from: u64, to: u64, bytes: u64) -> Result<(), DeviceError> {
        for at in [from, to] {
            self.gpu.within(&(at..at.saturating_add(bytes)))?;
        }
        self.gpu.memory().copy(from, to, bytes)
    }

    fn workspace(&self, op: &O, inputs: &[Layout], outputs: &[Layout]) -> u64 {
        op.cuda_workspace(self.gpu.libraries(), inputs, outputs)
    }

    fn execute(&mut self, call: Call<'_, O>) -> Result<Took, DeviceError> {
        if !call.timed {
            self.run(&call)?;
            return Ok(Took::Unknown);
        }
        let events = self.timing.start()?;
        self.run(&call)?;
        self.timing.end(events)?;
        Ok(Took::Later)
    }

    fn take_time(&mut self) -> Option<f64> {
        self.timing.take()
    }

    fn sync(&mut self) -> Result<(), DeviceError> {
        fault::check(&self.gpu, &mut self.staging)
    }
}

impl<O> fmt::Debug for Cuda<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cuda").field("context", self.gpu.context()).finish_non_exhaustive()
    }
}

/// The device that tests run on, of so many bytes, or word that there is none.
#[cfg(test)]
pub(crate) fn for_tests(bytes: u64) -> Option<Cuda<crate::ops::Op>> {
    match Context::open(Options::default()) {
        Ok(context) => Some(Cuda::of(&context, bytes).expect("there is as much")),
        Err(reason) => {
            println!("skipped: {reason}");
            None
        }
    }
}
