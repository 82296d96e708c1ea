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
pub(crate) mod steps;
mod timing;
mod versions;
pub(crate) mod windows;

pub use self::driver::{Description, devices};
pub use self::gpu::Gpu;
pub use self::libraries::Libraries;
pub use self::options::Options;
pub use self::versions::{Library, libraries};

pub(crate) use self::kernels::Family;
pub(crate) use self::launch::{Grid, Parameter, Ptr};
pub(crate) use self::scratch::Scratch;

use self::fetched::Fetched;
use self::reads::Reads;
use self::staging::Staging;
use self::timing::Timing;
use crate::device::sim::{Sim, Speed};
use crate::device::{Call, Device, DeviceError, Place, Reading, Took};
use crate::host::HostTensor;
use crate::layout::Layout;
use crate::op::Operation;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

/// Of [`Cuda::available_bytes`]: code of the libraries and stacks of kernels. A reasoned figure, not a
/// measured one: cuDNN's code is most of it, a few hundred MiB where the driver loads all of it at once.
const MARGIN: u64 = 512 << 20;

/// Of the same: 2 % of what is free, for others who use the GPU.
const OTHERS: u64 = 50;

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

/// Runs ops on an NVIDIA GPU.
pub struct Cuda<O> {
    ops: PhantomData<fn(O)>,
    gpu: Gpu,
    timing: Timing,
    /// `None` before `reserve`.
    staging: Option<Staging>,
    /// As above.
    reads: Option<Reads>,
}

impl<O: Kernels> Cuda<O> {
    /// Opens a device.
    ///
    /// # Errors
    /// If there is no driver, no such device, no NVRTC or no cuBLAS, or if a cuDNN is there that does not work.
    pub fn open(options: Options) -> Result<Self, DeviceError> {
        let gpu = Gpu::open(options.ordinal, options.tf32, options.cudnn)?;
        let timing = Timing::new(gpu.events().clone());
        Ok(Self { gpu, timing, staging: None, reads: None, ops: PhantomData })
    }

    /// What it is, and how much of its memory nobody uses now.
    ///
    /// # Errors
    /// If the driver does not say.
    pub fn description(&self) -> Result<Description, DeviceError> {
        self.gpu.enter()?;
        driver::current(self.gpu.context())
    }

    /// Bytes that a budget may have: what nobody uses now, less a margin of 512 MiB, or 2 % where that is
    /// more, or half of it where that is less.
    ///
    /// The context and the handles of the libraries are there once the device is open, and count as used.
    /// The margin is for what comes later beside the budget: kernels are loaded when they first run, their
    /// stacks grow, and others use the GPU too.
    ///
    /// # Errors
    /// If the driver does not say what is free.
    pub fn available_bytes(&self) -> Result<u64, DeviceError> {
        self.gpu.enter()?;
        let free = driver::free_bytes()?;
        Ok(free - MARGIN.max(free / OTHERS).min(free / 2))
    }

    /// A simulated device with the same workspaces, and so the same peak of memory.
    #[must_use]
    pub fn sim(&self) -> Sim<O, HostTensor> {
        let libraries = Arc::clone(self.gpu.libraries());
        Sim::new(Speed::GPU).with_workspace(move |op: &O, inputs, outputs| {
            op.cuda_workspace(&libraries, inputs, outputs)
        })
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

/// What is there once memory is reserved.
fn reserved<T>(part: &mut Option<T>) -> &mut T {
    part.as_mut().expect("memory is reserved before anything is done with it")
}

impl<O: Kernels> Device for Cuda<O> {
    type Op = O;
    type Host = HostTensor;

    fn name(&self) -> &str {
        "cuda"
    }

    fn reserve(&mut self, bytes: u64) -> Result<(), DeviceError> {
        self.gpu.enter()?;
        self.gpu.reserve(bytes)?;
        self.staging = Some(Staging::new(self.gpu.events()));
        self.reads = Some(Reads::new(&self.gpu));
        Ok(())
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
        reserved(&mut self.staging).upload(host.as_bytes(), target)?;
        self.timing.end(events)?;
        Ok(Took::Later)
    }

    fn read(&mut self, from: Place) -> Result<HostTensor, DeviceError> {
        let source = self.gpu.span_of(&from)?;
        let staging = reserved(&mut self.staging);
        let all = Fetched::new(&from.layout, |bytes| staging.download(source, bytes))?;
        self.sync()?;
        all.unpack()
    }

    fn read_later(&mut self, from: Place) -> Result<Reading<HostTensor>, DeviceError> {
        if reserved(&mut self.reads).start(&self.gpu, &from)? {
            Ok(Reading::Later)
        } else {
            self.read(from).map(Reading::Done)
        }
    }

    fn take_read(&mut self) -> Option<Result<HostTensor, DeviceError>> {
        let value = self.reads.as_mut()?.take(&self.gpu)?;
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
        let Some(staging) = &mut self.staging else { return Ok(()) };
        fault::check(&self.gpu, staging)
    }
}

impl<O> fmt::Debug for Cuda<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cuda")
            .field("ordinal", &self.gpu.context().ordinal())
            .finish_non_exhaustive()
    }
}

/// The device that tests run on, or word that there is none.
#[cfg(test)]
pub(crate) fn for_tests() -> Option<Cuda<crate::ops::Op>> {
    match Cuda::open(Options::default()) {
        Ok(device) => Some(device),
        Err(reason) => {
            println!("skipped: {reason}");
            None
        }
    }
}
