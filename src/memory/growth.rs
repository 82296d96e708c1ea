//! Taking memory region by region, as TensorFlow's allocator does: how much to ask for next.

use super::Region;

/// The first region where memory is taken as needed, in bytes, unless the limit is below.
const FIRST_REGION: u64 = 2 << 20;

/// Where the memory behind offsets comes from.
pub trait RegionSource {
    /// Takes at least `bytes` bytes, a multiple of the granularity. Where they start, and how many
    /// more there are, is up to the source, in multiples of the granularity; they must not overlap
    /// what it gave before and did not get back. `None` if it has no such piece; it is then asked
    /// for less.
    fn take(&mut self, bytes: u64) -> Option<Region>;

    /// Takes a region back: one that it gave, or several that it let join.
    fn give_back(&mut self, region: Region);

    /// Whether a block may lie across the seam of two regions, the first of which ends where the
    /// second starts. By default no block may.
    fn may_join(&self, _below: Region, _above: Region) -> bool {
        false
    }
}

/// How a [`Pool`](super::Pool) grows. The names are those of TensorFlow's options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    /// The source is never asked for more than this many bytes in all.
    pub memory_limit: u64,
    /// Whether regions are taken as needed: first 2 MiB, then each time twice as much. If not, the
    /// first allocation takes one region of the limit.
    pub allow_growth: bool,
    /// Whether an allocation that fits nowhere may give regions without blocks back to the source, to
    /// take a larger one.
    pub garbage_collection: bool,
}

/// How much to ask a source for. All sizes in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grower {
    /// To ask for next, if what is left of the limit lets that be. Never 0.
    next_region: u64,
    /// `next_region` doubles up to this: TensorFlow's overflows when regions come and go for long.
    most: u64,
    granularity: u64,
}

impl Grower {
    /// Has asked for nothing yet. With `allow_growth` it begins small, else with all of `limit`.
    pub fn new(limit: u64, allow_growth: bool, granularity: u64) -> Self {
        let first = if allow_growth { limit.min(FIRST_REGION) } else { limit };
        let next_region = first.max(1).checked_next_multiple_of(granularity).unwrap_or(limit);
        Self { next_region, most: limit.max(granularity), granularity }
    }

    /// Takes the next region from `source`: of at least `wanted` bytes, and asking for no more than `available`.
    /// Both are multiples of the granularity above 0, and `wanted` is no more than `available`. `None` if the
    /// source has no such piece.
    ///
    /// # Panics
    /// If `source` gives less than it was asked for.
    pub fn take(
        &mut self,
        wanted: u64,
        available: u64,
        source: &mut impl RegionSource,
    ) -> Option<Region> {
        let too_small = wanted > self.next_region;
        while wanted > self.next_region {
            self.double();
        }
        let mut asked = self.next_region.min(available);
        let region = loop {
            if let Some(region) = source.take(asked) {
                break region;
            }
            if asked == wanted {
                return None;
            }
            let nine_tenths = (asked - asked / 10).next_multiple_of(self.granularity);
            asked = nine_tenths.min(asked - self.granularity).max(wanted);
        };
        assert!(region.bytes >= asked, "asked for {asked} bytes, the source gave {region:?}");
        if !too_small {
            self.double();
        }
        Some(region)
    }

    /// Bytes to ask for next.
    pub const fn next_region(&self) -> u64 {
        self.next_region
    }

    fn double(&mut self) {
        self.next_region = self.next_region.saturating_mul(2).min(self.most);
    }
}
