//! The end of turns by plan: the books are brought to where memory is.

use super::{Planning, Replay, StepPlan};
use crate::command::Command;
use crate::device::Device;
use crate::driver::Driver;
use crate::error::Error;
use crate::store::Script;
use std::time::Instant;

/// Why a command was not done by plan.
#[derive(Debug)]
pub(super) enum Failed {
    /// What makes room for it, after so much of that.
    ForRoom(usize),
    /// The command itself, after so many of its actions. It counts as taken.
    Itself(usize, Error),
}

impl<D: Device> Driver<D> {
    /// From now on nothing runs by plan, until a turn begins again. Called before anything is changed that is no command.
    pub fn leave_plan(&mut self) {
        if let Some(planning) = self.planning.take() {
            if planning.replay.is_some() {
                self.leave(planning, None);
            } else {
                self.engine.take_back_kept();
                self.planning = Some(planning);
            }
        }
    }

    /// Goes through the commands of this turn again, without the device, each block where the plan had it.
    pub(super) fn leave(&mut self, mut planning: Box<Planning<D>>, failed: Option<Failed>) {
        let Some(replay) = planning.replay.take() else { return };
        self.engine.take_back_lent();
        // What is expected next, and so what is evicted, depends on which turns came.
        if let Some(recognizer) = &mut self.recognizer {
            recognizer.hear_again(planning.kinds.recognized(replay.turns));
        }
        if replay.taken.is_empty() && failed.is_none() {
            planning.stay_between_turns();
        } else {
            let commands = replay.taken.len();
            planning.hear_left(replay.kind, &replay.taken);
            planning.balance.left(commands);
            planning.help.left += 1;
            planning.stopwatch.void();
            let start = Instant::now();
            if let Some(plan) = &planning.kinds.get(replay.kind).plan {
                self.redo_in_books(plan, replay, failed);
            }
            planning.help.spent_since(start);
            if planning.balance.is_spent(commands) {
                planning.give_up();
            }
        }
        self.planning = Some(planning);
    }

    fn redo_in_books(&mut self, plan: &StepPlan, replay: Replay<D>, failed: Option<Failed>) {
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
            // In a memory that is plentiful, nobody asks.
            owners: if plan.is_plentiful { vec![] } else { vec![None; plan.offsets.len()] },
            unheld_stays: plan.unheld_stays.iter().copied().collect(),
            done,
            failure,
            ..Script::default()
        };
        self.engine.begin_script(script, replay.marks);
        for (at, command) in replay.taken.into_iter().enumerate() {
            plan.for_room(at).for_each(|action| self.engine.do_for_room(action));
            match command {
                // It was read.
                Command::Get(tensor) => drop(self.visit(tensor, |_, _| Ok(()))),
                other => self.execute(other),
            }
        }
        if let Some(done) = for_room {
            let done = &plan.actions[end - done..end];
            done.iter().for_each(|action| self.engine.do_for_room(action));
            self.engine.give_up_for_room(&plan.actions[end]);
        }
        self.engine.end_script();
    }
}
