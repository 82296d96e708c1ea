//! A turn of a loop, copied while it runs, so that a simulated engine can run it again.

use super::books::Books;
use super::transcript::Transcript;
use crate::command::{Command, RecordedCommand, RecordedProgram, TensorId};
use crate::device::Device;
use crate::engine::{Engine, Settings};
use crate::graph::StorageKey;
use crate::step::StepFuture;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// One turn of a loop, from the beginning of a known step to its end.
///
/// The commands from `begin` on can be [captured](RecordedProgram::capture), so that planners can
/// plan a step of a running program.
#[derive(Clone, Debug)]
pub struct Turn {
    /// Puts of the values made before the turn, followed by the commands of the turn. A value from
    /// before the turn is a constant, which cannot be recomputed.
    pub program: Arc<RecordedProgram>,
    /// Number of puts at the beginning of the program; the turn's own commands follow.
    pub begin: usize,
    /// Uses of each value of the step.
    pub step: Arc<StepFuture>,
    /// Tensors made before the turn, each with the number of its value in the step, for
    /// [`Driver::bind`](super::Driver::bind).
    pub carried: Vec<(TensorId, u32)>,
    /// Budget of the run in bytes. The turn can also be simulated in another budget.
    pub budget: u64,
    /// Settings of the engine that ran the turn.
    pub settings: Settings,
    /// Whether the engine places blocks in an arena; without an arena, only bytes are counted.
    pub in_arena: bool,
}

impl Turn {
    /// Number of ops of the step without recomputation.
    #[must_use]
    pub fn ops(&self) -> u64 {
        self.program.ops_from(self.begin)
    }

    /// Floating-point operations of the step without recomputation, counting only ops whose
    /// operations were recorded.
    #[must_use]
    pub fn flops(&self) -> f64 {
        let calls = self.program.commands()[self.begin..].iter().flat_map(Command::calls);
        calls.filter_map(|call| call.op.flops).sum()
    }
}

/// A turn whose commands are being copied.
#[derive(Debug)]
pub(super) struct Writing {
    transcript: Transcript,
    begin: usize,
    step: Arc<StepFuture>,
    carried: Vec<(TensorId, u32)>,
}

impl Writing {
    /// Begins to copy the turn that the next command begins. `value` maps a storage to its value in
    /// the step.
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
            // A storage that the turn does not use matters only if it cannot be evicted.
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

    /// Appends a command that was executed.
    pub fn push(&mut self, command: &RecordedCommand) {
        self.transcript.push(command);
    }

    /// Ends the turn. Returns `None` if the turn could not be copied.
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
