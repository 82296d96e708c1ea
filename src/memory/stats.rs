//! How full the arena is, and was.

use super::{Arena, Region};

/// An arena in numbers. All sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ArenaStats {
    /// In blocks, as much as they take.
    pub used: u64,
    /// In blocks, as much as was asked for, rounded up to the granularity.
    pub live: u64,
    /// In holes.
    pub free: u64,
    /// The largest hole.
    pub largest_free: u64,
    /// In regions: blocks and holes.
    pub reserved: u64,
    /// The most `used` since the start or the last [`Arena::reset_peak`], as are all peaks.
    pub peak: u64,
    /// The most `live`.
    pub peak_live: u64,
    /// The most `reserved`.
    pub peak_reserved: u64,
    /// The highest end of any block.
    pub high_water: u64,
    /// The most that one block took.
    pub largest_allocation: u64,
    /// Number of blocks.
    pub blocks: usize,
    /// Number of holes.
    pub holes: usize,
    /// Number of regions.
    pub regions: usize,
    /// Blocks ever taken.
    pub allocations: u64,
    /// Blocks ever given back.
    pub frees: u64,
    /// Blocks ever moved.
    pub moves: u64,
    /// [`Arena::fragmentation`].
    pub fragmentation: f64,
    /// [`Arena::expansion`].
    pub expansion: f64,
}

/// What is counted as it happens.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Sum of the sizes of the blocks.
    pub used: u64,
    /// The part of `used` that was not asked for, beyond rounding up to the granularity.
    pub tails: u64,
    /// Sum of the lengths of the regions.
    pub reserved: u64,
    /// Largest `used` since the start or the last reset, and so on.
    pub peak: u64,
    /// Of `used - tails`.
    pub peak_live: u64,
    pub peak_reserved: u64,
    /// Highest end of any block since then.
    pub high_water: u64,
    /// Largest block since then.
    pub largest_allocation: u64,
    pub allocations: u64,
    pub frees: u64,
    pub moves: u64,
}

impl Counts {
    /// A block was taken. New peaks are rare, so they are asked for, not computed each time.
    #[inline(always)]
    pub fn take(&mut self, size: u64, tail: u64, end: u64) {
        self.used += size;
        self.tails += tail;
        self.allocations += 1;
        let live = self.used - self.tails;
        let peak = (self.used > self.peak) | (live > self.peak_live);
        if peak | (size > self.largest_allocation) | (end > self.high_water) {
            self.raise(size, end);
        }
    }

    #[cold]
    #[inline(never)]
    fn raise(&mut self, size: u64, end: u64) {
        self.peak = self.peak.max(self.used);
        self.peak_live = self.peak_live.max(self.used - self.tails);
        self.largest_allocation = self.largest_allocation.max(size);
        self.high_water = self.high_water.max(end);
    }

    /// A block was given back.
    #[inline(always)]
    pub fn give_back(&mut self, size: u64, tail: u64) {
        self.used -= size;
        self.tails -= tail;
        self.frees += 1;
    }
}

impl Arena {
    /// All figures at once. O(1), as [`Arena::largest_free`].
    #[must_use]
    pub fn stats(&self) -> ArenaStats {
        let Counts { used, tails, reserved, peak, peak_live, peak_reserved, .. } = self.counts;
        let Counts { high_water, largest_allocation, allocations, frees, moves, .. } = self.counts;
        ArenaStats {
            used,
            live: used - tails,
            free: self.free_bytes(),
            largest_free: self.largest_free(),
            reserved,
            peak,
            peak_live,
            peak_reserved,
            high_water,
            largest_allocation,
            blocks: self.blocks(),
            holes: self.holes(),
            regions: self.regions.len(),
            allocations,
            frees,
            moves,
            fragmentation: self.fragmentation(),
            expansion: self.expansion(),
        }
    }

    /// Bytes of all regions together.
    #[must_use]
    pub const fn reserved(&self) -> u64 {
        self.counts.reserved
    }

    /// Bytes in blocks, as much as they take.
    #[must_use]
    pub const fn used(&self) -> u64 {
        self.counts.used
    }

    /// The most bytes in blocks at once, since the start or the last [`Arena::reset_peak`].
    #[must_use]
    pub const fn peak(&self) -> u64 {
        self.counts.peak
    }

    /// Bytes in holes.
    #[must_use]
    pub const fn free_bytes(&self) -> u64 {
        self.counts.reserved - self.counts.used
    }

    /// Bytes of the largest hole, 0 if there is none: what can be had in one piece. O(1), as a scan
    /// of the holes about that large.
    #[must_use]
    pub fn largest_free(&self) -> u64 {
        self.bins.largest(&self.slab).map_or(0, |hole| hole.size)
    }

    /// The highest end of any block, since the start or the last [`Arena::reset_peak`]: a region from
    /// 0 up to there would have sufficed.
    #[must_use]
    pub const fn high_water(&self) -> u64 {
        self.counts.high_water
    }

    /// How scattered the free bytes are now: `(free - largest free) / free`, the part of them that is
    /// not in the largest hole. 0 if they are one hole or none are free; close to 1 if they are in many
    /// holes alike. What a request sees that fails although the bytes are there.
    #[must_use]
    pub fn fragmentation(&self) -> f64 {
        match self.free_bytes() {
            0 => 0.0,
            free => (free - self.largest_free()) as f64 / free as f64,
        }
    }

    /// What scattering has cost so far: `peak reserved / peak live`, the most bytes that had to be set
    /// aside over the most that were asked for at once, both since the start or the last
    /// [`Arena::reset_peak`]. 1 is the least possible; what a split rule gives away with blocks counts as
    /// well. 1 as long as there was no block.
    ///
    /// Regions count as set aside up to the highest end of a block (as far as that is less), so that
    /// the figure says the same for a region that is the whole budget and for those that grow.
    #[must_use]
    pub fn expansion(&self) -> f64 {
        match self.counts.peak_live {
            0 => 1.0,
            live => self.counts.peak_reserved.min(self.counts.high_water) as f64 / live as f64,
        }
    }

    /// Starts all peaks anew from what there is now, the high water among them. O(regions).
    pub fn reset_peak(&mut self) {
        let last_end = |region: Region| {
            let (_, after) = self.fences(region.start);
            let last = &self.slab[self.slab[after].prev];
            match (last.is_used(), last.offset == region.start) {
                (true, _) => last.end(),
                (false, false) => last.offset,
                (false, true) => 0,
            }
        };
        let high_water = self.regions().map(last_end).max().unwrap_or(0);
        let counts = &mut self.counts;
        counts.peak = counts.used;
        counts.peak_live = counts.used - counts.tails;
        counts.peak_reserved = counts.reserved;
        counts.high_water = high_water;
        counts.largest_allocation = 0;
    }

    /// Number of blocks now.
    #[must_use]
    pub fn blocks(&self) -> usize {
        let walls = self.regions.len().saturating_sub(1);
        self.slab.len() - self.bins.len() - walls
    }

    /// Number of holes now.
    #[must_use]
    pub fn holes(&self) -> usize {
        self.bins.len()
    }

    /// Blocks ever taken.
    #[must_use]
    pub const fn allocations(&self) -> u64 {
        self.counts.allocations
    }

    /// Blocks ever given back.
    #[must_use]
    pub const fn frees(&self) -> u64 {
        self.counts.frees
    }

    /// Blocks ever moved.
    #[must_use]
    pub const fn moves(&self) -> u64 {
        self.counts.moves
    }
}
