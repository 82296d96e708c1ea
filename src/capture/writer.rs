//! Conversion of a step to a program with the ops in a given order.

use crate::command::{
    Apply, Command, ProgramError, RecordedCommand, RecordedOp, RecordedProgram, RecordedValue,
    TensorId,
};
use crate::layout::Layout;
use crate::op::Outputs;
use remat_plan::{CapturedOp, Order};
use std::sync::Arc;

impl RecordedProgram {
    /// Writes a step as a program that runs the ops in the given order. The function is the inverse
    /// of [`capture_whole`](Self::capture_whole).
    ///
    /// The program begins with the buffers that exist before the step, as values that cannot be
    /// restored. The program deletes each value after its last use. The end of the program commits
    /// the values that the step makes and leaves behind. A replay of the program shows how a policy
    /// handles the step without the commands around it.
    ///
    /// A buffer becomes a tensor of bytes; its alignment is lost. The host may wait for an op that
    /// neither makes nor updates a buffer. In place of such an op, the program reads each of the
    /// op's buffers to the host. If the op has a cost, the program also has the op itself.
    ///
    /// # Errors
    ///
    /// [`ProgramError`] if a cost or a size is not valid in a recording.
    pub fn of_order(order: &Order<'_>) -> Result<Self, ProgramError> {
        let mut writer = Writer::new(order);
        let capture = order.capture();
        for (buffer, captured) in capture.buffers().iter().enumerate() {
            if captured.before {
                let tensor = writer.program.put(RecordedValue::constant(captured.bytes))?;
                writer.tensors[buffer] = Some(tensor);
                writer.let_go(buffer)?;
            }
        }
        for &op in order.ops() {
            writer.op(&capture.ops()[op])?;
        }
        for (buffer, captured) in capture.buffers().iter().enumerate() {
            let may_be_evicted = capture.maker(buffer).is_some();
            if let (true, true, Some(tensor)) =
                (captured.after, may_be_evicted, writer.tensors[buffer])
            {
                writer.program.push(Command::Commit(tensor))?;
            }
        }
        Ok(writer.program)
    }
}

struct Writer<'a> {
    order: &'a Order<'a>,
    program: RecordedProgram,
    /// Buffer -> its current tensor.
    tensors: Vec<Option<TensorId>>,
    /// Buffer -> number of its remaining uses.
    uses: Vec<usize>,
}

impl<'a> Writer<'a> {
    fn new(order: &'a Order<'a>) -> Self {
        let capture = order.capture();
        let count = capture.buffers().len();
        let uses = (0..count).map(|buffer| capture.users(buffer).len()).collect();
        Self { order, program: RecordedProgram::default(), tensors: vec![None; count], uses }
    }

    fn op(&mut self, op: &CapturedOp) -> Result<(), ProgramError> {
        let reads_only = op.makes.is_empty() && op.updates.is_empty();
        if op.waits && reads_only {
            for &read in &op.reads {
                self.program.push(Command::Get(self.tensor(read)))?;
            }
        }
        if !(op.waits && reads_only && op.cost == 0.0) {
            let made = self.program.next();
            self.program.push(self.apply(op))?;
            for (number, &buffer) in (0..).zip(op.updates.iter().chain(&op.makes)) {
                self.tensors[buffer] = Some(made.plus(number));
            }
        }
        op.uses().for_each(|buffer| self.uses[buffer] -= 1);
        op.uses().chain(op.makes.iter().copied()).try_for_each(|buffer| self.let_go(buffer))
    }

    fn apply(&self, op: &CapturedOp) -> RecordedCommand {
        let bytes = |&made: &usize| self.order.capture().buffers()[made].bytes as usize;
        let fresh = op.makes.iter().map(|made| Layout::raw(bytes(made))).collect();
        let targets = op.updates.len();
        let outputs = match targets {
            0 => Outputs::Fresh(fresh),
            _ => Outputs::Updates { targets, fresh },
        };
        // Updated tensors come first among the inputs.
        let inputs: Vec<TensorId> =
            op.updates.iter().chain(&op.reads).map(|&buffer| self.tensor(buffer)).collect();
        let recorded = RecordedOp {
            attributes: Some(Arc::clone(&op.attributes)),
            workspace: op.workspace,
            rematerializable: op.rematerializable,
            ..RecordedOp::new(Arc::clone(&op.name), op.cost)
        };
        let call = Apply::new(recorded, &inputs[..], outputs, self.program.next());
        Command::Apply(Apply { consumed: (0..targets).collect(), ..call })
    }

    fn tensor(&self, buffer: usize) -> TensorId {
        self.tensors[buffer].expect("a step uses only what is there")
    }

    /// Deletes a buffer after its last use, unless it stays after the step.
    fn let_go(&mut self, buffer: usize) -> Result<(), ProgramError> {
        if self.uses[buffer] > 0 || self.order.capture().buffers()[buffer].after {
            return Ok(());
        }
        self.tensors[buffer].take().map_or(Ok(()), |tensor| self.program.push(Command::Del(tensor)))
    }
}
