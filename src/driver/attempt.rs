//! The stage that writes down what a program attempts while memory may not suffice for it, so that an out-of-memory error can
//! name a budget that is enough.
//!
//! ```text
//! begin    a quarter of the budget is in use: what is there is written down with the compute paths that made it
//! hear     each command, as it is meant: those that fail, and those that are skipped for that, too
//! mark     a step is over: if nothing failed in it, what was written down is forgotten
//! explain  somebody is told of an out-of-memory: all that was written down is rehearsed in other budgets
//! ```
//!
//! The first steps of a program are written down so, and those after an out-of-memory. Where these fit, later ones are like them,
//! and nothing is written down any more.

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
use crate::layout::Layout;
use crate::op::{Operation, Outputs};
use crate::store::Work;
use rustc_hash::FxHashMap;
use std::convert::Infallible;
use std::sync::Arc;

/// Steps that are written down. In the first, optimizers make their state; in the second, all of that is there.
const STEPS: u32 = 2;

/// More commands than this are not written down.
const MOST_COMMANDS: usize = 1 << 16;

/// A step is written down once one part in so many of the budget is in use.
const IN_USE: u64 = 4;

/// A program up to where an out-of-memory was told: the commands that ran, and those that could not.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Attempt {
    /// Commands that make all that was there before the run, and those of the run. Costs are in the units of the engine's cost
    /// model.
    pub program: RecordedProgram,
    /// Number of the commands that make what was there before.
    pub begin: usize,
    /// The budget that was too small, in bytes.
    pub budget: u64,
    /// The budget that the op needed which ran out of memory, as things were then, in bytes: [`OutOfMemory::op_needed`].
    pub needed: u64,
    /// The policy that evicted.
    pub policy: PolicyKind,
    /// Settings of the engine.
    pub settings: Settings,
    /// Whether it has an arena; otherwise it only counts bytes.
    pub in_arena: bool,
}

/// Finds a budget that an attempt passes with, by simulated runs; `None` if it finds none.
pub type Rehearse = fn(&Attempt) -> Option<u64>;

/// See the [module](self) documentation.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    rehearse: Option<Rehearse>,
    /// Steps to come that are written down, the one at hand included.
    steps: u32,
    /// The step at hand, once it is written down.
    written: Option<Box<Written>>,
    /// The last out-of-memory that was explained, and what was found: others may ask about it, too.
    explained: Option<(FailureKey, Option<PassingBudget>)>,
}

/// A step, as far as it came.
#[derive(Debug)]
struct Written {
    transcript: Transcript,
    /// How many commands make what was there.
    begin: usize,
    /// The command at hand: it is written once it is known what its run was like.
    at_hand: Option<RecordedCommand>,
}

impl Attempts {
    /// Lets out-of-memory errors name a budget that this finds.
    pub fn rehearse_by(&mut self, rehearse: Option<Rehearse>) {
        *self =
            Self { rehearse, steps: if rehearse.is_some() { STEPS } else { 0 }, ..Self::default() };
    }

    /// Writes down the next command, in a step that is written down.
    #[inline(always)]
    pub fn before<D: Device>(&mut self, books: &mut Books<D>, command: &Command<D::Op, D::Host>) {
        if self.steps > 0 {
            self.hear(books, command);
        }
    }

    #[cold]
    #[inline(never)]
    fn hear<D: Device>(&mut self, books: &mut Books<D>, command: &Command<D::Op, D::Host>) {
        if self.written.is_none() && !self.begin(books) {
            return;
        }
        let Some(written) = &mut self.written else { return };
        written.settle(&books.engine);
        let transcript = &written.transcript;
        if transcript.program.commands().len() >= MOST_COMMANDS {
            return self.give_up();
        }
        written.at_hand = match command {
            // It was lost before this was begun.
            Command::Del(tensor) | Command::Label { tensor, .. } if !transcript.knows(*tensor) => {
                None
            }
            _ => Some(as_meant(books, command)),
        };
    }

    /// Writes down what is there, if so much is in use that memory may not suffice. Whether it was.
    fn begin<D: Device>(&mut self, books: &Books<D>) -> bool {
        let engine = &books.engine;
        if engine.used_bytes() <= engine.budget() / IN_USE {
            return false;
        }
        let (tensors, storages, paths) = engine.graph().counts();
        if tensors + storages + paths > MOST_COMMANDS {
            self.give_up();
            return false;
        }
        let transcript = what_is_there(books);
        let begin = transcript.program.commands().len();
        self.written = Some(Box::new(Written { transcript, begin, at_hand: None }));
        true
    }

    /// Writes nothing more: there is too much.
    fn give_up(&mut self) {
        (self.written, self.steps) = (None, 0);
    }

    /// The end of a step was marked.
    pub fn step_is_over<D: Device>(&mut self, books: &Books<D>) {
        // An out-of-memory of it may be told later.
        if self.steps > 0 && books.engine.last_failure().is_none() {
            self.written = None;
            self.steps -= 1;
        }
    }

    /// The error, with a budget that would have been enough, if one is found.
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

    /// Takes what is written down, up to this failure.
    fn take<D: Device>(&mut self, books: &Books<D>, failure: &OutOfMemory) -> Option<Attempt> {
        let mut written = self.written.take()?;
        written.settle(&books.engine);
        let Written { transcript: Transcript { program, is_lost, .. }, begin, .. } = *written;
        // A budget does not help where the device has less than that.
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

impl Written {
    /// Writes the command at hand, with what its run was like. One that failed wants what the error says.
    fn settle<D: Device>(&mut self, engine: &Engine<D>) {
        let Some(mut command) = self.at_hand.take() else { return };
        let run = engine.last_run();
        let did_run = run != LastRun::default();
        match &mut command {
            Command::Put { host, .. } => *host = written(host.layout, run),
            Command::Apply(call) if did_run => call.op = call.op.clone().after(run),
            Command::Apply(call) => {
                // It is not known how much of that is scratch: some of it may be outputs.
                let wanted = engine.last_failure().and_then(|failure| match failure {
                    Error::OutOfMemory(failure) if *failure.op == *call.op.name => {
                        Some(failure.wanted)
                    }
                    _ => None,
                });
                let (_, fresh) = call.outputs.written().unwrap_or_default();
                let made = fresh.iter().map(Layout::bytes).fold(0, u64::saturating_add);
                let scratch = wanted.map_or(0, |wanted| wanted.saturating_sub(made));
                call.op.workspace = call.op.workspace.max(scratch);
            }
            _ => {}
        }
        self.transcript.push(&command);
    }
}

/// All that is there between two commands: leaves, and what compute paths made of them, in the order in which those ran. What
/// nobody holds goes after the last path that reads it, as it may have gone in the run.
fn what_is_there<D: Device>(books: &Books<D>) -> Transcript {
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
    // Of what nobody holds: the last path that reads it.
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

/// Writes down a path: its op or upload, and which of its outputs are gone.
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
            // What is lost has no root, and is refused.
            let input = |storage| roots.get(storage).copied().unwrap_or(made);
            let inputs: Vec<_> = of.inputs.iter().map(|edge| input(&edge.storage)).collect();
            let outputs = Outputs::Fresh(body.outputs().into());
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

/// A command before it is run. What will not run, since something failed, is estimated.
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
