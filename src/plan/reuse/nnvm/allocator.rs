//! `GraphAllocator`: storages, free and in use.

use std::collections::BTreeMap;

/// A block of bytes for several entries in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageEntry {
    /// Device of the bytes.
    pub device: u32,
    /// Size in bytes, as of the largest entry.
    pub bytes: u64,
}

/// Allocator of storages.
#[derive(Debug)]
pub(super) struct Allocator {
    // Limit on how many times larger or smaller than the request a free storage may be; with 0 none
    // is reused.
    range: u64,
    storages: Vec<StorageEntry>,
    // Device and colour -> (bytes, number of the release) -> free storage. NNVM walks through all
    // free storages and skips other devices and colours; separate maps give the same results.
    free: BTreeMap<(u32, u32), BTreeMap<(u64, u64), usize>>,
    releases: u64,
}

impl Allocator {
    pub fn new(range: u64) -> Self {
        Self { range, storages: Vec::new(), free: BTreeMap::new(), releases: 0 }
    }

    /// Requests a storage of `bytes` or more.
    ///
    /// Candidates are the free storages of this device and colour that are at most `range` times
    /// larger or smaller. The smallest one that is large enough is taken; on a tie the one that has
    /// been free for longest. Otherwise the largest of the smaller ones grows; on a tie the one
    /// released last. Otherwise a new storage is made.
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

    /// Frees a storage, which must be in use, for requests of this colour.
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
