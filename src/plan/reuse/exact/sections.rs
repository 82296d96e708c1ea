//! Buffers as a search sees them: in whole units, over the largest sets of buffers that are alive at once.

use std::ops::Range;

use super::super::super::lifetimes::part_changes;
use super::super::super::{Change, Lifetimes};
use super::super::gcd;

/// A buffer that takes bytes.
#[derive(Clone, Debug)]
pub(super) struct Item {
    /// Its number in the lifetimes.
    pub buffer: usize,
    /// In units, at least 1.
    pub size: u64,
    /// In units: its address is a multiple of this.
    pub align: u64,
    /// In which sections it takes room, rising: one range, and one more for each gap. Two take room at once iff they share
    /// a section.
    pub sections: Vec<Range<usize>>,
    /// For how long it takes room.
    pub life: u64,
}

/// What is to be placed. A section is a time at which the set of live buffers is in no other such set: only there
/// buffers meet whose meeting is not known from elsewhere, and there are no more sections than buffers.
#[derive(Clone, Debug)]
pub(super) struct Sections {
    /// Bytes that divide all sizes, and so all addresses that a search comes to.
    pub unit: u64,
    /// Those that are cut off from each other: at the time between two, nothing is alive. Each counts its sections
    /// from 0.
    pub parts: Vec<Part>,
}

/// Buffers whose lives are linked to each other.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub items: Vec<Item>,
    /// How many sections there are.
    pub sections: usize,
}

impl Sections {
    pub fn new(lifetimes: &Lifetimes) -> Self {
        let buffers = lifetimes.buffers();
        let common = buffers.iter().fold(0, |common, buffer| gcd(common, buffer.size));
        // Alignments that the sizes do not keep by themselves.
        let mut unit = common;
        // Until each is a multiple of the unit, or kept by it.
        let odd = |unit: u64| {
            let mut aligns = buffers.iter().filter(|it| it.size > 0).map(|it| it.align);
            aligns.find(|&align| !unit.is_multiple_of(align) && !align.is_multiple_of(unit))
        };
        while let Some(align) = odd(unit) {
            unit = gcd(unit, align);
        }
        let times = lifetimes.parts();
        let mut left = vec![0_usize; buffers.len()];
        times.iter().for_each(|time| left[time.buffer] += 1);
        let mut parts: Vec<Part> = Vec::new();
        // Of each buffer that has begun, where it is in the last part.
        let mut places: Vec<Option<usize>> = vec![None; buffers.len()];
        // How many have begun and not ended, those in gaps included.
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
    /// Most units alive at once.
    pub fn load(&self) -> u64 {
        self.totals().into_iter().max().unwrap_or(0)
    }

    /// The units alive in each section.
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
