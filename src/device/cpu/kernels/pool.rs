//! Maxima and means of windows, and their gradients. An image is one channel of one batch entry.

use super::index::check_all_below;
use super::split::{pieces, pieces_of_two, whole_rows};
use crate::device::DeviceError;
use crate::ops::Pool2d;
use std::ops::Range;

/// Sizes of a pooling: `size` is that of an input image, `windows` that of an output image.
#[derive(Clone, Copy, Debug)]
pub struct Windows {
    /// Window size, stride and padding.
    pub pool: Pool2d,
    /// Height and width of the larger image.
    pub size: [usize; 2],
    /// Height and width of the smaller image.
    pub windows: [usize; 2],
}

impl Windows {
    /// Elements of a larger and of a smaller image.
    const fn areas(&self) -> (usize, usize) {
        (self.size[0] * self.size[1], self.windows[0] * self.windows[1])
    }

    /// Rows or columns of window `i` that are inside the image.
    fn span(&self, side: usize, i: usize) -> Range<usize> {
        let Pool2d { kernel, stride, padding } = self.pool;
        let from = i * stride[side];
        let to = (from + kernel[side]).saturating_sub(padding[side]).min(self.size[side]);
        from.saturating_sub(padding[side])..to
    }

    /// Calls `body(i, rows, columns)` for window `i` of an image, in order.
    fn each(&self, mut body: impl FnMut(usize, Range<usize>, Range<usize>)) {
        let mut i = 0;
        for row in 0..self.windows[0] {
            let rows = self.span(0, row);
            for column in 0..self.windows[1] {
                body(i, rows.clone(), self.span(1, column));
                i += 1;
            }
        }
    }
}

/// The largest element of each window, and its place. NaN counts as the largest.
pub fn max(y: &mut [f32], argmax: &mut [i32], x: &[f32], windows: Windows) {
    let ((area, small), width) = (windows.areas(), windows.size[1]);
    let len = whole_rows(small);
    pieces_of_two((y, len), (argmax, len), x.len(), |i, y, argmax| {
        let images = x[i * len / small * area..].chunks_exact(area);
        for ((y, argmax), x) in
            y.chunks_exact_mut(small).zip(argmax.chunks_exact_mut(small)).zip(images)
        {
            windows.each(|i, rows, columns| {
                let mut place = rows.start * width + columns.start;
                let mut largest = x[place];
                for row in rows {
                    let from = row * width + columns.start;
                    for (j, &x) in x[from..from + columns.len()].iter().enumerate() {
                        if x > largest || (x.is_nan() && !largest.is_nan()) {
                            (largest, place) = (x, from + j);
                        }
                    }
                }
                (y[i], argmax[i]) = (largest, place as i32);
            });
        }
    });
}

/// Zeros, plus each element of `dy` at its place. `area` and `small` are elements of an image of `dx`
/// and of `dy`.
pub fn max_grad(
    dx: &mut [f32],
    argmax: &[i32],
    dy: &[f32],
    area: usize,
    small: usize,
) -> Result<(), DeviceError> {
    check_all_below(argmax, area, "argmax")?;
    let (len, work) = (whole_rows(area), dx.len());
    pieces(dx, len, work, |i, dx| {
        dx.fill(0.0);
        for (j, dx) in dx.chunks_exact_mut(area).enumerate() {
            let image = (i * len / area + j) * small;
            let places = argmax[image..image + small].iter().zip(&dy[image..image + small]);
            places.for_each(|(&place, dy)| dx[place as usize] += dy);
        }
    });
    Ok(())
}

/// The mean of each window's elements inside the image.
pub fn avg(y: &mut [f32], x: &[f32], windows: Windows) {
    let ((area, small), width) = (windows.areas(), windows.size[1]);
    let len = whole_rows(small);
    pieces(y, len, x.len(), |i, y| {
        let images = x[i * len / small * area..].chunks_exact(area);
        for (y, x) in y.chunks_exact_mut(small).zip(images) {
            windows.each(|i, rows, columns| {
                let count = rows.len() * columns.len();
                let mut sum = 0.0;
                for row in rows {
                    let from = row * width + columns.start;
                    sum += x[from..from + columns.len()].iter().map(|&x| f64::from(x)).sum::<f64>();
                }
                y[i] = (sum / count as f64) as f32;
            });
        }
    });
}

/// Zeros, plus an equal share of each element of `dy` everywhere in its window.
pub fn avg_grad(dx: &mut [f32], dy: &[f32], windows: Windows) {
    let ((area, small), width) = (windows.areas(), windows.size[1]);
    let (len, work) = (whole_rows(area), dx.len());
    pieces(dx, len, work, |i, dx| {
        dx.fill(0.0);
        let images = dy[i * len / area * small..].chunks_exact(small);
        for (dx, dy) in dx.chunks_exact_mut(area).zip(images) {
            windows.each(|i, rows, columns| {
                let share = dy[i] / (rows.len() * columns.len()) as f32;
                for row in rows {
                    let from = row * width + columns.start;
                    dx[from..from + columns.len()].iter_mut().for_each(|dx| *dx += share);
                }
            });
        }
    });
}
