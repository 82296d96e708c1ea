//! `GraphAllocator`: the allocator of storages.

use std::collections::BTreeMap;

/// A block of bytes that several entries use one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageEntry {
    /// Device of the bytes.
    pub device: u32,
    /// Size of the largest entry, in bytes.
    pub bytes: u64,
}

/// Allocator of storages.
#[derive(Debug)]
pub(super) struct Allocator {
    // Factor by which a free storage may be larger or smaller than the request. With 0, no storage
    // is reused.
    range: u64,
    storages: Vec<StorageEntry>,
    // Device and colour -> free storages, by bytes and then by the number of the release. NNVM
    // scans all free storages and skips other devices and colours; separate maps give the same
    // results.
    free: BTreeMap<(u32, u32), BTreeMap<(u64, u64), usize>>,
    releases: u64,
}

impl Allocator {
    pub fn new(range: u64) -> Self {
        Self { range, storages: Vec::new(), free: BTreeMap::new(), releases: 0 }
    }

    /// Requests a storage of at least `bytes` bytes.
    ///
    /// Candidates are the free storages of this device and colour that are at most `range` times
    /// larger or smaller. The smallest candidate that is large enough is taken; on a tie, the
    /// candidate that has been free for longest. If no candidate is large enough, the largest
    /// candidate grows to `bytes`; on a tie, the candidate released last. If there is no candidate,
    /// a new storage is made.
    pub fn request(&mut self, device: u32, colour: u32, bytes: u64) -> usize {
        let found = self.free.get_mut(&(device, colour)).and_then(|free| {
            let least = bytes.checked_div(self.range)?;
            let most = bytes.saturating_mul(self.range);
            let larger = free.range((bytes, 0)..=(most, u64::MAX)).next();
            let smaller = || free.range((least, 0)..(bytes, 0)).next_back();
            let (&key, _) = larger.or_else(smaller)?;
            free.remove(&key)
        });
        if let Some(storage) = found {
            let size = &mut self.storages[storage].bytes;
            *size = bytes.max(*size);
            return storage;
        }
        self.storages.push(StorageEntry { device, bytes });
        self.storages.len() - 1
    }

    /// Frees a storage for later requests of this colour. The storage must be in use.
    pub fn release(&mut self, storage: usize, colour: u32) {
        let StorageEntry { device, bytes } = self.storages[storage];
        self.releases += 1;
        self.free.entry((device, colour)).or_default().insert((bytes, self.releases), storage);
    }

    /// All storages by number.
    pub fn into_storages(self) -> Vec<StorageEntry> {
        self.storages
    }
}
