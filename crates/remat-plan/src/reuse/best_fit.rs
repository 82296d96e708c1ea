//! MegEngine's best fit: each buffer, in order of time, gets the smallest hole that is large
//! enough.

use std::collections::{BTreeMap, BTreeSet};

use super::{Knows, rounded};
use crate::{Change, Lifetimes, Limits, PlanError, Planned, Planner};

/// `best-fit`: gives each buffer, in order of time, the smallest free range of addresses (hole)
/// that is large enough. The lowest hole wins a tie. If no hole is large enough, the buffer lies at
/// the top, and the size of the placement grows.
///
/// Source: MegEngine's static memory planning (`BEST_FIT`). Time: O(n log n) for n buffers. The
/// planner ignores later buffers when it places a buffer. The planner is weak if sizes vary much,
/// because early buffers leave holes that later buffers do not fit into. The planner supports
/// neither gaps nor colours.
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

/// Free ranges below the top. No two ranges touch.
#[derive(Debug, Default)]
struct Holes {
    by_address: BTreeMap<u64, u64>,
    by_size: BTreeSet<(u64, u64)>,
    /// Highest end of all buffers so far: all addresses from here on are free.
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
        // If the last hole ends at the top, the buffer begins in this hole and ends above the top.
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
