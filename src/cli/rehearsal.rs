//! Rehearsals: the commands of a run, on a simulated device.

use super::args::MemoryArgs;
use super::failure::{Failure, is_of_memory};
use super::interrupt;
use super::machine::SimOf;
use super::session::{Session, Setup, Step};
use super::sync::atomic::{AtomicU64, Ordering};
use super::sync::{Mutex, lock};
use super::task::Batch;
use super::terminal;
use remat::error::RegenerationError;
use remat::evict::{Forecast, Learn};
use remat::program::{Allowance, KnownSteps, Learner, Plan, Turn};
use remat::{Builder, Error, PolicyKind, Runtime, Stats};
use std::sync::Arc;

/// Steps of a rehearsal, if the run has as many. After the first, the optimizer's state is there as well;
/// from the second on, each is like the one before.
const STEPS: usize = 4;

/// Steps of a rehearsal by forecasts: the fourth is the first that runs by plan.
const STEPS_BY_FORECAST: usize = 6;

/// Most steps until memory settles, that is, until a step leaves it as the one before did. With very small
/// batches it never does: the statistics of batch norm wander through its holes.
const STEPS_TO_SETTLE: usize = 128;

/// So many steps that are alike are taken for all that come.
const ALIKE: usize = 6;

/// Full test batches of a rehearsal: the second starts with what the first left.
const TEST_BATCHES: usize = 2;

/// Steps of a rehearsal in which a turn of each kind is written down.
const STEPS_TO_LEARN: usize = 4;

/// Turns of a step whose ops a rehearsal may take. One that is stopped by that is judged by the steps that it did.
const MOST_TURNS: u64 = 96;

/// Policies that a run by `learned` goes by where only they pass. They know nothing of the steps.
const NAMED: [PolicyKind; 3] = [PolicyKind::Ancestors, PolicyKind::Dtr, PolicyKind::DtrEq];

/// A run without its numbers.
pub struct Rehearsal<'a> {
    sim: SimOf,
    pub setup: &'a Setup<'a>,
    pub memory: &'a MemoryArgs,
    pub seed: u64,
    /// Of the run.
    pub steps: usize,
    /// Whether steps of the run go by plan.
    pub plan: Plan,
    batch: Batch,
    /// Of the run, if its policy looks ahead: it foresees even the first.
    known: Option<KnownSteps>,
    /// The test's batches, the last one short.
    tests: Vec<Batch>,
    /// Ops of a step in which nothing is recomputed, once that is known.
    turn_ops: AtomicU64,
}

/// Policy or forecasts that steps go by in a rehearsal.
#[derive(Clone, Copy, Debug)]
enum Way<'a> {
    /// The policy of the run, without what may be found out for it.
    Usual,
    Named(PolicyKind),
    Forecasts(&'a [Forecast]),
}

/// Keeps the turns that it is given.
#[derive(Debug, Default)]
struct Notebook(Arc<Mutex<Vec<Turn>>>);

impl Learner for Notebook {
    fn begin(&mut self, turn: Turn) {
        lock(&self.0).push(turn);
    }
}

/// The outcome of a rehearsal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rehearsed {
    /// In training and in the test.
    pub evictions: u64,
    pub peak_bytes: u64,
    /// What is held between steps: parameters, buffers and the optimizer's state.
    pub state_bytes: u64,
    /// With an eviction threshold: it cannot be met below this.
    pub unevictable_bytes: u64,
    /// Cost of recomputing over the cost of the work itself, in as many steps as the run has.
    pub recompute_ratio: f64,
    /// The same of the last step.
    pub step_ratio: f64,
    /// Whether a step recomputed several times its own work.
    pub thrashes: bool,
    /// Whether the last step did with memory what the one before did, or nothing was moved for long, so that
    /// all later ones will do the same; or there are no later ones.
    pub is_settled: bool,
    /// The policy that it went by in place of that of the run, which does not pass.
    pub policy: Option<PolicyKind>,
    /// Whether it ended because it had simulated as much as it may; then it says what was recomputed up to there.
    pub is_stopped: bool,
    /// Ops of the rehearsal, those of the test included.
    pub simulated_ops: u64,
}

/// An `Err` means that the memory did not suffice; that is not a failure of the program.
pub type Verdict = Result<Rehearsed, Error>;

impl<'a> Rehearsal<'a> {
    /// Of `steps` steps, and of a test on so many examples.
    pub fn new(
        sim: SimOf,
        setup: &'a Setup<'a>,
        memory: &'a MemoryArgs,
        seed: u64,
        steps: usize,
        tested: usize,
    ) -> Result<Self, Failure> {
        let batch = setup.task.blank(setup.batch)?;
        let full = (tested / setup.batch).min(TEST_BATCHES);
        let rest = tested % setup.batch;
        let mut tests = vec![batch.clone(); full];
        if rest > 0 {
            tests.push(setup.task.blank(rest)?);
        }
        let plan = memory.plan.into();
        let mut rehearsal = Self {
            sim,
            setup,
            memory,
            seed,
            steps,
            plan,
            batch,
            known: None,
            tests,
            turn_ops: AtomicU64::new(0),
        };
        if memory.policy().looks_ahead() && rehearsal.repeats() {
            rehearsal.known = rehearsal.recognize()?;
        }
        Ok(rehearsal)
    }

    /// What steps there are: the same in any budget.
    fn recognize(&self) -> Result<Option<KnownSteps>, Failure> {
        let builder = Runtime::builder()
            .budget(1u64 << 60)
            .policy(PolicyKind::Learned(Learn::Ahead))
            .known_steps(KnownSteps::marked());
        Ok(self.session(builder, |mut session| {
            for _ in 0..STEPS {
                session.step(|_| self.batch.clone(), 0.0)?.wait()?;
            }
            session.runtime().known_steps()
        })??)
    }

    /// A runtime with the options of the run, which foresees its steps.
    pub fn builder(&self, budget: u64, threshold: Option<u64>) -> Builder {
        let builder = self.memory.builder(budget, threshold).seed(self.seed);
        match &self.known {
            Some(known) => builder.known_steps(known.clone()),
            None => builder,
        }
    }

    /// Without a limit.
    pub fn unlimited(&self) -> Result<Rehearsed, Failure> {
        let builder = Runtime::builder().budget(1u64 << 60).policy(PolicyKind::None);
        Ok(self.rehearse(builder, self.short(), false, &mut Self::no_limit())??)
    }

    /// Whether nothing is evicted under this budget in all steps of the run, whatever the policy.
    pub fn fits(&self, budget: u64) -> Result<bool, Failure> {
        // Where something could be evicted in place of moving blocks, this evicts.
        let builder =
            Runtime::builder().budget(budget).policy(PolicyKind::Lru).min_evict_bytes(0u64);
        Ok(self
            .rehearse(builder, self.short(), true, &mut Self::no_limit())?
            .is_ok_and(|rehearsed| rehearsed.evictions == 0 && rehearsed.is_settled))
    }

    /// Under a budget, with the options of the run. A policy that looks ahead, and does not pass, has the best of those that
    /// know nothing in its place.
    pub fn under(
        &self,
        budget: u64,
        threshold: Option<u64>,
        recompute_limit: Option<f64>,
    ) -> Result<Verdict, Failure> {
        let by = |way| {
            let turn = self.turn_ops.load(Ordering::Relaxed);
            let mut most = match turn {
                0 => Self::no_limit(),
                turn => Allowance::of_ops(turn.saturating_mul(MOST_TURNS)),
            };
            self.by_way(way, budget, threshold, recompute_limit, &mut most)
        };
        let verdict = by(Way::Usual)?;
        if verdict.is_ok() || !matches!(self.memory.policy(), PolicyKind::Learned(_)) {
            return Ok(verdict);
        }
        let mut best: Option<Rehearsed> = None;
        for policy in NAMED {
            let passed = by(Way::Named(policy))?.ok();
            let least = best.map_or(f64::INFINITY, |best| best.recompute_ratio);
            if let Some(passed) = passed.filter(|passed| passed.recompute_ratio < least) {
                best = Some(Rehearsed { policy: Some(policy), ..passed });
            }
        }
        Ok(best.map_or(verdict, Ok))
    }

    /// Under a budget, with each step run as a forecast says, in so many ops.
    pub fn by(
        &self,
        budget: u64,
        threshold: Option<u64>,
        forecasts: &[Forecast],
        allowance: &mut Allowance,
    ) -> Result<Verdict, Failure> {
        let limit = self.memory.recompute_limit;
        self.by_way(Way::Forecasts(forecasts), budget, threshold, limit, allowance)
    }

    /// Ops of a rehearsal by forecasts that recomputes nothing, as far as is known.
    pub fn least_ops(&self) -> u64 {
        let steps = STEPS_BY_FORECAST.min(self.steps) as u64;
        self.turn_ops.load(Ordering::Relaxed).saturating_mul(steps)
    }

    fn by_way(
        &self,
        way: Way<'_>,
        budget: u64,
        threshold: Option<u64>,
        recompute_limit: Option<f64>,
        allowance: &mut Allowance,
    ) -> Result<Verdict, Failure> {
        let mut builder = self.builder(budget, threshold);
        if self.memory.policy().searches() {
            // They are found out elsewhere, and not for each budget that is tried.
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
        let verdict = self.rehearse(builder, steps.min(self.steps), false, allowance)?;
        // The limit holds for the whole run, and the first step recomputes the least.
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

    /// A turn of each kind of step: the same in any budget. The last is a step like most; the first makes the state of the
    /// optimizer. None if no two steps are alike.
    pub fn turns(&self, threshold: Option<u64>) -> Result<Vec<Turn>, Failure> {
        if !self.repeats() {
            return Ok(Vec::new());
        }
        let notebook = Notebook::default();
        let turns = Arc::clone(&notebook.0);
        let builder = self.builder(1u64 << 60, threshold).learn_by(notebook);
        self.session(builder, |mut session| {
            // The turn of a step is over when the next begins.
            for _ in 0..STEPS_TO_LEARN.min(self.steps + 1) {
                session.step(|_| self.batch.clone(), 0.0)?.wait()?;
            }
            Ok(())
        })??;
        Ok(std::mem::take(&mut *lock(&turns)))
    }

    /// Whether the steps of the run are like those of the rehearsal: with a tree of its own for each, none is.
    fn repeats(&self) -> bool {
        self.batch.tree.is_none()
    }

    /// Steps of a rehearsal.
    fn short(&self) -> usize {
        STEPS.min(self.steps)
    }

    /// Takes what it simulates from `allowance`, and ends where that is spent.
    fn rehearse(
        &self,
        builder: Builder,
        steps: usize,
        settle: bool,
        allowance: &mut Allowance,
    ) -> Result<Verdict, Failure> {
        let turn = self.turn_ops.load(Ordering::Relaxed);
        let first_runs = turn.saturating_mul(steps as u64);
        let builder = builder.interrupt_when(allowance.interrupt(first_runs));
        let mut ops = 0;
        let verdict = self.session(builder, |session| {
            let runtime = session.runtime().clone();
            let verdict = self.all(session, steps, settle);
            ops = runtime.stats().map_or(first_runs, |stats| stats.ops + stats.recomputed_ops);
            verdict
        });
        allowance.spend(ops);
        verdict
    }

    /// On the device's stand-in. An inner `Err` means that the memory did not suffice, or what it may simulate did not.
    fn session<T>(
        &self,
        builder: Builder,
        work: impl FnOnce(Session) -> Result<T, Error>,
    ) -> Result<Result<T, Error>, Failure> {
        let sim = Arc::clone(&self.sim);
        let done = terminal::muted(|| {
            work(Session::new(builder.device(move |bytes| Ok(sim(bytes)))?, self.setup)?)
        });
        interrupt::before_the_first_step()?;
        match done {
            Err(error) if !is_of_memory(&error) && !is_stopped(&error) => Err(error.into()),
            verdict => Ok(verdict),
        }
    }

    /// Trains and tests.
    fn all(&self, mut session: Session, steps: usize, settle: bool) -> Verdict {
        let most = if settle { STEPS_TO_SETTLE.min(self.steps) } else { steps };
        let mut stats: Vec<Stats> = vec![Stats::default()];
        let mut stopped = false;
        while stats.len() <= most && !interrupt::is_requested() {
            match session.step(|_| self.batch.clone(), 0.0).and_then(Step::wait) {
                Ok((_, after)) => stats.push(after),
                // It is known by then how such a run goes on.
                Err(error) if is_stopped(&error) && stats.len() > 1 => {
                    stopped = true;
                    break;
                }
                Err(error) => return Err(error),
            }
            if stats.len() == 2 && self.setup.tests_between {
                self.test(&mut session)?;
            }
            let evicts = stats.last().is_some_and(|stats| stats.evictions > 0);
            if settle && (evicts || stats.len() > steps && is_settled(&stats)) {
                break;
            }
        }
        if !stopped {
            session.runtime().sync()?;
            self.test(&mut session)?;
        }
        let end = session.runtime().stats()?;
        let last = stats[stats.len() - 1];
        let before = stats[stats.len().saturating_sub(2)];
        let more = self.steps.saturating_sub(stats.len() - 1) as f64;
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
        self.turn_ops.store(last.ops - before.ops, Ordering::Relaxed);
        Ok(Rehearsed {
            evictions: end.evictions,
            peak_bytes: end.peak_bytes,
            state_bytes: last.used_bytes,
            unevictable_bytes: end.unevictable_bytes,
            recompute_ratio,
            step_ratio,
            thrashes: stopped || last.thrashed_steps > 0,
            is_settled: is_settled(&stats) || is_still(&stats) || stats.len() > self.steps,
            policy: None,
            is_stopped: stopped,
            simulated_ops: end.ops + end.recomputed_ops,
        })
    }

    fn test(&self, session: &mut Session) -> Result<(), Error> {
        for batch in self.tests.iter().take_while(|_| !interrupt::is_requested()) {
            session.score(batch.clone())?;
        }
        Ok(())
    }
}

/// Whether a rehearsal ended because it had simulated as much as it may.
fn is_stopped(error: &Error) -> bool {
    let stopped = |error: &RegenerationError| *error == RegenerationError::Cancelled;
    matches!(error, Error::Regeneration(error) if stopped(error))
}

/// Whether the last steps moved the same and left the same holes: fewer than these do so by chance.
fn is_settled(stats: &[Stats]) -> bool {
    let work = |from: &Stats, to: &Stats| {
        (to.compactions - from.compactions, to.moved_bytes - from.moved_bytes, to.fragmentation)
    };
    let last = stats.len().saturating_sub(1 + ALIKE);
    let mut works = stats[last..].windows(2).map(|pair| work(&pair[0], &pair[1]));
    let first = works.next();
    stats.len() > ALIKE && works.all(|work| Some(work) == first)
}

/// Whether nothing was moved after the first steps.
fn is_still(stats: &[Stats]) -> bool {
    let last = stats.last().map(|stats| stats.compactions);
    stats.len() > STEPS_TO_SETTLE && stats.get(STEPS).map(|stats| stats.compactions) == last
}

#[cfg(test)]
mod tests {
    use super::super::args::TrainArgs;
    use super::super::command::{Cli, Command};
    use super::super::model::ImageModel::{self, Mlp, ResNet20};
    use super::super::task::images::ImageTask;
    use super::super::task::{Part, Task};
    use super::*;
    use crate::cli::sizes::SizeArgs;
    use clap::Parser as _;
    use remat::DType;
    use remat::data::{Augment, Dataset};
    use remat::device::sim::Sim;

    fn digits(model: ImageModel) -> ImageTask {
        ImageTask {
            model,
            sizes: SizeArgs::default(),
            data: Dataset::digits(),
            augment: Augment::default(),
            storage: DType::F32,
            seed: 0,
        }
    }

    fn setup<'a>(task: &'a dyn Task, batch: usize, args: &'a TrainArgs) -> Setup<'a> {
        Setup { task, batch, tests_between: false, optimizer: &args.optimizer }
    }

    fn args(args: &str) -> TrainArgs {
        let args = ["remat", "train"].into_iter().chain(args.split_whitespace());
        match Cli::try_parse_from(args).unwrap().command {
            Some(Command::Train(args)) => *args,
            other => panic!("{other:?}"),
        }
    }

    /// The run itself: as many steps, and a test of as many images. Evictions and the peak.
    fn run(
        setup: &Setup<'_>,
        builder: Builder,
        steps: usize,
        tested: usize,
    ) -> Result<[u64; 2], Error> {
        let mut session = Session::new(builder.threads(1).cpu()?, setup)?;
        let indices = |from: usize, n| (from..from + n).collect::<Vec<_>>();
        for step in 0..steps {
            let batch = |_| setup.task.batch(&Part::whole(&indices(step, setup.batch), step));
            session.step(batch, 0.1)?.wait()?;
        }
        for from in (0..tested).step_by(setup.batch) {
            let n = setup.batch.min(tested - from);
            session.score(setup.task.test_batch(&indices(from, n)))?;
        }
        session.digest()?;
        let stats = session.runtime().stats()?;
        Ok([stats.evictions, stats.peak_bytes])
    }

    /// Runs with these options do what their rehearsals did: how much they evict.
    fn evictions_as_rehearsed(options: &str) -> u64 {
        let mut evictions = 0;
        let args = args(options);
        let memory = &args.memory;
        for (model, batch) in [(ResNet20, 8), (ResNet20, 32), (Mlp, 48)] {
            let task = digits(model);
            let setup = setup(&task, batch, &args);
            let tested = batch + batch / 2;
            let rehearsal =
                Rehearsal::new(Arc::new(Sim::cpu), &setup, memory, 7, 3, tested).unwrap();
            let peak = rehearsal.unlimited().unwrap().peak_bytes;
            for percent in [30, 55, 80, 100] {
                let budget = peak * percent / 100;
                let rehearsed = rehearsal.under(budget, None, None).unwrap();
                let ahead = |builder: Builder| match memory.policy().searches() {
                    true => builder.policy(PolicyKind::Learned(Learn::Ahead)),
                    false => builder,
                };
                let builder = ahead(rehearsal.builder(budget, None));
                let other = rehearsed.as_ref().ok().and_then(|rehearsed| rehearsed.policy);
                let builder = match other {
                    Some(policy) => builder.policy(policy),
                    None => builder,
                };
                let real = run(&setup, builder, 3, tested);
                match (rehearsed, real) {
                    (Ok(rehearsed), Ok(real)) => {
                        assert_eq!([rehearsed.evictions, rehearsed.peak_bytes], real);
                        evictions += real[0];
                    }
                    (Err(rehearsed), Err(real)) => {
                        assert_eq!(rehearsed.to_string(), real.to_string());
                    }
                    (rehearsed, real) => {
                        panic!("{options} {model:?} {batch} {percent} %: {rehearsed:?}, {real:?}")
                    }
                }
            }
        }
        evictions
    }

    #[test]
    fn a_run_does_what_its_rehearsal_did() {
        let evictions = [
            "",
            "--learn ahead",
            "--policy lru --dead keep",
            "--policy megengine --cost bytes",
            "--policy random",
            "--optimizer adamw --clip 1",
            "--optimizer lion --accumulate 3",
        ]
        .map(evictions_as_rehearsed);
        assert!(evictions.iter().sum::<u64>() > 0);
    }

    #[test]
    fn what_fits_is_never_evicted_in_a_long_run() {
        let args = args("--min-evict-bytes 0 --policy lru");
        let memory = &args.memory;
        for (model, batch, peak) in [(ResNet20, 1, 120), (ResNet20, 32, 60), (Mlp, 8, 30)] {
            let task = digits(model);
            let setup = setup(&task, batch, &args);
            let rehearsal =
                Rehearsal::new(Arc::new(Sim::cpu), &setup, memory, 0, peak, batch).unwrap();
            let mut budget = rehearsal.unlimited().unwrap().peak_bytes;
            assert!(!rehearsal.fits(budget / 2).unwrap());
            while !rehearsal.fits(budget).unwrap() {
                budget += budget / 400;
            }
            let long = memory.builder(budget, None);
            let long = rehearsal.rehearse(long, peak, false, &mut Rehearsal::no_limit()).unwrap();
            assert_eq!(long.unwrap().evictions, 0, "{model:?}, {batch}");
        }
    }

    #[test]
    fn a_recompute_limit_holds_for_the_whole_run() {
        let (args, task) = (args("--policy dtr-eq"), digits(ResNet20));
        let setup = setup(&task, 32, &args);
        let short = Rehearsal::new(Arc::new(Sim::cpu), &setup, &args.memory, 0, 4, 0).unwrap();
        let budget = short.unlimited().unwrap().peak_bytes * 6 / 10;
        let rehearsed = short.under(budget, None, None).unwrap().unwrap();
        // The first step recomputes less than the others.
        assert!(rehearsed.recompute_ratio < rehearsed.step_ratio);
        let limit = Some(rehearsed.step_ratio * 0.999);
        assert!(short.under(budget, None, limit).unwrap().is_ok());
        let long = Rehearsal { steps: 1000, ..short };
        let error = long.under(budget, None, limit).unwrap().unwrap_err();
        let Error::Regeneration(error) = error else { panic!("{error}") };
        assert!(matches!(*error, RegenerationError::RecomputeLimit { .. }), "{error}");
    }
}
