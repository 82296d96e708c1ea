//! Search for forecasts before the first step of a run, and for the part of the budget to use.
//!
//! More memory must never make a run recompute more. Smaller budgets are therefore tried, too: the
//! whole percents below the budget. If one of them is better, the run uses only this part of its
//! budget. The search ends when the [bound](crate::bound) shows that no run in a smaller budget can
//! be better, or when several budgets in a row bring no gain.
//!
//! The number of simulated [ops](Allowance) is fixed for each kind of step, and does not depend on
//! the budget. A short run has fewer simulated ops.
//!
//! Half of the simulated ops are spent on comparing budgets, in equal parts. A budget does not pass
//! unspent ops on to other budgets. For any smaller budget, a run therefore finds the same
//! forecasts as a run in the smaller budget would. A forecast of an earlier run replaces the search
//! in its budget. The other half of the simulated ops refines the forecasts for the best budget.
//!
//! Forecasts that need no search are tried last, in the budget of the run, with simulated ops that
//! are reserved for them. A run with a search therefore never recomputes more than a run without.

use super::cache::{Cache, Origin};
use super::rehearsal::at_once;
use super::{
    ChosenBudget, Progress, Rehearsal, Rehearsed, Share, Trainable, TuneError, Tuned, Warning,
};
use crate::cost::CostModelKind;
use crate::driver::{Allowance, Turn};
use crate::evict::{Clock, Forecast, Learn, PolicyKind};
use crate::lab::Search;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Number of turns of each kind of step that may be simulated for each step of the run, even if the
/// ops do hardly any work. One more turn is allowed for each `FLOPS_A_TURN` floating-point
/// operations of an average op. Simulating one op takes about as long as `FLOPS_A_TURN` operations
/// on a core.
const TURNS_A_STEP: f64 = 4.0;
const FLOPS_A_TURN: f64 = 2.5e5;

/// Least and greatest number of simulated turns, for a run with the policy `learned:portfolio`.
const TURNS: (f64, f64) = (128.0, 2048.0);

/// Effort of the policy `learned:search`, as a multiple of the effort of `learned:portfolio`.
const SEARCH: f64 = 8.0;

/// Limit on simulated ops for a kind of step. The simulation takes a few seconds.
const MOST_OPS: u64 = 3 << 20;

/// Limit on simulated turns for trying forecasts that need no search. The policy `learned`, which
/// looks ahead and does not search, simulates no other turns.
const TURNS_WITHOUT_SEARCH: u64 = 64;

/// Number of smaller budgets that are tried at the same time. The number does not depend on the
/// machine. If no budget of such a group brings a gain, the search ends: less memory only rarely
/// makes a run recompute less.
const AT_ONCE: usize = 4;

/// Limit on the number of groups of smaller budgets that are tried.
const TIMES: usize = 2;

/// Least number of simulated turns for a smaller budget. If a smaller budget would get fewer turns,
/// only the budget of the run is searched, with all ops. A second group is tried only if each
/// budget also gets 1/`SHARE` of [the turns of a search](Learn::turns).
const LEAST_TURNS: u64 = 10;
const SHARE: u64 = 8;

/// Forecasts of the steps of a run, and the part of the budget that they use.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Forecasts {
    /// Limit on the run's bytes: the part of the budget with the least recomputation.
    pub budget: u64,
    /// Forecasts in the budget `budget`, one for each kind of step.
    pub forecasts: Vec<Forecast>,
    /// Forecasts that were found by search, in all budgets that were tried, for later runs.
    pub searched: Vec<Forecast>,
    /// Lower bound on the recomputation of a step in the whole budget, as a share of the step's
    /// work.
    pub least: f64,
    /// Number of ops simulated by the search.
    pub simulated_ops: u64,
    /// Duration of the search.
    pub time: Duration,
}

impl Forecasts {
    /// Largest recomputation of any kind of step, as a share of the step's work, according to the
    /// simulation.
    #[must_use]
    pub fn predicted(&self) -> Option<f64> {
        self.forecasts.iter().filter_map(|forecast| forecast.excess).reduce(f64::max)
    }
}

impl<'a, P: Trainable> Rehearsal<'_, 'a, P> {
    /// Searches for forecasts in a chosen budget. Adds the forecasts found to the tuner's file of
    /// forecasts, if any.
    ///
    /// # Errors
    /// [`TuneError::Cache`] if the file cannot be read, or belongs to another device.
    pub fn learn(&self, chosen: ChosenBudget) -> Result<Tuned<'a>, TuneError> {
        let tuner = self.tuner;
        let path = tuner.cache.as_deref();
        let cost_model = tuner.cost_model().map_or("own".to_owned(), |kind| kind.to_string());
        let origin = Origin::here(&tuner.stand_in.name, &cost_model);
        let mut cache = path.map(|path| Cache::read(path, origin, &tuner.names)).transpose()?;
        let forecaster = Forecaster {
            rehearsal: self,
            full_budget: chosen.full_budget(),
            threshold: chosen.threshold(),
            known: cache.as_ref().map_or(&[], Cache::forecasts),
        };
        let found = match chosen.evicts() {
            true => forecaster.find(chosen.budget(), chosen.rehearsed())?,
            false => None,
        };
        let mut not_kept = None;
        if let (Some(found), Some(cache), Some(path)) = (&found, &mut cache, path)
            && cache.add(&found.searched)
            && let Err(error) = cache.write(path)
        {
            // A failed write is only a warning; another run may be writing the file.
            let told = format!("{} {}: {error}", tuner.names.cache, path.display());
            not_kept = Some(Warning::NotKept(told));
        }
        Ok(Tuned { not_kept, ..self.learned(chosen, found) })
    }

    /// The result of [`Rehearsal::learn`], with forecasts that a rehearsal with the same
    /// [key](Rehearsal::key) has found.
    #[doc(hidden)]
    #[must_use]
    pub fn learned(&self, chosen: ChosenBudget, found: Option<Forecasts>) -> Tuned<'a> {
        let (make, known) = (Arc::clone(&self.tuner.make), self.known.clone());
        Tuned { make, chosen, found, known, not_kept: None }
    }

    /// Text of all options that [`Rehearsal::learn`] depends on, besides the program. Rehearsals of
    /// one program with equal texts find the same forecasts.
    #[doc(hidden)]
    #[must_use]
    pub fn key(&self, chosen: &ChosenBudget) -> String {
        let tuner = self.tuner;
        let builder = tuner.builder(chosen.budget(), chosen.threshold());
        let (full_budget, device) = (chosen.full_budget(), &tuner.stand_in.name);
        format!("{} steps in {full_budget} bytes on {device}: {builder:?}", tuner.steps)
    }
}

/// Search for forecasts.
struct Forecaster<'a, P> {
    rehearsal: &'a Rehearsal<'a, 'a, P>,
    /// Full budget (100 %), in bytes.
    full_budget: u64,
    threshold: Option<u64>,
    /// Forecasts of earlier runs.
    known: &'a [Forecast],
}

/// Result of a search in several budgets.
struct Compared {
    /// Lower bound on the recomputation of the usual step in the budget of the run, as a share of
    /// its work; 0 without a search.
    least: f64,
    /// The best forecasts in each budget in which a run passes. The largest budget comes first,
    /// unless a second search improved another.
    all: Vec<Best>,
    /// The least share that any result recomputes.
    most: f64,
    /// Number of simulated ops.
    spent: u64,
}

/// Result of a search in one budget.
struct Tried {
    /// Lower bound on the recomputation of the usual step, as a share of its work.
    least: f64,
    /// The best forecasts found. `None` if no run passes, or if no run in this budget can recompute
    /// less than the best run so far.
    best: Option<Best>,
}

/// The best forecasts found in a budget.
struct Best {
    budget: u64,
    forecasts: Vec<Forecast>,
    /// The rehearsal with the best forecasts.
    rehearsed: Rehearsed,
}

impl<P: Trainable> Forecaster<'_, P> {
    /// Searches for the best forecasts within a budget. `plain` is the rehearsal in that budget
    /// without forecasts.
    ///
    /// `None` if the policy does not look ahead, or if no two steps are alike. Also `None` if the
    /// run fails or recomputes more than `plain` with all forecasts tried.
    fn find(&self, budget: u64, plain: &Rehearsed) -> Result<Option<Forecasts>, TuneError> {
        let Some(PolicyKind::Learned(learn)) = self.rehearsal.policy else { return Ok(None) };
        let start = Instant::now();
        let turns = self.rehearsal.turns(self.threshold)?;
        // The last turn is of the usual kind, to which most steps belong.
        let Some((usual, rare)) = turns.split_last() else { return Ok(None) };
        let trial = Trial { forecaster: self, learn, usual, rare };
        let Compared { least, mut all, mut most, mut spent } = match learn {
            Learn::Ahead => Compared::without_search(),
            Learn::Portfolio | Learn::Search { .. } => self.compare(&trial, budget, plain)?,
        };
        let mut part = trial.allowance(TURNS_WITHOUT_SEARCH);
        let searched = all.iter().flat_map(|best| best.forecasts.iter().cloned()).collect();
        let so_far = best_of(&all, most).map(|at| &all[at]);
        let lists = trial.unsearched(budget);
        if let Some(better) = trial.best_of(budget, lists, so_far, least, &mut part)? {
            most = better.rehearsed.recompute_ratio;
            all.retain(|other| other.budget != budget);
            all.insert(0, better);
        }
        spent += part.spent();
        // With a policy that only looks ahead, forecasts are used only if they recompute less than
        // the plain run.
        let is_plain = learn == Learn::Ahead && plain.recompute_ratio <= most;
        let Some(at) = best_of(&all, most).filter(|_| !is_plain) else { return Ok(None) };
        let Best { budget, forecasts, .. } = all.remove(at);
        let (simulated_ops, time) = (spent, start.elapsed());
        Ok(Some(Forecasts { budget, forecasts, searched, least, simulated_ops, time }))
    }

    /// Searches in the budget of a run, and in smaller budgets.
    fn compare(
        &self,
        trial: &Trial<'_, P>,
        budget: u64,
        plain: &Rehearsed,
    ) -> Result<Compared, TuneError> {
        let smaller = self.smaller(budget);
        let Parts { each, times, best } = trial.parts(!smaller.is_empty());
        let mut spent = 0;
        let mut within = |few: &[u64], most, part| -> Result<Vec<Tried>, TuneError> {
            self.tell(few[0]);
            let all = trial.within_each(few, most, part).into_iter();
            let all = all.map(|(tried, ops)| {
                spent += ops;
                tried
            });
            all.collect()
        };
        // Try the budget itself, then groups of smaller budgets until a group brings no gain.
        let tried = within(&[budget], f64::INFINITY, each)?.pop();
        let Tried { least, best: whole } = tried.expect("one budget has one result");
        let mut most = whole.as_ref().map_or(plain, |whole| &whole.rehearsed).recompute_ratio;
        let mut all: Vec<Best> = whole.into_iter().collect();
        for few in smaller.chunks(AT_ONCE).take(times) {
            let before = most;
            all.extend(within(few, most, each)?.into_iter().filter_map(|tried| tried.best));
            most = least_of(&all, most);
            if most >= before {
                break;
            }
        }
        // Search again in the best budget, with the second half of the ops.
        if times > 0 {
            // If no budget has passed yet, search in the run's own budget.
            let budget = best_of(&all, most).map_or(budget, |at| all[at].budget);
            let again = within(&[budget], f64::INFINITY, best)?.pop();
            let again = again.and_then(|tried| tried.best);
            let is_better = |again: &Best| again.rehearsed.recompute_ratio < most || all.is_empty();
            if let Some(again) = again.filter(is_better) {
                all.retain(|other| other.budget != budget);
                all.insert(0, again);
                most = least_of(&all, most);
            }
        }
        Ok(Compared { least, all, most, spent })
    }

    fn tell(&self, budget: u64) {
        let percent = 100.0 * budget as f64 / self.full_budget as f64;
        (self.rehearsal.tuner.progress)(Progress::Learning { budget, percent });
    }

    /// The whole percents below a budget, in bytes, largest first.
    fn smaller(&self, budget: u64) -> Vec<u64> {
        // Measured costs vary by more than the gain of a smaller budget.
        if self.rehearsal.tuner.cost_model() == Some(CostModelKind::Measured) {
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

impl Compared {
    const fn without_search() -> Self {
        Self { least: 0.0, all: Vec::new(), most: f64::INFINITY, spent: 0 }
    }
}

/// The smaller of `most` and the least share that any result recomputes.
fn least_of(all: &[Best], most: f64) -> f64 {
    all.iter().map(|best| best.rehearsed.recompute_ratio).fold(most, f64::min)
}

/// Index of the first result that recomputes at most the share `most`. Results are in the order of
/// their budgets, the largest first.
fn best_of(all: &[Best], most: f64) -> Option<usize> {
    all.iter().position(|best| best.rehearsed.recompute_ratio <= most)
}

/// Division of the ops that may be simulated.
struct Parts {
    /// Ops for each budget that is compared.
    each: u64,
    /// Number of groups of smaller budgets.
    times: usize,
    /// Ops for the best budget, if several are compared.
    best: u64,
}

/// Trials of several budgets.
struct Trial<'a, P> {
    forecaster: &'a Forecaster<'a, P>,
    learn: Learn,
    /// A turn of the usual step, and turns of rarer kinds.
    usual: &'a Turn,
    rare: &'a [Turn],
}

impl<P: Trainable> Trial<'_, P> {
    /// The turns of all kinds of steps.
    fn kinds(&self) -> impl Iterator<Item = &Turn> {
        self.rare.iter().chain([self.usual])
    }

    /// Total number of ops that may be simulated. Shorter runs get fewer ops, because a better
    /// forecast saves them less time. Steps with cheap ops also get fewer simulated ops, because
    /// simulating a cheap op takes about as long as running it.
    fn ops(&self) -> u64 {
        let ops = self.usual.ops().max(1);
        let a_step = TURNS_A_STEP + self.usual.flops() / ops as f64 / FLOPS_A_TURN;
        let turns = a_step * self.forecaster.rehearsal.tuner.steps as f64;
        let effort = if matches!(self.learn, Learn::Search { .. }) { SEARCH } else { 1.0 };
        self.allowance((turns.clamp(TURNS.0, TURNS.1) * effort) as u64).left()
    }

    /// Ops of `turns` turns of each kind of step.
    fn allowance(&self, turns: u64) -> Allowance {
        let of_kind = |turn: &Turn| Allowance::of_turns(turns, turn.ops()).left().min(MOST_OPS);
        Allowance::of_ops(self.kinds().map(of_kind).sum())
    }

    /// Divides the ops among budgets, if `are_smaller` and each budget gets enough ops. If the ops
    /// are not divided, the budget of the run gets all ops.
    fn parts(&self, are_smaller: bool) -> Parts {
        let (all, turn) = (self.ops(), self.kinds().map(Turn::ops).sum::<u64>());
        let part = |times: usize| all / 2 / (1 + times * AT_ONCE) as u64;
        let enough = [LEAST_TURNS, self.learn.turns() / SHARE];
        let times = enough.iter().zip(1..=TIMES).take_while(|_| are_smaller);
        let times = times.filter(|&(&turns, times)| part(times) >= turns * turn).last();
        times.map_or(Parts { each: all, times: 0, best: 0 }, |(_, times)| Parts {
            each: part(times),
            times,
            best: all / 2,
        })
    }

    /// Searches for the best forecasts in a budget. Gives up if the lower bound of the usual step
    /// is at least `most`, the least share recomputed by any run so far.
    ///
    /// The bound covers only the usual step, and the first step of a run recomputes less.
    /// Therefore, in a run of few steps, the search may miss slightly better forecasts.
    fn within(
        &self,
        budget: u64,
        most: f64,
        allowance: &mut Allowance,
    ) -> Result<Tried, TuneError> {
        let third = allowance.left() / 3;
        let Searched { least, found } = self.search(self.usual, budget, most, third, allowance)?;
        if least >= most {
            return Ok(Tried { least, best: None });
        }
        let mut of_rare = Vec::new();
        for turn in self.rare {
            let each = third / self.rare.len() as u64;
            let Searched { found, .. } =
                self.search(turn, budget, f64::INFINITY, each, allowance)?;
            of_rare.extend(found.into_iter().next());
        }
        // The state of memory after the first step affects all later steps. Therefore forecasts of
        // the usual step are tried both with and without forecasts of rare steps.
        let mut with: Vec<&[Forecast]> = vec![&of_rare, &[]];
        with.dedup();
        let of_found = found.iter().map(|usual| {
            with.iter().map(|of| [*of, std::slice::from_ref(usual)].concat()).collect::<Vec<_>>()
        });
        let mut of_found = of_found.flatten();
        let first: Vec<Vec<Forecast>> = of_found.by_ref().take(with.len()).collect();
        let unknowing = self.on_clocks(Clock::UNKNOWING, budget);
        let lists = first.into_iter().chain(unknowing).chain(of_found);
        let best = self.best_of(budget, lists, None, least, allowance)?;
        Ok(Tried { least, best })
    }

    /// The first list of forecasts that recomputes the least, if any recomputes less than the best
    /// so far. `least` is the lower bound of the usual step.
    fn best_of(
        &self,
        budget: u64,
        lists: impl Iterator<Item = Vec<Forecast>>,
        so_far: Option<&Best>,
        least: f64,
        allowance: &mut Allowance,
    ) -> Result<Option<Best>, TuneError> {
        let mut best: Option<Best> = None;
        for mut forecasts in lists {
            let to_beat = best.as_ref().or(so_far);
            if let Some(rehearsed) = self.rehearse(budget, &forecasts, to_beat, allowance)? {
                if let Some(usual) = forecasts.last_mut() {
                    // A forecast has no excess yet if no search has completed a run with it.
                    usual.excess.get_or_insert(rehearsed.step_ratio);
                    usual.least = usual.least.or((least > 0.0).then_some(least));
                }
                best = Some(Best { budget, forecasts, rehearsed });
            }
        }
        Ok(best)
    }

    /// Forecasts that need no search: by the default setting, and by the policies without knowledge
    /// of steps.
    fn unsearched(&self, budget: u64) -> impl Iterator<Item = Vec<Forecast>> {
        self.on_clocks([Clock::default()].into_iter().chain(Clock::UNKNOWING), budget)
    }

    /// Lists of forecasts, one for each clock. A list runs all kinds of steps on its clock.
    fn on_clocks(
        &self,
        clocks: impl IntoIterator<Item = Clock>,
        budget: u64,
    ) -> impl Iterator<Item = Vec<Forecast>> {
        clocks.into_iter().map(move |clock| {
            self.kinds().map(|turn| Forecast::by(clock.clone(), &turn.step, budget)).collect()
        })
    }

    /// Rehearses with these forecasts. `None` unless the rehearsal passes and recomputes a smaller
    /// share than the best so far.
    fn rehearse(
        &self,
        budget: u64,
        forecasts: &[Forecast],
        best: Option<&Best>,
        allowance: &mut Allowance,
    ) -> Result<Option<Rehearsed>, TuneError> {
        let Forecaster { rehearsal, threshold, .. } = self.forecaster;
        // Stop a rehearsal that runs many more ops than the best rehearsal, because it recomputes
        // more.
        let most = best.map_or(u64::MAX, |best| best.rehearsed.simulated_ops * 5 / 4);
        let mut part = allowance.take(most);
        let is_enough = part.left() >= rehearsal.least_ops();
        let verdict = is_enough.then(|| rehearsal.by(budget, *threshold, forecasts, &mut part));
        allowance.give_back(part);
        let least = best.map_or(f64::INFINITY, |best| best.rehearsed.recompute_ratio);
        let rehearsed = verdict.transpose()?.and_then(Result::ok);
        Ok(rehearsed.filter(|now| !now.is_stopped && now.recompute_ratio < least))
    }

    /// Calls [`Trial::within`] in several budgets at once, each with `part` ops. Returns the
    /// results with the ops spent.
    fn within_each(
        &self,
        budgets: &[u64],
        most: f64,
        part: u64,
    ) -> Vec<(Result<Tried, TuneError>, u64)> {
        at_once(budgets.iter().copied(), |budget| {
            let mut part = Allowance::of_ops(part);
            (self.within(budget, most, &mut part), part.spent())
        })
    }

    /// Searches, in simulated runs, for forecasts of a turn in a budget. Returns the forecasts, the
    /// best first. Does not search if the lower bound of the turn is at least `most`.
    ///
    /// Takes `part` ops from the allowance and does not return unspent ops. Forecasts of earlier
    /// runs make a search shorter, but do not change the number of ops left to later rehearsals.
    fn search(
        &self,
        turn: &Turn,
        budget: u64,
        most: f64,
        part: u64,
        allowance: &mut Allowance,
    ) -> Result<Searched, TuneError> {
        let mut part = allowance.take(part);
        let searched = self.search_in(turn, budget, most, &mut part);
        allowance.close(part);
        searched
    }

    fn search_in(
        &self,
        turn: &Turn,
        budget: u64,
        most: f64,
        allowance: &mut Allowance,
    ) -> Result<Searched, TuneError> {
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
        while !search.is_done(self.learn)
            && allowance.left() >= search.turn_ops()
            && search.advance(allowance)?
        {
            rehearsal.tuner.interrupted()?;
        }
        let mut found = search.finalists();
        // An earlier run may have found a better forecast.
        found.extend(known.cloned());
        let excess = |forecast: &Forecast| forecast.excess.unwrap_or(f64::INFINITY);
        found.sort_by(|a, b| excess(a).total_cmp(&excess(b)));
        Ok(Searched { least, found })
    }
}

/// Result of a search by simulated runs.
struct Searched {
    /// Lower bound on the recomputation of any run, as a share of the turn's work.
    least: f64,
    found: Vec<Forecast>,
}
