//! Launch of a kernel by name, with parameters.

#![allow(unsafe_code)]

use super::driver::{driver_version, failed};
use super::gpu::Gpu;
use super::kernels::Source;
use crate::device::DeviceError;
use cudarc::driver::{result, sys};
use smallvec::SmallVec;
use std::ffi::c_void;

/// An address on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Ptr(pub(super) u64);

impl Ptr {
    /// Null address, which stands for a missing operand.
    pub(crate) const NULL: Self = Self(0);

    /// Address that is `bytes` bytes after this address.
    pub(crate) const fn plus(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }

    /// Whether sixteen bytes may be loaded from this address in one access.
    pub(crate) const fn is_aligned(self) -> bool {
        self.is_aligned_to(16)
    }

    /// Whether the address is a multiple of `bytes`.
    pub(crate) const fn is_aligned_to(self, bytes: u64) -> bool {
        self.0.is_multiple_of(bytes)
    }
}

/// A type that can be a parameter of a kernel. The kernel declares the parameter with a C++ type of
/// equal size, alignment and meaning.
///
/// # Safety
/// The implementor guarantees that the Rust type and the C++ type have the same size and layout.
/// The Rust type contains no references, and the kernel reads no padding.
pub(crate) unsafe trait Parameter {}

// SAFETY: `repr(transparent)` over a 64-bit number, which is a device pointer in C++.
unsafe impl Parameter for Ptr {}
// SAFETY: C++ has a corresponding number type of the same size and alignment.
unsafe impl Parameter for i32 {}
// SAFETY: C++ has a corresponding number type of the same size and alignment.
unsafe impl Parameter for u32 {}
// SAFETY: C++ has a corresponding number type of the same size and alignment.
unsafe impl Parameter for i64 {}
// SAFETY: C++ has a corresponding number type of the same size and alignment.
unsafe impl Parameter for u64 {}
// SAFETY: C++ has a corresponding number type of the same size and alignment.
unsafe impl Parameter for f32 {}
// SAFETY: C++ has a corresponding number type of the same size and alignment.
unsafe impl Parameter for f64 {}

/// A kernel: an `extern "C" __global__` function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernel {
    /// File that contains the kernel.
    pub source: Source,
    /// Name of the function in the file.
    pub name: &'static str,
}

/// Value of `THREADS` in `common.cuh`: the number of threads of a block, unless a kernel declares
/// another number.
pub(crate) const THREADS: u32 = 256;

/// Value of `TILE` in `common.cuh`: the number of elements that a block of a packed elementwise
/// kernel computes.
pub(crate) const TILE: u64 = 2048;

/// Number of threads that run a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grid {
    /// Numbers of blocks along three dimensions.
    pub blocks: [u32; 3],
    /// Number of threads of each block.
    pub threads: u32,
}

impl Grid {
    /// Grid of at least `threads` threads, in blocks of [`THREADS`] threads.
    pub(crate) fn of_threads(threads: u64) -> Self {
        Self::of_blocks(threads.div_ceil(THREADS.into()))
    }

    /// Grid of `blocks` blocks of [`THREADS`] threads.
    pub(crate) fn of_blocks(blocks: u64) -> Self {
        let blocks = u32::try_from(blocks).expect("memory for fewer blocks than 2^32");
        Self { blocks: [blocks, 1, 1], threads: THREADS }
    }
}

/// A kernel that the driver has loaded.
#[derive(Clone, Debug)]
pub(crate) struct Loaded {
    handle: sys::CUfunction,
    /// Size of each parameter in bytes; `None` if the driver does not report the sizes.
    sizes: Option<SmallVec<[usize; 12]>>,
}

impl Loaded {
    /// Reads the sizes of the kernel's parameters from the driver.
    pub(crate) fn new(handle: sys::CUfunction) -> Result<Self, DeviceError> {
        // The driver function that reports the sizes exists since CUDA 12.4.
        if driver_version()? < (12, 4) {
            return Ok(Self { handle, sizes: None });
        }
        let mut sizes = SmallVec::new();
        loop {
            let [mut offset, mut size] = [0; 2];
            let (offset, size_to) = (&raw mut offset, &raw mut size);
            // SAFETY: the driver writes two integers to `offset` and `size`, which outlive the
            // call.
            let told = unsafe { sys::cuFuncGetParamInfo(handle, sizes.len(), offset, size_to) };
            match told.result() {
                Ok(()) => sizes.push(size),
                // The error means that the index is beyond the last parameter.
                Err(e) if e.0 == sys::CUresult::CUDA_ERROR_INVALID_VALUE => break,
                Err(e) => return Err(failed("asking for a kernel's parameters", e)),
            }
        }
        Ok(Self { handle, sizes: Some(sizes) })
    }
}

impl Gpu {
    /// Queues a kernel behind all work that was submitted to the stream before.
    ///
    /// # Safety
    /// The caller guarantees that the number, order and types of the parameters are those that the
    /// kernel declares. The caller also guarantees that the launched kernel reads and writes only
    /// the operands and the workspace of the current run. If the driver reports the sizes of
    /// parameters (CUDA 12.4), the sizes are checked; types are never checked.
    ///
    /// # Errors
    /// Fails if the kernel does not compile, or cannot be launched.
    ///
    /// # Panics
    /// Panics if the kernel declares parameters of other sizes.
    pub(crate) unsafe fn launch(
        &mut self,
        kernel: Kernel,
        Grid { blocks: [x, y, z], threads }: Grid,
        parameters: &[&dyn Parameter],
    ) -> Result<(), DeviceError> {
        let &Loaded { handle, ref sizes } = self.function(kernel)?;
        if let Some(sizes) = sizes {
            let given = parameters.iter().map(|&parameter| size_of_val(parameter));
            assert!(
                given.eq(sizes.iter().copied()),
                "{} has parameters of {sizes:?} bytes",
                kernel.name
            );
        }
        let mut addresses: SmallVec<[*mut c_void; 16]> = parameters
            .iter()
            .map(|&parameter| std::ptr::from_ref(parameter).cast_mut().cast::<c_void>())
            .collect();
        // SAFETY: `self` keeps the function's module loaded. The caller guarantees that the
        // parameters are those that the kernel declares. The driver copies the parameters before
        // the call returns.
        unsafe {
            result::launch_kernel(
                handle,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::cuda::for_tests;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn parameters_of_other_sizes_than_the_kernels_are_refused() {
        let Some(mut device) = for_tests(1 << 12) else { return };
        let gpu = &mut device.gpu;
        let copy = crate::ops::families().into_iter().find(|family| family.name() == "copy");
        let fill = copy.unwrap().kernel("fill");
        if gpu.function(fill).unwrap().sizes.is_none() {
            println!("skipped: the driver is older than CUDA 12.4");
            return;
        }
        let (out, bits, count) = (gpu.span(0..1024).first(), 0_u32, 256_u64);
        let wrong: [&[&dyn Parameter]; 3] =
            [&[&out, &bits], &[&out, &count, &count], &[&out, &bits, &count, &count]];
        for parameters in wrong {
            // SAFETY: the sizes are wrong, so `launch` panics before the kernel starts.
            let launch = || unsafe { gpu.launch(fill, Grid::of_blocks(1), parameters) };
            assert!(catch_unwind(AssertUnwindSafe(launch)).is_err());
        }
        // SAFETY: the parameters are those that the kernel declares. The kernel writes 256 words,
        // which are 1 KiB of the memory.
        unsafe { gpu.launch(fill, Grid::of_blocks(1), &[&out, &bits, &count]) }.unwrap();
    }
}
