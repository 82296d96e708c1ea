//! A GPU that is open: nothing of its memory is taken yet.

use super::compile::Compiler;
use super::driver::{self, Description, failed};
use super::libraries::Libraries;
use super::{Kernels, Options};
use crate::device::DeviceError;
use crate::device::sim::{Sim, Speed};
use crate::host::HostTensor;
use cudarc::driver::sys;
use cudarc::driver::{CudaContext, CudaStream, DriverError};
use std::fmt;
use std::sync::Arc;

/// Of [`Context::available_bytes`]: code of the libraries and stacks of kernels. A reasoned figure, not a
/// measured one: cuDNN's code is most of it, a few hundred MiB where the driver loads all of it at once.
const MARGIN: u64 = 512 << 20;

/// Of the same: 2 % of what is free, for others who use the GPU.
const OTHERS: u64 = 50;

/// A GPU that is open: its stream, and the libraries. Clones are the same. It goes from thread to thread; a
/// [`Cuda`](super::Cuda) is made of it on the thread that is to use it.
///
/// ```no_run
/// use remat::device::cuda::{Context, Cuda, Options};
///
/// let gpu = Context::open(Options::default())?;
/// let device = Cuda::<remat::Op>::of(&gpu, gpu.available_bytes()? / 2)?;
/// # Ok::<(), remat::device::DeviceError>(())
/// ```
#[derive(Clone)]
pub struct Context {
    driver: Arc<CudaContext>,
    /// All work goes here, and so is done in order.
    stream: Arc<CudaStream>,
    compiler: Arc<Compiler>,
    libraries: Arc<Libraries>,
}

impl Context {
    /// Opens a GPU.
    ///
    /// # Errors
    /// If there is no driver, no such device, no NVRTC or no cuBLAS, or if a cuDNN is there that does not work.
    pub fn open(options: Options) -> Result<Self, DeviceError> {
        let driver = driver::open(options.ordinal)?;
        let opened = || -> Result<_, DriverError> {
            let (major, minor) = driver.compute_capability()?;
            Ok((driver.new_stream()?, (major.unsigned_abs(), minor.unsigned_abs())))
        };
        let (stream, capability) = opened().map_err(|e| failed("opening the device", e))?;
        let libraries = Libraries::open(stream.clone(), options.tf32, options.cudnn)?;
        let compiler = Arc::new(Compiler::new(capability)?);
        Ok(Self { driver, stream, compiler, libraries: Arc::new(libraries) })
    }

    /// What it is, and how much of its memory nobody uses now.
    ///
    /// # Errors
    /// If the driver does not say.
    pub fn description(&self) -> Result<Description, DeviceError> {
        self.enter()?;
        driver::current(&self.driver)
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
        self.enter()?;
        let free = driver::free_bytes()?;
        Ok(free - MARGIN.max(free / OTHERS).min(free / 2))
    }

    /// A simulated device of so many bytes with the same workspaces, and so the same peak of memory.
    #[must_use]
    pub fn sim<O: Kernels>(&self, bytes: u64) -> Sim<O, HostTensor> {
        let libraries = Arc::clone(&self.libraries);
        Sim::new(bytes, Speed::GPU).with_workspace(move |op: &O, inputs, outputs| {
            op.cuda_workspace(&libraries, inputs, outputs)
        })
    }

    /// Makes the device that of the calling thread.
    pub(super) fn enter(&self) -> Result<(), DeviceError> {
        self.driver.bind_to_thread().map_err(|e| failed("changing threads", e))
    }

    /// Its number.
    pub(super) fn ordinal(&self) -> usize {
        self.driver.ordinal()
    }

    /// Its stream, to record events in.
    pub(super) const fn events(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    /// Its stream, for the driver.
    pub(super) fn stream(&self) -> sys::CUstream {
        self.stream.cu_stream()
    }

    pub(super) fn compiler(&self) -> &Compiler {
        &self.compiler
    }

    /// cuBLAS, and cuDNN if it is there.
    pub(super) const fn libraries(&self) -> &Arc<Libraries> {
        &self.libraries
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("ordinal", &self.ordinal()).finish_non_exhaustive()
    }
}
