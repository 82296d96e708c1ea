//! What is found out before the first step: how a step is best run, and in how much of the budget.
//!
//! What passes in a budget passes in a larger one as well, if no more of that is used. So smaller budgets are tried, too, that
//! more memory does not make a run recompute more: the whole percents below the budget, until the [bound](remat::bound)
//! shows that nothing better is left, or a few of them gain nothing.

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

/// Commands of a step in all rehearsals by what was found in a budget.
const COMMANDS_TO_REHEARSE: u64 = 1 << 15;

/// So many smaller budgets are tried at once, whatever the machine; if none of them gains anything, no more are: where a run
/// recomputes less in less memory, that is by chance.
const AT_ONCE: usize = 4;

/// What was found out.
#[derive(Debug)]
pub struct Forecasts {
    /// Bytes that the run holds at most: of the budget, as much as it recomputes least in.
    pub budget: u64,
    /// How each kind of step is best run in that.
    pub forecasts: Vec<Forecast>,
    /// The same in the other budgets that were tried, for later runs.
    pub in_others: Vec<Forecast>,
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
}

/// Looks for forecasts.
pub struct Forecaster<'a> {
    pub rehearsal: &'a Rehearsal<'a>,
    pub waiting: &'a Waiting,
    /// 100 %.
    pub full_budget: u64,
    pub threshold: Option<u64>,
    /// What earlier runs found.
    pub known: &'a [Forecast],
}

/// What came of a budget.
struct Tried {
    /// The share that any run of the usual step recomputes.
    least: f64,
    /// `None` if nothing passes, or nothing can be better than what there is.
    best: Option<Best>,
}

/// How steps are best run in a budget.
struct Best {
    budget: u64,
    forecasts: Vec<Forecast>,
    /// By these.
    rehearsed: Rehearsed,
}

impl Forecaster<'_> {
    /// How steps are best run within a budget; `plain` says how they pass in it without a forecast. `None` if the policy does
    /// not search, if no two steps are alike, or if nothing is found that passes and is no worse.
    pub fn find(&self, budget: u64, plain: &Rehearsed) -> Result<Option<Forecasts>, Failure> {
        let PolicyKind::Learned(learn @ (Learn::Portfolio | Learn::Search { .. })) =
            self.rehearsal.memory.policy()
        else {
            return Ok(None);
        };
        let start = Instant::now();
        let turns = self.rehearsal.turns(self.threshold)?;
        // What most steps are is the last.
        let Some((usual, rare)) = turns.split_last() else { return Ok(None) };
        let trial = Trial { forecaster: self, learn, usual, rare };
        self.tell(budget);
        let Tried { least, best: whole } = trial.within(budget, f64::INFINITY)?;
        let mut most = whole.as_ref().map_or(plain, |whole| &whole.rehearsed).recompute_ratio;
        let mut all: Vec<Best> = whole.into_iter().collect();
        for few in self.smaller(budget).chunks(AT_ONCE) {
            self.tell(few[0]);
            let before = most;
            for tried in trial.within_each(few, most) {
                all.extend(tried?.best);
            }
            most = all.iter().map(|best| best.rehearsed.recompute_ratio).fold(most, f64::min);
            if most >= before {
                break;
            }
        }
        // Of equals the largest.
        let Some(at) = all.iter().position(|best| best.rehearsed.recompute_ratio <= most) else {
            return Ok(None);
        };
        let Best { budget, forecasts, .. } = all.remove(at);
        let in_others = all.into_iter().flat_map(|best| best.forecasts).collect();
        Ok(Some(Forecasts { budget, forecasts, in_others, least, time: start.elapsed() }))
    }

    fn tell(&self, budget: u64) {
        let percent = 100.0 * budget as f64 / self.full_budget as f64;
        let bytes = ByteSize(budget);
        self.waiting.at(format!("learning how a step is best run in {bytes} ({percent:.0} %)"));
    }

    /// The whole percents below a budget, the largest first.
    fn smaller(&self, budget: u64) -> Vec<u64> {
        if self.rehearsal.memory.cost == CostModelKind::Measured {
            // Measurements vary by more than what could be gained.
            return Vec::new();
        }
        let percents = (1..=100).rev().map(|percent| Share::Percent(f64::from(percent)));
        let least = self.threshold.unwrap_or(1).max(1);
        percents
            .map(|share| share.of(self.full_budget))
            .filter(|smaller| (least..budget).contains(smaller))
            .collect()
    }
}

/// Tries budgets.
struct Trial<'a> {
    forecaster: &'a Forecaster<'a>,
    learn: Learn,
    /// The turns of a step like most, and of other kinds.
    usual: &'a Turn,
    rare: &'a [Turn],
}

impl Trial<'_> {
    /// How steps are best run in a budget, if the bound of a step like most is below `most`, the least share that any run was
    /// seen to recompute. In a run of a few steps, whose first recomputes less, that may leave out what would be a little better.
    fn within(&self, budget: u64, most: f64) -> Result<Tried, Failure> {
        let Forecaster { rehearsal, threshold, .. } = self.forecaster;
        let Searched { least, mut found } = self.search(self.usual, budget, most)?;
        let mut best: Option<Best> = None;
        if found.is_empty() {
            return Ok(Tried { least, best });
        }
        let rehearsals = COMMANDS_TO_REHEARSE / (self.usual.step.len() as u64).max(1);
        found.truncate(rehearsals.max(1) as usize);
        let mut of_rare = Vec::new();
        for turn in self.rare {
            of_rare.extend(self.search(turn, budget, f64::INFINITY)?.found.into_iter().next());
        }
        // How the first step leaves memory changes all that come.
        let mut with: Vec<&[Forecast]> = vec![&of_rare, &[]];
        with.dedup();
        for (usual, others) in found.iter().flat_map(|usual| with.iter().map(move |of| (usual, of)))
        {
            let forecasts = [others, std::slice::from_ref(usual)].concat();
            let limit = rehearsal.memory.recompute_limit;
            let verdict = rehearsal.by(budget, *threshold, limit, &forecasts)?;
            let least = best.as_ref().map_or(f64::INFINITY, |best| best.rehearsed.recompute_ratio);
            if let Some(rehearsed) = verdict.ok().filter(|now| now.recompute_ratio < least) {
                best = Some(Best { budget, forecasts, rehearsed });
            }
        }
        Ok(Tried { least, best })
    }

    /// The same in several budgets, at once.
    fn within_each(&self, budgets: &[u64], most: f64) -> Vec<Result<Tried, Failure>> {
        thread::scope(|scope| {
            let within = |&budget| scope.spawn(move || self.within(budget, most));
            let threads: Vec<_> = budgets.iter().map(within).collect();
            threads.into_iter().map(|of| of.join().unwrap_or_else(|e| resume_unwind(e))).collect()
        })
    }

    /// How a turn is run in a budget, the best first by simulated runs, if its bound is below `most`.
    fn search(&self, turn: &Turn, budget: u64, most: f64) -> Result<Searched, Failure> {
        let Forecaster { rehearsal, known, .. } = self.forecaster;
        let key = (turn.step.key(), budget);
        let known = known.iter().find(|known| (known.step, known.budget) == key);
        if let (Some(known), Learn::Portfolio) = (known, self.learn) {
            return Ok(Searched { least: known.least.unwrap_or(0.0), found: vec![known.clone()] });
        }
        let mut search = Search::of_turn(Turn { budget, ..turn.clone() }, rehearsal.seed)?;
        let least = search.least();
        if least >= most {
            return Ok(Searched { least, found: Vec::new() });
        }
        let runs = COMMANDS_TO_LEARN / (turn.step.len() as u64).max(1);
        while !search.is_done(self.learn) && search.runs() < runs.max(1) && search.advance()? {
            interrupt::before_the_first_step()?;
        }
        let mut found = search.finalists();
        // An earlier run may have been luckier.
        found.extend(known.cloned());
        let excess = |forecast: &Forecast| forecast.excess.unwrap_or(f64::INFINITY);
        found.sort_by(|a, b| excess(a).total_cmp(&excess(b)));
        Ok(Searched { least, found })
    }
}

/// What came of simulated runs.
struct Searched {
    /// The share that any run recomputes.
    least: f64,
    found: Vec<Forecast>,
}
