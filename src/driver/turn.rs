//! A turn of a loop, written down while it runs, so that it can be run again elsewhere.

use super::books::Books;
use crate::command::{
    Apply, Command, RecordedCommand, RecordedOp, RecordedProgram, RecordedValue, TensorId,
};
use crate::device::Device;
use crate::engine::{Engine, Settings};
use crate::graph::StorageKey;
use crate::layout::Layout;
use crate::op::{Look, Outputs};
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
    program: RecordedProgram,
    begin: usize,
    step: Arc<StepFuture>,
    carried: Vec<(TensorId, u32)>,
    /// Number in the driver -> in the program.
    tensors: FxHashMap<TensorId, TensorId>,
    /// It speaks of a tensor that is not in the program.
    is_lost: bool,
}

impl Writing {
    fn new(step: Arc<StepFuture>) -> Self {
        Self {
            program: RecordedProgram::default(),
            begin: 0,
            step,
            carried: Vec::new(),
            tensors: FxHashMap::default(),
            is_lost: false,
        }
    }

    /// Writes down the turn that begins with the next command. `value` says which value of the step a storage holds.
    pub fn begin<D: Device>(
        books: &Books<D>,
        step: &Arc<StepFuture>,
        value: impl Fn(StorageKey) -> Option<u32>,
    ) -> Self {
        let mut writing = Self::new(Arc::clone(step));
        let mut tensors: Vec<_> = books.tensors.iter().collect();
        tensors.sort_unstable();
        let mut roots: FxHashMap<StorageKey, TensorId> = FxHashMap::default();
        let mut puts = Vec::new();
        let graph = books.engine.graph();
        for &(_, key) in &tensors {
            let Some(info) = graph.tensor(key) else { continue };
            let of = graph.storage(info.storage);
            let value = value(info.storage);
            let is_used = value.is_some_and(|value| !step.uses(value).is_empty());
            // What the step does not use is in the way only where it cannot be evicted.
            if (is_used || of.producer.is_none()) && !roots.contains_key(&info.storage) {
                let dtype = info.layout.dtype();
                let all = Layout::contiguous(dtype, [of.bytes as usize / dtype.bytes()]);
                let host = Arc::new(RecordedValue::there(all));
                let tensor = writing.program.next();
                let put = Command::Put { tensor, host, leaf: false };
                writing.is_lost |= writing.program.push(put).is_err();
                roots.insert(info.storage, tensor);
                puts.push(tensor);
            }
        }
        for (tensor, key) in tensors {
            let Some(info) = graph.tensor(key) else { continue };
            if let Some(&root) = roots.get(&info.storage) {
                writing
                    .carried
                    .extend(value(info.storage).map(|value| (writing.program.next(), value)));
                let looks = [Look { input: 0, layout: info.layout }];
                let op = RecordedOp { flops: Some(0.0), ..RecordedOp::new("look", 0.0) };
                let made = writing.program.next();
                let look =
                    Apply::new(op, &[root][..], Outputs::Views(looks.into_iter().collect()), made);
                writing.is_lost |= writing.program.push(Command::Apply(look)).is_err();
                writing.tensors.insert(tensor, made);
            }
        }
        for root in puts {
            writing.is_lost |= writing.program.push(Command::Del(root)).is_err();
        }
        writing.begin = writing.program.commands().len();
        writing
    }

    /// The next command, which was executed.
    pub fn push(&mut self, command: &RecordedCommand) {
        let next = self.program.next();
        let mut made = 0;
        command.makes(|tensor| {
            self.tensors.insert(tensor, next.plus(made));
            made += 1;
        });
        // What is not known has a number that is not there, which the program refuses.
        let now = |tensor| self.tensors.get(&tensor).copied().unwrap_or(next);
        let renumbered = command.clone().renumbered(now);
        self.is_lost |= self.program.push(renumbered).is_err();
        command.ends(|tensor| _ = self.tensors.remove(&tensor));
    }

    /// The turn is over. `None` if it could not be written down.
    pub fn finish<D: Device>(self, engine: &Engine<D>) -> Option<Turn> {
        let Self { program, begin, step, carried, is_lost, .. } = self;
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
