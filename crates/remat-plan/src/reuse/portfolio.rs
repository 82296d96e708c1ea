//! Runs several planners in turn, and takes the best of their placements.

use std::time::{Duration, Instant};

use super::hints::by_hints;
use super::{BestFit, Exact, Gaps, IntervalMove, Knows, Pushdown, TwoLevel};
use crate::{Lifetimes, Limits, PlanError, Planned, Planner};

/// `portfolio`, or `portfolio:NODES`: runs several planners, the quickest first, until a placement
/// has no more bytes than the load. If no placement reaches the load, [`Exact`] continues from the
/// best placement.
///
/// [`Pushdown`] and [`BestFit`] come first, which take time O(n log n) for n buffers. [`TwoLevel`],
/// [`IntervalMove`] and [`Gaps`] follow, which take time O(n^2) or more and fail if there are too
/// many buffers. [`Exact`] comes last, and may also fail. (The planners of NNVM, and CANN's
/// planners other than [`TwoLevel`], share whole blocks. These planners are left out because they
/// are never the best.) If there are hints, the placements by hints come before all planners. If
/// buffers have gaps, planners without support for gaps give no placement. Colours are not
/// supported.
///
/// For 10^6 buffers, only the first two planners give an answer, in seconds. After the time limit,
/// no further planner is started, unless there is no answer yet. Without a time limit, the answer
/// is always the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Portfolio {
    /// Search that runs last.
    pub exact: Exact,
}

/// Answer of a planner of a [`Portfolio`].
#[derive(Clone, Debug)]
pub struct Answer {
    /// Name of the planner.
    pub planner: String,
    /// Time taken by the planner.
    pub time: Duration,
    /// Placement of the planner, or its error.
    pub planned: Result<Planned, PlanError>,
}

impl Portfolio {
    /// Runs the planners, and returns their answers in order. [`Planner::plan`] returns the best of
    /// the placements found; the first on a tie. The placements of all planners are in memory at
    /// the same time.
    ///
    /// # Errors
    ///
    /// [`PlanError::Unknown`] if there is more than one colour.
    pub fn answers(
        &self,
        lifetimes: &Lifetimes,
        limits: &Limits,
    ) -> Result<Vec<Answer>, PlanError> {
        Knows::KeptBytes.check(self, lifetimes)?;
        let mut answers: Vec<Answer> = Vec::new();
        let start = Instant::now();
        if let Some(planned) = by_hints(lifetimes, limits) {
            answers.push(Answer { planner: "hints".to_owned(), time: start.elapsed(), planned });
        }
        let hinted = answers.len();
        let gaps = Gaps::ALL.each_ref().map(|gaps| gaps as &dyn Planner);
        let two_level = TwoLevel::default();
        let first: [&dyn Planner; 4] = [&Pushdown, &BestFit, &two_level, &IntervalMove];
        for planner in first.into_iter().chain(gaps) {
            // A placement by hints may be bad, so it is not a sufficient answer when the time is
            // up.
            let is_answered = best(&answers[hinted..]).is_some();
            if proven(&answers) || (is_answered && limits.over()) {
                return Ok(answers);
            }
            answers.push(timed(planner.name(), || planner.plan(lifetimes, limits)));
        }
        if best(&answers).is_none() {
            // An answer is required even after the time limit. `Gaps` supports all properties
            // except colours.
            let gaps = Gaps::default();
            answers.push(timed(gaps.name(), || gaps.plan(lifetimes, &Limits::none())));
        }
        if let Some(best) = best(&answers).cloned()
            && !best.proven
            && !limits.over()
        {
            let search = || self.exact.improve(lifetimes, best, limits);
            answers.push(timed(self.exact.name(), search));
        }
        Ok(answers)
    }
}

impl Planner for Portfolio {
    fn name(&self) -> String {
        self.exact.called("portfolio")
    }

    fn plan(&self, lifetimes: &Lifetimes, limits: &Limits) -> Result<Planned, PlanError> {
        let mut answers = self.answers(lifetimes, limits)?;
        match (best(&answers).cloned(), answers.pop()) {
            (Some(best), _) => Ok(best),
            (None, Some(Answer { planned, .. })) => planned,
            // Unreachable: there is at least one answer.
            (None, None) => Pushdown.plan(lifetimes, limits),
        }
    }
}

fn timed(planner: String, plan: impl FnOnce() -> Result<Planned, PlanError>) -> Answer {
    let start = Instant::now();
    let planned = plan();
    Answer { planner, time: start.elapsed(), planned }
}

fn proven(answers: &[Answer]) -> bool {
    answers.iter().flat_map(|answer| &answer.planned).any(|planned| planned.proven)
}

/// Placement with the fewest bytes. On a tie a proven placement wins, then the first one.
fn best(answers: &[Answer]) -> Option<&Planned> {
    let planned = answers.iter().flat_map(|answer| &answer.planned);
    planned.min_by_key(|planned| (planned.placement.bytes(), !planned.proven))
}

#[cfg(test)]
mod tests {
    use super::super::tests::shared;
    use super::*;
    use crate::Buffer;
    use remat_rng::SplitMix64;

    fn random(seed: u64, count: usize, life: u64) -> Lifetimes {
        let mut rng = SplitMix64::new(seed);
        let mut below = |end: u64| rng.next() % end;
        let buffers = (0..count as u64).map(|i| {
            let (lower, size) = (i / 2, below(1 << 12));
            Buffer::new(lower, lower + 1 + below(life), size).aligned(1 << below(7))
        });
        Lifetimes::new(buffers.collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn nothing_that_was_found_is_better() {
        let portfolio = Portfolio { exact: Exact { nodes: 3_000 } };
        let mut by_search = 0;
        for seed in 0..40 {
            let lifetimes = random(seed, 2 + 3 * seed as usize, 40);
            let planned = portfolio.plan(&lifetimes, &Limits::none()).unwrap();
            let answers = portfolio.answers(&lifetimes, &Limits::none()).unwrap();
            let bytes = |planned: &Planned| planned.placement.bytes();
            let least = answers.iter().flat_map(|answer| &answer.planned).map(bytes).min();
            assert_eq!(Some(bytes(&planned)), least);
            // After a proven answer, no further planner runs. A search that finds nothing smaller
            // returns the placement from which it began.
            let proofs: Vec<bool> =
                answers.iter().map(|answer| answer.planned.as_ref().unwrap().proven).collect();
            assert!(proofs[..proofs.len() - 1].iter().all(|proven| !proven));
            assert_eq!(planned.proven, proofs[proofs.len() - 1]);
            let names: Vec<&str> = answers.iter().map(|answer| &*answer.planner).collect();
            let all = ["pushdown", "best-fit", "two-level", "interval-move", "gaps-size"];
            let all = [&all[..], &["gaps-area", "gaps-life", "gaps-birth", "exact:3000"]].concat();
            assert_eq!(names, all[..names.len()]);
            if let [.., before, search] = &answers[..]
                && search.planner == "exact:3000"
            {
                let before = bytes(before.planned.as_ref().unwrap());
                by_search += u32::from(bytes(search.planned.as_ref().unwrap()) < before);
            }
            let again = portfolio.plan(&lifetimes, &Limits::none()).unwrap();
            assert_eq!(again.placement, planned.placement);
        }
        assert!(by_search > 0);
    }

    #[test]
    fn colours_are_refused() {
        let two = [Buffer { colour: 1, ..Buffer::new(0, 1, 1) }, Buffer::new(1, 2, 1)];
        let lifetimes = Lifetimes::new(two).unwrap();
        let error = Portfolio::default().plan(&lifetimes, &Limits::none()).unwrap_err();
        assert_eq!(error.to_string(), "portfolio does not support colours");
    }

    #[test]
    fn out_of_time_the_first_answers() {
        let lifetimes = random(1, 300, 40);
        let answers = Portfolio::default().answers(&lifetimes, &Limits::within(Duration::ZERO));
        let names: Vec<_> = answers.unwrap().into_iter().map(|answer| answer.planner).collect();
        assert_eq!(names, ["pushdown"]);
    }

    #[test]
    fn where_nothing_is_to_be_placed_that_is_proven() {
        for buffers in [vec![], vec![Buffer::new(0, 1, 0)]] {
            let lifetimes = Lifetimes::new(buffers).unwrap();
            let planned = Portfolio::default().plan(&lifetimes, &Limits::none()).unwrap();
            assert_eq!((planned.placement.bytes(), planned.proven), (0, true));
        }
    }

    #[test]
    fn many_are_left_to_those_that_are_quick() {
        let lifetimes = random(2, 40_000, 100);
        let answers = Portfolio::default().answers(&lifetimes, &Limits::none()).unwrap();
        for answer in answers {
            let quick = ["pushdown", "best-fit", "two-level"].contains(&&*answer.planner);
            assert_eq!(answer.planned.is_ok(), quick, "{}", answer.planner);
        }
    }

    #[test]
    #[ignore = "takes seconds"]
    fn a_million_are_placed() {
        let lifetimes = random(3, 1_000_000, 1_000);
        let planned = Portfolio::default().plan(&lifetimes, &Limits::none()).unwrap();
        assert!(planned.placement.bytes() < lifetimes.load() * 11 / 10);
    }

    /// Runs on instances in `../shared/data`, if that folder exists.
    #[test]
    #[ignore = "takes seconds"]
    fn training_steps_are_placed() {
        for (name, ratio) in [("resnet50", 1.0), ("G_1", 1.0), ("S_1", 1.005)] {
            let Some(lifetimes) = shared(&format!("planning/{name}")) else { continue };
            let planned = Portfolio::default().plan(&lifetimes, &Limits::none()).unwrap();
            let found = planned.placement.bytes() as f64 / lifetimes.load() as f64;
            assert!(found <= ratio, "{name}: {found}");
        }
    }
}
