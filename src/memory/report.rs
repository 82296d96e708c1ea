//! What is where, for people.

use std::fmt;

use super::{Arena, Chunk, Content};

/// How many owners a report names.
const HOLDERS: usize = 5;

/// The state of an arena in numbers. All sizes in bytes.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Report {
    /// The whole region.
    pub capacity: u64,
    /// In blocks, rounded sizes.
    pub used: u64,
    /// In blocks, as asked for.
    pub requested: u64,
    /// In holes.
    pub free: u64,
    /// The largest hole.
    pub largest_free: u64,
    /// The most in use at once.
    pub peak: u64,
    /// The highest end a block ever had.
    pub high_water: u64,
    /// The part of the free bytes that is not in the largest hole.
    pub fragmentation: f64,
    /// Number of blocks.
    pub blocks: usize,
    /// Number of holes.
    pub holes: usize,
    /// Blocks ever taken.
    pub allocations: u64,
    /// Blocks ever given back.
    pub frees: u64,
    /// Blocks ever moved.
    pub moves: u64,
    /// Chunks by power of two, smallest first; empty classes are left out.
    pub classes: Vec<SizeClass>,
    /// Those who hold the most, most first; of equals, the lower owner first.
    pub holders: Vec<Holder>,
}

/// The chunks of `from..2 * from` bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SizeClass {
    /// Smallest size in the class: the granularity times a power of two.
    pub from: u64,
    /// Number of blocks.
    pub blocks: usize,
    /// Bytes in them.
    pub used: u64,
    /// Number of holes.
    pub holes: usize,
    /// Bytes in them.
    pub free: u64,
}

/// What one owner holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Holder {
    /// Who.
    pub owner: u64,
    /// Number of blocks.
    pub blocks: usize,
    /// Bytes in them, rounded sizes.
    pub bytes: u64,
}

/// Every chunk of an arena at one moment: a memory map for tools.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Snapshot {
    /// The whole region.
    pub capacity: u64,
    /// Offsets and sizes are multiples of this.
    pub granularity: u64,
    /// In address order, without gaps.
    pub chunks: Vec<Chunk>,
}

impl Arena {
    /// Everything a reader of an out-of-memory error may want to know. O(chunks * log blocks).
    #[must_use]
    pub fn report(&self) -> Report {
        let mut requested_total = 0;
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
                    class.blocks += 1;
                    class.used += chunk.size;
                    requested_total += requested;
                    held.push((owner, chunk.size));
                }
            }
        }
        for (power, class) in classes.iter_mut().enumerate() {
            class.from = self.granularity() << power;
        }
        Report {
            capacity: self.capacity(),
            used: self.used(),
            requested: requested_total,
            free: self.free_bytes(),
            largest_free: self.largest_free(),
            peak: self.peak(),
            high_water: self.high_water(),
            fragmentation: self.fragmentation(),
            blocks: self.blocks(),
            holes: self.holes(),
            allocations: self.allocations(),
            frees: self.frees(),
            moves: self.moves(),
            classes: classes.into_iter().filter(|c| c.blocks + c.holes > 0).collect(),
            holders: largest_holders(held),
        }
    }

    /// All chunks, to be kept or written out.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            capacity: self.capacity(),
            granularity: self.granularity(),
            chunks: self.chunks().collect(),
        }
    }

    /// The arena as one line of `width` characters, or of one for each granule if those are fewer:
    /// `*` used, `x` the part of blocks that nobody asked for, `_` free; each character shows what
    /// most of its bytes are, use before the rest where it is even. O(chunks + width).
    ///
    /// ```
    /// let mut arena = remat::memory::Arena::new(2048);
    /// let keep = [arena.alloc(1024, 0), arena.alloc(1, 1), arena.alloc(256, 2)];
    /// assert_eq!(arena.occupancy(8), "****x*__");
    /// # drop(keep);
    /// ```
    #[must_use]
    pub fn occupancy(&self, width: usize) -> String {
        let width = (width as u64).min(self.capacity() / self.granularity());
        let edge =
            |cell: u64| (u128::from(cell) * u128::from(self.capacity()) / u128::from(width)) as u64;
        // Used, tail and free bytes of the cell that is being filled.
        let mut shares = [0; 3];
        let mut cell = 0;
        let mut at = 0;
        let mut line = String::new();
        let mut paint = |kind: usize, end: u64| {
            while at < end {
                let stop = end.min(edge(cell + 1));
                shares[kind] += stop - at;
                at = stop;
                if at == edge(cell + 1) {
                    let [used, tail, free] = std::mem::take(&mut shares);
                    line.push(match used.max(tail).max(free) {
                        most if most == used => '*',
                        most if most == tail => 'x',
                        _ => '_',
                    });
                    cell += 1;
                }
            }
        };
        if width > 0 {
            for chunk in self.chunks() {
                match chunk.content {
                    Content::Used { requested, .. } => {
                        paint(0, chunk.offset + requested);
                        paint(1, chunk.end());
                    }
                    Content::Free => paint(2, chunk.end()),
                }
            }
        }
        line
    }
}

/// Adds up `(owner, bytes)` by owner and keeps the largest.
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

/// Prints as `1.50 MiB`, or `300 B`.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let power = self.0.checked_ilog2().unwrap_or(0) / 10;
        let text = match power {
            0 => format!("{} B", self.0),
            _ => {
                let unit = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"][power as usize - 1];
                format!("{:.2} {unit}", self.0 as f64 / (1_u64 << (10 * power)) as f64)
            }
        };
        f.pad(&text)
    }
}

/// Several lines; the first is the summary.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} of {} used in {} blocks ({} asked for), peak {}, highest end {}",
            Bytes(self.used),
            Bytes(self.capacity),
            self.blocks,
            Bytes(self.requested),
            Bytes(self.peak),
            Bytes(self.high_water),
        )?;
        writeln!(
            f,
            "{} free in {} holes, the largest {}; fragmentation {:.1} %",
            Bytes(self.free),
            self.holes,
            Bytes(self.largest_free),
            self.fragmentation * 100.0,
        )?;
        writeln!(f, "{} taken, {} freed, {} moved", self.allocations, self.frees, self.moves)?;
        if !self.holders.is_empty() {
            writeln!(f, "largest holders:")?;
        }
        for holder in &self.holders {
            let blocks = if holder.blocks == 1 { "block" } else { "blocks" };
            let Holder { owner, blocks: n, bytes } = *holder;
            writeln!(f, "  {:>11} in {n} {blocks} of owner {owner}", Bytes(bytes))?;
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
                Bytes(class.from),
                class.blocks,
                Bytes(class.used),
                class.holes,
                Bytes(class.free),
            )?;
        }
        Ok(())
    }
}
