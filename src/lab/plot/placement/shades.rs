//! Shades that tell blocks apart.

use super::super::Block;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// How many there are: one more than a block has neighbours that matter.
pub(super) const SHADES: usize = 4;

/// Block -> its shade, which is not that of the blocks that lie above and below it when it begins, nor that of the last
/// block that began at its address. O(n log n).
pub(super) fn shades(blocks: &[&Block]) -> Vec<usize> {
    let mut changes: Vec<(u64, bool, usize)> = Vec::with_capacity(2 * blocks.len());
    for (i, block) in blocks.iter().enumerate() {
        // At each instant first those that end.
        changes.extend([(block.time.start, true, i), (block.time.end, false, i)]);
    }
    changes.sort_unstable();
    let mut shades = vec![0; blocks.len()];
    // Address -> the block that is there, and the shade of the last that was.
    let mut alive: BTreeMap<u64, usize> = BTreeMap::new();
    let mut last: FxHashMap<u64, usize> = FxHashMap::default();
    for (_, begins, i) in changes {
        let offset = blocks[i].offset;
        if !begins {
            if alive.get(&offset) == Some(&i) {
                alive.remove(&offset);
            }
            continue;
        }
        let below = alive.range(..offset).next_back();
        let above = alive.range(offset..).next();
        let beside = below.into_iter().chain(above).map(|(_, &other)| shades[other]);
        let taken: Vec<usize> = beside.chain(last.get(&offset).copied()).collect();
        let free = (0..SHADES).find(|shade| !taken.contains(shade));
        shades[i] = free.expect("three are taken at most");
        alive.insert(offset, i);
        last.insert(offset, shades[i]);
    }
    shades
}
