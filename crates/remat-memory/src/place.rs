//! Methods that choose where a block lies: on one side of the largest hole, at an offset, or at a
//! multiple of an alignment.

use super::{Arena, Block};

/// End of an arena, at which [`Arena::alloc_apart`] places a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// Towards offset 0.
    Low,
    /// Towards the last offset.
    High,
}

impl Arena {
    /// Takes a block as [`Arena::alloc`] does, but from the high end of the hole. The hole may lie
    /// anywhere in the arena. To keep two kinds of blocks apart, use [`Arena::alloc_apart`].
    #[must_use = "a block that is not kept can never be freed"]
    pub fn alloc_high(&mut self, bytes: u64, owner: u64) -> Option<Block> {
        let size = self.round(bytes)?;
        let hole = self.bins.fit(size, &self.slab)?;
        let size = self.split.taken(size, hole.size);
        Some(self.occupy(hole, hole.end() - size, size, bytes, owner))
    }

    /// Takes a block on one side of the *gap*, which is the largest hole (on a tie, the lowest).
    /// The block is taken from the best fit among the holes on the `end` side of the gap. If no
    /// hole on the `end` side of the gap is large enough, the block is taken from the `end` of the
    /// gap itself. `None` if the gap is also too small.
    ///
    /// Use this method for two kinds of blocks, such as cheap and expensive, or short- and
    /// long-lived. Each kind of block gets its own end of the arena. The two kinds of blocks stay
    /// apart as long as the gap between them is the largest hole.
    ///
    /// ```text
    /// | cheap | hole | cheap |        the gap        | dear | hole | dear |
    ///           Low: 1st        Low: 2nd   High: 2nd          High: 1st
    /// ```
    ///
    /// # Time complexity
    /// Time: O(number of holes of at least the block's size) if all of them, except for the gap,
    /// lie on the opposite side. If a hole on the `end` side of the gap is large enough, the search
    /// reads a few bins. ([`Arena::alloc`] reads one or two bins.)
    #[must_use = "a block that is not kept can never be freed"]
    pub fn alloc_apart(&mut self, bytes: u64, end: End, owner: u64) -> Option<Block> {
        let size = self.round(bytes)?;
        let gap = self.bins.largest(&self.slab)?.offset;
        let hole = self.bins.fit_where(size, &self.slab, |hole| match end {
            End::Low => hole.offset <= gap,
            End::High => hole.offset >= gap,
        })?;
        let size = self.split.taken(size, hole.size);
        let offset = match end {
            End::Low => hole.offset,
            End::High => hole.end() - size,
        };
        Some(self.occupy(hole, offset, size, bytes, owner))
    }

    /// Takes a block whose offset is a multiple of `alignment`. The block lies in the smallest hole
    /// that can hold it, at the lowest aligned offset in that hole. The bytes before the block stay
    /// a hole.
    ///
    /// Only the offset is aligned. The address of the block is aligned only if the address of
    /// offset 0 is aligned, too.
    ///
    /// # Panics
    /// If `alignment` is not a power of two.
    ///
    /// # Time complexity
    /// An alignment up to the granularity has no effect: the method does what [`Arena::alloc`]
    /// does. Time for a larger alignment: O(holes of `bytes` to `bytes + alignment` bytes).
    #[must_use = "a block that is not kept can never be freed"]
    pub fn alloc_aligned(&mut self, bytes: u64, alignment: u64, owner: u64) -> Option<Block> {
        assert!(alignment.is_power_of_two(), "alignment {alignment} is not a power of two");
        if alignment <= self.granularity() {
            return self.alloc(bytes, owner);
        }
        let size = self.round(bytes)?;
        let hole = self.bins.fit_where(size, &self.slab, |hole| {
            let start = hole.offset.checked_next_multiple_of(alignment);
            start.is_some_and(|start| start < hole.end() && hole.end() - start >= size)
        })?;
        let start = hole.offset.next_multiple_of(alignment);
        let size = self.split.taken(size, hole.end() - start);
        Some(self.occupy(hole, start, size, bytes, owner))
    }

    /// Takes a block that starts at `offset`, which a plan may have chosen. Under any split rule,
    /// the block takes no more than its rounded request. `None` if some bytes of the block are not
    /// free, or the block would reach past the end of a region.
    ///
    /// # Panics
    /// If `offset` is not a multiple of the granularity.
    ///
    /// # Time complexity
    /// Time: O(holes of at least the block's size), because there is no index by address.
    #[must_use = "a block that is not kept can never be freed"]
    pub fn alloc_at(&mut self, offset: u64, bytes: u64, owner: u64) -> Option<Block> {
        let granularity = self.granularity();
        assert!(
            offset.is_multiple_of(granularity),
            "offset {offset} is not a multiple of the granularity, {granularity}"
        );
        let size = self.round(bytes)?;
        let hole = self.bins.around(offset, size, &self.slab)?;
        Some(self.occupy(hole, offset, size, bytes, owner))
    }
}
