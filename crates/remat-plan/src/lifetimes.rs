//! Lifetimes of buffers: the input of a planner.

use std::collections::BTreeMap;
use std::ops::Range;

use super::PlanError;

/// A block of bytes that is needed for a range of instants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// First instant of the life.
    pub lower: u64,
    /// First instant after the life, at which another buffer may use the bytes.
    pub upper: u64,
    /// Size in bytes; may be 0.
    pub size: u64,
    /// Alignment of the address in bytes, at least 1.
    pub align: u64,
    /// Colour of the buffer, any number. Buffers of different colours must not share bytes, even at
    /// different times, because ops that run in parallel may use these buffers. Planners without
    /// support for colours refuse buffers of more than one colour.
    pub colour: u32,
}

impl Buffer {
    /// Buffer alive in `lower..upper`, with alignment 1.
    #[must_use]
    pub fn new(lower: u64, upper: u64, size: u64) -> Self {
        Self { lower, upper, size, align: 1, colour: 0 }
    }

    /// Buffer alive from `first` to `last`, both included: the notation of CANN.
    #[must_use]
    pub fn closed(first: u64, last: u64, size: u64) -> Self {
        Self::new(first, last.saturating_add(1), size)
    }

    /// Sets the alignment of the address, at least 1.
    #[must_use]
    pub fn aligned(self, align: u64) -> Self {
        Self { align, ..self }
    }

    /// Whether `self` and `other` are both alive at some instant.
    #[must_use]
    pub fn meets(&self, other: &Self) -> bool {
        self.lower < other.upper && other.lower < self.upper
    }

    /// Size times the number of instants in the life.
    #[must_use]
    pub fn area(&self) -> u128 {
        u128::from(self.size) * u128::from(self.upper - self.lower)
    }
}

/// A range of instants within a buffer's life in which all or some of its bytes are not needed, so
/// that other buffers can use them. The buffer has the same address before and after the gap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The first instant of the gap.
    pub lower: u64,
    /// The first instant after the gap.
    pub upper: u64,
    /// Range of bytes that are kept during the gap, counted from the start of the buffer. The range
    /// is empty if no byte is kept.
    pub kept: Range<u64>,
}

impl Gap {
    /// Gap in which no byte of the buffer is kept.
    #[must_use]
    pub const fn new(lower: u64, upper: u64) -> Self {
        Self { lower, upper, kept: 0..0 }
    }

    /// Reason why `buffer`, whose previous gap ends at `before`, cannot have this gap; `None` if
    /// the gap is valid.
    fn fault(&self, buffer: &Buffer, before: u64) -> Option<&'static str> {
        if self.lower >= self.upper {
            Some("which is empty")
        } else if self.lower < buffer.lower || buffer.upper < self.upper {
            Some("which is not within the life of the buffer")
        } else if self.lower < before {
            Some("which overlaps another gap")
        } else if self.kept.start > self.kept.end || buffer.size < self.kept.end {
            Some("which keeps bytes that the buffer does not have")
        } else {
            None
        }
    }
}

/// A range of bytes of a buffer that takes memory for a range of instants. A buffer without gaps
/// has a single part: all its bytes for its whole life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Number of the buffer.
    pub buffer: usize,
    /// First instant of the part.
    pub lower: u64,
    /// First instant after the part.
    pub upper: u64,
    /// Offset of the first byte, counted from the start of the buffer.
    pub begin: u64,
    /// Offset of the first byte after the part.
    pub end: u64,
}

impl Part {
    /// Whether `self` and `other` both take memory at some instant.
    #[must_use]
    pub const fn meets(&self, other: &Self) -> bool {
        self.lower < other.upper && other.lower < self.upper
    }
}

/// Buffers to be placed, numbered from 0 in the order given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lifetimes {
    // Each buffer is alive for at least one instant, and has an alignment of at least 1. All sizes,
    // including the bytes that alignment may waste, add up to less than 2^64, so no address
    // overflows.
    buffers: Vec<Buffer>,
    /// Buffer -> its gaps, which are within its life, disjoint and in order of time. Buffers
    /// without gaps have no entry.
    gaps: BTreeMap<usize, Vec<Gap>>,
    /// Buffer -> address at which a search first places the buffer. Buffers without a hint have no
    /// entry.
    hints: BTreeMap<usize, u64>,
}

impl Lifetimes {
    /// Makes lifetimes of buffers, which are numbered from 0 in the given order.
    ///
    /// # Errors
    ///
    /// [`PlanError`] in these cases:
    ///
    /// - The life of a buffer does not end after it begins.
    /// - An alignment is 0.
    /// - All sizes, with the bytes that alignment may waste, add up to 2^64 bytes or more.
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
            // The size, and the bytes that may be wasted before the buffer to align it.
            let bytes = buffer.size.checked_add(buffer.align - 1);
            total = bytes.and_then(|bytes| total.checked_add(bytes)).ok_or(PlanError::TooLarge)?;
        }
        Ok(Self { buffers, ..Self::default() })
    }

    /// Sets the gaps of a buffer, given in any order. Gaps that were set before are replaced.
    ///
    /// ```
    /// use remat_plan::{Buffer, Gap, Gaps, Lifetimes, Limits, Planner};
    ///
    /// let lifetimes = Lifetimes::new([Buffer::new(0, 9, 100), Buffer::new(3, 6, 80)])?;
    /// let lifetimes = lifetimes.with_gaps(0, [Gap::new(3, 6)])?;
    /// assert_eq!(lifetimes.load(), 100);
    /// let planned = Gaps::default().plan(&lifetimes, &Limits::none())?;
    /// assert_eq!(planned.placement.offsets(), [0, 0]);
    /// # Ok::<(), remat_plan::PlanError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`PlanError::Gap`] if a gap is empty, is not within the buffer's life or overlaps another
    /// gap, or if the kept bytes are not within the buffer.
    ///
    /// # Panics
    ///
    /// If no buffer has this number.
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

    /// Sets the hint of a buffer: an address for the buffer in the first placement of a search.
    ///
    /// The first placement consists of the hints if every buffer has a hint and the hints make no two
    /// buffers overlap. In all other cases, the buffers get the lowest free addresses in the order of
    /// their hints. Planners that do not search ignore hints.
    ///
    /// # Panics
    ///
    /// If no buffer has this number.
    #[must_use]
    pub fn with_hint(mut self, number: usize, address: u64) -> Self {
        assert!(number < self.len(), "there is no buffer {number} of {}", self.len());
        self.hints.insert(number, address);
        self
    }

    /// All buffers, in the order given.
    #[must_use]
    pub fn buffers(&self) -> &[Buffer] {
        &self.buffers
    }

    /// Number of buffers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.buffers.len()
    }

    /// Whether there are no buffers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buffers.is_empty()
    }

    /// Gaps of a buffer, in order of time.
    #[must_use]
    pub fn gaps(&self, number: usize) -> &[Gap] {
        self.gaps.get(&number).map_or(&[], Vec::as_slice)
    }

    /// Whether any buffer has gaps.
    #[must_use]
    pub fn has_gaps(&self) -> bool {
        !self.gaps.is_empty()
    }

    /// Whether some gap keeps bytes: part of a buffer takes memory while the rest of the buffer
    /// does not.
    #[must_use]
    pub fn has_kept_bytes(&self) -> bool {
        self.gaps.values().flatten().any(|gap| !gap.kept.is_empty())
    }

    /// Address at which a search first places the buffer; `None` if the buffer has no hint.
    #[must_use]
    pub fn hint(&self, number: usize) -> Option<u64> {
        self.hints.get(&number).copied()
    }

    /// Whether any buffer has a hint.
    #[must_use]
    pub fn has_hints(&self) -> bool {
        !self.hints.is_empty()
    }

    /// Parts of all buffers, sorted by buffer and then by time. A buffer of size 0 has no part.
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

    /// Peak of the bytes that are needed at the same time: no placement has fewer bytes.
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

    /// Sum of the sizes of all buffers: without alignment, the size of a placement in which no
    /// buffers share bytes.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.buffers.iter().map(|buffer| buffer.size).sum()
    }

    /// Begins and ends of lives, in order of time. At each instant, all ends come before all
    /// begins. Ends and begins are each sorted by the number of the buffer. Gaps are ignored.
    #[must_use]
    pub fn changes(&self) -> Vec<Change> {
        changes(self.buffers.iter().map(|buffer| (buffer.lower, buffer.upper)))
    }
}

/// Begins and ends of parts, in the order of [`Lifetimes::changes`]. The number in a change is the
/// index in `parts`.
pub(super) fn part_changes(parts: &[Part]) -> Vec<Change> {
    changes(parts.iter().map(|part| (part.lower, part.upper)))
}

fn changes(lives: impl Iterator<Item = (u64, u64)> + Clone) -> Vec<Change> {
    let begins = lives.clone().enumerate().map(|(i, (lower, _))| (lower, Change::Alloc(i)));
    let ends = lives.enumerate().map(|(i, (_, upper))| (upper, Change::Free(i)));
    let mut changes: Vec<_> = ends.chain(begins).collect();
    // A stable sort is fast on parts that are sorted already, as the begins usually are.
    changes.sort();
    changes.into_iter().map(|(_, change)| change).collect()
}

/// Begin or end of a buffer's life, with the number of the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// The life ends: the bytes are free.
    Free(usize),
    /// The life begins.
    Alloc(usize),
}
