//! The forward pass and the gradient of the input: both slide a kernel over padded images.
//!
//! The gradient of the input slides the kernel over `dy`, rotated by 180 degrees and with input and output channels
//! swapped. With a stride, input rows that differ by less than the stride depend on different kernel rows. So the
//! gradient is split into phases. The input rows of a phase are a stride apart and depend on the same kernel rows, and
//! the phase is a convolution with stride 1:
//!
//! ```text
//! stride 2, padding 1, kernel rows 0 1 2:     input row 0 1 2 3 4 5
//!                                             phase     0 1 0 1 0 1
//!   phase 0, kernel row 1:         dx[2q]     =                 dy[q] * w[1]
//!   phase 1, kernel rows 2 and 0:  dx[2q + 1] = dy[q] * w[2] + dy[q + 1] * w[0]
//! ```
//!
//! All phases read the same packed strip of `dy`.

use bytemuck::cast_slice_mut;
use rayon::prelude::*;

use super::simd::{Level, MAX_TILE_ROWS, Product};
use super::strided::spread_every;
use super::windows::{ALIGN, SLACK, Windows, align, aligned, scratch_share};
use crate::device::conv_shape::ConvShape;

/// Size of a packed strip, in floats. It and its outputs should stay in the level-2 cache.
const STRIP_FLOATS: usize = 64 * 1024;

/// Most tasks, each with its own scratch. A constant, because results must not depend on the number of threads.
const TASKS: usize = 8;

/// The outputs that depend on the same kernel elements.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// Its phase of rows, and of columns.
    phase: [Phase; 2],
}

/// A convolution, for each image of a batch: each output is a sum over a window of the source.
#[derive(Clone, Copy, Debug)]
pub(super) struct Correlation {
    images: usize,
    /// What the parts read of a source image.
    windows: Windows,
    /// Channels, rows and columns of the destination.
    to: [usize; 3],
    /// Distance between neighbouring outputs of a part.
    to_step: [usize; 2],
    /// Phases of rows and of columns. Each pair is a part.
    phases: [Phases; 2],
    /// Strides of the weights along destination channels, source channels, and kernel rows.
    weight_strides: [usize; 3],
}

/// Most floats of a packed strip.
fn strip_floats(images: usize, windows: &Windows) -> usize {
    scratch_share(images * windows.image_len(), TASKS).min(STRIP_FLOATS)
}

impl Correlation {
    /// The forward pass of a shape that is not empty.
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
        Self {
            images: shape.n,
            windows: windows.with_strip_in(strip_floats(shape.n, &windows)),
            to: [shape.c_out, shape.h_out(), shape.w_out()],
            to_step: [1, 1],
            phases: [0, 1]
                .map(|i| Phases::Whole { taps: windows.taps[i], first: windows.first[i] }),
            weight_strides: [shape.c_in * shape.kh * shape.kw, shape.kh * shape.kw, shape.kw],
        }
    }

    /// The gradient of the input of a shape that is not empty.
    pub fn grad_input(shape: &ConvShape) -> Self {
        let turned = [
            Turned::new(shape.h, shape.kh, shape.stride[0], shape.padding[0]),
            Turned::new(shape.w, shape.kw, shape.stride[1], shape.padding[1]),
        ];
        let met = turned.map(|phases| phases.met());
        let windows = Windows {
            channels: shape.c_out,
            src: [shape.h_out(), shape.w_out()],
            out: [shape.h.div_ceil(shape.stride[0]), shape.w.div_ceil(shape.stride[1])],
            taps: met.map(|(_, taps)| taps),
            step: [1, 1],
            first: met.map(|(first, _)| first),
            strip: 1,
        };
        Self {
            images: shape.n,
            windows: windows.with_strip_in(strip_floats(shape.n, &windows)),
            to: [shape.c_in, shape.h, shape.w],
            to_step: shape.stride,
            phases: turned.map(Phases::Turned),
            weight_strides: [shape.kh * shape.kw, shape.c_in * shape.kh * shape.kw, shape.kw],
        }
    }

    /// Destination channels per task: all of them, unless there are few images. Each task packs its whole image, which
    /// is cheap only beside the work for many channels.
    fn group(&self) -> usize {
        let groups = (TASKS / self.images).clamp(1, self.to[0].div_ceil(2 * MAX_TILE_ROWS));
        self.to[0].div_ceil(groups).next_multiple_of(MAX_TILE_ROWS)
    }

    fn images_per_task(&self) -> usize {
        self.images.div_ceil(TASKS)
    }

    /// Each output belongs to one part, or depends on no kernel element and is zero.
    fn parts(&self) -> impl Iterator<Item = Part> {
        let [rows, columns] = self.phases;
        rows.each()
            .flat_map(move |row| columns.each().map(move |column| Part { phase: [row, column] }))
    }

    /// The sum of the [`depth`](Self::depth) of all parts.
    fn depths(&self) -> usize {
        let [rows, columns] = self.phases.map(Phases::taps);
        self.windows.channels.saturating_mul(rows).saturating_mul(columns)
    }

    /// Number of products summed into one output of a part.
    fn depth(&self, part: &Part) -> usize {
        self.windows.channels * part.phase[0].taps * part.phase[1].taps
    }

    /// Destination channels of packed weights.
    fn packed_channels(&self) -> usize {
        self.to[0].next_multiple_of(MAX_TILE_ROWS)
    }

    /// Whether outputs are stored in the order in which the inner loop writes them. Otherwise they go through a stage.
    fn is_direct(&self) -> bool {
        self.to_step == [1, 1]
    }

    /// Scratch of one task: a packed strip, and a stage for one tile of outputs.
    fn scratch_len(&self) -> usize {
        let stage =
            if self.is_direct() { 0 } else { MAX_TILE_ROWS * self.windows.strip_positions() };
        align(self.windows.packed_len().saturating_add(SLACK + stage))
    }

    /// Floats of scratch for all tasks, packed weights and window offsets.
    pub fn workspace_len(&self) -> usize {
        let weights = align(self.depths().saturating_mul(self.packed_channels() + 1));
        let groups = self.to[0].div_ceil(self.group());
        let tasks = self.images.div_ceil(self.images_per_task()) * groups;
        tasks.saturating_mul(self.scratch_len()).saturating_add(weights).saturating_add(ALIGN)
    }

    /// Computes `to`. No operand is empty.
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
        let (weights, scratch) = workspace.split_at_mut(align(packed_weights + depths));
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
        for part in self.parts() {
            let (part_packed, part_offsets);
            (part_packed, packed) = packed.split_at_mut(self.packed_channels() * self.depth(&part));
            (part_offsets, offsets) = offsets.split_at_mut(self.depth(&part));
            let [row_taps, column_taps] = std::array::from_fn(|i| {
                let first = (part.phase[i].first - self.windows.first[i]) as usize;
                first..first + part.phase[i].taps
            });
            self.windows.write_offsets(row_taps, column_taps, part_offsets);
            let tiles = part_packed.par_chunks_exact_mut(rows * self.depth(&part));
            tiles.enumerate().for_each(|(tile, packed)| {
                self.pack_tile(&part, weight, tile * rows, rows, packed)
            });
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

    /// Computes the destination channels of one image from `channel` on, as many as `to` has room for.
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
            // Some outputs depend on no kernel element.
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

    /// Copies rows of one channel from the stage to `to`. The last row and column may be outside.
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

/// In one dimension, the outputs `origin + q * step`, which depend on the same kernel elements.
#[derive(Clone, Copy, Debug)]
struct Phase {
    origin: usize,
    /// Number of these kernel elements, at least 1.
    taps: usize,
    /// Kernel element of tap 0, and the distance to that of the next tap.
    kernel: (usize, isize),
    /// Source coordinate that output 0 reads at tap 0.
    first: isize,
}

impl Phase {
    fn kernel_elements(&self) -> impl Iterator<Item = usize> {
        let (first, distance) = self.kernel;
        (0..self.taps).map(move |tap| first.strict_add_signed(tap as isize * distance))
    }
}

/// All phases of one dimension.
#[derive(Clone, Copy, Debug)]
enum Phases {
    /// One phase with the whole kernel; `first` is that of [`Phase`].
    Whole { taps: usize, first: isize },
    /// The phases of a gradient.
    Turned(Turned),
}

impl Phases {
    fn each(self) -> impl Iterator<Item = Phase> + Clone {
        let (whole, turned) = match self {
            Self::Whole { taps, first } => {
                (Some(Phase { origin: 0, taps, kernel: (0, 1), first }), None)
            }
            Self::Turned(turned) => (None, Some(turned)),
        };
        whole.into_iter().chain(turned.into_iter().flat_map(Turned::each))
    }

    /// Number of taps of all phases.
    fn taps(self) -> usize {
        match self {
            Self::Whole { taps, .. } => taps,
            Self::Turned(turned) => turned.met_within(turned.kernel),
        }
    }

    /// Whether each output belongs to a phase.
    fn cover_all(&self) -> bool {
        match self {
            Self::Whole { .. } => true,
            Self::Turned(turned) => turned.count() == turned.stride.min(turned.len),
        }
    }
}

/// The phases of a gradient. Input `i` depends on output `o` through kernel element `k`, or *meets* `k`, iff
/// `i + padding = o * stride + k`.
#[derive(Clone, Copy, Debug)]
struct Turned {
    /// Size of the input.
    len: usize,
    kernel: usize,
    stride: usize,
    padding: usize,
}

impl Turned {
    const fn new(len: usize, kernel: usize, stride: usize, padding: usize) -> Self {
        Self { len, kernel, stride, padding }
    }

    /// The first input that meets kernel element `k`, if there were at least as many inputs as the stride.
    fn origin(&self, k: usize) -> usize {
        (k % self.stride + self.stride - self.padding % self.stride) % self.stride
    }

    /// In the order of the smallest kernel element that a phase meets.
    fn each(self) -> impl Iterator<Item = Phase> + Clone {
        let Self { len, kernel, stride, padding } = self;
        (0..stride.min(kernel)).filter_map(move |smallest| {
            let origin = Some(self.origin(smallest)).filter(|&origin| origin < len)?;
            let taps = (kernel - smallest).div_ceil(stride);
            Some(Phase {
                origin,
                taps,
                kernel: (smallest + (taps - 1) * stride, -(stride as isize)),
                first: ((origin + padding - smallest) / stride) as isize + 1 - taps as isize,
            })
        })
    }

    /// Number of phases.
    fn count(&self) -> usize {
        self.met_within(self.kernel.min(self.stride))
    }

    /// How many of the first `elements` kernel elements any input meets.
    fn met_within(&self, elements: usize) -> usize {
        // Inputs a stride apart meet the same elements. `met` counts those among `n` elements that start with one that
        // input 0 meets.
        let met = |n: usize| {
            n / self.stride * self.len.min(self.stride) + (n % self.stride).min(self.len)
        };
        let skipped = self.origin(0);
        met(skipped + elements) - met(skipped)
    }

    /// The first output that the inputs of the first stride depend on, and the number of outputs up to the last. At
    /// least one, even if they depend on none.
    fn met(&self) -> (isize, usize) {
        let Self { len, kernel, stride, padding } = *self;
        if self.count() == 0 {
            return (0, 1);
        }
        let first = match (padding + 1).checked_sub(kernel) {
            Some(ahead) => ahead.div_ceil(stride) as isize,
            None => -(((kernel - padding - 1) / stride) as isize),
        };
        let last = (stride.min(len) - 1 + padding) / stride;
        (first, (last as isize - first + 1) as usize)
    }
}
