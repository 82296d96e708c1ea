//! Input of a search: sizes in units of several bytes, and times as sections.

use std::ops::Range;

use super::super::gcd;
use crate::lifetimes::part_changes;
use crate::{Change, Lifetimes};

/// A buffer of at least one byte.
#[derive(Clone, Debug)]
pub(super) struct Item {
    /// Number of the buffer in the lifetimes.
    pub buffer: usize,
    /// Size in units, at least 1.
    pub size: u64,
    /// Alignment of the address in units.
    pub align: u64,
    /// Ranges of sections in which the buffer takes memory, in rising order: one range for each
    /// piece into which gaps cut its life. Two buffers take memory at the same time iff they share
    /// a section.
    pub sections: Vec<Range<usize>>,
    /// Number of instants at which the buffer takes memory.
    pub life: u64,
}

/// Buffers to be placed, divided into parts. Time is divided into sections: a new section begins
/// whenever a piece of a buffer begins after another piece has ended. Every section therefore has
/// an instant at which all its buffers take memory. There are at most as many sections as pieces of
/// buffers.
#[derive(Clone, Debug)]
pub(super) struct Sections {
    /// Bytes in a unit. All sizes and all addresses that a search finds are multiples of a unit.
    pub unit: u64,
    /// Parts in order of time. No buffer is alive in two parts. Each part numbers its sections from
    /// 0.
    pub parts: Vec<Part>,
}

/// Buffers that are linked in time: at each instant from the first begin to the last end, at least
/// one of these buffers is alive.
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
        // The common divisor of all sizes is the first candidate for the unit.
        let mut unit = common;
        // The unit shrinks until every alignment is a divisor or a multiple of the unit.
        let odd = |unit: u64| {
            let mut aligns = buffers.iter().filter(|it| it.size > 0).map(|it| it.align);
            aligns.find(|&align| !unit.is_multiple_of(align) && !align.is_multiple_of(unit))
        };
        while let Some(align) = odd(unit) {
            unit = gcd(unit, align);
        }
        // A new section begins when a piece of a buffer begins after another piece has ended. A new
        // part begins when no buffer is open.
        let times = lifetimes.parts();
        let mut left = vec![0_usize; buffers.len()];
        times.iter().for_each(|time| left[time.buffer] += 1);
        let mut parts: Vec<Part> = Vec::new();
        // Buffer that has begun -> its position in the last part.
        let mut places: Vec<Option<usize>> = vec![None; buffers.len()];
        // Number of open buffers, which have begun and not ended. A buffer in a gap is open.
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
    /// Peak of the units in use at the same time.
    pub fn load(&self) -> u64 {
        self.totals().into_iter().max().unwrap_or(0)
    }

    /// Section -> units of all buffers that take memory in the section.
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
