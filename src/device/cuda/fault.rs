//! Faults are invalid indices and labels that kernels find. A fault becomes an error when the host
//! next waits for the device.

#![allow(unsafe_code)]

use super::gpu::Gpu;
use super::launch::{Parameter, Ptr};
use super::staging::Staging;
use crate::device::DeviceError;

/// Meaning of the numbers that a kernel checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Numbers {
    /// The numbers are indices of entries.
    Index = 1,
    /// The numbers are labels of classes.
    Label = 2,
    /// The numbers are positions of maxima in images.
    Argmax = 3,
}

/// Rust form of the C++ struct `Report` in `common.cuh`: the parameter with which a launch reports
/// numbers outside `0..limit`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Report {
    pub fault: Ptr,
    pub limit: u64,
    pub numbers: Numbers,
    /// Number of the launch. The number is not 0, and differs from the numbers of all launches
    /// since the record was last read.
    pub launch: u32,
}

// SAFETY: `Report` is `repr(C)` and consists of numbers and an address, in the order that
// `common.cuh` declares.
unsafe impl Parameter for Report {}

/// Rust form of the C++ struct `Fault` in `common.cuh`: the record that kernels write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(crate) struct Fault {
    /// Number of the launch that found a fault; 0 if no launch found a fault.
    launch: u32,
    numbers: u32,
    limit: u64,
    /// First invalid number: the high half is the complement of its position, and the low half is
    /// its value.
    lowest: u64,
}

/// Waits for the device. Returns the first fault that was not reported before, as an error.
pub(super) fn check(gpu: &Gpu, staging: &mut Staging) -> Result<(), DeviceError> {
    let mut fault = Fault::default();
    staging.download(gpu.memory().faults(), bytemuck::bytes_of_mut(&mut fault))?;
    tell(gpu, &fault)
}

/// Returns the fault in the record `fault` as an error, and clears the record on the device. Does
/// nothing if the record is empty.
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
        // Kernels keep the largest value of `lowest`. The largest value belongs to the lowest
        // position, because it contains the complement of the position.
        assert!(fault(1, -1).lowest > fault(2, 1 << 30).lowest);
    }
}
