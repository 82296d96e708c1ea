//! Device memory as arithmetic: a best-fit arena with coalescing over offsets.
//!
//! An [`Arena`] hands out ranges of `0..capacity`. An arena never sees a pointer and owns no
//! memory. An arena can therefore manage a mapped region, a device allocation, or the imaginary
//! memory of a simulation.
//!
//! # How it works
//!
//! *Chunks* tile the region; each chunk is a block or a hole. Two holes are never neighbours: when
//! a block is freed, its bytes are merged with the holes on both sides. Chunk records lie in a
//! slab. Indices link the records into a ring in address order. The *edge*, an empty record, closes
//! the ring. Each hole is also in the *bin* of its size class. A granule is the unit of sizes, 256
//! bytes by default. Every size below 128 granules has a class of its own. Larger sizes have 64
//! classes for each power of two. A bitmap with two levels says which bins have holes.
//!
//! ```text
//! offset     0        1024      1536    2048          4864     5120            16384
//! chunks     | block 1 | hole 2 | block 3 |   hole 4   | block 5 |     hole 6     |
//! granules        4        2         2         11           1           44
//! ring     edge <-> 1 <-> 2 <-> 3 <-> 4 <-> 5 <-> 6 <-> edge
//!
//! class      0  1  2  3  4  5  6  7  8  9 10 11 12 13  ..  44 ..
//! words[0]   .  .  1  .  .  .  .  .  .  .  .  1  .  .  ..   1 ..      summary: bit 0
//! bins            [2]                       [4]            [6]
//!
//! alloc(700): 3 granules of 256 bytes
//!   class 3: empty  ->  first bit of words[0] from 4 on: 11  ->  best of bins[11]: hole 4
//!   hole 4 (2048, 11 granules) = the new block (2048, 3 granules) + hole 4 (2816, 8 granules)
//!   hole 4 moves to bins[8]; the block's record goes between 3 and 4
//!
//! free(block 3): 2 (left) is a hole, the new block (right) is not
//!   hole 2 (1024, 2 granules) becomes (1024, 4 granules) and moves to bins[4]
//! ```
//!
//! Every hole in a bin is smaller than every hole in the next bin. The best fit is the smallest
//! hole that is large enough; on a tie, the lowest. The search for the best fit starts in the bin
//! of the block's size class, and continues in the next bin that has holes. By default, a block
//! takes its requested bytes, rounded up to a granule. Because of fragmentation, the highest end of
//! a block exceeds the peak of the bytes in use. The excess depends on the stream of requests: 0.3
//! % on recorded steps of two large networks, 8 % on a step with 28,000 small buffers, and 5 to 16
//! % on random streams.
//!
//! # Regions
//!
//! Usually there is one region, the budget. A [`Pool`] instead takes regions one by one from a
//! [`RegionSource`], each twice as long as the one before, and gives back regions without blocks.
//! Between two regions the ring has a *wall*: a record of 0 bytes that counts as a block. Because a
//! wall counts as a block, holes never merge across a wall, and no look-up has to check for walls.
//! The engine has one region. The region ends at the budget, or at the end of the memory taken from
//! the device so far, so its end moves.
//!
//! # The reference
//!
//! [`SplitRule::TensorFlow`] and a [`Pool`] together are TensorFlow's BFC allocator: granules of
//! 256 bytes, best fit, its rule of when to split, regions, statistics, dump. Two differences to
//! TensorFlow's allocator do not change results: bins are narrower, and no table holds a handle for
//! every 256 bytes. Three differences to TensorFlow's allocator change the behaviour:
//!
//! - A request for 0 bytes takes a granule.
//! - The last request to a source is for exactly the bytes wanted.
//! - There is no lock, no waiting for another thread's free, and no delayed merging. The engine
//!   that owns an arena is single-threaded, and its device runs ops in order.
//!
//! # Two fragmentation figures
//!
//! - [`Arena::fragmentation`], `(free - largest free) / free`: the part of the free bytes that a
//!   large request cannot use.
//! - [`Arena::expansion`], `peak reserved / peak live`: the memory that was needed, relative to the
//!   peak of the requested bytes.
//!
//! # No index by address
//!
//! No table grows with the capacity of the arena. A block is found by its handle only. There is no
//! index by address, so [`Arena::alloc_at`] is slower than the other methods that take a block.

#![forbid(unsafe_code)]

mod arena;
mod bin;
mod bins;
mod bytes;
mod check;
mod compact;
mod dump;
mod growth;
mod occupancy;
mod place;
mod pool;
mod region;
mod report;
mod shrink;
mod slab;
mod snapshot;
mod space;
mod split;
mod stats;
mod walk;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

pub use arena::Arena;
pub use bytes::{ByteSize, ParseByteSizeError};
pub use compact::Move;
pub use growth::{Growth, RegionSource};
pub use place::End;
pub use pool::Pool;
pub use region::Region;
pub use report::{Holder, Report, SizeClass};
pub use slab::Block;
pub use snapshot::{MappedChunk, MappedHolder, Snapshot};
pub use space::Held;
pub use space::Space;
pub use split::SplitRule;
pub use stats::ArenaStats;
pub use walk::{Chunk, Chunks, Content, FreeNeighbors};

/// Default granularity, in bytes: offsets and sizes are multiples of `ALIGNMENT`. 256 is enough for
/// the alignment that any kernel needs.
pub const ALIGNMENT: u64 = 256;

/// README, whose program is compiled and run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
