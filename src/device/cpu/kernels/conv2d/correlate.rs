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
//!
//! All phases read the same packed strip of `dy`.

use bytemuck::cast_slice_mut;
use rayon::prelude::*;

use super::ConvShape;
use super::simd::{Level, MAX_TILE_ROWS, Product};
use super::strided::spread_every;
use super::windows::{ALIGN, SLACK, Windows, aligned, scratch_share};

/// Packed images at hand, in floats: this and the outputs they go to should stay in the level-2 cache.
const STRIP_FLOATS: usize = 64 * 1024;

/// At most this many tasks, each with its own scratch; never the number of threads, on which nothing may depend.
const TASKS: usize = 8;

/// Outputs that meet the same kernel elements.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// A phase of rows and one of columns.
    phase: [Phase; 2],
}

/// A sum over windows of images, for each output and each image of a batch.
#[derive(Clone, Debug)]
pub(super) struct Correlation {
    images: usize,
    /// What any part reads of a source image.
    windows: Windows,
    /// Channels, rows and columns of the destination.
    to: [usize; 3],
    /// Distance between neighbouring outputs of a part.
    to_step: [usize; 2],
    /// Each output belongs to one part, or meets no kernel element and is zero.
    parts: Vec<Part>,
    /// Distance in the weights between kernels of neighbouring destination channels, source channels, and rows.
    weight_strides: [usize; 3],
}

/// Floats that a packed strip may take.
fn strip_floats(images: usize, windows: &Windows) -> usize {
    scratch_share(images * windows.image_len(), TASKS).min(STRIP_FLOATS)
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
        let phase = windows.taps.map(|taps| Phase { origin: 0, taps, kernel: (0, 1), first: 0 });
        Self {
            images: shape.n,
            windows: windows.with_strip_in(strip_floats(shape.n, &windows)),
            to: [shape.c_out, shape.h_out(), shape.w_out()],
            to_step: [1, 1],
            parts: vec![Part { phase }],
            weight_strides: [shape.c_in * shape.kh * shape.kw, shape.kh * shape.kw, shape.kw],
        }
    }

    pub fn grad_input(shape: &ConvShape) -> Self {
        let rows = || phases(shape.h, shape.kh, shape.stride[0], shape.padding[0]);
        let columns = || phases(shape.w, shape.kw, shape.stride[1], shape.padding[1]);
        let [(first_row, row_taps), (first_column, column_taps)] =
            [union(rows()), union(columns())];
        let windows = Windows {
            channels: shape.c_out,
            src: [shape.h_out(), shape.w_out()],
            out: [shape.h.div_ceil(shape.stride[0]), shape.w.div_ceil(shape.stride[1])],
            taps: [row_taps, column_taps],
            step: [1, 1],
            first: [first_row, first_column],
            strip: 1,
        };
        // From here on, `first` counts from the first tap of the windows.
        let within = |phase: Phase, first: isize| Phase { first: phase.first - first, ..phase };
        let parts = rows().flat_map(|row| {
            columns().map(move |column| Part {
                phase: [within(row, first_row), within(column, first_column)],
            })
        });
        Self {
            images: shape.n,
            windows: windows.with_strip_in(strip_floats(shape.n, &windows)),
            to: [shape.c_in, shape.h, shape.w],
            to_step: shape.stride,
            parts: parts.collect(),
            weight_strides: [shape.kh * shape.kw, shape.c_in * shape.kh * shape.kw, shape.kw],
        }
    }

    /// Destination channels per task: all of them, unless there are few images. Every task packs all of its image,
    /// which costs little only against many channels.
    fn group(&self) -> usize {
        let groups =
            (TASKS / self.images.max(1)).clamp(1, self.to[0].div_ceil(2 * MAX_TILE_ROWS).max(1));
        self.to[0].div_ceil(groups).next_multiple_of(MAX_TILE_ROWS)
    }

    fn images_per_task(&self) -> usize {
        self.images.div_ceil(TASKS).max(1)
    }

    /// Products summed into one output of a part.
    fn depth(&self, part: &Part) -> usize {
        self.windows.channels * part.phase[0].taps * part.phase[1].taps
    }

    fn packed_weight_len(&self, part: &Part) -> usize {
        self.to[0].next_multiple_of(MAX_TILE_ROWS) * self.depth(part)
    }

    /// Outputs go through a stage unless they lie as the kernel writes them.
    fn is_direct(&self) -> bool {
        self.to_step == [1, 1]
    }

    /// Scratch of one task: a packed strip, and a stage for one tile of outputs.
    fn scratch_len(&self) -> usize {
        let stage =
            if self.is_direct() { 0 } else { MAX_TILE_ROWS * self.windows.strip_positions() };
        (self.windows.packed_len() + SLACK + stage).next_multiple_of(ALIGN)
    }

    /// Floats of scratch for all tasks, packed weights and window offsets.
    pub fn workspace_len(&self) -> usize {
        let weights: usize =
            self.parts.iter().map(|p| self.packed_weight_len(p) + self.depth(p)).sum();
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
        if from.is_empty() || weight.is_empty() {
            to.fill(0.0);
            return;
        }
        let workspace = aligned(workspace, self.workspace_len());
        let packed_weights: usize =
            self.parts.iter().map(|part| self.packed_weight_len(part)).sum();
        let depths: usize = self.parts.iter().map(|part| self.depth(part)).sum();
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
            let (part_packed, part_offsets);
            (part_packed, packed) = packed.split_at_mut(self.packed_weight_len(part));
            (part_offsets, offsets) = offsets.split_at_mut(self.depth(part));
            let [row_taps, column_taps] =
                part.phase.map(|phase| phase.first as usize..phase.first as usize + phase.taps);
            self.windows.write_offsets(row_taps, column_taps, part_offsets);
            let tiles = part_packed.par_chunks_exact_mut(rows * self.depth(part));
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
        let [to_stride, from_stride, row_stride] = self.weight_strides;
        let mut taps = packed.chunks_exact_mut(rows);
        for from in 0..self.windows.channels {
            for row in part.phase[0].kernel_elements() {
                for (column, tap) in part.phase[1].kernel_elements().zip(&mut taps) {
                    let at = from * from_stride + row * row_stride + column;
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
        weights: &[f32],
        offsets: &[u32],
        channel: usize,
        to: &mut [f32],
        scratch: &mut [f32],
    ) {
        let windows = &self.windows;
        let plane = self.to[1] * self.to[2];
        let tile_rows = level.tile_rows(self.to[0]);
        if self.parts.len() < self.to_step[0] * self.to_step[1] {
            // Some outputs meet no kernel element.
            to.fill(0.0);
        }
        let (packed, stage) = scratch.split_at_mut(windows.packed_len() + SLACK);
        packed[windows.packed_len()..].fill(0.0);
        for out_row in (0..windows.out[0]).step_by(windows.strip) {
            let rows = windows.strip.min(windows.out[0] - out_row);
            let positions = rows * windows.out[1];
            windows.pack(from, out_row, rows, packed);
            let (mut weights, mut offsets) = (weights, offsets);
            for part in &self.parts {
                let depth = self.depth(part);
                let (part_weights, part_offsets);
                (part_weights, weights) = weights.split_at(self.packed_weight_len(part));
                (part_offsets, offsets) = offsets.split_at(depth);
                let a = &part_weights[channel * depth..];
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

    /// Moves rows of one channel from the stage to their places; the last row and column may have none.
    fn spread(&self, part: &Part, out_row: usize, stage: &[f32], to: &mut [f32]) {
        let [first_row, first_column] = part.phase.map(|phase| phase.origin);
        let rows = to
            .chunks_exact_mut(self.to[2])
            .skip(first_row + out_row * self.to_step[0])
            .step_by(self.to_step[0]);
        for (row, to) in stage.chunks_exact(self.windows.out[1]).zip(rows) {
            spread_every(self.to_step[1], first_column, row, to);
        }
    }
}

/// In one dimension, the outputs `origin + q * step`, which meet the same kernel elements.
#[derive(Clone, Copy, Debug)]
struct Phase {
    origin: usize,
    /// Kernel elements they meet, at least 1.
    taps: usize,
    /// Kernel element behind tap 0 and the distance to that of the next tap.
    kernel: (usize, isize),
    /// Source coordinate, then tap of the windows, that output 0 meets at tap 0.
    first: isize,
}

impl Phase {
    fn kernel_elements(&self) -> impl Iterator<Item = usize> {
        let (first, distance) = self.kernel;
        (0..self.taps).map(move |tap| first.strict_add_signed(tap as isize * distance))
    }
}

/// The phases of the gradient: input `i` meets output `o` at kernel element `k` if `i + padding = o * stride + k`.
fn phases(len: usize, kernel: usize, stride: usize, padding: usize) -> impl Iterator<Item = Phase> {
    (0..stride.min(len)).filter_map(move |origin| {
        let smallest = (origin + padding) % stride;
        let taps = kernel.checked_sub(smallest).filter(|&rest| rest > 0)?.div_ceil(stride);
        Some(Phase {
            origin,
            taps,
            kernel: (smallest + (taps - 1) * stride, -(stride as isize)),
            first: ((origin + padding - smallest) / stride) as isize + 1 - taps as isize,
        })
    })
}

/// The first source coordinate that any phase meets at output 0, and the number of coordinates to the last; at least
/// one, even if there are no phases.
fn union(phases: impl Iterator<Item = Phase>) -> (isize, usize) {
    let ends = phases.map(|phase| (phase.first, phase.first + phase.taps as isize));
    let (first, last) = ends.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).unwrap_or((0, 1));
    (first, (last - first) as usize)
}
