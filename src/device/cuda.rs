//! An NVIDIA GPU, used through the driver API. The build needs no CUDA installation; the driver and
//! the libraries are loaded at run time.
//!
//! All tensors lie in one allocation of the budget's size. Kernels, library calls and copies are
//! queued on one stream, which works asynchronously. Because the stream works in order, the engine
//! can reuse an offset for another tensor without waiting for the device. The host waits in two
//! cases only: in a read that must return the value, and while too many bytes of uploads are
//! unfinished.
//!
//! A repeated run of an op gives the same bits. Kernels add in an order that depends only on
//! shapes. cuBLAS runs on one stream, with a workspace of its own. Of cuDNN's algorithms, the
//! device uses only deterministic ones.
//!
//! In addition to the budget, the driver allocates memory for itself (hundreds of MiB on current
//! GPUs). The device allocates a buffer of 2 MiB, through which it copies a tensor to an
//! overlapping range. On the host, copies pass through pinned memory. The size of the pinned memory
//! grows to the largest number of bytes that were being copied at one time, at most 532 MiB: 528
//! MiB for copies in general, and 4 MiB for reads that do not wait. No op allocates memory.

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

pub use self::driver::{Description, devices};
pub use self::options::Options;

// Items that the documentation lists in `unstable`.
#[doc(hidden)]
pub use self::{
    context::Context,
    gpu::Gpu,
    libraries::Libraries,
    versions::{Library, libraries},
};

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
#[doc(hidden)]
pub trait Kernels: Operation {
    /// Scratch bytes of a run. The result must depend only on the arguments. The first call for a
    /// shape chooses the algorithm with which cuDNN will compute ops on the shape. Only the run in
    /// which cuDNN refuses this algorithm may enlarge the result.
    fn cuda_workspace(&self, libraries: &Libraries, inputs: &[Layout], outputs: &[Layout]) -> u64;

    /// Queues the op behind all work that was submitted to the stream before. At least one output
    /// has elements.
    ///
    /// # Safety
    /// The caller guarantees that the outputs have the layouts that [`Operation::infer`] returns
    /// for the inputs, and that no output is a view. All operands and the workspace lie within the
    /// memory of `gpu`, and the workspace begins at a multiple of 256 bytes. Outputs and workspace
    /// overlap neither each other nor an input. The only exception is an output that overwrites its
    /// own old value in place. [`Cuda`] checks all conditions of this section before the call. An
    /// op that calls this function on another op must guarantee the conditions, too.
    ///
    /// # Errors
    /// A failure of the run.
    #[allow(unsafe_code)]
    unsafe fn cuda(&self, gpu: &mut Gpu, operands: &Operands<'_>) -> Result<(), DeviceError>;
}

/// Operands of one run.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct Operands<'a> {
    /// Places of the inputs, in order.
    pub inputs: &'a [Place],
    /// Places of the outputs, in order.
    pub outputs: &'a [Place],
    /// Offsets of the scratch bytes.
    pub workspace: Range<u64>,
}

/// A device for ops on an NVIDIA GPU, used on the thread that opened the device.
#[doc(hidden)]
pub struct Cuda<O> {
    ops: PhantomData<fn(O)>,
    gpu: Gpu,
    timing: Timing,
    staging: Staging,
    reads: Reads,
}

impl<O: Kernels> Cuda<O> {
    /// Opens a GPU, and allocates `bytes` bytes of its memory.
    ///
    /// # Errors
    /// Fails as [`Context::open`] does, and if too little memory is free.
    pub fn new(bytes: u64, options: Options) -> Result<Self, DeviceError> {
        Self::of(&Context::open(options)?, bytes)
    }

    /// Allocates `bytes` bytes of the memory of an open GPU.
    ///
    /// # Errors
    /// Too little free memory.
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

    /// The open GPU that the device runs on.
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
        // SAFETY: `check::operands` has verified all conditions of `Kernels::cuda` for operands and
        // workspace. At least one output has elements.
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
                "a value of {} does not fit into a place of {}",
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

/// A device with `bytes` bytes for tests. `None`, with a message, if there is no GPU.
#[cfg(test)]
pub(crate) fn for_tests(bytes: u64) -> Option<Cuda<crate::ops::Op>> {
    let context = context_for_tests()?;
    Some(Cuda::of(&context, bytes).expect("there is as much"))
}

/// The GPU that tests share. `None`, with a message, if there is no GPU. A test that changes the
/// state of the libraries opens a GPU of its own.
#[cfg(test)]
pub(crate) fn context_for_tests() -> Option<Context> {
    // Opening a real GPU may take a second, most of it for cuDNN.
    static SHARED: crate::sync::OnceLock<Result<Context, DeviceError>> =
        crate::sync::OnceLock::new();
    match SHARED.get_or_init(|| Context::open(Options::default())) {
        Ok(context) => Some(context.clone()),
        Err(reason) => {
            println!("skipped: {reason}");
            None
        }
    }
}
