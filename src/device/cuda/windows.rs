//! Windows over images, as kernels see them: those of poolings, and of convolutions.

#![allow(unsafe_code)]

use super::launch::Parameter;
use super::strides::Divider;
use crate::device::DeviceError;

/// Sizes, height first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Of an image.
    pub image: [usize; 2],
    /// How many windows there are.
    pub windows: [usize; 2],
    /// Of a window.
    pub kernel: [usize; 2],
    /// From window to window.
    pub stride: [usize; 2],
    /// Around the image.
    pub padding: [usize; 2],
    /// From element to element of a window.
    pub dilation: [usize; 2],
}

/// `Windows` of `common.cuh`.
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

// SAFETY: numbers.
unsafe impl Parameter for Windows {}

impl Windows {
    /// With a thread for each of so many rows and columns: of the windows, or of the image.
    pub(crate) fn new(shape: &Shape, threads: [usize; 2]) -> Result<Self, DeviceError> {
        let [rows, columns] = threads.map(Divider::new);
        Ok(Self {
            rows,
            columns,
            image: sides(shape.image, "an image")?,
            windows: sides(shape.windows, "an image")?,
            kernel: sides(shape.kernel, "a window")?,
            // Beyond an image there is no window, however far.
            stride: shape.stride.map(|stride| stride.min(MOST) as i32),
            padding: sides(shape.padding, "a padding")?,
            dilation: sides(shape.dilation, "a dilation")?,
        })
    }
}

/// Twice of a side must fit.
const MOST: usize = 1 << 29;

fn sides(sides: [usize; 2], what: &str) -> Result<[i32; 2], DeviceError> {
    if sides.iter().any(|&side| side >= MOST) {
        return Err(DeviceError::new(format!(
            "cuda: {what} of sides {sides:?}, expected below {MOST}"
        )));
    }
    Ok(sides.map(|side| side as i32))
}
