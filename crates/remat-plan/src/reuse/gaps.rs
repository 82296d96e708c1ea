//! Greedy planner: places buffers one by one in a fixed order, each in a gap between placed
//! buffers.

use super::Knows;
use crate::{Buffer, Lifetimes, Limits, Part, PlanError, Planned, Planner};
use std::cmp::Reverse;

/// Order in which buffers are placed. On a tie, the buffer that begins earlier is first, then the
/// buffer with the lower number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum First {
    /// Largest size first.
    #[default]
    Size,
    /// Largest product of size and length of life first.
    Area,
    /// Longest life first.
    Life,
    /// Earliest begin first.
    Birth,
}

/// `gaps-size`, `gaps-area`, `gaps-life`, `gaps-birth`: puts each buffer into the smallest gap
/// between the buffers already placed that are alive at the same time. The lowest gap wins a tie.
/// If no gap is large enough, the buffer lies above all buffers that are alive at the same time.
///
/// `gaps-size` is the greedy planner of TFLite (Pisarchyk and Lee, 2020) and XLA's spatial
/// heuristic; `gaps-life` is XLA's temporal heuristic. Time: O(n^2) for n buffers. If gaps cut the
/// lives of buffers, n is the number of pieces. n is at most [`Gaps::LIMIT`]. Sizes are not rounded
/// up for alignment. The planner supports gaps and bytes kept in gaps, but not colours. The planner
/// is weak if many sizes are similar but not equal, and if lives overlap without one containing the
/// other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gaps {
    /// Order in which buffers are placed.
    pub first: First,
}

impl Gaps {
    /// Limit on the number of buffers, and on the number of pieces into which gaps cut the lives of
    /// buffers.
    pub const LIMIT: usize = 30_000;
    /// The four planners, one for each order.
    pub const ALL: [Self; 4] = [
        Self::by(First::Size),
        Self::by(First::Area),
        Self::by(First::Life),
        Self::by(First::Birth),
    ];

    /// Planner that places buffers in this order.
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

    fn plan(&self, lifetimes: &Lifetimes, limits: &Limits) -> Result<Planned, PlanError> {
        let buffers = lifetimes.buffers();
        let rank = |buffer: &Buffer| match self.first {
            First::Size => u128::from(buffer.size),
            First::Area => buffer.area(),
            First::Life => u128::from(buffer.upper - buffer.lower),
            First::Birth => u128::from(u64::MAX - buffer.lower),
        };
        let mut order: Vec<usize> = (0..buffers.len()).collect();
        order.sort_by_key(|&i| (Reverse(rank(&buffers[i])), buffers[i].lower, i));
        self.place(lifetimes, &order, |_| Fit::Smallest, limits)
    }
}

/// Rule for the choice among the gaps between placed buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// The smallest gap that is large enough; the lowest one on a tie.
    Smallest,
    /// The lowest gap that is large enough.
    Lowest,
}

impl Gaps {
    /// Places buffers in this order. `fit` chooses the gap for each buffer.
    pub(super) fn place(
        &self,
        lifetimes: &Lifetimes,
        order: &[usize],
        fit: impl Fn(usize) -> Fit,
        limits: &Limits,
    ) -> Result<Planned, PlanError> {
        Knows::KeptBytes.check(self, lifetimes)?;
        let (buffers, limit) = (lifetimes.buffers(), Self::LIMIT);
        if buffers.len() > limit {
            let (planner, buffers) = (self.name(), buffers.len());
            return Err(PlanError::TooMany { planner, limit, buffers });
        }
        let parts = lifetimes.parts();
        if parts.len() > limit {
            let (planner, pieces) = (self.name(), parts.len());
            return Err(PlanError::TooManyPieces { planner, limit, pieces });
        }
        let mut offsets = vec![0_u64; buffers.len()];
        let mut placed: Vec<Placed> = Vec::with_capacity(parts.len());
        let mut busy: Vec<(u64, u64)> = Vec::new();
        for (count, &i) in order.iter().enumerate() {
            if count % LOOKS == LOOKS - 1 && limits.over() {
                let quicker = "pushdown or best-fit";
                return Err(PlanError::TooLong { planner: self.name(), quicker });
            }
            let first = parts.partition_point(|part| part.buffer < i);
            let own = &parts[first..];
            let own = &own[..own.partition_point(|part| part.buffer == i)];
            busy.clear();
            match own {
                [] => continue,
                // The buffer has no gaps in its life. The obstacles of a buffer without gaps are
                // already sorted by address, because `placed` is sorted.
                [Part { lower, upper, .. }] if lifetimes.gaps(i).is_empty() => {
                    let meets = |it: &&Placed| *lower < it.upper && it.lower < *upper;
                    busy.extend(placed.iter().filter(meets).map(|it| (it.begin, it.end)));
                }
                own => {
                    busy.extend(own.iter().flat_map(|part| obstacles(part, &buffers[i], &placed)));
                    busy.sort_unstable();
                }
            }
            offsets[i] = gap(&busy, &buffers[i], fit(i));
            for &Part { lower, upper, begin, end, .. } in own {
                let (begin, end) = (offsets[i] + begin, offsets[i] + end);
                let at = placed.partition_point(|other| other.begin <= begin);
                placed.insert(at, Placed { lower, upper, begin, end });
            }
        }
        Planned::new(lifetimes, offsets)
    }
}

/// Number of buffers that are placed between two checks of the time limit.
const LOOKS: usize = 64;

/// Ranges of addresses that the buffer must not overlap. If the buffer avoids these ranges, its
/// part `part` overlaps no placed part.
fn obstacles<'a>(
    part: &'a Part,
    buffer: &'a Buffer,
    placed: &'a [Placed],
) -> impl Iterator<Item = (u64, u64)> + 'a {
    let meets = |it: &&Placed| part.lower < it.upper && it.lower < part.upper;
    // Only `part` must not overlap the placed part; the bytes of the buffer above and below `part`
    // may overlap it. The obstacle is therefore smaller than the placed part by the bytes above and
    // below `part`.
    let (above, below) = (buffer.size - part.end, part.begin);
    let obstacle = move |it: &Placed| (it.begin + above, it.end.saturating_sub(below));
    placed.iter().filter(meets).map(obstacle).filter(|&(_, end)| end > 0)
}

/// Address for a buffer in a gap between busy ranges, chosen by `fit`, or above all busy ranges.
/// `busy` is sorted by the begins of the ranges.
fn gap(busy: &[(u64, u64)], buffer: &Buffer, fit: Fit) -> u64 {
    let mut top = 0_u64;
    let mut smallest: Option<(u64, u64)> = None;
    for &(begin, end) in busy {
        let at = top.next_multiple_of(buffer.align);
        let gap = begin.saturating_sub(top);
        // Alignment may need more bytes than the gap has.
        let fits = begin >= at && begin - at >= buffer.size;
        if fits && smallest.is_none_or(|(least, _)| gap < least) {
            smallest = Some((gap, at));
            if fit == Fit::Lowest {
                break;
            }
        }
        top = top.max(end);
    }
    smallest.map_or_else(|| top.next_multiple_of(buffer.align), |(_, at)| at)
}

/// A placed part: bytes `begin..end` during the time `lower..upper`. Lists of placed parts are
/// sorted by `begin`.
struct Placed {
    lower: u64,
    upper: u64,
    begin: u64,
    end: u64,
}
