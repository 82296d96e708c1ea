//! Execution of commands by plan: only the device works, on operands at known places.

use super::enter::There;
use super::leave::{Failed, Left};
use super::{Beside, Laid, Placed, Planning, Replay, StepPlan};
use crate::command::Command;
use crate::device::{Device, Place};
use crate::engine::{Engine, PlannedRun};
use crate::error::Error;
use crate::op::Operation as _;
use crate::store::Action;
use std::ops::Range;
use std::time::Instant;

/// Result of a command that was done by plan. An error has, as its first field, the number of the
/// command's actions that were done.
pub(in crate::driver) type Followed = Result<(), (usize, Error)>;

/// The driver's next task for a command.
pub(in crate::driver) enum Next<D: Device> {
    /// The command was done by plan. Call [`Planning::did_follow`] next.
    Done(Followed),
    /// Execute the command.
    Execute,
    /// The plan was left: redo its turn first. After that, execute the command, or if `again` is
    /// set, call [`Planning::follow`] for the command again.
    Left { left: Box<Left<D>>, again: bool },
}

impl<D: Device> Planning<D> {
    /// Tries to do a command by plan. If the command does not match, the plan is left.
    #[inline(never)]
    pub(in crate::driver) fn follow(
        &mut self,
        beside: &mut Beside<'_, D>,
        command: &Command<D::Op, D::Host>,
    ) -> Next<D> {
        let left = if self.replay.is_some() && !beside.books.engine.owes_no_word() {
            // Leave the plan, because the engine may have to report an earlier failure with the
            // current command.
            self.leave(beside, None)
        } else if !self.is_by_plan(beside, command) {
            None
        } else {
            match self.do_next(&mut beside.books.engine, command) {
                Ok(true) => return Next::Done(Ok(())),
                Err(Failed::Itself(done, failure)) => return Next::Done(Err((done, failure))),
                Ok(false) => match self.leave(beside, None) {
                    // Try again, because the command may be the first command of another turn.
                    Some(left) => return Next::Left { left, again: true },
                    // The first command of the turn does not match its plan. Trying again would
                    // never end.
                    None => {
                        self.watch_from_here(beside);
                        None
                    }
                },
                // An eviction, move or rerun that prepares the command failed. The engine tries the
                // command without a plan.
                Err(failed @ Failed::ForRoom(_)) => self.leave(beside, Some(failed)),
            }
        };
        self.watch(beside, command);
        match left {
            Some(left) => Next::Left { left, again: false },
            None => Next::Execute,
        }
    }

    /// Whether a command runs by plan. If the command begins a turn, enters the plan of that turn.
    #[inline]
    fn is_by_plan(
        &mut self,
        beside: &mut Beside<'_, D>,
        command: &Command<D::Op, D::Host>,
    ) -> bool {
        match &self.replay {
            Some(replay) if !replay.taken.is_empty() => true,
            Some(_) => {
                self.stopwatch.begin();
                self.goes_on_by_plan(beside, command)
            }
            None => {
                self.is_marked
                    && !matches!(command, Command::Del(_))
                    && self.begins_by_plan(beside)
                    && self.goes_on_by_plan(beside, command)
            }
        }
    }

    /// Chooses a plan for the turn that a command begins, while the driver runs turns by plan. If no
    /// plan matches, leaves plans and returns false.
    fn goes_on_by_plan(
        &mut self,
        beside: &mut Beside<'_, D>,
        command: &Command<D::Op, D::Host>,
    ) -> bool {
        if self.choose(command, &beside.books.engine) {
            return true;
        }
        let left = self.leave(beside, None);
        debug_assert!(left.is_none(), "no command of the turn came");
        if !matches!(command, Command::Del(_)) {
            self.watch_from_here(beside);
        }
        false
    }

    /// Begins a turn with the current command, without a plan.
    fn watch_from_here(&mut self, beside: &mut Beside<'_, D>) {
        self.is_marked = false;
        self.watch_turn(beside);
    }

    /// Completes a command that was done by plan. At the end of a turn, updates slots, numbers and
    /// counters.
    ///
    /// Returns a turn to redo if the command failed, or if the turn could not be ended.
    #[inline(never)]
    #[must_use]
    pub(in crate::driver) fn did_follow(
        &mut self,
        beside: &mut Beside<'_, D>,
        command: Command<D::Op, D::Host>,
        done: Followed,
    ) -> Option<Box<Left<D>>> {
        let Self { replay: Some(replay), kinds, numbers, balance, help, stopwatch, .. } =
            &mut *self
        else {
            return None;
        };
        let books = &mut *beside.books;
        if done.is_err() {
            replay.taken.push(command);
            let failed = done.err().map(|(done, error)| Failed::Itself(done, error));
            return self.leave(beside, failed);
        }
        // Note the command. Pass marks and labels on to the engine, because a plan has no actions
        // for them.
        let kind = kinds.get(replay.kind);
        numbers.make(&command);
        match &command {
            Command::Step => {
                match &kind.plan {
                    Some(plan) => books.engine.step_by_plan(&plan.took),
                    None => books.engine.step(),
                }
                stopwatch.mark();
                replay.marks += 1;
            }
            Command::Label { tensor, label } => {
                // Tensors made before the turn get the label now; tensors made in the turn keep
                // their label from the last turn without a plan.
                if let Some(key) = books.tensors.get(*tensor) {
                    _ = books.engine.label(key, label);
                }
            }
            _ => {}
        }
        replay.taken.push(command);
        if replay.taken.len() < kind.commands.len() {
            return None;
        }
        let Some(plan @ StepPlan { laid: Some(laid), .. }) = &kind.plan else { return None };
        // The turn is over: copy new values to the places of the old values that they replace.
        let returning = (!laid.returns.is_empty()).then(Instant::now);
        let returned = laid.returns.iter().try_for_each(|&(from, to, bytes)| {
            books.engine.ask_device("a step", |device| device.copy(from, to, bytes))
        });
        if returned.is_err() {
            // Leaving is possible, because all values are still at their planned addresses.
            return self.leave(beside, None);
        }
        if let Some(start) = returning {
            stopwatch.also_since(start);
        }
        // Give the new tensors the slots and keys of the tensors that they replace, and count the
        // turn.
        let tensors = &mut books.tensors;
        numbers.turn_as_planned(&plan.heirs, |before, after| tensors.rename(before, after));
        books.engine.did_replay(&plan.took);
        balance.ran(replay.taken.len());
        help.ran(stopwatch.take(), plan.took.for_room.evictions, &kind.unplanned);
        books.engine.forget_planned();
        replay.taken.clear();
        replay.marks = 0;
        replay.turns += 1;
        let kind = replay.kind;
        kinds.came(kind);
        self.rest.forget();
        self.strange = 0;
        None
    }

    /// Chooses the plan of a turn that begins with `command`. Tries the predicted kind first, then
    /// other kinds. Returns false if no planned kind is predicted, or if no plan matches both the
    /// command and the live tensors.
    fn choose(&mut self, command: &Command<D::Op, D::Host>, engine: &Engine<D>) -> bool {
        let Self { replay: Some(replay), kinds, numbers, .. } = self else { return false };
        let Some(expected) = kinds.next_planned() else { return false };
        let others = (0..kinds.all().len()).filter(|&kind| kind != expected);
        let mut kinds_by_hope = std::iter::once(expected).chain(others);
        kinds_by_hope.any(|kind| {
            let first = kinds.get(kind).commands.first();
            let begins = first.is_some_and(|first| numbers.is::<D>(first, command));
            begins && replay.choose(kinds, kind, There { slots: &numbers.slots, engine })
        })
    }

    /// Finds the next planned command with its actions, if `command` matches the planned command.
    #[inline]
    fn next(&self, command: &Command<D::Op, D::Host>) -> Option<Coming<'_, D>> {
        let replay = self.replay.as_ref()?;
        let kind = self.kinds.get(replay.kind);
        let at = replay.taken.len();
        if !self.numbers.is::<D>(kind.commands.get(at)?, command) {
            return None;
        }
        let plan = kind.plan.as_ref()?;
        let laid = plan.laid.as_ref()?;
        Some(Coming { replay, plan, laid, actions: plan.actions_of(at) })
    }

    /// Does the next command of the plan, if `command` matches it. Returns whether it matches.
    ///
    /// # Errors
    /// The failure, with the number of actions that were done.
    #[inline]
    fn do_next(
        &mut self,
        engine: &mut Engine<D>,
        command: &Command<D::Op, D::Host>,
    ) -> Result<bool, Failed> {
        let Some(Coming { replay, plan, laid, actions }) = self.next(command) else {
            return Ok(false);
        };
        let calls = || command.calls().iter().filter(|call| call.outputs.written().is_some());
        // Check all calls before the first call runs. If a check fails, all calls run without the
        // plan. A call that had already run by plan would run twice, which an update in place must
        // not.
        let own = plan.own(&actions);
        let mut ops = calls();
        for action in own.clone() {
            if let Some(run) = laid.run(plan, action)
                && !ops.next().is_some_and(|call| engine.goes_with(&call.op, &run))
            {
                return Ok(false);
            }
        }
        if own.start > actions.start {
            replay.make_room(plan, laid, actions.start..own.start, engine)?;
        }
        let mut ops = calls();
        for action in own {
            let places = laid.places_of(action);
            let done = match (&plan.actions[action], command) {
                (Action::Run { .. }, _) => match (laid.run(plan, action), ops.next()) {
                    (Some(run), Some(call)) => engine.run_planned(&call.op, &run),
                    _ => Ok(()),
                },
                (Action::Upload { .. }, Command::Put { host, .. }) => {
                    engine.ask_device("put", |device| device.write(host, places[0])).map(drop)
                }
                (Action::Copy { .. }, _) => engine
                    .ask_device("copying the old value of an update", |device| {
                        device.duplicate(places[0], places[1])
                    }),
                // The caller does a read, at `read_place`. No other combination occurs, because each
                // action of a plan was checked against its command.
                _ => Ok(()),
            };
            done.map_err(|error| Failed::Itself(action - actions.start, error))?;
            if !plan.is_plentiful && !plan.verified.is_empty() {
                plan.keep_bits(laid, action, engine);
            }
        }
        Ok(true)
    }

    /// Place of the value that the host reads by the command that was just done, if the command is
    /// a read.
    pub(in crate::driver) fn read_place(&self) -> Option<Place> {
        let replay = self.replay.as_ref()?;
        let plan = self.kinds.get(replay.kind).plan.as_ref()?;
        let mut own = plan.own(&plan.actions_of(replay.taken.len()));
        let read = own.find(|&action| matches!(plan.actions[action], Action::Read { .. }))?;
        Some(plan.laid.as_ref()?.places_of(read)[0])
    }
}

impl<D: Device> Replay<D> {
    /// Does the evictions, moves and reruns that precede a command.
    ///
    /// # Errors
    /// `Failed::ForRoom`, with the number of actions that were done.
    #[inline(never)]
    fn make_room(
        &self,
        plan: &StepPlan,
        laid: &Laid,
        actions: Range<usize>,
        engine: &mut Engine<D>,
    ) -> Result<(), Failed> {
        for at in actions.clone() {
            let action = &plan.actions[at];
            if let (&Action::Move { bytes, .. }, &[from, to]) = (action, laid.places_of(at)) {
                let moved = engine.ask_device("moving a block", |device| {
                    device.copy(from.storage, to.storage, bytes)
                });
                moved.map_err(|_| Failed::ForRoom(at - actions.start))?;
            }
            let Some((command, call)) = plan.first_of(action) else { continue };
            if engine.check_interrupt().is_err() {
                return Err(Failed::ForRoom(at - actions.start));
            }
            let done = match (&self.taken[command], laid.run(plan, at)) {
                (Command::Put { host, .. }, _) => {
                    let to = laid.places_of(at)[0];
                    engine.ask_device("put", |device| device.write(host, to)).map(drop)
                }
                (command, Some(run)) => engine.run_planned(&command.calls()[call].op, &run),
                _ => Ok(()),
            };
            let same = done.is_ok_and(|()| plan.has_same_bits(laid, at, &self.taken, engine));
            if !same {
                return Err(Failed::ForRoom(at - actions.start));
            }
        }
        Ok(())
    }
}

impl StepPlan {
    /// Index of the first action of a command.
    #[inline]
    pub(super) fn begin_of(&self, command: usize) -> usize {
        command.checked_sub(1).map_or(0, |last| self.ends[last])
    }

    /// The actions of a command.
    #[inline]
    pub(super) fn actions_of(&self, command: usize) -> Range<usize> {
        self.begin_of(command)..self.ends[command]
    }

    /// The last part of a command's actions, which execute the command itself. The command's
    /// earlier actions free memory for it.
    #[inline]
    fn own(&self, actions: &Range<usize>) -> Range<usize> {
        let for_room = match self.is_plentiful {
            true => 0,
            false => {
                let all = self.actions[actions.clone()].iter();
                all.take_while(|action| action.is_for_room()).count()
            }
        };
        actions.start + for_room..actions.end
    }

    /// The evictions, moves and reruns that the plan does before a command.
    pub(super) fn for_room(&self, command: usize) -> impl Iterator<Item = &Action> {
        self.actions[self.actions_of(command)].iter().take_while(|action| action.is_for_room())
    }

    /// Keeps hashes (*prints*) of an action's outputs. Keeps no hashes unless recomputed values are
    /// verified and the plan evicts or remakes the outputs.
    #[cold]
    fn keep_bits<D: Device>(&self, laid: &Laid, action: usize, engine: &mut Engine<D>) {
        if let Some(&first) = self.verified.get(&action) {
            engine.keep_planned(first, laid.made_by(action));
        }
    }

    /// Whether recomputed outputs have the same bits as before; true if outputs are not verified.
    fn has_same_bits<D: Device>(
        &self,
        laid: &Laid,
        action: usize,
        taken: &[Command<D::Op, D::Host>],
        engine: &mut Engine<D>,
    ) -> bool {
        let again = self.actions[action].again().filter(|_| !self.verified.is_empty());
        let (Some(first), Some((command, call))) = (again, self.first_of(&self.actions[action]))
        else {
            return true;
        };
        let (op, inputs) = match &taken[command] {
            Command::Put { .. } => ("put", 0),
            command => (command.calls()[call].op.name(), laid.actions[action].inputs),
        };
        let operands = laid.actions[action].operands.clone();
        let read = &laid.layouts[operands][..inputs];
        engine.compare_planned(first, op, read, laid.made_by(action))
    }

    /// Command index and call index of the first run that the action repeats.
    fn first_of(&self, action: &Action) -> Option<(usize, usize)> {
        let (command, call) = self.firsts[action.again()? as usize];
        Some((command as usize, call as usize))
    }
}

/// The planned command that comes next; see [`Planning::next`].
struct Coming<'a, D: Device> {
    replay: &'a Replay<D>,
    plan: &'a StepPlan,
    laid: &'a Laid,
    actions: Range<usize>,
}

impl Laid {
    /// Places of an action's outputs.
    fn made_by(&self, action: usize) -> &[Place] {
        &self.places_of(action)[self.actions[action].inputs..]
    }

    #[inline]
    fn places_of(&self, action: usize) -> &[Place] {
        &self.places[self.actions[action].operands.clone()]
    }

    /// The action as a run of an op; `None` for any other action.
    #[inline]
    fn run<'a>(&'a self, plan: &StepPlan, action: usize) -> Option<PlannedRun<'a>> {
        let Action::Run { flops, .. } = plan.actions[action] else { return None };
        let Placed { operands, inputs, workspace } = &self.actions[action];
        Some(PlannedRun {
            places: &self.places[operands.clone()],
            layouts: &self.layouts[operands.clone()],
            inputs: *inputs,
            workspace,
            flops,
        })
    }
}
