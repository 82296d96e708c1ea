//! The end of turns by plan: the books are brought to where memory is.

use super::{Planning, Replay, StepPlan};
use crate::device::Device;
use crate::error::Error;
use crate::program::{Command, Driver};
use crate::store::{Action, Script};

impl<D: Device> Driver<D> {
    /// From now on nothing runs by plan, until a turn begins again. Called before anything is changed that is no command.
    pub fn leave_plan(&mut self) {
        if let Some(planning) = self.planning.take() {
            if planning.replay.is_some() {
                self.leave(planning, None);
            } else {
                self.planning = Some(planning);
            }
        }
    }

    /// Goes through the commands of this turn again, without the device, each block where the plan had it. The last one
    /// may have failed after so many actions.
    pub(super) fn leave(&mut self, mut planning: Box<Planning<D>>, failed: Option<(usize, Error)>) {
        let Some(replay) = planning.replay.take() else { return };
        self.engine.take_back_lent();
        if replay.taken.is_empty() {
            planning.stay_between_turns();
        } else {
            let commands = replay.taken.len();
            planning.hear_left(replay.kind, &replay.taken);
            planning.balance.left(commands);
            planning.left += 1;
            if let Some(plan) = &planning.kinds.get(replay.kind).plan {
                self.redo_in_books(plan, replay, failed);
            }
            if planning.balance.is_spent(commands) {
                planning.give_up();
            }
        }
        self.planning = Some(planning);
    }

    fn redo_in_books(
        &mut self,
        plan: &StepPlan,
        replay: Replay<D>,
        failed: Option<(usize, Error)>,
    ) {
        // The last one is done unless it failed.
        let whole = replay.taken.len() - usize::from(failed.is_some());
        let (more, failure) = failed.map_or((0, None), |(done, error)| (done, Some(error)));
        let done = whole.checked_sub(1).map_or(0, |last| plan.ends[last]) + more;
        // What the host reads needs nothing done.
        let acts = |action: &&Action| !matches!(action, Action::Read { .. });
        let done = plan.actions[..done].iter().filter(acts).count();
        let places = plan.offsets.iter().map(|offset| replay.start + offset);
        let script = Script { places: places.collect(), done, failure, is_lost: false };
        self.engine.begin_script(script, replay.marks);
        for command in replay.taken {
            match command {
                // It was read.
                Command::Get(tensor) => drop(self.visit(tensor, |_, _| Ok(()))),
                other => self.execute(other),
            }
        }
        self.engine.end_script();
    }
}
