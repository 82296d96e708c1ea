//! What is found out before the first step: how a step is best run, and in how much of the budget.
//!
//! What passes in a budget passes in a larger one as well, if no more of that is used. So smaller budgets are tried, too, and
//! more memory never makes a step recompute more: every whole percent below the budget is searched, down to where the
//! [bound](remat::bound) shows that nothing better is left.

use super::failure::Failure;
use super::interrupt;
use super::rehearsal::{Rehearsal, Rehearsed};
use super::sync::thread;
use super::values::Share;
use super::waiting::Waiting;
use remat::evict::{Forecast, Learn};
use remat::lab::Search;
use remat::program::Turn;
use remat::{ByteSize, CostModelKind, PolicyKind};
use std::panic::resume_unwind;
use std::time::{Duration, Instant};

/// Commands in all simulated runs of a kind of step in a budget: a few seconds.
const COMMANDS_TO_LEARN: u64 = 1 << 20;

/// So many smaller budgets are searched at once, whatever the machine: what one of them gives limits the search in the next.
const AT_ONCE: usize = 2;

/// What was found out.
#[derive(Debug)]
pub struct Forecasts {
    /// Bytes that the run holds at most: of the budget, as much as its steps recompute least in.
    pub budget: u64,
    /// How each kind of step is best run in that.
    pub forecasts: Vec<Forecast>,
    /// Of the whole budget, if that is another one: for later runs.
    pub others: Vec<Forecast>,
    /// The share of its work that a step recomputes at least, in the whole budget.
    pub least: f64,
    /// How long it took.
    pub time: Duration,
}

impl Forecasts {
    /// The share of a step's work that is recomputed, as it was simulated.
    pub fn predicted(&self) -> Option<f64> {
        self.forecasts.iter().filter_map(|forecast| forecast.excess).reduce(f64::max)
    }

    /// All that later runs may use.
    pub fn all(&self) -> impl Iterator<Item = &Forecast> {
        self.forecasts.iter().chain(&self.others)
    }
}

/// Looks for forecasts.
pub struct Forecaster<'a> {
    pub rehearsal: &'a Rehearsal<'a>,
    pub waiting: &'a Waiting,
    /// 100 %.
    pub full_budget: u64,
    pub threshold: Option<u64>,
    /// What earlier runs found: if it is about a budget, also about smaller ones that are better.
    pub known: &'a [Forecast],
}

/// What came of simulated runs of a step in a budget.
struct Searched {
    /// The share that any run of it recomputes.
    least: f64,
    /// What recomputes less than it was to, best first. From another state of memory than that of the simulated runs another
    /// one may be better.
    found: Vec<Forecast>,
}

/// Forecasts that pass, and their rehearsal.
type Passing = (Vec<Forecast>, Rehearsed);

impl Forecaster<'_> {
    /// How steps are best run within a budget; `plain` says how they pass in it without a forecast. `None` if the policy does
    /// not search, if no two steps are alike, or if none passes by any forecast.
    pub fn find(&self, budget: u64, plain: &Rehearsed) -> Result<Option<Forecasts>, Failure> {
        let memory = self.rehearsal.memory;
        let PolicyKind::Learned(learn @ (Learn::Portfolio | Learn::Search { .. })) =
            memory.policy()
        else {
            return Ok(None);
        };
        let start = Instant::now();
        let turns = self.rehearsal.turns(self.threshold)?;
        // The last is the usual one. If nothing is gained there, others need not be tried.
        let Some((usual, others)) = turns.split_last() else { return Ok(None) };
        let searches = Searches { forecaster: self, learn };
        self.at(budget);
        let Searched { least, found } = searches.on(usual, budget, f64::INFINITY)?;
        let whole = searches.passing(budget, found, others, f64::INFINITY)?;
        let mut best = whole.clone().map(|passing| (budget, passing));
        let mut most = whole.as_ref().map_or(plain, |(_, rehearsed)| rehearsed).step_ratio;
        'smaller: for pair in self.smaller(budget, usual.step.key(), learn).chunks(AT_ONCE) {
            self.at(pair[0]);
            for (&smaller, searched) in pair.iter().zip(searches.on_all(usual, pair, most)) {
                let Searched { least, found } = searched?;
                if least >= most {
                    break 'smaller;
                }
                if let Some(passing) = searches.passing(smaller, found, others, most)? {
                    most = passing.1.step_ratio;
                    best = Some((smaller, passing));
                }
            }
        }
        let Some((effective, (forecasts, _))) = best else { return Ok(None) };
        let others = whole.filter(|_| effective != budget).map(|(forecasts, _)| forecasts);
        Ok(Some(Forecasts {
            budget: effective,
            forecasts,
            others: others.unwrap_or_default(),
            least,
            time: start.elapsed(),
        }))
    }

    fn at(&self, budget: u64) {
        let percent = 100.0 * budget as f64 / self.full_budget as f64;
        let bytes = ByteSize(budget);
        self.waiting.at(format!("learning how a step is best run in {bytes} ({percent:.0} %)"));
    }

    /// Smaller budgets, the largest first: whole percents, or what an earlier run has found to be of use.
    fn smaller(&self, budget: u64, usual: u64, learn: Learn) -> Vec<u64> {
        if self.rehearsal.memory.cost == CostModelKind::Measured {
            // They vary by more than what could be gained.
            return Vec::new();
        }
        let known = |budget: u64| self.known(usual, budget).is_some();
        let is_known = known(budget) && learn == Learn::Portfolio;
        let percents = (1..=100).rev().map(|percent| Share::Percent(f64::from(percent)));
        let budgets = percents.map(|share| share.of(self.full_budget));
        let least = self.threshold.unwrap_or(1).max(1);
        let is_one =
            |&smaller: &u64| (least..budget).contains(&smaller) && (!is_known || known(smaller));
        budgets.filter(is_one).collect()
    }

    fn known(&self, step: u64, budget: u64) -> Option<&Forecast> {
        self.known.iter().find(|known| (known.step, known.budget) == (step, budget))
    }
}

/// How a forecaster searches.
struct Searches<'a> {
    forecaster: &'a Forecaster<'a>,
    learn: Learn,
}

impl Searches<'_> {
    /// What recomputes less than `most` of the step in a budget.
    fn on(&self, turn: &Turn, budget: u64, most: f64) -> Result<Searched, Failure> {
        let known = self.forecaster.known(turn.step.key(), budget);
        if let Some(known) = known.filter(|_| self.learn == Learn::Portfolio) {
            return Ok(Searched { least: known.least.unwrap_or(0.0), found: vec![known.clone()] });
        }
        let turn = Turn { budget, ..turn.clone() };
        let runs = (COMMANDS_TO_LEARN / (turn.step.len() as u64).max(1)).max(1);
        let mut search = Search::of_turn(turn, self.forecaster.rehearsal.seed)?.below(most);
        let least = search.least();
        if least < most {
            search.learn(self.learn, runs)?;
        }
        let found = search.finalists().into_iter().chain(known.cloned()).collect();
        Ok(Searched { least, found })
    }

    /// The same in several budgets, at once.
    fn on_all(&self, turn: &Turn, budgets: &[u64], most: f64) -> Vec<Result<Searched, Failure>> {
        thread::scope(|scope| {
            let search = |&budget| scope.spawn(move || self.on(turn, budget, most));
            let threads: Vec<_> = budgets.iter().map(search).collect();
            threads.into_iter().map(|of| of.join().unwrap_or_else(|e| resume_unwind(e))).collect()
        })
    }

    /// Of forecasts of the usual step, the one by which a step of a rehearsal recomputes least, and those of other steps; if that
    /// is less than `most`.
    fn passing(
        &self,
        budget: u64,
        usual: Vec<Forecast>,
        others: &[Turn],
        most: f64,
    ) -> Result<Option<Passing>, Failure> {
        interrupt::before_the_first_step()?;
        if usual.is_empty() {
            return Ok(None);
        }
        let others = others.iter().map(|other| self.on(other, budget, f64::INFINITY));
        let others: Vec<_> = others.collect::<Result<_, _>>()?;
        let others = others.into_iter().filter_map(|of| of.found.into_iter().next());
        let others: Vec<Forecast> = others.collect();
        let Forecaster { rehearsal, threshold, .. } = self.forecaster;
        let limit = rehearsal.memory.recompute_limit;
        let mut best: Option<Passing> = None;
        for forecast in usual {
            let forecasts = [&[forecast], &others[..]].concat();
            let least = best.as_ref().map_or(most, |(_, best)| best.step_ratio);
            if let Ok(rehearsed) = rehearsal.by(budget, *threshold, limit, &forecasts)?
                && rehearsed.step_ratio < least
            {
                best = Some((forecasts, rehearsed));
            }
        }
        Ok(best)
    }
}
