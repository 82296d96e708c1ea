//! Shades, different for neighbouring blocks.

use super::super::Block;
use std::collections::BTreeMap;

/// Number of shades: few enough to stay distinguishable.
pub(super) const SHADES: usize = 4;

/// Limit on the number of blocks whose shades a new block avoids, among the blocks at its addresses
/// that have just ended.
const BEFORE: usize = 4;

/// Block -> its shade. The shade differs from the shades of the blocks that are directly above and
/// below when the block begins. If there are enough shades, the shade also differs from the shades
/// of blocks at the same addresses that end when the block begins. Time: O(n log n).
pub(super) fn shades(blocks: &[&Block]) -> Vec<usize> {
    let mut changes: Vec<(u64, bool, usize)> = Vec::with_capacity(2 * blocks.len());
    for (i, block) in blocks.iter().enumerate() {
        // At each instant, all ends come before all begins.
        changes.extend([(block.time.start, true, i), (block.time.end, false, i)]);
    }
    changes.sort_unstable();
    let mut shades = vec![0; blocks.len()];
    // Address -> the block that is alive at this address.
    let mut alive: BTreeMap<u64, usize> = BTreeMap::new();
    // Address -> the block at this address that ended at the current instant.
    let mut ended: BTreeMap<u64, usize> = BTreeMap::new();
    let mut now = None;
    for (at, begins, i) in changes {
        if now.replace(at) != Some(at) {
            ended.clear();
        }
        let Block { offset, size, .. } = *blocks[i];
        if !begins {
            alive.remove(&offset);
            ended.insert(offset, i);
            continue;
        }
        let beside = [alive.range(..offset).next_back(), alive.range(offset..).next()];
        let beside = beside.into_iter().flatten().map(|(_, &other)| (other, 10));
        let lower = ended.range(..offset).next_back().map(|(_, &other)| other);
        let lower = lower.filter(|&other| blocks[other].offset + blocks[other].size > offset);
        let before = ended.range(offset..offset + size).map(|(_, &other)| other).take(BEFORE);
        let before = lower.into_iter().chain(before).map(|other| (other, 1));
        let mut taken = [0; SHADES];
        beside.chain(before).for_each(|(other, weight)| taken[shades[other]] += weight);
        shades[i] = (0..SHADES).min_by_key(|&shade| taken[shade]).unwrap_or(0);
        alive.insert(offset, i);
    }
    shades
}
