//! Regions: the ranges of offsets that chunks tile, and the walls between them.
//!
//! A wall is a slot of 0 bytes that counts as used, so that holes never merge across a wall. The
//! chunks of all regions are in one ring and one set of bins, so the code that takes and frees
//! blocks ignores regions.

use super::Arena;
use super::slab::EDGE;

/// Range of offsets in which an arena may hand out blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Region {
    /// Offset of the first byte, a multiple of the granularity.
    pub start: u64,
    /// Length, a multiple of the granularity.
    pub bytes: u64,
}

impl Region {
    /// Offset just past the last byte.
    #[must_use]
    pub const fn end(self) -> u64 {
        self.start + self.bytes
    }
}

/// Region, and the slot before its first chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fenced {
    pub region: Region,
    /// Slot before the region's first chunk: a wall, or [`EDGE`] for the first region. The slot
    /// after the region's last chunk is the next region's wall, or `EDGE`.
    pub wall: u32,
}

impl Arena {
    /// Regions, lowest first. An arena outside a [`Pool`](super::Pool) has one region, which starts
    /// at offset 0.
    pub fn regions(&self) -> impl ExactSizeIterator<Item = Region> + '_ {
        self.regions.iter().map(|fenced| fenced.region)
    }

    /// Regions without blocks. Time: O(regions).
    pub fn free_regions(&self) -> impl Iterator<Item = Region> + '_ {
        self.regions.iter().filter(|fenced| self.is_free(fenced)).map(|fenced| fenced.region)
    }

    fn is_free(&self, fenced: &Fenced) -> bool {
        let first = &self.slab[self.slab[fenced.wall].next];
        !first.is_used() && first.size == fenced.region.bytes
    }

    /// Adds a region without blocks. If the new region touches another region and
    /// `may_join(lower, upper)` holds, the two regions become one. If `may_join` does not hold, no
    /// hole ever crosses the border between the two regions.
    ///
    /// # Panics
    /// If the region is empty, overlaps another, or is not a whole number of granules.
    ///
    /// # Time complexity
    /// Time: O(regions).
    pub(super) fn add_region(&mut self, region: Region, may_join: impl Fn(Region, Region) -> bool) {
        let Region { start, bytes } = region;
        let on_granules = (start | bytes).is_multiple_of(self.granularity());
        assert!(
            bytes > 0 && on_granules && start.checked_add(bytes).is_some(),
            "{region:?} is empty, endless, or off the granules of {} bytes",
            self.granularity()
        );
        let at = self.regions.partition_point(|fenced| fenced.region.start < start);
        let below = at.checked_sub(1).map(|i| self.regions[i].region);
        let above = self.regions.get(at).map(|fenced| fenced.region);
        let clear = below.is_none_or(|below| below.end() <= start)
            && above.is_none_or(|above| region.end() <= above.start);
        assert!(clear, "{region:?} overlaps {below:?} or {above:?}");

        if let (0, Some(above)) = (at, above) {
            // The region above was the first region, and the first region has no wall before it.
            self.regions[0].wall = self.build_wall(self.slab[EDGE].next, above.start);
        }
        let next = self.regions.get(at).map_or(EDGE, |fenced| fenced.wall);
        let wall = if at > 0 { self.build_wall(next, start) } else { EDGE };
        let chunk = self.slab.insert_before(next, start, bytes);
        self.regions.insert(at, Fenced { region, wall });
        if above.is_some_and(|above| region.end() == above.start && may_join(region, above)) {
            self.unite_with_below(at + 1);
        }
        if below.is_some_and(|below| below.end() == start && may_join(below, region)) {
            self.unite_with_below(at);
        }

        let longest = self.regions().map(|region| region.bytes).max().unwrap_or(0);
        self.bins.make_room(longest);
        self.join(chunk);
        self.counts.reserved += bytes;
        self.counts.peak_reserved = self.counts.peak_reserved.max(self.counts.reserved);
        self.debug_check();
    }

    /// Removes a region.
    ///
    /// # Panics
    /// If the arena has no such region, or a block is in it.
    pub(super) fn remove_region(&mut self, region: Region) {
        let at = self.regions.iter().position(|fenced| fenced.region == region);
        let at = at.unwrap_or_else(|| panic!("{region:?} is not a region of this arena"));
        assert!(self.is_free(&self.regions[at]), "{region:?} has blocks");
        let first = self.slab[self.regions[at].wall].next;
        self.bins.remove(self.slab.hole(first), &mut self.slab);
        self.slab.remove(first);
        let Fenced { wall, .. } = self.regions.remove(at);
        if wall != EDGE {
            self.fell_wall(wall);
        } else if let Some(first) = self.regions.first_mut() {
            let wall = std::mem::replace(&mut first.wall, EDGE);
            self.fell_wall(wall);
        }
        self.counts.reserved -= region.bytes;
        self.debug_check();
    }

    /// Slots before the first and after the last chunk of the region that contains `offset`. Time:
    /// O(log regions).
    pub(super) fn fences(&self, offset: u64) -> (u32, u32) {
        let after = self.regions.partition_point(|fenced| fenced.region.start <= offset);
        let next = self.regions.get(after).map_or(EDGE, |fenced| fenced.wall);
        (self.regions[after - 1].wall, next)
    }

    /// Joins region `at` and the region below into one region. The caller must merge the holes at
    /// the border.
    fn unite_with_below(&mut self, at: usize) {
        let Fenced { region, wall } = self.regions.remove(at);
        self.regions[at - 1].region.bytes += region.bytes;
        self.fell_wall(wall);
    }

    fn build_wall(&mut self, next: u32, offset: u64) -> u32 {
        let wall = self.slab.insert_before(next, offset, 0);
        self.slab.flip(wall);
        wall
    }

    fn fell_wall(&mut self, wall: u32) {
        self.slab.flip(wall);
        self.slab.remove(wall);
    }
}
