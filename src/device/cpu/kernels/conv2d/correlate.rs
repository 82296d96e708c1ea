//! Forward and gradient of the input: both slide a kernel over padded images.
//!
//! The gradient of the input slides the kernel, turned by half a turn and with its channels exchanged, over `dy`.
//! With a stride, input rows that differ by less than the stride meet different kernel rows, so the gradient is cut
//! into phases. In each phase the input rows are a stride apart and meet the same kernel rows, and the phase is a
//! convolution of stride 1:
//!
//! ```text
//! stride 2, padding 1, kernel rows 0 1 2:     input row 0 1 2 3 4 5
//!                                             phase     0 1 0 1 0 1
//!   phase 0 meets kernel row 1:         dx[2q]     =                 dy[q] * w[1]
//!   phase 1 meets kernel rows 2 and 0:  dx[2q + 1] = dy[q] * w[2] + dy[q + 1] * w[0]
//! ```

use bytemuck::cast_slice_mut;
use rayon::prelude::*;

use super::ConvShape;
use super::simd::{Level, MAX_TILE_ROWS, Product};
use super::windows::{ALIGN, SLACK, Windows, aligned};

/// Packed images at hand, in floats: this and the outputs they go to should stay in the level-2 cache.
const STRIP_FLOATS: usize = 64 * 1024;

/// At most this many tasks, each with its own scratch; never the number of threads, on which nothing may depend.
const TASKS: usize = 8;

/// One convolution of stride 1 or more, whose outputs go to places a step apart.
#[derive(Clone, Copy, Debug)]
struct Part {
    windows: Windows,
    /// Kernel row and column behind tap 0 and the distance to that of the next tap.
    kernel: [(usize, isize); 2],
    /// Where output 0 goes, in rows and columns of the destination.
    origin: [usize; 2],
}

/// A sum of convolutions with disjoint outputs, over all images of a batch.
#[derive(Clone, Debug)]
pub(super) struct Correlation {
    images: usize,
    /// Channels, rows and columns of the destination.
    to: [usize; 3],
    /// Distance between neighbouring outputs of a part.
    to_step: [usize; 2],
    parts: Vec<Part>,
    /// Distance in the weights between kernels of neighbouring destination channels, source channels, and rows.
    weight_strides: [usize; 3],
}

impl Correlation {
    pub fn forward(shape: &ConvShape) -> Self {
        let windows = Windows {
            channels: shape.c_in,
            src: [shape.h, shape.w],
            out: [shape.h_out(), shape.w_out()],
            taps: [shape.kh, shape.kw],
            step: shape.stride,
            first: shape.padding.map(|p| -(p as isize)),
            strip: 1,
        };
        let part = Part {
            windows: windows.with_strip_in(STRIP_FLOATS),
            kernel: [(0, 1); 2],
            origin: [0, 0],
        };
        Self {
            images: shape.n,
            to: [shape.c_out, shape.h_out(), shape.w_out()],
            to_step: [1, 1],
            parts: if windows.depth() == 0 { Vec::new() } else { vec![part] },
            weight_strides: [shape.c_in * shape.kh * shape.kw, shape.kh * shape.kw, shape.kw],
        }
    }

    pub fn grad_input(shape: &ConvShape) -> Self {
        let rows = phases(shape.h, shape.kh, shape.stride[0], shape.padding[0]);
        let parts = rows.flat_map(|row| {
            let columns = phases(shape.w, shape.kw, shape.stride[1], shape.padding[1]);
            columns.map(move |column| {
                let windows = Windows {
                    channels: shape.c_out,
                    src: [shape.h_out(), shape.w_out()],
                    out: [row.count, column.count],
                    taps: [row.taps, column.taps],
                    step: [1, 1],
                    first: [row.first, column.first],
                    strip: 1,
                };
                Part {
                    windows: windows.with_strip_in(STRIP_FLOATS),
                    kernel: [row.kernel, column.kernel],
                    origin: [row.origin, column.origin],
                }
            })
        });
        Self {
            images: shape.n,
            to: [shape.c_in, shape.h, shape.w],
            to_step: shape.stride,
            parts: parts.filter(|part| part.windows.depth() > 0).collect(),
            weight_strides: [shape.kh * shape.kw, shape.c_in * shape.kh * shape.kw, shape.kw],
        }
    }

    /// Destination channels per task: all of them, unless there are few images.
    fn group(&self) -> usize {
        let groups =
            (TASKS / self.images.max(1)).clamp(1, self.to[0].div_ceil(MAX_TILE_ROWS).max(1));
        self.to[0].div_ceil(groups).next_multiple_of(MAX_TILE_ROWS)
    }

    fn images_per_task(&self) -> usize {
        self.images.div_ceil(TASKS).max(1)
    }

    fn packed_weight_len(&self, part: &Part) -> usize {
        self.to[0].next_multiple_of(MAX_TILE_ROWS) * part.windows.depth()
    }

    /// Outputs go through a stage unless they lie as the kernel writes them.
    fn is_direct(&self) -> bool {
        self.to_step == [1, 1]
    }

    /// Scratch of one task: a packed strip, and a stage for one tile of outputs.
    fn scratch_len(&self) -> usize {
        let packed = self.parts.iter().map(|part| part.windows.packed_len()).max().unwrap_or(0);
        let staged =
            self.parts.iter().map(|part| part.windows.strip_positions()).max().unwrap_or(0);
        let stage = if self.is_direct() { 0 } else { MAX_TILE_ROWS * staged };
        (packed + SLACK + stage).next_multiple_of(ALIGN)
    }

    /// Floats of scratch for all tasks, packed weights and window offsets.
    pub fn workspace_len(&self) -> usize {
        let weights: usize =
            self.parts.iter().map(|p| self.packed_weight_len(p) + p.windows.depth()).sum();
        let groups = self.to[0].div_ceil(self.group().max(1));
        let tasks = self.images.div_ceil(self.images_per_task()) * groups;
        ALIGN + weights.next_multiple_of(ALIGN) + tasks * self.scratch_len()
    }

    /// Computes all of `to`.
    pub fn run(
        &self,
        level: Level,
        from: &[f32],
        weight: &[f32],
        to: &mut [f32],
        workspace: &mut [f32],
    ) {
        if to.is_empty() {
            return;
        }
        if self.parts.is_empty() || from.is_empty() {
            to.fill(0.0);
            return;
        }
        let workspace = aligned(workspace, self.workspace_len());
        let packed_weights: usize =
            self.parts.iter().map(|part| self.packed_weight_len(part)).sum();
        let depths: usize = self.parts.iter().map(|part| part.windows.depth()).sum();
        let (weights, scratch) =
            workspace.split_at_mut((packed_weights + depths).next_multiple_of(ALIGN));
        let (weights, offsets) = weights.split_at_mut(packed_weights);
        let offsets: &mut [u32] = cast_slice_mut(&mut offsets[..depths]);
        self.prepare(level, weight, weights, offsets);
        let (weights, offsets) = (&*weights, &*offsets);

        let from_len = from.len() / self.images;
        let to_len = to.len() / self.images;
        let plane = self.to[1] * self.to[2];
        let group = self.group();
        let groups = self.to[0].div_ceil(group);
        let per_task = self.images_per_task();
        let scratch_len = self.scratch_len();
        let tasks =
            to.par_chunks_mut(per_task * to_len).zip(scratch.par_chunks_mut(groups * scratch_len));
        tasks.enumerate().for_each(|(task, (to, scratch))| {
            for (image, to) in to.chunks_exact_mut(to_len).enumerate() {
                let from = &from[(task * per_task + image) * from_len..][..from_len];
                let groups =
                    to.par_chunks_mut(group * plane).zip(scratch.par_chunks_mut(scratch_len));
                groups.enumerate().for_each(|(i, (to, scratch))| {
                    self.run_image(level, from, weights, offsets, i * group, to, scratch);
                });
            }
        });
    }

    /// Packs the weights of each part and lists its window offsets.
    fn prepare(
        &self,
        level: Level,
        weight: &[f32],
        mut packed: &mut [f32],
        mut offsets: &mut [u32],
    ) {
        let rows = level.tile_rows(self.to[0]);
        for part in &self.parts {
            let (part_packed, rest) = packed.split_at_mut(self.packed_weight_len(part));
            let (part_offsets, rest_offsets) = offsets.split_at_mut(part.windows.depth());
            (packed, offsets) = (rest, rest_offsets);
            part.windows.write_offsets(part_offsets);
            let tiles = part_packed.par_chunks_exact_mut(rows * part.windows.depth());
            tiles
                .enumerate()
                .for_each(|(tile, packed)| self.pack_tile(part, weight, tile * rows, rows, packed));
        }
    }

    /// Packs the weights of `rows` destination channels from `channel` on, tap by tap.
    fn pack_tile(
        &self,
        part: &Part,
        weight: &[f32],
        channel: usize,
        rows: usize,
        packed: &mut [f32],
    ) {
        let [height, width] = part.windows.taps;
        let [to_stride, from_stride, row_stride] = self.weight_strides;
        let kernel = |dim: usize, tap: usize| {
            (part.kernel[dim].0 as isize + tap as isize * part.kernel[dim].1) as usize
        };
        let mut taps = packed.chunks_exact_mut(rows);
        for from in 0..part.windows.channels {
            for row in 0..height {
                for column in 0..width {
                    let at = from * from_stride + kernel(0, row) * row_stride + kernel(1, column);
                    let tap = taps.next().expect("a chunk for each tap");
                    for (i, value) in tap.iter_mut().enumerate() {
                        let to = channel + i;
                        *value = if to < self.to[0] { weight[to * to_stride + at] } else { 0.0 };
                    }
                }
            }
        }
    }

    /// Computes the destination channels from `channel` on that `to` holds, of one image.
    #[expect(clippy::too_many_arguments, reason = "the operands of one task")]
    fn run_image(
        &self,
        level: Level,
        from: &[f32],
        mut weights: &[f32],
        mut offsets: &[u32],
        channel: usize,
        to: &mut [f32],
        scratch: &mut [f32],
    ) {
        let plane = self.to[1] * self.to[2];
        let tile_rows = level.tile_rows(self.to[0]);
        if !self.is_direct() && self.parts.len() < self.to_step[0] * self.to_step[1] {
            // Some outputs meet no kernel element.
            to.fill(0.0);
        }
        for part in &self.parts {
            let windows = &part.windows;
            let depth = windows.depth();
            let (a, rest) = weights.split_at(self.packed_weight_len(part));
            let (part_offsets, rest_offsets) = offsets.split_at(depth);
            (weights, offsets) = (rest, rest_offsets);
            let a = &a[channel * depth..];

            let (packed, stage) = scratch.split_at_mut(windows.packed_len() + SLACK);
            packed[windows.packed_len()..].fill(0.0);
            for out_row in (0..windows.out[0]).step_by(windows.strip) {
                let rows = windows.strip.min(windows.out[0] - out_row);
                windows.pack(from, out_row, rows, packed);
                let positions = rows * windows.out[1];
                let product = Product {
                    a,
                    tile_rows,
                    offsets: part_offsets,
                    x: packed,
                    positions,
                    y_stride: plane,
                };
                if self.is_direct() {
                    level.gather_product(&product, &mut to[out_row * windows.out[1]..]);
                    continue;
                }
                let stage = &mut stage[..tile_rows * positions];
                for (a, to) in
                    a.chunks_exact(tile_rows * depth).zip(to.chunks_mut(tile_rows * plane))
                {
                    level.gather_product(&Product { a, y_stride: positions, ..product }, stage);
                    for (stage, to) in stage.chunks_exact(positions).zip(to.chunks_exact_mut(plane))
                    {
                        self.spread(part, out_row, stage, to);
                    }
                }
            }
        }
    }

    /// Moves rows of one channel from the stage to their places.
    fn spread(&self, part: &Part, out_row: usize, stage: &[f32], to: &mut [f32]) {
        for (i, row) in stage.chunks_exact(part.windows.out[1]).enumerate() {
            let at = part.origin[0] + (out_row + i) * self.to_step[0];
            let to = &mut to[at * self.to[2]..][..self.to[2]];
            for (to, value) in to[part.origin[1]..].iter_mut().step_by(self.to_step[1]).zip(row) {
                *to = *value;
            }
        }
    }
}

/// In one dimension, the inputs `origin + q * stride` for `q` below `count`, which meet the same kernel elements.
#[derive(Clone, Copy, Debug)]
struct Phase {
    origin: usize,
    count: usize,
    /// Kernel elements they meet.
    taps: usize,
    /// Kernel element behind tap 0 and the distance to that of the next tap.
    kernel: (usize, isize),
    /// Output that tap 0 of input 0 meets.
    first: isize,
}

/// Input `i` meets output `o` at kernel element `k` if `i + padding = o * stride + k`.
fn phases(len: usize, kernel: usize, stride: usize, padding: usize) -> impl Iterator<Item = Phase> {
    (0..stride.min(len)).map(move |origin| {
        let smallest = (origin + padding) % stride;
        let taps = kernel.saturating_sub(smallest).div_ceil(stride);
        let last = (smallest + taps * stride) as isize - stride as isize;
        Phase {
            origin,
            count: (len - origin).div_ceil(stride),
            taps,
            kernel: (last.max(0) as usize, -(stride as isize)),
            first: ((origin + padding - smallest) / stride) as isize + 1 - taps as isize,
        }
    })
}
