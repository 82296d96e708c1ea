//! Computes two sums at once over runs of floats (contiguous elements).

use super::Sums;
use crate::device::cpu::wide::widest;

const LANES: usize = 16;
/// Number of terms that a SIMD lane adds in f32 before its sum is added to an f64. The number is
/// small, so that the f32 sum has few rounding errors. The number is also so large that the
/// conversions to f64 take little time.
const ROUNDS: usize = 32;

/// Adds terms in f32 lanes, and adds the lanes to f64 sums every [`ROUNDS`] rounds. The order of
/// the additions depends only on the lengths of the runs.
#[derive(Default)]
pub(super) struct Adder {
    lanes: [[f32; LANES]; 2],
    /// Number of rounds since the lanes were last set to zero; below [`ROUNDS`].
    rounds: usize,
    sums: Sums,
}

impl Adder {
    /// Adds the terms of a run.
    #[inline]
    pub(super) fn add(&mut self, x: &[f32], dy: &[f32], terms: impl Fn(f32, f32) -> [f32; 2]) {
        widest(
            #[inline(always)]
            || {
                let ((mut x, rest_x), (mut dy, rest_dy)) =
                    (x.as_chunks::<LANES>(), dy.as_chunks::<LANES>());
                while !x.is_empty() {
                    let count = x.len().min(ROUNDS - self.rounds);
                    // Copy the lanes to local variables, so that they stay in registers.
                    let [mut first, mut second] = self.lanes;
                    for (x, dy) in x[..count].iter().zip(&dy[..count]) {
                        for lane in 0..LANES {
                            let [a, b] = terms(x[lane], dy[lane]);
                            first[lane] += a;
                            second[lane] += b;
                        }
                    }
                    self.lanes = [first, second];
                    (x, dy) = (&x[count..], &dy[count..]);
                    self.round(count);
                }
                if !rest_x.is_empty() {
                    for (lane, (&x, &dy)) in rest_x.iter().zip(rest_dy).enumerate() {
                        let [a, b] = terms(x, dy);
                        self.lanes[0][lane] += a;
                        self.lanes[1][lane] += b;
                    }
                    self.round(1);
                }
            },
        );
    }

    fn round(&mut self, count: usize) {
        self.rounds += count;
        if self.rounds == ROUNDS {
            self.join();
        }
    }

    fn join(&mut self) {
        for (sum, lanes) in self.sums.iter_mut().zip(&mut self.lanes) {
            let mut half = LANES / 2;
            while half > 0 {
                for lane in 0..half {
                    lanes[lane] += lanes[lane + half];
                }
                half /= 2;
            }
            *sum += f64::from(lanes[0]);
        }
        self.lanes = [[0.0; LANES]; 2];
        self.rounds = 0;
    }

    /// Returns the two sums.
    pub(super) fn finish(mut self) -> Sums {
        self.join();
        self.sums
    }
}
