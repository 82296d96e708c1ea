//! Consistency checks of the arena.

use std::collections::BTreeMap;

use super::Arena;
use super::slab::EDGE;
use super::stats::Counts;

/// Number of chunks up to which debug builds check the arena after every change.
const CHECK_ALWAYS: u64 = 64;

impl Arena {
    /// Checks all records of the arena.
    ///
    /// # Panics
    /// If records contradict each other, which is a bug of this crate:
    ///
    /// - The chunks do not tile the regions.
    /// - Two holes are neighbours.
    /// - The bins do not hold exactly the holes.
    /// - The totals are wrong.
    ///
    /// # Time complexity
    /// Time: O(chunks * log chunks). Debug builds run this check after every change or, with many
    /// chunks, after every few changes.
    pub fn check(&self) {
        let mut holes = BTreeMap::new();
        let mut sums = Counts::default();
        let mut slots = 0;
        let (mut prev, mut index) = (EDGE, self.slab[EDGE].next);
        for (i, fenced) in self.regions.iter().enumerate() {
            let region = fenced.region;
            assert_eq!(fenced.wall, prev, "the slot before {region:?}");
            let below = i.checked_sub(1).map(|i| self.regions[i].region);
            assert!(below.is_none_or(|below| below.end() <= region.start), "{region:?} overlaps");
            let mut at = region.start;
            while !self.slab[index].is_barrier() {
                let slot = &self.slab[index];
                assert_eq!(slot.prev, prev, "link back from slot {index}");
                assert_eq!(slot.offset, at, "chunks do not tile at slot {index}");
                assert!(slot.size.is_multiple_of(self.granularity()), "size of slot {index}");
                if slot.is_used() {
                    let requested = self.slab.note(index).requested;
                    let live = self.round(requested).expect("it fits in the block");
                    let taken = self.split.taken(live, slot.size);
                    assert_eq!(taken, slot.size, "what slot {index} takes");
                    assert_eq!(self.tail(slot), slot.size - live, "tail of slot {index}");
                    sums.take(slot.size, slot.size - live, slot.end());
                } else {
                    assert!(self.slab[prev].is_used(), "slots {prev} and {index} are both holes");
                    holes.insert(index, self.slab.hole(index));
                }
                slots += 1;
                at = slot.end();
                (prev, index) = (index, slot.next);
            }
            assert_eq!(at, region.end(), "chunks end elsewhere than {region:?} does");
            if index != EDGE {
                let wall = &self.slab[index];
                assert!(wall.is_used() && wall.prev == prev, "wall in slot {index}");
                slots += 1;
                (prev, index) = (index, wall.next);
            }
            sums.reserved += region.bytes;
        }
        assert_eq!(index, EDGE, "chunks after the last region");
        assert_eq!(self.slab[EDGE].prev, prev, "link back from the edge");
        let counts = &self.counts;
        assert_eq!(slots, self.slab.len(), "number of chunks and walls");
        assert_eq!(sums.used, counts.used, "bytes in use");
        assert_eq!(sums.tails, counts.tails, "bytes not asked for");
        assert_eq!(sums.reserved, counts.reserved, "bytes of all regions");
        assert_eq!(self.blocks() as u64, counts.allocations - counts.frees, "number of blocks");
        assert_eq!(self.blocks() as u64, sums.allocations, "number of blocks");
        assert!(counts.used <= counts.peak, "use above its peak");
        assert!(counts.used - counts.tails <= counts.peak_live, "live bytes above their peak");
        assert!(counts.reserved <= counts.peak_reserved, "regions above their peak");
        assert!(sums.high_water <= counts.high_water, "a block above the highest end");
        self.bins.check(&holes, &self.slab);
    }

    /// Runs [`Arena::check`] at the end of a change, in debug builds.
    ///
    /// Up to 64 chunks, the check runs after each change. With more chunks, the check runs after
    /// every n-th change, and n grows with the number of chunks. Checking every n-th change keeps a
    /// change about as fast as with 64 chunks, so that tests with ten thousand blocks stay fast.
    #[inline]
    pub(super) fn debug_check(&self) {
        if cfg!(debug_assertions) {
            let changes = self.counts.allocations + self.counts.frees + self.counts.moves;
            if changes.is_multiple_of((self.slab.len() as u64).div_ceil(CHECK_ALWAYS).max(1)) {
                self.check();
            }
        }
    }
}
