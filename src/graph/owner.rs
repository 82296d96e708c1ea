//! Storages as an arena knows them: by number.

use super::StorageKey;
use slotmap::{Key as _, KeyData};

/// Who a block belongs to, as the arena knows it: a storage's key, or scratch.
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

    /// The storage with that number, if it is one's.
    pub fn storage(number: u64) -> Option<StorageKey> {
        Some(StorageKey::from(KeyData::from_ffi(number))).filter(|key| !key.is_null())
    }
}
