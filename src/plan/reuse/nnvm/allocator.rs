//! `GraphAllocator`: storages, and which of them are free.

use std::collections::BTreeMap;

/// Bytes that several entries use one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageEntry {
    /// Where its bytes are.
    pub device: u32,
    /// Of the largest entry in it.
    pub bytes: u64,
}

/// Gives out storages and takes them back.
#[derive(Debug)]
pub(super) struct Allocator {
    // How many times larger or smaller a free storage may be than what is asked for; 0: none is used again.
    range: u64,
    storages: Vec<StorageEntry>,
    // Device and colour -> bytes and number of the release -> storage. Kept apart by device and colour because those that
    // differ in either are passed over anyway: what is found is what a walk through all of them finds.
    free: BTreeMap<(u32, u32), BTreeMap<(u64, u64), usize>>,
    releases: u64,
}

impl Allocator {
    pub fn new(range: u64) -> Self {
        Self { range, storages: Vec::new(), free: BTreeMap::new(), releases: 0 }
    }

    /// A storage of `bytes` or more.
    ///
    /// Among the free ones of this device and colour that are at most `range` times larger or smaller: the smallest that
    /// is large enough, of equal ones that which has been free for longest; else the largest of the smaller ones, of equal
    /// ones that which was released last, which grows; else a new one.
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

    /// The storage, requested before and not released since, is free for requests of this colour.
    pub fn release(&mut self, storage: usize, colour: u32) {
        let StorageEntry { device, bytes } = self.storages[storage];
        self.releases += 1;
        self.free.entry((device, colour)).or_default().insert((bytes, self.releases), storage);
    }

    /// All that there are, by number.
    pub fn into_storages(self) -> Vec<StorageEntry> {
        self.storages
    }
}
