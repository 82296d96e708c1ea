//! Arena that takes regions one by one from a source, as TensorFlow's allocator does.

use std::fmt;

use super::growth::Grower;
use super::{Arena, Block, Growth, RegionSource, SplitRule};

/// [`Arena`] that takes regions from a [`RegionSource`] when a block does not fit, and can give
/// back regions without blocks. For all operations that take no new region, use [`Pool::arena`] and
/// [`Pool::arena_mut`]. When the pool is dropped, all regions go back to the source.
///
/// When a block fits nowhere, the size of the next region is doubled until the region can hold the
/// block. If the size did not have to be doubled for the block, it is doubled once for the
/// following region. If the source refuses a request, the next request is for nine tenths of the
/// size (at least one granule less). The last request is for exactly the block's bytes. (TensorFlow
/// gives up when nine tenths are less than the block's bytes.)
///
/// ```
/// use remat_memory::{Growth, Pool, Region, RegionSource, SplitRule};
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
    /// Makes a pool that has taken no region yet.
    ///
    /// # Panics
    /// If `granularity` is not a power of two up to 2^31.
    #[must_use]
    pub fn new(source: S, growth: Growth, granularity: u64, split: SplitRule) -> Self {
        let arena = Arena::with_rule(0, granularity, split);
        let grower = Grower::new(growth.memory_limit, growth.allow_growth, granularity);
        Self { arena, source, growth, grower }
    }

    /// Takes a block as [`Arena::alloc`] does, and takes another region if the block fits nowhere.
    ///
    /// # Panics
    /// If the source breaks its contract: see [`Pool::extend`].
    #[must_use = "a block that is not kept can never be freed"]
    pub fn alloc(&mut self, bytes: u64, owner: u64) -> Option<Block> {
        self.take(bytes, |arena| arena.alloc(bytes, owner))
    }

    /// Takes a block as [`Arena::alloc_high`] does, and takes another region if the block fits
    /// nowhere.
    ///
    /// # Panics
    /// If the source breaks its contract: see [`Pool::extend`].
    #[must_use = "a block that is not kept can never be freed"]
    pub fn alloc_high(&mut self, bytes: u64, owner: u64) -> Option<Block> {
        self.take(bytes, |arena| arena.alloc_high(bytes, owner))
    }

    /// Takes a block as [`Arena::alloc_aligned`] does, and takes another region if the block fits
    /// nowhere.
    ///
    /// # Panics
    /// If `alignment` is not a power of two, or the source breaks its contract: see
    /// [`Pool::extend`].
    #[must_use = "a block that is not kept can never be freed"]
    pub fn alloc_aligned(&mut self, bytes: u64, alignment: u64, owner: u64) -> Option<Block> {
        let padding = alignment.saturating_sub(self.arena.granularity());
        let enough = bytes.max(1).saturating_add(padding);
        self.take(enough, |arena| arena.alloc_aligned(bytes, alignment, owner))
    }

    /// Frees a block as [`Arena::free`] does. The pool keeps the region of the block.
    ///
    /// # Panics
    /// Panics if `block` has already been freed.
    #[track_caller]
    pub fn free(&mut self, block: Block) {
        self.arena.free(block);
    }

    /// Takes one more region from the source, large enough for a block of `bytes` bytes. Returns
    /// whether the pool took a region.
    ///
    /// # Panics
    /// If the source gives fewer bytes than requested, a region that overlaps another, or a region
    /// that is not a whole number of granules.
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

    /// Gives every region without blocks back to the source, and returns their total bytes.
    pub fn release_free_regions(&mut self) -> u64 {
        let free: Vec<_> = self.arena.free_regions().collect();
        for &region in &free {
            self.arena.remove_region(region);
            self.source.give_back(region);
        }
        free.iter().map(|region| region.bytes).sum()
    }

    /// Arena, for read access.
    #[must_use]
    pub const fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Arena, to place blocks in the present regions and to compact these blocks.
    pub const fn arena_mut(&mut self) -> &mut Arena {
        &mut self.arena
    }

    /// Source of the memory.
    #[must_use]
    pub const fn source(&self) -> &S {
        &self.source
    }

    /// Rules of growth.
    #[must_use]
    pub const fn growth(&self) -> Growth {
        self.growth
    }

    /// Bytes of the next request to the source. The request is larger if the block needs more
    /// bytes, and smaller if the limit allows fewer.
    #[must_use]
    pub const fn next_region(&self) -> u64 {
        self.grower.next_region()
    }

    /// Calls `alloc`; on failure, takes at least `bytes` more bytes and calls `alloc` again.
    fn take(&mut self, bytes: u64, alloc: impl Fn(&mut Arena) -> Option<Block>) -> Option<Block> {
        alloc(&mut self.arena).or_else(|| {
            let grown = self.extend(bytes) || (self.collect(bytes) && self.extend(bytes));
            grown.then(|| alloc(&mut self.arena)).flatten()
        })
    }

    /// Releases regions without blocks, if the rules of growth allow it and a region for `bytes`
    /// bytes could then be taken. Returns whether a region was released.
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
