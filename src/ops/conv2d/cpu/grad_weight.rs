//! Gradient of the weight: each element is a dot product of an output channel of `dy` and a window
//! of `x`.

use bytemuck::cast_slice_mut;

use super::simd::{Dots, Level};
use super::windows::{ALIGN, Windows, align, aligned, scratch_share};
use crate::device::conv_shape::ConvShape;
use crate::device::cpu::split::{chunks, each};

/// Largest size of the packed inputs that a task uses at a time, in floats. The packed inputs, and
/// about as many floats of `dy`, should stay in the level-2 cache.
const BLOCK_FLOATS: usize = 64 * 1024;

/// Number of products that are summed in registers before the sum is added to the result in memory.
/// The number is so large that the additions to memory take little time.
const POSITIONS: usize = 1024;

/// Largest number of output positions of small images that are packed together. With four times as
/// many positions, all layers of ResNet-20 together would be 3 % faster. However, the workspace
/// would be twice as large as the input, and the workspace counts against the budget.
const GROUP_POSITIONS: usize = 256;

/// Largest number of floats in the partial sums of all chunks except the first.
const PARTIAL_FLOATS: usize = 512 * 1024;

/// Largest number of tasks, each with its own scratch memory. The number is constant, because
/// results must not depend on the number of threads.
const TASKS: usize = 8;

/// Plan of the work for one group of channels. The batch is split into chunks of images, each with
/// its own partial sum. The input channels are split into blocks.
///
/// ```text
///             channels 0..16    16..32    32..48
///   chunk 0   [ task 0        ] [ task 1 ] ...       a task loops over the groups of images of its chunk
///   chunk 1   [ task 3        ] ...                  and, for each group, over its blocks
/// ```
#[derive(Clone, Copy, Debug)]
pub(super) struct WeightGradient {
    groups: usize,
    /// Number of groups of channels that are computed at the same time, each with its own
    /// workspace.
    lanes: usize,
    images: usize,
    /// Number of input channels of a group of channels.
    channels: usize,
    rows: usize,
    /// Windows of one block of channels.
    windows: Windows,
    /// Number of images in a chunk.
    chunk: usize,
    /// Number of images of a chunk that are packed together.
    group: usize,
    blocks: usize,
    blocks_per_task: usize,
}

impl WeightGradient {
    /// Makes the plan. `shape` is not empty.
    pub fn new(shape: &ConvShape) -> Self {
        let groups = shape.groups;
        let lanes = groups.min(TASKS);
        let tasks = TASKS / lanes;
        let shape = &shape.one_group();
        let out = [shape.h_out(), shape.w_out()];
        let positions = out[0] * out[1];
        let mut windows = Windows {
            channels: shape.c_in,
            src: [shape.h, shape.w],
            out,
            taps: [shape.kh, shape.kw],
            step: shape.stride,
            apart: shape.dilation,
            first: shape.padding.map(|p| -(p as isize)),
            strip: POSITIONS.div_ceil(out[1]).min(out[0]),
        };

        let partials = (PARTIAL_FLOATS / shape.weight_len()).min(shape.n * positions / POSITIONS);
        let chunk = shape.n.div_ceil(partials.clamp(1, tasks));
        let chunks = shape.n.div_ceil(chunk);
        let group = (GROUP_POSITIONS / positions).clamp(1, chunk);

        let block = scratch_share(groups * shape.n * windows.image_len(), TASKS).min(BLOCK_FLOATS);
        let fits = (block / windows.channel_len().saturating_mul(group)).max(1);
        let wanted = windows.channels.div_ceil(fits).max(tasks / chunks).min(windows.channels);
        windows.channels = windows.channels.div_ceil(wanted);
        let blocks = shape.c_in.div_ceil(windows.channels);
        let blocks_per_task = blocks.div_ceil((tasks / chunks).max(1));
        Self {
            groups,
            lanes,
            images: shape.n,
            channels: shape.c_in,
            rows: shape.c_out,
            windows,
            chunk,
            group,
            blocks,
            blocks_per_task,
        }
    }

    fn chunks(&self) -> usize {
        self.images.div_ceil(self.chunk)
    }

    /// Number of sums in one block, `[c_out][channels of the block][kh][kw]`.
    fn block_len(&self) -> usize {
        self.rows * self.windows.depth()
    }

    fn scratch_len(&self) -> usize {
        let packed = align(self.windows.packed_len().saturating_mul(self.group));
        packed.saturating_add(Dots::tile_len(self.group, self.windows.strip_positions()))
    }

    fn tasks_per_chunk(&self) -> usize {
        self.blocks.div_ceil(self.blocks_per_task)
    }

    /// Number of scratch floats for all tasks of a group of channels, and for the group's partial
    /// sums.
    fn lane_len(&self) -> usize {
        let tasks = self.chunks() * self.tasks_per_chunk();
        let partials = self.block_len().saturating_mul(self.chunks() * self.blocks);
        self.scratch_len().saturating_mul(tasks).saturating_add(align(partials))
    }

    /// Number of scratch floats for all groups of channels that are computed at the same time, and
    /// for window offsets.
    pub fn workspace_len(&self) -> usize {
        let lanes = self.lane_len().saturating_mul(self.lanes);
        lanes.saturating_add(ALIGN + self.windows.depth())
    }

    /// Computes the whole gradient `dw` of the weight. No operand is empty.
    pub fn run(&self, level: Level, x: &[f32], dy: &[f32], dw: &mut [f32], workspace: &mut [f32]) {
        let workspace = aligned(workspace, self.workspace_len());
        let (lanes, offsets) = workspace.split_at_mut(self.lanes * self.lane_len());
        let offsets: &mut [u32] = cast_slice_mut(&mut offsets[..self.windows.depth()]);
        self.windows.write_offsets(0..self.windows.taps[0], 0..self.windows.taps[1], offsets);
        let offsets = &*offsets;
        let dw_len = dw.len() / self.groups;
        let groups = self.groups.div_ceil(self.lanes);
        let lanes = [chunks(dw, groups * dw_len), chunks(lanes, self.lane_len())];
        each(lanes, 1, |lane, [dw, workspace]| {
            for (i, dw) in dw.chunks_exact_mut(dw_len).enumerate() {
                self.run_group(level, x, dy, lane * groups + i, offsets, dw, workspace);
            }
        });
    }

    /// Computes the gradient of the weights of one group of channels.
    #[expect(clippy::too_many_arguments, reason = "the operands of a group")]
    fn run_group(
        &self,
        level: Level,
        x: &[f32],
        dy: &[f32],
        group: usize,
        offsets: &[u32],
        dw: &mut [f32],
        workspace: &mut [f32],
    ) {
        let (tasks, block_len, scratch_len) =
            (self.tasks_per_chunk(), self.block_len(), self.scratch_len());
        let (scratch, partials) = workspace.split_at_mut(self.chunks() * tasks * scratch_len);
        let partials = &mut partials[..self.chunks() * self.blocks * block_len];

        let x_len = x.len() / self.images;
        let dy_len = dy.len() / self.images;
        // Start at the first channel of the group in the first image.
        let (x, dy) = (&x[group * x_len / self.groups..], &dy[group * dy_len / self.groups..]);
        let parts =
            [chunks(partials, self.blocks * block_len), chunks(scratch, tasks * scratch_len)];
        each(parts, 1, |chunk, [sums, scratch]| {
            let first = chunk * self.chunk;
            let images = self.chunk.min(self.images - first);
            let (x, dy) = (&x[first * x_len..], &dy[first * dy_len..]);
            let tasks =
                [chunks(sums, self.blocks_per_task * block_len), chunks(scratch, scratch_len)];
            each(tasks, 1, |task, [sums, scratch]| {
                self.run_task(
                    level,
                    images,
                    x,
                    x_len,
                    dy,
                    dy_len,
                    offsets,
                    task * self.blocks_per_task,
                    sums,
                    scratch,
                );
            });
        });
        self.add_chunks(partials, dw);
    }

    /// Computes the sums of one task: blocks of channels, starting at `first_block`. The length of
    /// `sums` gives the number of blocks. The sums are over the images of one chunk, which are the
    /// first `images` images of `x` and `dy`.
    #[expect(clippy::too_many_arguments, reason = "the operands of one task")]
    fn run_task(
        &self,
        level: Level,
        images: usize,
        x: &[f32],
        x_len: usize,
        dy: &[f32],
        dy_len: usize,
        offsets: &[u32],
        first_block: usize,
        sums: &mut [f32],
        scratch: &mut [f32],
    ) {
        let windows = &self.windows;
        let (packed_len, plane) = (windows.packed_len(), windows.src[0] * windows.src[1]);
        let (tile, packed) =
            scratch.split_at_mut(Dots::tile_len(self.group, windows.strip_positions()));
        sums.fill(0.0);
        for image in (0..images).step_by(self.group) {
            let images = self.group.min(images - image);
            let (x, dy) = (&x[image * x_len..], &dy[image * dy_len..]);
            for out_row in (0..windows.out[0]).step_by(windows.strip) {
                let rows = windows.strip.min(windows.out[0] - out_row);
                for (i, sums) in sums.chunks_exact_mut(self.block_len()).enumerate() {
                    let first = (first_block + i) * windows.channels;
                    let channels = windows.channels.min(self.channels - first);
                    for (image, packed) in
                        packed.chunks_exact_mut(packed_len).take(images).enumerate()
                    {
                        let x = &x[image * x_len + first * plane..][..channels * plane];
                        windows.pack(x, out_row, rows, packed);
                    }
                    let taps = windows.depth() / windows.channels;
                    let dots = Dots {
                        dy: &dy[out_row * windows.out[1]..],
                        rows: self.rows,
                        dy_stride: windows.out[0] * windows.out[1],
                        dy_image: dy_len,
                        x: packed,
                        x_image: packed_len,
                        offsets: &offsets[..channels * taps],
                        images,
                        positions: rows * windows.out[1],
                    };
                    level.gather_dots(&dots, tile, sums);
                }
            }
        }
    }

    /// Adds up the partial sums of all chunks, in order.
    fn add_chunks(&self, partials: &[f32], dw: &mut [f32]) {
        let taps = self.windows.taps[0] * self.windows.taps[1];
        let block = self.windows.channels;
        let row_len = self.channels * taps;
        each(chunks(dw, row_len), 1, |row, dw| {
            for (i, dw) in dw.chunks_mut(block * taps).enumerate() {
                for (chunk, sums) in
                    partials.chunks_exact(self.blocks * self.block_len()).enumerate()
                {
                    // The last block may have fewer channels than the other blocks.
                    let sums = &sums[i * self.block_len() + row * dw.len()..][..dw.len()];
                    if chunk == 0 {
                        dw.copy_from_slice(sums);
                    } else {
                        dw.iter_mut().zip(sums).for_each(|(dw, sum)| *dw += sum);
                    }
                }
            }
        });
    }
}
