//! Dump of the arena as text, chunk by chunk, as TensorFlow's allocator logs it when memory runs
//! out.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{Arena, Content, Pool, RegionSource};
use crate::bytes::ByteSize;

/// Number of TensorFlow's bins. Bin `n` is for chunks of 2^n granules up to 2^(n + 1); the last bin
/// is for all larger chunks too.
const BINS: usize = 21;
/// Characters in the occupancy line.
const WIDTH: usize = 100;

/// Totals of one bin. All sizes are in bytes.
#[derive(Clone, Copy, Default)]
struct BinLine {
    chunks: u64,
    used_chunks: u64,
    bytes: u64,
    used: u64,
    requested: u64,
}

impl Arena {
    /// Describes the whole arena in TensorFlow's order. `name` gives the name of a block's owner.
    /// Time: O(chunks * log chunks).
    ///
    /// The text has these parts:
    ///
    /// - a line for each of TensorFlow's 21 bins;
    /// - the holes in the bin for a request of `wanted` bytes;
    /// - every chunk of every region, in address order;
    /// - the number of blocks of each size;
    /// - totals;
    /// - the line of [`Arena::occupancy`].
    ///
    /// TensorFlow's bins are used only in this text: the arena keeps its holes in many more,
    /// narrower bins.
    ///
    /// ```
    /// let mut arena = remat_memory::Arena::new(2048);
    /// let block = arena.alloc(300, 7);
    /// let dump = arena.dump(4096, |owner| format!("tensor {owner}"));
    /// assert!(dump.contains(
    ///     "Bin (512): Total Chunks: 1, Chunks in use: 1. 512 B allocated for chunks. \
    ///      512 B in use in bin. 300 B client-requested in use in bin."
    /// ));
    /// assert!(dump.contains("InUse at 0x0 of size 512 (300 requested) by tensor 7 next 0x200"));
    /// # drop(block);
    /// ```
    #[must_use]
    pub fn dump(&self, wanted: u64, name: impl Fn(u64) -> String) -> String {
        let mut text = String::new();
        self.write_dump(&mut text, wanted, name).expect("a string takes any text");
        text
    }

    fn write_dump(
        &self,
        out: &mut String,
        wanted: u64,
        name: impl Fn(u64) -> String,
    ) -> std::fmt::Result {
        if self.reserved() == 0 {
            return writeln!(out, "the arena has no memory");
        }
        let mut bins = [BinLine::default(); BINS];
        let mut used_by_size = BTreeMap::<u64, u64>::new();
        // Totals by bin, and the number of blocks of each size.
        for chunk in self.chunks() {
            let bin = &mut bins[self.bin_number(chunk.size)];
            bin.chunks += 1;
            bin.bytes += chunk.size;
            if let Content::Used { requested, .. } = chunk.content {
                bin.used_chunks += 1;
                bin.used += chunk.size;
                bin.requested += requested;
                *used_by_size.entry(chunk.size).or_default() += 1;
            }
        }
        for (power, bin) in bins.iter().enumerate() {
            writeln!(
                out,
                "Bin ({}): Total Chunks: {}, Chunks in use: {}. {} allocated for chunks. \
                 {} in use in bin. {} client-requested in use in bin.",
                self.granularity() << power,
                bin.chunks,
                bin.used_chunks,
                ByteSize(bin.bytes),
                ByteSize(bin.used),
                ByteSize(bin.requested),
            )?;
        }

        // Holes that a request for `wanted` bytes may use.
        let bin = self.bin_number(self.round(wanted).unwrap_or(u64::MAX));
        let from = ByteSize(self.granularity() << bin);
        writeln!(out, "Bin for {} was {from}, free chunks in it:", ByteSize(wanted))?;
        let in_bin = |chunk: &super::Chunk| chunk.is_free() && self.bin_number(chunk.size) == bin;
        for chunk in self.chunks().filter(in_bin) {
            writeln!(out, "  Free  at {:#x} of size {}", chunk.offset, chunk.size)?;
        }

        // Every chunk, region by region. One iterator, `chunks`, passes through all regions.
        let mut chunks = self.chunks();
        for region in self.regions() {
            writeln!(out, "Region at {:#x} of size {}", region.start, region.bytes)?;
            let mut at = region.start;
            while at < region.end() {
                let Some(chunk) = chunks.next() else { break };
                at = chunk.end();
                write!(out, "  ")?;
                match chunk.content {
                    Content::Free => {
                        write!(out, "Free  at {:#x} of size {}", chunk.offset, chunk.size)
                    }
                    Content::Used { owner, requested, .. } => write!(
                        out,
                        "InUse at {:#x} of size {} ({requested} requested) by {}",
                        chunk.offset,
                        chunk.size,
                        name(owner)
                    ),
                }?;
                if at < region.end() {
                    write!(out, " next {at:#x}")?;
                }
                writeln!(out)?;
            }
        }

        // Blocks by size, totals, and the occupancy line.
        writeln!(out, "In-use chunks by size:")?;
        for (size, count) in used_by_size {
            writeln!(out, "  {count} chunks of size {size} totalling {}", ByteSize(size * count))?;
        }
        let stats = self.stats();
        writeln!(out, "Sum total of in-use chunks: {}", ByteSize(stats.used))?;
        writeln!(
            out,
            "In use {}, peak {}; reserved {}, peak {}; largest allocation {}, largest free block {}; \
             {} allocations, {} frees; fragmentation {:.1} %, peak reserved / peak live {:.3}",
            ByteSize(stats.used),
            ByteSize(stats.peak),
            ByteSize(stats.reserved),
            ByteSize(stats.peak_reserved),
            ByteSize(stats.largest_allocation),
            ByteSize(stats.largest_free),
            stats.allocations,
            stats.frees,
            100.0 * stats.fragmentation,
            stats.expansion,
        )?;
        writeln!(out, "{}", self.occupancy(WIDTH))
    }

    /// TensorFlow's bin for a size, which is a multiple of the granularity.
    fn bin_number(&self, size: u64) -> usize {
        let granules = (size / self.granularity()).max(1);
        (granules.ilog2() as usize).min(BINS - 1)
    }
}

impl<S: RegionSource> Pool<S> {
    /// Describes the arena as [`Arena::dump`] does, and adds the bytes that the pool may still take
    /// from its source.
    #[must_use]
    pub fn dump(&self, wanted: u64, name: impl Fn(u64) -> String) -> String {
        let mut text = self.arena().dump(wanted, name);
        let limit = self.growth().memory_limit;
        writeln!(
            text,
            "Memory limit {}, available {}, next region {}",
            ByteSize(limit),
            ByteSize(limit.saturating_sub(self.arena().reserved())),
            ByteSize(self.next_region()),
        )
        .expect("a string takes any text");
        text
    }
}
