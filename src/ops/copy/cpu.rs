//! Copies of elements on the CPU.

use crate::device::cpu::split::{PIECE, pieces};
use bytemuck::Zeroable;

/// Pads every `row` elements of `x` with `before` zeros in front and `after` zeros behind.
pub fn pad<T: Zeroable + Copy + Send + Sync>(
    out: &mut [T],
    x: &[T],
    row: usize,
    before: usize,
    after: usize,
) {
    let whole = before + row + after;
    let work = out.len();
    pieces(out, whole, work, |i, out| {
        out[..before].fill(T::zeroed());
        out[before..before + row].copy_from_slice(&x[i * row..][..row]);
        out[before + row..].fill(T::zeroed());
    });
}

/// Concatenates rows: row `i` of the result consists of the rows `i` of all parts. Each part is
/// passed with the length of its rows.
pub fn concat<T: Copy + Send + Sync>(out: &mut [T], parts: &[(&[T], usize)]) {
    let whole = parts.iter().map(|(_, row)| row).sum::<usize>();
    let work = out.len();
    pieces(out, whole, work, |i, mut out| {
        for (part, row) in parts {
            let (front, rest) = out.split_at_mut(*row);
            front.copy_from_slice(&part[i * row..][..*row]);
            out = rest;
        }
    });
}

/// Sets all elements to `value`.
pub fn fill(out: &mut [f32], value: f32) {
    let work = out.len();
    pieces(out, PIECE, work, |_, part| part.fill(value));
}

/// Reverses the order of entries within every `row` elements; an entry has `inner` elements.
pub fn flip<T: Copy + Send + Sync>(out: &mut [T], x: &[T], [row, inner]: [usize; 2]) {
    if out.is_empty() {
        return;
    }
    let (rows, work) = ((PIECE / row).max(1), out.len());
    pieces(out, rows * row, work, |i, out| {
        let x = &x[i * rows * row..][..out.len()];
        for (out, x) in out.chunks_exact_mut(row).zip(x.chunks_exact(row)) {
            if inner == 1 {
                out.iter_mut().zip(x.iter().rev()).for_each(|(out, &x)| *out = x);
            } else {
                let entries = out.chunks_exact_mut(inner).zip(x.chunks_exact(inner).rev());
                entries.for_each(|(out, x)| out.copy_from_slice(x));
            }
        }
    });
}
