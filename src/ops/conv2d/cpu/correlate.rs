//! Computes the forward pass and the gradient of the input, each by sliding a kernel over padded
//! images.
//!
//! The gradient of the input slides the kernel over `dy`. The kernel is rotated by 180 degrees, and
//! its input and output channels are swapped. If the stride is above 1, neighbouring input rows
//! depend on different kernel rows. The gradient is therefore split into phases: a phase consists
//! of input rows that are a stride apart, and that all depend on the same kernel rows. Each phase
//! is a convolution with stride 1:
//!
//! ```text
//! stride 2, padding 1, kernel rows 0 1 2:     input row 0 1 2 3 4 5
//!                                             phase     0 1 0 1 0 1
//!   phase 0, kernel row 1:         dx[2q]     =                 dy[q] * w[1]
//!   phase 1, kernel rows 2 and 0:  dx[2q + 1] = dy[q] * w[2] + dy[q + 1] * w[0]
//! ```
//!
//! All phases share one packed strip of `dy`.
//!
//! If the channels are divided into groups, each group of channels of an image is treated as an
//! image of its own, with the weights of the group.

use bytemuck::cast_slice_mut;

use super::simd::{Level, MAX_TILE_ROWS, Product};
use super::strided::spread_every;
use super::turned::{Phase, Turned};
use super::windows::{ALIGN, SLACK, Windows, align, aligned, scratch_share};
use crate::device::conv_shape::ConvShape;
use crate::device::cpu::split::{chunks, each};

/// Largest size of a packed strip of an image, in floats. A strip and the outputs computed from it
/// should stay in the level-2 cache.
const STRIP_FLOATS: usize = 64 * 1024;

/// Largest number of tasks, each with its own scratch memory. The number is constant, because
/// results must not depend on the number of threads.
const TASKS: usize = 8;

/// Set of outputs that all depend on the same kernel elements: a phase of the rows and a phase of
/// the columns.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// Phase of the rows, and phase of the columns.
    phase: [Phase; 2],
}

/// Plan to convolve each image of a batch, called the source. Each output is a sum over a window of
/// the source.
#[derive(Clone, Copy, Debug)]
pub(super) struct Correlation {
    /// Number of images times number of groups, because each group of channels is treated as an
    /// image of its own.
    images: usize,
    /// Number of groups of channels. Image `i` uses the weights of group `i % groups`.
    groups: usize,
    /// Windows of a source image that all parts read.
    windows: Windows,
    /// Numbers of channels, rows and columns of the destination.
    to: [usize; 3],
    /// Distance between neighbouring outputs of a part, in rows and columns.
    to_step: [usize; 2],
    /// Phases of rows and of columns. Each pair of phases is a part.
    phases: [Phases; 2],
    /// Strides of the weights along destination channels, source channels, and kernel rows.
    weight_strides: [usize; 3],
}

/// Largest number of floats of a packed strip.
fn strip_floats(images: usize, windows: &Windows) -> usize {
    scratch_share(images * windows.image_len(), TASKS).min(STRIP_FLOATS)
}

impl Correlation {
    /// Plan of the forward pass. `shape` is not empty.
    pub fn forward(shape: &ConvShape) -> Self {
        let (images, groups, shape) = (shape.n * shape.groups, shape.groups, &shape.one_group());
        let windows = Windows {
            channels: shape.c_in,
            src: [shape.h, shape.w],
            out: [shape.h_out(), shape.w_out()],
            taps: [shape.kh, shape.kw],
            step: shape.stride,
            apart: shape.dilation,
            first: shape.padding.map(|p| -(p as isize)),
            strip: 1,
        };
        Self {
            images,
            groups,
            windows: windows.with_strip_in(strip_floats(images, &windows)),
            to: [shape.c_out, shape.h_out(), shape.w_out()],
            to_step: [1, 1],
            phases: [0, 1]
                .map(|i| Phases::Whole(windows.taps[i], windows.first[i], windows.apart[i])),
            weight_strides: [shape.c_in * shape.kh * shape.kw, shape.kh * shape.kw, shape.kw],
        }
    }

    /// Plan of the gradient of the input. `shape` is not empty.
    pub fn grad_input(shape: &ConvShape) -> Self {
        let (images, groups, shape) = (shape.n * shape.groups, shape.groups, &shape.one_group());
        let of = |i: usize, len, kernel| {
            Turned::new(len, kernel, shape.stride[i], shape.padding[i], shape.dilation[i])
        };
        let turned = [of(0, shape.h, shape.kh), of(1, shape.w, shape.kw)];
        let met = turned.map(|phases| phases.met());
        let windows = Windows {
            channels: shape.c_out,
            src: [shape.h_out(), shape.w_out()],
            out: [shape.h.div_ceil(shape.stride[0]), shape.w.div_ceil(shape.stride[1])],
            taps: met.map(|(_, taps)| taps),
            step: [1, 1],
            apart: turned.map(|phases| phases.apart()),
            first: met.map(|(first, _)| first),
            strip: 1,
        };
        Self {
            images,
            groups,
            windows: windows.with_strip_in(strip_floats(images, &windows)),
            to: [shape.c_in, shape.h, shape.w],
            to_step: shape.stride,
            phases: turned.map(Phases::Turned),
            weight_strides: [shape.kh * shape.kw, shape.c_in * shape.kh * shape.kw, shape.kw],
        }
    }

    /// Number of destination channels per task: all channels, unless there are fewer images than
    /// tasks. A task computes many channels, because each task packs its whole image, and the time
    /// for packing should be small compared with the time for computing.
    fn group(&self) -> usize {
        let groups = (TASKS / self.images).clamp(1, self.to[0].div_ceil(2 * MAX_TILE_ROWS));
        self.to[0].div_ceil(groups).next_multiple_of(MAX_TILE_ROWS)
    }

    fn images_per_task(&self) -> usize {
        self.images.div_ceil(TASKS)
    }

    /// All parts. An output that belongs to no part depends on no kernel element, and is zero.
    fn parts(&self) -> impl Iterator<Item = Part> {
        let [rows, columns] = self.phases;
        rows.each()
            .flat_map(move |row| columns.each().map(move |column| Part { phase: [row, column] }))
    }

    /// Sum of [`depth`](Self::depth) over all parts.
    fn depths(&self) -> usize {
        let [rows, columns] = self.phases.map(Phases::taps);
        self.windows.channels.saturating_mul(rows).saturating_mul(columns)
    }

    /// Number of products summed into one output of a part.
    fn depth(&self, part: &Part) -> usize {
        self.windows.channels * part.phase[0].taps * part.phase[1].taps
    }

    /// Number of destination channels of the packed weights, padded to whole tiles.
    fn packed_channels(&self) -> usize {
        self.to[0].next_multiple_of(MAX_TILE_ROWS)
    }

    /// Whether the inner loop writes outputs directly to their places. If not, the inner loop
    /// writes the outputs to a buffer called the stage, from which the outputs are copied to their
    /// places.
    fn is_direct(&self) -> bool {
        self.to_step == [1, 1]
    }

    /// Number of scratch floats of one task: a packed strip, and a stage for one tile of outputs.
    fn scratch_len(&self) -> usize {
        let stage =
            if self.is_direct() { 0 } else { MAX_TILE_ROWS * self.windows.strip_positions() };
        align(self.windows.packed_len().saturating_add(SLACK + stage))
    }

    /// Number of scratch floats for all tasks, packed weights and window offsets.
    pub fn workspace_len(&self) -> usize {
        let depths = self.depths();
        let packed = depths.saturating_mul(self.packed_channels()).saturating_mul(self.groups);
        let weights = align(packed.saturating_add(depths));
        let groups = self.to[0].div_ceil(self.group());
        let tasks = self.images.div_ceil(self.images_per_task()) * groups;
        tasks.saturating_mul(self.scratch_len()).saturating_add(weights).saturating_add(ALIGN)
    }

    /// Computes the result `to` from the images `from`. No operand is empty.
    pub fn run(
        &self,
        level: Level,
        from: &[f32],
        weight: &[f32],
        to: &mut [f32],
        workspace: &mut [f32],
    ) {
        let workspace = aligned(workspace, self.workspace_len());
        let depths = self.depths();
        let packed_weights = depths * self.packed_channels();
        let all_weights = self.groups * packed_weights;
        let (weights, scratch) = workspace.split_at_mut(align(all_weights + depths));
        let (weights, offsets) = weights.split_at_mut(all_weights);
        let offsets: &mut [u32] = cast_slice_mut(&mut offsets[..depths]);
        self.write_offsets(offsets);
        if packed_weights > 0 {
            let len = weight.len() / self.groups;
            each(chunks(weights, packed_weights), 1, |group, packed| {
                self.pack_weights(level, &weight[group * len..][..len], packed);
            });
        }
        let (weights, offsets) = (&*weights, &*offsets);

        let from_len = from.len() / self.images;
        let to_len = to.len() / self.images;
        let plane = self.to[1] * self.to[2];
        let group = self.group();
        let groups = self.to[0].div_ceil(group);
        let per_task = self.images_per_task();
        let scratch_len = self.scratch_len();
        let tasks = [chunks(to, per_task * to_len), chunks(scratch, groups * scratch_len)];
        each(tasks, 1, |task, [to, scratch]| {
            for (image, to) in to.chunks_exact_mut(to_len).enumerate() {
                let image = task * per_task + image;
                let from = &from[image * from_len..][..from_len];
                let weights = &weights[image % self.groups * packed_weights..][..packed_weights];
                let groups = [chunks(to, group * plane), chunks(scratch, scratch_len)];
                each(groups, 1, |i, [to, scratch]| {
                    self.run_image(level, from, weights, offsets, i * group, to, scratch);
                });
            }
        });
    }

    /// Writes the window offsets of each part.
    fn write_offsets(&self, mut offsets: &mut [u32]) {
        for part in self.parts() {
            let part_offsets;
            (part_offsets, offsets) = offsets.split_at_mut(self.depth(&part));
            let [rows, columns] = [0, 1].map(|i| {
                let (phase, apart) = (part.phase[i], self.windows.apart[i]);
                let first = (phase.first - self.windows.first[i]) as usize / apart;
                (0..phase.taps).map(move |tap| first + tap * phase.distance / apart)
            });
            self.windows.write_offsets(rows, columns, part_offsets);
        }
    }

    /// Packs the weights of each part of one group.
    fn pack_weights(&self, level: Level, weight: &[f32], mut packed: &mut [f32]) {
        let rows = level.tile_rows(self.to[0]);
        for part in self.parts() {
            let part_packed;
            (part_packed, packed) = packed.split_at_mut(self.packed_channels() * self.depth(&part));
            each(chunks(part_packed, rows * self.depth(&part)), 1, |tile, packed| {
                self.pack_tile(&part, weight, tile * rows, rows, packed);
            });
        }
    }

    /// Packs the weights of `rows` destination channels from `channel` on, one tap (kernel element)
    /// after another.
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

    /// Computes destination channels of one image, starting at `channel`. The length of `to` gives
    /// the number of channels.
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
        if !self.phases.iter().all(Phases::cover_all) {
            // Set all outputs to zero first, because no part computes the outputs that depend on no
            // kernel element.
            to.fill(0.0);
        }
        let (packed, stage) = scratch.split_at_mut(windows.packed_len() + SLACK);
        packed[windows.packed_len()..].fill(0.0);
        for out_row in (0..windows.out[0]).step_by(windows.strip) {
            let rows = windows.strip.min(windows.out[0] - out_row);
            let positions = rows * windows.out[1];
            windows.pack(from, out_row, rows, packed);
            let (mut weights, mut offsets) = (weights, offsets);
            for part in self.parts() {
                let depth = self.depth(&part);
                let (part_weights, part_offsets);
                (part_weights, weights) = weights.split_at(self.packed_channels() * depth);
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
                        self.spread(&part, out_row, stage, to);
                    }
                }
            }
        }
    }

    /// Copies rows of one channel from the stage to `to`. The last row and column may lie outside
    /// `to`.
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

/// Phases of the outputs along one dimension.
#[derive(Clone, Copy, Debug)]
enum Phases {
    /// One phase with the whole kernel: the number of taps (kernel elements), the source coordinate
    /// of the first tap, and the distance between taps.
    Whole(usize, isize, usize),
    /// Phases of the gradient of the input.
    Turned(Turned),
}

impl Phases {
    fn each(self) -> impl Iterator<Item = Phase> + Clone {
        let (whole, turned) = match self {
            Self::Whole(taps, first, distance) => {
                (Some(Phase { origin: 0, taps, kernel: (0, 1), first, distance }), None)
            }
            Self::Turned(turned) => (None, Some(turned)),
        };
        whole.into_iter().chain(turned.into_iter().flat_map(Turned::each))
    }

    /// Number of taps of all phases.
    fn taps(self) -> usize {
        match self {
            Self::Whole(taps, ..) => taps,
            Self::Turned(turned) => turned.taps(),
        }
    }

    /// Whether every output belongs to a phase.
    fn cover_all(&self) -> bool {
        match self {
            Self::Whole(..) => true,
            Self::Turned(turned) => turned.covers_all(),
        }
    }
}
