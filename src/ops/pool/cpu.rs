//! Max and average pooling, and their gradients, on the CPU. In this file, an image is one channel
//! of one entry of the batch.

use super::Pool2d;
use crate::device::DeviceError;
use crate::device::cpu::numbers::check_all_below;
use crate::device::cpu::split::{pieces, pieces_of_two, whole_rows};
use crate::device::cpu::wide::widest;
use std::ops::Range;

/// Sizes of a pooling. The windows lie over the larger images, such as `x`. The smaller images,
/// such as `y`, have one element for each window.
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
    /// Number of elements of a larger and of a smaller image.
    const fn areas(&self) -> (usize, usize) {
        (self.size[0] * self.size[1], self.windows[0] * self.windows[1])
    }

    /// Rows (`side` is 0) or columns (`side` is 1) of window `i` that are inside the image.
    fn span(&self, side: usize, i: usize) -> Range<usize> {
        let Pool2d { kernel, stride, padding } = self.pool;
        let from = i * stride[side];
        let to = (from + kernel[side]).saturating_sub(padding[side]).min(self.size[side]);
        from.saturating_sub(padding[side])..to
    }

    /// Calls `body(i, rows, columns)` for each window `i` of an image, in order.
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

    /// Range of columns of a window. A column is left out only if it is outside the image for every
    /// window.
    fn columns(&self) -> Range<usize> {
        let Pool2d { kernel: [_, kernel], stride: [_, stride], padding: [_, padding] } = self.pool;
        // No overflow: the last window begins within the padded image.
        let last = (self.windows[1] - 1) * stride;
        padding.saturating_sub(last)..kernel.min(padding + self.size[1])
    }

    /// For each window column in `first..first + KNOWN`, the range of windows for which the column
    /// is inside the image.
    fn with_columns(&self, first: usize) -> [Range<usize>; KNOWN] {
        let ([_, stride], [_, padding]) = (self.pool.stride, self.pool.padding);
        std::array::from_fn(|j| {
            let first_at = |column: usize| {
                (column + padding).saturating_sub(first + j).div_ceil(stride).min(self.windows[1])
            };
            first_at(0)..first_at(self.size[1])
        })
    }
}

/// Number of window columns for which [`Windows::with_columns`] computes the ranges.
const KNOWN: usize = 16;

/// Finds the largest element of each window, and the index of this element in the image. NaN counts
/// as larger than any number.
pub fn max(y: &mut [f32], argmax: &mut [i32], x: &[f32], windows: Windows) {
    let (area, small) = windows.areas();
    let len = whole_rows(small);
    let columns = windows.columns();
    let known = windows.with_columns(columns.start);
    // If a window has few columns, the ranges of windows computed above serve for all rows of
    // windows.
    let known = if columns.len() <= KNOWN { &known[..columns.len()] } else { &[] };
    pieces_of_two((y, len), (argmax, len), x.len(), |i, y, argmax| {
        let images = x[i * len / small * area..].chunks_exact(area);
        for ((y, argmax), x) in
            y.chunks_exact_mut(small).zip(argmax.chunks_exact_mut(small)).zip(images)
        {
            match windows.pool.stride[1] {
                // Pass common strides as constants, so that the compiler vectorizes the loop.
                1 => widest(
                    #[inline(always)]
                    || max_of_image(y, argmax, x, &windows, known, 1),
                ),
                2 => widest(
                    #[inline(always)]
                    || max_of_image(y, argmax, x, &windows, known, 2),
                ),
                stride => widest(
                    #[inline(always)]
                    || max_of_image(y, argmax, x, &windows, known, stride),
                ),
            }
        }
    });
}

/// Finds the maxima of one image. The function computes one row of windows at a time, and reads one
/// image row after another for it. If a window has few columns, `known` has the range of windows
/// for which each column is inside the image.
#[inline(always)]
fn max_of_image(
    y: &mut [f32],
    argmax: &mut [i32],
    x: &[f32],
    windows: &Windows,
    known: &[Range<usize>],
    stride: usize,
) {
    let (width, count, columns) = (windows.size[1], windows.windows[1], windows.columns());
    for (i, (y, argmax)) in
        y.chunks_exact_mut(count).zip(argmax.chunks_exact_mut(count)).enumerate()
    {
        let rows = windows.span(0, i);
        for (i, (y, argmax)) in y.iter_mut().zip(argmax.iter_mut()).enumerate() {
            let first = rows.start * width + windows.span(1, i).start;
            (*y, *argmax) = (x[first], first as i32);
        }
        for row in rows {
            let padding = windows.pool.padding[1];
            if !known.is_empty() {
                compare(y, argmax, x, row * width + columns.start, padding, known, stride);
                continue;
            }
            for first in columns.clone().step_by(KNOWN) {
                let reached = &windows.with_columns(first)[..KNOWN.min(columns.end - first)];
                compare(y, argmax, x, row * width + first, padding, reached, stride);
            }
        }
    }
}

/// Compares some columns of a row of windows with the maxima so far, one column after another. The
/// first column of window 0 is at `first - padding`. `reached` has, for each column, the range of
/// windows for which the column is inside the image.
#[inline(always)]
fn compare(
    y: &mut [f32],
    argmax: &mut [i32],
    x: &[f32],
    first: usize,
    padding: usize,
    reached: &[Range<usize>],
    stride: usize,
) {
    for (column, reached) in reached.iter().enumerate().filter(|(_, reached)| !reached.is_empty()) {
        let at = first + reached.start * stride + column - padding;
        let (y, argmax) = (&mut y[reached.clone()], &mut argmax[reached.clone()]);
        let x = &x[at..at + (reached.len() - 1) * stride + 1];
        for (i, ((y, argmax), x)) in y.iter_mut().zip(argmax).zip(x.chunks(stride)).enumerate() {
            let wins = (x[0] > *y) | (x[0].is_nan() & !y.is_nan());
            // Select without a branch: all bits of the mask are 1 or all are 0.
            let mask = -i32::from(wins);
            let (old, new) = (y.to_bits() as i32, x[0].to_bits() as i32);
            *y = f32::from_bits((old ^ ((old ^ new) & mask)) as u32);
            *argmax ^= (*argmax ^ (at + i * stride) as i32) & mask;
        }
    }
}

/// Fills `dx` with zeros, and adds each element of `dy` at the pixel that `argmax` gives. `area`
/// and `small` are the numbers of pixels of an image of `dx` and of `dy`.
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

/// Copies the pixels of `x` that `argmax` gives. `area` and `small` are the numbers of pixels of an
/// image of `x` and of `y`.
pub fn max_pick(
    y: &mut [f32],
    argmax: &[i32],
    x: &[f32],
    area: usize,
    small: usize,
) -> Result<(), DeviceError> {
    check_all_below(argmax, area, "argmax")?;
    let (len, work) = (whole_rows(small), y.len());
    pieces(y, len, work, |i, y| {
        let places = argmax[i * len..].chunks_exact(small);
        let images = x[i * len / small * area..].chunks_exact(area);
        for ((y, places), x) in y.chunks_exact_mut(small).zip(places).zip(images) {
            y.iter_mut().zip(places).for_each(|(y, &place)| *y = x[place as usize]);
        }
    });
    Ok(())
}

/// Computes the mean of each window, over the elements that are inside the image.
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

/// Fills `dx` with zeros. For each window, divides its element of `dy` equally among the pixels of
/// the window, and adds the shares to `dx`.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_picked_from_their_own_image_and_places_outside_are_refused() {
        let (areas, windows) = ([1, 6, 4096], [1, 2, 9000]);
        for (area, small) in areas.into_iter().flat_map(|a| windows.map(|w| (a, w))) {
            let images = 5;
            let x: Vec<f32> = (0..images * area).map(|i| i as f32).collect();
            let mut places: Vec<i32> =
                (0..images * small).map(|i| (i * 7919 % area) as i32).collect();
            let mut y = vec![f32::NAN; places.len()];
            max_pick(&mut y, &places, &x, area, small).unwrap();
            for (i, (&y, &place)) in y.iter().zip(&places).enumerate() {
                assert_eq!(y, x[i / small * area + place as usize], "{i} of {small} in {area}");
            }
            for wrong in [-1, area as i32] {
                places[small] = wrong;
                let error = max_pick(&mut y, &places, &x, area, small).unwrap_err().to_string();
                let expected = format!(
                    "argmax {wrong} at position {small} is out of range, expected 0..{area}"
                );
                assert_eq!(error, expected);
            }
        }
    }
}
