//! Snapshot of the arena: a memory map for tools.

use super::{Arena, ArenaStats, Content, Region};

/// All chunks of an arena at one moment, with the names of their owners.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Snapshot {
    /// Granularity in bytes: offsets and sizes are multiples of it.
    pub granularity: u64,
    /// Totals.
    pub stats: ArenaStats,
    /// Regions that the chunks tile, lowest first.
    pub regions: Vec<Region>,
    /// Chunks in address order, without gaps inside a region.
    pub chunks: Vec<MappedChunk>,
}

/// Block or hole.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MappedChunk {
    /// Offset of the first byte.
    pub offset: u64,
    /// Size in bytes, never 0.
    pub size: u64,
    /// Owner of the block; `None` for a hole.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none", default))]
    pub holder: Option<MappedHolder>,
}

/// Owner of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MappedHolder {
    /// Name of the owner, from the function passed to [`Arena::snapshot`].
    pub name: String,
    /// Requested bytes.
    pub requested: u64,
}

impl Arena {
    /// Lists all chunks, to be kept or written to a file. `name` maps a block's owner, the number
    /// passed to [`Arena::alloc`], to a name. Time: O(chunks).
    ///
    /// ```
    /// let mut arena = remat_memory::Arena::new(1024);
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
