//! The stage that recognizes steps: it predicts which earlier commands repeat, and gives the
//! prediction to the evictor.

mod hear;
#[cfg(test)]
mod tests;

use super::books::Books;
use super::learning::{Going, Learning};
use super::trust::{Costs, Trust};
use crate::command::{Command, TensorId};
use crate::device::Device;
use crate::error::{Error, FailureKey, RegenerationError};
use crate::evict::Foresight;
use crate::graph::StorageKey;
use crate::step::KnownSteps;
use crate::step::recognize::{Known, NodeId, Role, Steps};
use hear::hear;
use slotmap::SecondaryMap;
use smallvec::SmallVec;
use std::sync::Arc;

/// State of the stage: the recognizer, if steps are recognized, and the learning of forecasts.
#[derive(Debug, Default)]
pub(super) struct Recognition {
    recognizer: Option<Box<Recognizer>>,
    /// The command that is being executed, if it is a position of a step.
    recognized: Option<Recognized>,
    /// Whether recognition begins at the first eviction.
    once_short: bool,
    /// Failure of the last command that failed.
    failure: Option<FailureKey>,
    /// Learning of forecasts: the best way to run recognized steps.
    pub learning: Learning,
}

/// Knowledge of the steps of a driver's program.
#[derive(Debug, Default)]
pub(super) struct Recognizer {
    steps: Steps,
    /// Role of each storage in a step: the command, and the output of that command, that made the
    /// storage.
    roles: SecondaryMap<StorageKey, Role>,
    /// Storage made last in each role, by role index. Predictions assume that later commands read
    /// this storage of the role, not an earlier one.
    players: Vec<Option<StorageKey>>,
    /// The predicted step that was given to the evictor.
    pub known: Option<Known>,
    /// Budget in bytes, and the foresight for the predicted step in that budget; `None` if the
    /// foresight is not made yet.
    pub foresight: Option<(u64, Arc<Foresight>)>,
    /// Position of the current command in the predicted step.
    at: usize,
    /// The current turn. `None` until a turn begins as predicted, and in turns in which the evictor
    /// gets no predictions.
    pub going: Option<Going>,
    /// Decides whether the evictor gets predictions.
    pub trust: Trust,
    /// Whether to give the evictor the predicted step at the next command, after turns in which it
    /// got no predictions.
    tells: bool,
}

/// A command that is being executed, matched to a node of the recognizer.
#[derive(Debug)]
struct Recognized {
    node: NodeId,
    /// Outputs of the command with their roles. Views are left out.
    makes: SmallVec<[(TensorId, Role); 2]>,
}

impl Recognizer {
    /// Gives a storage its role in the step. Returns the storage's previous role.
    fn cast(&mut self, storage: StorageKey, role: Role) -> Option<Role> {
        let index = role.index();
        if self.players.len() <= index {
            self.players.resize(index + 1, None);
        }
        if let Some(last) = self.players[index].replace(storage)
            && last != storage
            && self.roles.get(last) == Some(&role)
        {
            self.roles.remove(last);
        }
        self.roles.insert(storage, role).filter(|before| *before != role)
    }

    /// Changes several roles at the same time. In each pair, storages with the first role get the
    /// second role, or no role if it is `None`.
    fn recast(&mut self, roles: Vec<(Role, Option<Role>)>) {
        let player = |(before, now): (Role, Option<Role>)| {
            let storage = (*self.players.get(before.index())?)?;
            (self.roles.get(storage) == Some(&before)).then_some((storage, now))
        };
        let recast: SmallVec<[_; 16]> = roles.into_iter().filter_map(player).collect();
        recast.iter().for_each(|(storage, _)| _ = self.roles.remove(*storage));
        for (storage, role) in recast {
            role.map(|role| self.cast(storage, role));
        }
    }

    /// The value of the known step that a storage holds, if the command at `position` is next.
    /// `None` if the step has no value for the storage.
    pub fn value_of(&self, storage: StorageKey, position: usize) -> Option<u32> {
        let role = *self.roles.get(storage)?;
        Some(self.known.as_ref()?.value(role, position))
    }

    /// All storages that have a role, each with its role.
    fn playing(&self) -> impl Iterator<Item = (StorageKey, Role)> {
        let players = self.players.iter().flatten();
        players.filter_map(|&storage| Some((storage, *self.roles.get(storage)?)))
    }

    /// Nodes of the turn that ended with the last command; empty if turns are not compared.
    pub fn last_turn(&self) -> &[NodeId] {
        self.steps.last_turn()
    }

    /// Notes turns that ran by plan, because their commands did not reach the recognizer. At the
    /// next command, the evictor gets the prediction again.
    pub fn hear_again<'a>(&mut self, turns: impl Iterator<Item = &'a [NodeId]>) {
        turns.for_each(|turn| self.steps.came_again(turn));
        let renamed = self.steps.take_renamed();
        self.recast(renamed);
        self.at = self.steps.on_course().unwrap_or(0);
        self.tells = self.known.is_some();
        self.going = None;
    }
}

impl Recognition {
    /// Starts recognizing steps, with knowledge of an earlier run.
    pub fn begin(&mut self, known: KnownSteps) {
        let steps = Steps::of_another_run(known);
        self.recognizer = Some(Box::new(Recognizer { steps, ..Recognizer::default() }));
    }

    /// Starts recognizing steps at the first eviction, if the evictor uses foresight. Recognition
    /// that has begun goes on.
    pub fn begin_once_short(&mut self, evictor_foresees: bool) {
        self.once_short |= evictor_foresees;
    }

    /// Stops recognizing steps.
    pub fn end(&mut self) {
        (self.recognizer, self.once_short) = (None, false);
    }

    pub fn recognizer(&self) -> Option<&Recognizer> {
        self.recognizer.as_deref()
    }

    pub fn recognizer_mut(&mut self) -> Option<&mut Recognizer> {
        self.recognizer.as_deref_mut()
    }

    /// Knowledge of the steps until now; `None` if steps are not recognized yet.
    pub fn known_steps(&self) -> Option<KnownSteps> {
        Some(self.recognizer.as_ref()?.steps.keep())
    }

    /// Bytes of host memory that the knowledge of steps and the learner take.
    pub fn bytes(&self) -> u64 {
        let recognizer = self.recognizer.as_ref().map_or(0, |recognizer| recognizer.steps.bytes());
        self.learning.bytes() + recognizer
    }

    /// Matches the next command to a node of the recognizer, before the command runs.
    #[inline(always)]
    pub fn before<D: Device>(&mut self, books: &mut Books<D>, command: &Command<D::Op, D::Host>) {
        if self.recognizer.is_none() && self.once_short && books.engine.has_evicted() {
            self.begin(KnownSteps::default());
        }
        if self.recognizer.is_some() {
            self.hear(books, command);
        }
    }

    #[inline(never)]
    fn hear<D: Device>(&mut self, books: &mut Books<D>, command: &Command<D::Op, D::Host>) {
        if command.is_position() {
            books.last_cost = 0.0;
            self.recognized = self.with(books).map(|mut with| with.next(command));
        }
        if let &(Command::Del(tensor) | Command::Replace { target: tensor, consumed: true, .. }) =
            command
        {
            self.ends(books, tensor);
        }
    }

    /// Notes that the current command ends a tensor. If the tensor is the last handle of its
    /// storage, the role of the storage counts as unheld from then on.
    fn ends<D: Device>(&mut self, books: &Books<D>, tensor: TensorId) {
        if let Some(storage) = books.storage_of(tensor)
            && books.engine.graph().storage(storage).handles == 1
            && let Some(recognizer) = &mut self.recognizer
            && let Some(&role) = recognizer.roles.get(storage)
        {
            recognizer.steps.gone(role);
        }
    }

    /// Updates roles and predictions after the command ran.
    #[inline(always)]
    pub fn after<D: Device>(&mut self, books: &mut Books<D>) {
        if self.recognized.is_some() {
            self.ran(books);
        }
    }

    #[inline(never)]
    fn ran<D: Device>(&mut self, books: &mut Books<D>) {
        let recognized = self.recognized.take();
        if let (Some(recognized), Some(mut with)) = (recognized, self.with(books)) {
            with.ran(recognized);
        }
    }

    /// Handles a failure of the current command. A wrong prediction may have caused an
    /// out-of-memory error or a failed regeneration. After either failure, the evictor gets no
    /// predictions for a number of turns.
    #[cold]
    pub fn failed<D: Device>(&mut self, books: &mut Books<D>) {
        let Some(error) = books.failed.take() else { return };
        // Later commands fail with the same failure if they need a value that was lost to it.
        if self.failure.replace(error.key()) == Some(error.key()) {
            return;
        }
        let is_memory = match error {
            Error::OutOfMemory(_) => true,
            Error::Regeneration(error) => *error != RegenerationError::Cancelled,
            _ => false,
        };
        if let Some(mut with) = self.with(books).filter(|_| is_memory) {
            with.ran_out_of_memory();
        }
    }

    fn with<'a, D: Device>(&'a mut self, books: &'a mut Books<D>) -> Option<Recognizing<'a, D>> {
        let Self { recognizer, learning, .. } = self;
        Some(Recognizing { recognizer: recognizer.as_mut()?, learning, books })
    }
}

/// A recognizer, with the parts of the driver that it works on.
pub(super) struct Recognizing<'a, D: Device> {
    pub recognizer: &'a mut Recognizer,
    pub learning: &'a mut Learning,
    pub books: &'a mut Books<D>,
}

impl<D: Device> Recognizing<'_, D> {
    /// Handles a lack of memory: drops the forecast in use. If no forecast is in use, the evictor
    /// gets no predictions for a number of turns.
    fn ran_out_of_memory(&mut self) {
        match &self.recognizer.known {
            Some(known) if self.has_forecast() => {
                self.learning.drop_forecast((known.key, self.books.engine.budget()));
                self.recognizer.foresight = None;
            }
            _ => self.recognizer.trust.failed(),
        }
        self.recognizer.going = None;
        if !self.is_told() {
            self.foresee_nothing();
        }
    }

    fn next(&mut self, command: &Command<D::Op, D::Host>) -> Recognized {
        if self.recognizer.steps.is_full() {
            let trust = std::mem::take(&mut self.recognizer.trust);
            *self.recognizer = Recognizer { trust, ..Recognizer::default() };
            self.foresee_nothing();
        }
        let heard = hear(self.books, &self.recognizer.roles, command);
        let token = heard.token;
        let node = self.recognizer.steps.hear(heard);
        let renamed = self.recognizer.steps.take_renamed();
        self.recognizer.recast(renamed);
        match (self.recognizer.steps.on_course(), &self.recognizer.known) {
            (Some(at), Some(_)) => {
                let goes_on = at == self.recognizer.at + 1 && !self.recognizer.steps.enters_loop();
                self.recognizer.at = if goes_on { at } else { self.turn_around(at) };
                if self.recognizer.tells {
                    let at = self.recognizer.at;
                    self.foresee_from(at);
                }
            }
            _ => {
                (self.books.writing, self.recognizer.going) = (None, None);
                self.recognizer.known = self.recognizer.steps.look_ahead();
                self.recognizer.foresight = None;
                self.recognizer.at = self.recognizer.steps.on_course().unwrap_or(0);
                if self.recognizer.known.is_some() {
                    let at = self.recognizer.at;
                    self.foresee_from(at);
                } else {
                    self.foresee_nothing();
                }
            }
        }
        self.recognizer.trust.hear(token, self.is_foreseen());
        if self.recognizer.trust.is_lost(self.costs()) && !self.has_forecast() {
            self.recognizer.trust.withdraw();
            (self.books.writing, self.recognizer.going) = (None, None);
            self.foresee_nothing();
        } else if self.recognizer.trust.gives_up_guessing(self.costs()) {
            self.recognizer.tells = self.recognizer.known.is_some();
        }
        let mut makes = SmallVec::new();
        let mut roles = self.recognizer.steps.made_by(node);
        command.makes(|tensor| {
            makes.extend(roles.next().flatten().map(|role| (tensor, role)));
        });
        drop(roles);
        Recognized { node, makes }
    }

    fn ran(&mut self, Recognized { node, makes }: Recognized) {
        self.recognizer.steps.ran(node, self.books.last_cost);
        for (tensor, role) in makes {
            // A tensor that could not be made has no storage.
            if let Some(storage) = self.books.storage_of(tensor)
                && let Some(before) = self.recognizer.cast(storage, role)
            {
                self.recognizer.steps.gone(before);
            }
        }
        let heirs = self.recognizer.steps.heirs(node).iter();
        let heirs: Vec<_> = heirs.map(|heir| (heir.plays, Some(heir.inherits))).collect();
        self.recognizer.recast(heirs);
        if self.recognizer.steps.is_mark(node) {
            self.compare_turn();
        }
    }

    /// Ends a turn. In the next turn, the evictor gets predictions only if [`Trust`] finds that
    /// predictions reduce recomputation.
    fn compare_turn(&mut self) {
        let was_told = self.is_told();
        let compared = !self.has_forecast();
        self.recognizer.trust.turn_is_over(self.costs(), compared);
        let is_told = self.is_told();
        self.recognizer.tells = !was_told && is_told && self.recognizer.known.is_some();
        if !is_told {
            self.foresee_nothing();
        }
    }

    /// Whether the evictor gets predictions in the current turn.
    pub fn is_told(&self) -> bool {
        self.recognizer.trust.is_given() || self.has_forecast()
    }

    /// Whether the current step has a forecast. [`Drift`](super::drift::Drift) then decides whether
    /// turns of the step run by the forecast.
    fn has_forecast(&self) -> bool {
        let known = self.recognizer.known.as_ref();
        known.is_some_and(|known| {
            self.learning.has_forecast((known.key, self.books.engine.budget()))
        })
    }

    fn is_foreseen(&self) -> bool {
        self.books.engine.graph().future().foreseen().is_some()
    }

    fn foresee_nothing(&mut self) {
        if self.is_foreseen() {
            let told = self.books.engine.foresee(None);
            self.books.report(told);
        }
    }

    fn costs(&self) -> Costs {
        let (work, again, planned) = self.books.engine.costs();
        Costs { work, again, planned, budget: self.books.engine.budget() }
    }

    /// Moves to the start of the loop, either from the end of the known step or from the commands
    /// before the loop. From then on, values made in the last turn count as made before the step.
    /// Returns the position of the current command.
    fn turn_around(&mut self, at: usize) -> usize {
        let at = match self.recognizer.steps.is_loop() {
            true => at,
            // Make a new prediction along the links between the recognizer's nodes: the program
            // enters the loop only now, or its next turn differs from the last turn.
            false => {
                self.recognizer.known = self.recognizer.steps.look_along();
                self.recognizer.foresight = None;
                self.recognizer.steps.on_course().unwrap_or(0)
            }
        };
        match at {
            0 => {
                // In a marked program, turns are compared at marks.
                if !self.recognizer.steps.is_marked() {
                    self.compare_turn();
                }
                self.turn_begins();
            }
            // The commands copied so far are not a whole turn, so drop them.
            _ => (self.books.writing, self.recognizer.going) = (None, None),
        }
        self.foresee_from(at);
        at
    }

    /// Gives the evictor the predicted step, with the current command at position `at`.
    fn foresee_from(&mut self, at: usize) {
        self.recognizer.tells = false;
        if !self.is_told() {
            return self.foresee_nothing();
        }
        let budget = self.books.engine.budget();
        let made = self.recognizer.foresight.take().filter(|(made_for, _)| *made_for == budget);
        let made = made.or_else(|| Some((budget, self.foresight_of()?)));
        let Some((_, foresight)) = &made else { return };
        let told = self.books.engine.foresee(Some(Arc::clone(foresight)));
        self.recognizer.foresight = made;
        self.books.report(told);
        // Iterate over roles, not storages. The number of roles is bounded by the program. A table
        // of storages is as long as the highest storage index ever used.
        for (storage, _) in self.recognizer.playing() {
            if self.books.engine.graph().contains(storage)
                && let Some(value) = self.recognizer.value_of(storage, at)
            {
                self.books.engine.future_mut().bind(storage, value);
            }
        }
        self.books.engine.future_mut().seek(at as u32);
    }
}
