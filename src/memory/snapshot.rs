//! A memory map for tools.

use super::{Arena, ArenaStats, Content, Region};

/// Every chunk of an arena at one moment, with the names of those who hold them.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Snapshot {
    /// Offsets and sizes are multiples of this many bytes.
    pub granularity: u64,
    /// The whole in numbers.
    pub stats: ArenaStats,
    /// What the chunks tile, lowest first.
    pub regions: Vec<Region>,
    /// In address order, without gaps inside a region.
    pub chunks: Vec<MappedChunk>,
}

/// A block or a hole.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MappedChunk {
    /// First byte.
    pub offset: u64,
    /// Bytes, never 0.
    pub size: u64,
    /// Who holds it; a hole if nobody does.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none", default))]
    pub holder: Option<MappedHolder>,
}

/// Who holds a block.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MappedHolder {
    /// What `name` made of the block's owner.
    pub name: String,
    /// Bytes it asked for.
    pub requested: u64,
}

impl Arena {
    /// All chunks, to be kept or written out. `name` says what the owner of a block, the number it was
    /// allocated with, is called. O(chunks).
    ///
    /// ```
    /// let mut arena = remat::memory::Arena::new(1024);
    /// let block = arena.alloc(300, 7).unwrap();
    /// let chunks = arena.snapshot(|owner| format!("tensor {owner}")).chunks;
    /// assert_eq!(chunks[0].holder.as_ref().unwrap().name, "tensor 7");
    /// assert_eq!((chunks[1].offset, chunks[1].size), (512, 512));
    /// # arena.free(block);
    /// ```
    #[must_use]
    pub fn snapshot(&self, name: impl Fn(u64) -> String) -> Snapshot {
        let mapped = |chunk: super::Chunk| {
            let holder = match chunk.content {
                Content::Free => None,
                Content::Used { owner, requested, .. } => {
                    Some(MappedHolder { name: name(owner), requested })
                }
            };
            MappedChunk { offset: chunk.offset, size: chunk.size, holder }
        };
        Snapshot {
            granularity: self.granularity(),
            stats: self.stats(),
            regions: self.regions().collect(),
            chunks: self.chunks().map(mapped).collect(),
        }
    }
}
