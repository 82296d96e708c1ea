//! Options for the time on several ranks.

use super::failure::Failure;
use super::values;
use super::words::{Counted, Seconds};
use clap::Args;
use remat::unstable::lab::{Cluster, Network, OnRanks, Replay, StepTimes, Trace};
use std::fmt::Write as _;
use std::sync::Arc;

/// Several ranks, and the network between them.
#[derive(Args, Debug)]
pub struct NetworkArgs {
    /// Also predict the time of a step on N ranks, for each N of a list such as 8,64,1024
    ///
    /// Each rank runs the whole trace on its own data. If the trace has collectives, their time is
    /// that of --network. If the trace is of one rank, each gradient is summed over all ranks when it
    /// is complete, and its update waits for the sum. The time of a step is the mean from the first
    /// mark of a step to the last, or that of the whole trace if there are fewer than two marks.
    /// Costs must be times: record with --cost measured.
    #[arg(long, value_name = "LIST", value_parser = values::ranks, requires = "network", allow_hyphen_values = true, help_heading = "Several ranks")]
    pub ranks: Option<Ranks>,

    /// Bandwidth per second and latency of a message between ranks, such as 100Gbit,5us
    ///
    /// Bandwidths are in Mbit, Gbit, MB, GB, MiB or GiB, latencies in ns, us, ms or s. A collective
    /// takes messages x latency + bytes / bandwidth. An all-reduce of S bytes on N ranks sends
    /// 2(N-1)/N x S bytes, by 2(N-1) messages for each MiB, after N-1 messages of 40 bytes.
    ///
    /// The computation goes on during a collective, until the result is read, with
    /// 100Gbit,5us,overlap. It stands still with 100Gbit,5us,blocking. Default: overlap for the sums
    /// of gradients, and blocking for other collectives, as in `remat train`.
    #[arg(
        long,
        value_name = "SPEED",
        requires = "ranks",
        allow_hyphen_values = true,
        help_heading = "Several ranks"
    )]
    pub network: Option<Network>,
}

/// Numbers of ranks. The alias is needed because clap takes a plain `Vec` for an option that may be
/// repeated.
pub type Ranks = Vec<u64>;

impl NetworkArgs {
    /// The ranks that run a trace; `None` without `--ranks`.
    pub fn cluster(&self, trace: &Trace, like: &Replay) -> Result<Option<Arc<Cluster>>, Failure> {
        let (Some(ranks), Some(network)) = (&self.ranks, self.network) else { return Ok(None) };
        Cluster::new(trace.program(), &like.unit(trace.unit()), network, ranks)
            .map(|cluster| Some(Arc::new(cluster)))
            .map_err(|error| Failure::usage(format!("{}: --ranks: {error}", trace.name())))
    }
}

/// Duration as text, for a step that may be short: `152.3 ms`, `84.1 \u{b5}s`.
fn time(seconds: f64) -> String {
    match seconds {
        short if short > 0.0 && short < 1e-3 => format!("{:.1} \u{b5}s", 1e6 * short),
        long => Seconds(long).to_string(),
    }
}

/// Lines of a report about the time of a step.
pub fn lines(step: &StepTimes) -> String {
    let mut text = format!("\n  {:<11} {} a step", "one rank", time(step.seconds));
    for OnRanks { ranks, seconds, waiting_seconds, efficiency } in &step.on_ranks {
        let _ = write!(
            text,
            "\n  {:<11} {} a step, {} of it waiting for the network; efficiency {:.1} %",
            Counted(*ranks, "rank").to_string(),
            time(*seconds),
            time(*waiting_seconds),
            100.0 * efficiency
        );
    }
    text
}
