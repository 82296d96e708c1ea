//! What kernels found wrong with their input: told when the host next waits for the device.

use super::gpu::Gpu;
use super::staging::Staging;
use crate::device::DeviceError;

/// Where the record is, beside the tensors.
pub(super) const OFFSET: u64 = 0;

/// `Fault` of `common.cuh`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Fault {
    /// 0: none.
    kind: u32,
    value: i32,
    position: u64,
    limit: u64,
}

/// Waits for the device. The first fault that nobody was told of is an error, and forgotten.
pub(super) fn check(gpu: &Gpu, staging: &mut Staging) -> Result<(), DeviceError> {
    let mut fault = Fault::default();
    staging.download(gpu.fault(), bytemuck::bytes_of_mut(&mut fault))?;
    let Fault { kind, value, position, limit } = fault;
    let what = match kind {
        0 => return Ok(()),
        1 => "index",
        2 => "label",
        _ => "argmax",
    };
    staging.upload(bytemuck::bytes_of(&Fault::default()), gpu.fault())?;
    Err(DeviceError::new(format!(
        "{what} {value} at position {position} is out of range, expected 0..{limit}"
    )))
}
