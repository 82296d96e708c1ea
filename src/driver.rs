//! The one way from commands to an engine.

mod admit;
mod allowance;
mod drift;
mod entry;
mod first_step;
mod foresee;
mod knowledge;
mod learners;
mod learning;
mod numbers;
mod recognize;
mod recording;
mod replay;
mod settings;
mod trust;
mod turn;

pub use allowance::Allowance;
pub use entry::{Entry, Recorder, VERSION};
pub use knowledge::Knowledge;
pub(crate) use learners::{Learners, Learning};
pub use learning::Learner;
pub use replay::Plan;
pub(crate) use settings::Change;
pub use settings::Setting;
pub use turn::Turn;

use crate::command::{Apply, Command, Consumed, Program, RecordedCommand, RecordedOp, TensorId};
use crate::device::{Device, DeviceError, Place, Reading};
use crate::engine::{Engine, Issue, Stats};
use crate::error::{Error, HandleError};
use crate::graph::TensorKey;
use crate::hint::cold;
use crate::op::Outputs;
use admit::Admitted;
use numbers::Numbers;
use recognize::Recognizer;
use recording::Recording;
use replay::Planning;
use smallvec::SmallVec;
use std::fmt;
use turn::Writing;

/// Executes commands on an engine, in order. It knows which tensor a number means.
///
/// What fails is kept by the engine: [`Engine::take_failure`]. Tensors that could not be made are lost to that failure,
/// and an update that could not be made is skipped, as [`Engine::issue`] says.
pub struct Driver<D: Device> {
    engine: Engine<D>,
    /// Each tensor whose number still means it.
    tensors: Numbers,
    admitted: Admitted,
    recording: Option<Recording>,
    /// A turn that is being written down.
    writing: Option<Box<Writing>>,
    /// If steps are recognized.
    recognizer: Option<Box<Recognizer>>,
    /// Whether they will be once something is evicted.
    recognizes_once_short: bool,
    /// How recognized steps are best run.
    learning: learning::Learning,
    /// What the command at hand cost, in the units of the cost model, with all that it reads there.
    last_cost: f64,
    /// If steps that repeat run by plan.
    planning: Option<Box<Planning<D>>>,
    /// What the recorder panicked with.
    recording_lost: Option<Error>,
}

/// What an op was given: keys of its inputs, those of consumed ones given away.
pub(super) type Given = SmallVec<[TensorKey; 8]>;

impl<D: Device> Driver<D> {
    /// A driver of this engine.
    #[must_use]
    pub fn new(engine: Engine<D>) -> Self {
        Self {
            engine,
            tensors: Numbers::default(),
            admitted: Admitted::default(),
            recording: None,
            writing: None,
            recognizer: None,
            recognizes_once_short: false,
            learning: learning::Learning::default(),
            last_cost: 0.0,
            planning: None,
            recording_lost: None,
        }
    }

    /// Makes room in the tables for so many more tensors.
    pub fn reserve(&mut self, tensors: usize) {
        self.tensors.reserve(tensors);
        self.engine.reserve(tensors);
    }

    /// The engine.
    #[must_use]
    pub const fn engine(&self) -> &Engine<D> {
        &self.engine
    }

    /// The engine, for what is no command: failures, answers that come later. Settings that are changed there are not
    /// recorded.
    pub const fn engine_mut(&mut self) -> &mut Engine<D> {
        &mut self.engine
    }

    /// The engine's counters, with those of steps that are learned or run by plan.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let learning_bytes = self.learning_bytes();
        self.with_plans(Stats { learning_bytes, ..self.engine.stats() })
    }

    /// The tensor that a number means.
    ///
    /// # Errors
    /// [`HandleError::Unknown`] if it means none.
    #[inline]
    pub fn key(&self, tensor: TensorId) -> Result<TensorKey, Error> {
        self.tensors.get(tensor).ok_or_else(|| HandleError::Unknown.into())
    }

    /// From now on this number means a tensor that was made on the engine itself. No command made it: a recording does
    /// not say where it comes from. A tensor that the number meant before is not deleted.
    pub fn adopt(&mut self, tensor: TensorId, key: TensorKey) {
        self.tensors.insert(tensor, key);
    }

    /// Executes a command. A value that it reads is thrown away; see [`Driver::get`].
    #[inline]
    pub fn execute(&mut self, command: Command<D::Op, D::Host>) {
        if self.planning.is_some()
            && let Some(done) = self.follow(&command)
        {
            return self.did_follow(command, done);
        }
        let recognized = self.recognize(&command);
        let made = self.to_bind(&command);
        self.begin(command.is_position());
        match command {
            // From where it is: it is large, and by far the most frequent.
            Command::Apply(Apply { op, ref inputs, ref consumed, ref outputs, made }) => {
                self.apply(op, inputs, consumed, outputs, made);
            }
            Command::Del(tensor) => self.forget(tensor),
            other => self.execute_other(other),
        }
        self.bind_made(&made);
        self.recognized(recognized);
        self.end_admitted();
    }

    /// Any command, without what goes before and after. Apart, so that the code of the frequent ones lies close together.
    #[inline(never)]
    fn execute_other(&mut self, command: Command<D::Op, D::Host>) {
        match command {
            Command::Apply(Apply { op, ref inputs, ref consumed, ref outputs, made }) => {
                self.apply(op, inputs, consumed, outputs, made);
            }
            Command::Put { tensor, host, leaf } => {
                let layout = D::layout_of(&host);
                let key = if leaf { self.engine.put_leaf(host) } else { self.engine.put(host) };
                self.tensors.insert(tensor, key);
                self.record_put(tensor, layout, leaf);
            }
            Command::UpdateAll(calls) => self.update_all(calls),
            Command::Replace { target, consumed, value, made } => {
                let replaced = self.replace(target, consumed, value, made);
                self.report(replaced);
            }
            Command::Confirm => {
                self.engine.confirm();
                self.record(|| Command::Confirm);
            }
            Command::Get(tensor) => {
                // Waited for: nobody would take it later.
                let read = self.about(tensor, Command::Get(tensor), Engine::get);
                self.report(read);
            }
            Command::Del(tensor) => self.forget(tensor),
            Command::Drop(tensor) => {
                let dropped = self.about(tensor, Command::Drop(tensor), Engine::drop_now);
                self.report(dropped);
            }
            Command::Commit(tensor) => {
                let committed = self.about(tensor, Command::Commit(tensor), Engine::commit);
                self.report(committed);
            }
            Command::Label { tensor, label } => {
                let command = Command::Label { tensor, label: label.clone() };
                let labelled = self.about(tensor, command, |engine, key| engine.label(key, &label));
                self.report(labelled);
            }
            Command::Step => {
                self.engine.step();
                self.turn_is_marked();
                self.record(|| Command::Step);
            }
            Command::Sync => {
                let done = self.engine.sync();
                self.report(done);
                self.record(|| Command::Sync);
            }
        }
    }

    /// Executes [`Command::Del`]: with [`Command::Apply`] the most frequent.
    #[inline]
    pub fn del(&mut self, tensor: TensorId) {
        if self.planning.is_some()
            && let Some(done) = self.follow(&Command::Del(tensor))
        {
            return self.did_follow(Command::Del(tensor), done);
        }
        self.begin(false);
        self.forget(tensor);
        self.end_admitted();
    }

    /// Executes a command of a program that is kept: only its op is copied.
    #[inline]
    pub fn execute_shared(&mut self, command: &Command<D::Op, D::Host>)
    where
        D::Op: Clone,
    {
        match command {
            Command::Del(tensor) => self.del(*tensor),
            _ if self.planning.is_some() => self.execute(command.clone()),
            Command::Apply(Apply { op, inputs, consumed, outputs, made }) => {
                let recognized = self.recognize(command);
                let to_bind = self.to_bind(command);
                self.begin(true);
                self.apply(op.clone(), inputs, consumed, outputs, *made);
                self.bind_made(&to_bind);
                self.recognized(recognized);
                self.end_admitted();
            }
            other => self.execute(other.clone()),
        }
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
            self.engine.take_failure().map_or(Ok(()), Err)?;
        }
        Ok(())
    }

    /// Executes [`Command::Get`], and returns the value, or that it comes later: then [`Engine::take_read`] gives it, in the
    /// order of the reads.
    ///
    /// # Errors
    /// As there.
    pub fn get(&mut self, tensor: TensorId) -> Result<Reading<D::Host>, Error> {
        if self.planning.is_some()
            && let Some(place) = self.follow_read(tensor)
        {
            let read = self.engine.ask_device("get", |device| device.read_later(place));
            self.did_follow(Command::Get(tensor), Ok(()));
            return read;
        }
        let recognized = self.recognize(&Command::Get(tensor));
        self.begin(true);
        let read = self.about(tensor, Command::Get(tensor), Engine::get_later);
        self.recognized(recognized);
        self.end_admitted();
        read
    }

    /// Executes [`Command::Get`] with [`Engine::visit`]: the device does something with the tensor where it is.
    ///
    /// # Errors
    /// As there.
    pub fn visit<T>(
        &mut self,
        tensor: TensorId,
        mut visit: impl FnMut(&mut D, Place) -> Result<T, DeviceError>,
    ) -> Result<T, Error> {
        if self.planning.is_some()
            && let Some(place) = self.follow_read(tensor)
        {
            let read = self.engine.ask_device("get", |device| visit(device, place));
            self.did_follow(Command::Get(tensor), Ok(()));
            return read;
        }
        let recognized = self.recognize(&Command::Get(tensor));
        self.begin(true);
        let visited =
            self.about(tensor, Command::Get(tensor), |engine, key| engine.visit(key, visit));
        self.recognized(recognized);
        self.end_admitted();
        visited
    }

    /// Does something with a tensor, and records it as this command. Of a number that means nothing, nothing is recorded.
    fn about<T>(
        &mut self,
        tensor: TensorId,
        command: RecordedCommand,
        with: impl FnOnce(&mut Engine<D>, TensorKey) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let key = self.key(tensor)?;
        let done = with(&mut self.engine, key);
        if let Err(error) = &done {
            self.guess_after(error);
        }
        self.record(|| command);
        done
    }

    #[inline]
    fn forget(&mut self, tensor: TensorId) {
        self.recognize_end(tensor);
        if let Some(key) = self.tensors.remove(tensor) {
            self.engine.del(key);
            self.record(|| Command::Del(tensor));
        }
    }

    #[inline]
    fn apply(
        &mut self,
        op: D::Op,
        inputs: &[TensorId],
        consumed: &Consumed,
        outputs: &Outputs,
        made: TensorId,
    ) {
        let keys = match self.give(inputs, consumed, outputs) {
            Ok(keys) => keys,
            Err(error) => return self.engine.fail(cold(error)),
        };
        let spoken = self.speaks_of(&op).map(|op| {
            std::hint::cold_path();
            let (inputs, consumed, outputs) = (inputs.into(), consumed.clone(), outputs.clone());
            Apply { op, inputs, consumed, outputs, made }
        });
        match self.engine.issue(op, &keys, outputs) {
            Ok(new) => {
                self.last_cost = self.engine.last_run().cost;
                for (&key, tensor) in new.iter().zip(made.and_next(new.len())) {
                    self.tensors.insert(tensor, key);
                }
                if let Some(mut call) = spoken {
                    std::hint::cold_path();
                    call.op = call.op.after(self.engine.last_run());
                    self.record_call(call, &keys, &new);
                }
            }
            Err(error) => self.did_not_apply(error, spoken, &keys, outputs, made),
        }
    }

    /// An op was refused, or failed.
    #[cold]
    #[inline(never)]
    fn did_not_apply(
        &mut self,
        error: Error,
        spoken: Option<Apply<RecordedOp>>,
        keys: &[TensorKey],
        outputs: &Outputs,
        made: TensorId,
    ) {
        spoken.into_iter().for_each(|call| self.record_skipped(call));
        self.guess_after(&error);
        self.engine.fail(error.clone());
        self.take_back(keys, outputs, made, &error);
    }

    fn update_all(&mut self, calls: Vec<Apply<D::Op>>) {
        let mut updates = Vec::with_capacity(calls.len());
        let mut rest = Vec::with_capacity(calls.len());
        let mut unknown = None;
        for Apply { op, inputs, consumed, outputs, made } in calls {
            match self.give(&inputs, &consumed, &outputs) {
                Ok(keys) => {
                    let spoken = self.speaks_of(&op);
                    updates.push(Issue { op, inputs: keys.to_vec(), outputs: outputs.clone() });
                    rest.push((Apply { op: spoken, inputs, consumed, outputs, made }, keys));
                }
                Err(error) => unknown = Some(error),
            }
        }
        let done = match unknown {
            None => self.engine.issue_all(updates),
            Some(error) => Err(error),
        };
        match done {
            Ok(done) => {
                self.last_cost = done.iter().map(|issued| issued.run.cost).sum();
                let mut recorded = Vec::new();
                for ((call, keys), issued) in rest.into_iter().zip(done) {
                    self.tensors.extend(call.outputs().zip(issued.made.iter().copied()));
                    if let (Some(op), call) = call.split_op() {
                        recorded.push((call.with_op(op.after(issued.run)), keys, issued.made));
                    }
                }
                if self.is_written() {
                    self.record_calls(recorded);
                }
            }
            Err(error) => {
                self.guess_after(&error);
                self.engine.fail(error.clone());
                for (call, keys) in rest {
                    self.take_back(&keys, &call.outputs, call.made, &error);
                    if let (Some(op), call) = call.split_op() {
                        self.record_skipped(call.with_op(op));
                    }
                }
            }
        }
    }

    fn replace(
        &mut self,
        target: TensorId,
        consumed: bool,
        value: TensorId,
        made: TensorId,
    ) -> Result<(), Error> {
        let (mut old, new) = (self.key(target)?, self.key(value)?);
        if consumed {
            self.recognize_end(target);
            self.tensors.remove(target);
        } else {
            old = self.engine.alias(old)?;
        }
        let key = self.engine.replace(old, new).unwrap_or_else(|error| {
            // What cannot be replaced stays.
            self.engine.fail(error.clone());
            self.engine.keep_old(&[old], &error);
            old
        });
        self.tensors.insert(made, key);
        if key == old {
            self.record_no_replacement(target, consumed, made);
        } else {
            self.record(|| Command::Replace { target, consumed, value, made });
        }
        Ok(())
    }

    /// Keys of the inputs of an op, those of consumed ones given away.
    #[inline]
    fn give(
        &mut self,
        inputs: &[TensorId],
        consumed: &Consumed,
        outputs: &Outputs,
    ) -> Result<Given, Error> {
        let mut keys = Given::new();
        for &tensor in inputs {
            keys.push(self.key(tensor).map_err(cold)?);
        }
        for input in 0..outputs.targets().min(inputs.len()) {
            std::hint::cold_path();
            if consumed.contains(input) {
                self.tensors.remove(inputs[input]);
            } else {
                // The caller still holds the old value: the engine consumes another handle to it.
                keys[input] = self.engine.alias(keys[input])?;
            }
        }
        Ok(keys)
    }

    /// An op was not even issued: what was to be updated goes on naming the old value.
    fn take_back(&mut self, keys: &[TensorKey], outputs: &Outputs, made: TensorId, why: &Error) {
        let targets = outputs.targets().min(keys.len());
        self.engine.keep_old(&keys[..targets], why);
        self.tensors.extend(made.and_next(targets).zip(keys.iter().copied()));
    }

    /// Keeps the failure of a command that nobody waits for.
    pub(super) fn report<T>(&mut self, result: Result<T, Error>) {
        if let Err(error) = result {
            self.engine.fail(error);
        }
    }
}

impl<D: Device> fmt::Debug for Driver<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("engine", &self.engine).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Window;
    use crate::cost::CostModelKind;
    use crate::device::sim::Sim;
    use crate::engine::Settings;
    use crate::evict::PolicyKind;
    use crate::host::HostTensor;
    use crate::layout::{DType, Layout};
    use crate::ops::{Accumulate, Contiguous, Op};
    use crate::sync::{Mutex, lock};
    use std::sync::Arc;

    /// Whoever has a device that owns its memory had to go past the driver to read, and recordings had no `get`.
    #[test]
    fn a_visit_is_a_get_to_whoever_looks_ahead_or_records() {
        let costs = CostModelKind::Flops.build();
        let engine = Engine::new(
            Sim::<Op, HostTensor>::cpu(1 << 20),
            Settings::default(),
            PolicyKind::DtrEq.build(0),
            costs,
        );
        let mut driver = Driver::new(engine.unwrap());
        let lines = Lines::default();
        driver.record_to(Box::new(lines.clone()), Window::of(4));
        let host = Arc::new(HostTensor::zeros(DType::F32, [2, 3]).unwrap());
        driver.execute(Command::Put { tensor: TensorId(0), host, leaf: false });
        driver.admit(&Command::Get(TensorId(0)));
        let storage = driver.engine().graph().storages().next().unwrap().0;
        assert_eq!(driver.engine().graph().future().next_read(storage), Some(1));
        let bytes = driver.visit(TensorId(0), |_, place| Ok(place.layout.bytes()));
        assert_eq!(bytes.unwrap(), 24);
        assert_eq!(driver.engine().graph().future().next_read(storage), None);
        let refused = driver.visit(TensorId(0), |_, _| Err::<(), _>(DeviceError::new("no")));
        assert!(matches!(refused, Err(Error::Device(_))));
        assert!(driver.visit(TensorId(7), |_, _| Ok(())).is_err(), "it means nothing");
        assert_eq!(*lock(&lines.0), ["put", "get", "get"]);
    }

    /// Names of the commands that are recorded.
    #[derive(Clone, Debug, Default)]
    struct Lines(Arc<Mutex<Vec<&'static str>>>);

    impl Recorder for Lines {
        fn record(&mut self, entry: &Entry) {
            if let Entry::Did { command, .. } = entry {
                lock(&self.0).push(command.name());
            }
        }

        fn finish(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// The handle made for the engine to consume stayed when the engine refused the update, and the refusal was told
    /// again and again.
    #[test]
    fn an_update_that_the_engine_refuses_leaves_no_handle() {
        let costs = CostModelKind::Flops.build();
        let (device, settings) = (Sim::cpu(1 << 20), Settings::default());
        let engine = Engine::new(device, settings, PolicyKind::DtrEq.build(0), costs).unwrap();
        let mut driver = Driver::new(engine);
        let host = Arc::new(HostTensor::zeros(DType::F32, [2, 3]).unwrap());
        let call = |op: Op, input, outputs, made| Apply {
            op,
            inputs: [TensorId(input)].into_iter().collect(),
            consumed: Consumed::default(),
            outputs,
            made: TensorId(made),
        };
        let mut execute = |command| {
            driver.execute(command);
            let failure = driver.engine.take_failure();
            assert!(driver.engine.take_failure().is_none(), "it is told once");
            failure
        };
        let turned = Layout::contiguous(DType::F32, [2, 3]).permute(&[1, 0]).unwrap();
        let view = Outputs::view(0, turned);
        assert!(execute(Command::Put { tensor: TensorId(0), host, leaf: false }).is_none());
        assert!(execute(Command::Apply(call(Contiguous.into(), 0, view, 1))).is_none());
        // Another handle keeps the old value, and what is not contiguous is not updated.
        let update = |made| call(Accumulate.into(), 1, Outputs::updates(1), made);
        assert!(matches!(execute(Command::Apply(update(2))), Some(Error::Op(_))));
        assert!(matches!(execute(Command::UpdateAll(vec![update(3)])), Some(Error::Op(_))));
        assert_eq!(driver.engine.stats().tensors, 4, "two of them are names of the view");
        for tensor in TensorId(0).and_next(4) {
            driver.execute(Command::Del(tensor));
        }
        assert_eq!(driver.engine.stats().tensors, 0);
    }
}
