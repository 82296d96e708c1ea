//! Max and average pooling of images.

mod avg;
mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod max;
mod places;

pub use avg::{AvgPool2d, AvgPool2dGrad};
pub use max::MaxPool2d;
pub use places::{MaxPool2dGrad, MaxPool2dPick};

use super::check::{Fault, of_windows, windows};
use crate::layout::Layout;

/// Windows of a pooling op, height first. Padding counts as missing elements: it is never the
/// maximum, and an average leaves it out of its count.
///
/// ```
/// # use remat::prelude::*;
/// use remat::ops::Pool2d;
///
/// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
/// let halving = Pool2d { kernel: [3, 3], stride: [2, 2], padding: [1, 1] };
/// let y = runtime.zeros(&[1, 16, 32, 32])?.max_pool2d(halving)?;
/// assert_eq!(y.shape(), [1, 16, 16, 16]);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Pool2d {
    /// Numbers of rows and columns of a window.
    pub kernel: [usize; 2],
    /// Distance between neighbouring windows, in rows and columns.
    pub stride: [usize; 2],
    /// Numbers of rows and columns that are added on each side of the image; at most half of the
    /// window.
    pub padding: [usize; 2],
}

impl Pool2d {
    /// Windows that consist of one element each.
    const EACH: Self = Self { kernel: [1, 1], stride: [1, 1], padding: [0, 0] };

    /// Number of windows along height and width. Each window contains at least one element.
    pub(super) fn windows(&self, size: [usize; 2]) -> Result<[usize; 2], Fault> {
        let Self { kernel, stride, padding } = *self;
        if padding[0] > kernel[0] / 2 || padding[1] > kernel[1] / 2 {
            return Err(format!("padding {padding:?} is more than half the kernel {kernel:?}"));
        }
        if size.contains(&0) {
            return Err(format!("image of size {size:?}, expected at least [1, 1]"));
        }
        windows(size, kernel, stride, padding)
    }

    /// Number of elements of a window.
    fn area(&self) -> f64 {
        self.kernel[0] as f64 * self.kernel[1] as f64
    }

    /// Fails unless `dy` has one element for each window of images of size `size`.
    fn expect_windows(&self, dy: &Layout, size: [usize; 2]) -> Result<(), Fault> {
        of_windows(dy, self.windows(size)?)
    }
}

/// Height and width of images.
pub(super) fn image(layout: &Layout) -> [usize; 2] {
    let shape = layout.shape();
    [shape[2], shape[3]]
}

/// Fails unless an i32 can hold the index of every pixel of an image.
fn countable_in_i32([h, w]: [usize; 2]) -> Result<(), Fault> {
    if h.checked_mul(w).is_some_and(|n| i32::try_from(n).is_ok()) {
        Ok(())
    } else {
        Err(format!("image of size {:?} has more pixels than an i32 can index", [h, w]))
    }
}
