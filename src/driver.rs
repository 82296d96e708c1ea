//! The one way from commands to an engine.
//!
//! Each command passes the same stages, in this order; a stage is a struct with its own state, in its own file.
//!
//! ```text
//! plan       a turn that repeats is done again without keeping books: then that is all    (by_plan.rs)
//! attempt    while memory may not suffice, it is written down as it is meant              (attempt.rs)
//! recognize  what comes next is expected, and the evictor is told                         (recognize.rs, learning.rs)
//! foresee    what the command makes is bound to the values of a known step                (books/foresee.rs)
//! admit      it waits no longer                                                           (admit.rs)
//! run        the engine does it                                                           (books.rs)
//! record     it is written down                                                           (books/record.rs)
//! ```
//!
//! Turns by plan pass the other stages as wholes: when a plan is left, the recognizer hears which turns came, and the commands
//! of the turn at hand pass all stages, but without the device. While a turn is recorded or learned from, none runs by plan.

mod admit;
mod allowance;
mod attempt;
mod books;
mod by_plan;
mod drift;
mod first_step;
mod knowledge;
mod learners;
mod learning;
mod numbers;
mod recognize;
mod recording;
mod recording_format;
mod rest;
mod settings;
#[cfg(test)]
mod tests;
mod transcript;
mod trust;
mod turn;

pub use allowance::Allowance;
pub use attempt::{Attempt, Rehearse};
pub use by_plan::Plan;
pub use knowledge::Knowledge;
pub(crate) use learners::{LearnOptions, Learners};
pub use learning::Learner;
pub use recording_format::{Entry, Recorder, VERSION};
pub(crate) use settings::Change;
pub use settings::Setting;
pub use turn::Turn;

use crate::command::{Apply, Command, Program, TensorId, Window};
use crate::device::{Device, DeviceError, Place, Reading};
use crate::engine::{Engine, Stats};
use crate::error::{Error, HandleError};
use crate::evict::{Evictor, Forecast, Foresight};
use crate::graph::TensorKey;
use crate::step::KnownSteps;
use admit::Admitted;
use attempt::Attempts;
use books::Books;
use by_plan::{Beside, Followed, Left, Next, Planning};
use recognize::{Recognition, Recognized};
use recording::Recording;
use settings::name_of;
use smallvec::SmallVec;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

/// Executes commands on an engine, in order. It knows which tensor a number means.
///
/// What fails is kept by the engine: [`Engine::take_failure`]. Tensors that could not be made are lost to that failure,
/// and an update that could not be made is skipped, as [`Engine::issue`] says.
pub struct Driver<D: Device> {
    books: Books<D>,
    attempts: Attempts,
    admitted: Admitted,
    recognition: Recognition,
    /// Plans of steps that repeat; `None` if none runs by plan.
    planning: Option<Box<Planning<D>>>,
}

/// A command between the stages before it is run and those after.
struct Passing {
    recognized: Option<Recognized>,
    /// Tensors that the command makes, if these are to be bound to values of a known step.
    made: SmallVec<[TensorId; 2]>,
    is_mark: bool,
}

/// Commands.
impl<D: Device> Driver<D> {
    /// A driver of this engine.
    #[must_use]
    pub fn new(engine: Engine<D>) -> Self {
        Self {
            books: Books::new(engine),
            attempts: Attempts::default(),
            admitted: Admitted::default(),
            recognition: Recognition::default(),
            planning: None,
        }
    }

    /// Executes a command. A value that it reads is thrown away; see [`Driver::get`].
    #[inline]
    pub fn execute(&mut self, command: Command<D::Op, D::Host>) {
        if self.planning.is_some()
            && let Some(followed) = self.follow(&command)
        {
            return self.did_follow(command, followed.map(drop));
        }
        let passing = self.begin(&command);
        match command {
            // From where it is: it is large, and by far the most frequent.
            Command::Apply(Apply { op, ref inputs, ref consumed, ref outputs, made }) => {
                self.books.apply(op, inputs, consumed, outputs, made);
            }
            Command::Del(tensor) => self.books.forget(tensor),
            other => self.books.run(other),
        }
        self.end(passing);
    }

    /// Executes [`Command::Del`]: with [`Command::Apply`] the most frequent.
    #[inline]
    pub fn del(&mut self, tensor: TensorId) {
        self.execute(Command::Del(tensor));
    }

    /// Executes a command of a program that is kept: only its op is copied.
    #[inline]
    pub fn execute_shared(&mut self, command: &Command<D::Op, D::Host>)
    where
        D::Op: Clone,
    {
        if self.planning.is_some() {
            return self.execute(command.clone());
        }
        let passing = self.begin(command);
        self.books.run_shared(command);
        self.end(passing);
    }

    /// Executes a program from the start, up to the first failure. For a driver whose numbers mean nothing yet: what they
    /// meant before would not be deleted.
    ///
    /// # Errors
    /// That failure.
    pub fn run(&mut self, program: &Program<D::Op, D::Host>) -> Result<(), Error>
    where
        D::Op: Clone,
    {
        for command in program.commands() {
            self.execute_shared(command);
            self.take_failure().map_or(Ok(()), Err)?;
        }
        Ok(())
    }

    /// Executes [`Command::Get`], and returns the value, or that it comes later: then [`Engine::take_read`] gives it, in the
    /// order of the reads.
    ///
    /// # Errors
    /// As there.
    pub fn get(&mut self, tensor: TensorId) -> Result<Reading<D::Host>, Error> {
        // The device works in order, so that what comes next may write where the value is.
        self.visit(tensor, D::read_later)
    }

    /// Executes [`Command::Get`] with [`Engine::visit`]: the device does something with the tensor where it is.
    ///
    /// # Errors
    /// As there.
    pub fn visit<T, V>(&mut self, tensor: TensorId, mut visit: V) -> Result<T, Error>
    where
        V: FnMut(&mut D, Place) -> Result<T, DeviceError>,
    {
        let command = Command::Get(tensor);
        if self.planning.is_some()
            && let Some(followed) = self.follow(&command)
        {
            let visited = match &followed {
                Ok(Some(place)) => {
                    self.books.engine.ask_device("get", |device| visit(device, *place))
                }
                // No plan is made of a turn whose reads read nothing.
                Ok(None) => Err(HandleError::Unknown.into()),
                Err((_, error)) => Err(error.clone()),
            };
            // The value is there still, whether or not it could be read.
            self.did_follow(command, followed.map(drop));
            return visited;
        }
        self.visit_unplanned(tensor, visit)
    }

    fn visit_unplanned<T, V>(&mut self, tensor: TensorId, visit: V) -> Result<T, Error>
    where
        V: FnMut(&mut D, Place) -> Result<T, DeviceError>,
    {
        let passing = self.begin(&Command::Get(tensor));
        let with = |engine: &mut Engine<D>, key| engine.visit(key, visit);
        let visited = self.books.about(tensor, Command::Get(tensor), with);
        self.end(passing);
        visited.map_err(|error| self.attempts.explain(&self.books, error))
    }

    /// Takes the first failure that nobody was told of yet: [`Engine::take_failure`], with a budget that would have been enough
    /// if it is an out-of-memory, and somebody [finds](Driver::name_budgets_by) one.
    pub fn take_failure(&mut self) -> Option<Error> {
        let failure = self.books.engine.take_failure()?;
        Some(self.attempts.explain(&self.books, failure))
    }

    /// Lets out-of-memory errors that are told by [`Driver::get`], [`Driver::visit`] and [`Driver::take_failure`] name a
    /// budget that this finds, such as `lab::passing_budget`. The first two steps are written down for it, from a quarter of the
    /// budget in use on, and those after an out-of-memory; later ones cost nothing.
    pub fn name_budgets_by(&mut self, rehearse: Option<Rehearse>) {
        self.attempts.rehearse_by(rehearse);
    }

    /// A command that is not done by plan passes all stages before it is run. [`Driver::end`] comes after. It is not one function
    /// with what is between as a closure: commands are large, and would be copied on their way through it.
    #[inline(always)]
    fn begin(&mut self, command: &Command<D::Op, D::Host>) -> Passing {
        let Self { books, attempts, admitted, recognition, .. } = self;
        attempts.before(books, command);
        let recognized = recognition.before(books, command);
        let made = books.to_bind(command);
        admitted.begin(books, command.is_position());
        Passing { recognized, made, is_mark: matches!(command, Command::Step) }
    }

    /// A command was run: it passes the stages that come after.
    #[inline(always)]
    fn end(&mut self, Passing { recognized, made, is_mark }: Passing) {
        let Self { books, attempts, admitted, recognition, planning } = self;
        if books.failed.is_some() {
            recognition.failed(books);
        }
        books.bind_made(&made);
        recognition.after(books, recognized);
        admitted.end(books);
        if is_mark {
            attempts.step_is_over(books);
            if let Some(planning) = planning {
                planning.turn_is_marked(books.is_written());
            }
        }
    }

    /// A command comes. `None` if it is not done by plan.
    #[inline(never)]
    fn follow(&mut self, command: &Command<D::Op, D::Host>) -> Option<Followed> {
        loop {
            let (planning, mut beside) = self.planning()?;
            match planning.follow(&mut beside, command) {
                Next::Done(followed) => return Some(followed),
                Next::Execute => return None,
                Next::Left { left, again } => {
                    self.redo(left);
                    if !again {
                        return None;
                    }
                }
            }
        }
    }

    /// A command was done by plan.
    #[inline(never)]
    fn did_follow(&mut self, command: Command<D::Op, D::Host>, done: Result<(), (usize, Error)>) {
        let Some((planning, mut beside)) = self.planning() else { return };
        if let Some(left) = planning.did_follow(&mut beside, command, done) {
            self.redo(left);
        }
    }

    /// Goes through the commands of a turn again that is not done by plan any more.
    fn redo(&mut self, mut left: Left<D>) {
        let start = Instant::now();
        left.begin(&mut self.books.engine);
        let taken = std::mem::take(&mut left.taken);
        let commands = taken.len();
        for (at, command) in taken.into_iter().enumerate() {
            if let Some(planning) = &self.planning {
                planning.redo_for_room(&left, at, &mut self.books.engine);
            }
            match command {
                // It was read.
                Command::Get(tensor) => _ = self.visit_unplanned(tensor, |_, _| Ok(())),
                other => {
                    let passing = self.begin(&other);
                    self.books.run(other);
                    self.end(passing);
                }
            }
        }
        if let Some(planning) = &mut self.planning {
            planning.is_redone(&left, commands, &mut self.books.engine, start);
        }
    }

    fn planning(&mut self) -> Option<(&mut Planning<D>, Beside<'_, D>)> {
        let Self { books, admitted, recognition, planning, .. } = self;
        let waits = !admitted.is_empty();
        Some((planning.as_mut()?, Beside { books, recognition, waits }))
    }

    /// A command waits: whoever decides what to evict may know of it, by [`Graph::future`](crate::graph::Graph::future).
    /// Nothing else is different for it. It must be executed later, after those admitted before it, and before any that
    /// was not admitted: commands are known by their order.
    pub fn admit(&mut self, command: &Command<D::Op, D::Host>) {
        self.admitted.admit(&mut self.books, command);
    }

    /// [Commits](Command::Commit) what somebody holds, if its history keeps a leaf that nobody holds any more: the
    /// parameters of before the first update, say, where that makes new ones. Nothing is committed if the budget would not hold
    /// all of it as leaves.
    ///
    /// Later steps need none of this: what was there before a step, and is held no more at its end, is cut off by
    /// [`Command::Step`]. But what comes before the first mark is one step, be it setting up or training. It is for the end of
    /// a first step of which nothing will be needed but what is held.
    pub fn end_first_step(&mut self) {
        for tensor in first_step::to_commit(&mut self.books) {
            self.execute(Command::Commit(tensor));
        }
    }
}

/// Tables and the engine.
impl<D: Device> Driver<D> {
    /// Makes room in the tables for so many more tensors.
    pub fn reserve(&mut self, tensors: usize) {
        self.books.tensors.reserve(tensors);
        self.books.engine.reserve(tensors);
    }

    /// The engine.
    #[must_use]
    pub const fn engine(&self) -> &Engine<D> {
        &self.books.engine
    }

    /// The engine, for what is no command: failures, answers that come later. Settings that are changed there are not
    /// recorded.
    pub const fn engine_mut(&mut self) -> &mut Engine<D> {
        &mut self.books.engine
    }

    /// The engine's counters, with those of steps that are learned or run by plan.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let stats = Stats { learning_bytes: self.learning_bytes(), ..self.books.engine.stats() };
        self.planning.as_ref().map_or(stats, |planning| planning.with_plans(stats))
    }

    /// The tensor that a number means.
    ///
    /// # Errors
    /// [`HandleError::Unknown`] if it means none.
    #[inline]
    pub fn key(&self, tensor: TensorId) -> Result<TensorKey, Error> {
        self.books.key(tensor)
    }

    /// From now on this number means a tensor that was made on the engine itself. No command made it: a recording does
    /// not say where it comes from. A tensor that the number meant before is not deleted.
    pub fn adopt(&mut self, tensor: TensorId, key: TensorKey) {
        self.books.tensors.insert(tensor, key);
    }

    /// Whether a tensor that can be evicted is, if its last handle goes with the next command. Where steps are recognized, what is
    /// known of them may keep it, and may come to be known with that very command. For devices whose ops write over inputs that
    /// are not needed any more.
    #[must_use]
    pub fn evicts_unheld(&self) -> bool {
        self.recognition.recognizer().is_none() && !self.books.engine.keeps_unheld()
    }

    /// Whether the bytes of a tensor would go at once if its last handle went now. Not for what is wanted to bring others back, if the
    /// evictor knows that. For devices whose ops write over inputs that are not needed any more.
    #[must_use]
    pub fn would_go(&mut self, tensor: TensorId) -> bool {
        self.key(tensor).is_ok_and(|key| self.books.engine.would_go(key))
    }
}

/// Knowing ahead.
impl<D: Device> Driver<D> {
    /// The commands to come are those of a known step, from its first on: from now on each command that is executed, and
    /// is no deletion, is taken for the next of them, and what it makes for what that one makes. The evictor may go by
    /// it; nothing else does. `None`: nothing is known any more.
    ///
    /// Who foresees must notice where the program goes another way, and say so: by [`Driver::seek`], or by `None`. A
    /// wrong forecast costs time, and nothing else.
    ///
    /// # Errors
    /// If the evictor panics.
    pub fn foresee(&mut self, foresight: Option<Arc<Foresight>>) -> Result<(), Error> {
        self.books.engine.foresee(foresight)
    }

    /// The next command is the one at this position of the known step: commands in between do not come, or come again.
    /// A command that is not in the step is executed between two calls of this.
    pub fn seek(&mut self, position: u32) {
        self.books.engine.future_mut().seek(position);
    }

    /// A tensor holds a value of the known step: one that it carries over from before.
    ///
    /// # Errors
    /// If the number means nothing.
    pub fn bind(&mut self, tensor: TensorId, ordinal: u32) -> Result<(), Error> {
        self.books.bind(tensor, ordinal)
    }

    /// From now on steps are recognized, be they marked or not: when commands come as they came before, the evictor is
    /// told what follows ([`Driver::foresee`]), until they do not. It costs a little at each command.
    ///
    /// A driver of a program that is known from elsewhere is told by [`Driver::foresee`] instead.
    pub fn recognize_steps(&mut self) {
        self.recognize_known_steps(KnownSteps::default());
    }

    /// The same, knowing what an earlier run of the program knew of them. For a driver that has executed nothing yet.
    pub fn recognize_known_steps(&mut self, known: KnownSteps) {
        self.recognition.begin(known);
    }

    /// The same from the first eviction on, if the evictor goes by it; otherwise no more. So it costs nothing while memory is
    /// plentiful.
    pub fn recognize_steps_once_short(&mut self) {
        let told = self.foresee(None);
        self.books.report(told);
        self.recognition.end(self.books.engine.foresees());
    }

    /// What is known of the steps by now; `None` if they are not recognized yet.
    #[must_use]
    pub fn known_steps(&self) -> Option<KnownSteps> {
        self.recognition.known_steps()
    }

    /// Recognizes steps from now on if the evictor goes by that: knowing this, if it says which there are, and otherwise
    /// from the first eviction on. For a driver that has executed nothing yet.
    pub fn know(&mut self, Knowledge { steps, forecasts }: Knowledge) {
        self.recognize_steps_once_short();
        if let Some(steps) = steps.filter(|_| self.books.engine.foresees()) {
            self.recognize_known_steps(steps);
        }
        forecasts.into_iter().for_each(|forecast| self.remember(forecast));
    }

    /// From now on turns of loops are given to this learner, if steps are [recognized](Driver::recognize_steps).
    pub fn learn_by(&mut self, learner: Option<Box<dyn Learner>>) {
        self.recognition.learning.learn_by(learner);
    }

    /// How a step is to be run in the budget that the forecast says, whenever it is recognized: found in an earlier run.
    /// One of another step is of no use and does no harm.
    pub fn remember(&mut self, forecast: Forecast) {
        self.recognition.learning.remember(forecast);
    }

    /// Finds so far about each kind of step that came, sorted by step and budget. With `turns`, as many simulated ops of
    /// each are waited for as so many turns have that recompute nothing.
    pub fn forecasts(&mut self, turns: Option<u64>) -> Vec<Forecast> {
        self.recognition.learning.forecasts(turns)
    }

    /// Bytes of host memory for what is known of steps, and for what learns about them.
    #[must_use]
    pub fn learning_bytes(&self) -> u64 {
        self.recognition.bytes()
    }

    /// From now on steps that repeat run by plan.
    pub fn plan_steps(&mut self, plan: Plan) {
        self.leave_plan();
        self.planning = match plan {
            Plan::Off => None,
            Plan::Auto => Some(Box::new(Planning::new())),
        };
        self.books.tensors.note_changes(plan == Plan::Auto);
    }

    /// From now on nothing runs by plan, until a turn begins again. Called before anything is changed that is no command.
    pub fn leave_plan(&mut self) {
        let left =
            self.planning().and_then(|(planning, mut beside)| planning.leave_plan(&mut beside));
        if let Some(left) = left {
            self.redo(left);
        }
    }
}

/// Recording.
impl<D: Device> Driver<D> {
    /// Records all that is executed from now on, by commands that are admitted as far ahead as `window` says. For a
    /// driver whose numbers mean nothing yet: a recording that speaks of tensors that it does not make cannot be read.
    /// A recording before this one ends; should that fail, it is kept as a failure.
    pub fn record_to(&mut self, recorder: Box<dyn Recorder>, window: Window) {
        let ended = self.finish_recording();
        self.books.report(ended);
        let forecasts = self.recognition.learning.remembered();
        let known = Knowledge { steps: self.known_steps(), forecasts };
        let engine = &self.books.engine;
        let begin = Entry::Begin {
            version: VERSION,
            cost_model: engine.cost_model().to_owned(),
            budget: Some(engine.budget()),
            eviction_threshold: engine.settings().eviction_threshold,
            policy: name_of(engine.evictor()),
            window,
            known,
        };
        self.books.recording = Some(Recording::new(recorder, &mut self.books.engine));
        self.books.record_entry(|_| begin);
    }

    /// Ends the recording and writes out the rest of it.
    ///
    /// # Errors
    /// If it could not be written, or the recorder panicked.
    pub fn finish_recording(&mut self) -> Result<(), Error> {
        let lost = self.books.recording_lost.take();
        let finished = self.books.recording.take().map_or(Ok(()), Recording::finish);
        lost.map_or(finished, Err)
    }

    /// The caller waits for an answer that is no command, and nobody saw beyond that: recorded as [`Command::Sync`].
    pub fn record_wait(&mut self) {
        self.books.record(|| Command::Sync);
    }
}

/// Settings. Each is changed between two commands, and recorded.
impl<D: Device> Driver<D> {
    /// Sets the hard limit: see [`Engine::set_budget`].
    ///
    /// # Errors
    /// As there.
    pub fn set_budget(&mut self, bytes: u64) -> Result<(), Error> {
        self.change(Setting::Budget(bytes), |engine| engine.set_budget(bytes))
    }

    /// Sets the eviction threshold, or takes it away: see [`Engine::set_eviction_threshold`].
    ///
    /// # Errors
    /// As there.
    pub fn set_eviction_threshold(&mut self, threshold: Option<u64>) -> Result<(), Error> {
        let setting = Setting::EvictionThreshold(threshold);
        self.change(setting, |engine| engine.set_eviction_threshold(threshold))
    }

    /// Lets another evictor decide from now on: see [`Engine::set_evictor`]. If it goes by what is foreseen, steps are
    /// recognized for it, as [`Driver::recognize_steps_once_short`] says.
    ///
    /// # Errors
    /// As there.
    pub fn set_evictor(&mut self, evictor: Box<dyn Evictor>) -> Result<(), Error> {
        let setting = Setting::Policy(name_of(&*evictor));
        self.change(setting, |engine| engine.set_evictor(evictor))?;
        self.recognize_steps_once_short();
        Ok(())
    }

    /// Keeps history again: see [`Engine::enable`].
    ///
    /// # Errors
    /// Never, for now.
    pub fn enable(&mut self) -> Result<(), Error> {
        self.change(Setting::Enabled(true), |engine| {
            engine.enable();
            Ok(())
        })
    }

    /// Keeps no history any more: see [`Engine::disable`].
    ///
    /// # Errors
    /// As there.
    pub fn disable(&mut self) -> Result<(), Error> {
        self.change(Setting::Enabled(false), Engine::disable)
    }

    fn change(
        &mut self,
        setting: Setting,
        with: impl FnOnce(&mut Engine<D>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.leave_plan();
        // What was planned is planned anew: limits are others now.
        self.planning.iter_mut().for_each(|planning| planning.forget());
        let done = with(&mut self.books.engine);
        let failed = done.is_err();
        // On its way to one of these, something may have been evicted or brought back.
        if !failed || matches!(setting, Setting::Budget(_) | Setting::Enabled(_)) {
            self.books.record_entry(|engine| Entry::Set {
                setting,
                failed,
                used: engine.used_bytes(),
            });
        }
        done
    }
}

impl<D: Device> fmt::Debug for Driver<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("engine", self.engine()).finish_non_exhaustive()
    }
}
