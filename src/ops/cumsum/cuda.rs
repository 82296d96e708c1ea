//! Cumulative sums.

#![allow(unsafe_code)]

use crate::device::cuda::{Family, Gpu, Grid};
use crate::device::{DeviceError, Place};

pub(super) static FAMILY: Family = Family::new("cumsum", include_str!("cumsum.cu"));

/// Elements up to which a thread has a row by itself.
const SHORT: usize = 32;
/// Blocks of a grid at most; they go on with the next rows.
const MOST_BLOCKS: u64 = 1 << 20;

/// `y [outer, n, inner]`: sums of `x` along the middle.
pub(super) fn cumsum(
    gpu: &mut Gpu,
    y: &Place,
    x: &Place,
    [n, inner]: [usize; 2],
    reverse: bool,
) -> Result<(), DeviceError> {
    let rows = (y.layout.elements() / n) as u64;
    let (out, x) = (gpu.first(y), gpu.first(x));
    let [n, inner] = [n, inner].map(|size| size as u64);
    let reverse = u32::from(reverse);
    if inner == 1 && n > SHORT as u64 {
        let kernel = FAMILY.kernel("cumsum_by_block");
        let grid = Grid::of_blocks(rows.min(MOST_BLOCKS));
        // SAFETY: the kernel's parameters; it reads `n` elements of each of the rows of `x`, and writes those of `y`.
        return unsafe { gpu.launch(kernel, grid, &[&out, &x, &rows, &n, &reverse]) };
    }
    let kernel = FAMILY.kernel("cumsum_by_thread");
    // SAFETY: the kernel's parameters; as above, with rows whose elements are `inner` apart.
    unsafe { gpu.launch(kernel, Grid::of_threads(rows), &[&out, &x, &rows, &n, &inner, &reverse]) }
}
