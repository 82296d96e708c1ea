//! MegEngine's interval moves: buffers with long lives are placed first. A buffer placed into a gap
//! that is too small pushes up the buffers above the gap.

use std::cmp::Reverse;

use super::{Knows, lives, meet, rounded};
use crate::{Lifetimes, Limits, PlanError, Planned, Planner};

/// `interval-move`: places the buffers with the longest lives first; on a tie the buffer that
/// begins earlier, then the larger buffer. Each buffer is placed into a gap between the placed
/// buffers that are alive at the same time.
///
/// If some gaps are large enough, the smallest of them is taken. If no gap is large enough, the
/// buffers above a gap are pushed up. The chosen gap is that for which the size of the placement
/// grows least; on a tie, the gap that lacks the fewest bytes.
///
/// Source: MegEngine's static memory planning (`INTERVAL_MOVE`). As in MegEngine, gaps are tried
/// from low to high. A gap that is large enough is preferred to any smaller gap, even if the
/// placement would not grow with the smaller gap. Time: O(n^3) at worst for n buffers. The limit on
/// n is [`IntervalMove::LIMIT`], as in MegEngine's tests. The planner is weak if lives have similar
/// lengths: then sizes should decide the order. The planner supports gaps, but neither bytes kept
/// in gaps nor colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IntervalMove;

impl IntervalMove {
    /// Limit on the number of buffers.
    pub const LIMIT: usize = 600;
}

impl Planner for IntervalMove {
    fn name(&self) -> String {
        "interval-move".to_owned()
    }

    fn plan(&self, lifetimes: &Lifetimes, limits: &Limits) -> Result<Planned, PlanError> {
        Knows::Gaps.check(self, lifetimes)?;
        let buffers = lifetimes.buffers();
        if buffers.len() > Self::LIMIT {
            let (planner, limit) = (self.name(), Self::LIMIT);
            return Err(PlanError::TooMany { planner, limit, buffers: buffers.len() });
        }
        let sizes = rounded(lifetimes)?;
        let mut order: Vec<usize> = (0..buffers.len()).filter(|&i| sizes[i] > 0).collect();
        order.sort_by_key(|&i| {
            (Reverse(buffers[i].upper - buffers[i].lower), buffers[i].lower, Reverse(sizes[i]))
        });
        let lives = lives(lifetimes);
        let mut stack = Stack::new(sizes);
        for (count, &i) in order.iter().enumerate() {
            if limits.over() {
                return Err(PlanError::TooLong { planner: self.name(), quicker: "gaps-life" });
            }
            let placed = order[..count].iter().copied();
            stack.insert(i, placed.filter(|&other| meet(&lives[i], &lives[other])).collect());
        }
        Planned::new(lifetimes, stack.offsets)
    }
}

/// Placed buffers, and for each placed buffer the buffers above it.
#[derive(Debug)]
struct Stack {
    sizes: Vec<u64>,
    offsets: Vec<u64>,
    /// Placed buffer -> buffers that lie above it and are alive at the same time.
    above: Vec<Vec<usize>>,
    /// Placed buffers, sorted by address.
    upwards: Vec<usize>,
    /// Placed buffer -> number of bytes by which the buffer can be pushed up without a change of
    /// `high`.
    slack: Vec<u64>,
    high: u64,
}

impl Stack {
    fn new(sizes: Vec<u64>) -> Self {
        let count = sizes.len();
        Self {
            sizes,
            offsets: vec![0; count],
            above: vec![Vec::new(); count],
            upwards: Vec::with_capacity(count),
            slack: vec![0; count],
            high: 0,
        }
    }

    /// Places a buffer; `meets` are the buffers alive at the same times.
    fn insert(&mut self, buffer: usize, mut meets: Vec<usize>) {
        meets.sort_by_key(|&other| self.offsets[other]);
        self.offsets[buffer] = self.choose(self.sizes[buffer], &meets);
        let split = meets.partition_point(|&other| self.end(other) <= self.offsets[buffer]);
        for &below in &meets[..split] {
            self.above[below].push(buffer);
        }
        self.above[buffer] = meets.split_off(split);
        self.push_up(buffer);
        self.upwards.push(buffer);
        self.upwards.sort_by_key(|&other| self.offsets[other]);
    }

    /// Chooses the address of a buffer of `size` bytes. `meets` are the buffers alive at the same
    /// times, from low to high.
    fn choose(&mut self, size: u64, meets: &[usize]) -> u64 {
        self.find_slack();
        // Best gap so far: bytes by which `high` would grow, bytes that the gap lacks, and begin of
        // the gap.
        let mut best = (u64::MAX, u64::MAX, 0);
        let mut least_left = u64::MAX;
        let mut begin = 0;
        for next in 0..=meets.len() {
            let end = meets.get(next).map_or(self.high.max(begin), |&other| self.offsets[other]);
            if end >= begin {
                // The gap of 0 bytes between two buffers that touch is also tried.
                let gap = end - begin;
                if gap < size {
                    let rise = meets[next..].iter().map(|&other| {
                        (size - gap).saturating_sub(self.offsets[other] - end + self.slack[other])
                    });
                    let top = (begin + size).saturating_sub(self.high);
                    best = best.min((rise.fold(top, u64::max), size - gap, begin));
                } else if gap - size < least_left {
                    least_left = gap - size;
                    best = (0, 0, begin);
                }
            }
            begin = meets.get(next).map_or(begin, |&other| begin.max(self.end(other)));
        }
        best.2
    }

    /// Computes `slack` of all placed buffers from high to low: the slack of a buffer depends on
    /// the buffers above it.
    fn find_slack(&mut self) {
        for &i in self.upwards.iter().rev() {
            let end = self.offsets[i] + self.sizes[i];
            let rooms = self.above[i].iter().map(|&j| self.offsets[j] - end + self.slack[j]);
            self.slack[i] = rooms.fold(self.high - end, u64::min);
        }
    }

    /// Pushes up the buffers above a new buffer as far as needed. Each pushed buffer pushes up the
    /// buffers above it in the same way.
    fn push_up(&mut self, buffer: usize) {
        let Self { sizes, offsets, above, upwards, high, .. } = self;
        for &i in std::iter::once(&buffer).chain(upwards.iter()) {
            let end = offsets[i] + sizes[i];
            *high = end.max(*high);
            for &j in &above[i] {
                offsets[j] = offsets[j].max(end);
            }
        }
    }

    fn end(&self, buffer: usize) -> u64 {
        self.offsets[buffer] + self.sizes[buffer]
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::shared;
    use super::*;
    use crate::Buffer;
    use remat_rng::SplitMix64;

    /// A naive version of the planner, which pushes buffers up recursively, without sorting them.
    #[derive(Default)]
    struct Naive {
        lives: Vec<(u64, u64)>,
        sizes: Vec<u64>,
        offsets: Vec<u64>,
        above: Vec<Vec<usize>>,
        high: u64,
    }

    impl Naive {
        fn end(&self, i: usize) -> u64 {
            self.offsets[i] + self.sizes[i]
        }

        fn slack(&self, i: usize) -> u64 {
            let room = |&j: &usize| self.slack(j) + self.offsets[j] - self.end(i);
            self.above[i].iter().map(room).min().unwrap_or(u64::MAX).min(self.high - self.end(i))
        }

        fn push(&mut self, i: usize, least: u64) {
            if self.offsets[i] < least {
                self.offsets[i] = least;
                self.high = self.high.max(self.end(i));
                for j in self.above[i].clone() {
                    self.push(j, self.end(i));
                }
            }
        }

        fn place(&mut self, lower: u64, upper: u64, size: u64) {
            let meets: Vec<usize> = (0..self.lives.len())
                .filter(|&i| self.lives[i].0 < upper && lower < self.lives[i].1)
                .collect();
            // Every address at which a gap may begin is listed with the end of the gap.
            let mut begins: Vec<u64> = meets.iter().map(|&i| self.end(i)).chain([0]).collect();
            begins.sort_unstable();
            let gaps = begins.into_iter().filter_map(|begin| {
                let above = || meets.iter().filter(|&&i| self.end(i) > begin);
                let end = above().map(|&i| self.offsets[i]).min().unwrap_or(self.high);
                (end >= begin).then_some((begin, end))
            });
            let fit = gaps.clone().filter(|gap| gap.1 - gap.0 >= size).min_by_key(|g| g.1 - g.0);
            let begin = fit.map_or_else(
                || {
                    let cost = |&(begin, end): &(u64, u64)| {
                        let lack = size - (end - begin);
                        let mut rise = (begin + size).saturating_sub(self.high);
                        for &i in meets.iter().filter(|&&i| self.end(i) > begin) {
                            let room = self.offsets[i] - end + self.slack(i);
                            rise = rise.max(lack.saturating_sub(room));
                        }
                        (rise, lack)
                    };
                    gaps.clone().min_by_key(cost).unwrap().0
                },
                |gap| gap.0,
            );
            let new = self.lives.len();
            self.lives.push((lower, upper));
            self.sizes.push(size);
            self.offsets.push(begin);
            self.above.push(Vec::new());
            self.high = self.high.max(begin + size);
            for i in meets {
                if self.end(i) > begin {
                    self.push(i, begin + size);
                    self.above[new].push(i);
                } else {
                    self.above[i].push(new);
                }
            }
        }
    }

    #[test]
    fn each_is_where_the_rule_puts_it() {
        for seed in 0..400 {
            let mut rng = SplitMix64::new(seed);
            let buffers: Vec<Buffer> = (0..1 + rng.below(40))
                .map(|_| {
                    let (lower, longest) = (rng.below(30) as u64, 1 + rng.below(30));
                    let life = 1 + rng.below(longest) as u64;
                    Buffer::new(lower, lower + life, 1 + rng.below(50) as u64)
                })
                .collect();
            let mut order: Vec<usize> = (0..buffers.len()).collect();
            order.sort_by_key(|&i| {
                let Buffer { lower, upper, size, .. } = buffers[i];
                (Reverse(upper - lower), lower, Reverse(size))
            });
            let mut naive = Naive::default();
            for &i in &order {
                naive.place(buffers[i].lower, buffers[i].upper, buffers[i].size);
            }
            let lifetimes = Lifetimes::new(buffers).unwrap();
            let planned = IntervalMove.plan(&lifetimes, &Limits::none()).unwrap();
            let offsets: Vec<u64> = order.iter().map(|&i| planned.placement.offsets()[i]).collect();
            assert_eq!(offsets, naive.offsets, "seed {seed}");
        }
    }

    #[test]
    fn more_than_the_limit_are_refused() {
        let many = |count| Lifetimes::new(vec![Buffer::new(0, 1, 1); count]).unwrap();
        assert!(IntervalMove.plan(&many(600), &Limits::none()).unwrap().proven);
        let error = IntervalMove.plan(&many(601), &Limits::none()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "interval-move places at most 600 buffers, but there are 601: use another planner, such as pushdown"
        );
    }

    /// On MiniMalloc's instances A to F, the ratios of bytes to load differ by at most 0.01 from
    /// the results of this project's scripts.
    #[test]
    fn ratios_are_those_of_the_source() {
        let ratios = [1.568, 1.587, 1.244, 1.335, 1.342, 1.252];
        for (name, ratio) in ["A", "B", "C", "D", "E", "F"].into_iter().zip(ratios) {
            let Some(lifetimes) = shared(&format!("minimalloc/{name}.1048576")) else { continue };
            let planned = IntervalMove.plan(&lifetimes, &Limits::none()).unwrap();
            let found = planned.placement.bytes() as f64 / lifetimes.load() as f64;
            assert!((found - ratio).abs() < 0.01, "{name}: {found:.4}, not {ratio}");
        }
    }
}
