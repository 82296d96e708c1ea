//! The driver: the only path from commands to an engine.
//!
//! Each command passes the stages below, from top to bottom. Each stage is a struct with its own
//! state, in a file of its own.
//!
//! ```text
//! plan       a repeated turn runs by plan and skips the other stages   (by_plan.rs)
//! attempt    while memory may not suffice, the command is written down (attempt.rs)
//! recognize  later commands are predicted, for the evictor             (recognize.rs, learning.rs)
//! foresee    outputs are bound to values of a known step               (books/foresee.rs)
//! admit      the command leaves the queue of waiting commands          (admit.rs)
//! run        the engine executes the command                           (books.rs)
//! record     the executed command is written to the recording          (books/record.rs)
//! ```
//!
//! A *turn* is one execution of a step. While a turn runs by plan, the other stages do not see its
//! commands. At a command that differs from the plan, the driver *leaves* the plan. The recognizer
//! then receives all complete turns that ran by plan. The commands of the unfinished turn pass all
//! stages again, but only the engine's tables are updated: the device does not repeat the work.
//!
//! A turn by plan skips the stages that record or copy commands. While commands are recorded, or
//! copied for a learner, no turn runs by plan.

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
use recognize::Recognition;
use recording::Recording;
use settings::name_of;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

/// Executes commands on an engine, in order. Maps each tensor number to the engine's tensor.
///
/// The engine keeps failures: see [`Engine::take_failure`]. A tensor that could not be made is
/// lost, with the failure as the reason. An update that could not be made is skipped: see
/// [`Engine::issue`].
pub struct Driver<D: Device> {
    books: Books<D>,
    attempts: Attempts,
    admitted: Admitted,
    recognition: Recognition,
    /// Plans of steps that repeat; `None` if planning is off.
    planning: Option<Box<Planning<D>>>,
}

/// Methods that execute commands.
impl<D: Device> Driver<D> {
    /// Creates a driver that executes commands on `engine`.
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

    /// Executes a command. The value that a [`Command::Get`] reads is dropped. To get the value,
    /// call [`Driver::get`].
    #[inline]
    pub fn execute(&mut self, command: Command<D::Op, D::Host>) {
        let _ = self.pass(command);
    }

    /// Executes [`Command::Apply`], and returns whether the op ran. For frameworks that run each op
    /// before the program goes on.
    ///
    /// The outputs of an op that did not run are those of [`Engine::issue`]. The returned failure
    /// counts as reported.
    ///
    /// # Errors
    /// The reason why the op did not run: its own failure, or the failure that lost an input.
    pub fn apply(&mut self, call: Apply<D::Op>) -> Result<(), Error> {
        let Some(failure) = self.pass(Command::Apply(call)) else { return Ok(()) };
        self.books.engine.report(&failure);
        Err(self.attempts.explain(&self.books, failure))
    }

    /// Passes a command through all stages. Returns the failure of an op that did not run.
    #[inline(always)]
    fn pass(&mut self, command: Command<D::Op, D::Host>) -> Option<Error> {
        if self.planning.is_some()
            && let Some(followed) = self.follow(&command)
        {
            let failed = followed.as_ref().err().map(|(_, error)| error.clone());
            self.did_follow(command, followed);
            return failed;
        }
        let is_mark = matches!(command, Command::Step);
        self.begin(&command);
        let failed = match command {
            // Match by reference, without a move: `Apply` is large, and by far the most frequent
            // command.
            Command::Apply(Apply { op, ref inputs, ref consumed, ref outputs, made }) => {
                self.books.apply(op, inputs, consumed, outputs, made)
            }
            Command::Del(tensor) => {
                self.books.forget(tensor);
                None
            }
            other => {
                self.books.run(other);
                None
            }
        };
        self.end(is_mark);
        failed
    }

    /// Executes [`Command::Del`], the most frequent command beside [`Command::Apply`].
    #[inline]
    pub fn del(&mut self, tensor: TensorId) {
        self.execute(Command::Del(tensor));
    }

    /// Executes a command that the caller keeps. Copies only the op, or the whole command if
    /// planning is on.
    #[inline]
    pub fn execute_shared(&mut self, command: &Command<D::Op, D::Host>)
    where
        D::Op: Clone,
    {
        if self.planning.is_some() {
            return self.execute(command.clone());
        }
        self.begin(command);
        self.books.run_shared(command);
        self.end(matches!(command, Command::Step));
    }

    /// Executes a program from its start, up to the first failure.
    ///
    /// Call `run` on a driver without tensors. If an older tensor has the number of a tensor of the
    /// program, the older tensor loses its number, but is not deleted.
    ///
    /// # Errors
    /// The first failure of a command.
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

    /// Executes [`Command::Get`] and returns the value, or a promise of the value.
    /// [`Engine::take_read`] gives promised values, in the order of the reads.
    ///
    /// # Errors
    /// Errors of [`Engine::visit`].
    pub fn get(&mut self, tensor: TensorId) -> Result<Reading<D::Host>, Error> {
        // The device executes its queue in order, so commands after the read may overwrite the
        // place.
        self.visit(tensor, D::read_later)
    }

    /// Executes [`Command::Get`] with [`Engine::visit`]: calls `visit` with the device and the
    /// tensor's place in device memory.
    ///
    /// # Errors
    /// Errors of [`Engine::visit`].
    pub fn visit<T, V>(&mut self, tensor: TensorId, mut visit: V) -> Result<T, Error>
    where
        V: FnMut(&mut D, Place) -> Result<T, DeviceError>,
    {
        let command = Command::Get(tensor);
        if self.planning.is_some()
            && let Some(followed) = self.follow(&command)
        {
            let place = self.planning.as_ref().and_then(|planning| planning.read_place());
            let visited = match (&followed, place) {
                (Ok(()), Some(place)) => {
                    self.books.engine.ask_device("get", |device| visit(device, place))
                }
                // Cannot happen: a read that ran by plan always has a place.
                (Ok(()), None) => Err(HandleError::Unknown.into()),
                (Err((_, error)), _) => Err(error.clone()),
            };
            // The value is still in its place, whether or not the read succeeded.
            self.did_follow(command, followed);
            return visited;
        }
        self.visit_unplanned(tensor, visit)
    }

    fn visit_unplanned<T, V>(&mut self, tensor: TensorId, visit: V) -> Result<T, Error>
    where
        V: FnMut(&mut D, Place) -> Result<T, DeviceError>,
    {
        self.begin(&Command::Get(tensor));
        let with = |engine: &mut Engine<D>, key| engine.visit(key, visit);
        let visited = self.books.about(tensor, Command::Get(tensor), with);
        self.end(false);
        visited.map_err(|error| self.attempts.explain(&self.books, error))
    }

    /// Takes the first failure that was not reported yet: [`Engine::take_failure`].
    ///
    /// An out-of-memory error names a sufficient budget if [`Driver::name_budgets_by`] set a search
    /// and the search finds one.
    pub fn take_failure(&mut self) -> Option<Error> {
        let failure = self.books.engine.take_failure()?;
        Some(self.attempts.explain(&self.books, failure))
    }

    /// Lets out-of-memory errors name a budget that suffices. `rehearse` finds the budget by
    /// simulated runs, as `lab::passing_budget` does.
    ///
    /// The search applies to errors of [`Driver::get`], [`Driver::visit`] and
    /// [`Driver::take_failure`]. For the search, the driver stores the commands of the first two
    /// steps, and of two steps after an out-of-memory error. In a step, storing begins only when
    /// more than a quarter of the budget is in use. Steps whose commands are not stored cost
    /// nothing.
    pub fn name_budgets_by(&mut self, rehearse: Option<Rehearse>) {
        self.attempts.rehearse_by(rehearse);
    }

    /// Passes a command through all stages before its run, if the command is not done by plan.
    /// [`Driver::end`] runs the later stages.
    ///
    /// `begin` and `end` are two functions, because a single function would take the run as a
    /// closure. The closure would copy the command, and commands are large.
    #[inline(always)]
    fn begin(&mut self, command: &Command<D::Op, D::Host>) {
        let Self { books, attempts, admitted, recognition, .. } = self;
        attempts.before(books, command);
        recognition.before(books, command);
        books.advance_foreseen(command);
        admitted.begin(books);
    }

    /// Passes an executed command through the stages after its run. `is_mark`: whether the command
    /// is a [`Command::Step`].
    #[inline(always)]
    fn end(&mut self, is_mark: bool) {
        let Self { books, attempts, admitted, recognition, planning } = self;
        if books.failed.is_some() {
            recognition.failed(books);
        }
        books.bind_made();
        recognition.after(books);
        admitted.end(books);
        if is_mark {
            attempts.step_is_over(books);
            if let Some(planning) = planning {
                planning.turn_is_marked(books.is_written());
            }
        }
    }

    /// Tries to do a command by plan. Returns `None` if the engine must execute the command.
    #[inline(always)]
    fn follow(&mut self, command: &Command<D::Op, D::Host>) -> Option<Followed> {
        let (planning, mut beside) = self.planning()?;
        match planning.follow(&mut beside, command) {
            Next::Done(followed) => Some(followed),
            Next::Execute => None,
            Next::Left { left, again } => self.follow_after(left, again.then_some(command)),
        }
    }

    /// Executes the commands of a turn whose plan was left, and then tries to do `command` by the
    /// plan of another turn.
    #[cold]
    #[inline(never)]
    fn follow_after(
        &mut self,
        left: Box<Left<D>>,
        command: Option<&Command<D::Op, D::Host>>,
    ) -> Option<Followed> {
        self.redo(left);
        self.follow(command?)
    }

    /// Updates plans after a command that was done by plan.
    #[inline(always)]
    fn did_follow(&mut self, command: Command<D::Op, D::Host>, done: Followed) {
        let Some((planning, mut beside)) = self.planning() else { return };
        if let Some(left) = planning.did_follow(&mut beside, command, done) {
            self.redo(left);
        }
    }

    /// Executes the commands of a turn again, after its plan was left.
    #[cold]
    #[inline(never)]
    fn redo(&mut self, mut left: Box<Left<D>>) {
        let start = Instant::now();
        left.begin(&mut self.books.engine);
        let taken = std::mem::take(&mut left.taken);
        let commands = taken.len();
        for (at, command) in taken.into_iter().enumerate() {
            if let Some(planning) = &self.planning {
                planning.redo_for_room(&left, at, &mut self.books.engine);
            }
            match command {
                // The caller already got the value when the read ran by plan.
                Command::Get(tensor) => _ = self.visit_unplanned(tensor, |_, _| Ok(())),
                other => {
                    let is_mark = matches!(other, Command::Step);
                    self.begin(&other);
                    self.books.run(other);
                    self.end(is_mark);
                }
            }
        }
        if let Some(planning) = &mut self.planning {
            planning.is_redone(&left, commands, &mut self.books.engine, start);
        }
    }

    #[inline(always)]
    fn planning(&mut self) -> Option<(&mut Planning<D>, Beside<'_, D>)> {
        let Self { books, admitted, recognition, planning, .. } = self;
        let waits = !admitted.is_empty();
        Some((planning.as_mut()?, Beside { books, recognition, waits }))
    }

    /// Announces a command that waits to be executed. After the announcement, evictors can read the
    /// effects of the command in [`Graph::future`](crate::graph::Graph::future).
    ///
    /// Admission only updates `Graph::future`. Admitted commands must be executed in the order of
    /// admission, and before any command that was not admitted. The driver matches executed
    /// commands to admitted commands by their order.
    pub fn admit(&mut self, command: &Command<D::Op, D::Host>) {
        self.admitted.admit(&mut self.books, command);
    }

    /// [Commits](Command::Commit) each held tensor whose history leads back to an unheld leaf, or to
    /// an unheld output of an op without inputs. For example, the initial parameters are such
    /// values if the first update makes new parameters. An unheld leaf would stay in memory, and
    /// the new parameters would be recomputed through the whole first step. Commits nothing if the
    /// budget is too small to hold all committed tensors as leaves.
    ///
    /// Call `end_first_step` at the end of the first step, if the program later reads only tensors
    /// that it still holds. All commands before the first mark, setup included, count as the first
    /// step. After a later step, the call is not needed. At the end of a step, [`Command::Step`]
    /// cuts the history at values from before the step that are no longer held.
    pub fn end_first_step(&mut self) {
        for tensor in first_step::to_commit(&mut self.books) {
            self.execute(Command::Commit(tensor));
        }
    }
}

/// Access to the engine and its tables.
impl<D: Device> Driver<D> {
    /// Reserves space in the tables for `tensors` additional tensors.
    pub fn reserve(&mut self, tensors: usize) {
        self.books.tensors.reserve(tensors);
        self.books.engine.reserve(tensors);
    }

    /// The engine that executes the commands.
    #[must_use]
    pub const fn engine(&self) -> &Engine<D> {
        &self.books.engine
    }

    /// The engine, for calls that are not commands, such as taking failures and the values of
    /// promised reads. Settings that are changed through this reference are not recorded.
    pub const fn engine_mut(&mut self) -> &mut Engine<D> {
        &mut self.books.engine
    }

    /// Counters of the engine, with the counters of learning and of steps by plan.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let stats = Stats { learning_bytes: self.learning_bytes(), ..self.books.engine.stats() };
        self.planning.as_ref().map_or(stats, |planning| planning.with_plans(stats))
    }

    /// The engine's key of a tensor.
    ///
    /// # Errors
    /// [`HandleError::Unknown`] if the number names no tensor.
    #[inline]
    pub fn key(&self, tensor: TensorId) -> Result<TensorKey, Error> {
        self.books.key(tensor)
    }

    /// Gives a number to a tensor that was made directly on the engine. A recording does not
    /// contain a command that makes the tensor. If the number named another tensor before, that
    /// tensor is not deleted.
    pub fn adopt(&mut self, tensor: TensorId, key: TensorKey) {
        self.books.tensors.insert(tensor, key);
    }

    /// Whether an evictable tensor is evicted at once when the next command drops its last handle.
    ///
    /// False while steps are recognized, because a prediction may make the evictor keep the tensor.
    /// The command that drops the handle may itself cause the prediction. The method is meant for
    /// devices whose ops write over inputs that are no longer needed.
    #[must_use]
    pub fn evicts_unheld(&self) -> bool {
        self.recognition.recognizer().is_none() && !self.books.engine.keeps_unheld()
    }

    /// Whether dropping the last handle now would free the tensor's bytes at once.
    ///
    /// False if the evictor keeps the tensor, to recompute other tensors from it. The method is
    /// meant for devices whose ops write over inputs that are no longer needed.
    #[must_use]
    pub fn would_go(&mut self, tensor: TensorId) -> bool {
        self.key(tensor).is_ok_and(|key| self.books.engine.would_go(key))
    }
}

/// Predictions of later commands.
impl<D: Device> Driver<D> {
    /// Declares that the next commands are the commands of a known step, beginning with its first
    /// command. `None` forgets the known step.
    ///
    /// The driver assumes that each executed command except a deletion is the next command of the
    /// step, with the same outputs. Only the evictor uses the assumed commands.
    ///
    /// The caller must notice when the program departs from the step, and call [`Driver::seek`] or
    /// pass `None`. A wrong prediction costs only time.
    ///
    /// # Errors
    /// An error if the evictor panics.
    pub fn foresee(&mut self, foresight: Option<Arc<Foresight>>) -> Result<(), Error> {
        self.books.engine.foresee(foresight)
    }

    /// Moves to `position` in the known step: the driver then assumes that the next command is the
    /// step's command at `position`. Moving forwards skips commands of the step; moving backwards
    /// repeats commands. Call `seek` before and after a command that is not in the step.
    pub fn seek(&mut self, position: u32) {
        self.books.engine.future_mut().seek(position);
    }

    /// Binds a tensor to a value of the known step that was made before the step.
    ///
    /// # Errors
    /// [`HandleError::Unknown`] if the number names no tensor.
    pub fn bind(&mut self, tensor: TensorId, ordinal: u32) -> Result<(), Error> {
        self.books.bind(tensor, ordinal)
    }

    /// Starts recognizing steps, whether or not the program marks them. While commands repeat
    /// earlier commands, the evictor gets a prediction of the next commands ([`Driver::foresee`]).
    /// Recognition costs a little time at each command.
    ///
    /// If the program is known beforehand, call [`Driver::foresee`] instead.
    pub fn recognize_steps(&mut self) {
        self.recognize_known_steps(KnownSteps::default());
    }

    /// Starts recognizing steps with knowledge from an earlier run of the program. The driver must
    /// not have executed any command yet.
    pub fn recognize_known_steps(&mut self, known: KnownSteps) {
        self.recognition.begin(known);
    }

    /// Stops recognizing steps. If the evictor uses foresight (predictions of later commands),
    /// recognition starts again at the first eviction. Therefore recognition costs nothing while
    /// memory suffices.
    pub fn recognize_steps_once_short(&mut self) {
        let told = self.foresee(None);
        self.books.report(told);
        self.recognition.end();
        self.recognition.begin_once_short(self.books.engine.foresees());
    }

    /// Knowledge of the steps gathered until now; `None` if steps are not recognized yet.
    #[must_use]
    pub fn known_steps(&self) -> Option<KnownSteps> {
        self.recognition.known_steps()
    }

    /// Takes over the knowledge from an earlier run. The driver must not have executed any command
    /// yet.
    ///
    /// The driver recognizes steps only if the evictor uses foresight. With `steps`, it recognizes
    /// from the first command on; without `steps`, from the first eviction on. The forecasts are
    /// [remembered](Driver::remember).
    pub fn know(&mut self, Knowledge { steps, forecasts, searched }: Knowledge) {
        self.recognize_steps_once_short();
        if let Some(steps) = steps.filter(|_| self.books.engine.foresees()) {
            self.recognize_known_steps(steps);
        }
        forecasts.into_iter().for_each(|forecast| self.remember(forecast));
        self.recognition.learning.searched = searched;
    }

    /// Sets the learner that gets the turns of loops from now on.
    ///
    /// The driver recognizes steps from the first eviction on, if it does not recognize them yet and
    /// the evictor uses foresight. Without recognition, a learner would get no turns.
    pub fn learn_by(&mut self, learner: Option<Box<dyn Learner>>) {
        if learner.is_some() {
            self.recognition.begin_once_short(self.books.engine.foresees());
        }
        self.recognition.learning.learn_by(learner);
    }

    /// Adds a forecast that an earlier run found. The driver uses the forecast whenever it
    /// recognizes the forecast's step and the budget is the forecast's budget. A forecast of a step
    /// that never comes does no harm.
    ///
    /// Steps are recognized as after [`Driver::learn_by`].
    pub fn remember(&mut self, forecast: Forecast) {
        self.recognition.begin_once_short(self.books.engine.foresees());
        self.recognition.learning.remember(forecast);
    }

    /// Forecasts found so far for each kind of step, sorted by step and budget.
    ///
    /// Waits first for the search of each kind of step, if `turns` is given. The wait ends when the
    /// search ends, or has simulated as many ops as `turns` turns have without recomputation.
    pub fn forecasts(&mut self, turns: Option<u64>) -> Vec<Forecast> {
        self.recognition.learning.forecasts(turns)
    }

    /// Bytes of host memory that the knowledge of steps and the learner take.
    #[must_use]
    pub fn learning_bytes(&self) -> u64 {
        self.recognition.bytes()
    }

    /// Sets whether steps that repeat run by plan from now on.
    pub fn plan_steps(&mut self, plan: Plan) {
        self.leave_plan();
        self.planning = match plan {
            Plan::Off => None,
            Plan::Auto => Some(Box::new(Planning::new())),
        };
        self.books.tensors.note_changes(plan == Plan::Auto);
    }

    /// Leaves the current plan. Called before any change that is not a command. The driver may
    /// enter a plan again at the start of a later turn.
    pub fn leave_plan(&mut self) {
        let left =
            self.planning().and_then(|(planning, mut beside)| planning.leave_plan(&mut beside));
        if let Some(left) = left {
            self.redo(left);
        }
    }
}

/// Methods that record commands.
impl<D: Device> Driver<D> {
    /// Records all commands executed from now on. `window` says how far ahead commands are
    /// admitted.
    ///
    /// Call `record_to` on a driver that has no tensors yet: a recording cannot be read if it names
    /// tensors that it does not make. An earlier recording is finished first; if finishing fails,
    /// the engine keeps the failure.
    pub fn record_to(&mut self, recorder: Box<dyn Recorder>, window: Window) {
        let ended = self.finish_recording();
        self.books.report(ended);
        let forecasts = self.recognition.learning.remembered();
        let searched = self.recognition.learning.searched;
        let known = Knowledge { steps: self.known_steps(), forecasts, searched };
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

    /// Ends the recording and writes out all its entries.
    ///
    /// # Errors
    /// An error if the recording could not be written, or if the recorder panicked.
    pub fn finish_recording(&mut self) -> Result<(), Error> {
        let lost = self.books.recording_lost.take();
        let finished = self.books.recording.take().map_or(Ok(()), Recording::finish);
        lost.map_or(finished, Err)
    }

    /// Records, as [`Command::Sync`], that the caller waits for the answer to a question. During
    /// the wait, no later command is admitted.
    pub fn record_wait(&mut self) {
        self.books.record(|| Command::Sync);
    }
}

/// Settings. Each setting is changed between two commands, and the change is recorded.
impl<D: Device> Driver<D> {
    /// Sets the hard limit, in bytes: see [`Engine::set_budget`].
    ///
    /// # Errors
    /// Errors of [`Engine::set_budget`].
    pub fn set_budget(&mut self, bytes: u64) -> Result<(), Error> {
        self.change(Setting::Budget(bytes), |engine| engine.set_budget(bytes))
    }

    /// Sets the eviction threshold in bytes, or removes it: see [`Engine::set_eviction_threshold`].
    ///
    /// # Errors
    /// Errors of [`Engine::set_eviction_threshold`].
    pub fn set_eviction_threshold(&mut self, threshold: Option<u64>) -> Result<(), Error> {
        let setting = Setting::EvictionThreshold(threshold);
        self.change(setting, |engine| engine.set_eviction_threshold(threshold))
    }

    /// Replaces the evictor: see [`Engine::set_evictor`]. If the new evictor uses foresight, the
    /// driver recognizes steps from the first eviction on: see
    /// [`Driver::recognize_steps_once_short`].
    ///
    /// # Errors
    /// Errors of [`Engine::set_evictor`].
    pub fn set_evictor(&mut self, evictor: Box<dyn Evictor>) -> Result<(), Error> {
        let setting = Setting::Policy(name_of(&*evictor));
        self.change(setting, |engine| engine.set_evictor(evictor))?;
        self.recognize_steps_once_short();
        Ok(())
    }

    /// Keeps history again: see [`Engine::enable`].
    ///
    /// # Errors
    /// No error is returned at present.
    pub fn enable(&mut self) -> Result<(), Error> {
        self.change(Setting::Enabled(true), |engine| {
            engine.enable();
            Ok(())
        })
    }

    /// Stops keeping history: see [`Engine::disable`].
    ///
    /// # Errors
    /// Errors of [`Engine::disable`].
    pub fn disable(&mut self) -> Result<(), Error> {
        self.change(Setting::Enabled(false), Engine::disable)
    }

    fn change(
        &mut self,
        setting: Setting,
        with: impl FnOnce(&mut Engine<D>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.leave_plan();
        // Plans were made for the old limits, so all plans are forgotten.
        self.planning.iter_mut().for_each(|planning| planning.forget());
        let done = with(&mut self.books.engine);
        let failed = done.is_err();
        // A change of the budget, or of whether history is kept, may evict or restore storages
        // before it fails.
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
