//! State of a search: the placed buffers, bounds on the addresses of all other buffers, and a check
//! whether the other buffers may still fit.

use super::super::meet;
use super::memory::Memory;
use super::sections::Part;
use std::ops::Range;

/// Rules that a search may use. Only tests turn rules off, to show that no rule changes an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// Rule: no buffer is placed so high that an unplaced buffer would fit below it.
    pub dominance: bool,
    /// Rule: a buffer is passed over if it could have been placed before the last placed buffer,
    /// but was not. Another buffer must then be placed below the passed buffer, which raises the
    /// lowest possible address of the passed buffer.
    pub lifting: bool,
    /// Rule for two buffers with equal lives: if they touch, the buffer with the lower rank must be
    /// below. If their sizes and alignments are also equal, the buffer with the lower rank must be
    /// below even if they do not touch.
    pub symmetry: bool,
    /// Rule: groups of unplaced buffers that have no section in common are placed separately.
    pub splitting: bool,
    /// Rule: failed states are remembered, and not tried again.
    pub memory: bool,
}

impl Rules {
    pub const ALL: Self =
        Self { dominance: true, lifting: true, symmetry: true, splitting: true, memory: true };
}

/// Address and rank of the last placed buffer. Buffers are placed in rising order of (address,
/// rank).
pub(super) type Last = (u64, u32);

const NONE: u32 = u32::MAX;
/// Mark in the `under` field of an entry of `trail`. An entry with the mark records that the buffer
/// was placed. An entry without the mark records that the lowest possible address of the buffer was
/// raised.
const PLACED: u32 = u32::MAX - 1;

/// Buffers of one part, numbered by rank. The rank of a buffer is its position in the order of the
/// search.
#[derive(Debug)]
pub(super) struct State {
    pub rules: Rules,
    /// Capacity in units.
    pub capacity: u64,

    // The following fields are indexed by rank.
    items: Vec<usize>,
    size: Vec<u64>,
    align: Vec<u64>,
    /// First section in which the buffer takes memory.
    pub lower: Vec<u32>,
    /// First section after all sections in which the buffer takes memory.
    pub upper: Vec<u32>,
    /// Ranges of sections in which the buffer takes memory, in rising order.
    ranges: Ranges,
    /// Nearest lower rank of a buffer with the same sections, size and alignment, or `NONE`.
    twin: Vec<u32>,
    /// Lowest possible address of a buffer. For an unplaced buffer, the entry is the aligned
    /// highest end of the placed buffers that meet it. (Two buffers meet if they share a section.)
    /// The entry of a placed buffer is its address.
    pub least: Vec<u64>,
    /// Placed buffer whose end determines `least`, or `NONE`.
    under: Vec<u32>,
    /// Lower bound on the address. The bound is above `least` if the buffer cannot be at `least`.
    /// Each call of `look` computes the bound anew.
    lifted: Vec<u64>,
    /// Whether the buffer must not be placed at `least` any more. Each call of `look` computes the
    /// flags anew.
    passed: Vec<bool>,
    placed: Vec<bool>,
    /// Hash of the buffer and its `least`, which is added to the key of a state.
    word: Vec<u128>,
    /// Bit set of the ranks that are not placed.
    free: Vec<u64>,
    /// Rank -> bit set, in `free.len()` words, of the ranks whose buffers share a section with its
    /// buffer.
    meets: Vec<u64>,

    // The following fields are indexed by section, and count only buffers that are not placed.
    // These fields are floats, because only floats have a fast minimum instruction on all
    // processors. Whole numbers below `MOST` are exact as floats.
    /// Sum of the sizes of the unplaced buffers in the section.
    total: Vec<f64>,
    /// Lowest `lifted` of the unplaced buffers in the section. Each call of `look` computes the
    /// minima anew.
    floor: Vec<f64>,

    /// Changes that [`State::undo`] can undo. An entry is a rank with its former `under` and
    /// `least`, or, with `PLACED`, a rank that was placed.
    trail: Vec<(u32, u32, u64)>,
    /// Number of placed buffers.
    depth: usize,
    /// Largest number of buffers that were placed at the same time.
    pub deepest: usize,
}

impl State {
    /// Limit on the sum of all sizes, in units.
    pub const MOST: u64 = 1 << 53;

    /// State of a part before any buffer is placed. `order` holds the items by rank.
    pub fn new(part: &Part, order: Vec<usize>, rules: Rules) -> Self {
        let count = order.len();
        let item = |&i: &usize| &part.items[i];
        let ranges = Ranges::new(order.iter().map(|i| &item(i).sections[..]));
        let hulls = || (0..count).map(|rank| ranges.of(rank));
        let lower: Vec<u32> = hulls().map(|of| of.first().map_or(0, |range| range.0)).collect();
        let upper: Vec<u32> = hulls().map(|of| of.last().map_or(0, |range| range.1)).collect();
        let size: Vec<u64> = order.iter().map(|i| item(i).size).collect();
        let align: Vec<u64> = order.iter().map(|i| item(i).align).collect();
        let mut last = rustc_hash::FxHashMap::default();
        let twin = (0..count).map(|rank| {
            let kind = (ranges.of(rank), size[rank], align[rank]);
            last.insert(kind, rank as u32).unwrap_or(NONE)
        });
        let mut free = vec![0; count.div_ceil(64)];
        (0..count).for_each(|rank| free[rank / 64] |= 1 << (rank % 64));
        let twin = twin.collect();
        Self {
            twin,
            meets: meetings(&ranges, count),
            ranges,
            size,
            align,
            lower,
            upper,
            least: vec![0; count],
            under: vec![NONE; count],
            lifted: vec![0; count],
            passed: vec![false; count],
            placed: vec![false; count],
            free,
            word: (0..count as u32).map(|rank| Memory::word(rank, 0)).collect(),
            total: part.totals().into_iter().map(|total| total as f64).collect(),
            floor: vec![0.0; part.sections],
            trail: Vec::new(),
            rules,
            depth: 0,
            deepest: 0,
            capacity: 0,
            items: order,
        }
    }

    /// Address of each item, and the highest end of all items. The caller must have placed all
    /// buffers.
    pub fn placement(&self) -> (Vec<u64>, u64) {
        let mut offsets = vec![0; self.items.len()];
        let mut height = 0;
        for (rank, &item) in self.items.iter().enumerate() {
            offsets[item] = self.least[rank];
            height = height.max(self.least[rank] + self.size[rank]);
        }
        (offsets, height)
    }

    /// Number of buffers.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Length of `trail`, for a later call of [`State::undo`].
    pub fn mark(&self) -> usize {
        self.trail.len()
    }

    /// Key of the state in which the ranks of `rest` must be placed after `last`; `None` if some
    /// bound shows that they cannot all fit below the capacity. Computes `passed`, `lifted` and
    /// `floor`.
    pub fn look(&mut self, rest: &[u32], last: Last) -> Option<u128> {
        let mut low = u32::MAX;
        let mut high = 0;
        let mut key = 0_u128;
        for &rank in rest {
            let r = rank as usize;
            (low, high) = (low.min(self.lower[r]), high.max(self.upper[r]));
            let mut lifted = self.least[r].max(last.0);
            let passed = (self.least[r], rank) < last || self.waits(r);
            self.passed[r] = passed;
            key = key.wrapping_add(self.word[r].rotate_left(u32::from(passed)));
            if passed && self.rules.lifting {
                let mut least = u64::MAX;
                for o in self.met(r) {
                    least = least.min(self.least[o].max(last.0) + self.size[o]);
                }
                if least == u64::MAX {
                    return None;
                }
                lifted = least.next_multiple_of(self.align[r]);
            }
            self.lifted[r] = lifted;
        }
        let sections = low as usize..high as usize;
        self.floor[sections.clone()].fill(f64::INFINITY);
        for &rank in rest {
            let r = rank as usize;
            let lifted = self.lifted[r] as f64;
            for &(lower, upper) in self.ranges.of(r) {
                for floor in &mut self.floor[lower as usize..upper as usize] {
                    *floor = if lifted < *floor { lifted } else { *floor };
                }
            }
        }
        let mut sums = self.floor[sections.clone()].iter().zip(&self.total[sections]);
        let capacity = self.capacity as f64;
        let fits = sums.all(|(&floor, &total)| total == 0.0 || floor + total <= capacity);
        fits.then_some(key)
    }

    /// Adds to `tries` the ranks of `rest` that may be placed next, sorted by address and rank. The
    /// caller must have called `look` for `rest` with success.
    pub fn candidates(&self, rest: &[u32], tries: &mut Vec<u32>) {
        let begin = tries.len();
        let end = |&rank: &u32| self.least[rank as usize] + self.size[rank as usize];
        let lowest = rest.iter().map(end).min().unwrap_or(0);
        tries.extend(rest.iter().filter(|&&rank| {
            let r = rank as usize;
            let dominated = self.rules.dominance && self.least[r] >= lowest;
            let first_twin = self.twin[r] == NONE || self.placed[self.twin[r] as usize];
            !self.passed[r] && !dominated && (first_twin || !self.rules.symmetry)
        }));
        tries[begin..].sort_unstable_by_key(|&rank| (self.least[rank as usize], rank));
    }

    /// Whether the rule `symmetry` forbids to place the buffer at `least`.
    fn waits(&self, r: usize) -> bool {
        if !self.rules.symmetry {
            return false;
        }
        // The twin, an equal buffer of lower rank, must be below this buffer. The twin was passed
        // over, so it cannot be placed at the same `least` any more.
        let twin = self.twin[r];
        if twin != NONE && !self.placed[twin as usize] && self.passed[twin as usize] {
            return true;
        }
        // The buffer and the buffer under it could be exchanged. Of the two placements, only the
        // one with the lower rank below is searched.
        let under = self.under[r];
        if under == NONE || self.align[r] > 1 || self.align[under as usize] > 1 {
            return false;
        }
        let u = under as usize;
        r < u && self.ranges.of(r) == self.ranges.of(u)
    }

    /// Unplaced ranks whose buffers share a section with buffer `r`.
    fn met(&self, r: usize) -> impl Iterator<Item = usize> {
        let words = self.free.len();
        let meets = &self.meets[r * words..(r + 1) * words];
        meets.iter().zip(&self.free).enumerate().flat_map(|(word, (&meets, &free))| {
            let mut bits = meets & free;
            std::iter::from_fn(move || {
                let bit = (bits != 0).then(|| bits.trailing_zeros() as usize)?;
                bits &= bits - 1;
                Some(word * 64 + bit)
            })
        })
    }

    /// Places a buffer at its lowest possible address, and raises the lowest possible addresses of
    /// the unplaced buffers that meet it.
    pub fn place(&mut self, rank: u32) {
        let r = rank as usize;
        let end = self.least[r] + self.size[r];
        self.ranges.add(r, -(self.size[r] as f64), &mut self.total);
        self.placed[r] = true;
        self.depth += 1;
        self.deepest = self.deepest.max(self.depth);
        self.free[r / 64] ^= 1 << (r % 64);
        self.trail.push((rank, PLACED, 0));
        for word in 0..self.free.len() {
            let mut bits = self.free[word] & self.meets[r * self.free.len() + word];
            while bits != 0 {
                let o = word * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                if self.least[o] < end {
                    self.trail.push((o as u32, self.under[o], self.least[o]));
                    self.least[o] = end.next_multiple_of(self.align[o]);
                    self.under[o] = rank;
                    self.word[o] = Memory::word(o as u32, self.least[o]);
                }
            }
        }
    }

    /// Undoes all changes that were made since `trail` had this length.
    pub fn undo(&mut self, trail: usize) {
        while self.trail.len() > trail {
            let Some((rank, under, least)) = self.trail.pop() else { break };
            let r = rank as usize;
            if under == PLACED {
                self.placed[r] = false;
                self.depth -= 1;
                self.free[r / 64] ^= 1 << (r % 64);
                self.ranges.add(r, self.size[r] as f64, &mut self.total);
            } else {
                (self.least[r], self.under[r]) = (least, under);
                self.word[r] = Memory::word(rank, least);
            }
        }
    }
}

/// Ranges of sections in which each rank takes memory.
#[derive(Debug)]
struct Ranges {
    all: Vec<(u32, u32)>,
    /// Rank -> index in `all` of its first range. An additional last entry holds the number of all
    /// ranges.
    starts: Vec<usize>,
}

impl Ranges {
    fn new<'a>(of_ranks: impl Iterator<Item = &'a [Range<usize>]>) -> Self {
        let (mut all, mut starts) = (Vec::new(), vec![0]);
        for ranges in of_ranks {
            all.extend(ranges.iter().map(|range| (range.start as u32, range.end as u32)));
            starts.push(all.len());
        }
        Self { all, starts }
    }

    fn of(&self, rank: usize) -> &[(u32, u32)] {
        &self.all[self.starts[rank]..self.starts[rank + 1]]
    }

    /// Adds `size` to the totals of all sections of a rank.
    fn add(&self, rank: usize, size: f64, totals: &mut [f64]) {
        for &(lower, upper) in self.of(rank) {
            for total in &mut totals[lower as usize..upper as usize] {
                *total += size;
            }
        }
    }
}

/// Rank -> bit set of the other ranks whose buffers share a section with its buffer.
fn meetings(ranges: &Ranges, count: usize) -> Vec<u64> {
    let words = count.div_ceil(64);
    let mut meets = vec![0; count * words];
    for i in 0..count {
        for j in 0..i {
            if meet(ranges.of(i), ranges.of(j)) {
                meets[i * words + j / 64] |= 1 << (j % 64);
                meets[j * words + i / 64] |= 1 << (i % 64);
            }
        }
    }
    meets
}
