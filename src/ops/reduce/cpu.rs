//! Sums, means, maxima and minima over any dimensions, on the CPU.
//!
//! If there are few results, each reduced from many elements, the elements are cut into chunks. The
//! partial results of the chunks are then reduced in order. The number and the size of the chunks
//! depend only on the shape. The workspace holds the partial results, which are much smaller than
//! the input.

mod arg;

pub use arg::arg;

use super::{Reduction, walk_along};
use crate::device::cpu::lanes::Lanes;
use crate::device::cpu::math::{larger, smaller};
use crate::device::cpu::split::{PIECE, pieces};
use crate::device::cpu::wide::widest;
use crate::device::walk::Walk;
use crate::layout::Layout;
use std::ops::Range;

/// Approximate number of elements in a chunk.
const CHUNK: usize = 64 * 1024;
/// Largest number of chunks for each output.
const CHUNKS: usize = 64;
/// Smallest number of elements of each output in a chunk, if neighbouring outputs are reduced
/// together.
const LEAST: usize = 128;
/// Number of neighbouring outputs that are reduced together.
const BLOCK: usize = 256;

/// Division of a reduction into chunks.
#[derive(Clone, Debug)]
struct Chunks {
    /// Loops over the outputs.
    kept: Walk<1>,
    /// Loops over the elements that are reduced to one output.
    joined: Walk<1>,
    outputs: usize,
    /// Number of elements that are reduced to one output.
    count: usize,
    /// Whether a task reduces neighbouring outputs together, because their elements are neighbours.
    /// If not, it reduces the outputs one by one.
    side_by_side: bool,
    /// Number of elements of one output in a chunk.
    chunk: usize,
}

impl Chunks {
    fn new(layout: &Layout, axes: &[usize]) -> Self {
        // Makes loops over the reduced dimensions, or over the kept dimensions.
        let only = |joined: bool| {
            walk_along(layout, (0..layout.rank()).filter(|axis| axes.contains(axis) == joined))
        };
        let ((kept, outputs), (joined, count)) = (only(false), only(true));
        let side_by_side = kept.steps() == [1] && joined.steps() != [1];
        // If there are enough outputs to keep all threads busy, the elements of an output are not
        // cut into chunks.
        let (enough, chunk) = if side_by_side {
            (16 * BLOCK, (CHUNK / outputs.max(1)).max(LEAST))
        } else {
            (64, CHUNK)
        };
        let chunk = if outputs >= enough { count } else { chunk.max(count.div_ceil(CHUNKS)) };
        Self { kept, joined, outputs, count, side_by_side, chunk: chunk.max(1) }
    }

    /// Number of chunks; 1 if there are no elements.
    fn chunks(&self) -> usize {
        self.count.div_ceil(self.chunk).max(1)
    }
}

/// Number of scratch words that [`reduce`] needs: an f64 for each chunk of each output.
pub fn workspace_len(layout: &Layout, axes: &[usize]) -> usize {
    let plan = Chunks::new(layout, axes);
    match plan.chunks() {
        1 => 0,
        // Add one word, so that the f64 values can be aligned.
        chunks => 1 + chunks * plan.outputs * (size_of::<f64>() / size_of::<u32>()),
    }
}

/// Reduces `x` along `axes`.
pub fn reduce(
    kind: Reduction,
    out: &mut [f32],
    x: &[f32],
    layout: &Layout,
    axes: &[usize],
    workspace: &mut [u32],
) {
    if out.is_empty() {
        return;
    }
    let plan = Chunks::new(layout, axes);
    let (_, partial, _) = bytemuck::pod_align_to_mut(workspace);
    match kind {
        Reduction::Sum => {
            Job { x, plan, start: 0.0, join: plus }.run(out, partial, |sum| sum as f32);
        }
        Reduction::Mean => {
            let count = plan.count as f64;
            Job { x, plan, start: 0.0, join: plus }.run(out, partial, |sum| (sum / count) as f32);
        }
        Reduction::Max => {
            Job { x, plan, start: f64::NEG_INFINITY, join: larger }
                .run(out, partial, |max| max as f32);
        }
        Reduction::Min => {
            Job { x, plan, start: f64::INFINITY, join: smaller }
                .run(out, partial, |min| min as f32);
        }
    }
}

#[inline(always)]
fn plus(a: f64, b: f64) -> f64 {
    a + b
}

struct Job<'a, J> {
    x: &'a [f32],
    plan: Chunks,
    start: f64,
    join: J,
}

impl<J: Fn(f64, f64) -> f64 + Copy + Sync> Job<'_, J> {
    fn run(&self, out: &mut [f32], partial: &mut [f64], finish: impl Fn(f64) -> f32 + Sync) {
        let Chunks { outputs, count, chunk, side_by_side, .. } = self.plan;
        let work = outputs.saturating_mul(count);
        // Number of outputs in a task.
        let len =
            |elements: usize| (PIECE / elements.max(1)).max(if side_by_side { BLOCK } else { 1 });
        let chunks = self.plan.chunks();
        if chunks == 1 {
            let len = len(count);
            pieces(out, len, work, |i, part| {
                self.part(i * len, part.len(), 0..count, |j, value| part[j] = finish(value));
            });
            return;
        }
        let partial = &mut partial[..chunks * outputs];
        pieces(partial, outputs, work, |i, values| {
            let elements = i * chunk..((i + 1) * chunk).min(count);
            let len = len(elements.len());
            pieces(values, len, outputs * elements.len(), |i, part| {
                self.part(i * len, part.len(), elements.clone(), |j, value| part[j] = value);
            });
        });
        let (all, later) = partial.split_at_mut(outputs);
        for chunk in later.chunks_exact(outputs) {
            all.iter_mut().zip(chunk).for_each(|(all, &chunk)| *all = (self.join)(*all, chunk));
        }
        out.iter_mut().zip(all).for_each(|(out, all)| *out = finish(*all));
    }

    /// Reduces the elements with indices in `elements`, for each of `len` outputs from `first` on.
    /// Calls `emit` with the number of the output, counted from `first`, and the output's result.
    fn part(
        &self,
        first: usize,
        len: usize,
        elements: Range<usize>,
        mut emit: impl FnMut(usize, f64),
    ) {
        let Chunks { kept, joined, side_by_side, .. } = &self.plan;
        let ([kept_step], [step]) = (kept.steps(), joined.steps());
        kept.runs(first, first + len, |i, len, [at]| {
            if *side_by_side {
                for from in (0..len).step_by(BLOCK) {
                    let block = self.block(at + from, BLOCK.min(len - from), &elements);
                    (i - first + from..i - first + len)
                        .zip(block)
                        .for_each(|(j, value)| emit(j, value));
                }
            } else {
                for j in 0..len {
                    let mut lanes = Lanes::new(self.start);
                    joined.runs(elements.start, elements.end, |_, len, [row]| {
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

    /// Reduces the elements with indices in `elements`, for each of `width` neighbouring outputs.
    /// The first element of the first output is at `at`.
    fn block(&self, at: usize, width: usize, elements: &Range<usize>) -> [f64; BLOCK] {
        let mut block = [self.start; BLOCK];
        let joined = &self.plan.joined;
        let [step] = joined.steps();
        joined.runs(elements.start, elements.end, |_, len, [row]| {
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
