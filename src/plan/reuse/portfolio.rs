//! All planners, and the best of what they give.

use std::time::{Duration, Instant};

use super::super::{Lifetimes, Limits, PlanError, Planned, Planner};
use super::hints::by_hints;
use super::{BestFit, Exact, Gaps, IntervalMove, Knows, Pushdown, TwoLevel};

/// `portfolio`, or `portfolio:NODES`: planners in order of their cost, until one takes no more than the load; then [`Exact`] goes on from the
/// best of them.
///
/// Pushdown and best fit first, which take n log n time for n buffers; then two levels, interval moves and gaps, which take
/// n^2 and more, as far as they do not refuse so many; then the search, if it does not. (NNVM's and CANN's other planners, which
/// share whole blocks, are never the best of these.) Where hints are given, what they say comes before all. Some of these
/// refuse gaps, and are left out then; colours are refused. So 10^6 buffers have the answer of the first two in seconds, and there it is weak: nothing is searched. With a time limit, what was not begun in time is left out, but for
/// the first that answers; with none, the answer is always the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Portfolio {
    /// How it ends.
    pub exact: Exact,
}

/// What one of the planners of a [`Portfolio`] gave.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its name.
    pub planner: String,
    /// How long it took.
    pub time: Duration,
    /// The placement, or why there is none.
    pub planned: Result<Planned, PlanError>,
}

impl Portfolio {
    /// What each gave that was asked, in the order in which they were. The answer of [`Planner::plan`] is the first of the
    /// best. Takes memory for a placement of each.
    ///
    /// # Errors
    ///
    /// More than one colour.
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
            // Hints may be anything.
            let is_answered = best(&answers[hinted..]).is_some();
            if proven(&answers) || (is_answered && limits.over()) {
                return Ok(answers);
            }
            answers.push(timed(planner.name(), || planner.plan(lifetimes, limits)));
        }
        if best(&answers).is_none() {
            // One has to answer, however long it takes: this one knows all there is but colours.
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
            // Not reached: several are asked.
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

/// The first of those that take least; proven ones before others.
fn best(answers: &[Answer]) -> Option<&Planned> {
    let planned = answers.iter().flat_map(|answer| &answer.planned);
    planned.min_by_key(|planned| (planned.placement.bytes(), !planned.proven))
}

#[cfg(test)]
mod tests {
    use super::super::super::Buffer;
    use super::super::tests::shared;
    use super::*;
    use crate::rng::SplitMix64;

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
            // Proven once, no more is asked; the search tells what it began with and was not improved.
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
        assert_eq!(error.to_string(), "portfolio does not know colours");
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

    /// Instances in `../shared/data`, if they are there.
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
