//! Search for the lowest score, without computing all scores.
//!
//! Each candidate has a *floor*: an earlier score that is not above the present score (see
//! [`Floors`]). The search computes the score of the candidate with the lowest floor. If the score
//! equals the floor, no other score can be lower, and the search ends. If the score is above the
//! floor, the floor rises to the score, and the search continues. The search is the lazy greedy
//! search of Minoux (1978). Floors are in a separate array, so that scanning all floors costs less
//! than computing one score.
//!
//! [`Floors`]: super::Floors

use super::Aging;
use super::candidates::{SPARED, UNKNOWN};
use smallvec::SmallVec;
use std::cell::Cell;

/// Number of candidates per block of the scan. A multiple of [`LANES`].
const BLOCK: usize = 32;

/// Scores are computed only up to `ASK_FOR` times the next lowest score. A larger multiple wastes
/// work on scores that are not the lowest. With a smaller multiple, two candidates whose scores
/// rise alternately would be scored many times.
const ASK_FOR: f64 = 4.0;

/// Number of minima computed in parallel by vector instructions.
const LANES: usize = 4;

/// Minimum distance to a use. A nearer use counts as having the minimum distance.
const LEAST_DISTANCE: f64 = 1e-12;

/// Request to a policy for the floor or the score of a candidate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Question {
    /// Requests the floor, a lower bound of the score that is cheaper to compute.
    Floor,
    /// Requests the score. If the score is above `enough`, any floor above `enough` suffices.
    Score { enough: f64 },
}

/// Candidates as parallel arrays.
#[derive(Clone, Copy)]
pub(super) struct Field<'a> {
    /// Floors (lower bounds of scores) of all candidates, before the division by the staleness or
    /// the distance.
    pub known: &'a [Cell<f64>],
    /// Floors that a search reads: copies of `known`, but [`SPARED`] for candidates that the search
    /// skips.
    pub floors: &'a [Cell<f64>],
    /// Time of each candidate's last use. Under [`Aging::Distance`], time of its next use.
    pub times: &'a [Cell<f64>],
    pub now: f64,
}

/// Search, with buffers that are reused.
#[derive(Debug, Default)]
pub(super) struct Search {
    /// Lowest score of each block.
    blocks: Vec<f64>,
    /// Minimum score, to which lower scores are raised, so that every score stays above [`UNKNOWN`]
    /// even after a division.
    least: f64,
}

impl Search {
    /// Position and score of the candidate with the lowest score. On a tie, the candidate with the
    /// highest `order` is chosen. `None` if there is no candidate.
    ///
    /// `ask` returns scores before the division that `aging` describes. If `exact` is set, floors
    /// are exact scores.
    pub fn lowest(
        &mut self,
        field: Field<'_>,
        aging: Aging,
        exact: bool,
        order: impl Fn(usize) -> u64,
        ask: impl FnMut(usize, Question) -> f64,
    ) -> Option<(f64, usize)> {
        let now = field.now;
        match aging {
            Aging::Steady => {
                self.least = f64::MIN;
                self.search(field, exact, |floor, _| floor, |score, _| score, order, ask)
            }
            Aging::Staleness => {
                self.least = 0.0;
                let staleness = move |since| higher(now - since, f64::MIN_POSITIVE);
                let score = move |floor, since| floor / staleness(since);
                let floor = move |score, since| score * staleness(since);
                self.search(field, exact, score, floor, order, ask)
            }
            Aging::Distance => {
                self.least = f64::MIN * LEAST_DISTANCE / 2.0;
                let score = move |floor, due| floor / distance(due, now);
                let floor = move |score, due| score * distance(due, now);
                self.search(field, exact, score, floor, order, ask)
            }
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
        mut ask: impl FnMut(usize, Question) -> f64,
    ) -> Option<(f64, usize)> {
        let Field { floors, times, .. } = field;
        // Lowest score of each block, so that a round reads only the blocks with the lowest score.
        let mut blocks = std::mem::take(&mut self.blocks);
        blocks.clear();
        blocks.extend(
            floors
                .chunks(BLOCK)
                .zip(times.chunks(BLOCK))
                .map(|(floors, times)| lowest_of(floors, times, &score)),
        );
        // Candidates whose scores are computed, and equal to floors of candidates whose scores are
        // not computed yet.
        let mut settled = SmallVec::<[usize; 8]>::new();
        let best = loop {
            // One round: visit the candidates with the lowest score, and compute those of their
            // floors that are missing. Of the candidates with a floor, choose the one with the
            // highest `order`.
            let lowest = blocks.iter().copied().fold(f64::INFINITY, lower);
            let (mut latest, mut best) = (0, None);
            for (block, least) in blocks.iter_mut().enumerate().filter(|(_, b)| **b <= lowest) {
                let range = field.range(block);
                let all = floors[range.clone()].iter().zip(&times[range.clone()]);
                for (at, (floor, time)) in range.zip(all) {
                    // The comparison is false for `SPARED`, which is NaN, and true for `UNKNOWN`,
                    // which is lower than any score.
                    if score(floor.get(), time.get()) <= lowest {
                        if floor.get() == UNKNOWN {
                            field.learn(at, self.heard(ask(at, Question::Floor)));
                        } else if order(at) >= latest {
                            (latest, best) = (order(at), Some(at));
                        }
                    }
                }
                if lowest == UNKNOWN {
                    *least = field.look_again(block, &score);
                }
            }
            // New floors were computed, so the lowest score must be found again.
            if lowest == UNKNOWN {
                continue;
            }
            // The result is a score that was already computed and is still the lowest.
            let Some(at) = best else { break None };
            if exact || settled.contains(&at) {
                break Some((lowest, at));
            }
            // A multiple of the next lowest score limits the computation, because above it the
            // exact score does not matter.
            floors[at].set(SPARED);
            blocks[at / BLOCK] = field.look_again(at / BLOCK, &score);
            let next = blocks.iter().copied().fold(f64::INFINITY, lower);
            let limit = enough(next, times[at].get());
            // Multiplying by `ASK_FOR` would lower a negative limit, so take the maximum of the
            // limit and its multiple.
            let limit = limit.max(ASK_FOR * limit);
            field.learn(at, self.heard(ask(at, Question::Score { enough: limit })));
            // The chosen candidate is the result if its score is below all other floors. On a tie,
            // the next round decides by `order`.
            let risen = score(floors[at].get(), times[at].get());
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

    /// Converts a policy's number to a floor, a lower bound of the score. NaN counts as the highest
    /// number.
    fn heard(&self, answer: f64) -> f64 {
        if answer.is_nan() { f64::INFINITY } else { answer.max(self.least) }
    }
}

impl Field<'_> {
    fn learn(&self, at: usize, floor: f64) {
        self.known[at].set(floor);
        self.floors[at].set(floor);
    }

    /// Computes the lowest score in a block again.
    #[inline(always)]
    fn look_again(&self, block: usize, score: impl Fn(f64, f64) -> f64) -> f64 {
        let range = self.range(block);
        lowest_of(&self.floors[range.clone()], &self.times[range], score)
    }

    fn range(&self, block: usize) -> std::ops::Range<usize> {
        block * BLOCK..self.floors.len().min((block + 1) * BLOCK)
    }
}

/// Lowest score of some candidates, computed without a branch; infinite if there are no candidates.
#[inline(always)]
fn lowest_of(floors: &[Cell<f64>], times: &[Cell<f64>], score: impl Fn(f64, f64) -> f64) -> f64 {
    let mut least = [f64::INFINITY; LANES];
    let (floors, floors_rest) = floors.as_chunks::<LANES>();
    let (times, times_rest) = times.as_chunks::<LANES>();
    for (floors, times) in floors.iter().zip(times) {
        for lane in 0..LANES {
            least[lane] = lower(least[lane], score(floors[lane].get(), times[lane].get()));
        }
    }
    let rest = floors_rest.iter().zip(times_rest);
    let rest = rest.map(|(floor, time)| score(floor.get(), time.get()));
    rest.chain(least).fold(f64::INFINITY, lower)
}

/// The lower of the numbers `a` and `b`; `a` if `b` is NaN.
const fn lower(a: f64, b: f64) -> f64 {
    if b < a { b } else { a }
}

/// Distance from `now` to a use that is due at `due`.
pub(super) const fn distance(due: f64, now: f64) -> f64 {
    higher(due - now, LEAST_DISTANCE)
}

/// The higher of the numbers `a` and `b`; `b` if `a` is NaN. Unlike `f64::max`, the function
/// compiles to one vector instruction.
const fn higher(a: f64, b: f64) -> f64 {
    if a > b { a } else { b }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Candidates with given scores by position. On a tie, the later position wins.
    struct Made {
        known: Vec<Cell<f64>>,
        floors: Vec<Cell<f64>>,
        times: Vec<Cell<f64>>,
    }

    impl Made {
        fn new(count: usize) -> Self {
            Self {
                known: vec![Cell::new(UNKNOWN); count],
                floors: vec![Cell::new(UNKNOWN); count],
                times: (0..count).map(|i| Cell::new(i as f64)).collect(),
            }
        }

        fn spare(&mut self, at: usize, spared: bool) {
            self.floors[at].set(if spared { SPARED } else { self.known[at].get() });
        }

        fn ask(
            &self,
            aging: Aging,
            answer: impl FnMut(usize, Question) -> f64,
        ) -> Option<(f64, usize)> {
            let Self { known, floors, times } = self;
            let now = if aging == Aging::Distance { 0 } else { known.len() };
            let field = Field { known, floors, times, now: now as f64 };
            Search::default().lowest(field, aging, false, |at| at as u64, answer)
        }

        /// Runs the search with a policy that returns `scores[position]` for each candidate.
        fn lowest(&self, aging: Aging, scores: &[f64]) -> Option<(f64, usize)> {
            self.ask(aging, |at, _| scores[at])
        }
    }

    #[test]
    fn the_lowest_is_found_wherever_it_is() {
        for at in [0, 1, 31, 32, 33, 98, 99] {
            let mut scores = vec![5.0; 100];
            scores[at] = 1.0;
            let mut made = Made::new(100);
            assert_eq!(made.lowest(Aging::Steady, &scores), Some((1.0, at)));
            made.spare(at, true);
            assert_eq!(
                made.lowest(Aging::Steady, &scores),
                Some((5.0, if at == 99 { 98 } else { 99 }))
            );
            made.spare(at, false);
            assert_eq!(made.lowest(Aging::Steady, &scores), Some((1.0, at)));
        }
        let oldest = Made::new(100).lowest(Aging::Staleness, &[1.0; 100]);
        assert_eq!(oldest, Some((0.01, 0)), "what was used longest ago");
        let farthest = Made::new(101).lowest(Aging::Distance, &[1.0; 101]);
        assert_eq!(farthest, Some((0.01, 100)), "what is due last");
    }

    #[test]
    fn a_floor_that_is_too_low_costs_a_question_and_nothing_else() {
        let scores: Vec<f64> = (0..70).map(|i| f64::from((i * 37 + 11) % 70)).collect();
        let mut asked = 0;
        let (score, at) = Made::new(70)
            .ask(Aging::Steady, |at, question| {
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
            for aging in [Aging::Steady, Aging::Staleness, Aging::Distance] {
                assert!(Made::new(3).lowest(aging, &[answer; 3]).is_some(), "{answer} {aging:?}");
            }
        }
    }

    #[test]
    fn infinite_scores_are_chosen_when_nothing_else_is_left_and_spared_ones_never() {
        let infinite = [f64::INFINITY; 40];
        let mut made = Made::new(40);
        assert_eq!(made.lowest(Aging::Staleness, &infinite), Some((f64::INFINITY, 39)));
        made.spare(39, true);
        assert_eq!(made.lowest(Aging::Staleness, &infinite), Some((f64::INFINITY, 38)));
        (0..40).for_each(|at| made.spare(at, true));
        assert_eq!(made.lowest(Aging::Staleness, &infinite), None);
        made.spare(7, false);
        assert_eq!(made.lowest(Aging::Steady, &[f64::NAN; 40]), Some((f64::INFINITY, 7)));
        assert_eq!(Made::new(0).lowest(Aging::Steady, &[]), None);
    }
}
