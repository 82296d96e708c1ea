//! Arena whose upper end moves with the limit, and with the memory that the device gave.

use super::Held;
use crate::growth::Grower;
use crate::{Arena, Region, RegionSource, SplitRule};

/// Space in which storages have addresses, in one region from 0 up. All sizes are in bytes.
#[derive(Debug)]
pub struct Placed {
    /// Arena that tiles `0..min(taken, limit)`, rounded down to the granularity.
    pub(super) arena: Arena,
    /// Upper bound of the limit.
    pub(super) maximum: u64,
    pub(super) limit: u64,
    /// End of the memory that is present: `0..taken`.
    pub(super) taken: u64,
    /// Computes the sizes of requests for more memory; `None` if all memory is present from the
    /// start.
    pub(super) grower: Option<Grower>,
    /// End of the memory that the device can give: `taken` after a refusal, `u64::MAX` before.
    pub(super) ceiling: u64,
}

impl Placed {
    pub(super) fn new(maximum: u64, granularity: u64, split: SplitRule, grows: bool) -> Self {
        let taken = if grows { 0 } else { maximum };
        Self {
            arena: Arena::with_rule(taken, granularity, split),
            maximum,
            limit: maximum,
            taken,
            grower: grows.then(|| Grower::new(maximum, true, granularity)),
            ceiling: u64::MAX,
        }
    }

    #[inline]
    pub(super) fn alloc(&mut self, bytes: u64, owner: u64) -> Option<Held> {
        let block = self.arena.alloc(bytes, owner)?;
        Some(Held { bytes: self.arena.size(block), block })
    }

    pub(super) fn alloc_at(&mut self, offset: u64, bytes: u64, owner: u64) -> Option<Held> {
        let block = self.arena.alloc_at(offset, bytes, owner)?;
        Some(Held { bytes: self.arena.size(block), block })
    }

    /// Bytes that may be in use, including bytes that are not taken from the device yet.
    pub(super) const fn capacity(&self) -> u64 {
        let bytes = if self.limit < self.ceiling { self.limit } else { self.ceiling };
        bytes & !(self.arena.granularity() - 1)
    }

    /// Part of the capacity that is not taken yet.
    const fn growable(&self) -> u64 {
        self.capacity() - self.arena.reserved()
    }

    pub(super) fn largest_free(&self) -> u64 {
        let top = match self.growable() {
            0 => 0,
            growable => self.arena.top_hole() + growable,
        };
        self.arena.largest_free().max(top)
    }

    pub(super) fn set_limit(&mut self, bytes: u64) {
        self.limit = bytes;
        self.ask_again();
        self.arena.resize(self.limit.min(self.taken));
    }

    pub(super) fn grow(&mut self, bytes: u64, source: &mut impl RegionSource) -> bool {
        let available = self.growable();
        let Some(size) = self.arena.round(bytes) else { return false };
        let wanted = size.saturating_sub(self.arena.top_hole()).min(available);
        let Some(grower) = self.grower.as_mut().filter(|_| wanted > 0) else { return false };
        let granule = self.arena.granularity();
        let whole = grower.take(wanted, available, source);
        let refused = whole.is_none();
        // All memory that the device has left is taken before the engine evicts anything, even if
        // the block does not fit into that memory.
        let mut least = || grower.take(granule, wanted - granule, source);
        let region = if refused && wanted > granule { least() } else { whole };
        if let Some(region) = region {
            assert_eq!(region.start, self.taken, "{region:?} starts elsewhere than memory ended");
            self.taken = region.end();
            self.arena.resize(self.limit.min(self.taken));
        }
        if refused {
            self.ceiling = self.taken;
        }
        region.is_some()
    }

    pub(super) fn trim(&mut self, source: &mut impl RegionSource) -> u64 {
        if self.grower.is_none() {
            return 0;
        }
        let start = self.arena.reserved() - self.arena.top_hole();
        let bytes = self.taken - start;
        if bytes > 0 {
            self.arena.resize(start);
            self.taken = start;
            self.ask_again();
            source.give_back(Region { start, bytes });
        }
        bytes
    }

    pub(super) const fn ask_again(&mut self) {
        self.ceiling = u64::MAX;
    }

    pub(super) fn check(&self) {
        self.arena.check();
        assert!(self.limit <= self.maximum, "the limit is above the maximum");
        let granule = self.arena.granularity();
        let reserved = self.limit.min(self.taken) & !(granule - 1);
        assert_eq!(self.arena.reserved(), reserved, "the arena ends where it may not");
        assert!(reserved <= self.capacity(), "more was taken than there is to be had");
    }
}
