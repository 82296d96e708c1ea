//! Times of a trace on several ranks.

use super::Network;
use super::clock::{Clock, Ran};
use super::exchanges::{Exchange, Exchanges, Tensors, cost_of_collectives};
use crate::collective::Pattern;
use crate::command::{Command, RecordedCommand, RecordedProgram};
use crate::lab::CostUnit;
use crate::lab::sweep::{to_a_nanosecond, to_digits};
use serde::{Serialize, Serializer};
use std::ops::Range;

/// Ranks that run a program together, joined by a network. Each rank runs all commands.
///
/// The memory of a rank is that of the recorded run: a replay holds no buffer for collectives that
/// the recording lacks.
#[derive(Debug)]
pub struct Cluster {
    network: Network,
    ranks: Vec<u64>,
    exchanges: Exchanges,
    tensors: Tensors,
    seconds_per_cost: f64,
    /// Commands whose time is measured, and the number of steps in them.
    measured: (Range<usize>, usize),
}

/// Reason why a trace has no times on several ranks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// The costs of the trace are not times.
    #[error(
        "the costs are in {0}, but a network needs times; record the run with --cost measured, and replay with --cost \
         trace"
    )]
    NoTimes(CostUnit),
    /// No rank sends anything.
    #[error(
        "the trace has no collective, and no update in place reads a gradient, so nothing is sent between ranks; \
         record a training step with its optimizer (logs of the DTR paper have no updates in place)"
    )]
    NothingToSend,
}

/// Time of a step on one rank, and on several.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepTimes {
    /// Seconds of a step on one rank, under the budget of the replay.
    #[serde(serialize_with = "to_a_nanosecond")]
    pub seconds: f64,
    /// Times on several ranks, in the given order.
    pub on_ranks: Vec<OnRanks>,
}

/// Time of a step on several ranks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OnRanks {
    /// Number of ranks.
    pub ranks: u64,
    /// Seconds of a step.
    #[serde(serialize_with = "to_a_nanosecond")]
    pub seconds: f64,
    /// Seconds of a step in which the computation waits for the network.
    #[serde(serialize_with = "to_a_nanosecond")]
    pub waiting_seconds: f64,
    /// Seconds of a step on one rank, divided by `seconds`.
    #[serde(serialize_with = "to_a_millionth")]
    pub efficiency: f64,
}

fn to_a_millionth<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    to_digits(*value, 6).serialize(serializer)
}

impl Cluster {
    /// Joins ranks by a network, for each number in `ranks`. `unit` is the unit of the replay's
    /// costs.
    ///
    /// # Errors
    /// An error if the costs are no times, or the ranks send nothing to each other.
    pub fn new(
        program: &RecordedProgram,
        unit: &CostUnit,
        network: Network,
        ranks: &[u64],
    ) -> Result<Self, ClusterError> {
        let seconds_per_cost = unit.seconds().ok_or_else(|| ClusterError::NoTimes(unit.clone()))?;
        let tensors = Tensors::of(program);
        let exchanges = Exchanges::of(program, &tensors);
        if exchanges.all().next().is_none() {
            return Err(ClusterError::NothingToSend);
        }
        let ranks = ranks.to_vec();
        let measured = measured(program);
        Ok(Self { network, ranks, exchanges, tensors, seconds_per_cost, measured })
    }

    /// Seconds that the network alone needs for the whole trace, for each number of ranks.
    pub fn network_seconds(&self) -> impl Iterator<Item = (u64, f64)> {
        self.ranks.iter().map(|&ranks| {
            let all = self.exchanges.all();
            (ranks, all.map(|sent| self.seconds(sent.pattern, sent.bytes, ranks)).sum())
        })
    }

    /// Lower bounds on the seconds of the whole trace, if the computation alone costs at least
    /// `cost`: on one rank, and for each number of ranks.
    #[must_use]
    pub fn least_seconds(&self, program: &RecordedProgram, cost: f64) -> (f64, Vec<f64>) {
        let collectives = program.commands().iter().map(cost_of_collectives).sum::<f64>();
        let compute = (cost - collectives).max(0.0) * self.seconds_per_cost;
        // The computation stands still during a collective that does not overlap.
        let on_ranks = self.network_seconds().map(|(ranks, network)| {
            let still = self.exchanges.all().filter(|sent| !self.overlaps(sent));
            let still = still.map(|sent| self.seconds(sent.pattern, sent.bytes, ranks));
            network.max(compute + still.sum::<f64>())
        });
        (compute, on_ranks.collect())
    }

    /// Whether the computation goes on during a collective.
    fn overlaps(&self, sent: &Exchange) -> bool {
        self.network.overlaps.unwrap_or(sent.overlaps)
    }

    fn seconds(&self, pattern: Pattern, bytes: u64, ranks: u64) -> f64 {
        self.network.seconds(pattern.traffic(bytes, ranks))
    }

    /// Clocks at the beginning of a replay.
    pub(in crate::lab) fn clocks(&self) -> Clocks<'_> {
        let ranks = std::iter::once(1).chain(self.ranks.iter().copied());
        let clocks = ranks.map(|ranks| (ranks, Clock::default(), (0.0, 0.0))).collect();
        Clocks { cluster: self, clocks, cost: 0.0, times: None }
    }
}

/// Commands whose time is measured, and the number of steps in them: from the first mark of a step
/// to the last, or the whole program if there are fewer than two marks.
fn measured(program: &RecordedProgram) -> (Range<usize>, usize) {
    let commands = program.commands();
    let is_mark = |&at: &usize| matches!(commands[at], Command::Step);
    let marks: Vec<usize> = (0..commands.len()).filter(is_mark).collect();
    match marks[..] {
        [first, .., last] => (first + 1..last + 1, marks.len() - 1),
        _ => (0..commands.len(), 1),
    }
}

/// Clocks of a replay: of one rank, and for each number of ranks.
pub(in crate::lab) struct Clocks<'a> {
    cluster: &'a Cluster,
    /// Number of ranks, clock, and, at the beginning of the measured commands, the time and the
    /// waiting time.
    clocks: Vec<(u64, Clock, (f64, f64))>,
    /// Cost of the replay so far.
    cost: f64,
    times: Option<StepTimes>,
}

impl Clocks<'_> {
    /// Moves the clocks by the run of the command at position `at`. `cost` is the cost of the
    /// replay so far, recomputation included.
    pub fn ran(&mut self, at: usize, command: &RecordedCommand, cost: f64) {
        let Cluster { exchanges, tensors, seconds_per_cost, measured, .. } = self.cluster;
        let passed = cost - std::mem::replace(&mut self.cost, cost);
        // A run for which memory has no room is postponed, and costs nothing yet.
        let own = command.cost().min(passed);
        let around = passed - own;
        let own = (own - cost_of_collectives(command)).max(0.0);
        let [around, own] = [around, own].map(|cost| cost * seconds_per_cost);
        let (range, _) = measured;
        for (ranks, clock, begun) in &mut self.clocks {
            if at == range.start {
                clock.finish();
                *begun = clock.times();
            }
            clock.run(Ran { at, command, around, own }, exchanges, tensors);
            for sent in exchanges.after(at) {
                let seconds = self.cluster.seconds(sent.pattern, sent.bytes, *ranks);
                clock.send(*sent, seconds, self.cluster.overlaps(sent), tensors);
            }
            clock.catch_up();
            if at + 1 == range.end {
                clock.finish();
            }
        }
        if at + 1 == range.end {
            self.times = Some(self.measure());
        }
    }

    /// Time of a step, if the replay reached the end of the measured commands.
    pub fn times(self) -> Option<StepTimes> {
        self.times
    }

    fn measure(&self) -> StepTimes {
        let steps = self.cluster.measured.1 as f64;
        let mut all = self.clocks.iter().map(|(ranks, clock, (begin, waited_before))| {
            let (now, waited) = clock.times();
            (*ranks, (now - begin) / steps, (waited - waited_before) / steps)
        });
        let one_rank = all.next().map_or(0.0, |(_, seconds, _)| seconds);
        let on_ranks = all.map(|(ranks, seconds, waiting_seconds)| {
            let efficiency = if seconds > 0.0 { one_rank / seconds } else { 1.0 };
            OnRanks { ranks, seconds, waiting_seconds, efficiency }
        });
        StepTimes { seconds: one_rank, on_ranks: on_ranks.collect() }
    }
}
