//! Lays an image out so that every kernel tap reads one contiguous run of it.

/// Scratch buffers start on a cache line, so that vector loads do not straddle two.
pub(super) const ALIGN: usize = 16;

/// Vector loads may run this many floats past the last output of a strip.
pub(super) const SLACK: usize = 16;

/// Which source element each tap of each output reads.
///
/// In each dimension, output `o` and tap `t` read source coordinate `o * step + t + first`; what lies outside
/// the source reads as zero. A convolution is this with `first = -padding`; so is each phase of its gradient.
#[derive(Clone, Copy, Debug)]
pub(super) struct Windows {
    /// Channels of the source.
    pub channels: usize,
    /// Rows and columns of the source.
    pub src: [usize; 2],
    /// Rows and columns of the output.
    pub out: [usize; 2],
    /// Rows and columns of the kernel.
    pub taps: [usize; 2],
    /// Source distance between two neighbouring outputs.
    pub step: [usize; 2],
    /// Source coordinate that tap 0 of output 0 reads; negative inside the padding.
    pub first: [isize; 2],
    /// Output rows packed at a time, at least 1.
    pub strip: usize,
}

impl Windows {
    /// Products summed into one output.
    pub fn depth(&self) -> usize {
        self.channels * self.taps[0] * self.taps[1]
    }

    /// Outputs of a full strip, per output channel.
    pub fn strip_positions(&self) -> usize {
        self.strip * self.out[1]
    }

    /// Source rows come in this many planes: rows `step` apart are neighbours in the same plane.
    fn row_phases(&self) -> usize {
        self.step[0].min(self.taps[0])
    }

    fn plane_rows(&self) -> usize {
        self.strip + (self.taps[0] - 1) / self.step[0]
    }

    /// Length of the packed form of one channel of a strip.
    pub fn channel_len(&self) -> usize {
        self.taps[1] * self.row_phases() * self.plane_rows() * self.out[1]
    }

    /// Length of the packed form of a strip.
    pub fn packed_len(&self) -> usize {
        self.channels * self.channel_len()
    }

    /// Takes as many rows per strip as fit in `floats`, but at least one.
    pub fn with_strip_in(mut self, floats: usize) -> Self {
        self.strip = 1;
        let overlap = self.plane_rows() - 1;
        let per_row = (self.channels * self.taps[1] * self.row_phases() * self.out[1]).max(1);
        let most = (floats / per_row).saturating_sub(overlap).clamp(1, self.out[0].max(1));
        // Strips of even height: 20 rows in strips of at most 14 are 10 and 10.
        self.strip = self.out[0].max(1).div_ceil(self.out[0].max(1).div_ceil(most));
        self
    }

    /// Where in the packed form the run of each tap starts, in the order of the weights: channel, row, column.
    pub fn write_offsets(&self, offsets: &mut [u32]) {
        let (phases, width) = (self.row_phases(), self.out[1]);
        let plane = self.plane_rows() * width;
        let mut offsets = offsets.iter_mut();
        for channel in 0..self.channels {
            for row in 0..self.taps[0] {
                for column in 0..self.taps[1] {
                    let planes = (channel * self.taps[1] + column) * phases + row % self.step[0];
                    let at = planes * plane + row / self.step[0] * width;
                    if let Some(offset) = offsets.next() {
                        *offset = u32::try_from(at).expect("a strip has fewer than 2^32 floats");
                    }
                }
            }
        }
    }

    /// Packs what `rows` output rows from `out_row` on read of `image` (the channels of one image).
    pub fn pack(&self, image: &[f32], out_row: usize, rows: usize, packed: &mut [f32]) {
        let width = self.out[1];
        let plane_len = self.plane_rows() * width;
        let used_rows = rows + (self.taps[0] - 1) / self.step[0];
        let mut planes = packed[..self.packed_len()].chunks_exact_mut(plane_len);
        for channel in image.chunks_exact(self.src[0] * self.src[1]) {
            for column in 0..self.taps[1] {
                for phase in 0..self.row_phases() {
                    let plane = planes.next().expect("a plane for each channel, column and phase");
                    let row = (out_row * self.step[0] + phase) as isize + self.first[0];
                    self.pack_plane(channel, row, column, &mut plane[..used_rows * width]);
                }
            }
        }
    }

    /// Packs the source rows `row`, `row + step`, ... as kernel column `column` sees them.
    fn pack_plane(&self, channel: &[f32], row: isize, column: usize, plane: &mut [f32]) {
        let [height, width] = self.src;
        let out_width = self.out[1];
        let rows = plane.len() / out_width;
        let inside = coordinates_inside(row, self.step[0], height, rows);
        let shift = column as isize + self.first[1];
        let columns = coordinates_inside(shift, self.step[1], width, out_width);

        plane[..inside.start * out_width].fill(0.0);
        plane[inside.end * out_width..].fill(0.0);
        let plane = &mut plane[inside.start * out_width..inside.end * out_width];
        if inside.is_empty() || columns.is_empty() {
            plane.fill(0.0);
            return;
        }
        let top = (row + (inside.start * self.step[0]) as isize) as usize;

        let left = (shift + (columns.start * self.step[1]) as isize) as usize;
        if self.step == [1, 1] && out_width == width {
            // Neighbouring rows stay neighbours, so the plane is one shifted copy; then the columns that came from
            // the row before or after are cleared.
            let to = columns.start..plane.len() - (width - columns.end);
            let source = &channel[top * width + left..][..to.len()];
            plane[to].copy_from_slice(source);
            clear_columns(plane, width, 0..columns.start);
            clear_columns(plane, width, columns.end..width);
            return;
        }
        for (i, out) in plane.chunks_exact_mut(out_width).enumerate() {
            let source = &channel[(top + i * self.step[0]) * width..][..width];
            out[..columns.start].fill(0.0);
            out[columns.end..].fill(0.0);
            copy_every(self.step[1], &source[left..], &mut out[columns.clone()]);
        }
    }
}

/// The part of `0..count` whose coordinate `first + i * step` lies in `0..len`.
fn coordinates_inside(
    first: isize,
    step: usize,
    len: usize,
    count: usize,
) -> std::ops::Range<usize> {
    let before = |limit: isize| (limit - first).max(0) as usize;
    let end = before(len as isize).div_ceil(step).min(count);
    before(0).div_ceil(step).min(end)..end
}

fn clear_columns(plane: &mut [f32], width: usize, columns: std::ops::Range<usize>) {
    if !columns.is_empty() {
        for row in plane.chunks_exact_mut(width) {
            row[columns.clone()].fill(0.0);
        }
    }
}

/// Fills `to` with elements 0, `step`, `2 * step`, ... of `from`.
fn copy_every(step: usize, from: &[f32], to: &mut [f32]) {
    match step {
        1 => to.copy_from_slice(&from[..to.len()]),
        2 => {
            let (pairs, _) = from.as_chunks::<2>();
            // The last element may lack its partner.
            if let Some((last, to)) = to.split_last_mut() {
                *last = from[2 * to.len()];
                for (to, pair) in to.iter_mut().zip(pairs) {
                    *to = pair[0];
                }
            }
        }
        _ => {
            for (to, from) in to.iter_mut().zip(from.iter().step_by(step)) {
                *to = *from;
            }
        }
    }
}

/// The part of `workspace` that starts on a cache line; `len` counts the floats lost to that.
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
