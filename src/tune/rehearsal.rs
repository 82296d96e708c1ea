//! Rehearsals: runs of a program's commands on a simulated device.

use super::{Trainable, Training, TuneError, Tuner};
use crate::command::{ProgramError, RecordedProgram};
use crate::driver::{Allowance, Learner, Plan, Turn};
use crate::engine::{RecomputeLimit, Stats};
use crate::error::{Error, RegenerationError, RuntimeError};
use crate::evict::{Forecast, Learn, PolicyKind};
use crate::lab::{InMemory, MemoryKind, Replay};
use crate::runtime::{Builder, Runtime};
use crate::step::KnownSteps;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Mutex, lock, thread};
use std::panic::resume_unwind;
use std::sync::Arc;

/// Number of rehearsals that are running in this process.
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

/// Whether a rehearsal is running in this process. A log filter can use this function to drop
/// messages of rehearsals, which do not concern the real run.
///
/// ```
/// assert!(!remat::tune::is_rehearsing());
/// ```
#[must_use]
pub fn is_rehearsing() -> bool {
    UNDER_WAY.load(Ordering::Relaxed) > 0
}

/// A budget that no rehearsed run uses up.
const UNLIMITED: u64 = 1 << 60;

/// Number of steps of a rehearsal, or fewer if the run is shorter. The first step makes the
/// optimizer's state. From the second step on, all steps are alike.
const STEPS: usize = 4;

/// Number of steps of a rehearsal with forecasts. The fourth step is the first that runs by plan.
const STEPS_BY_FORECAST: usize = 6;

/// Limit on steps until memory settles. Memory has settled when each step leaves the same blocks
/// and holes as the previous step. With very small batches, memory never settles: each step places
/// the statistics of batch norm in other holes.
const STEPS_TO_SETTLE: usize = 128;

/// Number of equal consecutive steps after which all later steps are assumed equal.
const ALIKE: usize = 6;

/// Number of steps of the rehearsal that writes down a turn of each kind of step.
const STEPS_TO_LEARN: usize = 4;

/// Limit on the ops of a rehearsal, as a multiple of the ops of one step. A rehearsal that reaches
/// this limit is stopped, and judged by its completed steps.
const MOST_TURNS: u64 = 96;

/// Policies without knowledge of steps, tried if the policy `learned` does not pass.
const NAMED: [PolicyKind; 3] = [PolicyKind::Ancestors, PolicyKind::Dtr, PolicyKind::DtrEq];

/// A program that can be rehearsed, with the options of its run.
///
/// ```
/// use remat::prelude::*;
/// use remat::tune::Tuner;
///
/// # let start = |runtime: &Runtime| -> Result<_, Error> {
/// #     let (runtime, mut x) = (runtime.clone(), runtime.ones(&[1 << 16])?);
/// #     Ok(move || {
/// #         x = x.sin()?;
/// #         runtime.step()
/// #     })
/// # };
/// // `start` starts a program on a runtime: see `Trainable`.
/// let tuner = Tuner::new(Runtime::builder).steps(4);
/// let rehearsal = remat::tune::Rehearsal::new(&tuner, &start)?;
/// let unlimited = rehearsal.unlimited()?;
/// assert_eq!(unlimited.evictions, 0);
/// assert!(unlimited.state_bytes <= unlimited.peak_bytes);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Rehearsal<'r, 'a, P> {
    pub(super) tuner: &'r Tuner<'a>,
    program: &'r P,
    pub(super) policy: Option<PolicyKind>,
    pub(super) recompute_limit: Option<f64>,
    pub(super) seed: u64,
    /// Whether the run's steps run by plan.
    plan: Plan,
    /// Knowledge of the run's steps, if its policy looks ahead. With this knowledge, even the first
    /// step is predicted.
    pub(super) known: Option<KnownSteps>,
    /// Number of ops of a step without recomputation; 0 until a rehearsal has counted them.
    turn_ops: AtomicU64,
}

/// Source of the eviction choices in a rehearsal: a policy or forecasts.
#[derive(Clone, Copy, Debug)]
enum Way<'a> {
    /// The policy of the run, without learned forecasts.
    Usual,
    Named(PolicyKind),
    Forecasts(&'a [Forecast]),
}

/// A learner that only stores the turns that it receives, and does not search.
#[derive(Debug, Default)]
struct Notebook(Arc<Mutex<Vec<Turn>>>);

impl Learner for Notebook {
    fn begin(&mut self, turn: Turn) {
        lock(&self.0).push(turn);
    }
}

/// The outcome of a rehearsal that passed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rehearsed {
    /// Evictions in training and in the test.
    pub evictions: u64,
    /// Most bytes in use at once.
    pub peak_bytes: u64,
    /// Bytes held between steps: parameters, buffers and the optimizer's state.
    pub state_bytes: u64,
    /// Largest number of bytes that were unevictable at the same time. A run cannot meet a smaller
    /// threshold.
    pub unevictable_bytes: u64,
    /// Cost of recomputation divided by the cost of the work itself, extrapolated to the number of
    /// steps of the run.
    pub recompute_ratio: f64,
    /// Cost of recomputation divided by the cost of the work itself, in the last step.
    pub step_ratio: f64,
    /// Whether some step recomputed several times its own work.
    pub thrashes: bool,
    /// Whether all later steps are expected to use memory as the last steps did. True if the last
    /// steps moved the same bytes and left the same holes, or if no block was moved for many steps.
    /// Also true if the rehearsal ran all steps of the run.
    pub is_settled: bool,
    /// Policy that passes, if the policy of the run does not pass.
    pub policy: Option<PolicyKind>,
    /// Whether the rehearsal ended because its allowance was spent. For a rehearsal that was
    /// stopped, the ratios cover only the steps that ran.
    pub is_stopped: bool,
    /// Number of ops run in the rehearsal, including reruns and the ops of the test.
    pub simulated_ops: u64,
}

/// An `Err` means that the memory did not suffice, which is a valid outcome of a rehearsal.
pub type Verdict = Result<Rehearsed, Error>;

impl<'r, 'a, P: Trainable> Rehearsal<'r, 'a, P> {
    /// Prepares rehearsals. Recognizes the program's steps, if the policy looks ahead.
    ///
    /// # Errors
    /// Fails if the program fails, or a setting is invalid.
    pub fn new(tuner: &'r Tuner<'a>, program: &'r P) -> Result<Self, TuneError> {
        tuner.check()?;
        let made = (tuner.make)();
        let recompute_limit = match made.settings.recompute_limit {
            Some(RecomputeLimit::Multiple(limit)) => Some(limit),
            _ => None,
        };
        let mut rehearsal = Self {
            tuner,
            program,
            policy: made.policy.kind(),
            recompute_limit,
            seed: made.seed,
            plan: made.plan,
            known: None,
            turn_ops: AtomicU64::new(0),
        };
        let looks_ahead = rehearsal.policy.is_some_and(PolicyKind::looks_ahead);
        if looks_ahead && program.repeats() && tuner.steps > 0 {
            rehearsal.known = rehearsal.recognize()?;
        }
        Ok(rehearsal)
    }

    /// Recognizes the program's steps. The steps do not depend on the budget.
    fn recognize(&self) -> Result<Option<KnownSteps>, TuneError> {
        let builder = Runtime::builder()
            .budget(UNLIMITED)
            .policy(PolicyKind::Learned(Learn::Ahead))
            .known_steps(KnownSteps::marked());
        Ok(self.session(builder, |runtime, mut training| {
            for _ in 0..STEPS {
                training.step()?;
                runtime.stats()?;
            }
            runtime.known_steps()
        })??)
    }

    /// Options of the run, with the recognized steps and without plans.
    #[must_use]
    pub fn builder(&self, budget: u64, threshold: Option<u64>) -> Builder {
        let builder = self.tuner.builder(budget, threshold).plan(Plan::Off);
        match &self.known {
            Some(known) => builder.known_steps(known.clone()),
            None => builder,
        }
    }

    /// Rehearses without a limit on memory.
    ///
    /// # Errors
    /// Fails if the program fails.
    pub fn unlimited(&self) -> Result<Rehearsed, TuneError> {
        Ok(self.recorded()?.0)
    }

    /// Like [`Rehearsal::unlimited`], but also returns the commands of the rehearsal.
    pub(super) fn recorded(&self) -> Result<(Rehearsed, RecordedProgram), TuneError> {
        let recorder = InMemory::default();
        let builder = Runtime::builder().budget(UNLIMITED).policy(PolicyKind::None);
        let builder = builder.record(recorder.clone());
        let rehearsed = self.rehearse(builder, self.short(), false, &mut Self::no_limit())??;
        let invalid = |error: ProgramError| Error::from(RuntimeError::Settings(error.to_string()));
        Ok((rehearsed, recorder.take().map_err(invalid)?))
    }

    /// Smallest budget found, in bytes, in which a replay of `program` evicts nothing.
    pub(super) fn full_budget_of(&self, program: &RecordedProgram) -> Result<u64, TuneError> {
        let _muted = Muted::new();
        let settings = self.tuner.builder(UNLIMITED, None).settings;
        let memory = MemoryKind::Arena;
        let replay = Replay { memory, settings, ..Replay::new(PolicyKind::None, UNLIMITED) };
        Ok(replay.unbudgeted(program)?.full_budget)
    }

    /// Whether a run in this budget evicts nothing, in all steps and with any policy.
    ///
    /// ```
    /// use remat::prelude::*;
    /// use remat::tune::Tuner;
    ///
    /// # let start = |runtime: &Runtime| -> Result<_, Error> {
    /// #     let (runtime, mut x) = (runtime.clone(), runtime.ones(&[1 << 16])?);
    /// #     Ok(move || {
    /// #         x = x.sin()?;
    /// #         runtime.step()
    /// #     })
    /// # };
    /// // `start` starts a program on a runtime: see `Trainable`.
    /// let tuner = Tuner::new(Runtime::builder).steps(4);
    /// let rehearsal = remat::tune::Rehearsal::new(&tuner, &start)?;
    /// assert!(rehearsal.fits(4 << 20)? && !rehearsal.fits(1 << 10)?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the program fails.
    pub fn fits(&self, budget: u64) -> Result<bool, TuneError> {
        // With these options, the engine evicts whenever an eviction can replace a move of blocks.
        // The arena has the options of the run, because the rules of the arena decide how many
        // bytes are wasted.
        let run = self.tuner.builder(budget, None).settings;
        let builder = Runtime::builder()
            .budget(budget)
            .policy(PolicyKind::Lru)
            .min_evict_bytes(0u64)
            .split_rule(run.split_rule)
            .allow_growth(run.allow_growth);
        Ok(self
            .rehearse(builder, self.short(), true, &mut Self::no_limit())?
            .is_ok_and(|rehearsed| rehearsed.evictions == 0 && rehearsed.is_settled))
    }

    /// Rehearses under a budget, with the options of the run. If a policy that looks ahead does not
    /// pass, the best policy without knowledge replaces it.
    ///
    /// ```
    /// use remat::prelude::*;
    /// use remat::tune::Tuner;
    ///
    /// # let start = |runtime: &Runtime| -> Result<_, Error> {
    /// #     let (runtime, mut x) = (runtime.clone(), runtime.ones(&[1 << 16])?);
    /// #     Ok(move || {
    /// #         x = x.sin()?;
    /// #         runtime.step()
    /// #     })
    /// # };
    /// // `start` starts a program on a runtime: see `Trainable`.
    /// let tuner = Tuner::new(Runtime::builder).steps(4);
    /// let rehearsal = remat::tune::Rehearsal::new(&tuner, &start)?;
    /// assert!(rehearsal.under(4 << 20, None, None)?.is_ok());
    /// assert!(rehearsal.under(1 << 10, None, None)?.is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the program fails. An inner error means that the memory does not suffice.
    pub fn under(
        &self,
        budget: u64,
        threshold: Option<u64>,
        recompute_limit: Option<f64>,
    ) -> Result<Verdict, TuneError> {
        let by = |way| {
            let turn = self.turn_ops.load(Ordering::Relaxed);
            let mut most = match turn {
                0 => Self::no_limit(),
                turn => Allowance::of_ops(turn.saturating_mul(MOST_TURNS)),
            };
            self.by_way(way, budget, threshold, recompute_limit, &mut most)
        };
        let verdict = by(Way::Usual)?;
        if verdict.is_ok() || !matches!(self.policy, Some(PolicyKind::Learned(_))) {
            return Ok(verdict);
        }
        let mut best: Option<Rehearsed> = None;
        for (policy, verdict) in NAMED.into_iter().zip(at_once(NAMED, |it| by(Way::Named(it)))) {
            let passed = verdict?.ok();
            let least = best.map_or(f64::INFINITY, |best| best.recompute_ratio);
            if let Some(passed) = passed.filter(|passed| passed.recompute_ratio < least) {
                best = Some(Rehearsed { policy: Some(policy), ..passed });
            }
        }
        Ok(best.map_or(verdict, Ok))
    }

    /// Rehearses under a budget with the given forecasts, within the allowance.
    pub(super) fn by(
        &self,
        budget: u64,
        threshold: Option<u64>,
        forecasts: &[Forecast],
        allowance: &mut Allowance,
    ) -> Result<Verdict, TuneError> {
        let limit = self.recompute_limit;
        self.by_way(Way::Forecasts(forecasts), budget, threshold, limit, allowance)
    }

    /// Number of ops of a rehearsal with forecasts, without recomputation. The number is 0 until a
    /// rehearsal has counted the ops of a step.
    pub(super) fn least_ops(&self) -> u64 {
        let steps = STEPS_BY_FORECAST.min(self.tuner.steps) as u64;
        self.turn_ops.load(Ordering::Relaxed).saturating_mul(steps)
    }

    fn by_way(
        &self,
        way: Way<'_>,
        budget: u64,
        threshold: Option<u64>,
        recompute_limit: Option<f64>,
        allowance: &mut Allowance,
    ) -> Result<Verdict, TuneError> {
        let mut builder = self.builder(budget, threshold);
        if self.policy.is_some_and(PolicyKind::searches) {
            // Rehearsals do not search for forecasts. [`Rehearsal::learn`] searches.
            builder = builder.policy(PolicyKind::Learned(Learn::Ahead));
        }
        let (builder, steps) = match way {
            Way::Usual => (builder, STEPS),
            Way::Named(policy) => (builder.policy(policy), STEPS),
            Way::Forecasts(forecasts) => {
                let builder = builder.forecasts(forecasts.iter().cloned()).plan(self.plan);
                (builder, STEPS_BY_FORECAST)
            }
        };
        let builder = match recompute_limit {
            Some(limit) => builder.recompute_limit(limit),
            None => builder,
        };
        let verdict = self.rehearse(builder, steps.min(self.tuner.steps), false, allowance)?;
        // Check the ratio of the whole run, because the first steps recompute less than later
        // steps.
        Ok(verdict.and_then(|rehearsed| match recompute_limit {
            Some(limit) if rehearsed.recompute_ratio > limit => {
                let ratio = rehearsed.recompute_ratio;
                Err(RegenerationError::RecomputeLimit { ratio, limit }.into())
            }
            _ => Ok(rehearsed),
        }))
    }

    const fn no_limit() -> Allowance {
        Allowance::of_ops(u64::MAX)
    }

    /// Returns a turn of each kind of step. The turns do not depend on the budget. The first turn
    /// makes the optimizer's state, and the last turn is of the usual kind. The list is empty if no
    /// two steps are alike.
    pub(super) fn turns(&self, threshold: Option<u64>) -> Result<Vec<Turn>, TuneError> {
        if !self.program.repeats() {
            return Ok(Vec::new());
        }
        let notebook = Notebook::default();
        let turns = Arc::clone(&notebook.0);
        let builder = self.builder(UNLIMITED, threshold).learn_by(notebook);
        self.session(builder, |runtime, mut training| {
            // The turn of a step ends when the next step begins.
            for _ in 0..STEPS_TO_LEARN.min(self.tuner.steps.saturating_add(1)) {
                training.step()?;
                runtime.stats()?;
            }
            Ok(())
        })??;
        Ok(std::mem::take(&mut *lock(&turns)))
    }

    /// Number of steps of a short rehearsal.
    fn short(&self) -> usize {
        STEPS.min(self.tuner.steps)
    }

    /// Rehearses, and spends the simulated ops from `allowance`. The rehearsal ends early when the
    /// allowance is used up.
    fn rehearse(
        &self,
        builder: Builder,
        steps: usize,
        settle: bool,
        allowance: &mut Allowance,
    ) -> Result<Verdict, TuneError> {
        let turn = self.turn_ops.load(Ordering::Relaxed);
        let first_runs = turn.saturating_mul(steps as u64);
        let builder = builder.interrupt_when(allowance.interrupt(first_runs));
        let mut ops = 0;
        let verdict = self.session(builder, |runtime, training| {
            let verdict = self.all(runtime, training, steps, settle);
            ops = runtime.stats().map_or(first_runs, |stats| stats.ops + stats.recomputed_ops);
            verdict
        });
        allowance.spend(ops);
        verdict
    }

    /// Runs `work` on the simulated device. The inner result is an `Err` if the memory or the
    /// allowance did not suffice.
    fn session<T>(
        &self,
        mut builder: Builder,
        work: impl FnOnce(&Runtime, P::Training) -> Result<T, Error>,
    ) -> Result<Result<T, Error>, TuneError> {
        let sim = Arc::clone(&self.tuner.stand_in.sim);
        // A simulated device has no bits to verify. Many rehearsed budgets are too small, so a
        // search for a passing budget at each error would waste time.
        builder.settings.verify_recomputed = None;
        builder.names_budgets = false;
        let done = {
            let _muted = Muted::new();
            let runtime = builder.device(move |bytes| Ok(sim(bytes)));
            runtime.and_then(|runtime| work(&runtime, self.program.start(&runtime)?))
        };
        self.tuner.interrupted()?;
        match done {
            Err(error) if !error.is_of_memory() && !is_stopped(&error) => Err(error.into()),
            verdict => Ok(verdict),
        }
    }

    /// Runs training steps and tests.
    fn all(
        &self,
        runtime: &Runtime,
        mut training: P::Training,
        steps: usize,
        settle: bool,
    ) -> Verdict {
        let most = if settle { STEPS_TO_SETTLE.min(self.tuner.steps) } else { steps };
        let mut stats: Vec<Stats> = vec![Stats::default()];
        let mut stopped = false;
        // Run training steps, and keep the counters after each step. With `settle`, continue until
        // memory settles or a tensor is evicted.
        while stats.len() <= most && !(self.tuner.interrupt)() {
            match training.step().and_then(|()| runtime.stats()) {
                Ok(after) => stats.push(after),
                // The allowance is spent. The completed steps show how much the later steps would
                // recompute.
                Err(error) if is_stopped(&error) && stats.len() > 1 => {
                    stopped = true;
                    break;
                }
                Err(error) => return Err(error),
            }
            if stats.len() == 2 && self.program.tests_between() {
                training.test()?;
            }
            let evicts = stats.last().is_some_and(|stats| stats.evictions > 0);
            if settle && (evicts || stats.len() > steps && is_settled(&stats)) {
                break;
            }
        }
        if !stopped {
            runtime.sync()?;
            training.test()?;
        }
        let end = runtime.stats()?;
        let last = stats[stats.len() - 1];
        let before = stats[stats.len().saturating_sub(2)];
        // Assume that the rest of the run recomputes as the last step did.
        let more = self.tuner.steps.saturating_sub(stats.len() - 1) as f64;
        let recomputed = last.recompute_cost - before.recompute_cost;
        let base = last.base_cost - before.base_cost;
        let (recompute_ratio, step_ratio) = match stopped {
            false => (
                (last.recompute_cost + more * recomputed) / (last.base_cost + more * base),
                recomputed / base,
            ),
            true => {
                let recomputed = end.recompute_cost - last.recompute_cost;
                (end.recompute_cost / end.base_cost, recomputed / base)
            }
        };
        // All completed rehearsals count the same number of ops, so the last one to store its count
        // changes nothing.
        if !stopped {
            self.turn_ops.store(last.ops - before.ops, Ordering::Relaxed);
        }
        Ok(Rehearsed {
            evictions: end.evictions,
            peak_bytes: end.peak_bytes,
            state_bytes: last.used_bytes,
            unevictable_bytes: end.unevictable_bytes,
            recompute_ratio,
            step_ratio,
            thrashes: stopped || last.thrashed_steps > 0,
            is_settled: is_settled(&stats) || is_still(&stats) || stats.len() > self.tuner.steps,
            policy: None,
            is_stopped: stopped,
            simulated_ops: end.ops + end.recomputed_ops,
        })
    }
}

/// Guard: while the guard exists, a rehearsal counts as running.
struct Muted;

impl Muted {
    fn new() -> Self {
        UNDER_WAY.fetch_add(1, Ordering::Relaxed);
        Self
    }
}

impl Drop for Muted {
    fn drop(&mut self) {
        UNDER_WAY.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Calls `work` for each of `all` at the same time, each on a thread of its own. Returns the results
/// in the order of `all`.
pub(super) fn at_once<T: Send + Copy, R: Send>(
    all: impl IntoIterator<Item = T>,
    work: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    let work = &work;
    thread::scope(|scope| {
        let threads = all.into_iter().map(|one| {
            // If no thread can be started, this thread does the work.
            let started = thread::Builder::new().spawn_scoped(scope, move || work(one));
            started.map_err(|_| Box::new(work(one)))
        });
        let threads: Vec<_> = threads.collect();
        let wait = |thread: thread::ScopedJoinHandle<'_, R>| {
            thread.join().unwrap_or_else(|panic| resume_unwind(panic))
        };
        threads.into_iter().map(|done| done.map_or_else(|done| *done, wait)).collect()
    })
}

/// Whether a rehearsal ended because its allowance was spent.
fn is_stopped(error: &Error) -> bool {
    let stopped = |error: &RegenerationError| *error == RegenerationError::Cancelled;
    matches!(error, Error::Regeneration(error) if stopped(error))
}

/// Whether the last `ALIKE` steps moved the same bytes and left the same holes. Fewer steps may
/// agree by chance.
fn is_settled(stats: &[Stats]) -> bool {
    let work = |from: &Stats, to: &Stats| {
        (to.compactions - from.compactions, to.moved_bytes - from.moved_bytes, to.fragmentation)
    };
    let last = stats.len().saturating_sub(1 + ALIKE);
    let mut works = stats[last..].windows(2).map(|pair| work(&pair[0], &pair[1]));
    let first = works.next();
    stats.len() > ALIKE && works.all(|work| Some(work) == first)
}

/// Whether no block was moved after the first steps.
fn is_still(stats: &[Stats]) -> bool {
    let last = stats.last().map(|stats| stats.compactions);
    stats.len() > STEPS_TO_SETTLE && stats.get(STEPS).map(|stats| stats.compactions) == last
}
