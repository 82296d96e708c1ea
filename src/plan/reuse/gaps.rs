//! Buffers one by one in some order, whatever their time, each in a gap between those that are placed.

use super::super::{Buffer, Lifetimes, Limits, PlanError, Planned, Planner};
use super::rounded;
use std::cmp::Reverse;

/// Who is placed first. Of equals, who begins earlier, and then who has the lower number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum First {
    /// The largest.
    #[default]
    Size,
    /// The largest product of size and life.
    Area,
    /// Who lives longest.
    Life,
    /// Who begins first.
    Birth,
}

/// `gaps-size`, `gaps-area`, `gaps-life`, `gaps-birth`: each buffer goes to the smallest gap between those that are placed
/// already and alive at the same time, the lowest of several, and above all of them if none is large enough.
///
/// By size it is the greedy planner of TFLite (Pisarchyk and Lee, 2020) and XLA's spatial heuristic; by life XLA's temporal
/// one. n^2 time for n buffers, of which there may be [`Gaps::LIMIT`]. Weak where many sizes are alike but not equal, and
/// lives cross each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gaps {
    /// Who is placed first.
    pub first: First,
}

impl Gaps {
    /// More buffers are refused.
    pub const LIMIT: usize = 30_000;
    /// One of each order.
    pub const ALL: [Self; 4] = [
        Self::by(First::Size),
        Self::by(First::Area),
        Self::by(First::Life),
        Self::by(First::Birth),
    ];

    /// In this order.
    #[must_use]
    pub const fn by(first: First) -> Self {
        Self { first }
    }
}

impl Planner for Gaps {
    fn name(&self) -> String {
        let first = match self.first {
            First::Size => "size",
            First::Area => "area",
            First::Life => "life",
            First::Birth => "birth",
        };
        format!("gaps-{first}")
    }

    fn plan(&self, lifetimes: &Lifetimes, _limits: &Limits) -> Result<Planned, PlanError> {
        let buffers = lifetimes.buffers();
        if buffers.len() > Self::LIMIT {
            let (planner, limit) = (self.name(), Self::LIMIT);
            return Err(PlanError::TooMany { planner, limit, buffers: buffers.len() });
        }
        let sizes = rounded(self, lifetimes)?;
        let rank = |buffer: &Buffer| match self.first {
            First::Size => u128::from(buffer.size),
            First::Area => buffer.area(),
            First::Life => u128::from(buffer.upper - buffer.lower),
            First::Birth => u128::from(u64::MAX - buffer.lower),
        };
        let mut order: Vec<usize> = (0..buffers.len()).filter(|&i| sizes[i] > 0).collect();
        order.sort_by_key(|&i| (Reverse(rank(&buffers[i])), buffers[i].lower, i));
        let mut offsets = vec![0_u64; buffers.len()];
        let mut placed: Vec<Placed> = Vec::with_capacity(order.len());
        for i in order {
            let (Buffer { lower, upper, .. }, size) = (buffers[i], sizes[i]);
            let mut top = 0_u64;
            let mut smallest: Option<(u64, u64)> = None;
            for other in placed.iter().filter(|other| lower < other.upper && other.lower < upper) {
                let gap = other.begin.saturating_sub(top);
                if gap >= size && smallest.is_none_or(|(least, _)| gap < least) {
                    smallest = Some((gap, top));
                }
                top = top.max(other.end);
            }
            offsets[i] = smallest.map_or(top, |(_, at)| at);
            let place = Placed { lower, upper, begin: offsets[i], end: offsets[i] + size };
            let at = placed.partition_point(|other| other.begin <= place.begin);
            placed.insert(at, place);
        }
        Planned::new(lifetimes, offsets)
    }
}

/// A buffer that has an address. They are kept by address, rising.
struct Placed {
    lower: u64,
    upper: u64,
    begin: u64,
    end: u64,
}
