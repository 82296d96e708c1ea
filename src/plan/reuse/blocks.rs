//! What CANN's planners have in common: blocks that buffers use one after another.

use std::collections::BTreeSet;
use std::hash::Hash;

use rustc_hash::FxHashMap;

use super::super::{Change, Lifetimes};

/// To what CANN and GE round blocks up, in bytes.
pub(super) const ROUND: u64 = 512;

/// Which of several free blocks is used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Take {
    /// The one released last, as in open-source GE, which looks for one from the end of its list. Of those released at one
    /// instant, whose order lifetimes do not tell, the one made last: with this the figures come out that are known.
    #[default]
    Newest,
    /// The one made first, whenever it was released, as in the article.
    Oldest,
}

impl Take {
    /// How it is asked for: nothing or `oldest`.
    pub(in super::super) fn named(option: &str) -> Option<Self> {
        match option {
            "" => Some(Self::Newest),
            "oldest" => Some(Self::Oldest),
            _ => None,
        }
    }

    /// The planner's name with it.
    pub(super) fn name(self, planner: &str) -> String {
        match self {
            Self::Newest => planner.to_owned(),
            Self::Oldest => format!("{planner}:oldest"),
        }
    }
}

/// Bytes that buffers use one after another.
#[derive(Debug, Default)]
pub(super) struct Block {
    /// Of the largest buffer in it: GE's resize.
    pub size: u64,
    /// In order of time.
    pub buffers: Vec<usize>,
}

/// Puts buffers, as they come, into free blocks of their class, or else into new ones. Those of no bytes need none.
pub(super) fn chain<C: Eq + Hash>(
    lifetimes: &Lifetimes,
    sizes: &[u64],
    class: impl Fn(u64) -> C,
    take: Take,
) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut homes = vec![0; sizes.len()];
    // By class: when each was released, and the block. When does not matter to who takes the oldest.
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

/// Offsets of the buffers where blocks lie one behind another.
pub(super) fn in_a_row(blocks: &[Block], buffers: usize) -> Vec<u64> {
    let mut offsets = vec![0; buffers];
    // No overflow: no block has more than its largest buffer, and all buffers together have less than 2^64 bytes.
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
