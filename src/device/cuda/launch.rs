//! From a kernel's name and its parameters to a launch.

#![allow(unsafe_code)]

use super::driver::failed;
use super::gpu::Gpu;
use super::kernels::Source;
use crate::device::DeviceError;
use cudarc::driver::result;
use smallvec::SmallVec;
use std::ffi::c_void;

/// An address on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct Ptr(pub(super) u64);

impl Ptr {
    /// The address so many bytes further.
    pub(super) const fn plus(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }

    /// Whether sixteen bytes may be loaded from there at once.
    pub(super) const fn is_aligned(self) -> bool {
        self.0.is_multiple_of(16)
    }
}

/// What can be a parameter of a kernel: the kernel's parameter of that position has the same size,
/// alignment and meaning.
///
/// # Safety
/// Of a type that C++ has as well: no padding that matters, no references.
pub(super) unsafe trait Parameter {}

// SAFETY: numbers, and an address.
unsafe impl Parameter for Ptr {}
// SAFETY: as above.
unsafe impl Parameter for i32 {}
// SAFETY: as above.
unsafe impl Parameter for u32 {}
// SAFETY: as above.
unsafe impl Parameter for i64 {}
// SAFETY: as above.
unsafe impl Parameter for u64 {}
// SAFETY: as above.
unsafe impl Parameter for f32 {}
// SAFETY: as above.
unsafe impl Parameter for f64 {}

/// A kernel: an `extern "C" __global__` function.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kernel {
    /// Where it is written.
    pub source: &'static Source,
    /// Its name there.
    pub name: &'static str,
}

/// `THREADS` of `common.cuh`: those of a block, unless a kernel says otherwise.
pub(super) const THREADS: u32 = 256;

/// `TILE` of `common.cuh`: elements of a block of packed elementwise kernels.
pub(super) const TILE: u64 = 2048;

/// How many threads run a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grid {
    /// Blocks, in up to three dimensions.
    pub blocks: [u32; 3],
    /// Threads in each.
    pub threads: u32,
}

impl Grid {
    /// Enough blocks of the usual size for `threads` threads.
    pub(super) fn of_threads(threads: u64) -> Self {
        Self::of_blocks(threads.div_ceil(THREADS.into()))
    }

    /// So many blocks of the usual size.
    pub(super) fn of_blocks(blocks: u64) -> Self {
        let blocks = u32::try_from(blocks).expect("memory for fewer blocks than 2^32");
        Self { blocks: [blocks, 1, 1], threads: THREADS }
    }
}

impl Gpu {
    /// Runs a kernel once all that was given before is done. What its parameters point to must be as the
    /// kernel expects.
    pub(super) fn launch(
        &mut self,
        kernel: Kernel,
        Grid { blocks: [x, y, z], threads }: Grid,
        parameters: &[&dyn Parameter],
    ) -> Result<(), DeviceError> {
        let function = self.function(kernel)?;
        let mut addresses: SmallVec<[*mut c_void; 16]> = parameters
            .iter()
            .map(|&parameter| std::ptr::from_ref(parameter).cast_mut().cast::<c_void>())
            .collect();
        // SAFETY: the function's module lives as long as `self`, the parameters are those of the kernel,
        // which is the callers' part, and the driver copies them before it returns.
        unsafe {
            result::launch_kernel(
                function,
                (x, y, z),
                (threads, 1, 1),
                0,
                self.stream(),
                &mut addresses,
            )
        }
        .map_err(|e| failed(kernel.name, e))
    }
}
