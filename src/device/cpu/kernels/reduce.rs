//! Sums, means and maxima over any dimensions.
//!
//! What is joined is cut into chunks whose size depends on the shape alone; chunks are joined in order.

use super::lanes::Lanes;
use super::math::larger;
use super::split::{PIECE, pieces};
use super::wide::widest;
use crate::device::walk::Walk;
use crate::layout::{Dims, Layout};
use crate::ops::Reduction;
use std::ops::Range;

/// Elements of a chunk, about.
const CHUNK: usize = 64 * 1024;
/// Neighbouring outputs summed side by side.
const BLOCK: usize = 256;

/// Joins the elements along `axes`.
pub fn reduce(kind: Reduction, out: &mut [f32], x: &[f32], layout: &Layout, axes: &[usize]) {
    // Sizes and strides of the dimensions that are joined, or of those that are kept.
    let only = |joined: bool| {
        let (mut sizes, mut strides, mut rank) = (*layout.shape(), *layout.strides(), 0);
        for axis in (0..layout.rank()).filter(|axis| axes.contains(axis) == joined) {
            (sizes[rank], strides[rank]) = (layout.shape()[axis], layout.strides()[axis]);
            rank += 1;
        }
        (Dims::new(&sizes[..rank]), Dims::new(&strides[..rank]))
    };
    let ((kept, kept_strides), (joined, joined_strides)) = (only(false), only(true));
    let count = joined.elements();
    let sum = Job {
        x,
        kept: Walk::new(&kept, [&kept_strides]),
        joined: Walk::new(&joined, [&joined_strides]),
        count,
        start: 0.0,
        join: plus,
    };
    match kind {
        Reduction::Sum => sum.run(out, |sum| sum as f32),
        Reduction::Mean => sum.run(out, |sum| (sum / count as f64) as f32),
        Reduction::Max => {
            let Job { x, kept, joined, count, .. } = sum;
            Job { x, kept, joined, count, start: f64::NEG_INFINITY, join: larger }
                .run(out, |max| max as f32);
        }
    }
}

#[inline(always)]
fn plus(a: f64, b: f64) -> f64 {
    a + b
}

struct Job<'a, J> {
    x: &'a [f32],
    /// Over the outputs.
    kept: Walk<1>,
    /// Over the elements of an output.
    joined: Walk<1>,
    /// How many there are.
    count: usize,
    start: f64,
    join: J,
}

impl<J: Fn(f64, f64) -> f64 + Copy + Sync> Job<'_, J> {
    fn run(&self, out: &mut [f32], finish: impl Fn(f64) -> f32 + Sync) {
        let (outputs, work) = (out.len(), out.len().saturating_mul(self.count));
        // Outputs beside each other are summed side by side, unless elements to join are neighbours.
        let side_by_side = self.kept.steps() == [1] && self.joined.steps() != [1];
        // Enough outputs to share are not worth cutting further.
        let enough = if side_by_side { 16 * BLOCK } else { 64 };
        let per_chunk = match outputs {
            n if n >= enough => self.count.max(1),
            n if side_by_side => (CHUNK / n.max(1)).max(1),
            _ => CHUNK,
        };
        if self.count <= per_chunk {
            let least = if side_by_side { BLOCK } else { 1 };
            let len = (PIECE / self.count.max(1)).max(least);
            pieces(out, len, work, |i, part| {
                self.part(i * len, part.len(), 0..self.count, side_by_side, |j, value| {
                    part[j] = finish(value)
                });
            });
            return;
        }
        let mut partial = vec![self.start; self.count.div_ceil(per_chunk) * outputs];
        pieces(&mut partial, outputs, work, |chunk, part| {
            let elements = chunk * per_chunk..((chunk + 1) * per_chunk).min(self.count);
            self.part(0, outputs, elements, side_by_side, |j, value| part[j] = value);
        });
        for (j, out) in out.iter_mut().enumerate() {
            let chunks = partial[j..].iter().step_by(outputs);
            *out = finish(chunks.fold(self.start, |all, &chunk| (self.join)(all, chunk)));
        }
    }

    /// Joins `elements` of each of `len` outputs from `first` on; `emit` gets their numbers from 0 on.
    fn part(
        &self,
        first: usize,
        len: usize,
        elements: Range<usize>,
        side_by_side: bool,
        mut emit: impl FnMut(usize, f64),
    ) {
        let ([kept_step], [step]) = (self.kept.steps(), self.joined.steps());
        self.kept.runs(first, first + len, |i, len, [at]| {
            if side_by_side {
                for from in (0..len).step_by(BLOCK) {
                    let block = self.block(at + from, BLOCK.min(len - from), &elements);
                    (i - first + from..i - first + len)
                        .zip(block)
                        .for_each(|(j, value)| emit(j, value));
                }
            } else {
                for j in 0..len {
                    let mut lanes = Lanes::new(self.start);
                    self.joined.runs(elements.start, elements.end, |_, len, [row]| {
                        let x = &self.x[at + j * kept_step + row..];
                        match step {
                            1 => lanes.add(
                                &x[..len],
                                #[inline(always)]
                                |all, x| (self.join)(all, f64::from(x)),
                            ),
                            _ => lanes.add_each((0..len).map(|k| x[k * step]), |all, x| {
                                (self.join)(all, f64::from(x))
                            }),
                        }
                    });
                    emit(i - first + j, lanes.join(self.join));
                }
            }
        });
    }

    /// Joins `elements` of `width` neighbouring outputs, the first of whose first element is at `at`.
    fn block(&self, at: usize, width: usize, elements: &Range<usize>) -> [f64; BLOCK] {
        let mut block = [self.start; BLOCK];
        let [step] = self.joined.steps();
        self.joined.runs(elements.start, elements.end, |_, len, [row]| {
            widest(
                #[inline(always)]
                || {
                    for k in 0..len {
                        let x = &self.x[at + row + k * step..][..width];
                        for (all, &x) in block.iter_mut().zip(x) {
                            *all = (self.join)(*all, f64::from(x));
                        }
                    }
                },
            );
        });
        block
    }
}
