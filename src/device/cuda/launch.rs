//! From a kernel's name and its parameters to a launch.

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
    /// None: what a kernel takes to be missing.
    pub(crate) const NULL: Self = Self(0);

    /// The address so many bytes further.
    pub(crate) const fn plus(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }

    /// Whether sixteen bytes may be loaded from there at once.
    pub(crate) const fn is_aligned(self) -> bool {
        self.is_aligned_to(16)
    }

    /// Whether it is a multiple of so many bytes.
    pub(crate) const fn is_aligned_to(self, bytes: u64) -> bool {
        self.0.is_multiple_of(bytes)
    }
}

/// What can be a parameter of a kernel: the kernel's parameter of that position has the same size,
/// alignment and meaning.
///
/// # Safety
/// Of a type that C++ has as well: no padding that matters, no references.
pub(crate) unsafe trait Parameter {}

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
pub(crate) struct Kernel {
    /// Where it is written.
    pub source: Source,
    /// Its name there.
    pub name: &'static str,
}

/// `THREADS` of `common.cuh`: those of a block, unless a kernel says otherwise.
pub(crate) const THREADS: u32 = 256;

/// `TILE` of `common.cuh`: elements of a block of packed elementwise kernels.
pub(crate) const TILE: u64 = 2048;

/// How many threads run a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grid {
    /// Blocks, in up to three dimensions.
    pub blocks: [u32; 3],
    /// Threads in each.
    pub threads: u32,
}

impl Grid {
    /// Enough blocks of the usual size for `threads` threads.
    pub(crate) fn of_threads(threads: u64) -> Self {
        Self::of_blocks(threads.div_ceil(THREADS.into()))
    }

    /// So many blocks of the usual size.
    pub(crate) fn of_blocks(blocks: u64) -> Self {
        let blocks = u32::try_from(blocks).expect("memory for fewer blocks than 2^32");
        Self { blocks: [blocks, 1, 1], threads: THREADS }
    }
}

/// A kernel that the driver has loaded.
#[derive(Clone, Debug)]
pub(crate) struct Loaded {
    handle: sys::CUfunction,
    /// Bytes of each parameter, if the driver can tell.
    sizes: Option<SmallVec<[usize; 12]>>,
}

impl Loaded {
    /// Asks what its parameters are.
    pub(crate) fn new(handle: sys::CUfunction) -> Result<Self, DeviceError> {
        // Of CUDA 12.4; the driver's library has no such function before.
        if driver_version()? < (12, 4) {
            return Ok(Self { handle, sizes: None });
        }
        let mut sizes = SmallVec::new();
        loop {
            let [mut offset, mut size] = [0; 2];
            let (offset, size_to) = (&raw mut offset, &raw mut size);
            // SAFETY: writes two integers to places that outlive the call.
            let told = unsafe { sys::cuFuncGetParamInfo(handle, sizes.len(), offset, size_to) };
            match told.result() {
                Ok(()) => sizes.push(size),
                // Past the last one.
                Err(e) if e.0 == sys::CUresult::CUDA_ERROR_INVALID_VALUE => break,
                Err(e) => return Err(failed("asking for a kernel's parameters", e)),
            }
        }
        Ok(Self { handle, sizes: Some(sizes) })
    }
}

impl Gpu {
    /// Runs a kernel once all that was given before is done.
    ///
    /// # Safety
    /// The parameters are as many as the kernel's, in its order, each of the type that it declares; and with
    /// these parameters, this many threads of the kernel read and write nothing but the operands and the
    /// workspace of the run at hand. Sizes are checked where the driver can tell them (CUDA 12.4), types are not.
    ///
    /// # Errors
    /// If the kernel does not compile, or cannot be launched.
    ///
    /// # Panics
    /// If the kernel has parameters of other sizes.
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
        // SAFETY: the function's module lives as long as `self`; the parameters are the kernel's, as the
        // caller promises; the driver copies them before it returns.
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
            // SAFETY: never launched.
            let launch = || unsafe { gpu.launch(fill, Grid::of_blocks(1), parameters) };
            assert!(catch_unwind(AssertUnwindSafe(launch)).is_err());
        }
        // SAFETY: the kernel's parameters; it writes 1 KiB of the memory.
        unsafe { gpu.launch(fill, Grid::of_blocks(1), &[&out, &bits, &count]) }.unwrap();
    }
}
