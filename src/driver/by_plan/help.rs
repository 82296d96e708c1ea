//! How much plans helped: how long turns take by plan and without, and what else was spared.

use super::{Planning, Replay};
use crate::command::Command;
use crate::device::Device;
use crate::engine::Stats;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How long the turn at hand takes, from its first command up to its mark. What the caller does between turns is no part of
/// that: it is the same with plans and without.
#[derive(Debug, Default)]
pub(super) struct Stopwatch {
    began: Option<Instant>,
    took: Option<Duration>,
}

/// What the turns of a kind take without a plan.
#[derive(Debug, Default)]
pub(super) struct Unplanned {
    /// How long the latest ones took that ran so.
    took: VecDeque<Duration>,
    /// What the last one evicted before there was a tape.
    evictions: u64,
}

/// What is counted of plans.
#[derive(Debug, Default)]
pub(super) struct Help {
    /// Turns that began by plan and went on without.
    pub left: u64,
    /// Evictions that turns by plan had no need of.
    spared_evictions: u64,
    /// In waiting for plans, and in leaving them.
    planning: Duration,
    /// In turns by plan, and in as many of the same kinds as they are without one.
    planned: Duration,
    unplanned: Duration,
}

impl Stopwatch {
    /// A turn begins.
    pub fn begin(&mut self) {
        *self = Self { began: Some(Instant::now()), took: None };
    }

    /// Its mark came.
    pub fn mark(&mut self) {
        self.took = self.began.take().map(|began| began.elapsed());
    }

    /// What was done for it since is a part of it, though its mark came.
    pub fn also_since(&mut self, start: Instant) {
        self.took = self.took.map(|took| took + start.elapsed());
    }

    /// How long the turn at hand takes says nothing.
    pub fn void(&mut self) {
        *self = Self::default();
    }

    /// How long the turn took that is over, if that says something.
    pub fn take(&mut self) -> Option<Duration> {
        std::mem::take(self).took
    }
}

impl Unplanned {
    /// No more than so many turns count: what is learned about a kind makes it faster.
    const TURNS: usize = 8;

    /// A turn took so long, and evicted so much, if that counts. Not the first of its kind, in which a device makes ready
    /// what it needs.
    pub fn add(&mut self, took: Duration, evictions: Option<u64>) {
        if self.took.len() == Self::TURNS {
            self.took.pop_front();
        }
        self.took.push_back(took);
        self.evictions = evictions.unwrap_or(self.evictions);
    }

    /// How long one takes: the quickest. Mostly there are but three before the first by plan, the one that is written down among
    /// them, and one that waits for something, or is slow as memory is new, says nothing.
    fn typical(&self) -> Option<Duration> {
        self.took.iter().min().copied()
    }
}

impl Help {
    /// A turn ran by plan, in this time and with so many evictions, of a kind that takes this without one.
    pub fn ran(&mut self, took: Option<Duration>, evictions: u64, unplanned: &Unplanned) {
        self.spared_evictions += unplanned.evictions.saturating_sub(evictions);
        if let (Some(took), Some(typical)) = (took, unplanned.typical()) {
            self.planned += took;
            self.unplanned += typical;
        }
    }

    /// What was done since is for plans, and no part of a turn.
    pub fn spent_since(&mut self, start: Instant) {
        self.planning += start.elapsed();
    }
}

impl<D: Device> Planning<D> {
    /// These counters, with those of steps that run by plan.
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
    /// Bytes of the block, unless something of the turn at hand is in it.
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
