//! Collectives of a program: the recorded ones, or an all-reduce of each gradient.

use super::gradients::gradients;
use crate::collective::{Pattern, START, WAIT};
use crate::command::{Apply, RecordedCommand, RecordedOp, RecordedProgram, TensorId};
use crate::layout::Layout;
use crate::op::Outputs;
use rustc_hash::{FxHashMap, FxHashSet};

/// Collective of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exchange {
    pub pattern: Pattern,
    /// Bytes of the whole tensor: see [`Pattern::traffic`].
    pub bytes: u64,
    /// Tensor with the result.
    pub result: TensorId,
    /// Tensor that is sent.
    pub input: TensorId,
    /// Position of a command. Up to this command, ops read the value of this rank instead of the
    /// result, because the backward pass goes on with that value.
    pub local_until: usize,
    /// Whether the computation goes on during the collective, unless the user chooses otherwise.
    pub overlaps: bool,
}

/// All collectives of a program.
#[derive(Debug, Default)]
pub(super) struct Exchanges {
    /// Position of a command -> collectives that begin after the command.
    after: FxHashMap<usize, Vec<Exchange>>,
    /// Position of an update in place -> the results that it reads.
    read_by: FxHashMap<usize, Vec<TensorId>>,
}

impl Exchanges {
    pub fn of(program: &RecordedProgram, tensors: &Tensors) -> Self {
        let recorded = Self::recorded(program, tensors);
        if recorded.after.is_empty() { Self::of_gradients(program, tensors) } else { recorded }
    }

    fn recorded(program: &RecordedProgram, tensors: &Tensors) -> Self {
        let mut recorded = Self::default();
        let results = Results::of(program);
        for (at, command) in program.commands().iter().enumerate() {
            for call in command.calls() {
                match recorded_exchange(call, tensors, &results) {
                    Some(exchange) => recorded.after.entry(at).or_default().push(exchange),
                    None if call.outputs.are_updates() => {
                        let read = call.inputs.iter().skip(call.outputs.targets());
                        recorded.read_by.entry(at).or_default().extend(read);
                    }
                    None => {}
                }
            }
        }
        recorded
    }

    /// An all-reduce of each gradient, as soon as the gradient is complete.
    fn of_gradients(program: &RecordedProgram, tensors: &Tensors) -> Self {
        let mut made = Self::default();
        let mut seen = FxHashSet::default();
        let mut of_step: Vec<(usize, Exchange)> = Vec::new();
        let mut gradients = gradients(program, tensors).into_iter().peekable();
        for (at, command) in program.commands().iter().enumerate() {
            while let Some((gradient, update)) = gradients.next_if(|(_, update)| *update == at) {
                made.read_by.entry(update).or_default().push(gradient);
                if seen.insert(gradient) {
                    let complete = tensors.makers[tensors.origin(gradient).index()] as usize;
                    of_step.push((
                        complete,
                        Exchange {
                            pattern: Pattern::AllReduce,
                            bytes: tensors.layouts[gradient.index()].bytes(),
                            result: gradient,
                            input: gradient,
                            local_until: 0,
                            overlaps: true,
                        },
                    ));
                }
            }
            if matches!(command, RecordedCommand::Step) || at + 1 == program.commands().len() {
                let last = of_step.iter().map(|(complete, _)| *complete).max().unwrap_or(0);
                for (complete, exchange) in of_step.drain(..) {
                    let exchange = Exchange { local_until: last, ..exchange };
                    made.after.entry(complete).or_default().push(exchange);
                }
            }
        }
        made
    }

    /// Results that an update in place reads; `None` if the command at position `at` is no update.
    pub fn read_by(&self, at: usize) -> Option<&[TensorId]> {
        self.read_by.get(&at).map(Vec::as_slice)
    }

    /// Collectives that begin after the command at position `at`.
    pub fn after(&self, at: usize) -> &[Exchange] {
        self.after.get(&at).map_or(&[], Vec::as_slice)
    }

    /// All collectives, in any order.
    pub fn all(&self) -> impl Iterator<Item = &Exchange> {
        self.after.values().flatten()
    }
}

/// Collective that a recorded op stands for; `None` for an op that is no collective.
fn recorded_exchange(
    call: &Apply<RecordedOp>,
    tensors: &Tensors,
    results: &Results,
) -> Option<Exchange> {
    let pattern = pattern_of(call)?;
    let (&input, own) = (call.inputs.first()?, call.outputs().next()?);
    let result = results.0.get(&own).copied().unwrap_or(own);
    let whole = if pattern == Pattern::AllGather { result } else { input };
    let bytes = tensors.layouts[whole.index()].bytes();
    Some(Exchange { pattern, bytes, result, input, local_until: 0, overlaps: is_start(call) })
}

/// Results of all-reduces that were started: output of the start -> output of the op that waits.
/// Ops wait for the sums in the order of their starts.
struct Results(FxHashMap<TensorId, TensorId>);

impl Results {
    fn of(program: &RecordedProgram) -> Self {
        let calls = || program.commands().iter().flat_map(RecordedCommand::calls);
        let starts = calls().filter(|call| is_start(call)).flat_map(Apply::outputs);
        let waits = calls().filter(|call| waits(call)).flat_map(Apply::outputs);
        Self(starts.zip(waits).collect())
    }
}

fn pattern_of(call: &Apply<RecordedOp>) -> Option<Pattern> {
    let pattern =
        if is_start(call) { Some(Pattern::AllReduce) } else { Pattern::named(&call.op.name) };
    pattern.filter(|_| !call.op.rematerializable)
}

/// Whether an op starts an all-reduce without waiting for the sum.
fn is_start(call: &Apply<RecordedOp>) -> bool {
    &*call.op.name == START && !call.op.rematerializable
}

/// Whether an op waits for an all-reduce that was started. The output of the op that waits is the
/// sum.
pub(super) fn waits(call: &Apply<RecordedOp>) -> bool {
    &*call.op.name == WAIT && !call.op.rematerializable
}

/// Whether an op is a recorded collective.
pub(super) fn is_collective(call: &Apply<RecordedOp>) -> bool {
    pattern_of(call).is_some()
}

/// Recorded cost of the collectives that a command runs or waits for. An op that starts an
/// all-reduce only copies, so its cost is left out.
pub(super) fn cost_of_collectives(command: &RecordedCommand) -> f64 {
    let takes_time =
        |call: &&Apply<RecordedOp>| waits(call) || is_collective(call) && !is_start(call);
    let collectives = command.calls().iter().filter(takes_time);
    collectives.map(|call| call.op.cost).sum()
}

/// Layouts of all tensors of a program, and where each tensor comes from.
#[derive(Debug, Default)]
pub(super) struct Tensors {
    pub layouts: Vec<Layout>,
    /// Tensor -> position of the command that makes the tensor.
    pub makers: Vec<u32>,
    /// View or replacement -> the tensor whose bytes it shows.
    shows: FxHashMap<TensorId, TensorId>,
}

impl Tensors {
    pub fn of(program: &RecordedProgram) -> Self {
        let mut tensors = Self::default();
        for (at, command) in program.commands().iter().enumerate() {
            match command {
                RecordedCommand::Put { host, .. } => tensors.layouts.push(host.layout),
                &RecordedCommand::Replace { value, made, .. } => {
                    tensors.layouts.push(tensors.layouts[value.index()]);
                    tensors.shows.insert(made, value);
                }
                _ => command.calls().iter().for_each(|call| tensors.call(call)),
            }
            tensors.makers.resize(tensors.layouts.len(), at as u32);
        }
        tensors
    }

    fn call(&mut self, call: &Apply<RecordedOp>) {
        for (output, made) in call.outputs().enumerate() {
            let input = |input: usize| self.layouts[call.inputs[input].index()];
            self.layouts.push(call.outputs.layout(output, input));
            if let Outputs::Views(looks) = &call.outputs {
                self.shows.insert(made, call.inputs[looks[output].input]);
            }
        }
    }

    /// The tensor whose bytes a view or a replacement shows; `None` for other tensors.
    pub fn shown(&self, tensor: TensorId) -> Option<TensorId> {
        self.shows.get(&tensor).copied()
    }

    /// The tensor whose bytes `tensor` shows, after all views are followed.
    pub fn origin(&self, tensor: TensorId) -> TensorId {
        std::iter::successors(Some(tensor), |&tensor| self.shown(tensor)).last().unwrap_or(tensor)
    }
}
