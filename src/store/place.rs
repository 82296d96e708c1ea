//! Places for bytes: taken, given back, moved.

use super::Store;
use crate::device::Device;
use crate::error::Error;
use crate::graph::StorageKey;
use crate::guard::guarded;
use crate::memory::{Held, Move};
use slotmap::{Key as _, KeyData};

/// Who a block belongs to, as the arena knows it: a storage's key, or scratch.
#[derive(Clone, Copy)]
pub(crate) enum Owner {
    Storage(StorageKey),
    Scratch,
}

impl Owner {
    fn number(self) -> u64 {
        match self {
            Self::Storage(key) => key.data().as_ffi(),
            Self::Scratch => StorageKey::null().data().as_ffi(),
        }
    }

    /// The storage with that number, if it is one's.
    pub(super) fn storage(number: u64) -> Option<StorageKey> {
        Some(StorageKey::from(KeyData::from_ffi(number))).filter(|key| !key.is_null())
    }
}

impl<D: Device> Store<D> {
    /// A place for `bytes` bytes, if there is one as things are.
    pub fn place(&mut self, bytes: u64, owner: Owner) -> Option<Held> {
        self.space.alloc(bytes, owner.number())
    }

    /// The one door by which bytes go.
    pub fn free(&mut self, held: Held) {
        self.space.free(held);
    }

    /// Moves a block, on the device and in the books.
    pub fn relocate(&mut self, step: &Move) -> Result<(), Error> {
        guarded("moving a block", || self.device.copy(step.from, step.to, step.bytes))?;
        // At once, so that the books are right should the next one fail.
        self.space.apply_move(step);
        Ok(())
    }

    /// Copies bytes of a resident storage, from `offset` on, to a place.
    pub fn copy(
        &mut self,
        from: StorageKey,
        offset: u64,
        to: Held,
        bytes: u64,
    ) -> Result<(), Error> {
        let held = self.graph.held(from).expect("what is copied is resident");
        let (source, target) = (self.space.offset(held) + offset, self.space.offset(to));
        guarded("copying the old value of an update", || self.device.copy(source, target, bytes))
    }
}
