//! Replaying recorded steps: which policy, at which budget, at what cost.
//!
//! A trace becomes a [`Program`], and a program is run on the engine that runs everything else, over a
//! device that only counts. So what the lab finds holds for a real run.

mod device;
mod feasibility;
mod history;
pub mod plot;
mod program;
mod replay;
mod spread;
mod sweep;
mod timeline;
mod trace;
mod unbudgeted;
mod unit;

pub use feasibility::{Feasibility, feasibility};
pub use history::{History, NoHistory, Tally};
pub use program::{
    Instruction, Made, OpInfo, Program, ProgramError, ProgramOp, RepeatError, TensorId,
};
pub use replay::{Costs, Outcome, Placement, Replay, Status};
pub use spread::Spread;
pub use sweep::{Grid, Job, Row, Verdict, sweep};
pub use trace::{Trace, TraceError, TraceProblem};
pub use unbudgeted::Unbudgeted;
pub use unit::CostUnit;
