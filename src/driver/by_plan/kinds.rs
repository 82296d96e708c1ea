//! Known kinds of turns, and the prediction of the next kind.

use super::help::Unplanned;
use super::prepare::Preparing;
use super::{StepPlan, TurnCommand};
use crate::driver::rest::Rest;
use crate::step::recognize::NodeId;
use rustc_hash::FxHashSet;
use std::collections::VecDeque;
use std::sync::Arc;

/// A kind: turns that are equal, command by command.
#[derive(Debug)]
pub(super) struct Kind {
    pub commands: Vec<Arc<TurnCommand>>,
    pub plan: Option<StepPlan>,
    /// A plan that is being made on another thread. The driver takes the plan at the end of the
    /// turn that runs while the plan is made.
    pub preparing: Option<Preparing>,
    /// Number of turns of the kind so far.
    times: u32,
    /// Rest after planning failed: a number of turns of the kind in which the kind is not planned.
    rest: Rest<4, { 1 << 12 }>,
    /// Number of consecutive turns whose plan could not be entered.
    misses: u32,
    /// Whether the last turn without a plan evicted something.
    pub evicted: bool,
    /// Whether the last turn without a plan changed the live tensors, for example by keeping its
    /// loss.
    pub changes_boundary: bool,
    /// Times and evictions of turns without a plan.
    pub unplanned: Unplanned,
    /// The recognizer's nodes for the commands, if steps were recognized when the kind was planned.
    pub recognized: Vec<NodeId>,
}

/// All known kinds; see the [module](self) documentation.
#[derive(Debug, Default)]
pub(super) struct Kinds {
    all: Vec<Kind>,
    /// Kinds of the latest turns, the newest last. `None`: a turn of no known kind.
    past: VecDeque<Option<usize>>,
    /// Commands of all kinds, each distinct command stored once. The set may include commands of
    /// forgotten kinds.
    commands: FxHashSet<Arc<TurnCommand>>,
    /// Number of commands in use when unused commands were last removed from `commands`.
    needed: usize,
}

/// Limit on known kinds. Eight kinds suffice for training, evaluation and turns in between, with a
/// few different shapes each.
const MOST_KINDS: usize = 8;

/// Limit on commands of all kinds together.
const MOST_COMMANDS: usize = 1 << 18;

/// Number of remembered turns. `CONTEXT` limits how many of the latest turns are compared with
/// earlier turns to predict the next turn.
const PAST: usize = 256;
const CONTEXT: usize = 16;

/// Number of turns after which a kind counts as frequent.
const FREQUENT: u32 = 24;

/// Number of consecutive misses after which a plan is given up.
const MOST_MISSES: u32 = 16;

impl Kind {
    /// Drops the plan and starts a rest, after planning failed.
    pub fn refuse(&mut self) {
        self.plan = None;
        self.rest.begin();
    }

    /// Notes whether the plan could be entered. Drops the plan after too many consecutive misses,
    /// because the live tensors between turns have probably changed for good.
    pub fn entered(&mut self, enters: bool) {
        self.misses = if enters { 0 } else { self.misses + 1 };
        if self.misses > MOST_MISSES {
            self.misses = 0;
            self.refuse();
        }
    }

    /// Whether a plan may be made: the kind came at least twice, has no plan, and is not in a rest.
    pub fn may_be_planned(&self) -> bool {
        self.plan.is_none() && self.preparing.is_none() && self.times >= 2 && self.rest.is_over()
    }

    /// Whether the kind came more than once, and so is expected to come again.
    pub fn is_known(&self) -> bool {
        self.times > 1
    }

    /// Whether the kind came so often that learning is mostly done.
    pub fn is_frequent(&self) -> bool {
        self.times >= FREQUENT
    }

    /// Whether planning of the kind failed recently.
    pub fn is_refused(&self) -> bool {
        self.plan.is_none() && !self.rest.is_over()
    }
}

impl Kinds {
    pub fn all(&self) -> &[Kind] {
        &self.all
    }

    pub fn get(&self, kind: usize) -> &Kind {
        &self.all[kind]
    }

    pub fn get_mut(&mut self, kind: usize) -> &mut Kind {
        &mut self.all[kind]
    }

    /// Notes the end of a turn of kind `kind`.
    pub fn came(&mut self, kind: usize) {
        let of = &mut self.all[kind];
        of.times = of.times.saturating_add(1);
        of.rest.pass();
        let known = of.is_known().then_some(kind);
        if self.past.len() == PAST {
            self.past.pop_front();
        }
        self.past.push_back(known);
    }

    /// The recognizer's nodes of the latest `turns` turns, or of all remembered turns if fewer are
    /// remembered.
    pub fn recognized(&self, turns: usize) -> impl Iterator<Item = &[NodeId]> {
        let last = self.past.iter().skip(self.past.len().saturating_sub(turns));
        last.filter_map(|kind| Some(&self.all[(*kind)?].recognized[..]))
    }

    /// Adds a new kind with the commands of a turn. `None` if the turn has too many commands.
    pub fn add(&mut self, commands: Vec<Arc<TurnCommand>>) -> Option<usize> {
        if commands.len() > MOST_COMMANDS {
            return None;
        }
        let known: usize = self.all.iter().map(|kind| kind.commands.len()).sum();
        let is_full = self.all.len() == MOST_KINDS || known + commands.len() > MOST_COMMANDS;
        let kind = Kind {
            commands,
            plan: None,
            preparing: None,
            times: 0,
            rest: Rest::default(),
            misses: 0,
            evicted: false,
            changes_boundary: false,
            unplanned: Unplanned::default(),
            recognized: Vec::new(),
        };
        if !is_full {
            self.all.push(kind);
            return Some(self.all.len() - 1);
        }
        // Replace the kind that has not come for the longest time.
        let last = |kind: usize| self.past.iter().rposition(|past| *past == Some(kind));
        let oldest = (0..self.all.len()).min_by_key(|&kind| last(kind))?;
        for past in &mut self.past {
            past.take_if(|kind| *kind == oldest);
        }
        self.all[oldest] = kind;
        if self.commands.len() > 2 * self.needed + MOST_COMMANDS / 64 {
            self.commands.retain(|command| Arc::strong_count(command) > 1);
            self.needed = self.commands.len();
        }
        Some(oldest)
    }

    /// Interns a command: equal commands share one allocation.
    pub fn intern(&mut self, command: TurnCommand) -> Arc<TurnCommand> {
        if let Some(known) = self.commands.get(&command) {
            return Arc::clone(known);
        }
        let new = Arc::new(command);
        self.commands.insert(Arc::clone(&new));
        new
    }

    /// The most likely kind of the next turn; `None` if no known kind is likely.
    ///
    /// Finds the earlier turn whose preceding turns match the latest turns over the longest
    /// stretch; on a tie, the latest of them. The prediction is the kind of the found turn. If no
    /// turn is found, the prediction is the latest known kind. Example: after turns of the kinds `A
    /// B C A B`, the prediction is `C`.
    pub fn next(&self) -> Option<usize> {
        let past = &self.past;
        let mut most = 0;
        let mut next = past.iter().rev().flatten().next().copied();
        for at in (1..past.len()).rev() {
            let alike = (1..=CONTEXT.min(at))
                .take_while(|&before| past[at - before] == past[past.len() - before])
                .count();
            if alike > most {
                (most, next) = (alike, past[at]);
                if most == CONTEXT {
                    break;
                }
            }
        }
        next
    }

    /// The most likely kind of the next turn, if the kind has a plan.
    pub fn next_planned(&self) -> Option<usize> {
        self.next().filter(|&kind| self.get(kind).plan.is_some())
    }

    /// Forgets all kinds.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// The plan with the largest block.
    pub fn largest_plan(&self) -> Option<&StepPlan> {
        self.all.iter().filter_map(|kind| kind.plan.as_ref()).max_by_key(|plan| plan.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Command, TensorId};

    fn steps(length: usize) -> Vec<Arc<TurnCommand>> {
        let step = Arc::new(Command::Step);
        vec![step; length]
    }

    #[test]
    fn the_next_kind_is_the_one_that_followed_the_same_kinds_before() {
        for (turns, next) in [
            (&[0, 0, 0, 0][..], Some(0)),
            (&[0, 1, 0, 1, 0, 1, 0], Some(1)),
            (&[0, 1, 0, 1, 0, 1, 0, 1], Some(0)),
            (&[0, 0, 0, 1, 2, 0, 0, 0, 1, 2, 0, 0, 0, 1], Some(2)),
            (&[0, 0, 0, 1, 2, 0, 0, 0, 1, 2, 0, 0, 0, 1, 2, 0, 0], Some(0)),
            (&[0, 0, 0, 1, 2, 0, 0, 0, 1, 2, 0, 0, 0, 1, 2, 0, 0, 0], Some(1)),
            // Kinds 3, 4 and 5 come only once, so they do not count as known.
            (&[0, 0, 3, 0, 4], Some(0)),
            (&[0, 0, 3, 0, 4, 0, 5, 0], None),
        ] {
            let mut kinds = Kinds::default();
            for _ in 0..6 {
                kinds.add(steps(1));
            }
            assert_eq!(kinds.next(), None);
            turns.iter().for_each(|&kind| kinds.came(kind));
            assert_eq!(kinds.next(), next, "{turns:?}");
        }
    }

    #[test]
    fn the_kind_that_did_not_come_for_longest_makes_room() {
        let mut kinds = Kinds::default();
        for length in 1..=MOST_KINDS {
            let kind = kinds.add(steps(length)).unwrap();
            kinds.came(kind);
            kinds.came(kind);
        }
        kinds.came(0);
        assert_eq!(kinds.add(steps(100)), Some(1));
        assert_eq!(kinds.all().len(), MOST_KINDS);
        assert_eq!(kinds.add(steps(MOST_COMMANDS + 1)), None);
    }

    #[test]
    fn commands_of_kinds_that_are_gone_are_forgotten() {
        let mut kinds = Kinds::default();
        for turn in 0..1000 {
            let commands = (0..100).map(|i| Command::Del(TensorId(turn * 50 + i)));
            let commands = commands.map(|command| kinds.intern(command)).collect();
            kinds.add(commands);
            assert!(kinds.commands.len() < 10_000, "{}", kinds.commands.len());
        }
        for kind in &kinds.all {
            for command in &kind.commands {
                assert!(Arc::ptr_eq(command, kinds.commands.get(command).unwrap()));
            }
        }
    }

    #[test]
    fn a_kind_that_cannot_be_planned_rests_longer_each_time() {
        let mut kinds = Kinds::default();
        let kind = kinds.add(steps(1)).unwrap();
        kinds.came(kind);
        assert!(!kinds.get(kind).may_be_planned(), "it came once");
        for rest in [4, 8, 16] {
            kinds.came(kind);
            assert!(kinds.get(kind).may_be_planned());
            kinds.get_mut(kind).refuse();
            for _ in 1..rest {
                kinds.came(kind);
                assert!(kinds.get(kind).is_refused());
            }
        }
    }
}
