//! Input of a search: sizes in whole units, and times as maximal sets of live buffers.

use std::ops::Range;

use super::super::super::lifetimes::part_changes;
use super::super::super::{Change, Lifetimes};
use super::super::gcd;

/// A buffer with at least a byte.
#[derive(Clone, Debug)]
pub(super) struct Item {
    /// Number of the buffer in the lifetimes.
    pub buffer: usize,
    /// Size in units, at least 1.
    pub size: u64,
    /// Alignment of the address in units.
    pub align: u64,
    /// Ranges of sections in which the buffer takes room, in rising order. There is one range more
    /// than the buffer has gaps. Two buffers take room at once iff they share a section.
    pub sections: Vec<Range<usize>>,
    /// Length of time with room taken.
    pub life: u64,
}

/// Buffers to be placed, by parts. A section is a time whose set of live buffers is contained in no
/// other time's set. Other times add no meetings of buffers, and there are at most as many sections
/// as buffers.
#[derive(Clone, Debug)]
pub(super) struct Sections {
    /// Bytes in a unit: a divisor of all sizes, and so of all addresses that a search finds.
    pub unit: u64,
    /// Parts that are cut off from each other: nothing is alive between them. Each part numbers its
    /// sections from 0.
    pub parts: Vec<Part>,
}

/// Buffers whose lives are linked to each other.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub items: Vec<Item>,
    /// Number of sections.
    pub sections: usize,
}

impl Sections {
    pub fn new(lifetimes: &Lifetimes) -> Self {
        let buffers = lifetimes.buffers();
        let common = buffers.iter().fold(0, |common, buffer| gcd(common, buffer.size));
        // The unit also has to keep alignments.
        let mut unit = common;
        // The unit shrinks until every alignment divides it, or is a multiple of it.
        let odd = |unit: u64| {
            let mut aligns = buffers.iter().filter(|it| it.size > 0).map(|it| it.align);
            aligns.find(|&align| !unit.is_multiple_of(align) && !align.is_multiple_of(unit))
        };
        while let Some(align) = odd(unit) {
            unit = gcd(unit, align);
        }
        // A new section begins at the first begin of a life after an end; a new part begins when no
        // buffer is open.
        let times = lifetimes.parts();
        let mut left = vec![0_usize; buffers.len()];
        times.iter().for_each(|time| left[time.buffer] += 1);
        let mut parts: Vec<Part> = Vec::new();
        // Buffer that has begun -> its position in the last part.
        let mut places: Vec<Option<usize>> = vec![None; buffers.len()];
        // Number of buffers that have begun and not ended, including buffers in a gap.
        let mut open = 0;
        let mut ended = false;
        for change in part_changes(&times) {
            match change {
                Change::Alloc(time) => {
                    let (lower, upper, buffer) =
                        (times[time].lower, times[time].upper, times[time].buffer);
                    if open == 0 {
                        parts.push(Part { items: Vec::new(), sections: 1 });
                    }
                    let Some(part) = parts.last_mut() else { continue };
                    if open > 0 && ended {
                        part.sections += 1;
                    }
                    ended = false;
                    let place = *places[buffer].get_or_insert_with(|| {
                        open += 1;
                        part.items.push(Item {
                            buffer,
                            size: buffers[buffer].size / unit,
                            align: (buffers[buffer].align / unit).max(1),
                            sections: Vec::with_capacity(1),
                            life: 0,
                        });
                        part.items.len() - 1
                    });
                    part.items[place].sections.push(part.sections - 1..part.sections);
                    part.items[place].life += upper - lower;
                }
                Change::Free(time) => {
                    let buffer = times[time].buffer;
                    let (Some(part), Some(place)) = (parts.last_mut(), places[buffer]) else {
                        continue;
                    };
                    if let Some(last) = part.items[place].sections.last_mut() {
                        last.end = part.sections;
                    }
                    left[buffer] -= 1;
                    open -= usize::from(left[buffer] == 0);
                    ended = true;
                }
            }
        }
        Self { unit: unit.max(1), parts }
    }
}

impl Part {
    /// Peak of the units alive at once.
    pub fn load(&self) -> u64 {
        self.totals().into_iter().max().unwrap_or(0)
    }

    /// Section -> units alive.
    pub fn totals(&self) -> Vec<u64> {
        let mut totals = vec![0; self.sections];
        for item in &self.items {
            for sections in &item.sections {
                totals[sections.clone()].iter_mut().for_each(|total| *total += item.size);
            }
        }
        totals
    }
}
