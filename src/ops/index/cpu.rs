//! Gather and scatter-add of entries by index, on the CPU.

use crate::device::DeviceError;
use crate::device::cpu::numbers::check_all_below;
use crate::device::cpu::split::{PIECE, pieces, whole_rows};
use crate::layout::Layout;

/// Sizes of a tensor as `[outer, size, inner]`: the dimensions before and after the indexed
/// dimension are merged.
#[derive(Clone, Copy, Debug)]
pub struct Entries {
    /// Number of entries.
    pub size: usize,
    /// Number of elements of an entry, which are contiguous.
    pub inner: usize,
}

impl Entries {
    /// Sizes of a tensor with the given layout, for an index along `axis`.
    pub fn along(layout: &Layout, axis: usize) -> Self {
        let shape = layout.shape();
        Self { size: shape[axis], inner: shape[axis + 1..].iter().product() }
    }
}

/// Copies the entries `index` of `x [outer, size, inner]` to `out [outer, n, inner]`.
pub fn gather(
    out: &mut [f32],
    x: &[f32],
    index: &[i32],
    Entries { size, inner }: Entries,
) -> Result<(), DeviceError> {
    check_all_below(index, size, "index")?;
    let (n, len, work) = (index.len(), whole_rows(inner), out.len());
    if out.is_empty() {
        return Ok(());
    }
    pieces(out, len, work, |i, part| {
        let first = i * len / inner;
        for (row, out) in part.chunks_mut(inner).enumerate() {
            let (outer, entry) = ((first + row) / n, index[(first + row) % n] as usize);
            out.copy_from_slice(&x[(outer * size + entry) * inner..][..inner]);
        }
    });
    Ok(())
}

/// Fills `x [outer, size, inner]` with zeros, and adds each entry `i` of `y [outer, n, inner]` to
/// the entry `index[i]` of `x`, in the order of `i`.
pub fn scatter_add(
    x: &mut [f32],
    y: &[f32],
    index: &[i32],
    Entries { size, inner }: Entries,
) -> Result<(), DeviceError> {
    check_all_below(index, size, "index")?;
    let (n, work) = (index.len(), x.len() + y.len());
    if x.is_empty() {
        return Ok(());
    }
    // Each part computes some entries at one position of the outer dimension, and searches the
    // whole index for them. Make few parts, because each part repeats the search. If a position has
    // fewer elements than `PIECE`, one part computes several positions.
    let (whole, entries) = (size * inner, (PIECE / inner).max(size / 16).clamp(1, size));
    let places = whole_rows(whole) / whole;
    pieces(x, places * whole, work, |i, x| {
        for (j, x) in x.chunks_exact_mut(whole).enumerate() {
            let y = &y[(i * places + j) * n * inner..][..n * inner];
            pieces(x, entries * inner, work, |part, x| {
                x.fill(0.0);
                for (&entry, y) in index.iter().zip(y.chunks_exact(inner)) {
                    let entry = (entry as usize).wrapping_sub(part * entries);
                    let Some(x) = x.chunks_exact_mut(inner).nth(entry) else { continue };
                    x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
                }
            });
        }
    });
    Ok(())
}

/// Fills `y [n, classes]` with 1 at the index of each row, else 0.
pub fn one_hot(y: &mut [f32], index: &[i32], classes: usize) -> Result<(), DeviceError> {
    check_all_below(index, classes, "index")?;
    let (len, work) = (whole_rows(classes), y.len());
    pieces(y, len, work, |i, y| {
        y.fill(0.0);
        let index = &index[i * len / classes..];
        y.chunks_exact_mut(classes).zip(index).for_each(|(y, &index)| y[index as usize] = 1.0);
    });
    Ok(())
}
