//! The stage that stores a copy of each command while memory may not suffice. From the stored
//! commands (the *text*), a search can find a larger, sufficient budget, which the out-of-memory
//! error then names.
//!
//! ```text
//! begin    a quarter of the budget is in use: live values are written down, with their paths
//! hear     each command is written down as issued, also if it fails or is skipped after a failure
//! mark     a step is over: if nothing failed in it, the text is dropped
//! explain  for an out-of-memory error, the text is simulated with other budgets
//! ```
//!
//! The stage stores only the first steps of a program, and the steps after an out-of-memory error.
//! Later steps are assumed to fit in memory if the first steps fit.

use super::books::Books;
use super::transcript::Transcript;
use crate::command::{
    Apply, Command, RecordedCommand, RecordedOp, RecordedProgram, RecordedValue, TensorId,
};
use crate::device::Device;
use crate::engine::{Engine, LastRun, Settings};
use crate::error::{Error, FailureKey, OutOfMemory, PassingBudget};
use crate::evict::PolicyKind;
use crate::graph::{PathKey, Residence, StorageKey};
use crate::layout::{Layout, bytes_of};
use crate::op::{Operation, Outputs};
use crate::store::Work;
use rustc_hash::FxHashMap;
use std::convert::Infallible;
use std::sync::Arc;

/// Number of steps whose commands are stored. One step is not enough: optimizers make their state
/// in the first step, so only the second step begins with that state.
const STEPS: u32 = 2;

/// Limit on the number of stored commands of a step. Beyond the limit, the stage stops storing
/// commands.
const MOST_COMMANDS: usize = 1 << 16;

/// Divisor of the budget: the stage begins to store commands when more than `budget / IN_USE` bytes
/// are in use.
const IN_USE: u64 = 4;

/// The commands of a step that ran out of memory, as a program: all commands issued until the error
/// is reported.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Attempt {
    /// Commands that make all values that were live when storing began, followed by the commands
    /// issued since. Costs are in units of the engine's cost model.
    pub program: RecordedProgram,
    /// Number of leading commands that make the values that were live when storing began.
    pub begin: usize,
    /// The budget that was too small, in bytes.
    pub budget: u64,
    /// Budget in bytes that the failed op would have needed, given the state of memory at its
    /// failure: [`OutOfMemory::op_needed`].
    pub needed: u64,
    /// The eviction policy.
    pub policy: PolicyKind,
    /// Settings of the engine.
    pub settings: Settings,
    /// Whether the engine places blocks in an arena; without an arena, only bytes are counted.
    pub in_arena: bool,
}

/// Searches, by simulated runs, for a budget in bytes with which an attempt passes. Returns `None`
/// if the search finds no such budget.
pub type Rehearse = fn(&Attempt) -> Option<u64>;

/// State of the stage; see the [module](self) documentation.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    rehearse: Option<Rehearse>,
    /// Number of steps whose commands are still to be stored, the current step included.
    steps: u32,
    /// The text (stored commands) of the current step; `None` before its first stored command.
    written: Option<Box<Written>>,
    /// The last explained out-of-memory error, with the budget found. The pair is kept because
    /// several reads may fail with the same error.
    explained: Option<(FailureKey, Option<PassingBudget>)>,
}

/// The text (stored commands) of a step, up to the current command.
#[derive(Debug)]
struct Written {
    transcript: Transcript,
    /// Number of leading commands that make the values that were live when storing began.
    begin: usize,
    /// The current command, which is appended to the text once its run has been measured.
    at_hand: Option<RecordedCommand>,
}

impl Attempts {
    /// Sets the search for budgets that out-of-memory errors name.
    pub fn rehearse_by(&mut self, rehearse: Option<Rehearse>) {
        *self =
            Self { rehearse, steps: if rehearse.is_some() { STEPS } else { 0 }, ..Self::default() };
    }

    /// Stores the next command, if the commands of the current step are stored.
    #[inline(always)]
    pub fn before<D: Device>(&mut self, books: &mut Books<D>, command: &Command<D::Op, D::Host>) {
        if self.steps > 0 && (self.written.is_some() || may_run_out(&books.engine)) {
            self.hear(books, command);
        }
    }

    #[cold]
    #[inline(never)]
    fn hear<D: Device>(&mut self, books: &mut Books<D>, command: &Command<D::Op, D::Host>) {
        if self.written.is_none() {
            self.begin(books);
        }
        let Some(written) = &mut self.written else { return };
        written.settle(&books.engine);
        let transcript = &written.transcript;
        if transcript.program.commands().len() >= MOST_COMMANDS {
            return self.give_up();
        }
        written.at_hand = match command {
            // The tensor was already lost when storing began, so the stored commands do not make
            // the tensor.
            Command::Del(tensor) | Command::Label { tensor, .. } if !transcript.knows(*tensor) => {
                None
            }
            _ => Some(as_meant(books, command)),
        };
    }

    /// Begins a text (stored commands) with commands that make the live values.
    fn begin<D: Device>(&mut self, books: &Books<D>) {
        let (tensors, storages, paths) = books.engine.graph().counts();
        if tensors + storages + paths > MOST_COMMANDS {
            return self.give_up();
        }
        let transcript = live_values(books);
        let begin = transcript.program.commands().len();
        self.written = Some(Box::new(Written { transcript, begin, at_hand: None }));
    }

    /// Drops the text and stores no further commands, because the text is too long.
    fn give_up(&mut self) {
        (self.written, self.steps) = (None, 0);
    }

    /// Drops the stored commands of a step that succeeded. Called at each mark.
    pub fn step_is_over<D: Device>(&mut self, books: &Books<D>) {
        // Keep the stored commands while a failure is unreported: it may be an out-of-memory error
        // of the current step.
        if self.steps > 0 && books.engine.last_failure().is_none() {
            self.written = None;
            self.steps -= 1;
        }
    }

    /// Adds a sufficient budget to an out-of-memory error, if the search finds one.
    pub fn explain<D: Device>(&mut self, books: &Books<D>, error: Error) -> Error {
        let (Error::OutOfMemory(failure), Some(rehearse)) = (&error, self.rehearse) else {
            return error;
        };
        let passing = match self.explained {
            Some((key, passing)) if key == failure.key() => passing,
            _ => {
                let found = self.take(books, failure).and_then(|attempt| {
                    let ops = attempt.program.ops() as u64;
                    Some(PassingBudget { bytes: rehearse(&attempt)?, ops })
                });
                self.steps = STEPS;
                self.explained = Some((failure.key(), found));
                found
            }
        };
        if passing.is_none() {
            return error;
        }
        let with = |error: &OutOfMemory| OutOfMemory { passing, ..error.clone() };
        Error::OutOfMemory(failure.map(with))
    }

    /// Takes the text (stored commands) and returns it as an attempt, whose last command is the
    /// failed command.
    fn take<D: Device>(&mut self, books: &Books<D>, failure: &OutOfMemory) -> Option<Attempt> {
        let mut written = self.written.take()?;
        written.settle(&books.engine);
        let Written { transcript: Transcript { program, is_lost, .. }, begin, .. } = *written;
        // A larger budget does not help if the device itself has too little memory.
        if is_lost || failure.device.is_some() {
            return None;
        }
        let engine = &books.engine;
        Some(Attempt {
            program,
            begin,
            budget: failure.budget,
            needed: failure.op_needed(),
            policy: engine.evictor().kind()?,
            settings: engine.settings().clone(),
            in_arena: engine.arena().is_some(),
        })
    }
}

/// Whether so much memory is in use that the step may run out of memory.
#[inline]
fn may_run_out<D: Device>(engine: &Engine<D>) -> bool {
    engine.used_bytes() > engine.budget() / IN_USE
}

impl Written {
    /// Appends the current command with the measurements of its run. The workspace of an op that
    /// ran out of memory is estimated from the request size that the error states.
    fn settle<D: Device>(&mut self, engine: &Engine<D>) {
        let Some(mut command) = self.at_hand.take() else { return };
        let run = engine.last_run();
        let did_run = run != LastRun::default();
        match &mut command {
            Command::Put { host, .. } => *host = written(host.layout, run),
            Command::Apply(call) if did_run => call.op = call.op.clone().after(run),
            Command::Apply(call) => {
                // The request may include the outputs, so only bytes in excess of the outputs count
                // as workspace.
                let wanted = engine.last_failure().and_then(|failure| match failure {
                    Error::OutOfMemory(failure) if *failure.op == *call.op.name => {
                        Some(failure.wanted)
                    }
                    _ => None,
                });
                let (_, fresh) = call.outputs.written().unwrap_or_default();
                let made = bytes_of(fresh);
                let scratch = wanted.map_or(0, |wanted| wanted.saturating_sub(made));
                call.op.workspace = call.op.workspace.max(scratch);
            }
            _ => {}
        }
        self.transcript.push(&command);
    }
}

/// A transcript that makes all values that are live between two commands. The made values are the
/// leaves and the outputs of compute paths, in the order in which the paths were made.
///
/// The transcript deletes an unheld storage after the last path that reads the storage. The running
/// program may have deleted the storage there too.
fn live_values<D: Device>(books: &Books<D>) -> Transcript {
    let mut transcript = Transcript::default();
    let mut roots: FxHashMap<StorageKey, TensorId> = FxHashMap::default();
    let graph = books.engine.graph();
    let layouts: FxHashMap<StorageKey, Layout> = books
        .tensors
        .iter()
        .filter_map(|(_, key)| graph.tensor(key).map(|info| (info.storage, info.layout)))
        .collect();
    let mut leaves: Vec<_> = graph
        .storages()
        .filter(|(_, of)| of.producer.is_none() && matches!(of.residence, Residence::Resident(_)))
        .map(|(storage, of)| (storage, of.bytes))
        .collect();
    leaves.sort_unstable();
    for (storage, bytes) in leaves {
        roots.insert(storage, transcript.put_constant(bytes, layouts.get(&storage)));
    }
    let mut paths: Vec<(u64, PathKey)> =
        graph.paths.iter().map(|(path, of)| (of.sequence, path)).collect();
    paths.sort_unstable();
    // For each path, the unheld storages of which it is the last reader.
    let mut last_reads: FxHashMap<PathKey, Vec<StorageKey>> = FxHashMap::default();
    for (storage, of) in graph.storages().filter(|(_, of)| of.handles == 0) {
        if let Some(last) = of.users.iter().max_by_key(|user| graph.path(user.path).sequence) {
            last_reads.entry(last.path).or_default().push(storage);
        }
    }
    for (_, path) in paths {
        add_path(&mut transcript, &mut roots, &books.engine, path);
        let mut gone = last_reads.remove(&path).unwrap_or_default();
        gone.sort_unstable();
        for root in gone.iter().filter_map(|storage| roots.remove(storage)) {
            transcript.add(Command::Del(root));
        }
    }
    transcript.look(books, &roots, |_, _| {});
    transcript
}

/// Writes down a compute path: its op or upload, and deletions of the outputs that no longer exist.
fn add_path<D: Device>(
    transcript: &mut Transcript,
    roots: &mut FxHashMap<StorageKey, TensorId>,
    engine: &Engine<D>,
    path: PathKey,
) {
    let (of, (body, run)) = (engine.graph().path(path), engine.body(path));
    let made = transcript.program.next();
    match &body.work {
        Work::Upload(host) => {
            let host = written(D::layout_of(host), run);
            transcript.add(Command::Put { tensor: made, host, leaf: false });
        }
        Work::Op(op) => {
            // A lost input has no tensor in the program. The output's number stands in for the
            // input, so that the program refuses the command.
            let input = |storage| roots.get(storage).copied().unwrap_or(made);
            let inputs: Vec<_> = of.inputs.iter().map(|edge| input(&edge.storage)).collect();
            let outputs = match body.over {
                true => Outputs::Over,
                false => Outputs::Fresh(body.outputs().into()),
            };
            transcript.add(Command::Apply(Apply::new(recorded(op, run), inputs, outputs, made)));
        }
    }
    for (tensor, output) in made.and_next(of.outputs.len()).zip(&of.outputs) {
        match output {
            Some(storage) => _ = roots.insert(*storage, tensor),
            None => transcript.add(Command::Del(tensor)),
        }
    }
}

/// The recorded form of a command before its run. Costs and sizes are predictions, because the
/// command may not run after a failure.
fn as_meant<D: Device>(books: &mut Books<D>, command: &Command<D::Op, D::Host>) -> RecordedCommand {
    let Books { engine, tensors, .. } = books;
    if let Command::Put { tensor, host, leaf } = command {
        let host = written(D::layout_of(host), LastRun::default());
        return Command::Put { tensor: *tensor, host, leaf: *leaf };
    }
    let fails = engine.last_failure().is_some();
    let meant: Result<_, Infallible> = command.try_map(
        |op, call| {
            let layout = |&input| Some(engine.graph().tensor(tensors.get(input)?)?.layout);
            let inputs: Option<Vec<Layout>> = call.inputs.iter().map(layout).collect();
            let run = match (inputs.filter(|_| fails), call.outputs.written()) {
                (Some(inputs), Some((targets, fresh))) => {
                    let updated = &inputs[..targets.min(inputs.len())];
                    engine.expect_op(op, &inputs, &[updated, fresh].concat())
                }
                _ => LastRun { rematerializable: op.rematerializable(), ..LastRun::default() },
            };
            Ok(recorded(op, run))
        },
        |_, _| unreachable!("a put is written down above"),
    );
    meant.unwrap_or_else(|never| match never {})
}

fn recorded(op: &impl Operation, run: LastRun) -> RecordedOp {
    RecordedOp::new(op.name(), 0.0).after(run)
}

fn written(layout: Layout, run: LastRun) -> Arc<RecordedValue> {
    Arc::new(RecordedValue { layout, cost: Some(run.cost), reruns: None })
}

#[cfg(test)]
mod tests;
