//! Comparison of each turn with earlier turns, and the decisions that follow.

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

/// The current turn up to the current command.
#[derive(Debug, Default)]
pub(super) struct Watched {
    /// Number of commands until now.
    at: usize,
    /// Kinds whose commands begin like this turn.
    may_be: Vec<usize>,
    /// The first kind of `may_be`. If `may_be` is empty, `like` is the last kind that matched,
    /// because the turn usually differs little from that kind.
    like: Option<usize>,
    /// Commands of the turn, if the turn matches no known kind.
    new: Option<Vec<Arc<TurnCommand>>>,
    /// Number of evictions before the turn.
    evictions: u64,
    /// Live tensors before the turn, if known.
    began: Option<Boundary>,
    /// Length of the tape after each command, while the turn is captured on a tape.
    ends: Vec<Ends>,
    /// Whether no turn has begun since the last turn by plan, because all commands since then were
    /// deletions.
    is_between: bool,
}

/// Number of consecutive turns of unknown kind after which a rest begins, in which turns are not
/// compared.
const MOST_STRANGE: u32 = 5;

impl<D: Device> Planning<D> {
    /// Compares a command with the known kinds of turns. The method is called before each command
    /// that does not run by plan.
    pub(super) fn watch(&mut self, beside: &mut Beside<'_, D>, command: &Command<D::Op, D::Host>) {
        self.hear(command, beside.books.engine.next_on_tape());
    }

    /// Begins a turn with the next command, after a mark. Returns whether the turn runs by plan.
    pub(super) fn begins_by_plan(&mut self, beside: &mut Beside<'_, D>) -> bool {
        self.is_marked = false;
        let is_refused = self.take_prepared();
        let is_last = self.rest.left() == 1;
        if self.rest.left() > 1 {
            self.rest.pass();
        } else if is_last && self.only_glances() {
            // The turn was only hashed, so its commands cannot be compared.
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

    /// Notes the mark of a turn without a plan. The time of a turn is not counted if the turn is
    /// recorded or copied for a learner.
    pub(in crate::driver) fn turn_is_marked(&mut self, is_written: bool) {
        if is_written { self.stopwatch.void() } else { self.stopwatch.mark() }
    }

    /// Ends a turn without a plan. If the turn was captured on a tape, gives the tape to the
    /// planners.
    fn turn_ends(&mut self, beside: &mut Beside<'_, D>) {
        let taping = self.taping.take();
        let tape = beside.books.engine.take_tape();
        // Look up storages from before the turn in the slots, before the slots are updated.
        let slots = &self.numbers.slots;
        let roots = tape.as_deref().map(|tape| {
            [&tape.plentiful, &tape.short].map(|record| {
                let owners = beside.books.engine.owners_of_before(tape, record).into_iter();
                owners.map(|owner| Some((owner?, slots.of_storage(owner?)?))).collect::<Vec<_>>()
            })
        });
        // Update the slots, and find the kind of the turn.
        let turned = self.numbers.turn(&mut beside.books.tensors, beside.books.engine.graph());
        let after = self.numbers.slots.boundary();
        let began = self.turn.began.take();
        let took = self.stopwatch.take();
        let Some((kind, is_new)) = self.kind_of_turn() else {
            return self.give_up();
        };
        self.kinds.came(kind);
        // Update the statistics of the turn's kind.
        let evictions = beside.books.engine.evictions() - self.turn.evictions;
        let of = self.kinds.get_mut(kind);
        of.evicted = evictions > 0;
        if let Some(before) = began {
            of.changes_boundary = before != after;
        }
        if let Some(took) = took.filter(|_| of.is_known()) {
            // Evictions in the captured turn or in later turns do not count, because memory was
            // compacted for the capture.
            let counts = taping.is_none() && of.plan.is_none();
            of.unplanned.add(took, counts.then_some(evictions));
        }
        self.strange = if is_new { self.strange + 1 } else { 0 };
        if self.strange >= MOST_STRANGE {
            self.glance = Some(Glance::default());
            return self.give_up();
        }
        // Give a captured turn to the planners, if its kind may be planned.
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

    /// Begins a turn, by plan if the predicted kind has a plan. Returns whether the turn runs by
    /// plan.
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

    /// Begins a turn that does not run by plan. The turn is captured on a tape if the predicted
    /// kind may be planned.
    pub(super) fn watch_turn(&mut self, beside: &mut Beside<'_, D>) {
        self.turn = Watched::of_any(self.kinds.all().len());
        self.turn.evictions = beside.books.engine.evictions();
        self.turn.began = Some(self.numbers.slots.boundary());
        let next = self.kinds.next();
        let Some(kind) = next.filter(|&kind| self.kinds.get(kind).may_be_planned()) else {
            return;
        };
        // A kind whose last turn changed the live tensors will probably change them again, so it is
        // not captured.
        let repeats = !self.kinds.get(kind).changes_boundary;
        match self.boundary_to_plan(beside).filter(|_| repeats) {
            Some(boundary) => {
                let is_short = self.kinds.get(kind).evicted;
                beside.books.engine.begin_tape(is_short);
                self.taping = Some((boundary, beside.books.engine.totals()));
                // Start the clock here, because compaction for the capture does not count as time
                // of the turn.
                self.stopwatch.begin();
            }
            None => self.refuse(kind),
        }
    }

    /// Fingerprint of the live tensors, if a plan may begin. `None` while commands are recorded,
    /// copied for a learner, or admitted ahead, because then each command must be executed by the
    /// engine.
    fn boundary_to_plan(&self, beside: &Beside<'_, D>) -> Option<Boundary> {
        let is_heard = beside.books.is_written() || beside.waits;
        if is_heard { None } else { self.boundary_of(beside.books) }
    }

    /// Fingerprint of the live tensors; `None` if no plan may begin now. A plan requires that all
    /// tensors are resident leaves, that all failures are reported, and that all replacements are
    /// confirmed.
    pub(super) fn boundary_of(&self, books: &Books<D>) -> Option<Boundary> {
        let boundary = self.numbers.slots.boundary();
        let (tensors, _, paths) = books.engine.graph().counts();
        // A leaf that is not lost is resident.
        let may_begin = books.engine.is_settled() && paths == 0 && boundary.tensors == tensors;
        (may_begin && books.tensors.is_unchanged()).then_some(boundary)
    }
}

impl<D: Device> Planning<D> {
    /// Compares the next command with the known kinds. `actions` is the length of the tape before
    /// the command.
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
        // The turn usually has the kind `like`, so the command is compared in full with the command
        // of that kind only.
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

    /// Takes the plans that planners began during the last turn. Waits for unfinished plans.
    /// Without the wait, timing would decide which turns run by plan. Returns whether planning
    /// failed for any kind.
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

    /// Goes on comparing a turn whose plan was left. `taken` are the commands of the turn so far.
    pub(super) fn hear_left(&mut self, kind: usize, taken: &[Command<D::Op, D::Host>]) {
        self.numbers.restart();
        taken.iter().for_each(|command| self.numbers.make_heirs(command));
        self.turn = Watched { at: taken.len(), ..Watched::of(vec![kind]) };
        self.is_marked = taken.iter().any(|command| matches!(command, Command::Step));
    }

    /// Notes that plans were left between two turns.
    pub(super) fn stay_between_turns(&mut self) {
        self.turn = Watched { is_between: true, ..Watched::default() };
        self.is_marked = true;
    }

    /// The kind of the turn that has ended, and whether the kind is new. `None` if the turn has too
    /// many commands to be remembered.
    fn kind_of_turn(&mut self) -> Option<(usize, bool)> {
        let Self { turn, kinds, .. } = self;
        let is_whole = |kind: &&usize| kinds.get(**kind).commands.len() == turn.at;
        if let (None, Some(&kind)) = (&turn.new, turn.may_be.iter().find(is_whole)) {
            return Some((kind, false));
        }
        let commands = turn.new.take().unwrap_or_else(|| turn.so_far(kinds));
        // A turn that began by plan was compared only with the kind of that plan, so compare it
        // with all kinds.
        let known = self.kinds.all().iter().position(|kind| kind.commands == commands);
        match known {
            Some(kind) => Some((kind, false)),
            None => Some((self.kinds.add(commands)?, true)),
        }
    }
}

impl Watched {
    /// A turn that has just begun, and can still turn out to be of any of the `kinds` known kinds.
    fn of_any(kinds: usize) -> Self {
        Self::of((0..kinds).collect())
    }

    /// A turn that can still turn out to be of any of these kinds.
    fn of(may_be: Vec<usize>) -> Self {
        Self { like: may_be.first().copied(), may_be, ..Self::default() }
    }

    /// Commands of the turn so far, if the turn still matches the kind `like`.
    fn so_far(&self, kinds: &Kinds) -> Vec<Arc<TurnCommand>> {
        self.like.map_or_else(Vec::new, |kind| kinds.get(kind).commands[..self.at].to_vec())
    }

    /// Appends the next command. The command is interned, so equal commands have equal addresses.
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
