//! Doing again in the books what was done on the device already.

use super::Store;
use crate::device::Device;
use crate::error::Error;
use crate::graph::{Owner, PathKey, StorageKey};
use crate::memory::Held;
use std::collections::VecDeque;

/// What a store is to do without the device, whose memory is as if it had: places are taken where they were, and actions
/// are done already.
#[derive(Debug, Default)]
pub(crate) struct Script {
    /// Which blocks are to be taken, in order.
    pub places: VecDeque<u32>,
    /// First byte of each block, if anything is done with it.
    pub offsets: Vec<Option<u64>>,
    /// Of each block that was taken, whose it is; and of each run that was the first of its path, which that is.
    pub owners: Vec<Option<StorageKey>>,
    pub firsts: Vec<Option<PathKey>>,
    /// Whether each storage that lost its last handle stayed, in order. Where none is left, it went.
    pub unheld_stays: VecDeque<bool>,
    /// Actions that are done already.
    pub done: usize,
    /// What went wrong with the next one.
    pub failure: Option<Error>,
    /// What is not as it was done: the books are not what memory is.
    pub lost: Option<&'static str>,
}

impl<D: Device> Store<D> {
    /// The next place in the script.
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
            let why = if place.is_some() { "a place was not free" } else { "a place is missing" };
            script.lost.get_or_insert(why);
        }
        held.or_else(|| self.space.alloc(bytes, owner))
    }

    /// A run comes next.
    #[cold]
    pub fn note_run(&mut self, path: Option<PathKey>, again: bool) {
        if let Some(tape) = &mut self.tape {
            tape.begin_run(path, again);
        }
        // Where nothing was done for want of room, nobody asks.
        if let Some(script) = &mut self.script
            && !again
            && !script.owners.is_empty()
        {
            script.firsts.push(path);
        }
    }

    /// Whether the next action is done already, or what went wrong with it.
    #[inline(always)]
    pub(super) fn is_done(&mut self) -> Result<bool, Error> {
        match &mut self.script {
            None => Ok(false),
            Some(script) => script.next(),
        }
    }
}

impl Script {
    /// First byte of a block.
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
