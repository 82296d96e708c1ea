//! Conversion of a recording to an executable program.

use crate::command::{Command, Program, ProgramError, RecordedOp, RecordedProgram, TensorId};
use crate::error::Error;
use crate::guard::inferred;
use crate::host::{HostError, HostTensor};
use crate::layout::Layout;
use crate::op::{OpError, Operation as _, Outputs};
use crate::ops::{Library, LoadOpError, Op};
use std::sync::Arc;

/// Error: a command of a recording cannot be executed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("command {at}: {problem}")]
pub struct LoadProgramError {
    /// Position of the command in [`Program::commands`].
    pub at: usize,
    /// Problem with the command.
    pub problem: LoadProblem,
}

/// Problem with a command of a recording.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadProblem {
    /// The op is unknown, or its attributes are not valid for the op.
    #[error(transparent)]
    Op(#[from] LoadOpError),
    /// The op does not take inputs of the recorded layouts.
    #[error(transparent)]
    Inputs(#[from] OpError),
    /// The outputs of the op differ from the recorded outputs.
    #[error("{op} makes {made:?}, but {recorded:?} was recorded")]
    Outputs {
        /// Name of the op.
        op: String,
        /// Outputs that the op has for the recorded inputs.
        made: Box<Outputs>,
        /// Recorded outputs.
        recorded: Box<Outputs>,
    },
    /// The caller has no value for a put.
    #[error("the value for tensor {tensor}: {error}")]
    Value {
        /// Number of the tensor in the program.
        tensor: TensorId,
        /// Reason why the value is missing.
        error: HostError,
    },
    /// The layout of the value for a put differs from the recorded layout.
    #[error("the value for tensor {tensor} is {found}, but {expected} was recorded")]
    Layout {
        /// Number of the tensor in the program.
        tensor: TensorId,
        /// Layout of the value.
        found: Box<Layout>,
        /// Recorded layout.
        expected: Box<Layout>,
    },
    /// The command is not valid after the commands before it.
    #[error(transparent)]
    Program(#[from] ProgramError),
}

impl Library {
    /// Turns a recording into an executable program.
    ///
    /// The ops of the recording must be ops of the crate, or [registered](Library::register) ops.
    /// `value` gives the value of each put, because recordings hold no values. The program has the
    /// same commands, tensor numbers and outputs as `recorded`.
    ///
    /// ```
    /// use remat::device::cpu::Cpu;
    /// use remat::unstable::lab::Trace;
    /// use remat::ops::Library;
    /// use remat::prelude::*;
    /// use remat::unstable::program::Driver;
    /// use remat::trace::JsonLines;
    /// use remat::{CostModelKind, PolicyKind};
    /// use remat::unstable::engine::{Engine, Settings};
    ///
    /// # let file = std::env::temp_dir().join(format!("remat-load-{}.jsonl", std::process::id()));
    /// // A simulated runtime records a step.
    /// let runtime = Runtime::builder().budget("1MiB").record(JsonLines::create(&file)?).sim()?;
    /// let x = runtime.zeros(&[8])?;
    /// let y = (x + 2.0)?.square()?;
    /// runtime.get(&y)?;
    /// runtime.finish_recording()?;
    ///
    /// // The CPU executes the recorded step.
    /// let recorded = Trace::open(&file)?;
    /// let program = Library::default().program(recorded.program(), |_, layout| {
    ///     HostTensor::zeros(layout.dtype(), *layout.shape())
    /// })?;
    /// let costs = CostModelKind::Flops.build();
    /// let device = Cpu::new(1 << 20, Some(1))?;
    /// let engine = Engine::new(device, Settings::default(), PolicyKind::DtrEq.build(0), costs)?;
    /// let mut driver = Driver::new(engine);
    /// driver.run(&program)?;
    /// let y = driver.key(program.alive().last().expect("`y` is there"))?;
    /// assert_eq!(driver.engine_mut().get(y)?.as_f32(), Some(&[4.0; 8][..]));
    /// # std::fs::remove_file(file)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`LoadProgramError`], with the position of the command, if an op is unknown. The same error
    /// if outputs, or the layout of a value, differ from the recording. Loading also fails if an
    /// update was skipped in the recorded run. The recording of a skipped update has a view of the
    /// old value, which no op of the crate can make.
    pub fn program(
        &self,
        recorded: &RecordedProgram,
        mut value: impl FnMut(TensorId, &Layout) -> Result<HostTensor, HostError>,
    ) -> Result<Program<Op, HostTensor>, LoadProgramError> {
        let mut program = Program::default();
        let mut layouts = Vec::with_capacity(recorded.tensors());
        for (at, command) in recorded.commands().iter().enumerate() {
            let failed = |problem| LoadProgramError { at, problem };
            let mut value = |tensor, layout: &Layout| {
                let host =
                    value(tensor, layout).map_err(|error| LoadProblem::Value { tensor, error })?;
                if host.layout() == *layout {
                    return Ok(host);
                }
                let (found, expected) = (Box::new(host.layout()), Box::new(*layout));
                Err(LoadProblem::Layout { tensor, found, expected })
            };
            let command = command.try_map(
                |op, call| self.call_of(op, &call.inputs, &call.outputs, &layouts),
                |tensor, host| value(tensor, &host.layout).map(Arc::new),
            );
            let command = command.map_err(failed)?;
            match &command {
                Command::Put { host, .. } => layouts.push(host.layout()),
                Command::Replace { value, .. } => layouts.push(layouts[value.index()]),
                _ => {
                    for call in command.calls() {
                        for output in 0..call.outputs.len() {
                            let input = |input: usize| layouts[call.inputs[input].index()];
                            layouts.push(call.outputs.layout(output, input));
                        }
                    }
                }
            }
            program.push(command).map_err(|error| failed(error.into()))?;
        }
        Ok(program)
    }

    /// Returns the op of a recorded call. Fails if the outputs of the op differ from the recorded
    /// outputs.
    fn call_of(
        &self,
        op: &RecordedOp,
        inputs: &[TensorId],
        recorded: &Outputs,
        layouts: &[Layout],
    ) -> Result<Op, LoadProblem> {
        let op = self.op(&op.name, op.attributes.as_deref())?;
        // The layouts of all inputs are known, even if the command is several updates at once: no
        // update reads an output of another update.
        let read = inputs.iter().map(|input| layouts.get(input.index()).copied());
        let read: Option<Vec<Layout>> = read.collect();
        let read = read.ok_or(ProgramError::Gone)?;
        let panicked = |error: Error| OpError::new(op.name(), error.to_string());
        let made = inferred(&op, &read).map_err(panicked)??;
        if made == *recorded {
            return Ok(op);
        }
        let (made, recorded) = (Box::new(made), Box::new(recorded.clone()));
        let op = op.name().to_owned();
        Err(LoadProblem::Outputs { op, made, recorded })
    }
}
