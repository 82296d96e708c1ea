//! Learning how the steps of a loop are best run, while it runs.
//!
//! Steps are learned if they are recognized ([`Driver::know`](super::Driver::know)) and `turn_begins` finds a learner that wants them.
//! When a loop has turned once as it was expected to, its next turn is [written down](Turn) and given to a [`Learner`],
//! which runs it again and again on a simulated engine. From the turn after that on, what it has found is used. How much
//! it may have tried by then is counted in [simulated ops](super::Allowance), and when its finds are used, in turns: so a program
//! has the same evictions whenever it runs, however fast anything is.

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

/// Simulated turns before the first turn is over, and more for each turn: as many ops as these have without recomputing. To simulate a
/// turn takes about as long as launching a tenth of its kernels.
const TURNS: (u64, u64) = (16, 2);

/// Steps of so many commands together are given to a learner, which holds each of them several times over.
const MOST_COMMANDS: usize = 1 << 17;

/// So many times a turn is begun to be written down that does not come to its end.
const MOST_TRIES: u32 = 16;

/// Finds out how turns are best run: on a thread of its own, say. One that only takes turns finds nothing.
pub trait Learner: Send + fmt::Debug {
    /// Whether it is to be given turns of a step in a budget of so many bytes. Otherwise none is written down.
    fn wants(&self, _step: &StepFuture, _budget: u64) -> bool {
        true
    }

    /// Is given a turn.
    fn begin(&mut self, turn: Turn);

    /// Finds of `ops` simulated ops about a step ([`StepFuture::key`]) in a budget will be asked for: the ops are to be
    /// done by then, and no more, for they slow the steps beside them. See [`Allowance`](super::Allowance).
    fn prepare(&mut self, _step: u64, _budget: u64, _ops: u64) {}

    /// The best that was found by the runs of a step in a budget that take the first `ops` simulated ops, or by all if there
    /// is no use in so many; waits for them. `None`: no such run came to its end.
    fn forecast(&mut self, _step: u64, _budget: u64, _ops: u64) -> Option<Forecast> {
        None
    }

    /// Whether it may find what is better than a forecast of an earlier run. Otherwise a step that has one is not given to it.
    fn improves(&self) -> bool {
        true
    }

    /// Bytes of host memory that it takes.
    fn bytes(&self) -> u64 {
        0
    }
}

/// What is known of how steps are best run.
#[derive(Debug, Default)]
pub(super) struct Learning {
    learner: Option<Box<dyn Learner>>,
    /// Commands of what it was given.
    given: usize,
    /// Steps in a budget.
    kinds: FxHashMap<(u64, u64), StepKind>,
}

#[derive(Debug, Default)]
struct StepKind {
    state: State,
    /// Whether such a step came.
    came: bool,
    forecast: Option<Arc<Forecast>>,
    /// Of the forecast.
    drift: Drift,
}

#[derive(Debug)]
enum State {
    /// To be written down, so many times begun.
    New(u32),
    /// Given to the learner so many turns ago, and so many ops of a turn.
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

    /// A turn recomputed this share of its work. Whether the next is run otherwise.
    fn turned(&mut self, real: f64) -> bool {
        let simulated = self.forecast.as_ref().and_then(|forecast| forecast.excess);
        let next = simulated.map(|simulated| self.drift.turned(real, simulated));
        if next == Some(Next::Dropped) {
            self.drop_forecast();
        }
        next.is_some_and(|next| next != Next::Same)
    }

    /// Costs are others than those that were simulated, or memory has other holes.
    fn drop_forecast(&mut self) {
        self.set_forecast(None);
        self.state = State::New(0);
    }
}

/// A turn that is going on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Going {
    /// The step, in a budget.
    kind: (u64, u64),
    /// Costs of the run when it began: of what is recomputed, and of the rest.
    recompute_cost: f64,
    base_cost: f64,
}

impl Learning {
    /// From now on turns of loops are given to this learner.
    pub fn learn_by(&mut self, learner: Option<Box<dyn Learner>>) {
        self.learner = learner;
        // What was given to another one is of no use to this one.
        self.given = 0;
        for kind in self.kinds.values_mut() {
            if let State::Given(..) = kind.state {
                kind.state = State::New(0);
            }
        }
    }

    /// How a step is to be run in the budget that the forecast says, whenever it is recognized: found in an earlier run.
    /// One of another step is of no use and does no harm.
    pub fn remember(&mut self, forecast: Forecast) {
        let key = (forecast.step, forecast.budget);
        let kind = self.kinds.entry(key).insert_entry(StepKind::default()).into_mut();
        kind.set_forecast(Some(forecast));
    }

    /// Finds so far about each kind of step that came, sorted by step and budget. With `turns`, as many simulated ops of
    /// each are waited for as so many turns have that recompute nothing.
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

    /// Bytes of host memory that the learner takes.
    pub fn bytes(&self) -> u64 {
        self.learner.as_ref().map_or(0, |learner| learner.bytes())
    }

    /// What is known by now, whether or not such a step came, in the same order.
    pub fn remembered(&self) -> Vec<Forecast> {
        let known = self.kinds.values().filter_map(|kind| kind.forecast.as_deref());
        let mut all: Vec<Forecast> = known.cloned().collect();
        sort(&mut all);
        all
    }

    /// Whether steps may be run better from turn to turn.
    pub fn improves(&self) -> bool {
        self.learner.as_ref().is_some_and(|learner| learner.improves())
    }

    /// Whether turns of a step in a budget are run by a forecast, or are to be once that was tried without.
    pub fn has_forecast(&self, key: (u64, u64)) -> bool {
        self.kinds.get(&key).is_some_and(|kind| kind.forecast.is_some())
    }

    /// Memory did not suffice by the forecast that a step in a budget has.
    pub fn drop_forecast(&mut self, key: (u64, u64)) {
        self.kind(key).drop_forecast();
    }

    fn kind(&mut self, key: (u64, u64)) -> &mut StepKind {
        self.kinds.entry(key).or_default()
    }
}

impl<D: Device> Recognizing<'_, D> {
    /// A turn of a known loop begins with the command at hand, and the one before is over.
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

    /// Notes what the turn before recomputed, and that another begins.
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
            // One from an earlier run may have taken more effort.
            && kind.forecast.as_deref().is_none_or(|now| excess(&found) < excess(now))
        {
            kind.set_forecast(Some(found));
        }
    }

    /// How a step is run, as far as is known.
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

/// Simulated ops whose finds are used from a turn on, of a step whose turns have so many.
const fn ops_by(turns: u64, ops: u64) -> u64 {
    ops.saturating_mul(TURNS.0 + TURNS.1 * turns)
}
