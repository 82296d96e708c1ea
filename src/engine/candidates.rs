//! The storages that could be evicted, and lower bounds of their scores.
//!
//! Not every score is computed at each choice. Each candidate has a *floor*: a score that it had once and
//! that has not fallen since (see [`Aging`]). The score of the candidate with the lowest floor is computed. If
//! it equals the floor, no other score can be lower; otherwise the floor rises to it, and the search goes on.
//! This is the lazy greedy search of Minoux (1978). Floors lie in an array of their own, so that looking at all
//! of them costs less than computing one score.

use super::StorageKey;
use smallvec::SmallVec;

/// How long a candidate is spared. The search looks at a tier only when nothing is left in those before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tier {
    /// Goes first.
    Free,
    /// Smaller than `min_evict_bytes`.
    Small,
    /// About to be read by the regeneration at hand.
    Awaited,
    /// Evicting it would give nothing back.
    Worthless,
    /// Never goes.
    Pinned,
}

/// A candidate that the search passes over: no number compares to it.
const SPARED: f64 = f64::NAN;

/// A candidate whose floor is to be asked for: lower than any score.
const UNKNOWN: f64 = f64::NEG_INFINITY;

/// Candidates looked at in one go. A multiple of [`LANES`].
const BLOCK: usize = 32;

/// A score is found as far as this many times the next lowest. More would be found for nothing where it is
/// not the lowest; with less, two that rise by turns would be asked many times.
const ASK_FOR: f64 = 4.0;

/// Minima kept side by side, so that the processor can work on several at once.
const LANES: usize = 4;

/// Parallel lists; a candidate's position changes when another one goes.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    keys: Vec<StorageKey>,
    /// Where staleness counts, before the division by it.
    known: Vec<f64>,
    /// What is known, or [`SPARED`] outside of [`Tier::Free`]: what the search looks at.
    floors: Vec<f64>,
    /// When each was last used.
    since: Vec<f64>,
    tiers: Vec<Tier>,
    /// Counts up: when each became one that may be chosen, to tell equals apart.
    order: Vec<u64>,
    unpinned: u64,
    /// Whether all floors are to be asked for anew.
    all_lowered: bool,
    /// The lowest score of each block, in the search at hand.
    blocks: Vec<f64>,
    /// Lower scores count as this in the current search, so that every score stays above [`UNKNOWN`], also when
    /// it is divided by the staleness.
    least: f64,
}

/// What is to be asked of the policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Question {
    /// A floor, which is cheaper.
    Floor,
    /// The score. Should it be above `enough`, any floor above that will do.
    Score { enough: f64 },
}

impl Candidates {
    pub fn keys(&self) -> &[StorageKey] {
        &self.keys
    }

    /// Whether the candidate goes after those of `tier`.
    pub fn is_spared(&self, position: usize, tier: Tier) -> bool {
        self.tiers[position] > tier
    }

    /// Tells equals apart: the one with the highest goes.
    pub fn order(&self, position: usize) -> u64 {
        self.order[position]
    }

    /// Adds a candidate, and returns its position.
    pub fn push(&mut self, key: StorageKey, tier: Tier, since: f64) -> u32 {
        self.keys.push(key);
        self.known.push(UNKNOWN);
        self.floors.push(if tier == Tier::Free { UNKNOWN } else { SPARED });
        self.since.push(since);
        self.tiers.push(tier);
        self.order.push(self.unpinned);
        self.unpinned += 1;
        self.keys.len() as u32 - 1
    }

    /// Removes a candidate. Returns the one that is at its position now.
    pub fn remove(&mut self, position: u32) -> Option<StorageKey> {
        let at = position as usize;
        self.keys.swap_remove(at);
        self.known.swap_remove(at);
        self.floors.swap_remove(at);
        self.since.swap_remove(at);
        self.tiers.swap_remove(at);
        self.order.swap_remove(at);
        self.keys.get(at).copied()
    }

    pub fn touch(&mut self, position: u32, now: f64) {
        self.since[position as usize] = now;
    }

    pub fn set_tier(&mut self, position: u32, tier: Tier) {
        let at = position as usize;
        let before = std::mem::replace(&mut self.tiers[at], tier);
        if before == Tier::Pinned && tier != Tier::Pinned {
            self.order[at] = self.unpinned;
            self.unpinned += 1;
        }
        self.floors[at] = if tier == Tier::Free { self.known[at] } else { SPARED };
    }

    /// Puts things right after a search that was broken off: all floors are asked for anew.
    pub fn end_search(&mut self) {
        self.known.fill(UNKNOWN);
        for (floor, tier) in self.floors.iter_mut().zip(&self.tiers) {
            *floor = if *tier == Tier::Free { UNKNOWN } else { SPARED };
        }
        self.blocks.clear();
    }

    /// The score may be lower than it was.
    pub fn lower(&mut self, position: u32) {
        let at = position as usize;
        self.known[at] = UNKNOWN;
        if self.tiers[at] == Tier::Free {
            self.floors[at] = UNKNOWN;
        }
    }

    /// All scores may be lower than they were.
    pub const fn lower_all(&mut self) {
        self.all_lowered = true;
    }

    /// The candidate with the lowest score of those up to a tier, and that score; of equals, the one that
    /// became a candidate last, or was in use last. `None` if there is none. With `aged`, `ask` answers
    /// for a score before it is divided by the staleness; with `exact`, floors are scores.
    pub fn lowest(
        &mut self,
        tier: Tier,
        aged: bool,
        exact: bool,
        now: f64,
        ask: impl FnMut(StorageKey, Question) -> f64,
    ) -> Option<(f64, StorageKey)> {
        self.least = if aged { 0.0 } else { f64::MIN };
        // Tiers beyond the first are looked at when hardly anything is left. They are free meanwhile.
        self.open(tier, |known| known);
        // Written so that it is one instruction for several at once, as `f64::max` is not.
        let staleness = |since: f64| {
            let staleness = now - since;
            if staleness > f64::MIN_POSITIVE { staleness } else { f64::MIN_POSITIVE }
        };
        let best = if aged {
            let score = |floor, since| floor / staleness(since);
            self.search(exact, score, |score, since| score * staleness(since), ask)
        } else {
            self.search(exact, |floor, _| floor, |score, _| score, ask)
        };
        self.open(tier, |_| SPARED);
        best
    }

    /// Sets the floors of the tiers after the first, up to one.
    fn open(&mut self, tier: Tier, floor: impl Fn(f64) -> f64) {
        if tier > Tier::Free {
            for at in 0..self.keys.len() {
                if self.tiers[at] > Tier::Free && self.tiers[at] <= tier {
                    self.floors[at] = floor(self.known[at]);
                }
            }
        }
    }

    #[inline(always)]
    fn search(
        &mut self,
        exact: bool,
        score: impl Fn(f64, f64) -> f64,
        enough: impl Fn(f64, f64) -> f64,
        mut ask: impl FnMut(StorageKey, Question) -> f64,
    ) -> Option<(f64, StorageKey)> {
        if std::mem::take(&mut self.all_lowered) {
            self.known.fill(UNKNOWN);
            self.floors.iter_mut().filter(|f| !f.is_nan()).for_each(|floor| *floor = UNKNOWN);
        }
        let mut blocks = std::mem::take(&mut self.blocks);
        blocks.clear();
        blocks.extend(
            self.floors
                .chunks(BLOCK)
                .zip(self.since.chunks(BLOCK))
                .map(|(floors, since)| lowest_of(floors, since, &score)),
        );
        // Those whose floors are their scores, in a tie with others that were not asked yet.
        let mut settled = SmallVec::<[usize; 8]>::new();
        let best = loop {
            let lowest = blocks.iter().copied().fold(f64::INFINITY, lower);
            let mut best: Option<(u64, usize)> = None;
            for (block, least) in blocks.iter_mut().enumerate().filter(|(_, b)| **b <= lowest) {
                for at in self.range(block) {
                    if self.floors[at] == UNKNOWN {
                        self.learn(at, ask(self.keys[at], Question::Floor));
                    } else if score(self.floors[at], self.since[at]) <= lowest {
                        best = best.max(Some((self.order[at], at)));
                    }
                }
                if lowest == UNKNOWN {
                    *least = self.look_again(block, &score);
                }
            }
            if lowest == UNKNOWN {
                continue;
            }
            let Some((_, at)) = best else { break None };
            if exact || settled.contains(&at) {
                break Some((lowest, at));
            }
            // How low the others are: above that, what exactly its score is does not matter.
            self.floors[at] = SPARED;
            blocks[at / BLOCK] = self.look_again(at / BLOCK, &score);
            let next = blocks.iter().copied().fold(f64::INFINITY, lower);
            let limit = enough(next, self.since[at]);
            // Times a number above 1, a negative one would be lower.
            let limit = limit.max(ASK_FOR * limit);
            self.learn(at, ask(self.keys[at], Question::Score { enough: limit }));
            let risen = score(self.floors[at], self.since[at]);
            if risen < next {
                break Some((risen, at));
            }
            if risen == next {
                settled.push(at);
            }
            blocks[at / BLOCK] = self.look_again(at / BLOCK, &score);
        };
        self.blocks = blocks;
        best.map(|(score, at)| (score, self.keys[at]))
    }

    /// Takes note of a floor.
    fn learn(&mut self, at: usize, floor: f64) {
        // Not a number counts as the highest.
        self.known[at] = if floor.is_nan() { f64::INFINITY } else { floor.max(self.least) };
        self.floors[at] = self.known[at];
    }

    /// The lowest score in a block.
    #[inline(always)]
    fn look_again(&self, block: usize, score: impl Fn(f64, f64) -> f64) -> f64 {
        let range = self.range(block);
        lowest_of(&self.floors[range.clone()], &self.since[range], score)
    }

    fn range(&self, block: usize) -> std::ops::Range<usize> {
        block * BLOCK..self.keys.len().min((block + 1) * BLOCK)
    }
}

/// The lowest score, without a branch on what is lower; infinite if there is none.
#[inline(always)]
fn lowest_of(floors: &[f64], since: &[f64], score: impl Fn(f64, f64) -> f64) -> f64 {
    let mut least = [f64::INFINITY; LANES];
    let (floors, floors_rest) = floors.as_chunks::<LANES>();
    let (since, since_rest) = since.as_chunks::<LANES>();
    for (floors, since) in floors.iter().zip(since) {
        for lane in 0..LANES {
            least[lane] = lower(least[lane], score(floors[lane], since[lane]));
        }
    }
    let rest = floors_rest.iter().zip(since_rest).map(|(&floor, &since)| score(floor, since));
    rest.chain(least).fold(f64::INFINITY, lower)
}

/// The lower of two numbers; `a` if `b` is none.
const fn lower(a: f64, b: f64) -> f64 {
    if b < a { b } else { a }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slotmap::{Key as _, SlotMap};

    fn candidates(count: usize) -> Candidates {
        let mut keys = SlotMap::<StorageKey, ()>::with_key();
        let mut candidates = Candidates::default();
        for i in 0..count {
            candidates.push(keys.insert(()), Tier::Free, i as f64);
        }
        candidates
    }

    /// The position of the lowest, where `scores` are what a policy says of each position.
    fn lowest(c: &mut Candidates, aged: bool, scores: &[f64]) -> Option<(f64, usize)> {
        let keys = c.keys.clone();
        let place = |key| keys.iter().position(|&k| k == key).unwrap();
        let (score, key) =
            c.lowest(Tier::Small, aged, false, scores.len() as f64, |key, _| scores[place(key)])?;
        Some((score, place(key)))
    }

    #[test]
    fn the_lowest_is_found_wherever_it_is() {
        for at in [0, 1, 31, 32, 33, 98, 99] {
            let mut scores = vec![5.0; 100];
            scores[at] = 1.0;
            let mut c = candidates(100);
            assert_eq!(lowest(&mut c, false, &scores), Some((1.0, at)));
            c.set_tier(at as u32, Tier::Pinned);
            assert_eq!(lowest(&mut c, false, &scores), Some((5.0, if at == 99 { 98 } else { 99 })));
            c.set_tier(at as u32, Tier::Free);
            assert_eq!(lowest(&mut c, false, &scores), Some((1.0, at)));
        }
        let oldest = lowest(&mut candidates(100), true, &[1.0; 100]);
        assert_eq!(oldest, Some((0.01, 0)), "what was used longest ago");
    }

    #[test]
    fn a_floor_that_is_too_low_costs_a_question_and_nothing_else() {
        let mut c = candidates(70);
        let scores: Vec<f64> = (0..70).map(|i| f64::from((i * 37 + 11) % 70)).collect();
        let first = c.keys[0];
        let at = |key: StorageKey| (key.data().as_ffi() - first.data().as_ffi()) as usize;
        let mut asked = 0;
        let (score, key) = c
            .lowest(Tier::Free, false, false, 0.0, |key, question| {
                asked += usize::from(question != Question::Floor);
                scores[at(key)] - if question == Question::Floor { 5.0 } else { 0.0 }
            })
            .unwrap();
        assert_eq!((score, scores[at(key)]), (0.0, 0.0));
        assert!(
            (1..=7).contains(&asked),
            "{asked}: those whose floors were not above the lowest score"
        );
    }

    #[test]
    fn a_policy_may_answer_anything() {
        for answer in [f64::NEG_INFINITY, f64::MIN, -1.0, 0.0, f64::NAN] {
            for aged in [false, true] {
                assert!(lowest(&mut candidates(3), aged, &[answer; 3]).is_some(), "{answer}");
            }
        }
    }

    #[test]
    fn infinite_scores_are_chosen_when_nothing_else_is_left_and_blocked_ones_never() {
        let infinite = [f64::INFINITY; 40];
        let mut c = candidates(40);
        assert_eq!(lowest(&mut c, true, &infinite), Some((f64::INFINITY, 39)));
        c.set_tier(39, Tier::Awaited);
        assert_eq!(lowest(&mut c, true, &infinite), Some((f64::INFINITY, 38)));
        (0..40).for_each(|at| c.set_tier(at, Tier::Pinned));
        assert_eq!(lowest(&mut c, true, &infinite), None);
        c.set_tier(7, Tier::Free);
        assert_eq!(lowest(&mut c, false, &[f64::NAN; 40]), Some((f64::INFINITY, 7)));
        assert_eq!(lowest(&mut Candidates::default(), false, &[]), None);
    }
}
