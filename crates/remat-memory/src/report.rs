//! Report of the arena for people: bytes by owner and by size.

use std::fmt;

use super::{Arena, ArenaStats, Content};
use crate::bytes::ByteSize;

/// Number of owners that a report names.
const HOLDERS: usize = 5;

/// State of an arena: totals, bytes by size, and bytes by owner. All sizes are in bytes.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Report {
    /// Totals.
    pub stats: ArenaStats,
    /// Bytes requested for blocks, not rounded.
    pub requested: u64,
    /// Chunks by size class, one class for each power of two, smallest first. Empty classes are
    /// left out.
    pub classes: Vec<SizeClass>,
    /// Owners with the most bytes, largest first; on a tie, the lower owner first.
    pub holders: Vec<Holder>,
}

/// Chunks of `from..2 * from` bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SizeClass {
    /// Smallest size in the class: the granularity times a power of two.
    pub from: u64,
    /// Number of blocks.
    pub blocks: usize,
    /// Bytes in blocks.
    pub used: u64,
    /// Number of holes.
    pub holes: usize,
    /// Bytes in holes.
    pub free: u64,
}

/// Blocks of one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Holder {
    /// The owner, as given to [`Arena::alloc`].
    pub owner: u64,
    /// Number of blocks.
    pub blocks: usize,
    /// Bytes that the blocks take up.
    pub bytes: u64,
}

impl Arena {
    /// Collects everything that may explain an out-of-memory error. Time: O(chunks * log blocks).
    #[must_use]
    pub fn report(&self) -> Report {
        let mut total = 0;
        let mut classes = [SizeClass::default(); 64];
        let mut held = Vec::with_capacity(self.blocks());
        for chunk in self.chunks() {
            let class = &mut classes[(chunk.size / self.granularity()).ilog2() as usize];
            match chunk.content {
                Content::Free => {
                    class.holes += 1;
                    class.free += chunk.size;
                }
                Content::Used { owner, requested, .. } => {
                    total += requested;
                    class.blocks += 1;
                    class.used += chunk.size;
                    held.push((owner, chunk.size));
                }
            }
        }
        for (power, class) in classes.iter_mut().enumerate() {
            class.from = self.granularity() << power;
        }
        Report {
            stats: self.stats(),
            requested: total,
            classes: classes.into_iter().filter(|c| c.blocks + c.holes > 0).collect(),
            holders: largest_holders(held),
        }
    }
}

/// Sums `(owner, bytes)` pairs by owner, and keeps the largest sums.
fn largest_holders(mut held: Vec<(u64, u64)>) -> Vec<Holder> {
    held.sort_unstable();
    let mut holders: Vec<_> = held
        .chunk_by(|a, b| a.0 == b.0)
        .map(|of_one| Holder {
            owner: of_one[0].0,
            blocks: of_one.len(),
            bytes: of_one.iter().map(|&(_, bytes)| bytes).sum(),
        })
        .collect();
    holders.sort_by_key(|holder| std::cmp::Reverse(holder.bytes));
    holders.truncate(HOLDERS);
    holders
}

/// Prints several lines; the first is the summary.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = |bytes| ByteSize(bytes).to_string();
        let stats = &self.stats;
        writeln!(
            f,
            "{} of {} used in {} blocks ({} asked for), peak {}, highest end {}",
            size(stats.used),
            size(stats.reserved),
            stats.blocks,
            size(self.requested),
            size(stats.peak),
            size(stats.high_water),
        )?;
        writeln!(
            f,
            "{} free in {} holes, the largest {}; fragmentation {:.1} %",
            size(stats.free),
            stats.holes,
            size(stats.largest_free),
            stats.fragmentation * 100.0,
        )?;
        writeln!(
            f,
            "{} regions, {} at most; peak reserved / peak live {:.3}",
            stats.regions,
            size(stats.peak_reserved),
            stats.expansion,
        )?;
        writeln!(
            f,
            "{} taken, {} freed, {} moved; the largest took {}",
            stats.allocations,
            stats.frees,
            stats.moves,
            size(stats.largest_allocation),
        )?;
        if !self.holders.is_empty() {
            writeln!(f, "largest holders:")?;
        }
        for holder in &self.holders {
            let blocks = if holder.blocks == 1 { "block" } else { "blocks" };
            let Holder { owner, blocks: n, bytes } = *holder;
            writeln!(f, "  {:>11} in {n} {blocks} of owner {owner}", size(bytes))?;
        }
        writeln!(
            f,
            "{:>13} {:>8} {:>11} {:>8} {:>11}",
            "size from", "blocks", "bytes", "holes", "bytes"
        )?;
        for class in &self.classes {
            writeln!(
                f,
                "{:>13} {:>8} {:>11} {:>8} {:>11}",
                size(class.from),
                class.blocks,
                size(class.used),
                class.holes,
                size(class.free),
            )?;
        }
        Ok(())
    }
}
