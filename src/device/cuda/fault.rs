//! Invalid input that kernels found: an error when the host next waits for the device.

#![allow(unsafe_code)]

use super::gpu::Gpu;
use super::launch::{Parameter, Ptr};
use super::staging::Staging;
use crate::device::DeviceError;

/// What numbers a kernel is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Numbers {
    /// Of entries.
    Index = 1,
    /// Of classes.
    Label = 2,
    /// Of places in images.
    Argmax = 3,
}

/// `Report` of `common.cuh`: where and how one launch reports numbers that are not in `0..limit`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Report {
    pub fault: Ptr,
    pub limit: u64,
    pub numbers: Numbers,
    /// Not 0, and not that of another launch since the record was read.
    pub launch: u32,
}

// SAFETY: numbers and an address.
unsafe impl Parameter for Report {}

/// `Fault` of `common.cuh`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(crate) struct Fault {
    /// 0: none.
    launch: u32,
    numbers: u32,
    limit: u64,
    /// The complement of its position, and its value.
    lowest: u64,
}

/// Waits for the device. The first fault that was not reported before is returned as an error.
pub(super) fn check(gpu: &Gpu, staging: &mut Staging) -> Result<(), DeviceError> {
    let mut fault = Fault::default();
    staging.download(gpu.memory().faults(), bytemuck::bytes_of_mut(&mut fault))?;
    tell(gpu, &fault)
}

/// What was found wrong, if anything, as an error; the device forgets it.
pub(crate) fn tell(gpu: &Gpu, fault: &Fault) -> Result<(), DeviceError> {
    if fault.launch == 0 {
        return Ok(());
    }
    gpu.memory().forget_faults()?;
    Err(DeviceError::new(text(fault)))
}

fn text(fault: &Fault) -> String {
    let what = match fault.numbers {
        n if n == Numbers::Label as u32 => "label",
        n if n == Numbers::Argmax as u32 => "argmax",
        _ => "index",
    };
    let (position, value) = (!(fault.lowest >> 32) as u32, fault.lowest as i32);
    let limit = fault.limit;
    format!("{what} {value} at position {position} is out of range, expected 0..{limit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_told_in_the_words_of_the_cpu() {
        let fault = |position: u32, value: i32| Fault {
            launch: 7,
            numbers: Numbers::Label as u32,
            limit: 10,
            lowest: u64::from(!position) << 32 | u64::from(value as u32),
        };
        assert_eq!(text(&fault(1, -1)), "label -1 at position 1 is out of range, expected 0..10");
        let far = text(&fault(u32::MAX, i32::MIN));
        let expected = "label -2147483648 at position 4294967295 is out of range, expected 0..10";
        assert_eq!(far, expected);
        // Kernels keep the largest: that of the lowest position.
        assert!(fault(1, -1).lowest > fault(2, 1 << 30).lowest);
    }
}
