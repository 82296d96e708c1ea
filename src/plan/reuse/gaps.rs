//! Buffers one by one in some order, whatever their time, each in a gap between those that are placed.

use super::super::{Buffer, Lifetimes, Limits, Part, PlanError, Planned, Planner};
use super::Knows;
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
/// one. n^2 time for n buffers, of which there may be [`Gaps::LIMIT`]; where they have gaps, for the pieces into which those
/// cut them. Alignments are kept exactly, and so are gaps, with and without kept bytes; colours are refused. Weak where many
/// sizes are alike but not equal, and lives cross each other.
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

/// Which gap is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// The smallest that is large enough, of several the lowest.
    Smallest,
    /// The lowest that is large enough.
    Lowest,
}

impl Gaps {
    /// Places buffers in this order, each in the gap that it is to take.
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
                // By address already.
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

/// Buffers that are placed before it is asked again whether it is time to answer.
const LOOKS: usize = 64;

/// Where a whole buffer must not lie for the sake of a part of it.
fn obstacles<'a>(
    part: &'a Part,
    buffer: &'a Buffer,
    placed: &'a [Placed],
) -> impl Iterator<Item = (u64, u64)> + 'a {
    let meets = |it: &&Placed| part.lower < it.upper && it.lower < part.upper;
    // What the buffer has above the part may lie over what is met, and so may what it has below.
    let (above, below) = (buffer.size - part.end, part.begin);
    let obstacle = move |it: &Placed| (it.begin + above, it.end.saturating_sub(below));
    placed.iter().filter(meets).map(obstacle).filter(|&(_, end)| end > 0)
}

/// The address in a gap between what is busy, which is given by where it begins.
fn gap(busy: &[(u64, u64)], buffer: &Buffer, fit: Fit) -> u64 {
    let mut top = 0_u64;
    let mut smallest: Option<(u64, u64)> = None;
    for &(begin, end) in busy {
        let at = top.next_multiple_of(buffer.align);
        let gap = begin.saturating_sub(top);
        // An alignment may want more than there is below the next one.
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

/// Bytes that have an address. They are kept by address, rising.
struct Placed {
    lower: u64,
    upper: u64,
    begin: u64,
    end: u64,
}
