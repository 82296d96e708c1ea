//! Comparing each turn with those that came before, and what follows from that.

use super::boundary::Boundary;
use super::glance::Glance;
use super::kinds::Kinds;
use super::prepare::Taken;
use super::{Beside, Planning, TurnCommand};
use crate::command::Command;
use crate::device::Device;
use crate::driver::books::Books;
use crate::store::Ends;
use std::sync::Arc;
use std::time::Instant;

/// The turn at hand, as far as it came.
#[derive(Debug, Default)]
pub(super) struct Watched {
    /// How many of its commands came.
    at: usize,
    /// The kinds that it may be one of.
    may_be: Vec<usize>,
    /// The first of them, or, if it may be of none, the last that it was like: mostly it differs from that in little.
    like: Option<usize>,
    /// Its commands, if it may be of none.
    new: Option<Vec<Arc<TurnCommand>>>,
    /// Evictions before it.
    evictions: u64,
    /// What was there before it, if that is known.
    began: Option<Boundary>,
    /// How many actions there were on the tape after each command, if that runs.
    ends: Vec<Ends>,
    /// None has begun since the last one that ran by plan: what comes are deletions.
    is_between: bool,
}

/// After so many turns in a row that were of no known kind, nobody looks for a while.
const MOST_STRANGE: u32 = 5;

impl<D: Device> Planning<D> {
    /// A command comes, that no plan takes: it is executed after this.
    pub(super) fn watch(&mut self, beside: &mut Beside<'_, D>, command: &Command<D::Op, D::Host>) {
        self.hear(command, beside.books.engine.next_on_tape());
    }

    /// Between two turns: the next command begins one. Whether that runs by plan.
    pub(super) fn begins_by_plan(&mut self, beside: &mut Beside<'_, D>) -> bool {
        self.is_marked = false;
        let is_refused = self.take_prepared();
        let is_last = self.rest.left() == 1;
        if self.rest.left() > 1 {
            self.rest.pass();
        } else if is_last && self.only_glances() {
            // Nothing is known of them but that.
        } else if is_last || self.turn.is_between {
            self.rest.pass();
            let Books { tensors, engine, .. } = &mut *beside.books;
            self.numbers.turn(tensors, engine.graph());
        } else {
            self.turn_ends(beside);
        }
        if is_refused && self.rest.is_over() {
            self.give_up_if_all_are_refused();
        }
        self.stopwatch.begin();
        self.rest.is_over() && self.enter_or_watch(beside)
    }

    /// The mark of a turn came, that does not run by plan. How long one takes that is recorded, or learned from, says nothing.
    pub(in crate::driver) fn turn_is_marked(&mut self, is_written: bool) {
        if is_written { self.stopwatch.void() } else { self.stopwatch.mark() }
    }

    /// A turn is over that did not run by plan.
    fn turn_ends(&mut self, beside: &mut Beside<'_, D>) {
        let taping = self.taping.take();
        let tape = beside.books.engine.take_tape();
        // As it was when the turn began.
        let slots = &self.numbers.slots;
        let roots = tape.as_deref().map(|tape| {
            [&tape.plentiful, &tape.short].map(|record| {
                let owners = beside.books.engine.owners_of_before(tape, record).into_iter();
                owners.map(|owner| Some((owner?, slots.of_storage(owner?)?))).collect::<Vec<_>>()
            })
        });
        let turned = self.numbers.turn(&mut beside.books.tensors, beside.books.engine.graph());
        let after = self.numbers.slots.boundary();
        let began = self.turn.began.take();
        let took = self.stopwatch.take();
        let Some((kind, is_new)) = self.kind_of_turn() else {
            return self.give_up();
        };
        self.kinds.came(kind);
        let evictions = beside.books.engine.evictions() - self.turn.evictions;
        let of = self.kinds.get_mut(kind);
        of.evicted = evictions > 0;
        if let Some(before) = began {
            of.changes_boundary = before != after;
        }
        if let Some(took) = took.filter(|_| of.is_known()) {
            // What is evicted while a tape runs, or after it did, is no measure: memory was made one piece for it.
            let counts = taping.is_none() && of.plan.is_none();
            of.unplanned.add(took, counts.then_some(evictions));
        }
        self.strange = if is_new { self.strange + 1 } else { 0 };
        if self.strange >= MOST_STRANGE {
            self.glance = Some(Glance::default());
            return self.give_up();
        }
        let (Some((before, began)), Some(tape), Some([plentiful, short])) = (taping, tape, roots)
        else {
            return;
        };
        if !self.kinds.get(kind).may_be_planned() {
            return;
        }
        if let Some(recognizer) = beside.recognition.recognizer() {
            self.kinds.get_mut(kind).recognized = recognizer.last_turn().to_vec();
        }
        let mut ends = std::mem::take(&mut self.turn.ends);
        ends.push(tape.ends());
        let taken = Taken { tape: *tape, ends, before, began, plentiful, short, turned };
        match self.prepare_plan(beside, kind, taken) {
            Some(preparing) => self.kinds.get_mut(kind).preparing = Some(preparing),
            None => self.refuse(kind),
        }
    }

    /// A turn begins. Whether by plan, if there is one of the kind that is expected.
    fn enter_or_watch(&mut self, beside: &mut Beside<'_, D>) -> bool {
        let Some(kind) = self.kinds.next_planned() else {
            self.watch_turn(beside);
            return false;
        };
        let boundary = self.boundary_to_plan(beside);
        let enters =
            boundary.is_some_and(|boundary| self.enter(&mut beside.books.engine, kind, boundary));
        self.kinds.get_mut(kind).entered(enters);
        if !enters {
            self.turn = Watched::of_any(self.kinds.all().len());
            self.turn.began = Some(self.numbers.slots.boundary());
        }
        enters
    }

    /// A turn begins that does not run by plan. If one is to be made of the kind that is expected, it is written down.
    pub(super) fn watch_turn(&mut self, beside: &mut Beside<'_, D>) {
        self.turn = Watched::of_any(self.kinds.all().len());
        self.turn.evictions = beside.books.engine.evictions();
        self.turn.began = Some(self.numbers.slots.boundary());
        let next = self.kinds.next();
        let Some(kind) = next.filter(|&kind| self.kinds.get(kind).may_be_planned()) else {
            return;
        };
        // What left something else behind than it found, the last time, will again.
        let repeats = !self.kinds.get(kind).changes_boundary;
        match self.boundary_to_plan(beside).filter(|_| repeats) {
            Some(boundary) => {
                let is_short = self.kinds.get(kind).evicted;
                beside.books.engine.begin_tape(is_short);
                self.taping = Some((boundary, beside.books.engine.totals()));
                // What made room for the tape is no part of the turn.
                self.stopwatch.begin();
            }
            None => self.refuse(kind),
        }
    }

    /// What is there, if a plan may begin. Who writes down what is executed, or knows it ahead, wants all of it to come.
    fn boundary_to_plan(&self, beside: &Beside<'_, D>) -> Option<Boundary> {
        let is_heard = beside.books.is_written() || beside.waits;
        if is_heard { None } else { self.boundary_of(beside.books) }
    }

    /// What is there now. `None` if it could not be the beginning of a plan: something has a history, or is away, or waits
    /// for what comes.
    pub(super) fn boundary_of(&self, books: &Books<D>) -> Option<Boundary> {
        let boundary = self.numbers.slots.boundary();
        let (tensors, _, paths) = books.engine.graph().counts();
        // What has no history, and is not lost, is resident.
        let may_begin = books.engine.is_settled() && paths == 0 && boundary.tensors == tensors;
        (may_begin && books.tensors.is_unchanged()).then_some(boundary)
    }
}

impl<D: Device> Planning<D> {
    /// A command comes, after so many actions on the tape, if that runs.
    fn hear(&mut self, command: &Command<D::Op, D::Host>, actions: Option<Ends>) {
        self.is_marked |= matches!(command, Command::Step);
        if let Some(glance) = &mut self.glance {
            glance.hear(command);
        }
        if !self.rest.is_over() || self.turn.is_between {
            return;
        }
        if let Some(actions) = actions
            && self.turn.at > 0
        {
            self.turn.ends.push(actions);
        }
        let Self { turn, kinds, numbers, .. } = self;
        // Most often it is as in this kind, and those of the others are compared with that.
        let expected = turn.like.and_then(|kind| kinds.get(kind).commands.get(turn.at));
        let known = expected.filter(|expected| numbers.is::<D>(expected, command));
        numbers.make_heirs(command);
        match known {
            Some(known) => turn.goes_on_as(kinds, known),
            None => {
                let command = kinds.intern(numbers.planned::<D>(command));
                turn.goes_on_as(kinds, &command);
            }
        }
        turn.at += 1;
    }

    /// Plans that were begun a turn ago are used from now on. They are waited for, so that it does not depend on time which
    /// turns run by plan. Returns whether one of them came to nothing.
    fn take_prepared(&mut self) -> bool {
        let mut is_refused = false;
        for kind in 0..self.kinds.all().len() {
            let Some(preparing) = self.kinds.get_mut(kind).preparing.take() else { continue };
            let start = Instant::now();
            let plan = preparing.finish();
            self.help.spent_since(start);
            match plan {
                Some(plan) => self.kinds.get_mut(kind).plan = Some(plan),
                None => {
                    self.kinds.get_mut(kind).refuse();
                    is_refused = true;
                }
            }
        }
        is_refused
    }

    /// The turn at hand is left by its plan, after so many of its commands.
    pub(super) fn hear_left(&mut self, kind: usize, taken: &[Command<D::Op, D::Host>]) {
        self.numbers.restart();
        taken.iter().for_each(|command| self.numbers.make_heirs(command));
        self.turn = Watched { at: taken.len(), ..Watched::of(vec![kind]) };
        self.is_marked = taken.iter().any(|command| matches!(command, Command::Step));
    }

    /// Plans are left where a turn would begin.
    pub(super) fn stay_between_turns(&mut self) {
        self.turn = Watched { is_between: true, ..Watched::default() };
        self.is_marked = true;
    }

    /// Of which kind the turn is that is over, and whether that is new. `None` if it is too long to be known.
    fn kind_of_turn(&mut self) -> Option<(usize, bool)> {
        let Self { turn, kinds, .. } = self;
        let is_whole = |kind: &&usize| kinds.get(**kind).commands.len() == turn.at;
        if let (None, Some(&kind)) = (&turn.new, turn.may_be.iter().find(is_whole)) {
            return Some((kind, false));
        }
        let commands = turn.new.take().unwrap_or_else(|| turn.so_far(kinds));
        // It may have been looked for among others, since it began by the plan of one of them.
        let known = self.kinds.all().iter().position(|kind| kind.commands == commands);
        match known {
            Some(kind) => Some((kind, false)),
            None => Some((self.kinds.add(commands)?, true)),
        }
    }
}

impl Watched {
    /// One that may be of any of so many kinds.
    fn of_any(kinds: usize) -> Self {
        Self::of((0..kinds).collect())
    }

    /// One that may be of these.
    fn of(may_be: Vec<usize>) -> Self {
        Self { like: may_be.first().copied(), may_be, ..Self::default() }
    }

    /// Its commands, if it does not differ yet from what it is like.
    fn so_far(&self, kinds: &Kinds) -> Vec<Arc<TurnCommand>> {
        self.like.map_or_else(Vec::new, |kind| kinds.get(kind).commands[..self.at].to_vec())
    }

    /// Its next command is this one, of which there is no equal at another address.
    #[inline]
    fn goes_on_as(&mut self, kinds: &Kinds, command: &Arc<TurnCommand>) {
        self.may_be.retain(|&kind| {
            let expected = kinds.get(kind).commands.get(self.at);
            expected.is_some_and(|expected| Arc::ptr_eq(expected, command))
        });
        if let Some(&first) = self.may_be.first() {
            self.like = Some(first);
            return;
        }
        let mut commands = self.new.take().unwrap_or_else(|| self.so_far(kinds));
        commands.push(Arc::clone(command));
        self.new = Some(commands);
    }
}
