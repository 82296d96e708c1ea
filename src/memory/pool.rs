//! An arena that takes its regions from a source, one after the other, as TensorFlow's allocator does.

use std::fmt;

use super::growth::Grower;
use super::{Arena, Block, Growth, RegionSource, SplitRule};

/// An [`Arena`] that takes regions from a [`RegionSource`] when a block does not fit, and gives those
/// without blocks back. Whatever does not need more memory is asked of [`Pool::arena`] itself. All
/// regions go back to the source when the pool is dropped.
///
/// When a block fits nowhere, the size of the next region is doubled until it holds the block, and
/// doubled once more after a region of the size as it was. A source that has no piece of that size is
/// asked for nine tenths of it (and at least one granule less), again and again, last for exactly the
/// block's bytes. (TensorFlow gives up when nine tenths would be less than those.)
///
/// ```
/// use remat::memory::{Growth, Pool, Region, RegionSource, SplitRule};
///
/// /// Address space that is reserved in one piece, so that regions may join.
/// struct Upward(u64);
///
/// impl RegionSource for Upward {
///     fn take(&mut self, bytes: u64) -> Option<Region> {
///         let region = Region { start: self.0, bytes };
///         self.0 += bytes;
///         Some(region)
///     }
///     fn give_back(&mut self, _: Region) {}
///     fn may_join(&self, _: Region, _: Region) -> bool {
///         true
///     }
/// }
///
/// let growth = Growth { memory_limit: 1 << 30, allow_growth: true, garbage_collection: false };
/// let mut pool = Pool::new(Upward(0), growth, 256, SplitRule::Exact);
/// let a = pool.alloc(3 << 20, 1).unwrap();
/// assert_eq!(pool.arena().reserved(), 4 << 20);
/// let b = pool.alloc(5 << 20, 2).unwrap();
/// assert_eq!((pool.arena().offset(b), pool.arena().reserved()), (3 << 20, 12 << 20));
/// pool.free(a);
/// pool.free(b);
/// assert_eq!(pool.release_free_regions(), 12 << 20);
/// ```
pub struct Pool<S: RegionSource> {
    arena: Arena,
    source: S,
    growth: Growth,
    grower: Grower,
}

impl<S: RegionSource> Pool<S> {
    /// A pool that has taken nothing yet.
    ///
    /// # Panics
    /// If `granularity` is not a power of two up to 2^31.
    #[must_use]
    pub fn new(source: S, growth: Growth, granularity: u64, split: SplitRule) -> Self {
        let arena = Arena::with_rule(0, granularity, split);
        let grower = Grower::new(growth.memory_limit, growth.allow_growth, granularity);
        Self { arena, source, growth, grower }
    }

    /// As [`Arena::alloc`], growing where that fails.
    ///
    /// # Panics
    /// As the source breaks its promises.
    #[must_use = "a block that is not kept can never be freed"]
    pub fn alloc(&mut self, bytes: u64, owner: u64) -> Option<Block> {
        self.take(bytes, |arena| arena.alloc(bytes, owner))
    }

    /// As [`Arena::alloc_high`], growing where that fails.
    ///
    /// # Panics
    /// As the source breaks its promises.
    #[must_use = "a block that is not kept can never be freed"]
    pub fn alloc_high(&mut self, bytes: u64, owner: u64) -> Option<Block> {
        self.take(bytes, |arena| arena.alloc_high(bytes, owner))
    }

    /// As [`Arena::alloc_aligned`], growing where that fails.
    ///
    /// # Panics
    /// If `alignment` is not a power of two; as the source breaks its promises.
    #[must_use = "a block that is not kept can never be freed"]
    pub fn alloc_aligned(&mut self, bytes: u64, alignment: u64, owner: u64) -> Option<Block> {
        let padding = alignment.saturating_sub(self.arena.granularity());
        let enough = bytes.max(1).saturating_add(padding);
        self.take(enough, |arena| arena.alloc_aligned(bytes, alignment, owner))
    }

    /// As [`Arena::free`]. The region stays.
    ///
    /// # Panics
    /// If `block` is stale.
    #[track_caller]
    pub fn free(&mut self, block: Block) {
        self.arena.free(block);
    }

    /// Takes one more region from the source, large enough for a block of `bytes`. Whether that was
    /// possible.
    ///
    /// # Panics
    /// If the source gives less than it was asked for, a region that overlaps another, or one that is
    /// off the granules.
    pub fn extend(&mut self, bytes: u64) -> bool {
        let granularity = self.arena.granularity();
        let Some(wanted) = self.arena.round(bytes) else { return false };
        let available = self.growth.memory_limit.saturating_sub(self.arena.reserved());
        let available = available & !(granularity - 1);
        if wanted > available {
            return false;
        }
        let Some(region) = self.grower.take(wanted, available, &mut self.source) else {
            return false;
        };
        let source = &self.source;
        self.arena.add_region(region, |below, above| source.may_join(below, above));
        true
    }

    /// Gives every region without blocks back to the source, and returns how many bytes those were.
    pub fn release_free_regions(&mut self) -> u64 {
        let free: Vec<_> = self.arena.free_regions().collect();
        for &region in &free {
            self.arena.remove_region(region);
            self.source.give_back(region);
        }
        free.iter().map(|region| region.bytes).sum()
    }

    /// The arena: for everything that looks at it.
    #[must_use]
    pub const fn arena(&self) -> &Arena {
        &self.arena
    }

    /// The arena, to place blocks in the regions there are, and to compact them.
    pub const fn arena_mut(&mut self) -> &mut Arena {
        &mut self.arena
    }

    /// Where the memory comes from.
    #[must_use]
    pub const fn source(&self) -> &S {
        &self.source
    }

    /// How it grows.
    #[must_use]
    pub const fn growth(&self) -> Growth {
        self.growth
    }

    /// Bytes the source will be asked for next, if the block fits in them and the limit lets that be.
    #[must_use]
    pub const fn next_region(&self) -> u64 {
        self.grower.next_region()
    }

    /// `alloc`, or else more memory of at least `bytes` and `alloc` again.
    fn take(&mut self, bytes: u64, alloc: impl Fn(&mut Arena) -> Option<Block>) -> Option<Block> {
        alloc(&mut self.arena).or_else(|| {
            let grown = self.extend(bytes) || (self.collect(bytes) && self.extend(bytes));
            grown.then(|| alloc(&mut self.arena)).flatten()
        })
    }

    /// Releases free regions, if that is allowed and could make room for `bytes`. Whether it did.
    fn collect(&mut self, bytes: u64) -> bool {
        let freeable: u64 = self.arena.free_regions().map(|region| region.bytes).sum();
        let held = self.arena.reserved() - freeable;
        let available = self.growth.memory_limit.saturating_sub(held);
        self.growth.garbage_collection
            && self.arena.round(bytes).is_some_and(|wanted| wanted <= available)
            && self.release_free_regions() > 0
    }
}

impl<S: RegionSource> Drop for Pool<S> {
    fn drop(&mut self) {
        for region in self.arena.regions() {
            self.source.give_back(region);
        }
    }
}

impl<S: RegionSource> fmt::Debug for Pool<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("arena", &self.arena)
            .field("growth", &self.growth)
            .field("next_region", &self.next_region())
            .finish_non_exhaustive()
    }
}
