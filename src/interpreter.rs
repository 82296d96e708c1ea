//! The worker thread: takes commands in order, and owns the engine.

mod recording;

use crate::device::{Device, Reading};
use crate::engine::{Engine, Issue, Keys, LastRun};
use crate::error::{Error, HandleError};
use crate::graph::TensorKey;
use crate::guard::words;
use crate::op::{Operation as _, Outputs};
use crate::ops::{Home, Ids};
use crate::runtime::{Call, Change, Command, Consumed, Control, Description, Message};
use crate::trace::{self, Entry, OutputEntry, Recorder, Source};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, select};
use recording::Recording;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::span::EnteredSpan;
use tracing::{Level, enabled, trace_span};

/// How often a device is asked for values that somebody waits for. It goes on with other work meanwhile: to wait
/// for one value would be to let the device run dry.
const PATIENCE: Duration = Duration::from_micros(20);

/// After so long without a command the program is idle: handles that it drops are looked for then. Before, the next
/// command will bring them along.
const IDLE: Duration = Duration::from_millis(10);

type Commands<D> = Receiver<Message<<D as Device>::Op, <D as Device>::Host>>;

pub(crate) struct Interpreter<D: Device> {
    engine: Engine<D>,
    control: Arc<Control>,
    /// Handles that went and that no command has brought along yet.
    home: Arc<Home>,
    /// Tensor number -> its key, for each tensor with a handle whose deletion has not arrived.
    tensors: FxHashMap<u64, TensorKey>,
    /// Who waits for a value that the device has yet to give, in the order of the reads.
    readers: VecDeque<Sender<Result<D::Host, Error>>>,
    /// When the device was last asked for one.
    asked: Instant,
    /// Handles that went while the worker was idle: after how many commands, and which. They are deleted right then,
    /// before any later command, so that it does not matter when the worker found them.
    dropped: VecDeque<(u64, Ids)>,
    recording: Option<Recording>,
    /// Number that stands for a value that replaced another one in this step -> number of the other one, which
    /// the engine still keeps. For recordings only.
    replaced: FxHashMap<u64, u64>,
    /// What the recorder panicked with.
    recording_lost: Option<Error>,
}

impl<D: Device> Interpreter<D> {
    pub fn new(
        mut engine: Engine<D>,
        control: Arc<Control>,
        home: Arc<Home>,
        recorder: Option<Box<dyn Recorder>>,
    ) -> Self {
        let cancel = Arc::clone(&control);
        engine.interrupt_when(move || cancel.is_cancelled());
        let begin = Entry::Begin {
            version: trace::VERSION,
            cost_model: engine.cost_model().to_owned(),
            budget: Some(engine.budget()),
            eviction_threshold: engine.settings().eviction_threshold,
        };
        let recording = recorder.map(|recorder| Recording::new(recorder, &mut engine));
        let mut interpreter = Self {
            engine,
            control,
            home,
            tensors: FxHashMap::default(),
            readers: VecDeque::new(),
            asked: Instant::now(),
            dropped: VecDeque::new(),
            recording,
            replaced: FxHashMap::default(),
            recording_lost: None,
        };
        interpreter.record(|_, _| begin);
        interpreter
    }

    /// Executes commands until all senders are gone, or it cannot go on. Returns why, if that is so.
    pub fn run(mut self, commands: &Commands<D>) -> Option<String> {
        let mut at_hand = IDLING;
        match catch_unwind(AssertUnwindSafe(|| self.obey_all(commands, &mut at_hand))) {
            Ok(None) => {}
            Ok(Some(broken)) => return Some(broken.to_string()),
            Err(panic) => return Some(format!("{at_hand} panicked: {}", words(&*panic))),
        }
        while !self.readers.is_empty() {
            std::thread::sleep(PATIENCE);
            self.answer_readers();
        }
        if let Some(Err(error)) = self.recording.take().map(Recording::finish) {
            tracing::error!(target: "remat", %error, "the recording is lost");
        }
        None
    }

    /// Does as it is told until there is nothing more to do, or nothing can go on: then it returns why. `at_hand` is
    /// what it is doing.
    fn obey_all(&mut self, commands: &Commands<D>, at_hand: &mut &'static str) -> Option<Error> {
        loop {
            if !self.readers.is_empty() && self.asked.elapsed() >= PATIENCE {
                self.answer_readers();
            }
            // Without a look at the clock where there is a command, as there mostly is.
            match commands.try_recv() {
                Ok(message) => self.obey(message, at_hand),
                Err(_) => {
                    *at_hand = IDLING;
                    let message = self.wait(commands)?;
                    self.obey(message, at_hand);
                }
            }
            if let Some(broken) = self.engine.broken() {
                return Some(broken.clone());
            }
        }
    }

    /// The next command, once there is one. Readers are answered meanwhile, and handles that an idle program
    /// drops are deleted. `None`: there will be no more.
    #[cold]
    fn wait(&mut self, commands: &Commands<D>) -> Option<Message<D::Op, D::Host>> {
        loop {
            let patience = if self.readers.is_empty() { IDLE } else { PATIENCE };
            if !self.readers.is_empty() && self.asked.elapsed() >= PATIENCE {
                self.answer_readers();
            }
            match commands.recv_timeout(patience) {
                Ok(message) => return Some(message),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) if !self.readers.is_empty() => continue,
                Err(RecvTimeoutError::Timeout) => {}
            }
            match self.home.take_or_sleep() {
                Some(dropped) => {
                    self.dropped.push_back(dropped);
                    self.delete_dropped();
                }
                None => select! {
                    recv(commands) -> message => return message.ok(),
                    recv(self.home.woken()) -> _ => {}
                },
            }
        }
    }

    /// Deletes the handles that went before the next command was sent.
    fn delete_dropped(&mut self) {
        let done = self.control.at();
        while let Some((_, ids)) = self.dropped.pop_front_if(|(sent, _)| *sent <= done) {
            self.delete(ids);
        }
    }

    fn delete(&mut self, dropped: Ids) {
        for id in dropped {
            if let Some(key) = self.tensors.remove(&id) {
                let _span = span(|| ("del", None));
                self.engine.del(key);
                self.record_del(id);
                if let Some(old) = self.replaced.remove(&id) {
                    self.record_del(old);
                }
            }
        }
    }

    /// Passes on the values that are there by now.
    fn answer_readers(&mut self) {
        while !self.readers.is_empty()
            && let Some(value) = self.engine.take_read()
            && let Some(reader) = self.readers.pop_front()
        {
            // Whoever asked may have gone meanwhile.
            let _ = reader.send(value);
        }
        self.asked = Instant::now();
    }

    fn obey(&mut self, message: Message<D::Op, D::Host>, at_hand: &mut &'static str) {
        if !self.dropped.is_empty() {
            self.delete_dropped();
        }
        self.control.next_command();
        *at_hand = message.command.kind();
        self.delete(message.deleted);
        let command = &message.command;
        let _span = span(|| (command.name(), command.op()));
        match message.command {
            Command::Put { id, host, leaf } => {
                let bytes = D::layout_of(&host).bytes();
                let key = if leaf { self.engine.put_leaf(host) } else { self.engine.put(host) };
                self.control.land(bytes);
                self.tensors.insert(id, key);
                self.record(|engine, used| Entry::Put {
                    tensor: id,
                    bytes,
                    cost: engine.last_run().cost,
                    used,
                });
                if leaf {
                    self.record(|_, used| Entry::Commit { tensor: id, used });
                }
            }
            // All but the op from where it is: it is large, and by far the most frequent.
            Command::Apply(Call { op, ref inputs, ref consumed, ref outputs, ref made }) => {
                self.apply(op, inputs, consumed, outputs, made);
            }
            Command::UpdateAll(calls) => self.update_all(calls),
            Command::Replace { target, consumed, value, made } => {
                let replaced = self.replace(target, consumed, value, made);
                self.report(replaced);
            }
            Command::Confirm => {
                self.engine.confirm();
                self.record_replaced();
            }
            // Whoever asked may have gone meanwhile; the answer is not missed then.
            Command::Get { id, reply } => {
                match self.key(id).and_then(|key| self.engine.get_later(key)) {
                    Ok(Reading::Later) => self.readers.push_back(reply),
                    Ok(Reading::Done(value)) => drop(reply.send(Ok(value))),
                    Err(error) => drop(reply.send(Err(error))),
                }
                self.record(|_, used| Entry::Get { tensor: id, used });
            }
            Command::Sync { reply } => {
                let done = self.engine.sync();
                // What failed on the way is why the rest did.
                let _ = reply.send(self.engine.take_failure().map_or(done, Err));
            }
            Command::Stats { reply } => {
                let _ = reply.send(Ok(self.engine.stats()));
            }
            Command::Change { change, reply } => {
                let _ = reply.send(self.change(change));
            }
            Command::Snapshot { reply } => {
                let _ = reply.send(Ok(self.engine.snapshot()));
            }
            Command::Describe { what, reply } => {
                let words = match what {
                    Description::Occupancy(width) => {
                        self.engine.arena().map_or_else(String::new, |a| a.occupancy(width))
                    }
                    Description::Map => self.engine.memory_map(),
                };
                let _ = reply.send(Ok(words));
            }
            Command::FinishRecording { reply } => {
                let lost = self.recording_lost.take();
                let finished = self.recording.take().map_or(Ok(()), Recording::finish);
                let _ = reply.send(lost.map_or(finished, Err));
            }
            Command::Drop { id } => {
                let result = self.key(id).and_then(|key| self.engine.drop_now(key));
                self.report(result);
                self.record(|_, used| Entry::Drop { tensor: id, used });
            }
            Command::Commit { id } => {
                let result = self.key(id).and_then(|key| self.engine.commit(key));
                self.report(result);
                self.record(|_, used| Entry::Commit { tensor: id, used });
            }
            Command::Label { id, label } => {
                let result = self.key(id).and_then(|key| self.engine.label(key, &label));
                self.report(result);
            }
            Command::Step => {
                self.engine.step();
                self.record_replaced();
                self.record(|engine, used| Entry::Step {
                    used,
                    peak: Some(engine.stats().peak_bytes),
                });
            }
        }
    }

    fn change(&mut self, change: Change) -> Result<(), Error> {
        match change {
            Change::Budget(bytes) => self.engine.set_budget(bytes),
            Change::EvictionThreshold(threshold) => self.engine.set_eviction_threshold(threshold),
            Change::Evictor(evictor) => self.engine.set_evictor(evictor),
            Change::Enabled(true) => {
                self.engine.enable();
                Ok(())
            }
            Change::Enabled(false) => self.engine.disable(),
        }
    }

    fn apply(
        &mut self,
        op: D::Op,
        inputs: &[u64],
        consumed: &Consumed,
        outputs: &Outputs,
        made: &Range<u64>,
    ) {
        let keys = match self.give(inputs, consumed, outputs) {
            Ok(keys) => keys,
            Err(error) => return self.engine.fail(error),
        };
        let name = self.recording.is_some().then(|| op.name().to_owned());
        match self.engine.issue(op, &keys, outputs) {
            Ok(new) => {
                for (id, &key) in made.clone().zip(&new) {
                    self.tensors.insert(id, key);
                }
                if let Some(op) = name {
                    let given = Given { inputs, keys: &keys, outputs };
                    self.record_apply(op, given, consumed, made.clone(), &new);
                }
            }
            Err(error) => {
                self.take_back(&keys, outputs, made.clone());
                self.engine.fail(error);
            }
        }
    }

    fn update_all(&mut self, calls: Vec<Call<D::Op>>) {
        let mut updates = Vec::with_capacity(calls.len());
        let mut rest = Vec::with_capacity(calls.len());
        let mut unknown = None;
        for Call { op, inputs, consumed, outputs, made } in calls {
            match self.give(&inputs, &consumed, &outputs) {
                Ok(keys) => {
                    let name = self.recording.is_some().then(|| op.name().to_owned());
                    rest.push((name, inputs, consumed, outputs.clone(), made));
                    updates.push(Issue { op, inputs: keys.to_vec(), outputs });
                }
                Err(error) => unknown = Some(error),
            }
        }
        let keys: Vec<_> = updates.iter().map(|update| update.inputs.clone()).collect();
        let done = match unknown {
            None => self.engine.issue_all(updates),
            Some(error) => Err(error),
        };
        match done {
            Ok(new) => {
                for (((name, inputs, consumed, outputs, made), keys), new) in
                    rest.into_iter().zip(keys).zip(new)
                {
                    self.tensors.extend(made.clone().zip(new.iter().copied()));
                    if let Some(op) = name {
                        let given = Given { inputs: &inputs, keys: &keys, outputs: &outputs };
                        self.record_apply(op, given, &consumed, made, &new);
                    }
                }
            }
            Err(error) => {
                for ((_, _, _, outputs, made), keys) in rest.into_iter().zip(&keys) {
                    self.take_back(keys, &outputs, made);
                }
                self.engine.fail(error);
            }
        }
    }

    fn replace(&mut self, target: u64, consumed: bool, value: u64, made: u64) -> Result<(), Error> {
        let (mut old, new) = (self.key(target)?, self.key(value)?);
        if consumed {
            self.tensors.remove(&target);
        } else {
            old = self.engine.alias(old)?;
        }
        let key = self.engine.replace(old, new);
        // What cannot be replaced stays.
        self.tensors.insert(made, *key.as_ref().unwrap_or(&old));
        let done = key.as_ref().is_ok_and(|key| *key != old);
        if done {
            self.record(|_, used| Entry::Commit { tensor: value, used });
        }
        if consumed && self.recording.is_some() {
            // The engine keeps the first value of a step, to take it back, and deletes those between.
            let first = self.replaced.remove(&target);
            if let Some(old) = first.or(done.then_some(target)) {
                self.replaced.insert(made, old);
            }
            if first.is_some() && done {
                self.record_del(target);
            }
        }
        self.record(|engine, used| {
            let bytes = engine.layout(new).map_or(0, |layout| layout.bytes());
            Entry::Apply {
                op: "replace".to_owned(),
                inputs: vec![if done { value } else { target }],
                outputs: vec![OutputEntry {
                    tensor: made,
                    bytes,
                    source: Source::View { input: 0 },
                }],
                workspace: 0,
                cost: 0.0,
                flops: Some(0.0),
                rematerializable: true,
                used,
            }
        });
        if consumed && !done {
            self.record_del(target);
        }
        key.map(drop)
    }

    /// What was replaced in this step is deleted for good.
    fn record_replaced(&mut self) {
        for (_, old) in std::mem::take(&mut self.replaced) {
            self.record_del(old);
        }
    }

    /// Keys of the inputs of an op, those of consumed ones given away.
    fn give(
        &mut self,
        inputs: &[u64],
        consumed: &Consumed,
        outputs: &Outputs,
    ) -> Result<SmallVec<[TensorKey; 4]>, Error> {
        let mut keys = SmallVec::<[TensorKey; 4]>::new();
        for &id in inputs {
            keys.push(self.key(id)?);
        }
        for input in 0..outputs.targets() {
            if consumed.contains(input) {
                self.tensors.remove(&inputs[input]);
            } else {
                // The caller still holds the old value: the engine consumes another handle to it.
                keys[input] = self.engine.alias(keys[input])?;
            }
        }
        Ok(keys)
    }

    /// An op was not even issued: what was to be updated goes on naming the old value.
    fn take_back(&mut self, keys: &[TensorKey], outputs: &Outputs, made: Range<u64>) {
        self.tensors.extend(made.zip(&keys[..outputs.targets()]).map(|(id, &key)| (id, key)));
    }

    fn record_apply(
        &mut self,
        op: String,
        given: Given<'_>,
        consumed: &Consumed,
        made: Range<u64>,
        new: &Keys,
    ) {
        let outputs = (made.zip(new).enumerate())
            .map(|(i, (tensor, &key))| {
                let layout = self.engine.layout(key).expect("just made");
                let source = match given.outputs {
                    Outputs::Views(looks) => Source::View { input: looks[i].input },
                    // It was skipped: the new handle looks at the old value.
                    Outputs::Updates { targets, .. } if i < *targets && given.keys[i] == key => {
                        Source::View { input: i }
                    }
                    Outputs::Updates { targets, .. } if i < *targets => {
                        Source::InPlace { input: i, consumed: consumed.contains(i) }
                    }
                    _ => Source::Fresh,
                };
                OutputEntry { tensor, bytes: layout.bytes(), source }
            })
            .collect();
        let LastRun { cost, flops, workspace, rematerializable } = self.engine.last_run();
        let (flops, inputs) = (Some(flops), given.inputs.to_vec());
        self.record(|_, used| Entry::Apply {
            op,
            inputs,
            outputs,
            workspace,
            cost,
            flops,
            rematerializable,
            used,
        });
    }

    fn record_del(&mut self, tensor: u64) {
        self.record(|_, used| Entry::Del { tensor, used });
    }

    /// Records a command, which is given the bytes in use. Costs nothing when nobody records.
    fn record(&mut self, entry: impl FnOnce(&Engine<D>, Option<u64>) -> Entry) {
        let Some(recording) = &mut self.recording else { return };
        let entry = entry(&self.engine, Some(self.engine.used_bytes()));
        let graph = self.engine.graph();
        let storage_of = |id| Some(graph.tensor(*self.tensors.get(&id)?)?.storage);
        if let Err(error) = recording.record(&entry, storage_of) {
            self.recording = None;
            self.engine.fail(error.clone());
            self.recording_lost = Some(error);
        }
    }

    fn key(&self, id: u64) -> Result<TensorKey, Error> {
        self.tensors.get(&id).copied().ok_or_else(|| HandleError::Unknown.into())
    }

    /// Keeps the failure of a command that nobody waits for.
    fn report<T>(&mut self, result: Result<T, Error>) {
        if let Err(error) = result {
            self.engine.fail(error);
        }
    }
}

/// Of a command. `None` where nobody wants to hear of it: a span takes its time even then.
#[inline]
fn span<'a>(of: impl FnOnce() -> (&'static str, Option<&'a str>)) -> Option<EnteredSpan> {
    enabled!(target: "remat", Level::TRACE).then(|| {
        let (kind, op) = of();
        trace_span!(target: "remat", "command", kind, op).entered()
    })
}

/// Who panicked.
const RECORDER: &str = "the recorder";
const IDLING: &str = "the worker";

/// What an op was given.
struct Given<'a> {
    inputs: &'a [u64],
    keys: &'a [TensorKey],
    outputs: &'a Outputs,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::CostModelKind;
    use crate::device::sim::Sim;
    use crate::engine::Settings;
    use crate::evict::PolicyKind;
    use crate::host::HostTensor;
    use crate::layout::{DType, Layout};
    use crate::ops::{Accumulate, Contiguous, Op};

    /// The handle made for the engine to consume stayed when the engine refused the update, and the refusal was told
    /// again and again.
    #[test]
    fn an_update_that_the_engine_refuses_leaves_no_handle() {
        let costs = CostModelKind::Flops.build();
        let (device, settings) = (Sim::cpu(1 << 20), Settings::default());
        let engine = Engine::new(device, settings, PolicyKind::DtrEq.build(0), costs).unwrap();
        let mut interpreter = Interpreter::new(engine, Arc::default(), Arc::default(), None);
        let host = Arc::new(HostTensor::zeros(DType::F32, [2, 3]).unwrap());
        let call = |op: Op, input, outputs, made| Call {
            op,
            inputs: [input].into_iter().collect(),
            consumed: Consumed::default(),
            outputs,
            made: made..made + 1,
        };
        let mut obey = |command| {
            interpreter.obey(Message { deleted: Ids::new(), command }, &mut "");
            let failure = interpreter.engine.take_failure();
            assert!(interpreter.engine.take_failure().is_none(), "it is told once");
            failure
        };
        let turned = Layout::contiguous(DType::F32, [2, 3]).permute(&[1, 0]).unwrap();
        let view = Outputs::view(0, turned);
        assert!(obey(Command::Put { id: 0, host, leaf: false }).is_none());
        assert!(obey(Command::Apply(call(Contiguous.into(), 0, view, 1))).is_none());
        // Another handle keeps the old value, and what is not contiguous is not updated.
        let update = |made| call(Accumulate.into(), 1, Outputs::updates(1), made);
        assert!(matches!(obey(Command::Apply(update(2))), Some(Error::Op(_))));
        assert!(matches!(obey(Command::UpdateAll(vec![update(3)])), Some(Error::Op(_))));
        assert_eq!(interpreter.engine.stats().tensors, 4, "two of them are names of the view");
        interpreter.delete((0..4).collect());
        assert_eq!(interpreter.engine.stats().tensors, 0);
    }
}
