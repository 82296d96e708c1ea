//! Joining many floats in a fixed order that vectorizes.

use super::wide::widest;

const LANES: usize = 16;

/// Sixteen partial results, one in each lane: element `i` of each added slice is joined into lane
/// `i % 16`. A sum in f64 lanes has an error far below the error of rounding its result to f32.
#[derive(Clone, Copy, Debug)]
pub struct Lanes<T>([T; LANES]);

impl<T: Copy> Lanes<T> {
    /// Makes lanes that all hold `start`, which must be the neutral element of the operation.
    pub const fn new(start: T) -> Self {
        Self([start; LANES])
    }

    /// Adds neighbouring elements: element `i` to lane `i % 16`.
    #[inline]
    pub fn add<U: Copy>(&mut self, elements: &[U], add: impl Fn(T, U) -> T) {
        widest(
            #[inline(always)]
            || {
                let (whole, rest) = elements.as_chunks::<LANES>();
                // A copy, so that the lanes stay in registers.
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

    /// Adds the elements of an iterator: number `i` to lane `i % 16`.
    #[inline]
    pub fn add_each<U>(&mut self, elements: impl Iterator<Item = U>, add: impl Fn(T, U) -> T) {
        for (i, x) in elements.enumerate() {
            self.0[i % LANES] = add(self.0[i % LANES], x);
        }
    }

    /// Joins all lanes into one value. Each round joins the upper half of the lanes to the lower
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
