//! The end of turns by plan: updates the engine's tables to match the contents of device memory.

use super::{Beside, Planning, Replay};
use crate::command::Command;
use crate::device::Device;
use crate::engine::Engine;
use crate::error::Error;
use crate::store::Script;
use std::ops::Range;
use std::time::Instant;

/// The reason why a command was not done by plan.
#[derive(Debug)]
pub(super) enum Failed {
    /// An eviction, move or rerun that frees memory for the command failed. The field is the number
    /// of the command's actions that were done before the failure.
    ForRoom(usize),
    /// The command itself failed. The first field is the number of the command's actions that were
    /// done before the failure. [`Left::taken`] includes the command.
    Itself(usize, Error),
}

/// A turn whose plan was left. The turn's commands are executed again to update the engine's
/// tables, without the device. Each block keeps the address that it had in the plan.
pub(in crate::driver) struct Left<D: Device> {
    kind: usize,
    /// Commands of the turn that were done.
    pub taken: Vec<Command<D::Op, D::Host>>,
    script: Script,
    /// Number of step marks in `taken`.
    marks: u64,
    /// `Some` if an action that makes room in memory for the next command failed. The range has the
    /// actions done before the failed action.
    for_room: Option<Range<usize>>,
}

impl<D: Device> Planning<D> {
    /// Leaves the plan. The driver enters no plan again before the next turn begins. The caller
    /// must [redo](Left) the returned turn.
    #[must_use]
    pub(in crate::driver) fn leave_plan(
        &mut self,
        beside: &mut Beside<'_, D>,
    ) -> Option<Box<Left<D>>> {
        if self.replay.is_some() {
            return self.leave(beside, None);
        }
        beside.books.engine.take_back_kept();
        None
    }

    #[must_use]
    pub(super) fn leave(
        &mut self,
        beside: &mut Beside<'_, D>,
        failed: Option<Failed>,
    ) -> Option<Box<Left<D>>> {
        let replay = self.replay.take()?;
        beside.books.engine.take_back_lent();
        // Tell the recognizer which turns ran: its later predictions depend on them, and so do
        // evictions.
        if let Some(recognizer) = beside.recognition.recognizer_mut() {
            recognizer.hear_again(self.kinds.recognized(replay.turns));
        }
        if replay.taken.is_empty() && failed.is_none() {
            self.stay_between_turns();
            return None;
        }
        self.hear_left(replay.kind, &replay.taken);
        self.balance.left(replay.taken.len());
        self.help.left += 1;
        self.stopwatch.void();
        let plan = self.kinds.get(replay.kind).plan.as_ref()?;
        let taken = replay.taken.len();
        let (whole, more, for_room, failure) = match failed {
            None => (taken, 0, None, None),
            Some(Failed::ForRoom(done)) => (taken, done, Some(done), None),
            Some(Failed::Itself(done, error)) => (taken - 1, done, None, Some(error)),
        };
        let end = plan.begin_of(whole) + more;
        let done = plan.actions[..end].iter().filter(|action| action.writes()).count();
        let offsets = plan.offsets.iter().map(|offset| Some(replay.start + (*offset)?));
        let script = Script {
            places: plan.taken.iter().copied().collect(),
            offsets: offsets.collect(),
            // A plan without evictions looks up no owner of a block, so its table of owners stays
            // empty.
            owners: if plan.is_plentiful { vec![] } else { vec![None; plan.offsets.len()] },
            unheld_stays: plan.unheld_stays.iter().copied().collect(),
            gives_way: plan.gives_way.iter().copied().collect(),
            done,
            failure,
            ..Script::default()
        };
        let for_room = for_room.map(|done| end - done..end);
        let Replay { kind, taken, marks, .. } = replay;
        Some(Box::new(Left { kind, taken, script, marks, for_room }))
    }

    /// Notes the actions that freed memory before a command of the turn whose plan was left.
    pub(in crate::driver) fn redo_for_room(
        &self,
        left: &Left<D>,
        command: usize,
        engine: &mut Engine<D>,
    ) {
        if let Some(plan) = &self.kinds.get(left.kind).plan {
            plan.for_room(command).for_each(|action| engine.do_for_room(action));
        }
    }

    /// Ends the second execution of a turn whose plan was left, after all the turn's commands. The
    /// second execution began at `start`.
    pub(in crate::driver) fn is_redone(
        &mut self,
        left: &Left<D>,
        commands: usize,
        engine: &mut Engine<D>,
        start: Instant,
    ) {
        if let (Some(plan), Some(done)) = (&self.kinds.get(left.kind).plan, &left.for_room) {
            plan.actions[done.clone()].iter().for_each(|action| engine.do_for_room(action));
            engine.give_up_for_room(&plan.actions[done.end]);
        }
        engine.end_script();
        self.help.spent_since(start);
        if self.balance.is_spent(commands) {
            self.give_up();
        }
    }
}

impl<D: Device> Left<D> {
    /// Starts the script, which gives blocks their planned addresses while the commands are
    /// executed again.
    pub fn begin(&mut self, engine: &mut Engine<D>) {
        engine.begin_script(std::mem::take(&mut self.script), self.marks);
    }
}
