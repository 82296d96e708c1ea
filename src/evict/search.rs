//! The lowest score, found without computing all of them.
//!
//! Each candidate has a *floor*: a score that it had once and that has not fallen since (see [`Floors`]). The score of
//! the candidate with the lowest floor is computed. If it equals the floor, no other score can be lower; otherwise
//! the floor rises to it, and the search goes on. This is the lazy greedy search of Minoux (1978). Floors lie in an
//! array of their own, so that looking at all of them costs less than computing one score.
//!
//! [`Floors`]: super::Floors

use super::candidates::{SPARED, UNKNOWN};
use crate::graph::StorageKey;
use smallvec::SmallVec;
use std::cell::Cell;

/// Candidates looked at in one go. A multiple of [`LANES`].
const BLOCK: usize = 32;

/// A score is found as far as this many times the next lowest. More would be found for nothing where it is
/// not the lowest; with less, two that rise by turns would be asked many times.
const ASK_FOR: f64 = 4.0;

/// Minima kept side by side, so that the processor can work on several at once.
const LANES: usize = 4;

/// What is to be asked of the policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Question {
    /// A floor, which is cheaper.
    Floor,
    /// The score. Should it be above `enough`, any floor above that will do.
    Score { enough: f64 },
}

/// Candidates, side by side.
#[derive(Clone, Copy)]
pub(super) struct Field<'a> {
    pub keys: &'a [StorageKey],
    /// What is known of their scores, before the division by the staleness.
    pub known: &'a [Cell<f64>],
    /// The same, but [`SPARED`] for those that are passed over: all that a search looks at.
    pub floors: &'a [Cell<f64>],
    /// When each was last used.
    pub since: &'a [f64],
    pub now: f64,
}

/// A search, and the memory it reuses.
#[derive(Debug, Default)]
pub(super) struct Search {
    /// The lowest score of each block.
    blocks: Vec<f64>,
    /// Lower scores count as this, so that every score stays above [`UNKNOWN`], also when it is divided by the
    /// staleness.
    least: f64,
}

impl Search {
    /// Position and score of the candidate with the lowest score; of equals, the one for which `order` is highest.
    /// `None` if there is none. With `aged`, `ask` answers for a score before it is divided by the staleness; with
    /// `exact`, floors are scores.
    pub fn lowest(
        &mut self,
        field: Field<'_>,
        aged: bool,
        exact: bool,
        order: impl Fn(usize) -> u64,
        ask: impl FnMut(StorageKey, Question) -> f64,
    ) -> Option<(f64, usize)> {
        self.least = if aged { 0.0 } else { f64::MIN };
        // Written so that it is one instruction for several at once, as `f64::max` is not.
        let staleness = |since: f64| {
            let staleness = field.now - since;
            if staleness > f64::MIN_POSITIVE { staleness } else { f64::MIN_POSITIVE }
        };
        if aged {
            let score = |floor, since| floor / staleness(since);
            self.search(field, exact, score, |score, since| score * staleness(since), order, ask)
        } else {
            self.search(field, exact, |floor, _| floor, |score, _| score, order, ask)
        }
    }

    #[inline(always)]
    fn search(
        &mut self,
        field: Field<'_>,
        exact: bool,
        score: impl Fn(f64, f64) -> f64,
        enough: impl Fn(f64, f64) -> f64,
        order: impl Fn(usize) -> u64,
        mut ask: impl FnMut(StorageKey, Question) -> f64,
    ) -> Option<(f64, usize)> {
        let Field { keys, floors, since, .. } = field;
        let mut blocks = std::mem::take(&mut self.blocks);
        blocks.clear();
        blocks.extend(
            floors
                .chunks(BLOCK)
                .zip(since.chunks(BLOCK))
                .map(|(floors, since)| lowest_of(floors, since, &score)),
        );
        // Those whose floors are their scores, in a tie with others that were not asked yet.
        let mut settled = SmallVec::<[usize; 8]>::new();
        let best = loop {
            let lowest = blocks.iter().copied().fold(f64::INFINITY, lower);
            let (mut latest, mut best) = (0, None);
            for (block, least) in blocks.iter_mut().enumerate().filter(|(_, b)| **b <= lowest) {
                let range = field.range(block);
                let all = floors[range.clone()].iter().zip(&since[range.clone()]);
                for (at, (floor, &since)) in range.zip(all) {
                    // What is passed over is not a number, and what is unknown is lower than any.
                    if score(floor.get(), since) <= lowest {
                        if floor.get() == UNKNOWN {
                            field.learn(at, self.heard(ask(keys[at], Question::Floor)));
                        } else if order(at) >= latest {
                            (latest, best) = (order(at), Some(at));
                        }
                    }
                }
                if lowest == UNKNOWN {
                    *least = field.look_again(block, &score);
                }
            }
            if lowest == UNKNOWN {
                continue;
            }
            let Some(at) = best else { break None };
            if exact || settled.contains(&at) {
                break Some((lowest, at));
            }
            // How low the others are: above that, what exactly its score is does not matter.
            floors[at].set(SPARED);
            blocks[at / BLOCK] = field.look_again(at / BLOCK, &score);
            let next = blocks.iter().copied().fold(f64::INFINITY, lower);
            let limit = enough(next, since[at]);
            // Times a number above 1, a negative one would be lower.
            let limit = limit.max(ASK_FOR * limit);
            field.learn(at, self.heard(ask(keys[at], Question::Score { enough: limit })));
            let risen = score(floors[at].get(), since[at]);
            if risen < next {
                break Some((risen, at));
            }
            if risen == next {
                settled.push(at);
            }
            blocks[at / BLOCK] = field.look_again(at / BLOCK, &score);
        };
        self.blocks = blocks;
        best
    }

    /// An answer, as a floor. Not a number counts as the highest.
    fn heard(&self, answer: f64) -> f64 {
        if answer.is_nan() { f64::INFINITY } else { answer.max(self.least) }
    }
}

impl Field<'_> {
    fn learn(&self, at: usize, floor: f64) {
        self.known[at].set(floor);
        self.floors[at].set(floor);
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
fn lowest_of(floors: &[Cell<f64>], since: &[f64], score: impl Fn(f64, f64) -> f64) -> f64 {
    let mut least = [f64::INFINITY; LANES];
    let (floors, floors_rest) = floors.as_chunks::<LANES>();
    let (since, since_rest) = since.as_chunks::<LANES>();
    for (floors, since) in floors.iter().zip(since) {
        for lane in 0..LANES {
            least[lane] = lower(least[lane], score(floors[lane].get(), since[lane]));
        }
    }
    let rest = floors_rest.iter().zip(since_rest).map(|(floor, &since)| score(floor.get(), since));
    rest.chain(least).fold(f64::INFINITY, lower)
}

/// The lower of two numbers; `a` if `b` is none.
const fn lower(a: f64, b: f64) -> f64 {
    if b < a { b } else { a }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slotmap::SlotMap;

    /// Candidates whose scores are told by position; the later one goes first of equals.
    struct Made {
        keys: Vec<StorageKey>,
        known: Vec<Cell<f64>>,
        floors: Vec<Cell<f64>>,
        since: Vec<f64>,
    }

    impl Made {
        fn new(count: usize) -> Self {
            let mut keys = SlotMap::<StorageKey, ()>::with_key();
            Self {
                keys: (0..count).map(|_| keys.insert(())).collect(),
                known: vec![Cell::new(UNKNOWN); count],
                floors: vec![Cell::new(UNKNOWN); count],
                since: (0..count).map(|i| i as f64).collect(),
            }
        }

        fn spare(&mut self, at: usize, spared: bool) {
            self.floors[at].set(if spared { SPARED } else { self.known[at].get() });
        }

        fn ask(
            &self,
            aged: bool,
            mut answer: impl FnMut(usize, Question) -> f64,
        ) -> Option<(f64, usize)> {
            let Self { keys, known, floors, since } = self;
            let field = Field { keys, known, floors, since, now: keys.len() as f64 };
            let place = |key| keys.iter().position(|&k| k == key).unwrap();
            Search::default().lowest(
                field,
                aged,
                false,
                |at| at as u64,
                |key, question| answer(place(key), question),
            )
        }

        /// Where `scores` are what a policy says of each position.
        fn lowest(&self, aged: bool, scores: &[f64]) -> Option<(f64, usize)> {
            self.ask(aged, |at, _| scores[at])
        }
    }

    #[test]
    fn the_lowest_is_found_wherever_it_is() {
        for at in [0, 1, 31, 32, 33, 98, 99] {
            let mut scores = vec![5.0; 100];
            scores[at] = 1.0;
            let mut made = Made::new(100);
            assert_eq!(made.lowest(false, &scores), Some((1.0, at)));
            made.spare(at, true);
            assert_eq!(made.lowest(false, &scores), Some((5.0, if at == 99 { 98 } else { 99 })));
            made.spare(at, false);
            assert_eq!(made.lowest(false, &scores), Some((1.0, at)));
        }
        let oldest = Made::new(100).lowest(true, &[1.0; 100]);
        assert_eq!(oldest, Some((0.01, 0)), "what was used longest ago");
    }

    #[test]
    fn a_floor_that_is_too_low_costs_a_question_and_nothing_else() {
        let scores: Vec<f64> = (0..70).map(|i| f64::from((i * 37 + 11) % 70)).collect();
        let mut asked = 0;
        let (score, at) = Made::new(70)
            .ask(false, |at, question| {
                asked += usize::from(question != Question::Floor);
                scores[at] - if question == Question::Floor { 5.0 } else { 0.0 }
            })
            .unwrap();
        assert_eq!((score, scores[at]), (0.0, 0.0));
        assert!(
            (1..=7).contains(&asked),
            "{asked}: those whose floors were not above the lowest score"
        );
    }

    #[test]
    fn a_policy_may_answer_anything() {
        for answer in [f64::NEG_INFINITY, f64::MIN, -1.0, 0.0, f64::NAN] {
            for aged in [false, true] {
                assert!(Made::new(3).lowest(aged, &[answer; 3]).is_some(), "{answer}");
            }
        }
    }

    #[test]
    fn infinite_scores_are_chosen_when_nothing_else_is_left_and_spared_ones_never() {
        let infinite = [f64::INFINITY; 40];
        let mut made = Made::new(40);
        assert_eq!(made.lowest(true, &infinite), Some((f64::INFINITY, 39)));
        made.spare(39, true);
        assert_eq!(made.lowest(true, &infinite), Some((f64::INFINITY, 38)));
        (0..40).for_each(|at| made.spare(at, true));
        assert_eq!(made.lowest(true, &infinite), None);
        made.spare(7, false);
        assert_eq!(made.lowest(false, &[f64::NAN; 40]), Some((f64::INFINITY, 7)));
        assert_eq!(Made::new(0).lowest(false, &[]), None);
    }
}
