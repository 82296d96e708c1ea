//! Runs a program on a driver and in the model.

use super::super::toy::{Bytes, GRANULE, Toy, ToyDevice, Watch, compute, packed};
use super::{Drawn, Recipe, Setup};
use remat::device::Reading;
use remat::error::RegenerationError;
use remat::op::Operation as _;
use remat::unstable::engine::Issue;
use remat::unstable::graph::{Residence, StorageKey, TensorKey};
use remat::unstable::program::{Apply, Command, Driver, TensorId};
use remat::{DType, Error, Layout, PolicyKind, Stats};
use std::sync::Arc;

/// Value of a tensor in the model.
#[derive(Clone, Debug)]
enum Value {
    Bytes(Vec<u8>),
    /// Lost to a failure, which was reported with this message.
    Lost(String),
}

#[derive(Clone, Debug)]
pub(super) struct Held {
    pub tensor: TensorId,
    value: Value,
}

/// Figures of a run, for comparison with another run.
#[derive(Debug, PartialEq)]
pub struct Played {
    /// Statistics without times.
    pub stats: Stats,
    /// Hash of all calls that the device received.
    pub history: u64,
    /// Number of failures of ops that the program does not break on purpose.
    pub failures: usize,
    /// Number of values that could not be read at the end, for lack of memory.
    pub unread: usize,
}

pub(super) struct Play<'a> {
    setup: &'a Setup,
    pub driver: Driver<ToyDevice>,
    watch: Arc<Watch>,
    pub held: Vec<Held>,
    /// Tensors replaced in this step, each with the value it had before.
    replaced: Vec<(TensorKey, Value)>,
    /// Number of the next tensor.
    next: TensorId,
    /// Number of `Once` ops that ran.
    once: u64,
    pub salt: u64,
    failures: usize,
}

/// Runs a program on a driver and in the model. Panics where they differ.
pub fn play(recipe: &Recipe, setup: &Setup) -> Played {
    let watch = Arc::<Watch>::default();
    let mut play = Play {
        setup,
        driver: Driver::new(setup.engine(Arc::clone(&watch))),
        watch: Arc::clone(&watch),
        held: Vec::new(),
        replaced: Vec::new(),
        next: TensorId(0),
        once: 0,
        salt: 0,
        failures: 0,
    };
    for (drawn, issue) in recipe {
        play.salt += 1;
        play.step(drawn, *issue);
        play.consistent();
    }
    let unread = play.read_all();
    let mut stats = play.driver.engine().stats();
    stats.search_seconds = 0.0;
    stats.recompute_seconds = 0.0;
    while let Some(held) = play.held.pop() {
        play.execute(Command::Del(held.tensor));
        play.consistent();
    }
    let left = play.driver.engine().stats();
    assert_eq!(
        (left.tensors, left.storages, left.paths, left.used_bytes),
        (0, 0, 0, 0),
        "nothing outlives the handles"
    );
    let history = watch.history.load(std::sync::atomic::Ordering::Relaxed);
    Played { stats, history, failures: play.failures, unread }
}

impl Play<'_> {
    fn step(&mut self, drawn: &Drawn, issue: bool) {
        if let Drawn::Alias { input } = *drawn {
            return self.alias(input);
        }
        let Some(command) = self.resolve(drawn) else { return };
        match command {
            Command::Apply(call) => self.apply(&call, issue),
            Command::UpdateAll(calls) => self.update_all(calls, issue),
            Command::Replace { target, value, made, .. } => {
                self.replace(command, target, value, made);
            }
            Command::Get(tensor) => _ = self.read(tensor),
            Command::Commit(tensor) => self.commit(tensor),
            Command::Put { tensor, ref host, .. } => {
                let bytes = host.0.clone();
                self.execute(command);
                let value = match self.take_failure() {
                    None => Value::Bytes(bytes),
                    Some(error) => {
                        self.excuse(&error);
                        Value::Lost(error.to_string())
                    }
                };
                self.held.push(Held { tensor, value });
            }
            Command::Del(tensor) => {
                let key = self.key(tensor);
                self.held.swap_remove(self.position(tensor));
                self.execute(command);
                assert!(matches!(self.driver.key(tensor), Err(Error::Handle(_))));
                assert!(matches!(self.driver.engine_mut().get(key), Err(Error::Handle(_))));
                self.driver.engine_mut().del(key);
                self.execute(Command::Del(tensor));
            }
            Command::Drop(tensor) => {
                let (key, storage) = (self.key(tensor), self.storage(tensor));
                let graph = self.driver.engine().graph();
                let stays = graph.is_resident(storage) && !graph.is_evictable(storage);
                self.execute(command);
                assert_eq!(self.driver.engine().is_resident(key), stays, "only a leaf stays");
            }
            Command::Step => {
                self.execute(command);
                self.replaced.clear();
            }
            // A failure of any other command is found when all tensors are read.
            other => self.execute(other),
        }
    }

    /// Executes a command on the driver, admitted before if the setup says so.
    fn execute(&mut self, command: Command<Toy, Bytes>) {
        self.admit(&command);
        self.driver.execute(command);
    }

    fn admit(&mut self, command: &Command<Toy, Bytes>) {
        if self.setup.admit {
            self.driver.admit(command);
            let counts = !matches!(command, Command::Del(_));
            let known = self.driver.engine().graph().future().commands();
            assert_eq!(known, usize::from(counts), "{command:?}");
        }
    }

    /// Reserves `count` numbers of tensors, and returns the first.
    pub(super) fn new_numbers(&mut self, count: usize) -> TensorId {
        let first = self.next;
        self.next = first.plus(count);
        first
    }

    pub(super) fn key(&self, tensor: TensorId) -> TensorKey {
        self.driver.key(tensor).expect("it is held")
    }

    fn storage(&self, tensor: TensorId) -> StorageKey {
        self.driver.engine().graph().tensor(self.key(tensor)).expect("it is held").storage
    }

    pub(super) fn layout(&self, tensor: TensorId) -> Layout {
        self.driver.engine().layout(self.key(tensor)).unwrap()
    }

    fn position(&self, tensor: TensorId) -> usize {
        self.held.iter().position(|held| held.tensor == tensor).expect("it is held")
    }

    fn value(&mut self, tensor: TensorId) -> &mut Value {
        let position = self.position(tensor);
        &mut self.held[position].value
    }

    /// Gives the targets of an update their new numbers, whether or not the update was made.
    fn renumber(&mut self, call: &Apply<Toy>) {
        let targets = call.inputs.iter().take(call.outputs.targets());
        for (&target, made) in targets.zip(call.outputs()) {
            let position = self.position(target);
            self.held[position].tensor = made;
        }
    }

    fn alias(&mut self, input: usize) {
        if let Some(input) = self.pick_one(input) {
            let key = self.key(input);
            let key = self.driver.engine_mut().alias(key).unwrap();
            let tensor = self.new_numbers(1);
            self.driver.adopt(tensor, key);
            let value = self.value(input).clone();
            self.held.push(Held { tensor, value });
        }
    }

    fn commit(&mut self, tensor: TensorId) {
        self.execute(Command::Commit(tensor));
        let failure = self.take_failure();
        let value = self.value(tensor).clone();
        let key = self.key(tensor);
        let engine = self.driver.engine_mut();
        match (failure, value) {
            (None, Value::Bytes(_)) => assert!(!engine.drop_now(key).unwrap(), "a leaf stays"),
            // The failure was reported before. Only a direct call of the engine reports it again.
            (None, Value::Lost(why)) => {
                assert_eq!(engine.commit(key).expect_err("lost").to_string(), why);
            }
            (Some(error), Value::Bytes(_)) => self.excuse(&error),
            (Some(error), Value::Lost(why)) => panic!("told again: {error}; before: {why}"),
        }
    }

    fn replace(
        &mut self,
        command: Command<Toy, Bytes>,
        target: TensorId,
        value: TensorId,
        made: TensorId,
    ) {
        let old = self.key(target);
        let looks = [target, value].map(|tensor| {
            let layout = self.layout(tensor);
            (layout.dtype(), *layout.shape(), layout.is_contiguous())
        });
        let fits = looks[0] == looks[1] && looks[0].2;
        let new = self.value(value).clone();
        self.execute(command);
        let position = self.position(target);
        self.held[position].tensor = made;
        let (key, failure) = (self.key(made), self.take_failure());
        if key != old {
            assert!(fits && failure.is_none() && matches!(new, Value::Bytes(_)), "{failure:?}");
            let before = std::mem::replace(self.value(made), new);
            let was = self.replaced.iter().position(|(key, _)| *key == old);
            let first = was.map_or(before, |at| self.replaced.swap_remove(at).1);
            self.replaced.push((key, first));
            return;
        }
        match failure {
            Some(error) if !fits => assert!(matches!(error, Error::Op(_)), "{error}"),
            // The replacement was skipped: its value was lost before, or memory is short now.
            Some(error) => self.excuse(&error),
            None => assert!(fits && matches!(new, Value::Lost(_))),
        }
    }

    fn update_all(&mut self, mut calls: Vec<Apply<Toy>>, issue: bool) {
        let expected: Vec<Value> = calls.iter().map(|call| self.expected(call).remove(0)).collect();
        if issue {
            self.execute(Command::UpdateAll(calls.clone()));
            calls.iter().for_each(|call| self.renumber(call));
        } else {
            self.update_all_at_once(&mut calls);
        }
        let lost = expected.iter().any(|value| matches!(value, Value::Lost(_)));
        let failure = self.take_failure();
        if let Some(error) = &failure {
            assert!(!lost, "{error}");
            self.excuse(error);
        }
        for (call, value) in calls.iter().zip(expected) {
            if failure.is_none() && !lost {
                *self.value(call.made) = value;
            }
            // The handle of a target that another update reads was not consumed.
            if issue && call.ended().next().is_none() {
                self.execute(Command::Del(call.inputs[0]));
            }
        }
    }

    /// Makes the updates on the engine itself, which may also get targets that others read. The
    /// numbers of the old values name the new values.
    fn update_all_at_once(&mut self, calls: &mut [Apply<Toy>]) {
        let updates = calls.iter().map(|call| Issue {
            op: call.op.clone(),
            inputs: call.inputs.iter().map(|&tensor| self.key(tensor)).collect(),
            outputs: call.outputs.clone(),
        });
        let updates = updates.collect();
        let issued = self.driver.engine_mut().issue_all(updates).expect("they are all in place");
        for (call, issued) in calls.iter_mut().zip(issued) {
            call.made = call.inputs[0];
            self.driver.adopt(call.made, issued.made[0]);
        }
    }

    /// Takes the next failure. A failure reverts the replacements of this step.
    fn take_failure(&mut self) -> Option<Error> {
        let failure = self.driver.engine_mut().take_failure();
        if failure.is_some() {
            self.failed();
        }
        failure
    }

    /// Reverts the replacements of this step in the model.
    fn failed(&mut self) {
        for (key, value) in std::mem::take(&mut self.replaced) {
            let driver = &self.driver;
            let names = |held: &&mut Held| driver.key(held.tensor).is_ok_and(|held| held == key);
            if let Some(held) = self.held.iter_mut().find(names) {
                held.value = value;
            }
        }
    }

    fn apply(&mut self, call: &Apply<Toy>, issue: bool) {
        let expected = self.expected(call);
        let lost_before = call.inputs.iter().find_map(|&x| match self.value(x) {
            Value::Lost(why) => Some(why.clone()),
            Value::Bytes(_) => None,
        });
        let target = call.inputs.first().filter(|_| call.outputs.targets() > 0);
        let target = target.map(|&target| self.storage(target));
        let is_leaf =
            |play: &Self, storage| play.driver.engine().graph().storage(storage).producer.is_none();
        let was_leaf = target.is_some_and(|target| is_leaf(self, target));
        let failure = if issue {
            self.execute(Command::Apply(call.clone()));
            self.renumber(call);
            self.take_failure()
        } else {
            let failure = self.apply_at_once(call);
            match failure {
                None => self.renumber(call),
                Some(_) if lost_before.is_none() => self.failed(),
                Some(_) => {}
            }
            failure
        };
        let told = failure.as_ref().map(Error::to_string);
        match (&failure, &lost_before) {
            (None, None) => self.once += u64::from(matches!(call.op, Toy::Once { .. })),
            // The outputs of an op that reads a lost tensor are lost, too, without another report.
            (None, Some(why)) => assert!(issue, "{why}"),
            (Some(error), Some(why)) => {
                assert_eq!(error.to_string(), *why, "the first failure is the one told");
            }
            (Some(error), None) => {
                self.excuse(error);
                let text = error.to_string();
                let elsewhere = self.elsewhere(error);
                assert!(!text.is_empty() && (text.contains(call.op.name()) || elsewhere));
            }
        }
        // An op that failed while it wrote over a leaf loses the leaf's value.
        let graph = self.driver.engine().graph();
        let target = target.filter(|&target| failure.is_some() && graph.contains(target));
        let is_lost = |target| graph.storage(target).residence == Residence::Poisoned;
        if lost_before.is_none() && target.is_some_and(is_lost) {
            let at = if issue { call.made } else { call.inputs[0] };
            assert!(was_leaf, "{call:?} loses a value that can be restored");
            *self.value(at) = Value::Lost(told.clone().expect("it failed"));
        }
        if failure.is_some() && !issue {
            // The failed call made nothing and consumed nothing.
            return;
        }
        let lost = told.or(lost_before);
        for (output, (tensor, new)) in call.outputs().zip(expected).enumerate() {
            // A skipped update leaves the old value.
            let updated = output < call.outputs.targets();
            let old = updated.then(|| self.held.remove(self.position(tensor)).value);
            let value = match &lost {
                None => new,
                Some(why) => old.unwrap_or_else(|| Value::Lost(why.clone())),
            };
            self.held.push(Held { tensor, value });
        }
    }

    /// Applies an op on the engine itself. Returns the error if the engine refuses it.
    fn apply_at_once(&mut self, call: &Apply<Toy>) -> Option<Error> {
        let keys: Vec<TensorKey> = call.inputs.iter().map(|&tensor| self.key(tensor)).collect();
        match self.driver.engine_mut().apply(call.op.clone(), &keys) {
            Ok(made) => {
                assert_eq!(made.len(), call.outputs.len());
                for (tensor, key) in call.outputs().zip(made) {
                    self.driver.adopt(tensor, key);
                }
                // The engine consumed the tensors of these numbers.
                call.ended().for_each(|target| self.execute(Command::Del(target)));
                None
            }
            Err(error) => Some(error),
        }
    }

    /// Values of an op's outputs in the model.
    fn expected(&mut self, call: &Apply<Toy>) -> Vec<Value> {
        let mut values = Vec::new();
        for &input in &call.inputs {
            match self.value(input) {
                Value::Bytes(bytes) => values.push(bytes.clone()),
                lost @ Value::Lost(_) => return vec![lost.clone(); call.outputs.len()],
            }
        }
        let whole = || Layout::contiguous(DType::U8, *self.layout(call.inputs[0]).shape());
        let view = |layout: Option<Layout>| {
            Value::Bytes(packed(&values[0], &layout.expect("the device's layout allowed it")))
        };
        match call.op {
            Toy::Slice { start, len } => vec![view(whole().slice(0, start, len))],
            Toy::Turn { rows } => {
                let matrix = whole().reshape(&[rows, values[0].len() / rows].into());
                vec![view(matrix.and_then(|m| m.permute(&[1, 0])))]
            }
            Toy::Repeat { times } => {
                vec![view(whole().broadcast_to(&[times, values[0].len()].into()))]
            }
            Toy::Halves { at } => {
                let rest = whole().shape()[0] - at;
                vec![view(whole().slice(0, 0, at)), view(whole().slice(0, at, rest))]
            }
            _ => compute(&call.op, &values, self.once).into_iter().map(Value::Bytes).collect(),
        }
    }

    /// Fails unless an error is allowed. An out-of-memory error is allowed if its figures are true.
    fn excuse(&mut self, error: &Error) {
        match error {
            Error::Device(e) if e.message.contains("broken on purpose") => {}
            Error::OutOfMemory(e) => {
                self.failures += 1;
                let wanted = e.wanted.max(1).next_multiple_of(GRANULE);
                let never = self.setup.policy == PolicyKind::None;
                assert!(
                    never || e.free + e.evictable < wanted,
                    "out of memory although it could evict: {e}"
                );
                let usable = self.setup.budget / GRANULE * GRANULE;
                assert_eq!(e.used + e.free, usable, "{e}");
                assert_eq!(e.used, e.pinned + e.leaves + e.evictable, "{e}");
            }
            Error::Regeneration(e) => {
                self.failures += 1;
                let RegenerationError::RegenerationLimit { runs, paths, limit } = **e else {
                    panic!("no reason for this: {e}")
                };
                assert_eq!(limit, self.setup.regeneration_limit);
                assert!(runs > 1 && paths > 0, "{e}");
            }
            other => panic!("no reason for this: {other}"),
        }
    }

    /// Whether the failure is of another op, which had to run again to restore an input of this op.
    fn elsewhere(&self, error: &Error) -> bool {
        matches!(error, Error::OutOfMemory(_) | Error::Regeneration(_) | Error::Device(_))
    }

    /// Reads a tensor and compares it with the model. Returns `false` if the read failed for a
    /// temporary reason.
    fn read(&mut self, tensor: TensorId) -> bool {
        self.admit(&Command::Get(tensor));
        let found = self.driver.get(tensor).and_then(|reading| match reading {
            Reading::Done(found) => Ok(found),
            Reading::Later => loop {
                if let Some(found) = self.driver.engine_mut().take_read() {
                    break found;
                }
            },
        });
        match (found, self.value(tensor).clone()) {
            (Ok(found), Value::Bytes(expected)) => {
                assert_eq!(found.0, expected, "the bits of tensor {tensor}");
                true
            }
            (Err(error), Value::Lost(why)) => {
                assert_eq!(error.to_string(), why);
                true
            }
            (Err(error), Value::Bytes(_)) => {
                self.excuse(&error);
                false
            }
            (Ok(_), Value::Lost(why)) => panic!("read what was lost: {why}"),
        }
    }

    /// Reads all held tensors, dropping each handle once its value is known. Returns the number of
    /// tensors that could not be read.
    fn read_all(&mut self) -> usize {
        for i in 0..self.held.len() {
            self.read(self.held[i].tensor);
            self.consistent();
        }
        let mut progress = true;
        while progress {
            progress = false;
            let mut i = 0;
            while i < self.held.len() {
                let read = self.read(self.held[i].tensor);
                self.consistent();
                if read {
                    let tensor = self.held.remove(i).tensor;
                    self.execute(Command::Del(tensor));
                    self.consistent();
                    progress = true;
                } else {
                    i += 1;
                }
            }
        }
        self.held.len()
    }

    fn consistent(&mut self) {
        let engine = self.driver.engine();
        engine.check();
        let stats = engine.stats();
        assert!(stats.peak_bytes <= self.setup.budget);
        self.watch.check();
        let future = engine.graph().future();
        assert_eq!(future.commands(), 0, "nothing waits");
        let keys: Vec<TensorKey> = self.held.iter().map(|held| self.key(held.tensor)).collect();
        for &key in &keys {
            let storage = engine.graph().tensor(key).expect("it is held").storage;
            let handles = engine.graph().storage(storage).handles;
            let waits = (future.next_read(storage), future.last_handle(storage, handles));
            assert_eq!(waits, (None, None), "nothing waits");
        }
        let kept = self.replaced.iter().filter(|(key, _)| keys.contains(key)).count();
        assert_eq!(stats.tensors, self.held.len() + kept);
        let failure = self.driver.engine_mut().take_failure();
        assert!(failure.is_none(), "nothing fails in silence: {failure:?}");
    }
}
