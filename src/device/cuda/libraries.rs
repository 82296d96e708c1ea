//! NVIDIA's libraries, found at run time: cuBLAS, and cuDNN where it is there.

#![allow(unsafe_code)]

use super::blas::Blas;
use super::compile;
use super::convolution::Dnn;
use crate::device::DeviceError;
use cudarc::driver::CudaStream;
use cudarc::{cublas, cudnn, nvrtc};
use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Oldest cuBLAS whose functions are those of the bindings.
const OLDEST_CUBLAS: u32 = 12;

/// Oldest cuDNN.
const OLDEST_CUDNN: u32 = 9;

/// A version: major, minor, patch.
type Version = (u32, u32, u32);

/// Which of NVIDIA's libraries this machine has, and in which versions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Found {
    /// NVRTC, which compiles the kernels: the version of its CUDA, such as `(12, 8)`. The device needs it.
    pub nvrtc: Option<(u32, u32)>,
    /// cuBLAS, which multiplies matrices. The device needs it.
    pub cublas: Option<(u32, u32, u32)>,
    /// cuDNN, which convolves. From 9 on it is used where it is found.
    pub cudnn: Option<(u32, u32, u32)>,
}

/// Looks for NVIDIA's libraries. Loads them, but needs neither a driver nor a device.
#[must_use]
pub fn found() -> Found {
    Found { nvrtc: nvrtc_version(), cublas: cublas_version(), cudnn: cudnn_version() }
}

fn nvrtc_version() -> Option<(u32, u32)> {
    if !compile::is_present() {
        return None;
    }
    let [mut major, mut minor] = [0; 2];
    // SAFETY: writes two integers to places that outlive the call.
    unsafe { nvrtc::sys::nvrtcVersion(&raw mut major, &raw mut minor) }.result().ok()?;
    Some((major.unsigned_abs(), minor.unsigned_abs()))
}

fn is_cublas_present() -> bool {
    // SAFETY: loading a library runs its initializers; cuBLAS's have no preconditions.
    unsafe { cublas::sys::is_culib_present() }
}

fn cublas_version() -> Option<Version> {
    use cublas::sys::libraryPropertyType_t::{MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL};
    type GetProperty = unsafe extern "C" fn(
        cublas::sys::libraryPropertyType_t,
        *mut c_int,
    ) -> cublas::sys::cublasStatus_t;
    if !is_cublas_present() {
        return None;
    }
    // Not through the bindings, which panic where there is no such function.
    // SAFETY: the library is there, and the type is that of the function.
    let function = unsafe { cublas::sys::culib().get::<GetProperty>(b"cublasGetProperty\0") };
    let function = function.ok()?;
    let part = |which| {
        let mut value: c_int = 0;
        // SAFETY: writes one integer to a place that outlives the call.
        unsafe { function(which, &raw mut value) }.result().ok()?;
        Some(value.unsigned_abs())
    };
    Some((part(MAJOR_VERSION)?, part(MINOR_VERSION)?, part(PATCH_LEVEL)?))
}

fn cudnn_version() -> Option<Version> {
    // SAFETY: loading a library runs its initializers; cuDNN's have no preconditions.
    if !unsafe { cudnn::sys::is_culib_present() } {
        return None;
    }
    Some(version_of(u32::try_from(cudnn::result::get_version()).unwrap_or(0)))
}

/// A version from one number. The major version counts tens of thousands; thousands in cuDNN up to 8.
const fn version_of(number: u32) -> Version {
    let major = if number < 90_000 { 1_000 } else { 10_000 };
    (number / major, number % major / 100, number % 100)
}

/// Handles of the libraries, for one stream. The device has them, and so have its dry runs on other threads.
pub(super) struct Libraries {
    stream: Arc<CudaStream>,
    blas: Mutex<Blas>,
    dnn: Option<Mutex<Dnn>>,
    cublas_version: Version,
    cudnn_version: Option<Version>,
}

impl Libraries {
    /// Handles for a stream, whose context is current. Without cuDNN if that is not wanted or does not work.
    pub(super) fn open(
        stream: Arc<CudaStream>,
        tf32: bool,
        cudnn: bool,
    ) -> Result<Self, DeviceError> {
        if !is_cublas_present() {
            return Err(DeviceError::new(
                "cuBLAS was not found, which multiplies matrices: the system has no libcublas.so.13 \
                 or libcublas.so.12; install the CUDA toolkit, or the Python package \
                 nvidia-cublas-cu12 with its folder in LD_LIBRARY_PATH",
            ));
        }
        let blas = Blas::open(stream.clone(), tf32)?;
        let cublas_version = version_of(blas.version()?);
        if cublas_version.0 < OLDEST_CUBLAS {
            return Err(DeviceError::new(format!(
                "cuBLAS {} was found, and {OLDEST_CUBLAS} is the oldest that works; put the folder of \
                 a newer libcublas.so.{OLDEST_CUBLAS} first in LD_LIBRARY_PATH",
                dotted(cublas_version)
            )));
        }
        let opened = if cudnn { open_cudnn(&stream, tf32) } else { None };
        let (dnn, cudnn_version) = opened.unzip();
        tracing::debug!(
            target: "remat",
            cublas = dotted(cublas_version),
            cudnn = cudnn_version.map(dotted),
            "libraries"
        );
        Ok(Self {
            stream,
            blas: Mutex::new(blas),
            dnn: dnn.map(Mutex::new),
            cublas_version,
            cudnn_version,
        })
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

    /// The version of cuBLAS.
    pub(super) const fn cublas_version(&self) -> Version {
        self.cublas_version
    }

    /// The version of cuDNN; `None` if it is not used.
    pub(super) const fn cudnn_version(&self) -> Option<Version> {
        self.cudnn_version
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
fn open_cudnn(stream: &Arc<CudaStream>, tf32: bool) -> Option<(Dnn, Version)> {
    let without = |reason: &str| {
        tracing::debug!(target: "remat", reason, "cuDNN is not used");
        None
    };
    let Some(version) = cudnn_version() else { return without("there is no libcudnn.so.9") };
    if version.0 < OLDEST_CUDNN {
        return without(&format!("it is version {}", dotted(version)));
    }
    match Dnn::open(stream.clone(), tf32) {
        Ok(dnn) => Some((dnn, version)),
        Err(error) => without(&error.to_string()),
    }
}

fn dotted((major, minor, patch): Version) -> String {
    format!("{major}.{minor}.{patch}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_counted_in_two_ways() {
        assert_eq!(version_of(8907), (8, 9, 7));
        assert_eq!(version_of(90100), (9, 1, 0));
        assert_eq!(version_of(91002), (9, 10, 2));
        assert_eq!(version_of(120_903), (12, 9, 3));
    }

    #[test]
    fn looking_for_libraries_needs_nothing() {
        let libraries = found();
        println!("{libraries:?}");
        assert_eq!(libraries, found());
    }
}
