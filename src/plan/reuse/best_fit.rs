//! MegEngine's best fit: buffers in order of time, each in the smallest hole.

use std::collections::{BTreeMap, BTreeSet};

use super::super::{Change, Lifetimes, Limits, PlanError, Planned, Planner};
use super::{Knows, rounded};

/// `best-fit`: gives each buffer, in order of time, the smallest hole that is large enough. The
/// lowest hole wins a tie. If no hole is large enough, the top is extended.
///
/// Source: MegEngine's static memory planning (`BEST_FIT`). Time: O(n log n) for n buffers. The
/// planner is weak where sizes vary much: early buffers are in the way later, since it never looks
/// ahead. Gaps and colours are refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BestFit;

impl Planner for BestFit {
    fn name(&self) -> String {
        "best-fit".to_owned()
    }

    fn plan(&self, lifetimes: &Lifetimes, _limits: &Limits) -> Result<Planned, PlanError> {
        Knows::NoGaps.check(self, lifetimes)?;
        let sizes = rounded(lifetimes)?;
        let mut offsets = vec![0; sizes.len()];
        let mut holes = Holes::default();
        for change in lifetimes.changes() {
            match change {
                Change::Alloc(i) if sizes[i] > 0 => offsets[i] = holes.take(sizes[i]),
                Change::Free(i) if sizes[i] > 0 => holes.give(offsets[i], sizes[i]),
                _ => {}
            }
        }
        Planned::new(lifetimes, offsets)
    }
}

/// Free ranges below the top, apart from each other.
#[derive(Debug, Default)]
struct Holes {
    by_address: BTreeMap<u64, u64>,
    by_size: BTreeSet<(u64, u64)>,
    /// End of the bytes in use: all addresses from here on are free.
    top: u64,
}

impl Holes {
    fn take(&mut self, size: u64) -> u64 {
        let fit = self.by_size.range((size, 0)..).next().copied();
        if let Some((found, address)) = fit {
            self.remove(address, found);
            if found > size {
                self.insert(address + size, found - size);
            }
            return address;
        }
        // A hole that ends at the top is extended.
        let last = self.by_address.last_key_value().map(|(&address, &size)| (address, size));
        let address = match last {
            Some((address, found)) if address + found == self.top => {
                self.remove(address, found);
                address
            }
            _ => self.top,
        };
        self.top = address + size;
        address
    }

    fn give(&mut self, mut address: u64, mut size: u64) {
        if let Some((&below, &found)) = self.by_address.range(..address).next_back()
            && below + found == address
        {
            self.remove(below, found);
            (address, size) = (below, size + found);
        }
        if let Some(&found) = self.by_address.get(&(address + size)) {
            self.remove(address + size, found);
            size += found;
        }
        self.insert(address, size);
    }

    fn insert(&mut self, address: u64, size: u64) {
        self.by_address.insert(address, size);
        self.by_size.insert((size, address));
    }

    fn remove(&mut self, address: u64, size: u64) {
        self.by_address.remove(&address);
        self.by_size.remove(&(size, address));
    }
}
