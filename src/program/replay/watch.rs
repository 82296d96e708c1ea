//! Comparing each turn with the one before, and what follows from that.

use super::boundary::Boundary;
use super::{MOST_MISSES, MOST_STRANGE, Planned, Planning};
use crate::device::Device;
use crate::program::{Command, Driver};

impl<D: Device> Driver<D> {
    /// A command comes, that no plan takes: it is executed after this.
    pub(super) fn watch(&mut self, command: &Command<D::Op, D::Host>) {
        let Some(mut planning) = self.planning.take() else { return };
        planning.hear(command, self.engine.tape().map(|tape| tape.actions.len()));
        self.planning = Some(planning);
    }

    /// Between two turns: the next command begins one. Whether that runs by plan.
    pub(super) fn begins_by_plan(&mut self) -> bool {
        let Some(mut planning) = self.planning.take() else { return false };
        let is_expected = planning.turn_ends();
        let planned = match (is_expected, planning.taping.take()) {
            (Some(is_expected), None) if planning.plan.is_some() => {
                self.seek_plan(&mut planning, is_expected)
            }
            (Some(true), Some((before, totals))) => {
                if let Some(actions) = self.engine.tape().map(|tape| tape.actions.len()) {
                    planning.ends.push(actions);
                }
                self.prepare_plan(&mut planning, before, totals)
            }
            (Some(true), None) => {
                self.begin_tape(&mut planning);
                false
            }
            (_, Some(_)) => {
                self.engine.take_tape();
                planning.give_up();
                false
            }
            (Some(false), None) => {
                planning.misses += 1;
                if planning.misses >= MOST_STRANGE {
                    planning.give_up();
                }
                false
            }
            _ => false,
        };
        (planning.at, planning.is_same) = (0, true);
        self.planning = Some(planning);
        planned
    }

    /// Writes down what the next turn does.
    fn begin_tape(&mut self, planning: &mut Planning<D>) {
        match self.boundary(planning) {
            Some(boundary) => {
                planning.misses = 0;
                self.engine.begin_tape(&boundary.storages);
                planning.taping = Some((boundary, self.engine.totals()));
                planning.ends.clear();
            }
            None => planning.give_up(),
        }
    }

    /// What is there, if a plan may begin. Who writes down what is executed, or knows it ahead, wants all of it to come.
    fn boundary(&self, planning: &Planning<D>) -> Option<Boundary> {
        let is_heard = self.is_written() || !self.admitted.is_empty();
        if is_heard { None } else { Boundary::of(self, &planning.numbers) }
    }

    /// The plan runs, if the turn before was of its kind, so that what is there goes by the same numbers.
    fn seek_plan(&mut self, planning: &mut Planning<D>, is_expected: bool) -> bool {
        let boundary = is_expected.then(|| self.boundary(planning)).flatten();
        let like = |boundary: &Boundary| {
            planning.plan.as_ref().is_some_and(|plan| plan.boundary.is_like(boundary))
        };
        match boundary.filter(like) {
            Some(boundary) => self.enter(planning, &boundary),
            None => {
                planning.misses += 1;
                if planning.misses > MOST_MISSES {
                    planning.plan = None;
                    planning.misses = 0;
                    planning.commands.clear();
                    planning.give_up();
                }
                false
            }
        }
    }
}

impl<D: Device> Planning<D> {
    /// A command comes, after so many actions on the tape, if that runs.
    fn hear(&mut self, command: &Command<D::Op, D::Host>, actions: Option<usize>) {
        if matches!(command, Command::Step) {
            self.is_marked = true;
        }
        if self.rest > 0 {
            self.numbers.make(command);
            return;
        }
        if let Some(actions) = actions
            && self.at > 0
        {
            self.ends.push(actions);
        }
        let expected = self.expected().get(self.at);
        self.is_same &= expected.is_some_and(|expected| self.numbers.is::<D>(expected, command));
        if self.is_same || self.plan.is_some() {
            self.numbers.make(command);
        } else {
            self.commands.truncate(self.at);
            self.commands.push(self.numbers.planned::<D>(command));
        }
        self.at += 1;
    }

    /// A turn is over. Whether it was as expected; `None` if nobody looked.
    fn turn_ends(&mut self) -> Option<bool> {
        self.is_marked = false;
        self.numbers.turn();
        if self.rest > 0 {
            self.rest -= 1;
            if self.rest == 0 {
                self.commands.clear();
            }
            return None;
        }
        Some(self.is_same && self.at == self.expected().len())
    }

    /// What comes in a turn, if it is like the plan's or the last one.
    fn expected(&self) -> &[Planned] {
        self.plan.as_ref().map_or(&self.commands, |plan| &plan.commands)
    }
}
