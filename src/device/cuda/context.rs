//! An open GPU, before memory for tensors is allocated.

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

/// Bytes that [`Context::available_bytes`] leaves free for the code of the libraries and the stacks
/// of kernels. The number is an estimate, not a measurement. cuDNN's code needs most of the bytes:
/// a few hundred MiB if the driver loads all of the code at once.
const MARGIN: u64 = 512 << 20;

/// Divisor of the free bytes. The quotient, 2 % of the free bytes, is left for other programs that
/// use the GPU.
const OTHERS: u64 = 50;

/// An open GPU, with its stream and the libraries. All clones of a `Context` refer to one GPU. A
/// context may move between threads. A [`Cuda`](super::Cuda) must be made from the context on the
/// thread that will use the device.
///
/// ```no_run
/// use remat::device::cuda::Options;
/// use remat::unstable::device::cuda::{Context, Cuda};
///
/// let gpu = Context::open(Options::default())?;
/// let device = Cuda::<remat::Op>::of(&gpu, gpu.available_bytes()? / 2)?;
/// # Ok::<(), remat::device::DeviceError>(())
/// ```
#[derive(Clone)]
pub struct Context {
    driver: Arc<CudaContext>,
    /// The only stream, so that the GPU does all work in order.
    stream: Arc<CudaStream>,
    compiler: Arc<Compiler>,
    libraries: Arc<Libraries>,
}

impl Context {
    /// Opens a GPU.
    ///
    /// # Errors
    /// Fails if the driver, the device, NVRTC or cuBLAS is not found, or if cuDNN is found but does
    /// not work.
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

    /// Properties of the GPU, and the number of free bytes of its memory.
    ///
    /// # Errors
    /// Fails if the driver does not report the properties.
    pub fn description(&self) -> Result<Description, DeviceError> {
        self.enter()?;
        driver::current(&self.driver)
    }

    /// Largest budget in bytes: the free bytes minus a margin. The margin is the larger of 512 MiB
    /// and 2 % of the free bytes, but at most half of the free bytes.
    ///
    /// The free bytes exclude the memory of the context and of the libraries' handles, because both
    /// are allocated when the GPU is opened. The margin is for memory that is allocated later, in
    /// addition to the budget: kernels are loaded when they first run, the stacks of kernels grow,
    /// and other programs may use the GPU.
    ///
    /// # Errors
    /// Fails if the driver does not report the free bytes.
    pub fn available_bytes(&self) -> Result<u64, DeviceError> {
        self.enter()?;
        let free = driver::free_bytes()?;
        Ok(free - MARGIN.max(free / OTHERS).min(free / 2))
    }

    /// Makes a simulated device of `bytes` bytes. Ops on the simulated device have the workspaces
    /// that they have on this GPU, so the peak of memory is that of this GPU.
    #[must_use]
    pub fn sim<O: Kernels>(&self, bytes: u64) -> Sim<O, HostTensor> {
        let libraries = Arc::clone(&self.libraries);
        Sim::new(bytes, Speed::GPU).with_workspace(move |op: &O, inputs, outputs| {
            op.cuda_workspace(&libraries, inputs, outputs)
        })
    }

    /// Makes this GPU's context current on the calling thread.
    pub(super) fn enter(&self) -> Result<(), DeviceError> {
        self.driver.bind_to_thread().map_err(|e| failed("changing threads", e))
    }

    /// Number of the GPU.
    pub(super) fn ordinal(&self) -> usize {
        self.driver.ordinal()
    }

    /// Stream of the GPU, to record events in.
    pub(super) const fn events(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    /// Stream of the GPU, as a handle for the driver.
    pub(super) fn stream(&self) -> sys::CUstream {
        self.stream.cu_stream()
    }

    pub(super) fn compiler(&self) -> &Compiler {
        &self.compiler
    }

    /// Handles of cuBLAS, and of cuDNN if it was found.
    pub(super) const fn libraries(&self) -> &Arc<Libraries> {
        &self.libraries
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("ordinal", &self.ordinal()).finish_non_exhaustive()
    }
}
