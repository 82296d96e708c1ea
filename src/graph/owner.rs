//! Numbers that identify storages in an arena.

use super::StorageKey;
use slotmap::{Key as _, KeyData};

/// Owner of a block of memory: a storage, or scratch (a workspace). An arena stores only the
/// owner's number.
#[derive(Clone, Copy)]
pub(crate) enum Owner {
    Storage(StorageKey),
    Scratch,
}

impl Owner {
    pub fn number(self) -> u64 {
        match self {
            Self::Storage(key) => key.data().as_ffi(),
            Self::Scratch => StorageKey::null().data().as_ffi(),
        }
    }

    /// Storage with the number `number`; `None` for scratch.
    pub fn storage(number: u64) -> Option<StorageKey> {
        Some(StorageKey::from(KeyData::from_ffi(number))).filter(|key| !key.is_null())
    }
}
