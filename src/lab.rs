//! Replay of recorded steps, which shows the cost of a policy at a budget.
//!
//! A trace becomes a [`RecordedProgram`](crate::program::RecordedProgram). The driver and the
//! engine of real runs execute that program on a device that only counts bytes and costs. Hence a
//! result of the lab holds for a real run.

mod bound;
mod changes;
mod device;
mod feasibility;
mod history;
mod network;
mod passing;
pub mod plot;
mod recorder;
mod replay;
mod schedule;
mod search;
mod smallest;
mod spread;
mod step;
mod sweep;
mod timeline;
mod trace;
mod unbudgeted;
mod unit;
mod writer;

pub use changes::{Changed, RunSettings};
pub use feasibility::{Feasibility, feasibility};
pub use history::{History, NoHistory, Tally};
pub use network::{Cluster, ClusterError, Network, OnRanks, StepTimes};
pub use passing::passing_budget;
pub use recorder::InMemory;
pub use replay::{Costs, MemoryKind, Outcome, Replay, Status, Work};
pub use schedule::NoSchedule;
pub use search::{Search, learner};
pub use smallest::smallest;
pub use spread::Spread;
pub use step::RepeatError;
pub use sweep::{Grid, Job, Row, Verdict, sweep};
pub use trace::{Trace, TraceError, TraceProblem};
pub use unbudgeted::Unbudgeted;
pub use unit::CostUnit;
