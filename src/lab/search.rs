//! Search, by simulated runs, for the best way to run a step in a budget.
//!
//! A search tries one [`Forecast`] after the other on a simulated engine and keeps the best
//! forecast. The *clock* of a forecast measures the distance to a value's next use. A search has
//! three phases.
//!
//! 1. The search tries the forecast setting that is best on average over many programs.
//! 2. The search tries a portfolio of other forecasts (`portfolio.rs`). Some forecasts of the
//!    portfolio have a clock made of [prices of memory](crate::bound). The prices come from a
//!    relaxed problem, in which a share of a value may be evicted. Other forecasts are rounded
//!    solutions of the relaxed problem.
//! 3. Climbing (`climb.rs`): a few numbers of the best forecast are changed at random, and
//!    improvements are kept.
//!
//! A simulated run ends as soon as it recomputes more than the best run. Until a run has passed,
//! the portfolio is tried first with a low limit on recomputation, then with a high limit.
//!
//! Effort is counted in simulated runs and in the [ops](Allowance) of these runs, not in time.
//! Therefore, the same program, budget, seed and effort give the same forecast on any machine. The
//! limit on ops also keeps a search whose runs recompute much from taking longer than other
//! searches.
//!
//! A forecast only scores candidates for eviction. In a run that differs from the simulated run, a
//! forecast is only a guess. The computed values and the hard limit of the budget never depend on a
//! forecast.

mod background;
mod climb;
mod guide;
mod portfolio;
#[cfg(test)]
mod tests;

use super::replay::{Machine, MemoryKind, Replay};
use crate::bound::{Absence, Demand, Effort, Relaxed};
use crate::command::{RecordedProgram, TensorId};
use crate::driver::{Allowance, Turn};
use crate::engine::RecomputeLimit;
use crate::error::Error;
use crate::evict::{Forecast, Learn, PolicyKind};
use crate::step::StepFuture;
pub use background::learner;
use climb::Climb;
use guide::{Guide, Log};
use portfolio::Solved;
use remat_rng::SplitMix64;
use std::collections::VecDeque;
use std::sync::Arc;

/// Limits on the recomputed cost until a run has passed, as shares of the cost of the program. The
/// low limit is used first, then the high limit.
const LIMITS: [f64; 2] = [1.0, 10.0];

/// Search for the best way to run a program in a budget. The search first tries the setting that is
/// best on average, and then a portfolio of other forecasts, some with clocks made of [prices of
/// memory](crate::bound). Afterwards, the search changes the best of the tried forecasts at random
/// and keeps improvements.
///
/// [`Search::advance`] does the work, a few simulated runs in each call. The caller may stop after
/// any call.
#[derive(Debug)]
pub struct Search {
    program: Arc<RecordedProgram>,
    /// Position of the command at which the step begins.
    begin: usize,
    /// Tensors that exist when the step begins, each with the number of its value in the step.
    carried: Vec<(TensorId, u32)>,
    /// Budget, kind of memory and settings of the simulated runs.
    replay: Replay,
    step: Arc<StepFuture>,
    /// Forecasts of the portfolio that were not tried yet.
    todo: VecDeque<Forecast>,
    /// Forecasts of the portfolio whose runs recomputed more than the first of [`LIMITS`].
    failed: VecDeque<Forecast>,
    /// The few best passing forecasts of the portfolio, best first.
    passed: Vec<Forecast>,
    /// Index in [`LIMITS`] of the current limit.
    attempt: usize,
    /// Whether the best forecasts were tried with all values of `min_evict_bytes`, which is the
    /// size of the smallest storage to evict.
    sizes_tried: bool,
    /// The setting that is best on average, if a run with this setting passed.
    plain: Option<Forecast>,
    climb: Option<Climb>,
    best: Option<Forecast>,
    /// Lower bound on the recomputed cost of any run, divided by the cost of the program.
    least: f64,
    rng: SplitMix64,
    runs: u64,
    ops: u64,
    /// Number of ops in a run without recomputing.
    turn_ops: u64,
}

impl Search {
    /// A search on a program, in the budget and with the settings of `replay`. `seed` is the seed
    /// of the random changes.
    ///
    /// # Errors
    /// An error if the settings are invalid.
    pub fn new(program: Arc<RecordedProgram>, replay: &Replay, seed: u64) -> Result<Self, Error> {
        let step = Arc::new(program.future());
        Self::of(program, 0, step, Vec::new(), replay, seed)
    }

    /// A search on a turn of a loop, in the budget and with the settings of the turn.
    ///
    /// # Errors
    /// An error if the settings are invalid.
    pub fn of_turn(turn: Turn, seed: u64) -> Result<Self, Error> {
        let Turn { program, begin, step, carried, budget, settings, in_arena } = turn;
        let memory = if in_arena { MemoryKind::Arena } else { MemoryKind::Counted };
        let replay =
            Replay { memory, settings, seed, ..Replay::new(PolicyKind::default(), budget) };
        Self::of(program, begin, step, carried, &replay, seed)
    }

    fn of(
        program: Arc<RecordedProgram>,
        begin: usize,
        step: Arc<StepFuture>,
        carried: Vec<(TensorId, u32)>,
        replay: &Replay,
        seed: u64,
    ) -> Result<Self, Error> {
        replay.settings.check(replay.budget)?;
        let policy = PolicyKind::Learned(Learn::Ahead);
        // Changes of settings during the run are dropped, because a search is for one budget.
        let replay = Replay { policy, changes: Vec::new(), ..replay.clone() };
        let priced = Priced::new(&program, begin, &replay);
        Ok(Self {
            begin,
            carried,
            todo: portfolio::forecasts(&step, replay.budget, |budget| priced.solved(budget)).into(),
            least: priced.least(replay.budget),
            turn_ops: program.ops_from(begin).max(1),
            program,
            replay,
            step,
            failed: VecDeque::new(),
            passed: Vec::new(),
            attempt: 0,
            sizes_tried: false,
            climb: None,
            best: None,
            plain: None,
            rng: SplitMix64::new(seed),
            runs: 0,
            ops: 0,
        })
    }

    /// The best forecast so far; `None` if no run has passed.
    #[must_use]
    pub const fn best(&self) -> Option<&Forecast> {
        self.best.as_ref()
    }

    /// Forecasts to try in a real run: the best forecast so far, the few best of the portfolio, and
    /// the setting that is best on average. A real run begins with a different state of memory than
    /// a simulated run, so a different forecast may be best.
    #[must_use]
    pub fn finalists(&self) -> Vec<Forecast> {
        let mut finalists: Vec<Forecast> = Vec::new();
        for forecast in self.best.iter().chain(&self.passed).chain(&self.plain) {
            if !finalists.contains(forecast) {
                finalists.push(forecast.clone());
            }
        }
        finalists
    }

    /// Number of simulated runs.
    #[must_use]
    pub const fn runs(&self) -> u64 {
        self.runs
    }

    /// Number of ops in all simulated runs.
    #[must_use]
    pub const fn ops(&self) -> u64 {
        self.ops
    }

    /// Number of ops of the step if nothing is recomputed. No complete run has fewer ops.
    #[must_use]
    pub const fn turn_ops(&self) -> u64 {
        self.turn_ops
    }

    /// Ops that a search of effort `learn` may still use.
    #[must_use]
    pub fn allowance(&self, learn: Learn) -> Allowance {
        let mut allowance = Allowance::of_turns(learn.turns(), self.turn_ops);
        allowance.spend(self.ops);
        allowance
    }

    /// Step that the forecasts are for.
    #[must_use]
    pub const fn step(&self) -> &Arc<StepFuture> {
        &self.step
    }

    /// Lower bound on the recomputed cost of any run, divided by the cost of the step; infinite if
    /// no run can pass.
    #[must_use]
    pub const fn least(&self) -> f64 {
        self.least
    }

    /// Whether the portfolio is still being tried.
    #[must_use]
    pub fn is_in_portfolio(&self) -> bool {
        !self.todo.is_empty()
    }

    /// Whether the search has done the work of the effort `learn`.
    #[must_use]
    pub fn is_done(&self, learn: Learn) -> bool {
        let is_spent = self.allowance(learn).left() < self.turn_ops;
        is_spent
            || match learn {
                Learn::Ahead => self.runs >= 1,
                Learn::Portfolio => !self.is_in_portfolio(),
                Learn::Search { runs } => self.runs >= runs,
            }
    }

    /// Relative distance of the best forecast's recomputation from the lower bound; 0 if the best
    /// forecast recomputes nothing. `None` if no run has passed.
    #[must_use]
    pub fn distance(&self) -> Option<f64> {
        let excess = self.best.as_ref()?.excess?;
        Some(if excess > 0.0 { (excess - self.least) / self.least.max(1e-9) } else { 0.0 })
    }

    /// Tries another forecast, with at most a few simulated runs. The ops of the simulated runs are
    /// subtracted from `allowance`; a run ends when no ops are left.
    ///
    /// Returns false if no forecast needs to be tried, because the best forecast recomputes no more
    /// than the lower bound, or because no run can pass.
    ///
    /// # Errors
    /// An error if the settings are invalid.
    pub fn advance(&mut self, allowance: &mut Allowance) -> Result<bool, Error> {
        if self.distance().is_some_and(|distance| distance <= 1e-3) {
            self.todo.clear();
            return Ok(false);
        }
        if let Some(forecast) = self.todo.pop_front() {
            self.try_next(forecast, allowance)?;
            if self.todo.is_empty() {
                self.refill();
            }
            return Ok(true);
        }
        let mut climb = match self.climb.take() {
            Some(climb) => climb,
            None if self.passed.is_empty() => return Ok(false),
            None => Climb::new(self.passed.clone(), &self.step, self.replay.budget),
        };
        let goes_on = climb.advance(self, allowance);
        self.climb = Some(climb);
        goes_on
    }

    /// Continues the search up to the effort `learn`.
    ///
    /// # Errors
    /// An error if the settings are invalid.
    pub fn learn(&mut self, learn: Learn) -> Result<(), Error> {
        let mut allowance = self.allowance(learn);
        while !self.is_done(learn) && self.advance(&mut allowance)? {}
        Ok(())
    }

    /// Tries a forecast of the portfolio.
    fn try_next(&mut self, forecast: Forecast, allowance: &mut Allowance) -> Result<(), Error> {
        // A run may recompute slightly more than the best run, because its forecast may be a better
        // start for climbing.
        let limit = (self.best_excess() * 1.1 + 0.002).min(LIMITS[self.attempt]);
        let is_plain = forecast == Forecast::plain(&self.step, self.replay.budget);
        let tried = self.simulate(forecast, limit, allowance, None)?;
        portfolio::keep(&mut self.passed, &tried);
        if tried.excess.is_some() {
            if is_plain {
                self.plain = Some(tried);
            }
        } else if self.attempt + 1 < LIMITS.len() {
            self.failed.push_back(Forecast { least: None, ..tried });
        }
        Ok(())
    }

    /// Refills the portfolio after all its forecasts were tried. If no run has passed, the failed
    /// forecasts are added again, with a higher limit. If a run has passed, the best forecasts are
    /// added with other values of `min_evict_bytes`.
    fn refill(&mut self) {
        let failed = std::mem::take(&mut self.failed);
        if self.best.is_none() {
            if self.attempt + 1 < LIMITS.len() {
                self.attempt += 1;
                self.todo = failed;
            }
        } else if !std::mem::replace(&mut self.sizes_tried, true) {
            let usual = self.replay.settings.min_evict_bytes;
            let best = self.best.iter().chain(self.passed.first());
            self.todo = portfolio::of_other_sizes(best, self.replay.budget, usual).into();
        }
    }

    fn best_excess(&self) -> f64 {
        self.best.as_ref().and_then(|best| best.excess).unwrap_or(f64::INFINITY)
    }

    /// Simulates a run with a forecast, and stores the recomputed cost, divided by the cost of the
    /// program, in the forecast's `excess`. `excess` is `None` if it would exceed `limit`, if the
    /// run takes more ops than allowed, or if the run fails.
    fn simulate(
        &mut self,
        mut forecast: Forecast,
        limit: f64,
        allowance: &mut Allowance,
        log: Option<&mut Guide>,
    ) -> Result<Forecast, Error> {
        let mut replay = self.replay.clone();
        replay.budget = forecast.budget;
        let most = match replay.settings.recompute_limit {
            Some(RecomputeLimit::Multiple(most)) => most,
            _ => LIMITS[LIMITS.len() - 1],
        };
        replay.settings.recompute_limit = Some(RecomputeLimit::Multiple(limit.min(most)));
        replay.foresight = Some(Arc::new(forecast.for_step(Arc::clone(&self.step))));
        let mut machine = Machine::of_step(&replay, &self.program, self.begin, &self.carried)?;
        machine.limit_ops(*allowance);
        let heard = log.is_some().then(Log::default);
        if let Some(heard) = &heard {
            machine.listen(Box::new(heard.clone()));
        }
        // The search may run at the same time as the program, and the log of the program must not
        // show simulated runs.
        let nobody = tracing::Dispatch::none();
        let outcome = tracing::dispatcher::with_default(&nobody, || machine.simulate());
        let ops = outcome.stats.ops + outcome.stats.recomputed_ops;
        self.runs += 1;
        self.ops += ops;
        allowance.spend(ops);
        forecast.excess = outcome.slowdown().map(|slowdown| slowdown - 1.0);
        forecast.least = Some(self.least);
        if let (Some(guide), Some(heard)) = (log, heard) {
            *guide = heard.guide(&self.step);
        }
        if forecast.excess.is_some_and(|excess| excess < self.best_excess()) {
            self.best = Some(forecast.clone());
        }
        Ok(forecast)
    }
}

/// Source of prices of memory at the positions of a step.
struct Priced {
    demand: Demand,
    /// Command -> its position in the step; `u32::MAX` for commands before the step. Deletions at
    /// the end of the step have the position `len`.
    positions: Vec<u32>,
    /// Number of positions.
    len: u32,
}

impl Priced {
    fn new(program: &RecordedProgram, begin: usize, replay: &Replay) -> Self {
        let mut len = 0;
        let mut positions = vec![u32::MAX; begin];
        for command in &program.commands()[begin..] {
            positions.push(len);
            len += u32::from(command.is_position());
        }
        Self { demand: replay.demand(program), positions, len }
    }

    /// Solution of the relaxed problem of the [bound](crate::bound), in positions of the step.
    /// `None` if nothing is recomputed, or if the budget is too small for some command.
    fn solved(&self, budget: u64) -> Option<Solved> {
        let Relaxed { bound, mut absences } =
            self.demand.relaxed(budget, Effort::default()).ok()?;
        for Absence { from, to, .. } in &mut absences {
            // A value made before the step exists from the beginning of the step.
            *from = match self.positions[*from as usize] {
                u32::MAX => 0,
                position => position,
            };
            *to = self.positions[*to as usize];
        }
        let mut prices: Vec<(u32, f64)> = Vec::new();
        for (command, price) in bound.prices.points() {
            let at = self.positions[command];
            match prices.last_mut() {
                Some((last, sum)) if *last == at => *sum += price,
                _ => prices.push((at, price)),
            }
        }
        prices.retain(|(at, _)| *at < self.len);
        (!prices.is_empty()).then_some(Solved { prices, absences })
    }

    /// Lower bound on the recomputed cost, divided by the cost of the step; infinite if the budget
    /// is too small for some command.
    fn least(&self, budget: u64) -> f64 {
        self.demand.bound(budget).map_or(f64::INFINITY, |bound| bound.excess())
    }
}
