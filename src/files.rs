//! Files on disk, of whatever content: written whole or not at all, read whole up to a limit, and
//! unpacked while they are read.

#[cfg(any(feature = "data", feature = "serde"))]
mod members;
#[cfg(feature = "serde")]
mod read_whole;
#[cfg(feature = "serde")]
mod unpacked;
#[cfg(feature = "serde")]
mod whole_file;

#[cfg(feature = "data")]
pub(crate) use members::{Members, is_packed};
#[cfg(feature = "serde")]
pub use {read_whole::read_whole, unpacked::unpacked, whole_file::WholeFile};
