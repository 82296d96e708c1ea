//! Packing of an image, so that the pixels that a kernel tap reads are contiguous.

use std::ops::Range;

use super::strided::copy_every;
use crate::device::conv_shape::span;

/// Divisor of the operand's size. The quotient limits the total size of the packed forms of all
/// tasks, because scratch memory counts against the budget. A larger divisor would make strips
/// smaller, and small strips are slow, because rows at the borders of strips are packed twice.
const SCRATCH_SHARE: usize = 4;

/// Number of scratch floats that a task may take even if the operand is small.
const MIN_SCRATCH: usize = 16 * 1024;

/// Number of scratch floats that each of `tasks` tasks may take, for an operand of `len` floats.
pub(super) fn scratch_share(len: usize, tasks: usize) -> usize {
    (len / (SCRATCH_SHARE * tasks)).max(MIN_SCRATCH)
}

/// Number of floats in a cache line. Scratch buffers start on a cache line, so that a vector load
/// does not straddle two lines.
pub(super) const ALIGN: usize = 16;

/// Rounds a number of floats up to whole cache lines.
pub(super) fn align(floats: usize) -> usize {
    floats.div_ceil(ALIGN).saturating_mul(ALIGN)
}

/// Number of floats that vector loads may read past the last output of a strip.
pub(super) const SLACK: usize = 16;

/// Description of the windows of a source image: which source element each tap (kernel element) of
/// each output reads.
///
/// In each dimension, tap `t` of output `o` reads the source coordinate `o * step + t * apart +
/// first`, or zero outside the source. A convolution has `first = -padding`. The formula also
/// describes each phase of the gradient of the input.
#[derive(Clone, Copy, Debug)]
pub(super) struct Windows {
    /// Number of channels of the source.
    pub channels: usize,
    /// Numbers of rows and columns of the source.
    pub src: [usize; 2],
    /// Numbers of rows and columns of the output.
    pub out: [usize; 2],
    /// Numbers of rows and columns of the kernel.
    pub taps: [usize; 2],
    /// Distance in the source between two neighbouring outputs.
    pub step: [usize; 2],
    /// Distance in the source between two neighbouring taps: the dilation.
    pub apart: [usize; 2],
    /// Source coordinate that tap 0 of output 0 reads. The coordinate is negative if it lies in the
    /// padding.
    pub first: [isize; 2],
    /// Number of output rows whose windows are packed at a time, at least 1.
    pub strip: usize,
}

impl Windows {
    /// Number of products summed into one output.
    pub fn depth(&self) -> usize {
        self.channels * self.taps[0] * self.taps[1]
    }

    /// Number of outputs of a full strip, for one output channel.
    pub fn strip_positions(&self) -> usize {
        self.strip * self.out[1]
    }

    /// Number of source rows from the first tap of an output to the last tap.
    fn rows(&self) -> usize {
        span(self.taps[0], self.apart[0])
    }

    /// Number of planes (packed copies) among which the source rows are distributed. Rows that are
    /// `step` apart are neighbours in one plane.
    fn row_phases(&self) -> usize {
        self.step[0].min(self.rows())
    }

    fn plane_rows(&self) -> usize {
        self.strip + (self.rows() - 1) / self.step[0]
    }

    /// Length of the packed form of one channel of a strip. The length saturates, like all lengths
    /// of scratch memory.
    pub fn channel_len(&self) -> usize {
        let planes = self.taps[1].saturating_mul(self.row_phases());
        planes.saturating_mul(self.plane_rows()).saturating_mul(self.out[1])
    }

    /// Length of the packed form of a strip.
    pub fn packed_len(&self) -> usize {
        self.channels.saturating_mul(self.channel_len())
    }

    /// Number of elements of one source image.
    pub fn image_len(&self) -> usize {
        self.channels * self.src[0] * self.src[1]
    }

    /// Sets the number of rows of a strip to as many as fit in `floats` floats, but at least one.
    pub fn with_strip_in(mut self, floats: usize) -> Self {
        self.strip = 1;
        let overlap = self.plane_rows() - 1;
        let per_row = self.packed_len() / self.plane_rows();
        let most = (floats / per_row).saturating_sub(overlap).clamp(1, self.out[0]);
        // Cut the rows into strips of about equal height. For example, if a strip may have 14 rows,
        // cut 20 rows into 10 and 10, not 14 and 6.
        self.strip = self.out[0].div_ceil(self.out[0].div_ceil(most));
        self
    }

    /// Writes the offset in the packed form at which the contiguous pixels of each tap begin, for
    /// the given rows and columns of taps. The offsets are in the order of the weights: channel,
    /// row, column.
    pub fn write_offsets(
        &self,
        rows: impl Iterator<Item = usize> + Clone,
        columns: impl Iterator<Item = usize> + Clone,
        offsets: &mut [u32],
    ) {
        let (phases, width) = (self.row_phases(), self.out[1]);
        let plane = self.plane_rows() * width;
        let mut offsets = offsets.iter_mut();
        for channel in 0..self.channels {
            for row in rows.clone() {
                for (column, offset) in columns.clone().zip(&mut offsets) {
                    let row = row * self.apart[0];
                    let planes = (channel * self.taps[1] + column) * phases + row % self.step[0];
                    let at = planes * plane + row / self.step[0] * width;
                    *offset = u32::try_from(at).expect("a strip has fewer than 2^32 floats");
                }
            }
        }
    }

    /// Packs the part of `image` that is read for the output rows `out_row..out_row + rows`.
    /// `image` has all channels of one image.
    pub fn pack(&self, image: &[f32], out_row: usize, rows: usize, packed: &mut [f32]) {
        let width = self.out[1];
        let plane_len = self.plane_rows() * width;
        let used_rows = rows + (self.rows() - 1) / self.step[0];
        let planes = self.taps[1] * self.row_phases();
        for column in 0..self.taps[1] {
            for phase in 0..self.row_phases() {
                let row = (out_row * self.step[0] + phase) as isize + self.first[0];
                let plane = Plane::new(self, row, used_rows, column);
                let channels = image.chunks_exact(self.src[0] * self.src[1]);
                let first = (column * self.row_phases() + phase) * plane_len;
                for (channel, packed) in
                    channels.zip(packed[first..].chunks_mut(planes * plane_len))
                {
                    plane.pack(channel, &mut packed[..used_rows * width]);
                }
            }
        }
    }
}

/// A plane: the source rows `row`, `row + step`, ..., shifted and cropped for one kernel column.
#[derive(Debug)]
struct Plane {
    /// Number of columns of the source, and of the outputs.
    widths: [usize; 2],
    step: [usize; 2],
    /// Rows and columns of the plane whose elements come from the source; all other elements are
    /// padding.
    rows: Range<usize>,
    columns: Range<usize>,
    /// Index in the source of the element in the first row of `rows` and the first column of
    /// `columns`.
    first: usize,
}

impl Plane {
    fn new(windows: &Windows, row: isize, rows: usize, column: usize) -> Self {
        let [height, width] = windows.src;
        let column = (column * windows.apart[1]) as isize + windows.first[1];
        let rows = coordinates_inside(row, windows.step[0], height, rows);
        let columns = coordinates_inside(column, windows.step[1], width, windows.out[1]);
        // If all rows or all columns lie in the padding, no source element is read, so use any
        // index.
        let first = if rows.is_empty() || columns.is_empty() {
            0
        } else {
            let row = row.strict_add_unsigned(rows.start * windows.step[0]) as usize;
            row * width + column.strict_add_unsigned(columns.start * windows.step[1]) as usize
        };
        Self { widths: [width, windows.out[1]], step: windows.step, rows, columns, first }
    }

    fn pack(&self, channel: &[f32], plane: &mut [f32]) {
        let (rows, columns) = (&self.rows, &self.columns);
        let [from_width, width] = self.widths;
        if rows.is_empty() || columns.is_empty() {
            plane.fill(0.0);
            return;
        }
        plane[..rows.start * width].fill(0.0);
        plane[rows.end * width..].fill(0.0);
        let plane = &mut plane[rows.start * width..rows.end * width];
        let source = &channel[self.first..];
        if self.step == [1, 1] && width == from_width {
            // The plane contains all source rows, so one copy of the whole source, shifted, fills
            // it.
            let to = columns.start..plane.len() - (width - columns.end);
            let len = to.len();
            plane[to].copy_from_slice(&source[..len]);
        } else {
            for (i, to) in plane.chunks_exact_mut(width).enumerate() {
                copy_every(
                    self.step[1],
                    &source[i * self.step[0] * from_width..],
                    &mut to[columns.clone()],
                );
            }
        }
        for column in (0..columns.start).chain(columns.end..width) {
            plane[column..].iter_mut().step_by(width).for_each(|x| *x = 0.0);
        }
    }
}

/// Range of the indices `i` in `0..count` whose coordinate `first + i * step` lies in `0..len`.
fn coordinates_inside(first: isize, step: usize, len: usize, count: usize) -> Range<usize> {
    let before = |limit: isize| (limit - first).max(0) as usize;
    let end = before(len as isize).div_ceil(step).min(count);
    before(0).div_ceil(step).min(end)..end
}

/// Part of `workspace` that begins at the first cache line. `len` includes the floats that are
/// skipped for alignment.
///
/// # Panics
/// If `workspace` is shorter than `len`.
pub(super) fn aligned(workspace: &mut [f32], len: usize) -> &mut [f32] {
    assert!(
        workspace.len() >= len,
        "a workspace of {} floats where {len} are needed",
        workspace.len()
    );
    let skip = workspace.as_ptr().align_offset(ALIGN * size_of::<f32>()).min(ALIGN);
    &mut workspace[skip..]
}
