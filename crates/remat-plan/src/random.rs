//! Generated lifetimes, for tests and measurements of planners.

use super::{Buffer, Lifetimes};
use remat_rng::SplitMix64;

/// Number of buffers of a pair of ops: a forward op, and the backward op that belongs to it.
const PER_OP: usize = 10;

/// A random training step with `buffers` buffers. Forward ops come first, then one backward op for
/// each forward op, in the opposite order. Each op takes one instant.
///
/// Each pair of a forward and a backward op has ten buffers. One buffer is an activation, alive
/// from the forward op to the backward op, so the lives of activations are nested. One buffer is a
/// gradient, alive from its backward op to the next backward op. Eight buffers live for one to four
/// instants: four begin at the forward op, and four at the backward op. Sizes are from 256 B to 64
/// MiB. Each range between two powers of two is equally likely, and sizes are uniform within a
/// range. The buffers of a pair have successive numbers, so the numbers are not in the order of
/// time. The same seed and count give the same buffers on every machine.
///
/// ```
/// use remat_plan::random;
///
/// let lifetimes = random::step(1, 10_000);
/// assert_eq!(lifetimes.len(), 10_000);
/// assert_eq!(lifetimes, random::step(1, 10_000));
/// assert_ne!(lifetimes, random::step(2, 10_000));
/// ```
///
/// # Panics
///
/// If there are more than 2^37 buffers: their bytes could add up to 2^64 or more.
#[must_use]
pub fn step(seed: u64, buffers: usize) -> Lifetimes {
    let mut rng = SplitMix64::new(seed);
    let ops = buffers.div_ceil(PER_OP) as u64;
    let made = (0..buffers).map(|i| {
        let (op, which) = ((i / PER_OP) as u64, i % PER_OP);
        let back = 2 * ops - 1 - op;
        let (lower, life) = match which {
            0 => (op, back - op + 1),
            1 => (back, 2),
            2..6 => (op, 1 + rng.below(4) as u64),
            _ => (back, 1 + rng.below(4) as u64),
        };
        let power = 1_u64 << (8 + rng.below(18));
        Buffer::new(lower, lower + life, power + rng.next() % power)
    });
    Lifetimes::new(made).expect("lives are not empty, and sizes add up to less than 2^64")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_as_told() {
        for count in [0, 1, 9, 10, 11, 1000, 1234] {
            let lifetimes = step(count as u64, count);
            let buffers = lifetimes.buffers();
            assert_eq!(buffers.len(), count);
            assert!(buffers.iter().all(|it| (256..64 << 20).contains(&it.size)));
            let activations: Vec<_> = buffers.iter().step_by(PER_OP).collect();
            let inside =
                |pair: &[&Buffer]| pair[0].lower < pair[1].lower && pair[1].upper < pair[0].upper;
            assert!(activations.windows(2).all(inside));
            let short = buffers.iter().filter(|it| it.upper - it.lower <= 4).count();
            assert!(short >= count - activations.len());
        }
    }

    #[test]
    fn all_powers_of_two_are_alike() {
        let lifetimes = step(3, 18_000);
        let mut counts = [0; 18];
        for buffer in lifetimes.buffers() {
            counts[buffer.size.ilog2() as usize - 8] += 1;
        }
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    }
}
