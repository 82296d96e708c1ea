//! Loading of the driver, and the list of its devices.

#![allow(unsafe_code)]

use crate::device::DeviceError;
use cudarc::driver::result::{self, DriverError, device};
use cudarc::driver::{CudaContext, sys};
use std::ffi::c_int;
use std::sync::Arc;

/// Properties of a device, by which a user can choose a device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Description {
    /// Number of the device in [`Options::ordinal`](super::Options); 0 is the first device.
    pub ordinal: usize,
    /// Product name of the device.
    pub name: String,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Free bytes of memory. `None` if the device could not be opened.
    pub free_bytes: Option<u64>,
    /// Architecture that kernels are compiled for, such as `(9, 0)`.
    pub compute_capability: (u32, u32),
    /// Newest CUDA version that the driver supports, such as `(12, 8)`.
    pub driver: (u32, u32),
}

/// All devices, in the order of their ordinals.
///
/// # Errors
/// Fails if there is no driver, the driver does not work, or it has no device.
pub fn devices() -> Result<Vec<Description>, DeviceError> {
    let driver = driver_version()?;
    (0..count()?)
        .map(|ordinal| {
            // If another process has reserved the device, or the device is broken, list the device
            // without free bytes.
            let free = open(ordinal).and_then(|_context| free_bytes()).map_err(|error| {
                tracing::warn!(target: "remat", ordinal, %error, "a device cannot be used");
            });
            describe(ordinal, driver, free.ok())
        })
        .collect()
}

/// Describes the device of `context`, which must be current on the calling thread.
pub(super) fn current(context: &CudaContext) -> Result<Description, DeviceError> {
    describe(context.ordinal(), driver_version()?, Some(free_bytes()?))
}

/// Describes a device. The properties are read without opening the device; `free_bytes` was read
/// from the open device.
fn describe(
    ordinal: usize,
    driver: (u32, u32),
    free_bytes: Option<u64>,
) -> Result<Description, DeviceError> {
    use sys::CUdevice_attribute_enum::{
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as MAJOR,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as MINOR,
    };
    let told = || -> Result<_, DriverError> {
        let device = device::get(c_int::try_from(ordinal).unwrap_or(c_int::MAX))?;
        // SAFETY: the device is a handle that the driver just returned.
        let (memory, major, minor) = unsafe {
            (
                device::total_mem(device)?,
                device::get_attribute(device, MAJOR)?,
                device::get_attribute(device, MINOR)?,
            )
        };
        Ok((device::get_name(device)?, memory, (major.unsigned_abs(), minor.unsigned_abs())))
    };
    let (name, memory, compute_capability) =
        told().map_err(|e| failed("asking what the device is", e))?;
    let memory_bytes = memory as u64;
    Ok(Description { ordinal, name, memory_bytes, free_bytes, compute_capability, driver })
}

/// Free bytes of the device that is current on the calling thread.
pub(super) fn free_bytes() -> Result<u64, DeviceError> {
    let (free, _) = result::mem_get_info().map_err(|e| failed("asking how much is free", e))?;
    Ok(free as u64)
}

/// Number of devices.
fn count() -> Result<usize, DeviceError> {
    let count = device::get_count().map_err(|e| failed("counting the devices", e))?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// Context of a device, made current on the calling thread.
pub(super) fn open(ordinal: usize) -> Result<Arc<CudaContext>, DeviceError> {
    driver_version()?;
    let there_are = match count()? {
        count if ordinal < count => {
            return CudaContext::new(ordinal).map_err(|e| failed("opening the device", e));
        }
        0 => "the system has none".to_owned(),
        1 => "the only one is 0".to_owned(),
        count => format!("choose one from 0 to {}", count - 1),
    };
    Err(DeviceError::new(format!("there is no CUDA device {ordinal}; {there_are}")))
}

/// Newest CUDA version that the driver supports. Initializes the driver.
pub(super) fn driver_version() -> Result<(u32, u32), DeviceError> {
    // SAFETY: loading a library runs its initializers, and the initializers of libcuda have no
    // preconditions.
    if !unsafe { sys::is_culib_present() } {
        return Err(DeviceError::new(
            "no NVIDIA driver was found (the system has no libcuda.so.1, on Windows nvcuda.dll); \
             install it, or choose the cpu",
        ));
    }
    result::init().map_err(|error| match error.0 {
        sys::CUresult::CUDA_ERROR_NO_DEVICE => {
            DeviceError::new("the NVIDIA driver found no device; choose the cpu")
        }
        _ => failed("starting the driver", error),
    })?;
    let mut version = 0;
    // SAFETY: the driver writes one integer to `version`, which outlives the call.
    unsafe { sys::cuDriverGetVersion(&raw mut version) }
        .result()
        .map_err(|e| failed("asking for the driver's version", e))?;
    let version = version.unsigned_abs();
    Ok((version / 1000, version % 1000 / 10))
}

/// Makes the error of a failed call of the driver. `what` names the call in the message.
pub(super) fn failed(what: &str, error: DriverError) -> DeviceError {
    let text = error.error_string().ok().and_then(|text| text.to_str().ok().map(str::to_owned));
    let text = text.unwrap_or_else(|| format!("{:?}", error.0));
    DeviceError::new(format!("cuda: {what}: {text}"))
}
