//! Reduction of many floats in a fixed order, so that the compiler can vectorize the loop.

use super::wide::widest;

const LANES: usize = 16;

/// Sixteen partial results of a sum or another reduction, called lanes. Element `i` of each added
/// slice is added to lane `i % 16`. In f64 lanes, the error of a sum is far smaller than the error
/// of rounding the sum to f32.
#[derive(Clone, Copy, Debug)]
pub struct Lanes<T>([T; LANES]);

impl<T: Copy> Lanes<T> {
    /// Makes lanes that all hold `start`. `start` must be the neutral element of the reduction,
    /// such as 0 for a sum.
    pub const fn new(start: T) -> Self {
        Self([start; LANES])
    }

    /// Adds element `i` of a slice to lane `i % 16`, for all elements.
    #[inline]
    pub fn add<U: Copy>(&mut self, elements: &[U], add: impl Fn(T, U) -> T) {
        widest(
            #[inline(always)]
            || {
                let (whole, rest) = elements.as_chunks::<LANES>();
                // Copy the lanes, so that they stay in registers.
                let mut lanes = self.0;
                for chunk in whole {
                    for (lane, &x) in lanes.iter_mut().zip(chunk) {
                        *lane = add(*lane, x);
                    }
                }
                for (lane, &x) in lanes.iter_mut().zip(rest) {
                    *lane = add(*lane, x);
                }
                self.0 = lanes;
            },
        );
    }

    /// Adds element `i` of an iterator to lane `i % 16`, for all elements.
    #[inline]
    pub fn add_each<U>(&mut self, elements: impl Iterator<Item = U>, add: impl Fn(T, U) -> T) {
        for (i, x) in elements.enumerate() {
            self.0[i % LANES] = add(self.0[i % LANES], x);
        }
    }

    /// Joins all lanes into one value. Each round joins the upper half of the lanes into the lower
    /// half, until one lane is left.
    #[inline]
    pub fn join(mut self, join: impl Fn(T, T) -> T) -> T {
        let mut half = LANES / 2;
        while half > 0 {
            for i in 0..half {
                self.0[i] = join(self.0[i], self.0[i + half]);
            }
            half /= 2;
        }
        self.0[0]
    }
}
