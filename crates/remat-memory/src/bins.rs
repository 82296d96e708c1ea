//! All holes of an arena, by size class.

use std::collections::BTreeMap;

use super::bin::{Bin, Hole};
use super::slab::Slab;

/// Number of bits, below the highest bit of a size, that choose the class. Each power of two is cut
/// into `2^STEP_BITS` classes. A class is at most 1.6 % wide.
const STEP_BITS: u32 = 6;
/// Number of classes per power of two.
const STEPS: u64 = 1 << STEP_BITS;
/// Number of classes that contain a single size.
const EQUAL: usize = 2 << STEP_BITS;
/// Number of words in the bitmap for the classes of all sizes up to `u64::MAX`.
const WORDS: usize = (class(u64::MAX) + 1).div_ceil(64);
const _: () = assert!(WORDS <= 64, "one word says which of them are zero");

/// Holes of an arena, in bins by size class, smallest class first.
#[derive(Clone, Debug)]
pub(super) struct Bins {
    /// A granule is `1 << shift` bytes.
    shift: u32,
    /// Bit `w` is set iff `words[w]` is not zero.
    summary: u64,
    /// Bit `b % 64` of `words[b / 64]` is set iff `bins[b]` is not empty.
    words: [u64; WORDS],
    /// Bin of each class. Every hole in `bins[b]` is smaller than every hole in `bins[b + 1]`. The
    /// number of bins is the number of classes up to the length of the longest region.
    bins: Vec<Bin>,
    /// Number of holes in all bins.
    len: usize,
}

/// Class of a size in granules: one class for each size below `2 * STEPS`, then `STEPS` classes for
/// each power of two. The computation has no branch, because sizes are unpredictable.
const fn class(granules: u64) -> usize {
    let power = (granules | STEPS).ilog2() - STEP_BITS;
    (power as u64 * STEPS + (granules >> power)) as usize
}

impl Bins {
    /// Makes an empty list of bins. [`Bins::make_room`] must add bins before the first hole.
    pub fn new(granularity: u64) -> Self {
        let shift = granularity.trailing_zeros();
        Self { shift, summary: 0, words: [0; WORDS], bins: vec![], len: 0 }
    }

    /// Adds bins for holes of up to `bytes` bytes.
    pub fn make_room(&mut self, bytes: u64) {
        let bins = self.bins.len()..=self.bin_of(bytes);
        self.bins.extend(bins.map(|_| Bin::EMPTY));
    }

    /// Number of holes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Largest hole; on a tie, the one with the lowest offset.
    pub fn largest(&self, slab: &Slab) -> Option<Hole> {
        let word = self.summary.checked_ilog2()? as usize;
        let bin = word * 64 + self.words[word].ilog2() as usize;
        self.bins[bin].largest(slab)
    }

    /// All holes, ordered by class.
    pub fn iter<'a>(&'a self, slab: &'a Slab) -> impl Iterator<Item = Hole> + 'a {
        self.occupied(0).flat_map(|bin| self.bins[bin].iter(slab))
    }

    /// Smallest hole of at least `size` bytes; on a tie, the one with the lowest offset.
    #[inline(always)]
    pub fn fit(&self, size: u64, slab: &Slab) -> Option<Hole> {
        let own = self.bin_of(size);
        let first = self.occupied_from(own)?;
        match self.bins[first].fit(size, slab) {
            None => self.bins[self.occupied_from(own + 1)?].fit(size, slab),
            hole => hole,
        }
    }

    /// Smallest hole of at least `size` bytes for which `accept` holds; on a tie, the lowest. Time:
    /// O(holes of at least `size` bytes).
    pub fn fit_where(
        &self,
        size: u64,
        slab: &Slab,
        accept: impl Fn(&Hole) -> bool,
    ) -> Option<Hole> {
        self.occupied(size).find_map(|bin| {
            let fits = |hole: &Hole| hole.size >= size && accept(hole);
            self.bins[bin].iter(slab).filter(fits).min_by_key(Hole::key)
        })
    }

    /// Hole that contains the `size` bytes at `offset`. Time: O(holes of at least `size` bytes).
    pub fn around(&self, offset: u64, size: u64, slab: &Slab) -> Option<Hole> {
        let end = offset.checked_add(size)?;
        let mut holes = self.occupied(size).flat_map(|bin| self.bins[bin].iter(slab));
        holes.find(|hole| hole.offset <= offset && end <= hole.end())
    }

    /// Adds a hole.
    #[inline(always)]
    pub fn insert(&mut self, hole: Hole, slab: &mut Slab) {
        let bin = self.bin_of(hole.size);
        self.bins[bin].insert(hole, bin < EQUAL, slab);
        self.words[bin / 64] |= 1 << (bin % 64);
        self.summary |= 1 << (bin / 64);
        self.len += 1;
    }

    /// Removes a hole, which must be in a bin.
    #[inline(always)]
    pub fn remove(&mut self, hole: Hole, slab: &mut Slab) {
        let bin = self.bin_of(hole.size);
        let emptied = self.bins[bin].remove(hole, slab);
        self.len -= 1;
        // The bitmap is updated without a branch, because it is unpredictable whether a bin or a
        // word becomes empty.
        let word = &mut self.words[bin / 64];
        *word &= !(u64::from(emptied) << (bin % 64));
        self.summary &= !(u64::from(*word == 0) << (bin / 64));
    }

    /// Replaces `old`, which must be in a bin, by `new` in the same slot. The caller must update
    /// the slot in the slab afterwards.
    #[inline(always)]
    pub fn update(&mut self, old: Hole, new: Hole, slab: &mut Slab) {
        let bin = self.bin_of(old.size);
        if bin == self.bin_of(new.size) {
            self.bins[bin].update(old, new, slab);
        } else {
            self.remove(old, slab);
            self.insert(new, slab);
        }
    }

    fn bin_of(&self, size: u64) -> usize {
        class(size >> self.shift)
    }

    /// First bin at or after `bin` that is not empty.
    #[inline(always)]
    fn occupied_from(&self, bin: usize) -> Option<usize> {
        let word = bin / 64;
        let here = self.words.get(word)? & (!0 << (bin % 64));
        if here != 0 {
            return Some(word * 64 + here.trailing_zeros() as usize);
        }
        let later = self.summary & (!1 << word);
        if later == 0 {
            return None;
        }
        let word = later.trailing_zeros() as usize;
        Some(word * 64 + self.words[word].trailing_zeros() as usize)
    }

    /// Bins that are not empty, in order, from the bin of `size` on.
    fn occupied(&self, size: u64) -> impl Iterator<Item = usize> + '_ {
        let first = self.occupied_from(self.bin_of(size));
        std::iter::successors(first, |bin| self.occupied_from(bin + 1))
    }

    /// Checks the bins against `holes` (slot -> hole).
    ///
    /// # Panics
    /// If the bins do not hold exactly `holes`, or a hole is in the wrong bin.
    pub fn check(&self, holes: &BTreeMap<u32, Hole>, slab: &Slab) {
        assert_eq!(self.len, holes.len(), "the bins hold {} of {} holes", self.len, holes.len());
        for hole in holes.values() {
            let bin = self.bin_of(hole.size);
            let found = self.bins[bin].contains(*hole, slab);
            assert!(found, "{hole:?} is not in bin {bin}");
        }
        for (b, bin) in self.bins.iter().enumerate() {
            let bit = self.words[b / 64] >> (b % 64) & 1 == 1;
            assert_eq!(bit, !bin.is_empty(), "bit of bin {b}");
            // Nearly all bins are empty. Without the shortcut for empty bins, the checks took half
            // of the training time in debug builds.
            if bin.is_empty() {
                continue;
            }
            assert!(bin.in_order(), "order of bin {b}");
            for hole in bin.iter(slab) {
                assert_eq!(holes.get(&hole.slot), Some(&hole), "bin {b} holds a hole that is not");
            }
        }
        for (w, &word) in self.words.iter().enumerate() {
            assert_eq!(self.summary >> w & 1 == 1, word != 0, "summary of word {w}");
        }
    }
}
