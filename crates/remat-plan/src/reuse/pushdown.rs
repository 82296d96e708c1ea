//! MegEngine's pushdown: first decides which buffers lie above which, then gives each buffer the
//! lowest address that this order allows.

use std::collections::BTreeSet;

use super::{Knows, rounded};
use crate::{Change, Lifetimes, Limits, PlanError, Planned, Planner};

/// `pushdown`: arranges buffers in a row of blocks without addresses, and then gives all buffers
/// their lowest addresses.
///
/// In order of time, each buffer takes the smallest free block that is large enough. If no free
/// block is large enough, the largest free block grows. If no block is free, a new block is added
/// at the end of the row. The row gives each buffer a neighbour below and a neighbour above. At the
/// end, each buffer gets the lowest address that the buffers below it allow.
///
/// Source: MegEngine's static memory planning (`PUSHDOWN`, its default). Time: O(n log n) for n
/// buffers. The planner is weak on few buffers of very different sizes, for which a search is
/// better. The planner supports neither gaps nor colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pushdown;

impl Planner for Pushdown {
    fn name(&self) -> String {
        "pushdown".to_owned()
    }

    fn plan(&self, lifetimes: &Lifetimes, _limits: &Limits) -> Result<Planned, PlanError> {
        Knows::NoGaps.check(self, lifetimes)?;
        let sizes = rounded(lifetimes)?;
        let mut row = Row::default();
        let mut blocks = vec![NONE; sizes.len()];
        // Pairs of buffers, the first of which lies below the second.
        let mut below = Vec::new();
        for change in lifetimes.changes() {
            match change {
                Change::Alloc(i) if sizes[i] > 0 => {
                    blocks[i] = row.take(i, sizes[i]);
                    let (low, high) = row.neighbours(blocks[i]);
                    below.extend(low.map(|low| (low, i)));
                    below.extend(high.map(|high| (i, high)));
                }
                Change::Free(i) if sizes[i] > 0 => row.give(blocks[i]),
                _ => {}
            }
        }
        Planned::new(lifetimes, lowest(&sizes, &below))
    }
}

/// Lowest address of each buffer that is above the ends of all buffers that must lie below it.
fn lowest(sizes: &[u64], below: &[(usize, usize)]) -> Vec<u64> {
    // The buffers that must lie above buffer `i` are `above[starts[i]..starts[i + 1]]`.
    let mut starts = vec![0; sizes.len() + 1];
    let mut waits = vec![0_usize; sizes.len()];
    for &(low, high) in below {
        starts[low + 1] += 1;
        waits[high] += 1;
    }
    for i in 0..sizes.len() {
        starts[i + 1] += starts[i];
    }
    let mut next = starts.clone();
    let mut above = vec![0; below.len()];
    for &(low, high) in below {
        above[next[low]] = high;
        next[low] += 1;
    }
    let mut offsets = vec![0_u64; sizes.len()];
    let mut ready: Vec<usize> = (0..sizes.len()).filter(|&i| waits[i] == 0).collect();
    while let Some(low) = ready.pop() {
        let end = offsets[low] + sizes[low];
        for &high in &above[starts[low]..starts[low + 1]] {
            offsets[high] = offsets[high].max(end);
            waits[high] -= 1;
            if waits[high] == 0 {
                ready.push(high);
            }
        }
    }
    offsets
}

const NONE: usize = usize::MAX;

/// A block of the row.
#[derive(Clone, Copy, Debug)]
struct Segment {
    size: u64,
    /// Buffer in the block; `NONE` if the block is free.
    buffer: usize,
    prev: usize,
    next: usize,
}

/// A row of blocks, linked from low to high. No two free blocks are neighbours.
#[derive(Debug, Default)]
struct Row {
    blocks: Vec<Segment>,
    /// Free blocks by size.
    free: BTreeSet<(u64, usize)>,
    /// Indices in `blocks` that are unused, because their blocks were joined to others.
    spare: Vec<usize>,
    first: Option<usize>,
    last: Option<usize>,
}

impl Row {
    /// Puts a buffer into the row, and returns its block.
    fn take(&mut self, buffer: usize, size: u64) -> usize {
        let fits = self.free.range((size, 0)..).next().copied();
        let Some((found, block)) = fits.or_else(|| self.free.last().copied()) else {
            let last = self.last.unwrap_or(NONE);
            return self.insert_after(last, size, buffer);
        };
        self.free.remove(&(found, block));
        (self.blocks[block].size, self.blocks[block].buffer) = (size, buffer);
        if found > size {
            let rest = self.insert_after(block, found - size, NONE);
            self.free.insert((found - size, rest));
        }
        block
    }

    /// Frees a block, and joins it to its free neighbours.
    fn give(&mut self, block: usize) {
        let Segment { mut size, prev, next, .. } = self.blocks[block];
        for beside in [prev, next] {
            if beside != NONE && self.blocks[beside].buffer == NONE {
                size += self.blocks[beside].size;
                self.remove(beside);
            }
        }
        (self.blocks[block].size, self.blocks[block].buffer) = (size, NONE);
        self.free.insert((size, block));
    }

    /// Buffers in the nearest used blocks below and above a block.
    fn neighbours(&self, block: usize) -> (Option<usize>, Option<usize>) {
        let buffer =
            |block: usize| Some(self.blocks.get(block)?.buffer).filter(|&buffer| buffer != NONE);
        // If a neighbour is free, it is skipped: the block after it has a buffer, because two free
        // blocks are never neighbours.
        let Segment { prev, next, .. } = self.blocks[block];
        let beyond = |beside: usize, further: fn(&Segment) -> usize| {
            buffer(beside).or_else(|| buffer(further(self.blocks.get(beside)?)))
        };
        (beyond(prev, |block| block.prev), beyond(next, |block| block.next))
    }

    /// Inserts a block above `prev`; at the low end if `prev` is `NONE`.
    fn insert_after(&mut self, prev: usize, size: u64, buffer: usize) -> usize {
        let next = match prev {
            NONE => self.first.unwrap_or(NONE),
            prev => self.blocks[prev].next,
        };
        let block = Segment { size, buffer, prev, next };
        let index = match self.spare.pop() {
            Some(index) => {
                self.blocks[index] = block;
                index
            }
            None => {
                self.blocks.push(block);
                self.blocks.len() - 1
            }
        };
        self.link(prev, index);
        self.link(index, next);
        index
    }

    /// Removes a free block from the row.
    fn remove(&mut self, block: usize) {
        let Segment { size, prev, next, .. } = self.blocks[block];
        self.free.remove(&(size, block));
        self.link(prev, next);
        self.spare.push(block);
    }

    /// Makes two blocks neighbours.
    fn link(&mut self, low: usize, high: usize) {
        match low {
            NONE => self.first = Some(high).filter(|&high| high != NONE),
            low => self.blocks[low].next = high,
        }
        match high {
            NONE => self.last = Some(low).filter(|&low| low != NONE),
            high => self.blocks[high].prev = low,
        }
    }
}
