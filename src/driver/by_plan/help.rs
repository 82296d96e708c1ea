//! Measurement of the benefit of plans: the time of turns with and without a plan, and the number
//! of evictions that plans avoid.

use super::{Planning, Replay};
use crate::command::Command;
use crate::device::Device;
use crate::engine::Stats;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Time of the current turn, from its first command to its step mark. The time between turns is
/// left out: the caller spends it, and plans do not change it.
#[derive(Debug, Default)]
pub(super) struct Stopwatch {
    began: Option<Instant>,
    took: Option<Duration>,
}

/// Times and evictions of a kind's turns without a plan.
#[derive(Debug, Default)]
pub(super) struct Unplanned {
    /// Times of the latest turns.
    took: VecDeque<Duration>,
    /// Number of evictions in the last turn before the captured turn. The captured turn and later
    /// turns do not count, because memory is compacted for the capture.
    evictions: u64,
}

/// Totals over all plans.
#[derive(Debug, Default)]
pub(super) struct Help {
    /// Number of turns that began by plan and continued without a plan.
    pub left: u64,
    /// Number of evictions that turns by plan did not need.
    spared_evictions: u64,
    /// Time spent waiting for planners and leaving plans.
    planning: Duration,
    /// Time of turns by plan, and the estimated time of the same turns without a plan.
    planned: Duration,
    unplanned: Duration,
}

impl Stopwatch {
    /// Starts the clock, at the beginning of a turn.
    pub fn begin(&mut self) {
        *self = Self { began: Some(Instant::now()), took: None };
    }

    /// Stops the clock, at the step mark.
    pub fn mark(&mut self) {
        self.took = self.began.take().map(|began| began.elapsed());
    }

    /// Adds the time since `start` to the time of the current turn, whose mark has already come.
    pub fn also_since(&mut self, start: Instant) {
        self.took = self.took.map(|took| took + start.elapsed());
    }

    /// Discards the time of the current turn.
    pub fn void(&mut self) {
        *self = Self::default();
    }

    /// Takes the time of the last turn; `None` if it was discarded.
    pub fn take(&mut self) -> Option<Duration> {
        std::mem::take(self).took
    }
}

impl Unplanned {
    /// Limit on remembered turns. Old turns are forgotten, because learning makes turns faster.
    const TURNS: usize = 8;

    /// Adds a turn's time and number of evictions; `None` if the evictions do not count. The caller
    /// leaves out the first turn of a kind, which is slower because devices initialize in it.
    pub fn add(&mut self, took: Duration, evictions: Option<u64>) {
        if self.took.len() == Self::TURNS {
            self.took.pop_front();
        }
        self.took.push_back(took);
        self.evictions = evictions.unwrap_or(self.evictions);
    }

    /// The shortest of the remembered times. Usually only three turns run before the first turn by
    /// plan. A mean would depend too much on one slow turn, which waited or touched new memory.
    fn typical(&self) -> Option<Duration> {
        self.took.iter().min().copied()
    }
}

impl Help {
    /// Adds a turn that ran by plan. `unplanned` has the times and evictions of turns of the same
    /// kind without a plan.
    pub fn ran(&mut self, took: Option<Duration>, evictions: u64, unplanned: &Unplanned) {
        self.spared_evictions += unplanned.evictions.saturating_sub(evictions);
        if let (Some(took), Some(typical)) = (took, unplanned.typical()) {
            self.planned += took;
            self.unplanned += typical;
        }
    }

    /// Adds the time since `start` to the cost of planning.
    pub fn spent_since(&mut self, start: Instant) {
        self.planning += start.elapsed();
    }
}

impl<D: Device> Planning<D> {
    /// Adds the counters of plans to the counters of the engine.
    pub(in crate::driver) fn with_plans(&self, stats: Stats) -> Stats {
        let Self { help, kinds, replay, .. } = self;
        let largest = kinds.largest_plan();
        let idle = replay.as_ref().map_or(0, Replay::idle_bytes);
        Stats {
            used_bytes: stats.used_bytes - idle,
            left_plans: help.left,
            spared_evictions: help.spared_evictions,
            plan_bytes: largest.map_or(0, |plan| plan.bytes),
            unplanned_bytes: largest.map_or(0, |plan| plan.unplanned_bytes),
            planned_seconds: help.planned.as_secs_f64(),
            unplanned_seconds: help.unplanned.as_secs_f64(),
            planning_seconds: help.planning.as_secs_f64(),
            ..stats
        }
    }
}

impl<D: Device> Replay<D> {
    /// Bytes of the plan's block while it holds no values; 0 once the current turn has put values
    /// into the block.
    fn idle_bytes(&self) -> u64 {
        use Command::{Apply, Put, Replace, UpdateAll};
        let uses =
            |command| matches!(command, &(Put { .. } | Apply(_) | UpdateAll(_) | Replace { .. }));
        if self.taken.iter().any(uses) { 0 } else { self.bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_takes_as_long_as_the_quickest_of_the_latest() {
        for (turns, typical) in [
            (&[][..], None),
            (&[7], Some(7)),
            (&[50, 7, 8], Some(7)),
            (&[9, 1000, 8], Some(8)),
            (&[5, 100, 9, 9, 9, 8, 9, 1000, 9], Some(8)),
        ] {
            let mut unplanned = Unplanned::default();
            turns.iter().for_each(|&turn| unplanned.add(Duration::from_millis(turn), None));
            assert_eq!(unplanned.typical(), typical.map(Duration::from_millis), "{turns:?}");
        }
    }

    #[test]
    fn turns_of_which_there_were_none_without_a_plan_count_in_neither() {
        let (mut help, mut unplanned) = (Help::default(), Unplanned::default());
        let second = Some(Duration::from_secs(1));
        help.ran(second, 0, &unplanned);
        assert_eq!((help.planned, help.unplanned), (Duration::ZERO, Duration::ZERO));
        unplanned.add(Duration::from_secs(2), Some(3));
        unplanned.add(Duration::from_secs(2), None);
        for (took, evictions) in [(second, 1), (None, 5)] {
            help.ran(took, evictions, &unplanned);
            assert_eq!((help.planned.as_secs(), help.unplanned.as_secs()), (1, 2));
            assert_eq!(help.spared_evictions, 2);
        }
    }
}
