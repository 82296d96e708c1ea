//! The end of turns by plan: the books are brought to where memory is.

use super::{Planning, Replay, StepPlan};
use crate::device::Device;
use crate::error::Error;
use crate::program::{Command, Driver};
use crate::store::Script;

/// Where in a turn its plan is left.
#[derive(Debug, Default)]
pub(super) struct Left {
    /// So much of what makes room for the next command is done.
    pub for_room: usize,
    /// What comes next of that failed.
    pub fails: bool,
    /// The last command failed after so many of its actions.
    pub failed: Option<(usize, Error)>,
}

impl<D: Device> Driver<D> {
    /// From now on nothing runs by plan, until a turn begins again. Called before anything is changed that is no command.
    pub fn leave_plan(&mut self) {
        if let Some(planning) = self.planning.take() {
            if planning.replay.is_some() {
                self.leave(planning, Left::default());
            } else {
                self.engine.take_back_kept();
                self.planning = Some(planning);
            }
        }
    }

    /// Goes through the commands of this turn again, without the device, each block where the plan had it.
    pub(super) fn leave(&mut self, mut planning: Box<Planning<D>>, left: Left) {
        let Some(replay) = planning.replay.take() else { return };
        self.engine.take_back_lent();
        if replay.taken.is_empty() && left.for_room == 0 && !left.fails {
            planning.stay_between_turns();
        } else {
            let commands = replay.taken.len();
            planning.hear_left(replay.kind, &replay.taken);
            planning.balance.left(commands);
            planning.left += 1;
            if let Some(plan) = &planning.kinds.get(replay.kind).plan {
                self.redo_in_books(plan, replay, left);
            }
            if planning.balance.is_spent(commands) {
                planning.give_up();
            }
        }
        self.planning = Some(planning);
    }

    fn redo_in_books(&mut self, plan: &StepPlan, replay: Replay<D>, left: Left) {
        let Left { for_room, fails, failed } = left;
        // The last one is done unless it failed.
        let whole = replay.taken.len() - usize::from(failed.is_some());
        let (more, failure) = failed.map_or((for_room, None), |(done, error)| (done, Some(error)));
        let end = plan.begin_of(whole) + more;
        let done = plan.actions[..end].iter().filter(|action| action.writes()).count();
        let offsets = plan.offsets.iter().map(|offset| Some(replay.start + (*offset)?));
        let script = Script {
            places: plan.taken.iter().copied().collect(),
            offsets: offsets.collect(),
            // In a memory that is plentiful, nobody asks.
            owners: if plan.is_plentiful { vec![] } else { vec![None; plan.offsets.len()] },
            keeps_unheld: plan.keeps_unheld,
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
        plan.actions[end - for_room..end].iter().for_each(|action| self.engine.do_for_room(action));
        if fails {
            self.engine.give_up_for_room(&plan.actions[end]);
        }
        self.engine.end_script();
    }
}
