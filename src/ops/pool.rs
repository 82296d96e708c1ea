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

use super::FLOAT;
use super::check::{Fault, of_windows, windows};
use super::samples::{Draw, Operand, Values, ints};
use crate::layout::Layout;

/// Windows of a pooling op, height first. Padding holds no elements: it is never the maximum and does not count in an
/// average.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Pool2d {
    /// Window size.
    pub kernel: [usize; 2],
    /// Step between windows.
    pub stride: [usize; 2],
    /// Rows and columns added on each side; at most half the window.
    pub padding: [usize; 2],
}

impl Pool2d {
    /// Windows of one element.
    const EACH: Self = Self { kernel: [1, 1], stride: [1, 1], padding: [0, 0] };

    /// The number of windows, each of which has at least one element.
    fn windows(&self, size: [usize; 2]) -> Result<[usize; 2], Fault> {
        let Self { kernel, stride, padding } = *self;
        if padding[0] > kernel[0] / 2 || padding[1] > kernel[1] / 2 {
            return Err(format!("padding {padding:?} is more than half the kernel {kernel:?}"));
        }
        if size.contains(&0) {
            return Err(format!("image of size {size:?}, expected at least [1, 1]"));
        }
        windows(size, kernel, stride, padding)
    }

    /// The place of an element that window number `i` of all images holds.
    pub(super) fn place(&self, image: [usize; 2], i: usize, random: usize) -> usize {
        let [rows, columns] = self.windows(image).expect("images that hold a window");
        let side = |side: usize, window: usize, random: usize| {
            let from = (window * self.stride[side]).saturating_sub(self.padding[side]);
            let behind = window * self.stride[side] + self.kernel[side] - self.padding[side];
            from + random % (behind.min(image[side]) - from)
        };
        let [row, column] = [side(0, i / columns % rows, random), side(1, i % columns, random / 8)];
        row * image[1] + column
    }

    /// Elements of a window.
    fn area(&self) -> f64 {
        self.kernel[0] as f64 * self.kernel[1] as f64
    }

    /// Fails unless `dy` has an element for each window of images of size `size`.
    fn expect_windows(&self, dy: &Layout, size: [usize; 2]) -> Result<(), Fault> {
        of_windows(dy, self.windows(size)?)
    }
}

/// Height and width of images.
fn image(layout: &Layout) -> [usize; 2] {
    let shape = layout.shape();
    [shape[2], shape[3]]
}

/// Fails unless every pixel of an image can be indexed by an i32.
fn countable_in_i32([h, w]: [usize; 2]) -> Result<(), Fault> {
    if h.checked_mul(w).is_some_and(|n| i32::try_from(n).is_ok()) {
        Ok(())
    } else {
        Err(format!("image of size {:?} has more pixels than an i32 can index", [h, w]))
    }
}

/// A pooling of images `x` to images `y`, for samples.
#[derive(Clone, Copy, Debug)]
struct Case {
    pool: Pool2d,
    x: [usize; 4],
    y: [usize; 4],
}

impl Case {
    fn new(x: [usize; 4], kernel: [usize; 2], stride: [usize; 2], padding: [usize; 2]) -> Self {
        let [n, c, h, w] = x;
        let [rows, columns] =
            [(h, 0), (w, 1)].map(|(n, i)| (n + 2 * padding[i] - kernel[i]) / stride[i] + 1);
        Self { pool: Pool2d { kernel, stride, padding }, x, y: [n, c, rows, columns] }
    }

    /// Cases that deserve a test.
    fn all() -> [Self; 11] {
        [
            Self::new([1, 1, 1, 1], [1, 1], [1, 1], [0, 0]),
            Self::new([10, 9, 33, 31], [3, 3], [2, 2], [1, 1]),
            Self::new([8, 16, 64, 65], [3, 3], [2, 2], [1, 1]),
            Self::new([8, 16, 64, 65], [2, 5], [3, 1], [0, 2]),
            Self::new([2, 3, 257, 255], [257, 255], [1, 1], [0, 0]),
            Self::new([1, 2, 3, 6001], [2, 5001], [1, 7], [1, 2500]),
            Self::new([1, 2, 6001, 3], [5001, 2], [7, 1], [2500, 1]),
            Self::new([30_001, 3, 2, 2], [2, 2], [2, 2], [1, 1]),
            // Windows far larger than the image.
            Self::new([2, 3, 2, 1], [1 << 20, 1 << 20], [1, 1], [1 << 19, 1 << 19]),
            Self::new([0, 3, 8, 8], [2, 2], [2, 2], [0, 0]),
            Self::new([3, 0, 8, 8], [2, 2], [2, 2], [0, 0]),
        ]
    }

    /// A random one.
    fn draw(draw: &mut Draw) -> Self {
        let ([n, c], [h, w]) = (draw.sizes(), [(); 2].map(|()| 1 + draw.below(4)));
        let kernel = [h, w].map(|n| 1 + draw.below(n));
        let padding = kernel.map(|k| draw.below(k / 2 + 1));
        let stride = [(); 2].map(|()| 1 + draw.below(3));
        Self::new([n, c, h, w], kernel, stride, padding)
    }

    /// A random one, with windows that each cover the whole image, so that the maximum may be at any pixel.
    fn draw_overlapping(draw: &mut Draw) -> Self {
        let ([n, c], [h, w]) = (draw.sizes(), [(); 2].map(|()| 1 + draw.below(4)));
        let padding = [h, w].map(|n| draw.below(n));
        let stride = [(); 2].map(|()| 1 + draw.below(3));
        Self::new([n, c, h, w], [h + padding[0], w + padding[1]], stride, padding)
    }

    /// Of each window, the place of an element that it holds.
    fn places(&self) -> Operand {
        let [_, _, h, w] = self.x;
        let holds_all = |i: usize| self.pool.kernel[i] >= [h, w][i] + self.pool.padding[i];
        let places = ints(&self.y, h * w);
        if holds_all(0) && holds_all(1) {
            return places;
        }
        Operand { values: Values::InWindows { pool: self.pool, image: [h, w] }, ..places }
    }
}

/// Arbitrary windows, and layouts of `x` and `y`. If no window fits, `y` is like `x`.
fn absurd(draw: &mut Draw) -> (Pool2d, [Layout; 2]) {
    let ([n, c], [h, w]) = (draw.absurd_pair(), draw.absurd_pair());
    let [kernel, stride, padding] = [(); 3].map(|()| draw.absurd_pair());
    let pool = Pool2d { kernel, stride, padding };
    let x = Layout::contiguous(FLOAT, [n, c, h, w]);
    let y = pool.windows([h, w]).ok().map(|[h, w]| Layout::contiguous(FLOAT, [n, c, h, w]));
    (pool, [x, y.unwrap_or(x)])
}
