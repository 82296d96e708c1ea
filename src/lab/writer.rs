//! Writer of programs, which checks sizes and costs so that their sums cannot overflow.

use crate::command::{
    Apply, Command, ProgramError, RecordedCommand, RecordedOp, RecordedProgram, RecordedValue,
    TensorId,
};
use crate::layout::Layout;
use crate::op::Outputs;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// A program under construction, from a file or from another program.
#[derive(Debug, Default)]
pub(super) struct Writer {
    program: RecordedProgram,
    /// Cost of all commands written.
    cost: f64,
    /// Names and attributes of ops, each stored once. A replay changes the reference counts of the
    /// texts of each op that it runs. With few texts, these counters stay in the processor's cache.
    texts: FxHashSet<Arc<str>>,
}

impl Writer {
    pub fn finish(self) -> RecordedProgram {
        self.program
    }

    pub const fn program(&self) -> &RecordedProgram {
        &self.program
    }

    /// Adds a command.
    pub fn push(&mut self, mut command: RecordedCommand) -> Result<(), ProgramError> {
        if let Command::Put { host, .. } = &command {
            check_number("the cost", host.cost.unwrap_or(0.0))?;
            ProgramError::check_size(host.layout.bytes())?;
        }
        for Apply { op, .. } in command.calls() {
            check_number("the cost", op.cost)?;
            check_number("the number of flops", op.flops.unwrap_or(0.0))?;
            ProgramError::check_size(op.workspace)?;
        }
        let cost = self.cost + command.cost();
        check_number("the sum of all costs", cost)?;
        for Apply { op, .. } in command.calls_mut() {
            self.share(&mut op.name);
            op.attributes.iter_mut().for_each(|attributes| self.share(attributes));
        }
        self.program.push(command)?;
        self.cost = cost;
        Ok(())
    }

    fn share(&mut self, text: &mut Arc<str>) {
        match self.texts.get(text) {
            Some(known) => *text = Arc::clone(known),
            None => _ = self.texts.insert(Arc::clone(text)),
        }
    }

    pub fn put(&mut self, host: RecordedValue) -> Result<TensorId, ProgramError> {
        let tensor = self.program.next();
        self.push(Command::Put { tensor, host: Arc::new(host), leaf: false })?;
        Ok(tensor)
    }

    /// Adds an op without consumed inputs. Returns the first output.
    pub fn apply(
        &mut self,
        op: RecordedOp,
        inputs: &[TensorId],
        outputs: Outputs,
    ) -> Result<TensorId, ProgramError> {
        let made = self.program.next();
        self.push(Command::Apply(Apply::new(op, inputs, outputs, made)))?;
        Ok(made)
    }

    /// Renumbers a command of another program. Tensors that the command makes get the next numbers
    /// of this program; `now` maps all other tensors. The field `made` of an op without outputs is
    /// also set to the next number, although no tensor gets that number.
    pub fn renumbered(
        &self,
        command: RecordedCommand,
        now: impl Fn(TensorId) -> Option<TensorId>,
    ) -> RecordedCommand {
        let next = self.program.next();
        let mut new = FxHashMap::default();
        command.makes(|tensor| _ = new.insert(tensor, next.plus(new.len())));
        command
            .renumbered(|tensor| new.get(&tensor).copied().or_else(|| now(tensor)).unwrap_or(next))
    }

    pub fn elapse(&mut self, cost: f64) -> Result<(), ProgramError> {
        self.apply(RecordedOp::elapse(cost), &[], Outputs::default()).map(drop)
    }
}

pub(super) fn check_number(what: &'static str, value: f64) -> Result<(), ProgramError> {
    if value.is_finite() && value >= 0.0 {
        Ok(())
    } else {
        Err(ProgramError::Number { what, value })
    }
}

/// Layout of `bytes` bytes, or [`ProgramError`] if no device has as many bytes.
pub(super) fn raw(bytes: u64) -> Result<Layout, ProgramError> {
    ProgramError::check_size(bytes)?;
    Ok(Layout::raw(bytes as usize))
}
