//! Doing again in the books what was done on the device already.

use super::Store;
use crate::device::Device;
use crate::error::Error;
use crate::memory::Held;
use std::collections::VecDeque;

/// What a store is to do without the device, whose memory is as if it had: places are taken where they were, and actions
/// are done already.
#[derive(Debug, Default)]
pub(crate) struct Script {
    /// First byte of each block to be taken, in order.
    pub places: VecDeque<u64>,
    /// Actions that are done already.
    pub done: usize,
    /// What went wrong with the next one.
    pub failure: Option<Error>,
    /// Something was taken that is not in the script, or that was not free: the books are not what memory is.
    pub is_lost: bool,
}

impl<D: Device> Store<D> {
    /// The next place in the script.
    #[cold]
    pub(super) fn place_by_script(&mut self, bytes: u64, owner: u64) -> Option<Held> {
        let script = self.script.as_mut()?;
        let offset = script.places.pop_front();
        let held = offset.and_then(|offset| self.space.alloc_at(offset, bytes, owner));
        script.is_lost |= held.is_none();
        held.or_else(|| self.space.alloc(bytes, owner))
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
    #[cold]
    fn next(&mut self) -> Result<bool, Error> {
        if self.done > 0 {
            self.done -= 1;
            return Ok(true);
        }
        self.failure.take().map_or(Ok(false), Err)
    }
}
