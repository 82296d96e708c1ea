//! NVIDIA's libraries, which are loaded at run time: cuBLAS, and cuDNN if it is installed.

#![allow(unsafe_code)]

use super::blas::Blas;
use super::dnn::Dnn;
use super::driver::driver_version;
use super::versions::{self, Version};
use crate::device::DeviceError;
use crate::sync::{Mutex, MutexGuard, lock};
use cudarc::driver::CudaStream;
use std::fmt;
use std::sync::Arc;

/// Oldest cuBLAS whose functions match the bindings.
const OLDEST_CUBLAS: Version = Version(12, 0, 0);

/// Oldest cuDNN whose functions match the bindings.
const OLDEST_CUDNN: Version = Version(9, 0, 0);

/// Handles of the libraries for one stream. The device and its simulated devices on other threads
/// share the handles.
pub struct Libraries {
    stream: Arc<CudaStream>,
    blas: Mutex<Blas>,
    dnn: Option<Mutex<Dnn>>,
}

impl Libraries {
    /// Opens handles for a stream, whose context must be current. cuDNN is not opened if `cudnn` is
    /// false or the library is not found.
    pub(crate) fn open(
        stream: Arc<CudaStream>,
        tf32: bool,
        cudnn: bool,
    ) -> Result<Self, DeviceError> {
        let cublas = versions::cublas().ok_or_else(|| {
            DeviceError::new(
                "cuBLAS, which multiplies matrices, was not found: the system has no libcublas.so.13 \
                 or libcublas.so.12; install the CUDA toolkit, or the Python package \
                 nvidia-cublas-cu12 with its folder in LD_LIBRARY_PATH",
            )
        })?;
        if cublas < OLDEST_CUBLAS {
            return Err(DeviceError::new(format!(
                "cuBLAS {cublas} was found, but at least {OLDEST_CUBLAS} is needed; put the folder of \
                 a newer libcublas.so first in LD_LIBRARY_PATH"
            )));
        }
        let driver = driver_version()?;
        let blas =
            Blas::open(stream.clone(), tf32).map_err(|error| broken(cublas, driver, &error))?;
        let dnn = if cudnn { open_cudnn(&stream, tf32)? } else { None };
        Ok(Self { stream, blas: Mutex::new(blas), dnn: dnn.map(Mutex::new) })
    }

    /// Locks cuBLAS for one caller.
    pub(crate) fn blas(&self) -> MutexGuard<'_, Blas> {
        // After a panic in another thread, the handle is still usable, because each product sets
        // all state that it depends on.
        lock(&self.blas)
    }

    /// Locks cuDNN for a caller; `None` if cuDNN is not used.
    pub(crate) fn dnn(&self) -> Option<MutexGuard<'_, Dnn>> {
        // After a panic in another thread, the handle is still usable, because only complete plans
        // are inserted.
        self.dnn.as_ref().map(|dnn| lock(dnn))
    }
}

impl fmt::Debug for Libraries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Libraries").field("cudnn", &self.dnn.is_some()).finish_non_exhaustive()
    }
}

impl Drop for Libraries {
    fn drop(&mut self) {
        // Make the context of the handles current, because they are dropped next, and must be
        // destroyed in the context in which they were made. A failure cannot be reported here.
        let _ = self.stream.context().bind_to_thread();
    }
}

/// Makes the error for a cuBLAS that was found but does not work. `driver` is the newest CUDA
/// version that the driver supports.
fn broken(found: Version, driver: (u32, u32), error: &DeviceError) -> DeviceError {
    let why = too_new("libcublas", found, driver);
    DeviceError::new(format!("cuBLAS {found} was found, but does not work: {error}{why}"))
}

/// End of the error of a library, named by the beginning of its file's name, that may be too new
/// for the driver. The end is empty if the driver supports the library's CUDA version. A library
/// for an older CUDA version runs on any newer driver, but a newer library may not run on an older
/// driver.
pub(super) fn too_new(file: &str, found: Version, driver: (u32, u32)) -> String {
    let Version(major, ..) = found;
    let (newest, minor) = driver;
    if major <= newest {
        return String::new();
    }
    format!(
        "; the library is for CUDA {major}, but the driver supports CUDA up to {newest}.{minor}: put the folder of \
         {file}.so.{newest} first in LD_LIBRARY_PATH, or update the driver"
    )
}

/// Opens a handle of cuDNN; `None` if the library is not found or too old.
///
/// # Errors
/// Fails if cuDNN is found but does not work. The failure may be temporary, and continuing without
/// cuDNN would give other bits than a later run with cuDNN.
fn open_cudnn(stream: &Arc<CudaStream>, tf32: bool) -> Result<Option<Dnn>, DeviceError> {
    match usable(versions::cudnn()) {
        Ok(version) => {
            let opened = Dnn::open(stream.clone(), tf32);
            opened.map(Some).map_err(|error| unusable(version, &error))
        }
        Err(reason) => {
            tracing::warn!(
                target: "remat",
                reason,
                "convolutions run by im2col and cuBLAS, which is slower; install cuDNN, and put the folder of \
                 libcudnn.so.9 in LD_LIBRARY_PATH"
            );
            Ok(None)
        }
    }
}

/// Version of cuDNN, or the reason why cuDNN is not used.
fn usable(found: Option<Version>) -> Result<Version, String> {
    match found {
        None => Err("cuDNN was not found".into()),
        Some(version) if version < OLDEST_CUDNN => {
            Err(format!("cuDNN {version} was found, but at least {OLDEST_CUDNN} is needed"))
        }
        Some(version) => Ok(version),
    }
}

/// Makes the error for a cuDNN that was found but does not work.
fn unusable(version: Version, error: &DeviceError) -> DeviceError {
    DeviceError::new(format!(
        "cuDNN {version} was found, but does not work: {error}; turn cuDNN off with Options::cudnn(false)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::cuda::context_for_tests;

    #[test]
    fn cudnn_is_used_from_its_oldest_version_on() {
        assert!(usable(None).unwrap_err().contains("not found"));
        let old = usable(Some(Version(8, 9, 7))).unwrap_err();
        assert!(old.contains("8.9.7") && old.contains("9.0.0"), "{old}");
        for version in [OLDEST_CUDNN, Version(9, 10, 2)] {
            assert_eq!(usable(Some(version)), Ok(version));
        }
    }

    #[test]
    fn a_library_that_is_too_new_for_the_driver_is_told() {
        let error = DeviceError::new("CUBLAS_STATUS_NOT_INITIALIZED");
        let told = |driver| broken(Version(13, 1, 0), driver, &error).to_string();
        assert_eq!(
            told((13, 0)),
            "cuBLAS 13.1.0 was found, but does not work: CUBLAS_STATUS_NOT_INITIALIZED"
        );
        assert!(told((12, 8)).contains("up to 12.8: put the folder of libcublas.so.12"));
    }

    /// The test's thread has no CUDA context, so cuDNN should fail to make a handle. Some versions
    /// of cuDNN may make a context themselves.
    #[test]
    fn a_cudnn_that_does_not_work_is_an_error() {
        let Some(gpu) = context_for_tests() else { return };
        let Ok(version) = usable(versions::cudnn()) else {
            println!("skipped: no cuDNN");
            return;
        };
        let stream = gpu.events();
        let opened = crate::sync::thread::scope(|scope| {
            let elsewhere = || {
                let opened = open_cudnn(stream, false);
                stream.context().bind_to_thread().unwrap();
                opened.map(|dnn| dnn.is_some())
            };
            scope.spawn(elsewhere).join().unwrap()
        });
        match opened {
            Ok(there) => assert!(there),
            Err(error) => {
                let error = error.to_string();
                let parts = [&format!("cuDNN {version}"), "CUDNN_STATUS_", "Options::cudnn(false)"];
                assert!(parts.iter().all(|part| error.contains(*part)), "{error}");
            }
        }
    }
}
