//! Growth: taking memory region by region, as TensorFlow's allocator does.

use super::Region;

/// Length of the first region in bytes where memory is taken as needed, unless the limit is lower.
const FIRST_REGION: u64 = 2 << 20;

/// Source of the memory for which an arena's offsets stand.
pub trait RegionSource {
    /// Takes at least `bytes` bytes, a multiple of the granularity.
    ///
    /// The source chooses the start and the number of extra bytes, both multiples of the
    /// granularity. The region must not overlap any region that the source gave and did not get
    /// back. `None` if the source has no region of this size; it is then asked for a smaller one.
    fn take(&mut self, bytes: u64) -> Option<Region>;

    /// Takes back a region: one that the source gave, or several that it gave and allowed to join,
    /// as one region.
    fn give_back(&mut self, region: Region);

    /// Whether a block may lie across the seam of two adjacent regions. By default no block may.
    fn may_join(&self, _below: Region, _above: Region) -> bool {
        false
    }
}

/// Growth of a [`Pool`](super::Pool). The names are those of TensorFlow's options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    /// Limit on the bytes of all regions together.
    pub memory_limit: u64,
    /// Whether regions are taken as needed: first 2 MiB, then each time twice as much. If not, the
    /// first allocation takes one region of the limit.
    pub allow_growth: bool,
    /// Whether an allocation that fits nowhere may give back regions without blocks to the source,
    /// to take a larger region.
    pub garbage_collection: bool,
}

/// Sizes of the requests to a source, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grower {
    /// Size of the next request, if the rest of the limit allows it. Never 0.
    next_region: u64,
    /// Limit for the doubling of `next_region`. In TensorFlow, which has no such limit, the size
    /// overflows when regions come and go for long.
    most: u64,
    granularity: u64,
}

impl Grower {
    /// Makes a grower that has asked for nothing yet. The first request is small with
    /// `allow_growth`, and otherwise the whole `limit`.
    pub fn new(limit: u64, allow_growth: bool, granularity: u64) -> Self {
        let first = if allow_growth { limit.min(FIRST_REGION) } else { limit };
        let next_region = first.max(1).checked_next_multiple_of(granularity).unwrap_or(limit);
        Self { next_region, most: limit.max(granularity), granularity }
    }

    /// Takes the next region from `source`: at least `wanted` bytes. Never asks for more than
    /// `available` bytes.
    ///
    /// Both numbers must be multiples of the granularity and above 0, with `wanted <= available`.
    /// `None` if the source has no such region.
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
