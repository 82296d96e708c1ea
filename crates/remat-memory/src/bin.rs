//! Bin: the holes of one size class.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::hint::select_unpredictable;

use super::slab::{EDGE, Slab, Slot};

/// Free chunk, as the bins store it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hole {
    /// Size in bytes, never zero.
    pub size: u64,
    /// Offset of the first byte.
    pub offset: u64,
    /// Slot of the hole in the slab.
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

/// Longest list before a bin becomes a heap or a tree. A list of up to this length fits into one
/// cache line.
const MANY: usize = 14;
/// Number of holes at which a heap or a tree becomes a list again. The number is far below `MANY`,
/// so the kind of a bin changes rarely.
const FEW: usize = 6;
/// Children of a heap node.
const FAN: usize = 4;

/// Set of holes, searched by best fit.
///
/// The variant (list, heap or tree) affects speed only. Nearly all bins are short lists, so the
/// processor predicts the branch on the variant well. Alternatives were measured on random streams
/// with 1,000 and 20,000 live blocks. Ordered lists take a third more time than unordered lists. A
/// heap in every bin takes half more time.
#[derive(Clone, Debug)]
pub(super) enum Bin {
    /// Few holes. Only the slots of the holes are stored, not their sizes, so [`Bin::update`]
    /// changes nothing. The list is unordered, because one or two holes are quicker to scan than to
    /// sort.
    Few { len: u32, slots: [u32; MANY] },
    /// Many holes of one size: a heap with the lowest offset on top. Best fit leaves many small
    /// holes of equal size, often hundreds. Adding and removing a hole needs no search.
    Equal(Vec<Hole>),
    /// Many holes of different sizes.
    Many(BTreeMap<Key, u32>),
}

impl Bin {
    /// Bin without holes.
    pub const EMPTY: Self = Self::Few { len: 0, slots: [EDGE; MANY] };

    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Few { len: 0, .. })
    }

    /// Largest hole; on a tie, the one with the lowest offset.
    pub fn largest(&self, slab: &Slab) -> Option<Hole> {
        match self {
            Self::Few { .. } => {
                self.iter(slab).max_by_key(|hole| (hole.size, Reverse(hole.offset)))
            }
            Self::Equal(heap) => heap.first().copied(),
            Self::Many(tree) => {
                let (&(size, _), _) = tree.last_key_value()?;
                tree.range((size, 0)..).next().map(Hole::of)
            }
        }
    }

    /// All holes, in no particular order.
    pub fn iter<'a>(&'a self, slab: &'a Slab) -> impl Iterator<Item = Hole> + 'a {
        let (few, heap, tree) = match self {
            Self::Few { len, slots } => (&slots[..*len as usize], &[][..], None),
            Self::Equal(heap) => (&[][..], heap.as_slice(), None),
            Self::Many(tree) => (&[][..], &[][..], Some(tree)),
        };
        let few = few.iter().map(|&slot| slab.hole(slot));
        few.chain(heap.iter().copied()).chain(tree.into_iter().flatten().map(Hole::of))
    }

    /// Smallest hole of at least `size` bytes; on a tie, the one with the lowest offset. The bin
    /// must not be empty.
    #[inline(always)]
    pub fn fit(&self, size: u64, slab: &Slab) -> Option<Hole> {
        match self {
            Self::Few { len, slots } => {
                // If a hole is too small, `has - size` wraps around to a huge number. A hole that
                // is too small then has a larger key than any hole that is large enough. The
                // minimum is found without branches, because its position is unpredictable.
                let key = |slot: u32| {
                    let Slot { size: has, offset, .. } = slab[slot];
                    u128::from(has.wrapping_sub(size)) << 64 | u128::from(offset)
                };
                let mut at = slots[0];
                let mut best = key(at);
                for &slot in slots.iter().take(*len as usize).skip(1) {
                    let better = key(slot) < best;
                    best = select_unpredictable(better, key(slot), best);
                    at = select_unpredictable(better, slot, at);
                }
                Some(slab.hole(at)).filter(|hole| hole.size >= size)
            }
            // A heap belongs to a class of a single size. Searches reach the heap only for the size
            // of its class or for smaller sizes, so every hole fits.
            Self::Equal(heap) => heap.first().copied(),
            Self::Many(tree) => tree.range((size, 0)..).next().map(Hole::of),
        }
    }

    /// Adds a hole.
    #[inline(always)]
    pub fn insert(&mut self, hole: Hole, equal: bool, slab: &mut Slab) {
        match self {
            Self::Few { len, slots } if (*len as usize) < MANY => {
                slots[*len as usize] = hole.slot;
                slab[hole.slot].place_or_tail = *len;
                *len += 1;
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
            Self::Many(tree) => {
                tree.insert(hole.key(), hole.slot);
            }
            Self::Few { slots, .. } => {
                let all = slots.iter().map(|&slot| slab.hole(slot)).chain([hole]);
                if equal {
                    // A list in ascending order is already a heap.
                    let mut heap: Vec<_> = all.collect();
                    heap.sort_unstable_by_key(|hole| hole.offset);
                    for (at, hole) in (0..).zip(&heap) {
                        slab[hole.slot].place_or_tail = at;
                    }
                    *self = Self::Equal(heap);
                } else {
                    *self = Self::Many(all.map(|hole| (hole.key(), hole.slot)).collect());
                }
            }
        }
    }

    /// Removes a hole, which must be in the bin. Returns whether the bin is empty now.
    #[inline(always)]
    pub fn remove(&mut self, hole: Hole, slab: &mut Slab) -> bool {
        match self {
            Self::Few { len, slots } => {
                // The last hole moves to the index of the removed hole. The last hole moves even if
                // it is the removed hole, because the code then needs no branch.
                let at = slab[hole.slot].place_or_tail;
                *len -= 1;
                let last = slots[*len as usize];
                slots[at as usize] = last;
                slab[last].place_or_tail = at;
                *len == 0
            }
            _ => {
                self.remove_slowly(hole, slab);
                false
            }
        }
    }

    #[inline(never)]
    fn remove_slowly(&mut self, hole: Hole, slab: &mut Slab) {
        let left = match self {
            Self::Equal(heap) => {
                let at = slab[hole.slot].place_or_tail as usize;
                if let Some(last) = heap.pop().filter(|_| at < heap.len()) {
                    place(heap, at, last, slab);
                }
                heap.len()
            }
            Self::Many(tree) => {
                tree.remove(&hole.key());
                tree.len()
            }
            Self::Few { .. } => unreachable!("a list is not slow"),
        };
        if left <= FEW {
            let holes: Vec<_> = self.iter(slab).collect();
            *self = Self::EMPTY;
            for hole in holes {
                self.insert(hole, false, slab);
            }
        }
    }

    /// Replaces `old`, which must be in the bin, by `new` in the same slot.
    #[inline(always)]
    pub fn update(&mut self, old: Hole, new: Hole, slab: &mut Slab) {
        debug_assert_eq!(old.slot, new.slot);
        match self {
            Self::Few { .. } => {}
            Self::Equal(heap) => place(heap, slab[old.slot].place_or_tail as usize, new, slab),
            Self::Many(tree) => {
                tree.remove(&old.key());
                tree.insert(new.key(), new.slot);
            }
        }
    }

    /// Whether `hole` is in the bin, at the position noted in its slot.
    pub fn contains(&self, hole: Hole, slab: &Slab) -> bool {
        let at = slab[hole.slot].place_or_tail as usize;
        match self {
            Self::Few { len, slots } => slots[..*len as usize].get(at) == Some(&hole.slot),
            Self::Equal(heap) => heap.get(at) == Some(&hole),
            Self::Many(tree) => tree.get(&hole.key()) == Some(&hole.slot),
        }
    }

    /// Whether the holes are in the order that the kind of the bin requires.
    pub fn in_order(&self) -> bool {
        match self {
            Self::Equal(heap) => (1..heap.len()).all(|i| {
                let parent = heap[(i - 1) / FAN];
                parent.size == heap[i].size && parent.offset < heap[i].offset
            }),
            Self::Few { .. } | Self::Many(_) => true,
        }
    }
}

/// Puts `hole` in place of the hole at `at`.
#[inline(never)]
fn place(heap: &mut [Hole], at: usize, hole: Hole, slab: &mut Slab) {
    if hole.offset < heap[at].offset {
        rise(heap, at, hole, slab);
    } else {
        sink(heap, at, hole, slab);
    }
}

/// Puts `hole` at `at`, or at the lowest ancestor of `at` where the heap order holds.
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

/// Puts `hole` at `at`, or at the first descendant, along the lowest children, where the heap order
/// holds.
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
