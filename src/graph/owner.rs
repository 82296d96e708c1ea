//! Numbers by which an arena knows storages.

use super::StorageKey;
use slotmap::{Key as _, KeyData};

/// Owner of a block: a storage, or scratch. An arena knows only its number.
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

    /// Storage with this number; `None` for scratch.
    pub fn storage(number: u64) -> Option<StorageKey> {
        Some(StorageKey::from(KeyData::from_ffi(number))).filter(|key| !key.is_null())
    }
}
