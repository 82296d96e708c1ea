//! Space that only counts bytes.

use super::Held;
use crate::Block;

/// Bytes in use, and a limit.
#[derive(Clone, Copy, Debug)]
pub struct Counted {
    /// Upper bound of the limit.
    pub(super) maximum: u64,
    /// Bytes that may be in use. The limit is never below `used`.
    pub(super) limit: u64,
    pub(super) used: u64,
    pub(super) peak: u64,
    /// Number of allocations so far.
    taken: u64,
}

impl Counted {
    pub(super) const fn new(maximum: u64) -> Self {
        Self { maximum, limit: maximum, used: 0, peak: 0, taken: 0 }
    }

    #[inline]
    pub(super) fn alloc(&mut self, bytes: u64) -> Option<Held> {
        let used = self.used.checked_add(bytes).filter(|&used| used <= self.limit)?;
        self.used = used;
        self.peak = self.peak.max(used);
        self.taken += 1;
        Some(Held { bytes, block: Block::numbered(self.taken) })
    }

    #[inline]
    pub(super) const fn free(&mut self, held: Held) {
        self.used -= held.bytes;
    }

    pub(super) fn set_limit(&mut self, bytes: u64) {
        assert!(self.used <= bytes, "{} bytes are in use: more than a limit of {bytes}", self.used);
        self.limit = bytes;
    }

    pub(super) fn check(&self) {
        assert!(self.used <= self.limit && self.limit <= self.maximum, "{self:?}");
        assert!(self.used <= self.peak, "use above its peak");
    }
}
