//! Options for a training on several ranks.

use super::values;
use clap::{Args, ValueEnum};
use remat::ByteSize;
use std::time::Duration;

/// Options for a training on several ranks.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Several ranks")]
pub struct RanksArgs {
    /// Train on all ranks of a job that was started by mpirun, srun or the like
    ///
    /// Each rank trains on its own part of a step, and the gradients of all ranks are added up in
    /// the order of the ranks. The results have the bits of one rank with --accumulate N, for N
    /// ranks. --batch, --budget and --accumulate are those of each rank. Rank 0 reports, and writes
    /// all files.
    #[arg(long, value_name = "HOW")]
    pub distributed: Option<Distributed>,

    /// Seconds that a rank waits for the others before it ends the job
    #[arg(long, value_name = "SECONDS", default_value = "600", requires = "distributed", value_parser = values::above_zero, allow_hyphen_values = true)]
    pub patience: f32,

    /// Buffer through which each rank sends and receives tensors; counts towards the budget
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "256KiB",
        requires = "distributed",
        allow_hyphen_values = true
    )]
    pub rank_buffer: ByteSize,
}

/// Connection of the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Distributed {
    /// MPI: one process for each rank
    Mpi,
}

impl RanksArgs {
    /// Most time that a rank waits for the others.
    #[cfg_attr(not(feature = "mpi"), allow(dead_code, reason = "for ranks of an MPI job"))]
    pub fn patience(&self) -> Duration {
        Duration::try_from_secs_f32(self.patience).unwrap_or(Duration::MAX)
    }
}
