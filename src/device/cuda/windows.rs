//! Sizes of windows over images, as parameters for the kernels of pooling and convolution.

#![allow(unsafe_code)]

use super::launch::Parameter;
use super::strides::Divider;
use crate::device::DeviceError;

/// Sizes of the windows over an image, height first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Numbers of rows and columns of an image.
    pub image: [usize; 2],
    /// Numbers of windows along height and width.
    pub windows: [usize; 2],
    /// Numbers of rows and columns of kernel elements of a window.
    pub kernel: [usize; 2],
    /// Distance between neighbouring windows.
    pub stride: [usize; 2],
    /// Numbers of rows and columns of padding on each side of the image.
    pub padding: [usize; 2],
    /// Distance between neighbouring elements of a window.
    pub dilation: [usize; 2],
}

/// Rust form of the C++ struct `Windows` in `common.cuh`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Windows {
    rows: Divider,
    columns: Divider,
    image: [i32; 2],
    windows: [i32; 2],
    kernel: [i32; 2],
    stride: [i32; 2],
    padding: [i32; 2],
    dilation: [i32; 2],
}

// SAFETY: `Windows` is `repr(C)` and consists of numbers, in the order that `common.cuh` declares.
unsafe impl Parameter for Windows {}

impl Windows {
    /// Makes the parameter of the kernels. A kernel runs one thread for each pixel of an area of
    /// `threads` rows and columns. The area is either the image or the grid of windows.
    pub(crate) fn new(shape: &Shape, threads: [usize; 2]) -> Result<Self, DeviceError> {
        let [rows, columns] = threads.map(Divider::new);
        Ok(Self {
            rows,
            columns,
            image: sides(shape.image, "an image")?,
            windows: sides(shape.windows, "an image")?,
            kernel: sides(shape.kernel, "a window")?,
            // A stride that is larger than `MOST` gives the same windows as `MOST`, because a
            // stride of `MOST` already reaches beyond any image.
            stride: shape.stride.map(|stride| stride.min(MOST) as i32),
            padding: sides(shape.padding, "a padding")?,
            dilation: sides(shape.dilation, "a dilation")?,
        })
    }
}

/// Exclusive upper bound of heights and widths. Twice a height or width below this bound fits in an
/// `i32`.
const MOST: usize = 1 << 29;

fn sides(sides: [usize; 2], what: &str) -> Result<[i32; 2], DeviceError> {
    if sides.iter().any(|&side| side >= MOST) {
        return Err(DeviceError::new(format!(
            "cuda: the sides of the {what} are {sides:?}, expected below {MOST}"
        )));
    }
    Ok(sides.map(|side| side as i32))
}
