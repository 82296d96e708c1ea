//! Buffers as a search sees them: in whole units, over the largest sets of buffers that are alive at once.

use std::ops::Range;

use super::super::super::{Change, Lifetimes};

/// A buffer that takes bytes.
#[derive(Clone, Debug)]
pub(super) struct Item {
    /// Its number in the lifetimes.
    pub buffer: usize,
    /// In units, at least 1.
    pub size: u64,
    /// In units: its address is a multiple of this.
    pub align: u64,
    /// In which sections it is alive. Two are alive at once iff they share a section.
    pub sections: Range<usize>,
    /// How long it lives.
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
        let unit = buffers.iter().filter(|buffer| buffer.size > 0).fold(common, |unit, buffer| {
            if common.is_multiple_of(buffer.align) { unit } else { gcd(unit, buffer.align) }
        });
        let mut parts: Vec<Part> = Vec::new();
        // Of each buffer that is alive, where it is in the last part.
        let mut places = vec![0; buffers.len()];
        let mut alive = 0;
        let mut ended = false;
        for change in lifetimes.changes() {
            match change {
                Change::Alloc(i) if buffers[i].size > 0 => {
                    if alive == 0 {
                        parts.push(Part { items: Vec::new(), sections: 1 });
                    }
                    let Some(part) = parts.last_mut() else { continue };
                    if alive > 0 && ended {
                        part.sections += 1;
                    }
                    (alive, ended) = (alive + 1, false);
                    places[i] = part.items.len();
                    part.items.push(Item {
                        buffer: i,
                        size: buffers[i].size / unit,
                        align: (buffers[i].align / unit).max(1),
                        sections: part.sections - 1..part.sections,
                        life: buffers[i].upper - buffers[i].lower,
                    });
                }
                Change::Free(i) if buffers[i].size > 0 => {
                    let Some(part) = parts.last_mut() else { continue };
                    part.items[places[i]].sections.end = part.sections;
                    (alive, ended) = (alive - 1, true);
                }
                _ => {}
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
            totals[item.sections.clone()].iter_mut().for_each(|total| *total += item.size);
        }
        totals
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
