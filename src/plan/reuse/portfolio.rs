//! All planners, and the best of what they give.

use std::time::{Duration, Instant};

use super::super::{Lifetimes, Limits, PlanError, Planned, Planner};
use super::{BestFit, Exact, Gaps, IntervalMove, Pushdown, rounded};

/// `portfolio`: planners in order of their cost, until one takes no more than the load; then [`Exact`] goes on from the
/// best of them.
///
/// Pushdown and best fit first, which take n log n time for n buffers; then those of n^2 time and interval moves, as far
/// as they do not refuse so many; then the search, if it does not. So 10^6 buffers have the answer of the first two in
/// seconds, and there it is weak: nothing is searched. With a time limit, what was not begun in time is left out, but for
/// the first; with none, the answer is always the same.
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
    /// More than one colour, or sizes that are too large when they are rounded up to the largest alignment.
    pub fn answers(
        &self,
        lifetimes: &Lifetimes,
        limits: &Limits,
    ) -> Result<Vec<Answer>, PlanError> {
        rounded(self, lifetimes)?;
        let mut answers: Vec<Answer> = Vec::new();
        let gaps = Gaps::ALL.each_ref().map(|gaps| gaps as &dyn Planner);
        let quick: [&dyn Planner; 2] = [&Pushdown, &BestFit];
        for planner in quick.into_iter().chain([&IntervalMove as &dyn Planner]).chain(gaps) {
            if !answers.is_empty() && (limits.over() || proven(&answers)) {
                return Ok(answers);
            }
            answers.push(timed(planner.name(), || planner.plan(lifetimes, limits)));
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
        "portfolio".to_owned()
    }

    fn plan(&self, lifetimes: &Lifetimes, limits: &Limits) -> Result<Planned, PlanError> {
        let answers = self.answers(lifetimes, limits)?;
        match best(&answers) {
            Some(best) => Ok(best.clone()),
            // The first takes any number.
            None => Pushdown.plan(lifetimes, limits),
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
