//! Statistics of the arena: present values, and peaks since the last reset.

use super::{Arena, Region};

/// Statistics of an arena. All sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ArenaStats {
    /// Bytes that blocks take up, including bytes beyond their requests.
    pub used: u64,
    /// Bytes requested for blocks, rounded up to the granularity.
    pub live: u64,
    /// Bytes in holes.
    pub free: u64,
    /// Bytes of the largest hole.
    pub largest_free: u64,
    /// Bytes in regions: blocks and holes.
    pub reserved: u64,
    /// Maximum of `used` since the start or the last [`Arena::reset_peak`]. The other peaks are
    /// maxima since the start or the last reset, too.
    pub peak: u64,
    /// Maximum of `live`.
    pub peak_live: u64,
    /// Maximum of `reserved`.
    pub peak_reserved: u64,
    /// Highest end of any block, since the start or the last reset.
    pub high_water: u64,
    /// Bytes of the largest block, since the start or the last reset.
    pub largest_allocation: u64,
    /// Number of blocks.
    pub blocks: usize,
    /// Number of holes.
    pub holes: usize,
    /// Number of regions.
    pub regions: usize,
    /// Number of blocks ever taken. [`Arena::reset_peak`] does not reset this number.
    pub allocations: u64,
    /// Number of blocks ever freed. [`Arena::reset_peak`] does not reset this number.
    pub frees: u64,
    /// Number of blocks ever moved. [`Arena::reset_peak`] does not reset this number.
    pub moves: u64,
    /// Result of [`Arena::fragmentation`].
    pub fragmentation: f64,
    /// Result of [`Arena::expansion`].
    pub expansion: f64,
}

/// Numbers that are updated at each change of the arena.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Sum of the sizes of all blocks.
    pub used: u64,
    /// Part of `used` beyond the rounded requests: bytes that the split rule added to blocks.
    pub tails: u64,
    /// Sum of the lengths of the regions.
    pub reserved: u64,
    /// Maximum of `used` since the start or the last reset. All peaks start at the same moment.
    pub peak: u64,
    /// Maximum of `used - tails`.
    pub peak_live: u64,
    pub peak_reserved: u64,
    /// Highest end of any block since the start or the last reset.
    pub high_water: u64,
    /// Size of the largest block since the start or the last reset.
    pub largest_allocation: u64,
    pub allocations: u64,
    pub frees: u64,
    pub moves: u64,
}

impl Counts {
    /// Counts a taken block. New peaks are rare, so a peak is written only if it is exceeded.
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

    /// Counts a block that was freed.
    #[inline(always)]
    pub fn give_back(&mut self, size: u64, tail: u64) {
        self.used -= size;
        self.tails -= tail;
        self.frees += 1;
    }
}

impl Arena {
    /// All statistics. Takes as long as [`Arena::largest_free`].
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

    /// Total bytes of all regions.
    #[must_use]
    pub const fn reserved(&self) -> u64 {
        self.counts.reserved
    }

    /// Bytes that blocks take up, including bytes beyond their requests.
    #[must_use]
    pub const fn used(&self) -> u64 {
        self.counts.used
    }

    /// Most bytes in blocks at once, since the start or the last [`Arena::reset_peak`].
    #[must_use]
    pub const fn peak(&self) -> u64 {
        self.counts.peak
    }

    /// Bytes in holes.
    #[must_use]
    pub const fn free_bytes(&self) -> u64 {
        self.counts.reserved - self.counts.used
    }

    /// Bytes of the largest hole, 0 if there is none: the largest request that fits. Scans only the
    /// holes of the highest size class.
    #[must_use]
    pub fn largest_free(&self) -> u64 {
        self.bins.largest(&self.slab).map_or(0, |hole| hole.size)
    }

    /// Highest end of any block, since the start or the last [`Arena::reset_peak`]. A region from 0
    /// to this offset would have sufficed.
    #[must_use]
    pub const fn high_water(&self) -> u64 {
        self.counts.high_water
    }

    /// Part of the free bytes outside the largest hole: `(free - largest free) / free`.
    ///
    /// The fragmentation is 0 if all free bytes are one hole, or no bytes are free. The
    /// fragmentation is close to 1 if the free bytes are in many holes of the same size. A high
    /// value means that a request may fail although enough bytes are free.
    #[must_use]
    pub fn fragmentation(&self) -> f64 {
        match self.free_bytes() {
            0 => 0.0,
            free => (free - self.largest_free()) as f64 / free as f64,
        }
    }

    /// Cost of fragmentation so far: `peak reserved / peak live`, both since the start or the last
    /// [`Arena::reset_peak`].
    ///
    /// The expansion is the most bytes that had to be reserved, divided by the most bytes that were
    /// requested at once. The least possible value is 1. Bytes that a split rule adds to blocks
    /// count as reserved. The expansion is 1 if no block was taken.
    ///
    /// Reserved bytes above the highest end of a block do not count. Because bytes above the
    /// highest block do not count, an arena with one region of the whole budget can be compared
    /// with an arena that grows.
    #[must_use]
    pub fn expansion(&self) -> f64 {
        match self.counts.peak_live {
            0 => 1.0,
            live => self.counts.peak_reserved.min(self.counts.high_water) as f64 / live as f64,
        }
    }

    /// Restarts all peaks from the present values, the high water mark included. Time: O(regions).
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

    /// Number of blocks.
    #[must_use]
    pub fn blocks(&self) -> usize {
        let walls = self.regions.len().saturating_sub(1);
        self.slab.len() - self.bins.len() - walls
    }

    /// Number of holes.
    #[must_use]
    pub fn holes(&self) -> usize {
        self.bins.len()
    }

    /// Number of blocks ever taken. [`Arena::reset_peak`] does not reset this number.
    #[must_use]
    pub const fn allocations(&self) -> u64 {
        self.counts.allocations
    }

    /// Number of blocks ever freed. [`Arena::reset_peak`] does not reset this number.
    #[must_use]
    pub const fn frees(&self) -> u64 {
        self.counts.frees
    }

    /// Number of blocks ever moved. [`Arena::reset_peak`] does not reset this number.
    #[must_use]
    pub const fn moves(&self) -> u64 {
        self.counts.moves
    }
}
