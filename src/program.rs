//! The command language, which runtimes, recordings, the lab and the tests use.
//!
//! A [`Command`] names tensors by [numbers](TensorId). Only a [`Driver`] executes commands on an
//! [`Engine`](crate::Engine). The driver executes commands in order, [shows](Driver::admit)
//! commands that wait to evictors, and records executed commands. A [`Program`] is a valid list of
//! commands, of any number of steps.
//!
//! ```
//! use remat::device::sim::Sim;
//! use remat::op::Outputs;
//! use remat::unstable::ops::{MatMul, Unary};
//! use remat::unstable::program::{Command, Driver, Program};
//! use remat::{CostModelKind, HostTensor, Op, PolicyKind};
//! use remat::unstable::engine::{Engine, Settings};
//!
//! let mut program = Program::<Op, HostTensor>::default();
//! let host = HostTensor::f32([8, 8], vec![1.0; 64])?;
//! let layout = host.layout();
//! let x = program.put(host)?;
//! let y = program.apply(MatMul, &[x, x], Outputs::fresh([layout]))?;
//! let z = program.apply(Unary::Relu, &[y], Outputs::fresh([layout]))?;
//! program.push(Command::Del(y))?;
//! program.push(Command::Get(z))?;
//!
//! // Memory for two of the three tensors.
//! let costs = CostModelKind::Flops.build();
//! let device = Sim::<Op, HostTensor>::cpu(2 * 256);
//! let engine = Engine::new(device, Settings::default(), PolicyKind::DtrEq.build(0), costs)?;
//! let mut driver = Driver::new(engine);
//! driver.run(&program)?;
//! assert_eq!(driver.engine().stats().recomputed_ops, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub use crate::command::{
    Ahead, Apply, Command, Consumed, Ids, Program, ProgramError, RecordedCommand, RecordedCosts,
    RecordedOp, RecordedProgram, RecordedValue, Reruns, TensorId, Waiting, Window,
};
pub use crate::driver::{
    Allowance, Attempt, Driver, Entry, Knowledge, Learner, Plan, Recorder, Rehearse, Setting, Turn,
    VERSION,
};
pub use crate::step::{KnownSteps, StepTeller};
