//! Division of loops into parts that threads share. How a loop is cut never depends on the number
//! of threads.
//!
//! All loops end in one untyped function, [`share`]. With iterators of rayon, each loop would be
//! compiled many times over.
#![allow(unsafe_code)]

use rayon::prelude::*;
use std::marker::PhantomData;

/// Smallest number of elements for which threads share a loop. The calling thread runs a shorter
/// loop alone, because waking another thread takes microseconds.
const WORTH_SHARING: usize = 32 * 1024;

/// Number of elements that a thread takes at a time, large enough that passing a piece to a thread
/// costs little compared with the work.
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
    /// First element. Only parts have references to the elements.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn each_element_is_in_one_part_and_each_part_is_given_once() {
        for len in [0, 1, 2, 7, 64, 1000] {
            for chunk in [1, 3, 64, 1000, usize::MAX] {
                for least in [0, 1, 5, usize::MAX] {
                    let (mut a, mut b) = (vec![0; len], vec![[0_u8; 3]; 2 * len]);
                    let given = AtomicUsize::new(0);
                    let parts = (chunks(&mut a, chunk), chunks(&mut b, chunk.saturating_mul(2)));
                    each(parts, least, |i, (a, b)| {
                        given.fetch_add(1, Ordering::Relaxed);
                        assert_eq!(2 * a.len(), b.len());
                        a.iter_mut().for_each(|a| *a += i + 1);
                        b.iter_mut().for_each(|b| b[2] += 1);
                    });
                    assert_eq!(given.into_inner(), len.div_ceil(chunk));
                    let expected: Vec<usize> = (0..len).map(|at| at / chunk + 1).collect();
                    assert_eq!(a, expected, "{len} {chunk} {least}");
                    assert!(b.iter().all(|b| *b == [0, 0, 1]));
                }
            }
        }
    }

    #[test]
    fn the_output_with_the_fewest_parts_says_how_many() {
        let (mut a, mut b) = ([0; 10], [0; 10]);
        each([chunks(&mut a, 2), chunks(&mut b, 5)], 1, |i, [a, b]| {
            a.fill(i + 1);
            b.fill(i + 1);
        });
        assert_eq!((a, b), ([1, 1, 2, 2, 0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 2, 2, 2, 2, 2]));
    }

    #[test]
    fn pieces_begin_at_multiples_of_their_length_whatever_the_work() {
        for work in [0, WORTH_SHARING] {
            let (mut a, mut b) = (vec![0.0; 1000], vec![0.0; 1000]);
            pieces_of([&mut a, &mut b], 48, work, |first, [a, b]| {
                assert!(first % 48 == 0 && a.len() == b.len());
                for (i, (a, b)) in a.iter_mut().zip(b).enumerate() {
                    [*a, *b] = [(first + i) as f32, 1.0];
                }
            });
            assert!(a.iter().enumerate().all(|(i, &a)| a == i as f32) && b == [1.0; 1000]);
        }
    }
}
