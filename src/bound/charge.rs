//! Cost of having a source (an input of an op) in memory when the op runs again. The cost is the
//! lesser of two: holding the bytes of the source, or rerunning the op that made the source.

use smallvec::SmallVec;

/// A cost that is linear in the price `w` of a byte: `held * w + cost`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Line {
    /// Bytes of sources that are held in memory.
    pub held: f64,
    pub cost: f64,
}

impl Line {
    pub const FREE: Self = Self { held: 0.0, cost: 0.0 };

    fn at(self, w: f64) -> f64 {
        self.held * w + self.cost
    }

    fn plus(self, other: Self) -> Self {
        Self { held: self.held + other.held, cost: self.cost + other.cost }
    }
}

/// Least cost of having some sources in memory, as a function of the price `w` of a byte. The
/// function is the minimum of several lines.
///
/// Lines are sorted: bytes decrease and costs increase from line to line. Each line is the minimum
/// for some `w` from 0 up. A charge without lines means that the sources cannot be in memory at any
/// cost.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Charge(SmallVec<[Line; 2]>);

impl Charge {
    pub fn free() -> Self {
        Self(SmallVec::from_slice(&[Line::FREE]))
    }

    pub fn is_free(&self) -> bool {
        self.0.first() == Some(&Line::FREE)
    }

    pub fn lines(&self) -> &[Line] {
        &self.0
    }

    /// Line with the least cost if holding a byte costs `w`, and this least cost.
    #[inline]
    pub fn least(&self, w: f64) -> Option<(Line, f64)> {
        let mut least: Option<(Line, f64)> = None;
        for &line in &self.0 {
            let value = line.at(w);
            if least.is_none_or(|(_, other)| value < other) {
                least = Some((line, value));
            }
        }
        least
    }

    /// Charge for having the sources of `self` or the sources of `other` in memory: the minimum of
    /// the two charges.
    pub fn or(&self, other: &Self) -> Self {
        Self::of(self.0.iter().chain(&other.0).copied().collect())
    }

    /// Charge for having the sources of both `self` and `other` in memory: the sum of the two
    /// charges.
    pub fn and(&self, other: &Self) -> Self {
        let sums = self.0.iter().flat_map(|a| other.0.iter().map(|b| a.plus(*b)));
        Self::of(sums.collect())
    }

    /// Adds the cost of a run to each line.
    pub fn after(mut self, cost: f64) -> Self {
        self.0.iter_mut().for_each(|line| line.cost += cost);
        self
    }

    /// Charge for holding `bytes` bytes.
    pub fn holding(bytes: f64) -> Self {
        Self(SmallVec::from_slice(&[Line { held: bytes, cost: 0.0 }]))
    }

    fn of(mut lines: SmallVec<[Line; 8]>) -> Self {
        lines.sort_by(|a, b| a.cost.total_cmp(&b.cost).then(a.held.total_cmp(&b.held)));
        let mut hull: SmallVec<[Line; 2]> = SmallVec::new();
        // The hull holds the lines that are the minimum for some `w`. A line that holds at least as
        // many bytes as the last line of the hull is skipped: its cost is at least as high.
        for line in lines {
            if hull.last().is_some_and(|last| line.held >= last.held) {
                continue;
            }
            while let [.., before, last] = hull[..] {
                // At `w = meets`, `line` and `before` cost the same. `last` is removed unless it
                // costs less than `line` at `w = meets`.
                let meets = (line.cost - before.cost) / (before.held - line.held);
                if last.at(meets) < line.at(meets) {
                    break;
                }
                hull.pop();
            }
            hull.push(line);
        }
        Self(hull)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remat_rng::SplitMix64;

    #[test]
    fn a_charge_is_the_least_of_all_ways() {
        let mut random = SplitMix64::new(7);
        let mut next = |below| random.below(below) as f64;
        for _ in 0..2000 {
            let mut lines = |count| -> Vec<Line> {
                (0..count).map(|_| Line { held: next(9), cost: next(9) }).collect()
            };
            let (a, b) = (lines(4), lines(3));
            let charge = |lines: &[Line]| Charge::of(lines.iter().copied().collect());
            let (one, two) = (charge(&a), charge(&b));
            let least = |lines: &[Line], w| {
                lines.iter().map(|line| line.at(w)).fold(f64::INFINITY, f64::min)
            };
            for w in [0.0, 0.1, 0.5, 1.0, 1.7, 3.0, 40.0] {
                let (x, y) = (least(&a, w), least(&b, w));
                assert_eq!(one.least(w).unwrap().1, x);
                assert_eq!(one.or(&two).least(w).unwrap().1, x.min(y));
                assert!((one.and(&two).least(w).unwrap().1 - (x + y)).abs() < 1e-9);
                assert_eq!(one.clone().after(2.0).least(w).unwrap().1, x + 2.0);
            }
            assert!(one.0.len() <= a.len() && Charge::default().and(&one).0.is_empty());
        }
    }
}
