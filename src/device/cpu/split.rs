//! Division of loops into pieces that threads share. How a loop is cut never depends on the number
//! of threads.

use crate::sync::join;
use rayon::prelude::*;

/// Number of elements from which on threads share a loop. The calling thread runs a shorter loop
/// alone, because waking another thread takes microseconds.
const WORTH_SHARING: usize = 32 * 1024;

/// Number of elements that a thread takes at a time. The number is so large that passing a piece to
/// a thread costs little compared with the work.
pub const PIECE: usize = 16 * 1024;

/// Length of a piece that consists of whole rows of `row` elements: about [`PIECE`] elements, and
/// at least one row.
pub fn whole_rows(row: usize) -> usize {
    row.max(1) * (PIECE / row.max(1)).max(1)
}

/// Calls `body(i, part)` for each part `i` of `out`; parts have `len` elements. `work` is the
/// number of elements that the whole loop processes.
pub fn pieces<T: Send>(
    out: &mut [T],
    len: usize,
    work: usize,
    body: impl Fn(usize, &mut [T]) + Sync,
) {
    let len = len.max(1);
    if work < WORTH_SHARING || out.len() <= len {
        out.chunks_mut(len).enumerate().for_each(|(i, part)| body(i, part));
    } else {
        out.par_chunks_mut(len).enumerate().for_each(|(i, part)| body(i, part));
    }
}

/// Calls `body` like [`pieces`], but for two outputs at once. The two outputs are cut into equally
/// many parts.
pub fn pieces_of_two<A: Send, B: Send>(
    (a, len_a): (&mut [A], usize),
    (b, len_b): (&mut [B], usize),
    work: usize,
    body: impl Fn(usize, &mut [A], &mut [B]) + Sync,
) {
    let (len_a, len_b) = (len_a.max(1), len_b.max(1));
    if work < WORTH_SHARING || a.len() <= len_a {
        let parts = a.chunks_mut(len_a).zip(b.chunks_mut(len_b)).enumerate();
        parts.for_each(|(i, (a, b))| body(i, a, b));
    } else {
        let parts = a.par_chunks_mut(len_a).zip(b.par_chunks_mut(len_b)).enumerate();
        parts.for_each(|(i, (a, b))| body(i, a, b));
    }
}

/// Calls `body(i, parts)` with parts of all outputs; the outputs have equal length. The parts begin
/// at element `i` of each output. The length of the parts is a multiple of `len`, except at the end
/// of the outputs.
pub fn pieces_of<const N: usize>(
    out: [&mut [f32]; N],
    len: usize,
    work: usize,
    body: impl Fn(usize, [&mut [f32]; N]) + Sync,
) {
    if work < WORTH_SHARING {
        body(0, out);
    } else {
        halves(0, out, len.max(1), &body);
    }
}

fn halves<const N: usize>(
    first: usize,
    mut out: [&mut [f32]; N],
    len: usize,
    body: &(impl Fn(usize, [&mut [f32]; N]) + Sync),
) {
    let at = out[0].len().div_ceil(len) / 2 * len;
    if at == 0 {
        return body(first, out);
    }
    let right = out.each_mut().map(|all| {
        let (left, right) = std::mem::take(all).split_at_mut(at);
        *all = left;
        right
    });
    join(|| halves(first, out, len, body), || halves(first + at, right, len, body));
}
