//! Logs of the DTR paper: the ops of one training step in PyTorch, one JSON object a line.
//!
//! ```text
//! {"INSTRUCTION":"CONSTANT","NAME":"w"}                                  was there before the step
//! {"INSTRUCTION":"MEMORY","NAME":"w","MEMORY":"64"}                      bytes of it
//! {"INSTRUCTION":"CALL","NAME":"t","ARGS":["w"],"RESULT":["v"],"TIME":"9"}    nanoseconds
//! {"INSTRUCTION":"MEMORY","NAME":"v","MEMORY":"64"}                      for each result, one such pair
//! {"INSTRUCTION":"ALIAS","NAME":"v","ALIAS":"0"}                         a view of argument 0
//! {"INSTRUCTION":"MUTATE","NAME":"add_","ARGS":["v"],"MUTATE":[0],"TIME":"9"}
//! {"INSTRUCTION":"COPY","DST":"a","SRC":"v"}                             one more name
//! {"INSTRUCTION":"COPY_FROM","DST":"a","SRC":"w"}                        a name for another tensor
//! {"INSTRUCTION":"RELEASE","NAME":"a"}                                   a tensor without names goes
//! ```
//!
//! Logs are interpreted as in the paper's simulator. An op that changes an argument makes a new
//! tensor, which takes over the name of the argument. A view takes no memory, but takes time. A
//! tensor that has a name at the end of the log must be resident at the end: if it was evicted, it
//! is regenerated.

mod line;
mod names;

use super::TraceProblem;
use super::error::short;
use super::lines::Lines;
use crate::command::{Command, RecordedOp, RecordedProgram, RecordedValue, TensorId};
use crate::lab::step::{Carried, Step};
use crate::lab::writer::{Writer, raw};
use crate::layout::Layout;
use crate::op::{Look, Outputs};
use line::{Alias, Count, Line, Text};
use names::{NameId, Names};
use rustc_hash::FxHashSet;
use std::io::BufRead;

/// Reads a log whose first line is the current line. The log is one step.
pub(super) fn read(
    lines: &mut Lines<impl BufRead>,
) -> Result<(RecordedProgram, Step), TraceProblem> {
    let mut log = Log::default();
    // Lines before ANNOTATE START are ignored, including their errors. The first error is kept, in
    // case no START follows.
    let mut started = false;
    let mut failed = None;
    loop {
        let line: Line<'_> = serde_json::from_str(lines.text())?;
        if !started && is_start(&line) {
            (log, started, failed) = (Log::default(), true, None);
        } else if failed.is_none() {
            let counts = line.instruction.0 != "ANNOTATE";
            match log.line(line) {
                Ok(()) if counts => lines.count(),
                Ok(()) => {}
                Err(problem) if started => return Err(problem),
                Err(problem) => failed = Some((problem, lines.number())),
            }
        }
        if !lines.advance()? {
            break;
        }
    }
    match failed {
        Some((problem, line)) => {
            lines.blame(line);
            Err(problem)
        }
        None => log.end(),
    }
}

fn is_start(line: &Line<'_>) -> bool {
    line.instruction.0 == "ANNOTATE" && line.annotation.as_ref().is_some_and(|a| a.0 == "START")
}

#[derive(Default)]
struct Log {
    program: Writer,
    names: Names,
    /// Tensor -> bytes of its storage, which a view shares with its argument.
    storage_bytes: Vec<u64>,
    constants: Vec<(NameId, TensorId)>,
    waiting: Option<Waiting>,
}

/// Instruction that needs further lines.
enum Waiting {
    /// A constant, whose MEMORY line is next.
    Constant(NameId),
    /// A call. The next lines are MEMORY and ALIAS of the first result that is not in `made`.
    Call {
        call: Call,
        made: Vec<Made>,
        /// `Some` iff ALIAS is next.
        bytes: Option<u64>,
    },
}

struct Call {
    op: String,
    args: Vec<TensorId>,
    results: Vec<NameId>,
    cost: f64,
}

/// Origin of a result.
enum Made {
    Fresh(Layout),
    /// A view of the argument at this position.
    View(usize),
}

impl Log {
    fn line(&mut self, line: Line<'_>) -> Result<(), TraceProblem> {
        match self.waiting.take() {
            None => self.instruction(line),
            Some(Waiting::Constant(name)) => self.constant(name, line),
            Some(Waiting::Call { call, made, bytes }) => self.result(call, made, bytes, line),
        }
    }

    fn instruction(&mut self, line: Line<'_>) -> Result<(), TraceProblem> {
        match &*line.instruction.0 {
            "CONSTANT" => {
                let name = self.new_name(&need(line.name, "CONSTANT", "NAME")?.0)?;
                self.waiting = Some(Waiting::Constant(name));
                Ok(())
            }
            "CALL" => self.call(line),
            "MUTATE" => self.mutate(line),
            "COPY" => {
                let tensor = self.tensor(&need(line.src, "COPY", "SRC")?.0)?;
                let name = self.new_name(&need(line.dst, "COPY", "DST")?.0)?;
                self.bind(name, tensor)
            }
            "COPY_FROM" => {
                let tensor = self.tensor(&need(line.src, "COPY_FROM", "SRC")?.0)?;
                let name = self.name(&need(line.dst, "COPY_FROM", "DST")?.0)?;
                self.bind(name, tensor)
            }
            "RELEASE" => {
                let name = self.names.find(&need(line.name, "RELEASE", "NAME")?.0);
                match name.and_then(|name| self.names.release(name)) {
                    Some(dead) => Ok(self.program.push(Command::Del(dead))?),
                    None => Ok(()),
                }
            }
            "ANNOTATE" => Ok(()),
            "MEMORY" | "ALIAS" => Err(TraceProblem::Unexpected {
                expected: "an instruction".to_owned(),
                found: describe(&line),
            }),
            other => Err(TraceProblem::UnknownInstruction(other.to_owned())),
        }
    }

    fn constant(&mut self, name: NameId, line: Line<'_>) -> Result<(), TraceProblem> {
        self.check_line_for(&line, "MEMORY", name)?;
        let Count(bytes) = need(line.memory, "MEMORY", "MEMORY")?;
        raw(bytes)?;
        let tensor = self.program.put(RecordedValue::constant(bytes))?;
        self.storage_bytes.push(bytes);
        self.constants.push((name, tensor));
        self.bind(name, tensor)
    }

    fn call(&mut self, line: Line<'_>) -> Result<(), TraceProblem> {
        let op = need(line.name, "CALL", "NAME")?.0.into_owned();
        let args = need(line.args, "CALL", "ARGS")?;
        let args = args.iter().map(|arg| self.tensor(&arg.0)).collect::<Result<_, _>>()?;
        let results = need(line.result, "CALL", "RESULT")?;
        let results: Vec<NameId> =
            results.iter().map(|name| self.new_name(&name.0)).collect::<Result<_, _>>()?;
        let Count(time) = need(line.time, "CALL", "TIME")?;
        if results.is_empty() {
            return Ok(self.program.elapse(time as f64)?);
        }
        let call = Call { op, args, results, cost: time as f64 };
        self.waiting = Some(Waiting::Call { call, made: vec![], bytes: None });
        Ok(())
    }

    fn result(
        &mut self,
        call: Call,
        mut made: Vec<Made>,
        bytes: Option<u64>,
        line: Line<'_>,
    ) -> Result<(), TraceProblem> {
        let name = call.results[made.len()];
        let Some(bytes) = bytes else {
            self.check_line_for(&line, "MEMORY", name)?;
            let Count(bytes) = need(line.memory, "MEMORY", "MEMORY")?;
            self.waiting = Some(Waiting::Call { call, made, bytes: Some(bytes) });
            return Ok(());
        };
        self.check_line_for(&line, "ALIAS", name)?;
        made.push(match need(line.alias, "ALIAS", "ALIAS")? {
            Alias(None) => Made::Fresh(raw(bytes)?),
            Alias(Some(index)) => Made::View(position("ALIAS", index, call.args.len())?),
        });
        if made.len() < call.results.len() {
            self.waiting = Some(Waiting::Call { call, made, bytes: None });
            return Ok(());
        }
        self.called(&call, &made)
    }

    /// Adds one op, or two ops if the call has both views and new tensors as results. With two ops,
    /// an op without cost makes the views.
    fn called(&mut self, call: &Call, made: &[Made]) -> Result<(), TraceProblem> {
        let fresh = made.iter().filter_map(|made| match made {
            Made::Fresh(layout) => Some(*layout),
            Made::View(_) => None,
        });
        // A view has no bytes of its own.
        let looks = made.iter().filter_map(|made| match *made {
            Made::Fresh(_) => None,
            Made::View(input) => Some(Look { input, layout: Layout::raw(0) }),
        });
        let mut cost = call.cost;
        let mut first = [TensorId::default(); 2];
        let outputs = [Outputs::fresh(fresh), Outputs::Views(looks.collect())];
        for (outputs, first) in outputs.into_iter().zip(&mut first) {
            if !outputs.is_empty() {
                *first = self.apply(&call.op, cost, &call.args, outputs)?;
                cost = 0.0;
            }
        }
        for (made, &name) in made.iter().zip(&call.results) {
            let next = &mut first[usize::from(matches!(made, Made::View(_)))];
            let tensor = *next;
            *next = next.plus(1);
            self.bind(name, tensor)?;
        }
        Ok(())
    }

    fn mutate(&mut self, line: Line<'_>) -> Result<(), TraceProblem> {
        let op = need(line.name, "MUTATE", "NAME")?;
        let args = need(line.args, "MUTATE", "ARGS")?;
        let tensors: Vec<TensorId> =
            args.iter().map(|arg| self.tensor(&arg.0)).collect::<Result<_, _>>()?;
        let changed = need(line.mutate, "MUTATE", "MUTATE")?;
        let Count(time) = need(line.time, "MUTATE", "TIME")?;
        let mut made = vec![];
        let mut names = vec![];
        let mut seen = FxHashSet::default();
        for Count(index) in changed {
            let index = position("MUTATE", index, args.len())?;
            let name = self.name(&args[index].0)?;
            if !seen.insert(name) {
                return Err(TraceProblem::MutatedTwice);
            }
            made.push(raw(self.storage_bytes[tensors[index].index()])?);
            names.push(name);
        }
        if made.is_empty() {
            return Ok(self.program.elapse(time as f64)?);
        }
        let first = self.apply(&op.0, time as f64, &tensors, Outputs::fresh(made))?;
        let tensors = first.and_next(names.len());
        tensors.zip(names).try_for_each(|(tensor, name)| self.bind(name, tensor))
    }

    /// Adds an op to the program. Returns the first output of the op.
    fn apply(
        &mut self,
        name: &str,
        cost: f64,
        args: &[TensorId],
        outputs: Outputs,
    ) -> Result<TensorId, TraceProblem> {
        let bytes: Vec<u64> = match outputs.written() {
            Some((_, fresh)) => fresh.iter().map(Layout::bytes).collect(),
            None => {
                let seen = outputs.views().iter().map(|look| args[look.input].index());
                seen.map(|tensor| self.storage_bytes[tensor]).collect()
            }
        };
        let first = self.program.apply(RecordedOp::new(name, cost), args, outputs)?;
        self.storage_bytes.extend(bytes);
        Ok(first)
    }

    fn bind(&mut self, name: NameId, tensor: TensorId) -> Result<(), TraceProblem> {
        match self.names.bind(name, tensor) {
            Some(dead) => Ok(self.program.push(Command::Del(dead))?),
            None => Ok(()),
        }
    }

    fn new_name(&mut self, name: &str) -> Result<NameId, TraceProblem> {
        self.names.reserve(name).ok_or_else(|| TraceProblem::TakenName(name.to_owned()))
    }

    fn name(&self, name: &str) -> Result<NameId, TraceProblem> {
        self.names.find(name).ok_or_else(|| TraceProblem::UnknownName(name.to_owned()))
    }

    /// Tensor of a name, if some name still holds the tensor.
    fn tensor(&self, name: &str) -> Result<TensorId, TraceProblem> {
        match self.names.tensor(self.name(name)?) {
            Some(tensor) if self.names.is_alive(tensor) => Ok(tensor),
            Some(_) => Err(TraceProblem::ReleasedName(name.to_owned())),
            None => Err(TraceProblem::UnknownName(name.to_owned())),
        }
    }

    /// Checks that the line has this instruction and this name.
    fn check_line_for(
        &self,
        line: &Line<'_>,
        instruction: &str,
        name: NameId,
    ) -> Result<(), TraceProblem> {
        let named = line.name.as_ref().and_then(|found| self.names.find(&found.0));
        if line.instruction.0 == instruction && named == Some(name) {
            return Ok(());
        }
        let expected = format!("{instruction} of `{}`", short(self.names.text(name)));
        Err(TraceProblem::Unexpected { expected, found: describe(line) })
    }

    /// Ends the log. Each tensor that still has a name is committed, so it is resident at the end.
    fn end(mut self) -> Result<(RecordedProgram, Step), TraceProblem> {
        let missing = match &self.waiting {
            None => None,
            Some(Waiting::Constant(name)) => Some(("MEMORY", *name)),
            Some(Waiting::Call { call, made, bytes }) => {
                let instruction = if bytes.is_some() { "ALIAS" } else { "MEMORY" };
                Some((instruction, call.results[made.len()]))
            }
        };
        if let Some((instruction, name)) = missing {
            let expected = format!("{instruction} of `{}`", short(self.names.text(name)));
            return Err(TraceProblem::Unexpected { expected, found: "the end".to_owned() });
        }
        let step = Step::new(0..self.program.program().commands().len(), self.carried());
        let mut committed = vec![false; self.program.program().tensors()];
        for tensor in self.names.alive() {
            if !std::mem::replace(&mut committed[tensor.index()], true) {
                self.program.push(Command::Commit(tensor))?;
            }
        }
        Ok((self.program.finish(), step))
    }

    /// Constants that the next step takes over. The tensor that has a constant's name at the end of
    /// this step replaces the constant in the next step. A tensor with the names of two constants
    /// replaces only one of them: the constant that it is, or else the first constant.
    fn carried(&self) -> Vec<Carried> {
        let ends = || {
            self.constants.iter().filter_map(|&(name, start)| {
                let end = self.names.tensor(name).filter(|&end| self.names.is_alive(end))?;
                Some((start, end))
            })
        };
        let mut taken: FxHashSet<TensorId> =
            ends().filter(|(start, end)| start == end).map(|(_, end)| end).collect();
        ends()
            .filter(|&(start, end)| start == end || taken.insert(end))
            .map(|(start, end)| Carried { start, end, commit: true })
            .collect()
    }
}

fn need<T>(
    value: Option<T>,
    instruction: &'static str,
    field: &'static str,
) -> Result<T, TraceProblem> {
    value.ok_or(TraceProblem::Missing { instruction, field })
}

fn position(field: &'static str, index: u64, count: usize) -> Result<usize, TraceProblem> {
    match usize::try_from(index) {
        Ok(index) if index < count => Ok(index),
        _ => Err(TraceProblem::Argument { field, index, count }),
    }
}

fn describe(line: &Line<'_>) -> String {
    let instruction = short(&line.instruction.0);
    match &line.name {
        Some(Text(name)) => format!("{instruction} of `{}`", short(name)),
        None => instruction.into_owned(),
    }
}
