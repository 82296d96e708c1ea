//! The holes of one size class.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::slab::Slab;

/// A free chunk as the bins know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hole {
    /// Bytes, never zero.
    pub size: u64,
    /// First byte.
    pub offset: u64,
    /// Its slot in the slab.
    pub slot: u32,
}

/// Size, then offset: the order of best fit.
type Key = (u64, u64);

impl Hole {
    pub fn key(&self) -> Key {
        (self.size, self.offset)
    }

    pub fn end(&self) -> u64 {
        self.offset + self.size
    }

    fn of((&(size, offset), &slot): (&Key, &u32)) -> Self {
        Self { size, offset, slot }
    }
}

/// A list of holes of different sizes becomes a tree when it outgrows this ...
const MANY: usize = 64;
/// ... and the tree a list again at this: far enough below that it does not flap.
const FEW: usize = 16;
/// The same for holes of one size and a heap, which is faster than a tree.
const MANY_EQUAL: usize = 24;
const FEW_EQUAL: usize = 8;
/// Children of a heap node.
const FAN: usize = 4;

/// A set of holes that yields its best fit. Which kind it is is a matter of speed alone; nearly all are
/// short lists, so which code runs is no coin toss to the branch predictor.
///
/// Measured on random streams with 6,000 to 30,000 holes: one tree per bin costs a third more than
/// this (and twice as much on recorded training steps), one sorted list a half more, heaps for all bins
/// of one size a tenth more.
#[derive(Clone, Debug)]
pub(super) enum Bin {
    /// In no order: nearly always under ten, quicker to scan than to sort.
    Few(Vec<Hole>),
    /// Many, all of one size: a heap, lowest offset on top. The leftovers of best fit end here, often
    /// hundreds of them, and come and go without being looked at.
    Equal(Vec<Hole>),
    /// Many of different sizes.
    Many(BTreeMap<Key, u32>),
}

impl Bin {
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Equal(list) | Self::Few(list) => list.is_empty(),
            Self::Many(tree) => tree.is_empty(),
        }
    }

    /// The largest hole; of several, the one with the lowest offset.
    pub fn largest(&self) -> Option<Hole> {
        match self {
            Self::Equal(heap) => heap.first().copied(),
            Self::Few(list) => {
                list.iter().max_by_key(|hole| (hole.size, Reverse(hole.offset))).copied()
            }
            Self::Many(tree) => {
                let (&(size, _), _) = tree.last_key_value()?;
                tree.range((size, 0)..).next().map(Hole::of)
            }
        }
    }

    /// All holes, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = Hole> + '_ {
        let (list, tree) = match self {
            Self::Equal(list) | Self::Few(list) => (list.as_slice(), None),
            Self::Many(tree) => (&[][..], Some(tree)),
        };
        list.iter().copied().chain(tree.into_iter().flatten().map(Hole::of))
    }

    /// The smallest hole of at least `size` bytes; of several, the one with the lowest offset.
    #[inline(always)]
    pub fn fit(&self, size: u64) -> Option<Hole> {
        match self {
            // The bin of `size` itself or of a larger one: every hole fits.
            Self::Equal(heap) => heap.first().copied(),
            Self::Few(list) => {
                // Which hole wins is a coin toss to the branch predictor, so no branch asks it.
                let (mut best, mut at) = ((u64::MAX, u64::MAX), usize::MAX);
                for (i, hole) in list.iter().enumerate() {
                    let lower = (hole.size == best.0) & (hole.offset < best.1);
                    if (hole.size >= size) & ((hole.size < best.0) | lower) {
                        (best, at) = (hole.key(), i);
                    }
                }
                list.get(at).copied()
            }
            Self::Many(tree) => tree.range((size, 0)..).next().map(Hole::of),
        }
    }

    /// Adds a hole; `equal` says whether this bin is for holes of one size.
    #[inline(always)]
    pub fn insert(&mut self, hole: Hole, equal: bool, slab: &mut Slab) {
        let many = if equal { MANY_EQUAL } else { MANY };
        match self {
            Self::Few(list) if list.len() < many => {
                slab[hole.slot].place_or_tail = list.len() as u32;
                list.push(hole);
            }
            _ => self.insert_slowly(hole, equal, slab),
        }
    }

    #[inline(never)]
    fn insert_slowly(&mut self, hole: Hole, equal: bool, slab: &mut Slab) {
        match self {
            Self::Equal(heap) => {
                let at = heap.len();
                heap.push(hole);
                rise(heap, at, hole, slab);
            }
            Self::Few(list) if equal => {
                // In ascending order it is a heap.
                list.push(hole);
                list.sort_unstable_by_key(|hole| hole.offset);
                for (at, hole) in (0..).zip(&*list) {
                    slab[hole.slot].place_or_tail = at;
                }
                *self = Self::Equal(std::mem::take(list));
            }
            Self::Few(list) => {
                list.push(hole);
                *self = Self::Many(list.iter().map(|hole| (hole.key(), hole.slot)).collect());
            }
            Self::Many(tree) => {
                tree.insert(hole.key(), hole.slot);
            }
        }
    }

    /// Takes out a hole that is in. Whether it was the last.
    #[inline(always)]
    pub fn remove(&mut self, hole: Hole, slab: &mut Slab) -> bool {
        match self {
            Self::Few(list) => {
                // The last one comes in its place, also if it is the last: no branch to guess.
                let at = slab[hole.slot].place_or_tail;
                let rest = list.len() - 1;
                let last = list[rest];
                list[at as usize] = last;
                list.truncate(rest);
                slab[last.slot].place_or_tail = at;
                rest == 0
            }
            _ => self.remove_slowly(hole, slab),
        }
    }

    #[inline(never)]
    fn remove_slowly(&mut self, hole: Hole, slab: &mut Slab) -> bool {
        match self {
            Self::Equal(heap) => {
                let at = slab[hole.slot].place_or_tail as usize;
                if let Some(last) = heap.pop().filter(|_| at < heap.len()) {
                    place(heap, at, last, slab);
                }
                if heap.len() <= FEW_EQUAL {
                    *self = Self::Few(std::mem::take(heap));
                }
            }
            Self::Few(_) => unreachable!("a list is not slow"),
            Self::Many(tree) => {
                tree.remove(&hole.key());
                if tree.len() <= FEW {
                    let list: Vec<_> = tree.iter().map(Hole::of).collect();
                    for (at, hole) in (0..).zip(&list) {
                        slab[hole.slot].place_or_tail = at;
                    }
                    *self = Self::Few(list);
                }
            }
        }
        self.is_empty()
    }

    /// Replaces `old`, which is in, by `new`, what became of it in the same slot.
    #[inline(always)]
    pub fn update(&mut self, old: Hole, new: Hole, slab: &mut Slab) {
        debug_assert_eq!(old.slot, new.slot);
        match self {
            Self::Few(list) => list[slab[old.slot].place_or_tail as usize] = new,
            Self::Equal(heap) => place(heap, slab[old.slot].place_or_tail as usize, new, slab),
            Self::Many(tree) => {
                tree.remove(&old.key());
                tree.insert(new.key(), new.slot);
            }
        }
    }

    /// Whether `hole` is in, and where its position says.
    pub fn contains(&self, hole: Hole, slab: &Slab) -> bool {
        match self {
            Self::Equal(list) | Self::Few(list) => {
                list.get(slab[hole.slot].place_or_tail as usize) == Some(&hole)
            }
            Self::Many(tree) => tree.get(&hole.key()) == Some(&hole.slot),
        }
    }

    /// Whether the order that the kind promises holds.
    pub fn in_order(&self) -> bool {
        match self {
            Self::Equal(heap) => (1..heap.len()).all(|i| {
                let parent = heap[(i - 1) / FAN];
                parent.size == heap[i].size && parent.offset < heap[i].offset
            }),
            Self::Few(_) | Self::Many(_) => true,
        }
    }
}

/// Puts `hole` in place of the one at `at`.
#[inline(never)]
fn place(heap: &mut [Hole], at: usize, hole: Hole, slab: &mut Slab) {
    if hole.offset < heap[at].offset {
        rise(heap, at, hole, slab);
    } else {
        sink(heap, at, hole, slab);
    }
}

/// Puts `hole` at `at` or at the first ancestor where it is in order.
#[inline]
fn rise(heap: &mut [Hole], mut at: usize, hole: Hole, slab: &mut Slab) {
    while at > 0 {
        let parent = (at - 1) / FAN;
        if heap[parent].offset < hole.offset {
            break;
        }
        heap[at] = heap[parent];
        slab[heap[at].slot].place_or_tail = at as u32;
        at = parent;
    }
    heap[at] = hole;
    slab[hole.slot].place_or_tail = at as u32;
}

/// Puts `hole` at `at` or at the first descendant, along the lowest children, where it is in order.
fn sink(heap: &mut [Hole], mut at: usize, hole: Hole, slab: &mut Slab) {
    loop {
        let children = (at * FAN + 1)..(at * FAN + 1 + FAN).min(heap.len());
        let lowest = children.min_by_key(|&child| heap[child].offset);
        let Some(child) = lowest.filter(|&child| heap[child].offset < hole.offset) else { break };
        heap[at] = heap[child];
        slab[heap[at].slot].place_or_tail = at as u32;
        at = child;
    }
    heap[at] = hole;
    slab[hole.slot].place_or_tail = at as u32;
}
