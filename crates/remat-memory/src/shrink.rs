//! Changes to the upper end of a region.

use std::cmp::{Ordering, Reverse};

use super::bin::Hole;
use super::compact::{add_hole, fill, pack};
use super::slab::EDGE;
use super::{Arena, Chunk, Move, Region};

impl Arena {
    /// Moves the end of the only region to `bytes`, rounded down to the granularity. Added bytes
    /// are free.
    ///
    /// # Panics
    /// If there is more than one region, or the region does not start at 0, or a block is above
    /// `bytes`.
    ///
    /// # Time complexity
    /// Time: O(log holes), in practice O(1).
    pub(super) fn resize(&mut self, bytes: u64) {
        let bytes = bytes & !(self.granularity() - 1);
        let one = self.regions.iter().map(|fenced| fenced.region.start).eq([0]);
        assert!(one || self.regions.is_empty(), "only an arena of one region is resized");
        let now = self.reserved();
        match bytes.cmp(&now) {
            Ordering::Greater => {
                self.add_region(Region { start: now, bytes: bytes - now }, |_, _| true);
            }
            Ordering::Less => self.cut_off(bytes),
            Ordering::Equal => {}
        }
    }

    /// Removes all bytes at and above `bytes`, a multiple of the granularity.
    fn cut_off(&mut self, bytes: u64) {
        let last = self.slab[EDGE].prev;
        assert!(self.top_hole() >= self.reserved() - bytes, "a block is above {bytes} bytes");
        let hole = self.slab.hole(last);
        if hole.offset < bytes {
            let rest = Hole { size: bytes - hole.offset, ..hole };
            self.bins.update(hole, rest, &mut self.slab);
            self.slab[last].size = rest.size;
        } else {
            self.bins.remove(hole, &mut self.slab);
            self.slab.remove(last);
        }
        self.counts.reserved = bytes;
        if bytes > 0 {
            self.regions[0].region.bytes = bytes;
        } else {
            self.regions.clear();
        }
        self.debug_check();
    }

    /// Bytes of the hole at the upper end; 0 if a block ends there.
    pub(super) fn top_hole(&self) -> u64 {
        let last = &self.slab[self.slab[EDGE].prev];
        if last.is_used() { 0 } else { last.size }
    }

    /// Plans the cheapest moves found that empty everything at and above `bytes`.
    ///
    /// The caller must carry out the moves one by one in the order of the list. The list is empty
    /// if no block lies at or above `bytes`. `None` if the blocks need more than `bytes` bytes.
    ///
    /// The cost of a plan is the number of bytes copied. The first plan is the cheapest plan that
    /// packs some block and all blocks above it downwards. The second plan moves only the blocks
    /// above `bytes`: the largest first, each into the best fit among the holes below. The second
    /// plan is chosen if it exists and copies fewer bytes.
    ///
    /// # Time complexity
    /// Time: O(chunks * log chunks), plus O(holes) for each block that the second plan moves.
    pub(super) fn plan_shrink(&self, bytes: u64) -> Option<Vec<Move>> {
        let bytes = bytes & !(self.granularity() - 1);
        if self.used() > bytes {
            return None;
        }
        if self.reserved() <= bytes {
            return Some(Vec::new());
        }
        let cost = |moves: &[Move]| moves.iter().map(|m| m.bytes).sum::<u64>();
        let slide = self.slide_below(bytes);
        match self.evacuate_above(bytes) {
            Some(moves) if cost(&moves) < cost(&slide) => Some(moves),
            _ => Some(slide),
        }
    }

    /// Packs all blocks above a hole downwards. The hole is the highest hole for which the packed
    /// blocks end at or below `bytes`. The hole exists, because all blocks together fit, and some
    /// block is above `bytes`.
    fn slide_below(&self, bytes: u64) -> Vec<Move> {
        let mut chunks = self.chunks();
        // Bytes of the blocks that the loop has passed.
        let mut above = 0;
        while let Some(chunk) = chunks.next_back() {
            if !chunk.is_free() {
                above += chunk.size;
            } else if chunk.offset + above <= bytes {
                return pack(self.chunks().skip(chunks.count() + 1), chunk.offset);
            }
        }
        unreachable!("no hole, and more in use than the {bytes} bytes asked about")
    }

    /// Moves the blocks that end above `bytes` into holes below `bytes`; `None` if some block fits
    /// into none of these holes.
    fn evacuate_above(&self, bytes: u64) -> Option<Vec<Move>> {
        let mut holes = Vec::new();
        let mut above = Vec::new();
        // The block that begins below `bytes` and ends above, if any, and the start of the free
        // bytes before this block.
        let mut across: Option<(Chunk, u64)> = None;
        let mut free_from = 0;
        for chunk in self.chunks() {
            if chunk.is_free() {
                if chunk.offset < bytes {
                    free_from = chunk.offset;
                    holes.push((chunk.size.min(bytes - chunk.offset), chunk.offset));
                }
                continue;
            }
            if chunk.offset >= bytes {
                above.push(chunk);
            } else if chunk.end() > bytes {
                across = Some((chunk, free_from));
            } else {
                free_from = chunk.end();
            }
        }
        holes.sort_unstable();
        let mut moves = Vec::new();
        if let Some((chunk, start)) = across {
            // The block across the new end may move down over its own bytes. The old bytes of this
            // block below the new end are then free.
            holes.retain(|&(_, offset)| offset != start);
            add_hole(&mut holes, (bytes - start, start));
            moves.extend(chunk.moved_to(fill(&mut holes, chunk.size)?));
        }
        above.sort_by_key(|chunk| Reverse(chunk.size));
        for chunk in above {
            moves.extend(chunk.moved_to(fill(&mut holes, chunk.size)?));
        }
        Some(moves)
    }
}
