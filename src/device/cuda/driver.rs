//! Finding the driver, and what devices there are.

#![allow(unsafe_code)]

use crate::device::DeviceError;
use cudarc::driver::result::{self, DriverError};
use cudarc::driver::{CudaContext, sys};
use std::sync::Arc;

/// A device, to choose by.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Description {
    /// What to choose it by: 0 is the first.
    pub ordinal: usize,
    /// As its maker calls it.
    pub name: String,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Bytes that nobody uses now.
    pub free_bytes: u64,
    /// What kernels are compiled for, such as `(9, 0)`.
    pub compute_capability: (u32, u32),
    /// Newest CUDA that the driver knows, such as `(12, 8)`.
    pub driver: (u32, u32),
}

/// The devices there are, in the order of their ordinals.
///
/// # Errors
/// If there is no driver, it does not work, or it has no device.
pub fn devices() -> Result<Vec<Description>, DeviceError> {
    let version = driver_version()?;
    let count = result::device::get_count().map_err(|e| failed("counting the devices", e))?;
    (0..usize::try_from(count).unwrap_or(0))
        .map(|ordinal| describe(&*open(ordinal)?, version))
        .collect()
}

fn describe(context: &CudaContext, driver: (u32, u32)) -> Result<Description, DeviceError> {
    let told = || -> Result<_, DriverError> {
        let (free, total) = result::mem_get_info()?;
        Ok((context.name()?, free, total, context.compute_capability()?))
    };
    let (name, free, total, (major, minor)) =
        told().map_err(|e| failed("asking what the device is", e))?;
    Ok(Description {
        ordinal: context.ordinal(),
        name,
        memory_bytes: total as u64,
        free_bytes: free as u64,
        compute_capability: (major.unsigned_abs(), minor.unsigned_abs()),
        driver,
    })
}

/// The context of a device, current on the calling thread.
pub(super) fn open(ordinal: usize) -> Result<Arc<CudaContext>, DeviceError> {
    driver_version()?;
    let count = result::device::get_count().map_err(|e| failed("counting the devices", e))?;
    if ordinal >= usize::try_from(count).unwrap_or(0) {
        let last = count - 1;
        return Err(DeviceError::new(format!(
            "there is no CUDA device {ordinal}; choose one from 0 to {last}"
        )));
    }
    CudaContext::new(ordinal).map_err(|e| failed("opening the device", e))
}

/// Newest CUDA that the driver knows; the driver is ready then.
fn driver_version() -> Result<(u32, u32), DeviceError> {
    // SAFETY: loading a library runs its initializers; libcuda's have no preconditions.
    if !unsafe { sys::is_culib_present() } {
        return Err(DeviceError::new(
            "no NVIDIA driver was found: the system has no libcuda.so.1 (nvcuda.dll on Windows); \
             install the driver, or choose the cpu",
        ));
    }
    result::init().map_err(|error| match error.0 {
        sys::CUresult::CUDA_ERROR_NO_DEVICE => {
            DeviceError::new("the NVIDIA driver is there, but it has no device; choose the cpu")
        }
        _ => failed("starting the driver", error),
    })?;
    let mut version = 0;
    // SAFETY: writes one integer to a place that outlives the call.
    unsafe { sys::cuDriverGetVersion(&raw mut version) }
        .result()
        .map_err(|e| failed("asking for the driver's version", e))?;
    let version = version.unsigned_abs();
    Ok((version / 1000, version % 1000 / 10))
}

/// A call of the driver that did not work, in words.
pub(super) fn failed(what: &str, error: DriverError) -> DeviceError {
    let text = error.error_string().ok().and_then(|text| text.to_str().ok().map(str::to_owned));
    let text = text.unwrap_or_else(|| format!("{:?}", error.0));
    DeviceError::new(format!("cuda: {what}: {text}"))
}
