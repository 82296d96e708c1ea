//! Convolutions of small images with many weights. In the deep layers of a network, images have 4x4
//! pixels or less, and most of the memory that a layer reads is weights. The code in this file
//! copies all windows of several images to a matrix, one row for each window. A convolution is then
//! a product of the matrix and the weights, which need no packing:
//!
//! ```text
//!   rows [position][channel, kernel element]      weight [output channel][channel, kernel element]
//!
//!   y  = weight rows^T        dot products of long rows
//!   dw = dy rows              a position after the other
//!   dx = fold(dy^T weight)    the gradient of each window, added where the window was
//! ```
//!
//! The method in `correlate.rs` would be slower. `correlate.rs` would pack all weights in each
//! pass, and then multiply each weight by only a few pixels, which do not fill a vector.

use bytemuck::cast_slice_mut;
use std::ops::Range;

use super::simd::{Dots, Level, Matrices};
use super::windows::{ALIGN, align, aligned};
use crate::device::conv_shape::ConvShape;
use crate::device::cpu::split::{chunks, each};

/// Largest number of output pixels of a small image.
const SMALL: usize = 16;

/// Number of windows that are copied to the matrix at a time. The number is larger if one image has
/// more windows.
const POSITIONS: usize = 64;

/// Length of the pieces into which long rows are cut for dot products. The pieces of four rows of
/// weights and of six windows fit together in the level-1 cache.
const PIECE: usize = 768;

/// Approximate number of columns of weights that are multiplied at a time in the gradient of the
/// input.
const COLUMNS: usize = 144;

/// The method in this file computes a convolution only if the number of elements of a window is a
/// multiple of `STEP`. No padding is then needed after the last window.
const STEP: usize = 16;

/// Largest number of tasks, each with its own scratch memory. The number is constant, because
/// results must not depend on the number of threads.
const TASKS: usize = 8;

/// Plan for a convolution of small images.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unfolded {
    shape: ConvShape,
    /// Number of images whose windows are copied to the matrix at a time.
    images: usize,
}

/// Images that are computed together.
type Images = Range<usize>;

impl Unfolded {
    /// Makes the plan for a shape that is not empty; `None` if the method in this file is not
    /// suitable for the shape.
    pub fn of(shape: &ConvShape) -> Option<Self> {
        let plane = shape.h_out() * shape.w_out();
        let plan = Self { shape: *shape, images: (POSITIONS / plane).clamp(1, shape.n) };
        let is_small = plane.max(shape.h * shape.w / 4) <= SMALL && plan.positions() >= 4;
        let is_deep = plan.depth().is_multiple_of(STEP) && shape.c_in.min(shape.c_out) >= 32;
        (shape.groups == 1 && is_small && is_deep).then_some(plan)
    }

    /// Number of pixels of an output.
    fn plane(&self) -> usize {
        self.shape.h_out() * self.shape.w_out()
    }

    /// Largest number of windows that are in the matrix at a time.
    fn positions(&self) -> usize {
        self.images * self.plane()
    }

    /// Number of elements of a window.
    fn depth(&self) -> usize {
        self.shape.c_in * self.taps()
    }

    fn taps(&self) -> usize {
        self.shape.kh * self.shape.kw
    }

    /// Number of output channels of a task.
    fn share(&self) -> usize {
        self.shape.c_out.div_ceil(TASKS).next_multiple_of(8)
    }

    /// Number of input channels whose weights are multiplied at a time.
    fn channels(&self) -> usize {
        (COLUMNS / self.taps()).max(1).next_multiple_of(STEP).min(self.shape.c_in)
    }

    /// Number of input channels of a task.
    fn share_of_input(&self) -> usize {
        self.shape.c_in.div_ceil(TASKS).next_multiple_of(self.channels())
    }

    /// Ranges of images that are computed together.
    fn pieces(&self) -> impl Iterator<Item = Images> {
        let (all, each) = (self.shape.n, self.images);
        (0..all).step_by(each).map(move |first| first..(first + each).min(all))
    }

    fn tasks(&self, of_input: bool) -> usize {
        match of_input {
            true => self.shape.c_in.div_ceil(self.share_of_input()),
            false => self.shape.c_out.div_ceil(self.share()),
        }
    }

    /// Numbers of scratch floats of [`forward`](Self::forward): windows, outputs, a tile for each
    /// task, and the offset of each window.
    fn lens_forward(&self) -> [usize; 4] {
        let tiles = self.tasks(false) * Dots::tile_len(1, PIECE);
        let outputs = self.positions() * self.shape.c_out;
        [self.positions() * self.depth(), outputs, tiles, self.positions()]
    }

    /// Numbers of scratch floats of [`grad_weight`](Self::grad_weight): windows, and gradients of
    /// outputs.
    fn lens_grad_weight(&self) -> [usize; 2] {
        [self.positions() * self.depth(), self.positions() * self.shape.c_out]
    }

    /// Numbers of scratch floats of [`grad_input`](Self::grad_input): gradients of outputs,
    /// gradients of inputs, and gradients of windows for each task.
    fn lens_grad_input(&self) -> [usize; 3] {
        let windows = self.positions() * self.channels() * self.taps();
        let input = self.images * self.shape.c_in * self.shape.h * self.shape.w;
        [self.positions() * self.shape.c_out, input, self.tasks(true) * windows]
    }

    /// Total number of scratch floats of [`forward`](Self::forward).
    pub fn workspace_len_forward(&self) -> usize {
        sum(&self.lens_forward())
    }

    /// Total number of scratch floats of [`grad_weight`](Self::grad_weight).
    pub fn workspace_len_grad_weight(&self) -> usize {
        sum(&self.lens_grad_weight())
    }

    /// Total number of scratch floats of [`grad_input`](Self::grad_input).
    pub fn workspace_len_grad_input(&self) -> usize {
        sum(&self.lens_grad_input())
    }

    /// Computes the output `y` of the convolution.
    pub fn forward(
        &self,
        level: Level,
        x: &[f32],
        weight: &[f32],
        y: &mut [f32],
        workspace: &mut [f32],
    ) {
        let (depth, c_out, plane) = (self.depth(), self.shape.c_out, self.plane());
        let [windows, outputs, tiles, offsets] = cut(workspace, self.lens_forward());
        let offsets: &mut [u32] = cast_slice_mut(offsets);
        for (i, offset) in offsets.iter_mut().enumerate() {
            *offset = (i * depth) as u32;
        }
        let share = self.share();
        for images in self.pieces() {
            let positions = images.len() * plane;
            self.unfold(x, &images, windows);
            let (windows, offsets) = (&*windows, &offsets[..positions]);
            let outputs = &mut outputs[..c_out * positions];
            let tasks =
                [chunks(outputs, share * positions), chunks(tiles, Dots::tile_len(1, PIECE))];
            each(tasks, 1, |task, [outputs, tile]| {
                outputs.fill(0.0);
                for from in (0..depth).step_by(PIECE) {
                    let dots = Dots {
                        dy: &weight[task * share * depth + from..],
                        rows: outputs.len() / positions,
                        dy_stride: depth,
                        dy_image: 0,
                        x: &windows[from..],
                        x_image: 0,
                        offsets,
                        images: 1,
                        positions: PIECE.min(depth - from),
                    };
                    level.gather_dots(&dots, tile, outputs);
                }
            });
            let y = &mut y[images.start * c_out * plane..images.end * c_out * plane];
            for (i, y) in y.chunks_exact_mut(plane).enumerate() {
                let (image, channel) = (i / c_out, i % c_out);
                y.copy_from_slice(&outputs[channel * positions + image * plane..][..plane]);
            }
        }
    }

    /// Computes the gradient `dw` of the weight.
    pub fn grad_weight(
        &self,
        level: Level,
        x: &[f32],
        dy: &[f32],
        dw: &mut [f32],
        workspace: &mut [f32],
    ) {
        let (depth, share) = (self.depth(), self.share());
        let [windows, outputs] = cut(workspace, self.lens_grad_weight());
        for images in self.pieces() {
            let positions = images.len() * self.plane();
            self.unfold(x, &images, windows);
            self.by_channel(dy, &images, outputs);
            let (windows, outputs) = (&*windows, &*outputs);
            each(chunks(dw, share * depth), 1, |task, dw| {
                for from in (0..depth).step_by(PIECE) {
                    let product = Matrices {
                        sizes: [dw.len() / depth, positions, PIECE.min(depth - from)],
                        a: &outputs[task * share * positions..],
                        a_strides: [positions, 1],
                        b: &windows[from..],
                        b_stride: depth,
                        c_stride: depth,
                        factor: 1.0,
                        add: images.start > 0,
                    };
                    level.multiply(&product, &mut dw[from..]);
                }
            });
        }
    }

    /// Computes the gradient `dx` of the input.
    pub fn grad_input(
        &self,
        level: Level,
        dy: &[f32],
        weight: &[f32],
        dx: &mut [f32],
        workspace: &mut [f32],
    ) {
        let (depth, taps, channels) = (self.depth(), self.taps(), self.channels());
        let ConvShape { c_in, c_out, h, w, .. } = self.shape;
        let [outputs, inputs, windows] = cut(workspace, self.lens_grad_input());
        let share = self.share_of_input();
        for images in self.pieces() {
            let positions = images.len() * self.plane();
            let pixels = images.len() * h * w;
            self.by_channel(dy, &images, outputs);
            let (outputs, inputs) = (&*outputs, &mut inputs[..c_in * pixels]);
            let tasks = [
                chunks(inputs, share * pixels),
                chunks(windows, self.positions() * channels * taps),
            ];
            each(tasks, 1, |task, [inputs, windows]| {
                for (i, inputs) in inputs.chunks_mut(channels * pixels).enumerate() {
                    let columns = inputs.len() / pixels * taps;
                    let product = Matrices {
                        sizes: [positions, c_out, columns],
                        a: outputs,
                        a_strides: [1, positions],
                        b: &weight[(task * share + i * channels) * taps..],
                        b_stride: depth,
                        c_stride: columns,
                        factor: 1.0,
                        add: false,
                    };
                    level.multiply(&product, windows);
                    self.fold(&windows[..positions * columns], images.len(), inputs);
                }
            });
            let dx = &mut dx[images.start * c_in * h * w..images.end * c_in * h * w];
            for (i, dx) in dx.chunks_exact_mut(h * w).enumerate() {
                let (image, channel) = (i / c_in, i % c_in);
                dx.copy_from_slice(&inputs[channel * pixels + image * h * w..][..h * w]);
            }
        }
    }

    /// Reorders `dy [n, c_out, ..]` of some images to `[c_out, n, ..]`.
    fn by_channel(&self, dy: &[f32], images: &Images, to: &mut [f32]) {
        let (plane, c_out) = (self.plane(), self.shape.c_out);
        for (channel, to) in to.chunks_exact_mut(images.len() * plane).enumerate().take(c_out) {
            for (image, to) in images.clone().zip(to.chunks_exact_mut(plane)) {
                to.copy_from_slice(&dy[(image * c_out + channel) * plane..][..plane]);
            }
        }
    }

    /// Returns the range of kernel elements that lie inside the image for the window of an output,
    /// along one axis. Also returns the coordinate of the pixel that the first kernel element of
    /// the range reads.
    fn met(&self, axis: usize, output: usize) -> (usize, Range<usize>) {
        let ConvShape { stride, padding, dilation, .. } = self.shape;
        let (len, kernel) = [(self.shape.h, self.shape.kh), (self.shape.w, self.shape.kw)][axis];
        let at = output * stride[axis];
        let first = padding[axis].saturating_sub(at).div_ceil(dilation[axis]);
        let end = (len + padding[axis]).saturating_sub(at).div_ceil(dilation[axis]).min(kernel);
        ((at + first * dilation[axis]).saturating_sub(padding[axis]), first.min(end)..end)
    }

    /// Copies the windows of some images to `windows`, one row for each window, with zeros outside
    /// the images.
    fn unfold(&self, x: &[f32], images: &Images, windows: &mut [f32]) {
        let ConvShape { c_in, h, w, kw, dilation, .. } = self.shape;
        let (depth, plane) = (self.depth(), self.plane());
        let windows = &mut windows[..images.len() * plane * depth];
        each(chunks(windows, depth), 1, |position, window| {
            let (image, at) = (images.start + position / plane, position % plane);
            let (row, rows) = self.met(0, at / self.shape.w_out());
            let (column, columns) = self.met(1, at % self.shape.w_out());
            let x = &x[image * c_in * h * w..][..c_in * h * w];
            let elements = window.chunks_exact_mut(self.taps()).zip(x.chunks_exact(h * w));
            for (window, x) in elements {
                window.fill(0.0);
                for (i, k) in rows.clone().enumerate() {
                    let from = &x[(row + i * dilation[0]) * w..][..w];
                    let to = &mut window[k * kw..][columns.clone()];
                    for (j, to) in to.iter_mut().enumerate() {
                        *to = from[column + j * dilation[1]];
                    }
                }
            }
        });
    }

    /// Adds the elements of the windows of a few channels, `[position, channel, kernel element]`,
    /// to the pixels of the images, `[channel, image, h, w]`.
    fn fold(&self, windows: &[f32], images: usize, to: &mut [f32]) {
        let ConvShape { h, w, kw, dilation, .. } = self.shape;
        let (taps, plane) = (self.taps(), self.plane());
        to.fill(0.0);
        let each = windows.chunks_exact(windows.len() / (images * plane));
        for (position, window) in each.enumerate() {
            let (image, at) = (position / plane, position % plane);
            let (row, rows) = self.met(0, at / self.shape.w_out());
            let (column, columns) = self.met(1, at % self.shape.w_out());
            for (window, to) in window.chunks_exact(taps).zip(to.chunks_exact_mut(images * h * w)) {
                let to = &mut to[image * h * w..][..h * w];
                for (i, k) in rows.clone().enumerate() {
                    let to = &mut to[(row + i * dilation[0]) * w..][..w];
                    for (j, from) in window[k * kw..][columns.clone()].iter().enumerate() {
                        to[column + j * dilation[1]] += from;
                    }
                }
            }
        }
    }
}

/// Takes consecutive pieces with the lengths `lens` from `workspace`. Each piece starts at a cache
/// line.
fn cut<const N: usize>(workspace: &mut [f32], lens: [usize; N]) -> [&mut [f32]; N] {
    let mut rest = aligned(workspace, sum(&lens));
    lens.map(|len| {
        let (piece, after) = std::mem::take(&mut rest).split_at_mut(align(len));
        rest = after;
        &mut piece[..len]
    })
}

fn sum(lens: &[usize]) -> usize {
    lens.iter().fold(ALIGN, |sum, &len| sum.saturating_add(align(len)))
}
