//! From a recording to a program that can be executed.

use crate::command::{Command, Program, ProgramError, RecordedOp, RecordedProgram, TensorId};
use crate::error::Error;
use crate::guard::inferred;
use crate::host::{HostError, HostTensor};
use crate::layout::Layout;
use crate::op::{OpError, Operation as _, Outputs};
use crate::ops::{Library, LoadOpError, Op};
use std::sync::Arc;

/// Why a recording cannot be executed: at which command, and what is wrong.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("command {at}: {problem}")]
pub struct LoadProgramError {
    /// Position in [`Program::commands`].
    pub at: usize,
    /// What is wrong.
    pub problem: LoadProblem,
}

/// What is wrong with a command that is to be executed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadProblem {
    /// An op that is not known, or whose attributes do not fit.
    #[error(transparent)]
    Op(#[from] LoadOpError),
    /// Inputs that do not fit their op.
    #[error(transparent)]
    Inputs(#[from] OpError),
    /// An op that makes something else than was recorded.
    #[error("{op} makes {made:?}, and {recorded:?} was recorded")]
    Outputs {
        /// Name of the op.
        op: String,
        /// What it makes.
        made: Box<Outputs>,
        /// What was recorded.
        recorded: Box<Outputs>,
    },
    /// No value for a put.
    #[error("a value for tensor {tensor}: {error}")]
    Value {
        /// Its number in the program.
        tensor: TensorId,
        /// Why there is none.
        error: HostError,
    },
    /// A value for a put that looks otherwise than the recorded one.
    #[error("a value for tensor {tensor} is {found}, and {expected} was recorded")]
    Layout {
        /// Its number in the program.
        tensor: TensorId,
        /// What it looks like.
        found: Box<Layout>,
        /// What was recorded.
        expected: Box<Layout>,
    },
    /// Commands that make no sense.
    #[error(transparent)]
    Program(#[from] ProgramError),
}

impl Library {
    /// A recording as a program that can be executed: with its ops, of the crate or [registered](Library::register),
    /// and with values for what was put, which `value` gives; recordings have none. Commands, numbers of tensors and
    /// outputs are those of `recorded`.
    ///
    /// ```
    /// use remat::device::cpu::Cpu;
    /// use remat::lab::Trace;
    /// use remat::ops::Library;
    /// use remat::prelude::*;
    /// use remat::program::Driver;
    /// use remat::trace::JsonLines;
    /// use remat::{CostModelKind, Engine, PolicyKind, Settings};
    ///
    /// # let file = std::env::temp_dir().join(format!("remat-load-{}.jsonl", std::process::id()));
    /// // A step is recorded in simulation ..
    /// let runtime = Runtime::builder().budget("1MiB").record(JsonLines::create(&file)?).sim()?;
    /// let x = runtime.zeros(&[8])?;
    /// let y = (x + 2.0)?.square()?;
    /// runtime.get(&y)?;
    /// runtime.finish_recording()?;
    ///
    /// // .. and executed.
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
    /// If an op is not known or does not make what was recorded, or a value does not look as recorded: at which
    /// command. An update that was skipped is recorded as a view of the old value, which no op makes.
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

    /// The op itself, if it makes what was recorded.
    fn call_of(
        &self,
        op: &RecordedOp,
        inputs: &[TensorId],
        recorded: &Outputs,
        layouts: &[Layout],
    ) -> Result<Op, LoadProblem> {
        let op = self.op(&op.name, op.attributes.as_deref())?;
        // Several updates at once read nothing that one of them makes.
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
