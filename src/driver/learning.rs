//! Learning of the best way to run the steps of a loop, while the loop runs.
//!
//! A step is learned if it is recognized ([`Driver::know`](super::Driver::know)) and a learner
//! accepts it (`turn_begins`). After one turn of a loop has run as predicted, the next turn is
//! [copied](Turn) and given to a [`Learner`]. The learner runs the copy many times on a simulated
//! engine. From the turn after the copied turn on, the driver uses the learner's forecasts.
//!
//! The effort of the learner is counted in [simulated ops](super::Allowance), not in time, and the
//! driver takes forecasts at fixed turns. Since no time is measured, a program has the same
//! evictions in every run, on fast and slow machines.

use super::drift::{Drift, Next};
use super::recognize::Recognizing;
use super::turn::{Turn, Writing};
use crate::device::Device;
use crate::engine::Stats;
use crate::evict::{Forecast, Foresight};
use crate::step::StepFuture;
use rustc_hash::FxHashMap;
use std::fmt;
use std::sync::Arc;

/// Search effort. By turn `t`, the search may have simulated the ops of `TURNS.0 + TURNS.1 * t`
/// turns without recomputation. Simulating a turn takes about as long as launching a tenth of its
/// kernels. The learner's thread keeps up with the loop, and the portfolio is done after 56 turns.
const TURNS: (u64, u64) = (64, 8);

/// Limit on the number of commands in all turns given to a learner. A learner holds several copies
/// of each command.
const MOST_COMMANDS: usize = 1 << 17;

/// Limit on tries to copy a turn of a step. A try fails if the turn departs from the predicted
/// step.
const MOST_TRIES: u32 = 16;

/// Searches for the best way to run turns, for example on its own thread. The default methods find
/// no forecast.
pub trait Learner: Send + fmt::Debug {
    /// Whether the learner wants turns of a step in a budget of `_budget` bytes. If false, no turn
    /// of the step is copied.
    fn wants(&self, _step: &StepFuture, _budget: u64) -> bool {
        true
    }

    /// Takes a turn and begins to search for the best way to run it.
    fn begin(&mut self, turn: Turn);

    /// Announces a later call of [`forecast`](Self::forecast) with equal arguments: a step
    /// ([`StepFuture::key`]), a budget, and a number of simulated ops.
    ///
    /// The learner should simulate `_ops` ops before `forecast` is called, and no more, because
    /// searching slows down the running steps. See [`Allowance`](super::Allowance).
    fn prepare(&mut self, _step: u64, _budget: u64, _ops: u64) {}

    /// The best forecast for a step in a budget, among the simulated runs within the first `_ops`
    /// simulated ops. Waits until `_ops` ops are simulated or the search ends. `None` if no
    /// simulated run was completed.
    fn forecast(&mut self, _step: u64, _budget: u64, _ops: u64) -> Option<Forecast> {
        None
    }

    /// Whether the learner may find a better forecast than an earlier run of the program did. If
    /// false, a step that has a forecast is not given to the learner.
    fn improves(&self) -> bool {
        true
    }

    /// Bytes of host memory that the learner holds.
    fn bytes(&self) -> u64 {
        0
    }
}

/// A learner, with the forecasts found so far.
#[derive(Debug, Default)]
pub(super) struct Learning {
    learner: Option<Box<dyn Learner>>,
    /// Number of commands in all turns given to the learner.
    given: usize,
    /// Knowledge of steps, by step key and budget in bytes.
    kinds: FxHashMap<(u64, u64), StepKind>,
    /// Whether the search for forecasts was completed before the run. The flag is stored for the
    /// recording.
    pub searched: bool,
}

#[derive(Debug, Default)]
struct StepKind {
    state: State,
    /// Whether a turn of the step came in the current run of the program.
    came: bool,
    forecast: Option<Arc<Forecast>>,
    /// Comparison of turns with the forecast.
    drift: Drift,
}

#[derive(Debug)]
enum State {
    /// No turn was copied yet. The field counts the tries so far.
    New(u32),
    /// A turn was given to the learner. The fields are the number of turns since then, and the
    /// number of ops of a turn.
    Given(u64, u64),
}

impl Default for State {
    fn default() -> Self {
        Self::New(0)
    }
}

impl StepKind {
    fn set_forecast(&mut self, forecast: Option<Forecast>) {
        (self.forecast, self.drift) = (forecast.map(Arc::new), Drift::default());
    }

    /// Notes the recomputation of a turn as a share of its work. Returns whether the next turn
    /// switches from running with the forecast to running without it, or the reverse.
    fn turned(&mut self, real: f64) -> bool {
        let simulated = self.forecast.as_ref().and_then(|forecast| forecast.excess);
        let next = simulated.map(|simulated| self.drift.turned(real, simulated));
        if next == Some(Next::Dropped) {
            self.drop_forecast();
        }
        next.is_some_and(|next| next != Next::Same)
    }

    /// Drops a forecast that turned out wrong, because real costs or holes in memory differ from
    /// those of the simulation. After the drop, the step is learned anew.
    fn drop_forecast(&mut self) {
        self.set_forecast(None);
        self.state = State::New(0);
    }
}

/// The current turn, and the totals at its start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Going {
    /// Step key, and budget in bytes.
    kind: (u64, u64),
    /// Engine totals at the start of the turn: cost of recomputation, and of first runs.
    recompute_cost: f64,
    base_cost: f64,
}

impl Learning {
    /// Sets the learner that gets the turns of loops from now on.
    pub fn learn_by(&mut self, learner: Option<Box<dyn Learner>>) {
        self.learner = learner;
        // Reset the count, because the new learner has none of the turns that the old learner got.
        self.given = 0;
        for kind in self.kinds.values_mut() {
            if let State::Given(..) = kind.state {
                kind.state = State::New(0);
            }
        }
    }

    /// Adds a forecast that an earlier run found. The driver uses the forecast whenever it
    /// recognizes the forecast's step and the budget is the forecast's budget. A forecast of a step
    /// that never comes does no harm.
    pub fn remember(&mut self, forecast: Forecast) {
        let key = (forecast.step, forecast.budget);
        let kind = self.kinds.entry(key).insert_entry(StepKind::default()).into_mut();
        kind.set_forecast(Some(forecast));
    }

    /// Forecasts found so far for all steps that came in the current run, sorted by step and
    /// budget.
    ///
    /// Waits first for the search of each kind of step, if `turns` is given. The wait ends when the
    /// search ends, or has simulated as many ops as `turns` turns have without recomputation.
    pub fn forecasts(&mut self, turns: Option<u64>) -> Vec<Forecast> {
        let Learning { learner, kinds, .. } = self;
        let mut all: Vec<Forecast> = Vec::new();
        for (&(step, budget), kind) in kinds.iter().filter(|(_, kind)| kind.came) {
            let asked = match (&kind.state, turns, &mut *learner) {
                (State::Given(_, ops), Some(turns), Some(learner)) => {
                    learner.forecast(step, budget, turns.saturating_mul(*ops))
                }
                _ => None,
            };
            all.extend(asked.or_else(|| kind.forecast.as_deref().cloned()));
        }
        sort(&mut all);
        all
    }

    /// Bytes of host memory that the learner holds.
    pub fn bytes(&self) -> u64 {
        self.learner.as_ref().map_or(0, |learner| learner.bytes())
    }

    /// All forecasts, including those of steps that did not come, sorted by step and budget.
    pub fn remembered(&self) -> Vec<Forecast> {
        let known = self.kinds.values().filter_map(|kind| kind.forecast.as_deref());
        let mut all: Vec<Forecast> = known.cloned().collect();
        sort(&mut all);
        all
    }

    /// Whether the learner may still find better forecasts.
    pub fn improves(&self) -> bool {
        self.learner.as_ref().is_some_and(|learner| learner.improves())
    }

    /// Whether a step in a budget has a forecast, even if a trial without the forecast is under
    /// way.
    pub fn has_forecast(&self, key: (u64, u64)) -> bool {
        self.kinds.get(&key).is_some_and(|kind| kind.forecast.is_some())
    }

    /// Drops the forecast of a step in a budget, because memory did not suffice with the forecast.
    pub fn drop_forecast(&mut self, key: (u64, u64)) {
        self.kind(key).drop_forecast();
    }

    fn kind(&mut self, key: (u64, u64)) -> &mut StepKind {
        self.kinds.entry(key).or_default()
    }
}

impl<D: Device> Recognizing<'_, D> {
    /// Begins a turn of a known loop with the current command, and ends the previous turn.
    ///
    /// Gives a copied turn, if there is one, to the learner. After that, begins to copy a turn of a
    /// new kind, or takes a forecast from the learner.
    pub fn turn_begins(&mut self) {
        let budget = self.books.engine.budget();
        if let Some(turn) =
            self.books.writing.take().and_then(|writing| writing.finish(&self.books.engine))
            && let Some(learner) = &mut self.learning.learner
        {
            let key = (turn.step.key(), budget);
            self.learning.given += turn.program.commands().len();
            let ops = turn.ops();
            learner.begin(turn);
            learner.prepare(key.0, key.1, ops_by(1, ops));
            self.learning.kind(key).state = State::Given(0, ops);
        }
        self.turn_is_over();
        let Some(known) = &self.recognizer.known else { return };
        self.learning.kind((known.key, budget)).came = true;
        let Learning { learner: Some(learner), given, .. } = &self.learning else { return };
        let is_full = *given > MOST_COMMANDS;
        let improves = learner.improves();
        let wants = learner.wants(&known.future, budget);
        let key = (known.key, budget);
        let kind = self.learning.kind(key);
        let is_over = is_full || !wants || kind.forecast.is_some() && !improves;
        match &mut kind.state {
            State::New(tries) if *tries >= MOST_TRIES || is_over => {}
            State::New(tries) => {
                *tries += 1;
                let step = Arc::clone(&known.future);
                let value = |storage| self.recognizer.value_of(storage, 0);
                self.books.writing = Some(Box::new(Writing::begin(self.books, &step, value)));
            }
            State::Given(turns, ops) => {
                *turns += 1;
                let (turns, ops) = (*turns, *ops);
                if turns >= 2 && turns.is_power_of_two() {
                    self.ask_learner(key, ops_by(turns, ops));
                    self.recognizer.foresight = None;
                }
                if let Some(learner) = &mut self.learning.learner {
                    learner.prepare(key.0, key.1, ops_by(turns + 1, ops));
                }
            }
        }
    }

    /// Compares the recomputation of the previous turn with its forecast, and notes the totals for
    /// the next turn.
    fn turn_is_over(&mut self) {
        let Stats { recompute_cost, base_cost, .. } = self.books.engine.stats();
        if let Some(last) = self.recognizer.going.take() {
            let (recomputed, work) =
                (recompute_cost - last.recompute_cost, base_cost - last.base_cost);
            if work > 0.0 && self.learning.kind(last.kind).turned(recomputed / work) {
                self.recognizer.foresight = None;
            }
        }
        let budget = self.books.engine.budget();
        let is_told = self.is_told();
        let known = self.recognizer.known.as_ref().filter(|_| is_told);
        self.recognizer.going = known.map(|known| {
            let kind = (known.key, budget);
            Going { kind, recompute_cost, base_cost }
        });
    }

    fn ask_learner(&mut self, (step, budget): (u64, u64), ops: u64) {
        let Some(learner) = &mut self.learning.learner else { return };
        let found = learner.forecast(step, budget, ops);
        let kind = self.learning.kind((step, budget));
        let excess = |forecast: &Forecast| forecast.excess.unwrap_or(f64::INFINITY);
        if let Some(found) = found
            // Take the found forecast only if it is better than that of an earlier run, whose
            // search may have had more effort.
            && kind.forecast.as_deref().is_none_or(|now| excess(&found) < excess(now))
        {
            kind.set_forecast(Some(found));
        }
    }

    /// The foresight for the known step, including the step's forecast if it has one.
    pub fn foresight_of(&self) -> Option<Arc<Foresight>> {
        let known = self.recognizer.known.as_ref()?;
        let budget = self.books.engine.budget();
        let kind = self.learning.kinds.get(&(known.key, budget));
        let kind = kind.filter(|kind| !kind.drift.is_tried());
        let found = kind.and_then(|kind| kind.forecast.as_ref()?.foresight(&known.future).ok());
        let plain = || Foresight::plain(Arc::clone(&known.future), budget);
        Some(Arc::new(found.unwrap_or_else(plain)))
    }
}

fn sort(forecasts: &mut [Forecast]) {
    forecasts.sort_unstable_by_key(|forecast| (forecast.step, forecast.budget));
}

/// Number of simulated ops after which a search's best result is used at turn `turns`. One turn has
/// `ops` ops.
const fn ops_by(turns: u64, ops: u64) -> u64 {
    ops.saturating_mul(TURNS.0 + TURNS.1 * turns)
}
