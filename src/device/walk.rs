//! Walks through tensors of any strides in row-major order. A walk consists of runs of equally
//! spaced elements, which are as long as possible.

use crate::layout::MAX_RANK;
use smallvec::SmallVec;

/// Loops over a shape, for `K` operands that each have their own strides. Dimensions of size 1 are
/// left out. Neighbouring dimensions that are contiguous in every operand are merged into one loop.
/// Contiguous tensors are therefore one run, and an op that broadcasts a row or a channel takes two
/// loops.
#[derive(Clone, Debug)]
pub struct Walk<const K: usize> {
    /// Loops, outermost first; at least one loop. The elements of the last loop are a run.
    loops: SmallVec<[Loop<K>; MAX_RANK]>,
}

/// Number of iterations of a loop, and the distance between neighbouring elements in each operand.
type Loop<const K: usize> = (usize, [usize; K]);

impl<const K: usize> Walk<K> {
    /// Loop over one element.
    const ONCE: [Loop<K>; 1] = [(1, [1; K])];

    /// Makes the loops over `sizes`, outermost first; `strides` has one list for each operand.
    pub fn new(sizes: &[usize], strides: [&[usize]; K]) -> Self {
        let mut loops: SmallVec<[Loop<K>; MAX_RANK]> = SmallVec::new();
        for (axis, &size) in sizes.iter().enumerate().filter(|&(_, &size)| size != 1) {
            let own: [usize; K] = std::array::from_fn(|k| strides[k][axis]);
            match loops.last_mut() {
                Some((outer, steps)) if (0..K).all(|k| steps[k] == own[k].wrapping_mul(size)) => {
                    // In a tensor without elements, the product of the sizes that are not 0 may
                    // overflow, so saturate.
                    *outer = outer.saturating_mul(size);
                    *steps = own;
                }
                _ => loops.push((size, own)),
            }
        }
        if loops.is_empty() {
            loops.extend(Self::ONCE);
        }
        Self { loops }
    }

    /// All loops, outermost first. Each loop has the number of iterations, and the distance between
    /// neighbouring elements in each operand.
    pub fn loops(&self) -> &[(usize, [usize; K])] {
        &self.loops
    }

    /// Splits the loops into outer loops and at most `most` innermost loops. Returns the outer
    /// loops first.
    #[cfg(feature = "cuda")]
    pub fn split_at_most(&self, most: usize) -> (Self, Self) {
        let (outer, inner) = self.loops.split_at(self.loops.len().saturating_sub(most));
        let of = |loops: &[Loop<K>]| Self {
            loops: if loops.is_empty() { &Self::ONCE } else { loops }.into(),
        };
        (of(outer), of(inner))
    }

    fn split(&self) -> (Loop<K>, &[Loop<K>]) {
        let (run, outer) = self.loops.split_last().expect("at least one loop");
        (*run, outer)
    }

    /// Number of elements of a whole run.
    #[cfg(any(test, feature = "cuda"))]
    pub fn run(&self) -> usize {
        self.split().0.0
    }

    /// Distance between neighbouring elements of a run, in each operand.
    pub fn steps(&self) -> [usize; K] {
        self.split().0.1
    }

    /// Calls `body(i, len, at)` for each run of the elements `from..to`. A run begins with element
    /// `i` of the walk and has `len` elements. The first element of a run has the index `at[k]` in
    /// operand `k`.
    pub fn runs(&self, from: usize, to: usize, mut body: impl FnMut(usize, usize, [usize; K])) {
        if from >= to {
            return;
        }
        let ((run, steps), outer) = self.split();
        let mut index: SmallVec<[usize; MAX_RANK]> = SmallVec::from_elem(0, outer.len());
        let mut at = [0; K];
        let (mut left, mut skip) = (from / run, from % run);
        for (index, (size, strides)) in index.iter_mut().zip(outer).rev() {
            *index = left % size;
            left /= size;
            at.iter_mut().zip(strides).for_each(|(at, stride)| *at += *index * stride);
        }
        let mut i = from;
        while i < to {
            let len = (run - skip).min(to - i);
            body(i, len, std::array::from_fn(|k| at[k] + skip * steps[k]));
            i += len;
            skip = 0;
            // Advance the index of the outer loops: the innermost index first, and the next outer
            // index after each full turn.
            for (index, (size, strides)) in index.iter_mut().zip(outer).rev() {
                *index += 1;
                let wraps = index == size;
                // Move to the next iteration of this loop, or back to the start of this loop.
                at.iter_mut().zip(strides).for_each(|(at, stride)| {
                    *at = if wraps { *at - (*index - 1) * stride } else { *at + stride };
                });
                if !wraps {
                    break;
                }
                *index = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{DType, Dims, Layout};

    fn places(layout: &Layout, from: usize, to: usize) -> Vec<usize> {
        let walk = Walk::new(layout.shape(), [layout.strides()]);
        let [step] = walk.steps();
        let mut places = Vec::new();
        walk.runs(from, to, |i, len, [at]| {
            assert_eq!(i, from + places.len());
            places.extend((0..len).map(|j| at + j * step));
        });
        places
    }

    #[test]
    fn elements_come_in_row_major_order_from_anywhere_to_anywhere() {
        let whole = Layout::contiguous(DType::F32, [3, 4, 1, 5]);
        let turned = whole.permute(&[1, 2, 0, 3]).unwrap();
        let mut expected = Vec::new();
        for i in 0..4 {
            for j in 0..3 {
                expected.extend((0..5).map(|k| i * 5 + j * 20 + k));
            }
        }
        for from in 0..=60 {
            for to in from..=60 {
                assert_eq!(places(&turned, from, to), expected[from..to]);
            }
        }
        assert_eq!(places(&whole, 7, 55), (7..55).collect::<Vec<_>>());
    }

    #[test]
    fn loops_are_joined_where_all_operands_allow() {
        let shape = Dims::new(&[8, 16, 4, 4]);
        let x = Layout::contiguous(DType::F32, shape);
        assert_eq!(Walk::new(&shape, [x.strides()]).run(), 8 * 16 * 16);
        let channel = Layout::contiguous(DType::F32, [16, 1, 1]).broadcast_to(&shape).unwrap();
        let walk = Walk::new(&shape, [x.strides(), channel.strides()]);
        assert_eq!((walk.loops().len(), walk.run(), walk.steps()), (3, 16, [1, 0]));
        assert_eq!(Walk::new(&Dims::SCALAR, [&Dims::SCALAR]).run(), 1);
    }
}
