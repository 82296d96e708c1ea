//! Shapes and strides as parameters of kernels.

#![allow(unsafe_code)]

use super::launch::{Parameter, Ptr};
use crate::device::walk::Walk;
use crate::layout::{Layout, MAX_RANK};

/// Rust form of the C++ struct `Divider` in `common.cuh`: a divisor, prepared so that kernels
/// divide by a multiplication and a shift.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Divider {
    divisor: u64,
    factor: u32,
    shift: u32,
}

// SAFETY: `Divider` is `repr(C)` and consists of numbers, in the order that `common.cuh` declares.
unsafe impl Parameter for Divider {}

impl Divider {
    /// Makes a divider by `divisor`. A divisor of 0 occurs only if the kernel has no number to
    /// divide; it becomes 1.
    ///
    /// For `n` below 2^31, the quotient is `(n + n * factor / 2^32) / 2^shift` (Granlund and
    /// Montgomery, 1994).
    pub(crate) fn new(divisor: usize) -> Self {
        let divisor = divisor.max(1) as u64;
        // Divisors above 2^31 occur only in `WIDE` sources, which divide by the field `divisor`
        // itself.
        let d = divisor.min(1 << 31);
        let shift = d.next_power_of_two().trailing_zeros();
        let factor = (((1u64 << shift) - d) << 32) / d + 1;
        Self { divisor, factor: factor as u32, shift }
    }
}

/// Rust form of the C++ struct `Walk` in `common.cuh`: loops, innermost first.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Steps<const K: usize> {
    sizes: [Divider; MAX_RANK],
    steps: [[u64; K]; MAX_RANK],
    loops: u32,
    width: u32,
}

// SAFETY: `Steps` is `repr(C)` and consists of numbers, in the order that `common.cuh` declares.
unsafe impl<const K: usize> Parameter for Steps<K> {}

impl<const K: usize> Steps<K> {
    /// Makes the loops of a walk with at most [`MAX_RANK`] loops. Callers must refuse or split a
    /// walk with more loops. The innermost loop counts units of `width` elements. `width` is 1, or
    /// 4 if [`in_fours`] is true.
    pub(crate) fn new(walk: &Walk<K>, width: usize) -> Self {
        let mut all = Self {
            sizes: [Divider::new(1); MAX_RANK],
            steps: [[0; K]; MAX_RANK],
            loops: walk.loops().len() as u32,
            width: width as u32,
        };
        for (i, (size, steps)) in walk.loops().iter().rev().enumerate() {
            let unit = if i == 0 { width } else { 1 };
            all.sizes[i] = Divider::new(size / unit);
            all.steps[i] = steps.map(|step| (step * unit) as u64);
        }
        all
    }
}

/// Whether the elements of each operand may be loaded four at a time. In the innermost loop, the
/// elements of an operand must be contiguous, or one repeated element. All runs of contiguous
/// elements must begin at multiples of 16 bytes.
pub(crate) fn in_fours<const K: usize>(walk: &Walk<K>, addresses: [Ptr; K]) -> bool {
    let steps = walk.steps();
    walk.run().is_multiple_of(4)
        && (0..K).all(|k| match steps[k] {
            0 => true,
            1 => {
                addresses[k].is_aligned()
                    && walk.loops().iter().rev().skip(1).all(|(_, steps)| steps[k] % 4 == 0)
            }
            _ => false,
        })
}

/// Number of elements of an entry along `axis`: the product of all dimensions after `axis`.
pub(crate) fn inner(layout: &Layout, axis: usize) -> usize {
    layout.shape()[axis + 1..].iter().product()
}

/// Number of elements that may be loaded at once: 4 if all addresses and lengths are multiples of 4
/// elements, else 1.
pub(crate) fn width<const A: usize, const N: usize>(
    addresses: [Ptr; A],
    lengths: [usize; N],
) -> u64 {
    let fours = addresses.iter().all(|p| p.is_aligned()) && lengths.iter().all(|n| n % 4 == 0);
    if fours { 4 } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::DType;

    /// Computes a quotient like the function `quotient` in `common.cuh`.
    fn quotient(n: u32, by: Divider) -> u32 {
        let high = ((u64::from(n) * u64::from(by.factor)) >> 32) as u32;
        (high + n) >> by.shift
    }

    #[test]
    fn quotients_are_exact_below_two_to_the_31() {
        let near = |n: u32| [n.saturating_sub(1), n, n + 1];
        let divisors: Vec<u32> = (0..31)
            .flat_map(|bit| near(1 << bit))
            .chain((1..100).chain([196, 784, 3136, 12544, 999_983, (1 << 31) - 1]))
            .filter(|&d| d > 0)
            .collect();
        for d in divisors {
            let by = Divider::new(d as usize);
            let last: u32 = (1 << 31) - 1;
            let some = (0..40).flat_map(|i| near((last / 41).saturating_mul(i)));
            let multiples =
                (0..31).flat_map(|bit| near((d.saturating_mul(1 << bit)).min(last - 1)));
            for n in some.chain(multiples).chain([0, 1, last]) {
                assert_eq!(quotient(n, by), n / d, "{n} / {d}");
            }
        }
        assert_eq!(quotient(5, Divider::new(0)), 5);
    }

    #[test]
    fn elements_go_in_fours_where_they_lie_together() {
        let x = Layout::contiguous(DType::F32, [8, 16, 4, 4]);
        let channel = Layout::contiguous(DType::F32, [16, 1, 1]).broadcast_to(x.shape()).unwrap();
        let walk = Walk::new(x.shape(), [x.strides(), channel.strides()]);
        assert!(in_fours(&walk, [Ptr(256), Ptr(4)]), "the repeated one may lie anywhere");
        assert!(!in_fours(&walk, [Ptr(4), Ptr(256)]));
        let steps = Steps::new(&walk, 4);
        assert_eq!((steps.loops, steps.sizes[0].divisor, steps.steps[0]), (3, 4, [4, 0]));
        assert_eq!((steps.sizes[1].divisor, steps.steps[1]), (16, [16, 1]));
        let part = x.slice(3, 0, 3).unwrap();
        assert!(!in_fours(&Walk::new(part.shape(), [part.strides()]), [Ptr(0)]));
        let odd = Layout::contiguous(DType::F32, [3, 5]).slice(1, 0, 4).unwrap();
        assert!(!in_fours(&Walk::new(odd.shape(), [odd.strides()]), [Ptr(0)]));
    }
}
