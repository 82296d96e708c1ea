//! A turn of a loop, written down while it runs, so that it can be run again elsewhere.

use super::books::Books;
use super::transcript::Transcript;
use crate::command::{Command, RecordedCommand, RecordedProgram, TensorId};
use crate::device::Device;
use crate::engine::{Engine, Settings};
use crate::graph::StorageKey;
use crate::step::StepFuture;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// One turn of a loop, from the beginning of a known step to its end. What comes from `begin` on can be
/// [captured](RecordedProgram::capture): so a step of a running program becomes one that can be planned.
#[derive(Clone, Debug)]
pub struct Turn {
    /// First what was there before, as values that nothing can bring back; then the step.
    pub program: Arc<RecordedProgram>,
    /// How many commands come before the step.
    pub begin: usize,
    /// What the step uses when.
    pub step: Arc<StepFuture>,
    /// What tensors that were there before hold of the step's values, for [`Driver::bind`](super::Driver::bind).
    pub carried: Vec<(TensorId, u32)>,
    /// Bytes of the budget in which it ran. It can be run again in another.
    pub budget: u64,
    /// Of the engine that ran it.
    pub settings: Settings,
    /// Whether that has an arena; otherwise it only counts bytes.
    pub in_arena: bool,
}

impl Turn {
    /// Ops of the step, if it recomputes nothing.
    #[must_use]
    pub fn ops(&self) -> u64 {
        self.program.ops_from(self.begin)
    }

    /// Floating-point operations of these, as far as that was recorded.
    #[must_use]
    pub fn flops(&self) -> f64 {
        let calls = self.program.commands()[self.begin..].iter().flat_map(Command::calls);
        calls.filter_map(|call| call.op.flops).sum()
    }
}

/// A turn that is being written down.
#[derive(Debug)]
pub(super) struct Writing {
    transcript: Transcript,
    begin: usize,
    step: Arc<StepFuture>,
    carried: Vec<(TensorId, u32)>,
}

impl Writing {
    /// Writes down the turn that begins with the next command. `value` says which value of the step a storage holds.
    pub fn begin<D: Device>(
        books: &Books<D>,
        step: &Arc<StepFuture>,
        value: impl Fn(StorageKey) -> Option<u32>,
    ) -> Self {
        let mut transcript = Transcript::default();
        let mut tensors: Vec<_> = books.tensors.iter().collect();
        tensors.sort_unstable();
        let mut roots: FxHashMap<StorageKey, TensorId> = FxHashMap::default();
        let graph = books.engine.graph();
        for (_, key) in tensors {
            let Some(info) = graph.tensor(key) else { continue };
            let of = graph.storage(info.storage);
            let is_used = value(info.storage).is_some_and(|value| !step.uses(value).is_empty());
            // What the step does not use is in the way only where it cannot be evicted.
            if (is_used || of.producer.is_none()) && !roots.contains_key(&info.storage) {
                let put = transcript.put_constant(of.bytes, Some(&info.layout));
                roots.insert(info.storage, put);
            }
        }
        let mut carried = Vec::new();
        transcript.look(books, &roots, |tensor, storage| {
            carried.extend(value(storage).map(|value| (tensor, value)));
        });
        let begin = transcript.program.commands().len();
        Self { transcript, begin, step: Arc::clone(step), carried }
    }

    /// The next command, which was executed.
    pub fn push(&mut self, command: &RecordedCommand) {
        self.transcript.push(command);
    }

    /// The turn is over. `None` if it could not be written down.
    pub fn finish<D: Device>(self, engine: &Engine<D>) -> Option<Turn> {
        let Self { transcript: Transcript { program, is_lost, .. }, begin, step, carried } = self;
        (!is_lost).then(|| Turn {
            program: Arc::new(program),
            begin,
            step,
            carried,
            budget: engine.budget(),
            settings: engine.settings().clone(),
            in_arena: engine.arena().is_some(),
        })
    }
}
