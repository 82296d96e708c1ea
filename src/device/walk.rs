//! Going through tensors of any strides in row-major order, in runs as long as can be.

use crate::layout::{Dims, MAX_RANK};

/// The loops over a shape, for `K` operands with strides of their own. Dimensions of size 1 are left
/// out, and neighbours that lie one after the other in every operand are joined: contiguous tensors are
/// one run, and a row or channel broadcast is two loops.
#[derive(Clone, Copy, Debug)]
pub struct Walk<const K: usize> {
    /// At least 1; the last loop is the run.
    rank: usize,
    sizes: [usize; MAX_RANK],
    /// Per loop, the distance between neighbours in each operand.
    strides: [[usize; K]; MAX_RANK],
}

impl<const K: usize> Walk<K> {
    /// The loops over `sizes`, outermost first; `strides` holds one list per operand.
    pub fn new(sizes: &Dims, strides: [&Dims; K]) -> Self {
        let mut walk = Self { rank: 0, sizes: [1; MAX_RANK], strides: [[1; K]; MAX_RANK] };
        for (axis, &size) in sizes.iter().enumerate() {
            let own: [usize; K] = std::array::from_fn(|k| strides[k][axis]);
            let Some(last) = walk.rank.checked_sub(1).filter(|_| size != 1) else {
                if size != 1 {
                    walk.push(size, own);
                }
                continue;
            };
            if (0..K).all(|k| walk.strides[last][k] == own[k].wrapping_mul(size)) {
                walk.sizes[last] *= size;
                walk.strides[last] = own;
            } else {
                walk.push(size, own);
            }
        }
        walk.rank = walk.rank.max(1);
        walk
    }

    fn push(&mut self, size: usize, strides: [usize; K]) {
        self.sizes[self.rank] = size;
        self.strides[self.rank] = strides;
        self.rank += 1;
    }

    /// The loops, the run last: how many times round, and the distance between neighbours in each operand.
    #[cfg(feature = "cuda")]
    pub fn loops(
        &self,
    ) -> impl DoubleEndedIterator<Item = (usize, [usize; K])> + ExactSizeIterator {
        self.sizes.into_iter().zip(self.strides).take(self.rank)
    }

    /// The length of a whole run.
    pub fn run(&self) -> usize {
        self.sizes[self.rank - 1]
    }

    /// The distance between neighbours of a run in each operand.
    pub fn steps(&self) -> [usize; K] {
        self.strides[self.rank - 1]
    }

    /// Calls `body(i, len, at)` for each run of elements `from..to`: it starts with element `i` and is
    /// `len` long, and its first element is at `at[k]` in operand `k`.
    pub fn runs(&self, from: usize, to: usize, mut body: impl FnMut(usize, usize, [usize; K])) {
        if from >= to {
            return;
        }
        let outer = self.rank - 1;
        let (run, steps) = (self.run(), self.steps());
        let mut index = [0; MAX_RANK];
        let mut at = [0; K];
        let (mut left, mut skip) = (from / run, from % run);
        for axis in (0..outer).rev() {
            index[axis] = left % self.sizes[axis];
            left /= self.sizes[axis];
            at.iter_mut()
                .zip(self.strides[axis])
                .for_each(|(at, stride)| *at += index[axis] * stride);
        }
        let mut i = from;
        while i < to {
            let len = (run - skip).min(to - i);
            body(i, len, std::array::from_fn(|k| at[k] + skip * steps[k]));
            i += len;
            skip = 0;
            for axis in (0..outer).rev() {
                index[axis] += 1;
                let wraps = index[axis] == self.sizes[axis];
                // Forward by one, or back to the start of this loop.
                at.iter_mut().zip(self.strides[axis]).for_each(|(at, stride)| {
                    *at = if wraps { *at - (index[axis] - 1) * stride } else { *at + stride };
                });
                if !wraps {
                    break;
                }
                index[axis] = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{DType, Layout};

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
        assert_eq!((walk.rank, walk.run(), walk.steps()), (3, 16, [1, 0]));
        assert_eq!(Walk::new(&Dims::SCALAR, [&Dims::SCALAR]).run(), 1);
    }
}
