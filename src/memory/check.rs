//! The books against themselves.

use std::collections::BTreeMap;

use super::Arena;
use super::slab::EDGE;

/// Up to this many chunks, debug builds check after every change.
const CHECK_ALWAYS: u64 = 64;

impl Arena {
    /// Goes through all the books.
    ///
    /// # Panics
    /// If they contradict each other: if the chunks do not tile the region, two holes are neighbours,
    /// the bins hold anything but the holes, or the totals are off. It would be a bug of this module.
    ///
    /// # Time complexity
    /// O(chunks * log chunks). For tests; debug builds run it by themselves, after every change or,
    /// with many chunks, after every few.
    pub fn check(&self) {
        let mut holes = BTreeMap::new();
        let (mut at, mut used, mut chunks) = (0, 0, 0);
        let (mut prev, mut index) = (EDGE, self.slab[EDGE].next);
        while index != EDGE {
            let slot = &self.slab[index];
            assert_eq!(slot.prev, prev, "link back from slot {index}");
            assert_eq!(slot.offset, at, "chunks do not tile at slot {index}");
            assert!(slot.size > 0, "slot {index} is empty");
            assert!(slot.size.is_multiple_of(self.granularity()), "size of slot {index}");
            if slot.is_used() {
                assert!(u64::from(slot.slack) <= self.granularity(), "slack of slot {index}");
                used += slot.size;
            } else {
                assert!(self.slab[prev].is_used(), "slots {prev} and {index} are both holes");
                holes.insert(index, self.slab.hole(index));
            }
            chunks += 1;
            at = slot.end();
            (prev, index) = (index, slot.next);
        }
        assert_eq!(self.slab[EDGE].prev, prev, "link back from the edge");
        assert_eq!(at, self.capacity(), "chunks end before the region does");
        assert_eq!(used, self.used(), "bytes in use");
        assert_eq!(chunks, self.slab.len(), "number of chunks");
        assert_eq!(self.blocks() as u64, self.allocations() - self.frees(), "number of blocks");
        assert!(self.used() <= self.peak(), "use above its peak");
        assert!(self.peak() <= self.high_water(), "peak above the highest end");
        self.bins.check(&holes);
    }

    /// Runs [`Arena::check`] at the end of a change, in debug builds.
    ///
    /// Up to 64 chunks, each time. Beyond, only at every n-th change, n growing with the number of
    /// chunks, so that a change costs as much as with 64 however many there are, and a test with ten
    /// thousand blocks still ends.
    #[inline]
    pub(super) fn debug_check(&self) {
        if cfg!(debug_assertions) {
            let changes = self.allocations() + self.frees() + self.moves;
            if changes.is_multiple_of((self.slab.len() as u64).div_ceil(CHECK_ALWAYS).max(1)) {
                self.check();
            }
        }
    }
}
