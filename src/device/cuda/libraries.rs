//! NVIDIA's libraries, found at run time: cuBLAS, and cuDNN where it is there.

#![allow(unsafe_code)]

use super::blas::Blas;
use super::convolution::Dnn;
use super::versions::{self, Version};
use crate::device::DeviceError;
use cudarc::driver::CudaStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Oldest cuBLAS whose functions are those of the bindings.
const OLDEST_CUBLAS: Version = Version(12, 0, 0);

/// Oldest cuDNN.
const OLDEST_CUDNN: Version = Version(9, 0, 0);

/// Handles of the libraries, for one stream. The device has them, and so have its dry runs on other threads.
pub(super) struct Libraries {
    stream: Arc<CudaStream>,
    blas: Mutex<Blas>,
    dnn: Option<Mutex<Dnn>>,
}

impl Libraries {
    /// Handles for a stream, whose context is current. Without cuDNN if that is not wanted or does not work.
    pub(super) fn open(
        stream: Arc<CudaStream>,
        tf32: bool,
        cudnn: bool,
    ) -> Result<Self, DeviceError> {
        let cublas = versions::cublas().ok_or_else(|| {
            DeviceError::new(
                "cuBLAS was not found, which multiplies matrices: the system has no libcublas.so.13 \
                 or libcublas.so.12; install the CUDA toolkit, or the Python package \
                 nvidia-cublas-cu12 with its folder in LD_LIBRARY_PATH",
            )
        })?;
        if cublas < OLDEST_CUBLAS {
            return Err(DeviceError::new(format!(
                "cuBLAS {cublas} was found, and {OLDEST_CUBLAS} is the oldest that works; put the folder of \
                 a newer libcublas.so first in LD_LIBRARY_PATH"
            )));
        }
        let blas = Blas::open(stream.clone(), tf32)?;
        let dnn = if cudnn { open_cudnn(&stream, tf32) } else { None };
        Ok(Self { stream, blas: Mutex::new(blas), dnn: dnn.map(Mutex::new) })
    }

    /// cuBLAS.
    pub(super) fn blas(&self) -> MutexGuard<'_, Blas> {
        // A panic leaves nothing behind: each product sets all that it depends on.
        self.blas.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// cuDNN, if it is there.
    pub(super) fn dnn(&self) -> Option<MutexGuard<'_, Dnn>> {
        // As above; choices are entered when they are complete.
        self.dnn.as_ref().map(|dnn| dnn.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Libraries {
    fn drop(&mut self) {
        // Handles, which go next, are destroyed in the context they were made in. A failure can be told to
        // nobody.
        let _ = self.stream.context().bind_to_thread();
    }
}

/// A handle of cuDNN, if it is there, is new enough and works.
fn open_cudnn(stream: &Arc<CudaStream>, tf32: bool) -> Option<Dnn> {
    let without = |reason: &str| {
        tracing::debug!(target: "remat", reason, "cuDNN is not used");
        None
    };
    let Some(version) = versions::cudnn() else { return without("there is no libcudnn.so.9") };
    if version < OLDEST_CUDNN {
        return without(&format!("it is version {version}"));
    }
    match Dnn::open(stream.clone(), tf32) {
        Ok(dnn) => Some(dnn),
        Err(error) => without(&error.to_string()),
    }
}
