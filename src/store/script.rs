//! Scripts. A script lists actions that the device has already done, so that the store can update
//! its tables.

use super::Store;
use crate::device::Device;
use crate::error::Error;
use crate::graph::{Owner, PathKey, StorageKey};
use remat_memory::Held;
use std::collections::VecDeque;

/// Actions that the device has already done, which a store repeats only in its tables. The store
/// gives each block the address that it has on the device.
#[derive(Debug, Default)]
pub(crate) struct Script {
    /// Numbers of the blocks to allocate, in order.
    pub places: VecDeque<u32>,
    /// First byte of each block; `None` if no action uses the block.
    pub offsets: Vec<Option<u64>>,
    /// Storage in each block, by block number. The list is empty if the plan has no evictions,
    /// moves or repeated runs.
    pub owners: Vec<Option<StorageKey>>,
    /// Path of each first run, in order. The list is empty if `owners` is empty.
    pub firsts: Vec<Option<PathKey>>,
    /// An entry for each evictable storage that lost its last handle, in the order of these losses:
    /// whether the storage stayed resident. Storages past the end of the list are evicted.
    pub unheld_stays: VecDeque<bool>,
    /// An entry for each leaf that lost its last handle and is no smaller than the values computed
    /// from it, in the order of these losses: whether the leaf gave way to them.
    pub gives_way: VecDeque<bool>,
    /// Number of coming actions that the device has already done.
    pub done: usize,
    /// Error of the action that follows the `done` actions.
    pub failure: Option<Error>,
    /// Description of the first difference between the script and the tables; `None` if they agree
    /// so far.
    pub lost: Option<&'static str>,
}

impl<D: Device> Store<D> {
    /// Allocates the next block of the script. If the script and the tables disagree, sets `lost`
    /// and allocates any free block.
    #[cold]
    pub(super) fn place_by_script(&mut self, bytes: u64, owner: u64) -> Option<Held> {
        let script = self.script.as_mut()?;
        let place = script.places.pop_front();
        let held = place.and_then(|block| {
            if let Some(of_block) = script.owners.get_mut(block as usize) {
                *of_block = Owner::storage(owner);
            }
            self.space.alloc_at(script.offset(block)?, bytes, owner)
        });
        if held.is_none() {
            let why = if place.is_some() {
                "a planned address was not free"
            } else {
                "an address is missing"
            };
            script.lost.get_or_insert(why);
        }
        held.or_else(|| self.space.alloc(bytes, owner))
    }

    /// Notes that a run comes next. `again` is true if the path ran before.
    #[cold]
    pub fn note_run(&mut self, path: Option<PathKey>, again: bool) {
        if let Some(tape) = &mut self.tape {
            tape.begin_run(path, again);
        }
        // `firsts` is needed only if the plan has evictions, moves or repeated runs, and then
        // `owners` is not empty.
        if let Some(script) = &mut self.script
            && !again
            && !script.owners.is_empty()
        {
            script.firsts.push(path);
        }
    }

    /// Whether the device has already done the next action; an error if that action failed.
    #[inline(always)]
    pub(super) fn is_done(&mut self) -> Result<bool, Error> {
        match &mut self.script {
            None => Ok(false),
            Some(script) => script.next(),
        }
    }
}

impl Script {
    /// First byte of a block; `None` if the script does not have the block.
    pub fn offset(&self, block: u32) -> Option<u64> {
        self.offsets.get(block as usize).copied().flatten()
    }

    #[cold]
    fn next(&mut self) -> Result<bool, Error> {
        if self.done > 0 {
            self.done -= 1;
            return Ok(true);
        }
        self.failure.take().map_or(Ok(false), Err)
    }
}
