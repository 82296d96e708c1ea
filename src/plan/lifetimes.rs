//! Which buffers are alive when: what a planner is given.

use std::collections::BTreeMap;
use std::ops::Range;

use super::PlanError;

/// Bytes that are wanted for some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// The first instant at which it is alive.
    pub lower: u64,
    /// The first instant after, at which another may have its bytes: lives are half open.
    pub upper: u64,
    /// In bytes. May be 0.
    pub size: u64,
    /// Its address must be a multiple of this, at least 1.
    pub align: u64,
    /// Buffers of different colours must not share bytes even at different times: they may be in use by ops that run in
    /// parallel. Planners that know no colours refuse more than one.
    pub colour: u32,
}

impl Buffer {
    /// Alive in `lower..upper`, with no wish for its address.
    #[must_use]
    pub fn new(lower: u64, upper: u64, size: u64) -> Self {
        Self { lower, upper, size, align: 1, colour: 0 }
    }

    /// Alive from when it is made to its last reader, both included, as CANN counts.
    #[must_use]
    pub fn closed(first: u64, last: u64, size: u64) -> Self {
        Self::new(first, last.saturating_add(1), size)
    }

    /// Its address is to be a multiple of `align`, at least 1.
    #[must_use]
    pub fn aligned(self, align: u64) -> Self {
        Self { align, ..self }
    }

    /// Whether both are alive at some instant.
    #[must_use]
    pub fn meets(&self, other: &Self) -> bool {
        self.lower < other.upper && other.lower < self.upper
    }

    /// Its size times how long it lives.
    #[must_use]
    pub fn area(&self) -> u128 {
        u128::from(self.size) * u128::from(self.upper - self.lower)
    }
}

/// A time within a buffer's life in which it takes no room, or only some of its bytes do. Its address stays the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The first instant of the gap.
    pub lower: u64,
    /// The first instant after the gap.
    pub upper: u64,
    /// Which of the buffer's bytes take room meanwhile, counted from its start. None of them if it is empty.
    pub kept: Range<u64>,
}

impl Gap {
    /// No room in `lower..upper`.
    #[must_use]
    pub const fn new(lower: u64, upper: u64) -> Self {
        Self { lower, upper, kept: 0..0 }
    }

    /// Why a buffer cannot have it after one that ends at `before`.
    fn fault(&self, buffer: &Buffer, before: u64) -> Option<&'static str> {
        if self.lower >= self.upper {
            Some("which is no time at all")
        } else if self.lower < buffer.lower || buffer.upper < self.upper {
            Some("which is not within its life")
        } else if self.lower < before {
            Some("and another one meanwhile")
        } else if self.kept.start > self.kept.end || buffer.size < self.kept.end {
            Some("in which it keeps bytes that it has not")
        } else {
            None
        }
    }
}

/// Bytes of a buffer that take room for some time: all of them for all its life, where it has no gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Number of the buffer.
    pub buffer: usize,
    /// The first instant.
    pub lower: u64,
    /// The first instant after.
    pub upper: u64,
    /// The first of the buffer's bytes.
    pub begin: u64,
    /// The first of them after.
    pub end: u64,
}

impl Part {
    /// Whether both take room at some instant.
    #[must_use]
    pub const fn meets(&self, other: &Self) -> bool {
        self.lower < other.upper && other.lower < self.upper
    }
}

/// Buffers to be placed, numbered from 0 in the order given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lifetimes {
    // Each alive for at least an instant, aligned to 1 or more; all sizes with what their alignment may cost add up to less
    // than 2^64, so that no address overflows.
    buffers: Vec<Buffer>,
    /// Buffer -> its gaps, if there are any: within its life, apart from each other, in order of time.
    gaps: BTreeMap<usize, Vec<Gap>>,
    /// Buffer -> where a search begins to look for it, if that is said.
    hints: BTreeMap<usize, u64>,
}

impl Lifetimes {
    /// # Errors
    ///
    /// A buffer that ends before it begins or is never alive, or whose alignment is 0; sizes that add up to 2^64 bytes or
    /// more.
    pub fn new(buffers: impl IntoIterator<Item = Buffer>) -> Result<Self, PlanError> {
        let buffers: Vec<_> = buffers.into_iter().collect();
        let mut total = 0_u64;
        for (number, buffer) in buffers.iter().enumerate() {
            if buffer.lower >= buffer.upper {
                return Err(PlanError::NeverAlive {
                    number,
                    lower: buffer.lower,
                    upper: buffer.upper,
                });
            }
            if buffer.align == 0 {
                return Err(PlanError::Alignment { number, align: buffer.align });
            }
            // Its bytes, and those lost before it to bring it to its address.
            let bytes = buffer.size.checked_add(buffer.align - 1);
            total = bytes.and_then(|bytes| total.checked_add(bytes)).ok_or(PlanError::TooLarge)?;
        }
        Ok(Self { buffers, ..Self::default() })
    }

    /// A buffer has these gaps, in any order, and no others.
    ///
    /// ```
    /// use remat::plan::{Buffer, Gap, Gaps, Lifetimes, Limits, Planner};
    ///
    /// let lifetimes = Lifetimes::new([Buffer::new(0, 9, 100), Buffer::new(3, 6, 80)])?;
    /// let lifetimes = lifetimes.with_gaps(0, [Gap::new(3, 6)])?;
    /// assert_eq!(lifetimes.load(), 100);
    /// let planned = Gaps::default().plan(&lifetimes, &Limits::none())?;
    /// assert_eq!(planned.placement.offsets(), [0, 0]);
    /// # Ok::<(), remat::plan::PlanError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// A gap that is no time, or not within the buffer's life, or meets another one; kept bytes that are not the buffer's.
    ///
    /// # Panics
    ///
    /// If there is no buffer of that number.
    pub fn with_gaps(
        mut self,
        number: usize,
        gaps: impl IntoIterator<Item = Gap>,
    ) -> Result<Self, PlanError> {
        let buffer = self.buffers[number];
        let mut gaps: Vec<Gap> = gaps.into_iter().collect();
        gaps.sort_by_key(|gap| (gap.lower, gap.upper));
        let mut before = 0;
        for gap in &gaps {
            if let Some(why) = gap.fault(&buffer, before) {
                return Err(PlanError::Gap { number, lower: gap.lower, upper: gap.upper, why });
            }
            before = gap.upper;
        }
        match gaps.is_empty() {
            true => self.gaps.remove(&number),
            false => self.gaps.insert(number, gaps),
        };
        Ok(self)
    }

    /// A search begins with a buffer at this address, or as low as it can be put there. Others do not look at it.
    ///
    /// # Panics
    ///
    /// If there is no buffer of that number.
    #[must_use]
    pub fn with_hint(mut self, number: usize, address: u64) -> Self {
        assert!(number < self.len(), "there is no buffer {number} of {}", self.len());
        self.hints.insert(number, address);
        self
    }

    /// All of them.
    #[must_use]
    pub fn buffers(&self) -> &[Buffer] {
        &self.buffers
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.buffers.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buffers.is_empty()
    }

    /// The gaps of a buffer, in order of time.
    #[must_use]
    pub fn gaps(&self, number: usize) -> &[Gap] {
        self.gaps.get(&number).map_or(&[], Vec::as_slice)
    }

    /// Whether any buffer has gaps.
    #[must_use]
    pub fn has_gaps(&self) -> bool {
        !self.gaps.is_empty()
    }

    /// Whether some bytes of a buffer take room while others do not.
    #[must_use]
    pub fn has_kept_bytes(&self) -> bool {
        self.gaps.values().flatten().any(|gap| !gap.kept.is_empty())
    }

    /// Where a search begins to look for a buffer, if that is said.
    #[must_use]
    pub fn hint(&self, number: usize) -> Option<u64> {
        self.hints.get(&number).copied()
    }

    /// Whether that is said of any buffer.
    #[must_use]
    pub fn has_hints(&self) -> bool {
        !self.hints.is_empty()
    }

    /// All that takes room, and when: by buffer and then by time. Buffers of no bytes have no part.
    #[must_use]
    pub fn parts(&self) -> Vec<Part> {
        let mut parts = Vec::with_capacity(self.buffers.len());
        for (number, &Buffer { lower, upper, size, .. }) in self.buffers.iter().enumerate() {
            let mut add = |lower, upper, begin, end| {
                if lower < upper && begin < end {
                    parts.push(Part { buffer: number, lower, upper, begin, end });
                }
            };
            let mut now = lower;
            for gap in self.gaps(number) {
                add(now, gap.lower, 0, size);
                add(gap.lower, gap.upper, gap.kept.start, gap.kept.end);
                now = gap.upper;
            }
            add(now, upper, 0, size);
        }
        parts
    }

    /// Most bytes that take room at once: no placement takes less.
    #[must_use]
    pub fn load(&self) -> u64 {
        let parts = self.parts();
        let bytes = |part: usize| parts[part].end - parts[part].begin;
        let (mut most, mut held) = (0, 0);
        for change in part_changes(&parts) {
            match change {
                Change::Free(part) => held -= bytes(part),
                Change::Alloc(part) => {
                    held += bytes(part);
                    most = most.max(held);
                }
            }
        }
        most
    }

    /// Bytes of all buffers together: what they take without reuse.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.buffers.iter().map(|buffer| buffer.size).sum()
    }

    /// What happens, in order of time: at each instant first those that end, then those that begin, each in the order of
    /// their numbers. A gap is neither.
    #[must_use]
    pub fn changes(&self) -> Vec<Change> {
        changes(self.buffers.iter().map(|buffer| (buffer.lower, buffer.upper)))
    }
}

/// Begins and ends of parts, as [`Lifetimes::changes`] has them of buffers.
pub(super) fn part_changes(parts: &[Part]) -> Vec<Change> {
    changes(parts.iter().map(|part| (part.lower, part.upper)))
}

fn changes(lives: impl Iterator<Item = (u64, u64)> + Clone) -> Vec<Change> {
    let begins = lives.clone().enumerate().map(|(i, (lower, _))| (lower, Change::Alloc(i)));
    let ends = lives.enumerate().map(|(i, (_, upper))| (upper, Change::Free(i)));
    let mut changes: Vec<_> = ends.chain(begins).collect();
    changes.sort_unstable();
    changes.into_iter().map(|(_, change)| change).collect()
}

/// A buffer, by its number, begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// It is alive no longer.
    Free(usize),
    /// It is alive from now on.
    Alloc(usize),
}
