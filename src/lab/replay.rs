//! One run of a program on the engine.

use super::device::{Recorded, TraceDevice, TraceOp, Upload};
use super::program::{Instruction, Made, Program, ProgramOp, TensorId};
use super::unit::CostUnit;
use crate::cost::{CostModel, CostModelKind};
use crate::device::Memory;
use crate::engine::{Engine, Keys, RecomputeLimit, Settings, Stats};
use crate::error::{Error, RegenerationError};
use crate::evict::{Evictor, PolicyKind};
use crate::graph::TensorKey;
use crate::layout::{Dims, Layout};
use crate::memory::ALIGNMENT;
use crate::op::{Look, Outputs};
use slotmap::Key as _;
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Where costs come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Costs {
    /// The costs recorded in the trace.
    #[default]
    Trace,
    /// The arithmetic that the trace recorded: as [`CostModelKind::Flops`].
    Flops,
    /// Bytes read and written: as [`CostModelKind::Bytes`].
    Bytes,
}

impl Costs {
    fn model(self) -> Box<dyn CostModel> {
        match self {
            Self::Trace => Box::new(Recorded),
            Self::Flops => CostModelKind::Flops.build(),
            Self::Bytes => CostModelKind::Bytes.build(),
        }
    }
}

/// Whether storages have places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// Bytes are only counted, as in the DTR paper's simulator.
    #[default]
    Counted,
    /// In an arena, as on the devices of this crate: holes, free neighbours and compaction count.
    Arena,
}

impl Placement {
    const fn memory(self, bytes: u64) -> Memory {
        match self {
            Self::Counted => Memory::Counted { bytes },
            Self::Arena => Memory::arena(bytes),
        }
    }

    /// The least that a storage takes up.
    pub(super) const fn granule(self) -> u64 {
        match self {
            Self::Counted => 1,
            Self::Arena => ALIGNMENT,
        }
    }
}

/// How a program is run.
#[derive(Clone, Debug)]
pub struct Replay {
    /// Bytes of memory.
    pub budget: u64,
    /// Whether storages have places there.
    pub placement: Placement,
    /// Limits and options of the engine. A recompute limit that is a multiple is one of `work`, where that is known.
    pub settings: Settings,
    /// Cost of the whole program. `None`: with the costs of the trace it is their sum, and unknown otherwise.
    pub work: Option<f64>,
    /// What is evicted.
    pub policy: PolicyKind,
    /// Whether about `2 * sqrt(n)` of `n` candidates are scored at each choice instead of all.
    pub sqrt_sampling: bool,
    /// For sampling and the `random` policy.
    pub seed: u64,
    /// Where costs come from.
    pub costs: Costs,
}

/// How a run ended.
#[derive(Clone, Debug)]
pub enum Status {
    /// At the end of the program.
    Done,
    /// It ran out of memory, or recomputed too much, at instruction `at`.
    Failed {
        /// Position in [`Program::instructions`].
        at: usize,
        /// Why.
        error: Error,
    },
}

/// The outcome of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How it ended.
    pub status: Status,
    /// The engine's counters at the end.
    pub stats: Stats,
    /// How long it took here.
    pub time: Duration,
}

impl Outcome {
    /// Cost of the run over the cost of the program; `None` if it did not get to the end.
    #[must_use]
    pub fn slowdown(&self) -> Option<f64> {
        let Stats { base_cost, recompute_cost, .. } = self.stats;
        let ratio = if recompute_cost == 0.0 { 0.0 } else { recompute_cost / base_cost };
        matches!(self.status, Status::Done).then_some(1.0 + ratio)
    }
}

impl Replay {
    /// A replay in `budget` bytes that counts bytes as the DTR paper does: without placement, and with nothing too
    /// small to be evicted. It ends when recomputing costs more than the program itself.
    #[must_use]
    pub fn new(policy: PolicyKind, budget: u64) -> Self {
        let settings = Settings {
            // Evicting nothing frees nothing.
            min_evict_bytes: Some(1),
            recompute_limit: Some(RecomputeLimit::Multiple(1.0)),
            ..Settings::default()
        };
        Self {
            budget,
            placement: Placement::default(),
            settings,
            work: None,
            policy,
            sqrt_sampling: false,
            seed: 0,
            costs: Costs::Trace,
        }
    }

    /// What its costs count.
    #[must_use]
    pub fn unit(&self, program: &Program) -> CostUnit {
        match self.costs {
            Costs::Trace => program.unit().clone(),
            Costs::Flops => CostUnit::Gigaflops,
            Costs::Bytes => CostUnit::HundredMegabytes,
        }
    }

    /// Runs `program`.
    ///
    /// # Errors
    /// If the settings make no sense. A run that fails is an outcome.
    pub fn run(&self, program: &Program) -> Result<Outcome, Error> {
        self.run_watched(program, |_, _, _| {})
    }

    pub(super) fn run_watched(
        &self,
        program: &Program,
        watch: impl FnMut(usize, bool, &Engine<TraceDevice>),
    ) -> Result<Outcome, Error> {
        let start = Instant::now();
        let mut machine = Machine::new(self, program)?;
        let status = machine.run(watch);
        let mut stats = machine.engine.stats();
        stats.ops -= machine.waits;
        Ok(Outcome { status, stats, time: start.elapsed() })
    }
}

/// A program that is being run.
pub(super) struct Machine<'a> {
    program: &'a Program,
    pub(super) engine: Engine<TraceDevice>,
    /// Of each tensor of the program, while it is there.
    keys: Vec<TensorKey>,
    /// Whether constants stay as long as anything was made from them: nothing can bring them back. Only
    /// where nothing is evicted may they go when the program lets them go.
    pub(super) keeps_constants: bool,
    /// A multiple of the cost of the whole program, and that cost: what the engine has the product of for a limit.
    limit: Option<(f64, f64)>,
    /// Ops that only let time pass.
    waits: u64,
    /// Of the op at hand; kept to reuse their memory.
    inputs: Vec<TensorKey>,
}

impl<'a> Machine<'a> {
    pub(super) fn new(replay: &Replay, program: &'a Program) -> Result<Self, Error> {
        let Replay { policy, seed, .. } = *replay;
        let evictor = policy.evictor(seed, replay.sqrt_sampling.then_some(seed));
        Self::with_evictor(replay, program, evictor)
    }

    fn with_evictor(
        replay: &Replay,
        program: &'a Program,
        evictor: Box<dyn Evictor>,
    ) -> Result<Self, Error> {
        let mut settings = replay.settings.clone();
        settings.check(replay.budget)?;
        let sum = (replay.costs == Costs::Trace).then(|| program.base_cost());
        let limit = match (settings.recompute_limit, replay.work.or(sum)) {
            (Some(RecomputeLimit::Multiple(limit)), Some(work)) => Some((limit, work)),
            _ => None,
        };
        if let Some((limit, work)) = limit {
            settings.recompute_limit = Some(RecomputeLimit::Cost(limit * work));
        }
        let device = TraceDevice { memory: replay.placement.memory(replay.budget) };
        let mut engine = Engine::new(device, settings, evictor, replay.costs.model())?;
        engine.reserve(program.tensors());
        Ok(Self {
            program,
            engine,
            keys: vec![TensorKey::null(); program.tensors()],
            keeps_constants: true,
            limit,
            waits: 0,
            inputs: Vec::new(),
        })
    }

    /// Calls `watch` after each instruction: its position, and whether it was done.
    pub(super) fn run(
        &mut self,
        mut watch: impl FnMut(usize, bool, &Engine<TraceDevice>),
    ) -> Status {
        for (at, &instruction) in self.program.instructions().iter().enumerate() {
            let done = self.execute(instruction);
            watch(at, done.is_ok(), &self.engine);
            if let Err(error) = done {
                return Status::Failed { at, error: self.as_multiple(error) };
            }
        }
        Status::Done
    }

    pub(super) fn execute(&mut self, instruction: Instruction) -> Result<(), Error> {
        match instruction {
            Instruction::Put { tensor, bytes, cost } => {
                self.keys[tensor as usize] = self.engine.put(Arc::new(Upload { bytes, cost }));
                self.engine.take_failure().map_or(Ok(()), Err)
            }
            Instruction::Constant { tensor, bytes } => {
                let key = self.engine.put(Arc::new(Upload { bytes, cost: 0.0 }));
                self.keys[tensor as usize] = key;
                self.engine.take_failure().map_or(Ok(()), Err)?;
                if self.keeps_constants { self.engine.commit(key) } else { Ok(()) }
            }
            Instruction::Apply(index) => self.apply(&self.program.op(index)),
            Instruction::Elapse(cost) => {
                self.wait("elapse".into(), cost)?;
                self.engine.take_failure().map_or(Ok(()), Err)
            }
            Instruction::Get(tensor) => self.engine.get(self.key(tensor)).map(|_| ()),
            Instruction::Del(tensor) => {
                self.engine.del(self.key(tensor));
                Ok(())
            }
            Instruction::Drop(tensor) => self.engine.drop_now(self.key(tensor)).map(|_| ()),
            Instruction::Commit(tensor) => self.engine.commit(self.key(tensor)),
            Instruction::Step => {
                self.engine.step();
                Ok(())
            }
        }
    }

    /// A limit that was given as a multiple is told as one.
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

    fn key(&self, tensor: TensorId) -> TensorKey {
        self.keys[tensor as usize]
    }

    fn apply(&mut self, op: &ProgramOp<'_>) -> Result<(), Error> {
        self.inputs.clear();
        self.inputs.extend(op.inputs.iter().map(|&tensor| self.keys[tensor as usize]));
        let (mut targets, mut fresh, mut looks) = (0, SmallVec::new(), SmallVec::new());
        for made in op.made {
            match *made {
                Made::Fresh { bytes } => fresh.push(Layout::raw(bytes as usize)),
                Made::View { input, bytes } => {
                    let input = input as usize;
                    let layout = self.engine.layout(self.inputs[input])?;
                    looks.push(Look { input, layout: look(&layout, bytes as usize) });
                }
                Made::InPlace { input, consumed } => {
                    let input = input as usize;
                    if !consumed {
                        // The old value stays: the engine consumes another handle to it.
                        self.inputs[input] = self.engine.alias(self.inputs[input])?;
                    }
                    targets += 1;
                }
            };
        }
        let outputs = match (targets, looks.len()) {
            (0, 0) => Outputs::Fresh(fresh),
            (0, _) => Outputs::Views(looks),
            _ => Outputs::Updates { targets, fresh },
        };
        let keys = self.issue(op, &outputs)?;
        if op.is_view() {
            self.wait(Arc::clone(op.name), op.cost)?;
        }
        for (tensor, key) in op.outputs().zip(keys) {
            self.keys[tensor as usize] = key;
        }
        self.engine.take_failure().map_or(Ok(()), Err)
    }

    /// Lets time pass, by an op that makes nothing and is none of the program's.
    fn wait(&mut self, name: Arc<str>, cost: f64) -> Result<(), Error> {
        if cost > 0.0 {
            self.waits += 1;
            let op = TraceOp { name, cost, flops: 0.0, workspace: 0, rematerializable: false };
            self.engine.issue(op, &[], &Outputs::default())?;
        }
        Ok(())
    }

    fn issue(&mut self, op: &ProgramOp<'_>, outputs: &Outputs) -> Result<Keys, Error> {
        let trace_op = TraceOp {
            name: Arc::clone(op.name),
            cost: op.cost,
            flops: op.flops.unwrap_or(0.0),
            workspace: op.workspace,
            rematerializable: op.rematerializable,
        };
        self.engine.issue(trace_op, &self.inputs, outputs)
    }
}

/// A view of `bytes` bytes of what `layout` shows. One that shows more than there is repeats all there is.
fn look(layout: &Layout, bytes: usize) -> Layout {
    let span = layout.span();
    if bytes <= span || span == 0 {
        return Layout::raw(bytes.min(span));
    }
    let all = Layout::raw(span);
    all.broadcast_to(&Dims::new(&[bytes.div_ceil(span), span])).unwrap_or(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Dead;
    use crate::event::Event;
    use crate::evict::{ByScore, Policy, View};
    use crate::graph::StorageKey;
    use crate::lab::Trace;

    /// The same scores, without promises about them, so that all are computed at each choice.
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
            for dead in [Dead::Drop, Dead::Keep] {
                for budget in (40..=100).step_by(3).map(|percent| 145_160 * percent / 100) {
                    let mut replay = Replay::new(policy.parse().unwrap(), budget);
                    replay.settings.dead = dead;
                    let mut lazy = Machine::new(&replay, program).unwrap();
                    let asked = ByScore::new(AskAll(replay.policy.policy(0).unwrap()));
                    let mut eager =
                        Machine::with_evictor(&replay, program, Box::new(asked)).unwrap();
                    let done = [lazy.run(|_, _, _| {}), eager.run(|_, _, _| {})];
                    let done = done.map(|status| matches!(status, Status::Done));
                    let (lazy, eager) = (lazy.engine.stats(), eager.engine.stats());
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
