//! The kinds of turn that there are, and which comes next.

use super::help::Unplanned;
use super::prepare::Preparing;
use super::{StepPlan, TurnCommand};
use crate::driver::rest::Rest;
use crate::step::recognize::NodeId;
use rustc_hash::FxHashSet;
use std::collections::VecDeque;
use std::sync::Arc;

/// Turns that are equal, command by command.
#[derive(Debug)]
pub(super) struct Kind {
    pub commands: Vec<Arc<TurnCommand>>,
    pub plan: Option<StepPlan>,
    /// A plan that will be there after its next turn, or another's.
    pub preparing: Option<Preparing>,
    /// How often it came.
    times: u32,
    /// Turns of it in which it is not tried to plan it, after its plan came to nothing.
    rest: Rest<4, { 1 << 12 }>,
    /// Times in a row that its plan could not begin.
    misses: u32,
    /// Whether something was evicted when it last came without a plan.
    pub evicted: bool,
    /// Whether something else was there after it then than before, as where a loop keeps the loss of each step.
    pub changes_boundary: bool,
    /// What its turns take without a plan.
    pub unplanned: Unplanned,
    /// Its commands as the recognizer knows them, if steps were recognized when it was planned.
    pub recognized: Vec<NodeId>,
}

/// See the [module](self) documentation.
#[derive(Debug, Default)]
pub(super) struct Kinds {
    all: Vec<Kind>,
    /// Those of the last turns, the newest last. `None`: a turn that was like none before.
    past: VecDeque<Option<usize>>,
    /// Each command of theirs once: equal ones are at one address. And perhaps some of kinds that are gone.
    commands: FxHashSet<Arc<TurnCommand>>,
    /// How many there were of kinds that are there, when that was last asked.
    needed: usize,
}

/// So many kinds are known at most: training, evaluation and what is between, over a few shapes.
const MOST_KINDS: usize = 8;

/// So many commands are kept at most.
const MOST_COMMANDS: usize = 1 << 18;

/// So many of the last turns are remembered, and so many of them compared.
const PAST: usize = 256;
const CONTEXT: usize = 16;

/// So often a kind has come that is frequent.
const FREQUENT: u32 = 24;

/// After so many misses, a plan is given up for another.
const MOST_MISSES: u32 = 16;

impl Kind {
    /// It could not be planned.
    pub fn refuse(&mut self) {
        self.plan = None;
        self.rest.begin();
    }

    /// Whether its plan could begin. If it could not time and again, since something else is there between turns now, it is
    /// given up for another.
    pub fn entered(&mut self, enters: bool) {
        self.misses = if enters { 0 } else { self.misses + 1 };
        if self.misses > MOST_MISSES {
            self.misses = 0;
            self.refuse();
        }
    }

    /// Whether it came twice, so that it will again, and is not let be.
    pub fn may_be_planned(&self) -> bool {
        self.plan.is_none() && self.preparing.is_none() && self.times >= 2 && self.rest.is_over()
    }

    /// Whether it came before the last time, so that it may come again.
    pub fn is_known(&self) -> bool {
        self.times > 1
    }

    /// Whether it came often enough for most of what can be learnt about it to be known.
    pub fn is_frequent(&self) -> bool {
        self.times >= FREQUENT
    }

    /// Whether it could not be planned of late.
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

    /// A turn of this kind is over.
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

    /// The last turns, so many of them or as many as are remembered, as the recognizer knows them.
    pub fn recognized(&self, turns: usize) -> impl Iterator<Item = &[NodeId]> {
        let last = self.past.iter().skip(self.past.len().saturating_sub(turns));
        last.filter_map(|kind| Some(&self.all[(*kind)?].recognized[..]))
    }

    /// A turn of these commands is over, which were not known. `None` if they are too many to be.
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
        // In place of the one that did not come for longest.
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

    /// The one that is equal to this.
    pub fn intern(&mut self, command: TurnCommand) -> Arc<TurnCommand> {
        if let Some(known) = self.commands.get(&command) {
            return Arc::clone(known);
        }
        let new = Arc::new(command);
        self.commands.insert(Arc::clone(&new));
        new
    }

    /// The kind of which a turn most likely comes next: what came after the latest turns that were like the last ones, the
    /// more of them the better. `None` if that was like none before.
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

    /// The same, if there is a plan for it.
    pub fn next_planned(&self) -> Option<usize> {
        self.next().filter(|&kind| self.get(kind).plan.is_some())
    }

    /// Nothing is known of any.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// The plan that takes the most.
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
    fn what_comes_next_is_what_came_after_the_same() {
        for (turns, next) in [
            (&[0, 0, 0, 0][..], Some(0)),
            (&[0, 1, 0, 1, 0, 1, 0], Some(1)),
            (&[0, 1, 0, 1, 0, 1, 0, 1], Some(0)),
            (&[0, 0, 0, 1, 2, 0, 0, 0, 1, 2, 0, 0, 0, 1], Some(2)),
            (&[0, 0, 0, 1, 2, 0, 0, 0, 1, 2, 0, 0, 0, 1, 2, 0, 0], Some(0)),
            (&[0, 0, 0, 1, 2, 0, 0, 0, 1, 2, 0, 0, 0, 1, 2, 0, 0, 0], Some(1)),
            // What comes once is like nothing before: 3, 4 and 5 here.
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
    fn what_cannot_be_planned_is_let_be_for_longer_each_time() {
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
