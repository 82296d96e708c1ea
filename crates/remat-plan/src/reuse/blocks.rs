//! Blocks that several buffers use one after another: the common part of CANN's planners.

use std::collections::BTreeSet;
use std::hash::Hash;

use rustc_hash::FxHashMap;

use crate::{Change, Lifetimes};

/// Granule of blocks in CANN and GE, in bytes.
pub(super) const ROUND: u64 = 512;

/// Choice among several free blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Take {
    /// The block released last, as in open-source GE, which searches from the end of its list.
    /// Lifetimes do not say in which order blocks are released at the same instant. Of blocks
    /// released at the same instant, the block made last is taken, which reproduces the ratios in
    /// the tests.
    #[default]
    Newest,
    /// The block made first, as in the article. The time at which a block was released does not
    /// matter.
    Oldest,
}

impl Take {
    /// Finds the choice by its name: `""` or `oldest`; `None` for any other name.
    pub(crate) fn named(option: &str) -> Option<Self> {
        match option {
            "" => Some(Self::Newest),
            "oldest" => Some(Self::Oldest),
            _ => None,
        }
    }

    /// Name of a planner with this choice.
    pub(super) fn name(self, planner: &str) -> String {
        match self {
            Self::Newest => planner.to_owned(),
            Self::Oldest => format!("{planner}:oldest"),
        }
    }
}

/// A block of bytes that several buffers use one after another.
#[derive(Debug, Default)]
pub(super) struct Block {
    /// Size of the largest buffer in the block. In the end, GE shrinks its blocks to this size
    /// (resize).
    pub size: u64,
    /// Buffers in order of time.
    pub buffers: Vec<usize>,
}

/// Puts each buffer, in order of time, into a free block of its class. If no block of the class is
/// free, a new block is made. Buffers of size 0 get no block.
pub(super) fn chain<C: Eq + Hash>(
    lifetimes: &Lifetimes,
    sizes: &[u64],
    class: impl Fn(u64) -> C,
    take: Take,
) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut homes = vec![0; sizes.len()];
    // Class -> its free blocks, each with the instant of its release. With `Take::Oldest` the
    // instant is always 0, so blocks are sorted by number.
    let mut free: FxHashMap<C, BTreeSet<(u64, usize)>> = FxHashMap::default();
    for change in lifetimes.changes() {
        match change {
            Change::Alloc(i) if sizes[i] > 0 => {
                let free = free.entry(class(sizes[i])).or_default();
                let found = match take {
                    Take::Newest => free.pop_last(),
                    Take::Oldest => free.pop_first(),
                };
                homes[i] = found.map_or(blocks.len(), |(_, block)| block);
                if found.is_none() {
                    blocks.push(Block::default());
                }
                let block = &mut blocks[homes[i]];
                block.size = block.size.max(sizes[i]);
                block.buffers.push(i);
            }
            Change::Free(i) if sizes[i] > 0 => {
                let when = match take {
                    Take::Newest => lifetimes.buffers()[i].upper,
                    Take::Oldest => 0,
                };
                free.entry(class(sizes[i])).or_default().insert((when, homes[i]));
            }
            _ => {}
        }
    }
    blocks
}

/// Offsets of the buffers if the blocks lie one after another, from address 0 on.
pub(super) fn in_a_row(blocks: &[Block], buffers: usize) -> Vec<u64> {
    let mut offsets = vec![0; buffers];
    // The sum cannot overflow: a block has the size of its largest buffer, and all buffers together
    // have less than 2^64 bytes.
    let mut top = 0;
    for block in blocks {
        for &i in &block.buffers {
            offsets[i] = top;
        }
        top += block.size;
    }
    offsets
}

#[cfg(test)]
mod tests;
