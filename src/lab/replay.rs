//! A run of a program on the engine.

use super::CostUnit;
use super::changes::Changed;
use super::device::TraceDevice;
use super::network::{Cluster, StepTimes};
use super::search::{Search, learner};
use crate::command::{
    Ahead, Apply, Command, RecordedCosts, RecordedOp, RecordedProgram, RecordedValue, TensorId,
    Waiting, Window,
};
use crate::cost::{CostModel, CostModelKind};
use crate::device::Memory;
use crate::driver::{Allowance, Change, Driver, Knowledge, LearnOptions, Learners, Plan, Setting};
use crate::engine::Listener;
use crate::engine::{Engine, RecomputeLimit, Settings, Stats};
use crate::error::{Error, RegenerationError};
use crate::evict::{Evictor, Foresight, Learn, PolicyKind};
use crate::graph::StorageKey;
use crate::op::Outputs;
use remat_memory::ALIGNMENT;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Source of the costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Costs {
    /// The costs recorded in the trace.
    #[default]
    Trace,
    /// The flops recorded in the trace: see [`CostModelKind::Flops`].
    Flops,
    /// Bytes read and written: see [`CostModelKind::Bytes`].
    Bytes,
}

impl Costs {
    pub(super) fn model(self) -> Box<dyn CostModel> {
        match self {
            Self::Trace => Box::new(RecordedCosts),
            Self::Flops => CostModelKind::Flops.build(),
            Self::Bytes => CostModelKind::Bytes.build(),
        }
    }
}

/// Whether storages have addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemoryKind {
    /// Bytes are only counted, as in the simulator of the DTR paper.
    #[default]
    Counted,
    /// Storages have addresses in an arena, as on the devices of this crate. The arena has holes,
    /// merges free neighbours, and compacts.
    Arena,
}

impl MemoryKind {
    const fn of(self, bytes: u64) -> Memory {
        match self {
            Self::Counted => Memory::Counted { bytes },
            Self::Arena => Memory::arena(bytes),
        }
    }

    /// Smallest number of bytes taken up by a storage.
    pub(super) const fn granule(self) -> u64 {
        match self {
            Self::Counted => 1,
            Self::Arena => ALIGNMENT,
        }
    }
}

/// Settings of a run of a program.
#[derive(Clone, Debug)]
pub struct Replay {
    /// Budget in bytes.
    pub budget: u64,
    /// Whether storages have addresses.
    pub memory: MemoryKind,
    /// The engine's settings. A recompute limit given as a multiple is a multiple of `work`, if
    /// `work` is known.
    pub settings: Settings,
    /// Cost of the whole program. With `None`, the cost is the sum of the recorded costs for
    /// [`Costs::Trace`], and unknown for any other source of costs.
    pub work: Option<f64>,
    /// Policy that chooses what to evict.
    pub policy: PolicyKind,
    /// Whether only about `2 * sqrt(n)` of `n` candidates are scored to choose an eviction.
    pub sqrt_sampling: bool,
    /// Seed of sampling and of the policy `random`.
    pub seed: u64,
    /// Source of the costs.
    pub costs: Costs,
    /// Number of later commands that the evictor can see. [`Trace::window`](super::Trace::window)
    /// is the window of a recording.
    pub window: Window,
    /// Knowledge of the program, for evictors that look ahead. With `None`, the policies of this
    /// crate that look ahead know the whole program, with the setting that is best on average.
    pub foresight: Option<Arc<Foresight>>,
    /// Knowledge that a run had when it began, such as [`Trace::known`](super::Trace::known). With
    /// `Some`, evictors that look ahead know as much as in a real run: this knowledge, and the
    /// steps that have repeated and were recognized.
    pub as_run: Option<Knowledge>,
    /// Changes of settings during the run, in order. [`Trace::settings`](super::Trace::settings)
    /// has the changes of a recording.
    pub changes: Vec<Changed>,
    /// Ranks whose times are measured beside the run; the run itself does not depend on these
    /// ranks.
    pub cluster: Option<Arc<Cluster>>,
}

/// End of a run.
#[derive(Clone, Debug)]
pub enum Status {
    /// The run reached the end of the program.
    Done,
    /// The run ran out of memory, or recomputed too much, at command `at`.
    Failed {
        /// Position in [`Program::commands`](crate::program::Program::commands).
        at: usize,
        /// Cause of the failure.
        error: Error,
    },
}

/// The outcome of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// End of the run.
    pub status: Status,
    /// The engine's counters at the end.
    pub stats: Stats,
    /// Wall-clock time of the run.
    pub time: Duration,
    /// Time of a step of the program on several ranks, if the replay has a cluster and passed.
    pub step: Option<StepTimes>,
    /// Work done up to each step mark.
    pub marks: Vec<Work>,
}

/// Work of a run up to some point, in the unit of its costs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Cost of the first runs of ops.
    pub base_cost: f64,
    /// Cost of recomputation.
    pub recompute_cost: f64,
}

impl Work {
    const fn of(stats: &Stats) -> Self {
        Self { base_cost: stats.base_cost, recompute_cost: stats.recompute_cost }
    }

    /// Slowdown of a run from the point `start` to this point. 1 if no work was done between the
    /// two points.
    #[must_use]
    pub fn slowdown_since(&self, start: &Self) -> f64 {
        let recomputed = self.recompute_cost - start.recompute_cost;
        if recomputed == 0.0 { 1.0 } else { 1.0 + recomputed / (self.base_cost - start.base_cost) }
    }
}

impl Outcome {
    /// Cost of the run, divided by the cost of the program; `None` if the run failed.
    #[must_use]
    pub fn slowdown(&self) -> Option<f64> {
        let slowdown = || Work::of(&self.stats).slowdown_since(&Work::default());
        matches!(self.status, Status::Done).then(slowdown)
    }
}

impl Replay {
    /// A replay in `budget` bytes that counts bytes as the DTR paper does: storages have no
    /// addresses, and even the smallest storage may be evicted. The run fails when the recomputed
    /// cost exceeds the cost of the program.
    #[must_use]
    pub fn new(policy: PolicyKind, budget: u64) -> Self {
        let settings = Settings {
            // A storage of 0 bytes is not a candidate, because evicting it frees no memory.
            min_evict_bytes: Some(1),
            recompute_limit: Some(RecomputeLimit::Multiple(1.0)),
            ..Settings::default()
        };
        Self {
            budget,
            memory: MemoryKind::default(),
            settings,
            work: None,
            policy,
            sqrt_sampling: false,
            seed: 0,
            costs: Costs::Trace,
            window: Window::default(),
            foresight: None,
            as_run: None,
            changes: Vec::new(),
            cluster: None,
        }
    }

    /// Unit of this replay's costs, for a trace whose costs are in `unit`.
    #[must_use]
    pub fn unit(&self, unit: &CostUnit) -> CostUnit {
        match self.costs {
            Costs::Trace => unit.clone(),
            Costs::Flops => CostUnit::Gigaflops,
            Costs::Bytes => CostUnit::HundredMegabytes,
        }
    }

    /// Largest budget of the run, changes included.
    #[must_use]
    pub fn largest_budget(&self) -> u64 {
        let later = self.changes.iter().filter_map(|change| match change.setting {
            Setting::Budget(bytes) if !change.failed => Some(bytes),
            _ => None,
        });
        later.fold(self.budget, u64::max)
    }

    /// Runs `program`.
    ///
    /// # Errors
    /// An error if the settings are invalid. A run that fails is an outcome, not an error.
    pub fn run(&self, program: &RecordedProgram) -> Result<Outcome, Error> {
        self.run_watched(program, |_, _, _| {})
    }

    /// Runs `program` with an evictor of your own in place of the policy.
    ///
    /// # Errors
    /// The errors of [`Replay::run`].
    pub fn run_by(
        &self,
        program: &RecordedProgram,
        evictor: Box<dyn Evictor>,
    ) -> Result<Outcome, Error> {
        let machine = Machine::with_evictor(self, program, evictor)?;
        Ok(self.outcome(machine, Instant::now(), |_, _, _| {}))
    }

    /// The replay with the forecast that a search found; `None` if the policy requires no search.
    /// The time of an outcome does not include the simulated runs of the search.
    pub(super) fn learned(&self, program: &RecordedProgram) -> Result<Option<Self>, Error> {
        let learn = match self.policy {
            PolicyKind::Learned(learn) if self.foresight.is_none() && self.as_run.is_none() => {
                learn
            }
            _ => return Ok(None),
        };
        if learn == Learn::Ahead {
            return Ok(None);
        }
        let mut search = Search::new(Arc::new(program.clone()), self, self.seed)?;
        search.learn(learn)?;
        // If no forecast passes, the replay uses the default forecast, and shows where the run
        // fails.
        let found = search.best().map(|best| Arc::new(best.for_step(Arc::clone(search.step()))));
        Ok(found.map(|foresight| Self { foresight: Some(foresight), ..self.clone() }))
    }

    pub(super) fn run_watched(
        &self,
        program: &RecordedProgram,
        watch: impl FnMut(usize, bool, &Engine<TraceDevice>),
    ) -> Result<Outcome, Error> {
        let learned = self.learned(program)?;
        let start = Instant::now();
        Ok(self.outcome(Machine::new(learned.as_ref().unwrap_or(self), program)?, start, watch))
    }

    /// Runs a machine, and the clocks of the cluster if there is one.
    fn outcome(
        &self,
        machine: Machine<'_>,
        start: Instant,
        mut watch: impl FnMut(usize, bool, &Engine<TraceDevice>),
    ) -> Outcome {
        let Some(cluster) = &self.cluster else { return machine.outcome(start, watch) };
        let (program, mut clocks) = (machine.program, cluster.clocks());
        let outcome = machine.outcome(start, |at, done, engine| {
            let Stats { base_cost, recompute_cost, .. } = engine.stats();
            clocks.ran(at, &program.commands()[at], base_cost + recompute_cost);
            watch(at, done, engine);
        });
        let step = clocks.times().filter(|_| matches!(outcome.status, Status::Done));
        Outcome { step, ..outcome }
    }
}

/// A running program.
pub(super) struct Machine<'a> {
    program: &'a RecordedProgram,
    /// Position of the command at which the step of `foresight` begins.
    begin: usize,
    carried: &'a [(TensorId, u32)],
    foresight: Option<Arc<Foresight>>,
    pub(super) driver: Driver<TraceDevice>,
    /// Commands admitted ahead of execution; `None` without look-ahead.
    ahead: Option<Ahead>,
    /// Position of the first command that is not yet admitted.
    admitted: usize,
    /// Whether a constant is held as long as tensors made from it are held, because a constant
    /// cannot be regenerated. If nothing is evicted, a constant may be freed as soon as the program
    /// deletes it.
    pub(super) keeps_constants: bool,
    /// Changes that are not made yet. An entry is the number of commands before the change, the
    /// change, and whether the change failed in the recorded run.
    changes: VecDeque<(usize, Change, bool)>,
    learners: Learners,
    /// Recompute limit as a multiple, and the cost of the whole program. The limit of the engine is
    /// the product of the two numbers.
    limit: Option<(f64, f64)>,
    /// Number of pseudo-ops so far. A pseudo-op does no work and only advances the clock.
    waits: u64,
}

impl<'a> Machine<'a> {
    pub(super) fn new(replay: &Replay, program: &'a RecordedProgram) -> Result<Self, Error> {
        let Replay { policy, seed, .. } = *replay;
        let evictor = policy.evictor(seed, replay.sqrt_sampling.then_some(seed));
        Self::with_evictor(replay, program, evictor)
    }

    /// A machine for a step that begins at command `begin`. At command `begin`, the tensors in
    /// `carried` hold values of the step.
    pub(super) fn of_step(
        replay: &Replay,
        program: &'a RecordedProgram,
        begin: usize,
        carried: &'a [(TensorId, u32)],
    ) -> Result<Self, Error> {
        Ok(Self { begin, carried, ..Self::new(replay, program)? })
    }

    pub(super) fn with_evictor(
        replay: &Replay,
        program: &'a RecordedProgram,
        evictor: Box<dyn Evictor>,
    ) -> Result<Self, Error> {
        let mut settings = replay.settings.clone();
        settings.check(replay.budget)?;
        // The engine gets an absolute limit: if the cost of the program is known, a multiple is
        // converted to a cost.
        let sum = || (replay.costs == Costs::Trace).then(|| program.base_cost());
        let limit = match settings.recompute_limit {
            Some(RecomputeLimit::Multiple(limit)) => {
                replay.work.or_else(sum).map(|work| (limit, work))
            }
            _ => None,
        };
        if let Some((limit, work)) = limit {
            settings.recompute_limit = Some(RecomputeLimit::Cost(limit * work));
        }
        // The device has as much memory as the largest budget, so that the budget can be raised.
        let memory = replay.largest_budget();
        let changes = replay.changes.iter();
        let changes =
            changes.map(|change| Ok((change.after, change.of_replay(replay)?, change.failed)));
        let changes = changes.collect::<Result<_, Error>>()?;
        let device = TraceDevice { memory: replay.memory.of(memory) };
        let mut driver = Driver::new(Engine::new(device, settings, evictor, replay.costs.model())?);
        if replay.budget < memory {
            driver.set_budget(replay.budget)?;
        }
        driver.reserve(program.tensors());
        // Evictors that look ahead know as much as in a real run (`as_run`), or the given knowledge
        // (`foresight`), or the whole program.
        let learners = Learners { new: learner, seed: replay.seed };
        let learners = match replay.as_run.clone() {
            None => learners,
            Some(known) => {
                let learn = replay.policy.learn();
                LearnOptions { learn, learners, own: None, known, plan: Plan::Off, rehearse: None }
                    .begin(&mut driver)
            }
        };
        let foresight = match &replay.foresight {
            None if replay.as_run.is_some() => None,
            None if replay.policy.looks_ahead() => {
                Some(Foresight::plain(Arc::new(program.future()), replay.budget).into())
            }
            known => known.clone(),
        };
        Ok(Self {
            program,
            begin: 0,
            carried: &[],
            foresight,
            driver,
            ahead: (replay.window.commands > 0).then(|| Ahead::new(replay.window)),
            admitted: 0,
            keeps_constants: true,
            changes,
            learners,
            limit,
            waits: 0,
        })
    }

    /// Sets the engine's limit on ops to the ops left in the allowance, less the first runs of all
    /// ops. The run ends when a regeneration would exceed this limit.
    pub(super) fn limit_ops(&mut self, allowance: Allowance) {
        self.driver.engine_mut().interrupt_when(allowance.interrupt(self.program.ops_from(0)));
    }

    pub(super) fn listen(&mut self, listener: Box<dyn Listener>) {
        self.driver.engine_mut().listen(listener);
    }

    /// Runs to the end of the program, or to the first failure.
    pub(super) fn simulate(self) -> Outcome {
        self.outcome(Instant::now(), |_, _, _| {})
    }

    /// Storage of a live tensor.
    pub(super) fn storage(&self, tensor: TensorId) -> Option<StorageKey> {
        let key = self.driver.key(tensor).ok()?;
        Some(self.driver.engine().graph().tensor(key)?.storage)
    }

    pub(super) fn stats(&self) -> Stats {
        let mut stats = self.driver.engine().stats();
        stats.ops -= self.waits;
        stats
    }

    fn outcome(
        mut self,
        start: Instant,
        mut watch: impl FnMut(usize, bool, &Engine<TraceDevice>),
    ) -> Outcome {
        let (program, mut marks) = (self.program, Vec::new());
        let status = self.run(|at, done, engine| {
            if matches!(program.commands()[at], Command::Step) {
                marks.push(Work::of(&engine.stats()));
            }
            watch(at, done, engine);
        });
        Outcome { status, stats: self.stats(), time: start.elapsed(), step: None, marks }
    }

    /// Runs the program. Calls `watch` after each command with its position and whether it
    /// succeeded.
    pub(super) fn run(
        &mut self,
        mut watch: impl FnMut(usize, bool, &Engine<TraceDevice>),
    ) -> Status {
        for at in 0..self.program.commands().len() {
            let done = self.execute(at);
            watch(at, done.is_ok(), self.driver.engine());
            if let Err(error) = done {
                return Status::Failed { at, error: self.as_multiple(error) };
            }
        }
        Status::Done
    }

    /// Executes the command at position `at`, which must be the next command. Afterwards, makes the
    /// changes of settings that follow the command.
    pub(super) fn execute(&mut self, at: usize) -> Result<(), Error> {
        if at == 0 {
            self.change_after(0)?;
        }
        self.command(at)?;
        self.change_after(at + 1)
    }

    /// Makes the changes that are due after `commands` commands.
    fn change_after(&mut self, commands: usize) -> Result<(), Error> {
        while let Some((_, change, failed)) =
            self.changes.pop_front_if(|(after, ..)| *after <= commands)
        {
            let before = (self.driver.engine().budget(), self.driver.engine().is_enabled());
            let done = change.make(&mut self.driver, &self.learners);
            if !failed {
                done?;
                continue;
            }
            // The change failed in the recorded run, so the replay needs only the evictions that
            // the change caused before its failure. In the replay, the change may succeed, if fewer
            // bytes were evictable in the run. A change that succeeds only in the replay is undone.
            if self.driver.engine().budget() != before.0 {
                self.driver.set_budget(before.0)?;
            }
            if before.1 && !self.driver.engine().is_enabled() {
                self.driver.enable()?;
            }
        }
        Ok(())
    }

    fn command(&mut self, at: usize) -> Result<(), Error> {
        let program = self.program;
        if at == self.begin && self.foresight.is_some() {
            self.driver.foresee(self.foresight.take())?;
            for &(tensor, value) in self.carried {
                self.driver.bind(tensor, value)?;
            }
        }
        self.look_ahead(at);
        match &program.commands()[at] {
            // A constant was resident before the program and is never evicted. If the constant does
            // not fit into memory, the run fails.
            Command::Put { tensor, host, .. } if host.cost.is_none() => {
                let (tensor, host) = (*tensor, Arc::clone(host));
                self.driver.execute(Command::Put { tensor, host, leaf: false });
                self.take_failure()?;
                if self.keeps_constants {
                    let key = self.driver.key(tensor)?;
                    self.driver.engine_mut().commit(key)?;
                }
                Ok(())
            }
            // The value counts its own reruns. Another replay may run the same program at the same
            // time, so the value is copied.
            Command::Put { tensor, host, leaf } if host.reruns.is_some() => {
                let (tensor, host) = (*tensor, Arc::new(RecordedValue::clone(host)));
                self.driver.execute(Command::Put { tensor, host, leaf: *leaf });
                self.take_failure()
            }
            Command::Get(tensor) => self.driver.get(*tensor).map(drop),
            Command::Del(tensor) => {
                self.driver.del(*tensor);
                Ok(())
            }
            command => {
                self.driver.execute_shared(command);
                for call in command.calls() {
                    self.pass_time(call)?;
                }
                self.take_failure()
            }
        }
    }

    /// Admits the commands that the evictor may see when the command at position `at` runs.
    fn look_ahead(&mut self, at: usize) {
        let Some(ahead) = &mut self.ahead else { return };
        let waiting = |command| Waiting::of(command, |host: &RecordedValue| host.layout.bytes());
        while !ahead.is_complete()
            && let Some(command) = self.program.commands().get(self.admitted)
        {
            self.driver.admit(command);
            ahead.push(waiting(command));
            self.admitted += 1;
        }
        ahead.pop(waiting(&self.program.commands()[at]));
    }

    /// Advances the engine's clock by the cost of a view, although no op runs. The pseudo-ops that
    /// advance the clock are counted in `waits`.
    fn pass_time(&mut self, call: &Apply<RecordedOp>) -> Result<(), Error> {
        self.waits += u64::from(call.elapses());
        if call.op.cost > 0.0 && !call.outputs.views().is_empty() {
            self.waits += 1;
            let op =
                RecordedOp { name: Arc::clone(&call.op.name), ..RecordedOp::elapse(call.op.cost) };
            self.driver.engine_mut().issue(op, &[], &Outputs::default())?;
        }
        Ok(())
    }

    fn take_failure(&mut self) -> Result<(), Error> {
        self.driver.engine_mut().take_failure().map_or(Ok(()), Err)
    }

    /// Converts the error of the engine's absolute limit to the error of the limit as a multiple,
    /// as in the settings.
    fn as_multiple(&self, error: Error) -> Error {
        match (&error, self.limit) {
            (Error::Regeneration(failure), Some((limit, work))) => match **failure {
                RegenerationError::RecomputeCost { cost, .. } => {
                    RegenerationError::RecomputeLimit { ratio: cost / work, limit }.into()
                }
                _ => error,
            },
            _ => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Dead;
    use crate::event::Event;
    use crate::evict::{ByScore, Policy, View};
    use crate::lab::Trace;

    /// A policy with the scores of another policy, but without the promises that let an evictor
    /// skip scores. Every choice by this policy therefore computes all scores.
    #[derive(Debug)]
    struct AskAll(Box<dyn Policy>);

    impl Policy for AskAll {
        fn score(&mut self, candidate: StorageKey, view: View<'_>) -> f64 {
            self.0.score(candidate, view)
        }

        fn on(&mut self, event: &Event, view: View<'_>) {
            self.0.on(event, view);
        }
    }

    #[test]
    fn asking_for_few_scores_chooses_as_asking_for_all() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/small.log");
        let trace = Trace::open(path).unwrap().repeat_step(3).unwrap();
        let program = trace.program();
        let (mut few, mut all) = (0, 0);
        for policy in ["dtr", "dtr-eq", "dtr-local", "msps", "(own+exact)/size", "eq/(size*stale)"]
        {
            for dead in [Dead::Linger, Dead::Drop, Dead::Keep] {
                for budget in (40..=100).step_by(3).map(|percent| 145_160 * percent / 100) {
                    let mut replay = Replay::new(policy.parse().unwrap(), budget);
                    replay.settings.dead = dead;
                    let mut lazy = Machine::new(&replay, program).unwrap();
                    let asked = ByScore::new(AskAll(replay.policy.policy(0).unwrap()));
                    let mut eager =
                        Machine::with_evictor(&replay, program, Box::new(asked)).unwrap();
                    let done = [lazy.run(|_, _, _| {}), eager.run(|_, _, _| {})];
                    let done = done.map(|status| matches!(status, Status::Done));
                    let (lazy, eager) = (lazy.stats(), eager.stats());
                    let what = format!("{policy} {dead:?} {budget}");
                    assert_eq!(done[0], done[1], "{what}");
                    assert_eq!(lazy.evictions, eager.evictions, "{what}");
                    assert_eq!(lazy.recompute_cost, eager.recompute_cost, "{what}");
                    few += lazy.score_evaluations;
                    all += eager.score_evaluations;
                }
            }
        }
        assert!(few * 3 < all, "{few} of {all} scores");
    }
}
