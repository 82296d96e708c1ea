//! Growth: taking memory region by region, as TensorFlow's allocator does.

use super::Region;

/// Length in bytes of the first region, if memory is taken as needed and the limit is at least this
/// length.
const FIRST_REGION: u64 = 2 << 20;

/// Source of the memory that an arena's offsets refer to.
pub trait RegionSource {
    /// Takes a region of at least `bytes` bytes; `bytes` is a multiple of the granularity.
    ///
    /// The source chooses the start and the number of extra bytes, both multiples of the
    /// granularity. The region must not overlap any region that the source gave and did not get
    /// back. `None` if the source has no region of this size. The pool then requests a smaller
    /// region.
    fn take(&mut self, bytes: u64) -> Option<Region>;

    /// Takes back a region: a region that the source gave, or several joined regions as one.
    fn give_back(&mut self, region: Region);

    /// Whether a block may lie across the border of two adjacent regions. By default, no block may
    /// lie across a border.
    fn may_join(&self, _below: Region, _above: Region) -> bool {
        false
    }
}

/// Growth of a [`Pool`](super::Pool). The fields have the names of TensorFlow's options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    /// Limit on the bytes of all regions together.
    pub memory_limit: u64,
    /// Whether regions are taken as needed: first 2 MiB, then twice as much each time. If `false`,
    /// the first allocation takes one region of `memory_limit` bytes.
    pub allow_growth: bool,
    /// Whether an allocation that fits nowhere may give back regions without blocks to the source,
    /// to take a larger region.
    pub garbage_collection: bool,
}

/// Sizes of the requests to a source, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grower {
    /// Size of the next request, if the limit allows that many more bytes. The size is never 0.
    next_region: u64,
    /// Limit for the doubling of `next_region`. TensorFlow has no limit on the doubling: after
    /// enough regions are taken and given back, the size of a request overflows.
    most: u64,
    granularity: u64,
}

impl Grower {
    /// Makes a grower before its first request. The first request is small with `allow_growth`, and
    /// otherwise the whole `limit`.
    pub fn new(limit: u64, allow_growth: bool, granularity: u64) -> Self {
        let first = if allow_growth { limit.min(FIRST_REGION) } else { limit };
        let next_region = first.max(1).checked_next_multiple_of(granularity).unwrap_or(limit);
        Self { next_region, most: limit.max(granularity), granularity }
    }

    /// Takes the next region, of at least `wanted` bytes, from `source`. Never requests more than
    /// `available` bytes.
    ///
    /// `wanted` and `available` must be multiples of the granularity and above 0, with
    /// `wanted <= available`. `None` if the source refuses all requests.
    ///
    /// # Panics
    /// If `source` gives fewer bytes than requested.
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

    /// Bytes of the next request.
    pub const fn next_region(&self) -> u64 {
        self.next_region
    }

    fn double(&mut self) {
        self.next_region = self.next_region.saturating_mul(2).min(self.most);
    }
}
