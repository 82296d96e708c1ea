//! Cumulative sums on a GPU.

#![allow(unsafe_code)]

use crate::device::cuda::{Family, Gpu, Grid};
use crate::device::{DeviceError, Place};

pub(super) static FAMILY: Family = Family::new("cumsum", include_str!("cumsum.cu"));

/// Largest number of elements in a row that a single thread adds up.
const SHORT: usize = 32;
/// Largest number of blocks in a grid. If there are more rows, each block computes several rows.
const MOST_BLOCKS: u64 = 1 << 20;

/// Writes the cumulative sums of `x` along the middle dimension to `y [outer, n, inner]`.
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
        // SAFETY: the parameters are those that the kernel declares, and the device has checked the
        // operands. The kernel reads `n` elements of each row of `x`, and writes `n` elements of
        // each row of `y`.
        return unsafe { gpu.launch(kernel, grid, &[&out, &x, &rows, &n, &reverse]) };
    }
    let kernel = FAMILY.kernel("cumsum_by_thread");
    // SAFETY: the parameters are those that the kernel declares, and the device has checked the
    // operands. The kernel reads `n` elements of each row of `x`, which are `inner` apart, and
    // writes the elements of `y` at equal indices.
    unsafe { gpu.launch(kernel, Grid::of_threads(rows), &[&out, &x, &rows, &n, &inner, &reverse]) }
}
