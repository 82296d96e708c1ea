//! Finding out, by simulated runs, how a step is best run in a budget.
//!
//! A search tries one [`Forecast`] after the other on a simulated engine and keeps the best. It begins with the setting
//! that is best on the average, goes on with a portfolio of others (`portfolio.rs`), among them clocks made of
//! [prices of memory](crate::bound) and roundings of the problem that these solve, and then climbs: it changes a few
//! numbers of the best, and keeps what is better (`climb.rs`). A run ends as soon as it recomputes more than
//! the best did; and as long as none has passed, the portfolio is tried with a low limit first.
//!
//! Effort is counted in simulated runs, and in the [ops](Allowance) that these take: so the same program, budget, seed and
//! effort find the same forecast on any machine, and where much is recomputed a search takes no longer than elsewhere.
//!
//! What it finds only scores. In a run that differs from the simulated one it is a guess as good as another, and no
//! bits and no budget depend on it.

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
use crate::rng::SplitMix64;
use crate::step::StepFuture;
pub use background::learner;
use climb::Climb;
use guide::{Guide, Log};
use portfolio::Solved;
use std::collections::VecDeque;
use std::sync::Arc;

/// Shares of its work that a run may recompute as long as none has passed: first the one, then the other.
const LIMITS: [f64; 2] = [1.0, 10.0];

/// A search for the best way to run a program in a budget: first the setting that is best on the average, then a portfolio of
/// others, among them clocks made of [prices of memory](crate::bound), then climbing from the best of them.
///
/// It does its work in [`Search::advance`], one simulated run a call, so that whoever drives it may stop, or do something
/// else, at any time.
#[derive(Debug)]
pub struct Search {
    program: Arc<RecordedProgram>,
    /// Where in it the step begins, and what tensors hold of its values then.
    begin: usize,
    carried: Vec<(TensorId, u32)>,
    /// Budget, kind of memory and settings of the simulated runs.
    replay: Replay,
    step: Arc<StepFuture>,
    /// Forecasts of the portfolio: still to be tried; too much recomputed for the first of [`LIMITS`]; and the best that
    /// passed, best first.
    todo: VecDeque<Forecast>,
    failed: VecDeque<Forecast>,
    passed: Vec<Forecast>,
    /// Which of the [`LIMITS`].
    attempt: usize,
    /// Whether other sizes were tried of what may go first.
    sizes_tried: bool,
    /// The first of it, if that passed.
    plain: Option<Forecast>,
    climb: Option<Climb>,
    best: Option<Forecast>,
    /// The least that any run recomputes, over the cost of the program.
    least: f64,
    rng: SplitMix64,
    runs: u64,
    ops: u64,
    /// Ops of a run that recomputes nothing.
    turn_ops: u64,
}

impl Search {
    /// A search on a program, in the budget and with the settings of `replay`; `seed` chooses what climbing tries.
    ///
    /// # Errors
    /// If the settings make no sense.
    pub fn new(program: Arc<RecordedProgram>, replay: &Replay, seed: u64) -> Result<Self, Error> {
        let step = Arc::new(program.future());
        Self::of(program, 0, step, Vec::new(), replay, seed)
    }

    /// A search on the turn of a loop, in its budget and with the settings with which it ran; the rest as [`Search::new`].
    ///
    /// # Errors
    /// As there.
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
        // Changes are of a whole run, and this is about one budget.
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

    /// What may be best in a run that begins from another state of memory than the simulated ones, and so for who can try it
    /// there: the best so far, the best few of the portfolio, and the setting that is best on the average.
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

    /// Simulated runs so far.
    #[must_use]
    pub const fn runs(&self) -> u64 {
        self.runs
    }

    /// Ops of these runs.
    #[must_use]
    pub const fn ops(&self) -> u64 {
        self.ops
    }

    /// Ops of the step, if nothing is recomputed: no run takes less.
    #[must_use]
    pub const fn turn_ops(&self) -> u64 {
        self.turn_ops
    }

    /// Ops that it may take, if it is to go as far as that, less those that it has taken.
    #[must_use]
    pub fn allowance(&self, learn: Learn) -> Allowance {
        let mut allowance = Allowance::of_turns(learn.turns(), self.turn_ops);
        allowance.spend(self.ops);
        allowance
    }

    /// What the forecasts are of.
    #[must_use]
    pub const fn step(&self) -> &Arc<StepFuture> {
        &self.step
    }

    /// The least that any run recomputes, over the cost of the step; infinite if none can pass.
    #[must_use]
    pub const fn least(&self) -> f64 {
        self.least
    }

    /// Whether the portfolio is still being tried.
    #[must_use]
    pub fn is_in_portfolio(&self) -> bool {
        !self.todo.is_empty()
    }

    /// Whether it went as far as that.
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

    /// How far the best is above the least that can be proven, over that: 0 if nothing can be gained. `None` if no
    /// run has passed.
    #[must_use]
    pub fn distance(&self) -> Option<f64> {
        let excess = self.best.as_ref()?.excess?;
        Some(if excess > 0.0 { (excess - self.least) / self.least.max(1e-9) } else { 0.0 })
    }

    /// Tries one more forecast: at most a few simulated runs, which end once they have taken as many ops as there are in
    /// `allowance`. Those are spent. False if nothing is left to try: the best recomputes no more than must be, or nothing
    /// passes.
    ///
    /// # Errors
    /// If the settings make no sense.
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

    /// Goes on by so much effort.
    ///
    /// # Errors
    /// If the settings make no sense.
    pub fn learn(&mut self, learn: Learn) -> Result<(), Error> {
        let mut allowance = self.allowance(learn);
        while !self.is_done(learn) && self.advance(&mut allowance)? {}
        Ok(())
    }

    /// Tries one of the portfolio.
    fn try_next(&mut self, forecast: Forecast, allowance: &mut Allowance) -> Result<(), Error> {
        // Those a little worse may be better to begin climbing from.
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

    /// All were tried: what may pass with a higher limit comes next, if none did; or the best ones with other sizes.
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

    /// Runs by a forecast, which is told what it recomputes: nothing if that is above `limit`, or more than is allowed, or the
    /// run fails.
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
        // Perhaps beside the program itself, whose log is not to tell of what only was tried.
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

/// What memory is worth, at positions of a step.
struct Priced {
    demand: Demand,
    /// Position of each command in the step; of those before it, and of deletions at its end, one beyond.
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

    /// The relaxed problem at positions of the step, solved. `None` if nothing is recomputed, or some command does not fit.
    fn solved(&self, budget: u64) -> Option<Solved> {
        let Relaxed { bound, mut absences } =
            self.demand.relaxed(budget, Effort::default()).ok()?;
        for Absence { from, to, .. } in &mut absences {
            // What was made before the step is there from its beginning.
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

    /// Infinite if some command does not fit.
    fn least(&self, budget: u64) -> f64 {
        self.demand.bound(budget).map_or(f64::INFINITY, |bound| bound.excess())
    }
}
