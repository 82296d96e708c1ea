//! Division of loops into parts that threads share. How a loop is cut never depends on the number
//! of threads.
//!
//! All loops end in one untyped function, [`share`]. With iterators of rayon, each loop would be
//! compiled many times over.
#![allow(unsafe_code)]

use rayon::prelude::*;
use std::marker::PhantomData;

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

/// Outputs of a loop, cut into disjoint parts that different threads write.
pub trait Cut: Sync {
    type Part;

    /// Number of parts.
    fn parts(&self) -> usize;

    /// Part `i`.
    ///
    /// # Safety
    /// Each part is taken at most once.
    unsafe fn part(&self, i: usize) -> Self::Part;
}

/// A slice, cut into chunks.
pub struct Chunks<'a, T> {
    /// First element. No reference to the elements exists beside those of the parts.
    first: *mut T,
    len: usize,
    /// Elements of a chunk; the last chunk may have fewer. Not 0.
    chunk: usize,
    slice: PhantomData<&'a mut [T]>,
}

// SAFETY: a shared `Chunks` only gives away parts, each of them once: it moves a `&mut [T]`, which
// is `Send` with `T`.
unsafe impl<T: Send> Sync for Chunks<'_, T> {}

/// Cuts a slice into chunks of `chunk` elements; the last one may have fewer.
pub fn chunks<T>(slice: &mut [T], chunk: usize) -> Chunks<'_, T> {
    let (first, len) = (slice.as_mut_ptr(), slice.len());
    Chunks { first, len, chunk: chunk.max(1), slice: PhantomData }
}

impl<'a, T: Send> Cut for Chunks<'a, T> {
    type Part = &'a mut [T];

    fn parts(&self) -> usize {
        self.len.div_ceil(self.chunk)
    }

    unsafe fn part(&self, i: usize) -> &'a mut [T] {
        assert!(i < self.parts(), "part {i} of {}", self.parts());
        let start = i * self.chunk;
        let len = self.chunk.min(self.len - start);
        // SAFETY: the elements are in the slice, which is borrowed for `'a`, and in no other part.
        // The caller takes this part once.
        unsafe { std::slice::from_raw_parts_mut(self.first.add(start), len) }
    }
}

/// Outputs of one type. The output with the fewest parts gives their number.
impl<C: Cut, const N: usize> Cut for [C; N] {
    type Part = [C::Part; N];

    fn parts(&self) -> usize {
        self.iter().map(C::parts).min().unwrap_or(0)
    }

    unsafe fn part(&self, i: usize) -> Self::Part {
        // SAFETY: as the caller promises.
        self.each_ref().map(|of| unsafe { of.part(i) })
    }
}

/// Two outputs. The output with fewer parts gives their number.
impl<A: Cut, B: Cut> Cut for (A, B) {
    type Part = (A::Part, B::Part);

    fn parts(&self) -> usize {
        self.0.parts().min(self.1.parts())
    }

    unsafe fn part(&self, i: usize) -> Self::Part {
        // SAFETY: as the caller promises.
        unsafe { (self.0.part(i), self.1.part(i)) }
    }
}

/// Calls `body(i, part)` for each part. A thread takes at least `least` parts at a time.
pub fn each<C: Cut>(parts: C, least: usize, body: impl Fn(usize, C::Part) + Sync) {
    // SAFETY: `share` calls the task once for each index, and nobody else has `parts`.
    share(parts.parts(), least, &|i| body(i, unsafe { parts.part(i) }));
}

/// Calls `task(i)` once for each `i` below `tasks`. A thread takes at least `least` tasks at a time.
pub fn share(tasks: usize, least: usize, task: &(dyn Fn(usize) + Sync)) {
    if tasks <= least.max(1) {
        (0..tasks).for_each(task);
    } else {
        (0..tasks).into_par_iter().with_min_len(least).for_each(task);
    }
}

/// Fewest parts for a thread, in a loop that processes `work` elements: all parts, if waking other
/// threads would take longer.
fn least_of(work: usize) -> usize {
    if work < WORTH_SHARING { usize::MAX } else { 1 }
}

/// Calls `body(i, part)` for each part `i` of `out`; parts have `len` elements. `work` is the
/// number of elements that the whole loop processes.
pub fn pieces<T: Send>(
    out: &mut [T],
    len: usize,
    work: usize,
    body: impl Fn(usize, &mut [T]) + Sync,
) {
    each(chunks(out, len), least_of(work), body);
}

/// Calls `body` like [`pieces`], but for two outputs at once. The two outputs are cut into equally
/// many parts.
pub fn pieces_of_two<A: Send, B: Send>(
    (a, len_a): (&mut [A], usize),
    (b, len_b): (&mut [B], usize),
    work: usize,
    body: impl Fn(usize, &mut [A], &mut [B]) + Sync,
) {
    let parts = (chunks(a, len_a), chunks(b, len_b));
    each(parts, least_of(work), |i, (a, b)| body(i, a, b));
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
    let len = if work < WORTH_SHARING { usize::MAX } else { len.max(1) };
    each(out.map(|out| chunks(out, len)), 1, |i, parts| body(i * len, parts));
}
