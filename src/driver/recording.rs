//! Recording what a driver does: each command and change of settings, and before it what the engine told of memory
//! meanwhile.

use super::Given;
use super::settings::name_of;
use super::{Driver, Entry, Recorder, VERSION};
use crate::command::{
    Apply, Command, Consumed, RecordedCommand, RecordedOp, RecordedValue, TensorId, Window,
};
use crate::device::Device;
use crate::engine::{Engine, Keys, LastRun, Listener};
use crate::error::{Error, RuntimeError};
use crate::event::{Cause, Event};
use crate::evict::View;
use crate::graph::StorageKey;
use crate::guard::caught;
use crate::layout::Layout;
use crate::op::{Look, Operation, Outputs};
use crate::sync::channel::{Receiver, Sender};
use slotmap::SecondaryMap;
use std::sync::Arc;

impl<D: Device> Driver<D> {
    /// Records all that is executed from now on, by commands that are admitted as far ahead as `window` says. For a
    /// driver whose numbers mean nothing yet: a recording that speaks of tensors that it does not make cannot be read.
    /// A recording before this one ends; should that fail, it is kept as a failure.
    pub fn record_to(&mut self, recorder: Box<dyn Recorder>, window: Window) {
        let ended = self.finish_recording();
        self.report(ended);
        let known = self.knowledge();
        let engine = &self.engine;
        let begin = Entry::Begin {
            version: VERSION,
            cost_model: engine.cost_model().to_owned(),
            budget: Some(engine.budget()),
            eviction_threshold: engine.settings().eviction_threshold,
            policy: name_of(engine.evictor()),
            window,
            known,
        };
        self.recording = Some(Recording::new(recorder, &mut self.engine));
        self.record_entry(|_| begin);
    }

    /// Ends the recording and writes out the rest of it.
    ///
    /// # Errors
    /// If it could not be written, or the recorder panicked.
    pub fn finish_recording(&mut self) -> Result<(), Error> {
        let lost = self.recording_lost.take();
        let finished = self.recording.take().map_or(Ok(()), Recording::finish);
        lost.map_or(finished, Err)
    }

    /// The caller waits for an answer that is no command, and nobody saw beyond that: recorded as [`Command::Sync`].
    pub fn record_wait(&mut self) {
        self.record(|| Command::Sync);
    }

    /// What a recording says of an op before it ran; `None` if nobody records.
    #[inline]
    pub(super) fn speaks_of(&self, op: &D::Op) -> Option<RecordedOp> {
        self.is_written().then(|| RecordedOp::before(op))
    }

    #[inline]
    pub(super) fn record_put(&mut self, tensor: TensorId, layout: Layout, leaf: bool) {
        if self.is_written() {
            let host =
                RecordedValue { layout, cost: Some(self.engine.last_run().cost), reruns: None };
            self.record_command(Command::Put { tensor, host: Arc::new(host), leaf });
        }
    }

    /// A replacement that was not made: the new number stands for the old value.
    #[inline]
    pub(super) fn record_no_replacement(
        &mut self,
        target: TensorId,
        consumed: bool,
        made: TensorId,
    ) {
        if self.is_written() {
            self.record_views("replace".into(), &[target], made);
            if consumed {
                self.record_command(Command::Del(target));
            }
        }
    }

    /// Records an op that was issued, with what it was given and what it made.
    pub(super) fn record_call(&mut self, call: Apply<RecordedOp>, given: &Given, new: &Keys) {
        match is_skipped(&call, given, new) {
            true => self.record_skipped(call),
            false => self.record_command(Command::Apply(call)),
        }
    }

    /// Records updates that were issued as one. If one was skipped, each is recorded by itself.
    pub(super) fn record_calls(&mut self, calls: Vec<(Apply<RecordedOp>, Given, Keys)>) {
        if calls.iter().any(|(call, given, new)| is_skipped(call, given, new)) {
            calls.into_iter().for_each(|(call, given, new)| self.record_call(call, &given, &new));
        } else {
            let calls = calls.into_iter().map(|(call, ..)| call).collect();
            self.record_command(Command::UpdateAll(calls));
        }
    }

    /// Records an update that was not made: views of what it was to update, and what it was to make besides, which is
    /// lost.
    pub(super) fn record_skipped(&mut self, mut call: Apply<RecordedOp>) {
        let targets = call.outputs.targets().min(call.inputs.len());
        if targets == 0 {
            return;
        }
        self.record_views(Arc::clone(&call.op.name), &call.inputs[..targets], call.made);
        call.ended().for_each(|target| self.record_command(Command::Del(target)));
        if let Outputs::Updates { fresh, .. } = std::mem::take(&mut call.outputs)
            && !fresh.is_empty()
        {
            call.inputs.clear();
            call.consumed = Consumed::default();
            call.outputs = Outputs::Fresh(fresh);
            call.made = call.made.plus(targets);
            self.record_command(Command::Apply(call));
        }
    }

    /// New numbers for what is there.
    fn record_views(&mut self, name: Arc<str>, old: &[TensorId], made: TensorId) {
        let layout = |tensor| self.key(tensor).and_then(|key| self.engine.layout(key));
        let looks = made.and_next(old.len()).map(layout).enumerate();
        let looks = looks.filter_map(|(input, layout)| Some(Look { input, layout: layout.ok()? }));
        let looks = looks.collect();
        let op = RecordedOp { flops: Some(0.0), ..RecordedOp::new(name, 0.0) };
        self.record_command(Command::Apply(Apply::new(op, old, Outputs::Views(looks), made)));
    }

    /// Records a command that was executed. It is made only if somebody records: to drop one takes its time, too.
    #[inline]
    pub(super) fn record(&mut self, command: impl FnOnce() -> RecordedCommand) {
        if self.is_written() {
            self.record_command(command());
        }
    }

    fn record_command(&mut self, command: RecordedCommand) {
        if let Some(writing) = &mut self.writing {
            writing.push(&command);
        }
        self.record_entry(|engine| {
            let is_end = matches!(command, Command::Step);
            let peak = is_end.then(|| engine.stats().peak_bytes);
            Entry::Did { command, used: Some(engine.used_bytes()), peak }
        });
    }

    pub(super) fn record_entry(&mut self, entry: impl FnOnce(&Engine<D>) -> Entry) {
        let Some(recording) = &mut self.recording else { return };
        let entry = entry(&self.engine);
        let graph = self.engine.graph();
        let storage_of = |tensor| Some(graph.tensor(self.tensors.get(tensor)?)?.storage);
        if let Err(error) = recording.record(&entry, storage_of) {
            self.recording = None;
            self.engine.fail(error.clone());
            self.recording_lost = Some(error);
        }
    }
}

/// Whether the new numbers of what an op was to update name the old values.
fn is_skipped(call: &Apply<RecordedOp>, given: &Given, new: &Keys) -> bool {
    let targets = call.outputs.targets().min(new.len());
    targets > 0 && given[..targets] == new[..targets]
}

impl RecordedOp {
    /// What is known of an op before it runs.
    fn before(op: &impl Operation) -> Self {
        Self {
            attributes: op.attributes().map(Into::into),
            rematerializable: op.rematerializable(),
            ..Self::new(op.name(), 0.0)
        }
    }

    /// With what its run was like.
    pub(super) fn after(self, run: LastRun) -> Self {
        let LastRun { cost, flops, workspace, rematerializable } = run;
        Self { cost, flops: Some(flops), workspace, rematerializable, ..self }
    }
}

pub(super) struct Recording {
    recorder: Box<dyn Recorder>,
    told: Receiver<Told>,
    /// Number under which a storage was first known, for each that has one.
    numbers: SecondaryMap<StorageKey, TensorId>,
}

impl Recording {
    /// Listens from now on, until it is finished.
    pub fn new<D: Device>(recorder: Box<dyn Recorder>, engine: &mut Engine<D>) -> Self {
        let (to, told) = crate::sync::channel::unbounded();
        engine.listen(Box::new(Ear { to, run_cost: 0.0 }));
        Self { recorder, told, numbers: SecondaryMap::new() }
    }

    /// Records a command that was executed. `storage_of` knows the tensors that it made.
    pub fn record(
        &mut self,
        entry: &Entry,
        storage_of: impl Fn(TensorId) -> Option<StorageKey>,
    ) -> Result<(), Error> {
        caught(recorder, || {
            let new = self.record_told();
            self.recorder.record(entry);
            let mut number = |tensor| {
                // One that looks at a storage, or is its updated value, is not the first.
                if let Some(key) = storage_of(tensor).filter(|&key| !self.numbers.contains_key(key))
                {
                    self.numbers.insert(key, tensor);
                }
            };
            if let Entry::Did { command, .. } = entry {
                command.makes(&mut number);
            }
            new.into_iter().for_each(|told| _ = self.record_one(told));
        })
    }

    /// Records what was told of storages that have numbers. Returns the rest, which are about what the command at
    /// hand makes.
    fn record_told(&mut self) -> Vec<Told> {
        let mut new = Vec::new();
        while let Ok(told) = self.told.try_recv() {
            if !self.record_one(told) {
                new.push(told);
            }
        }
        new
    }

    /// Whether the storage has a number.
    fn record_one(&mut self, told: Told) -> bool {
        let Some(&tensor) = self.numbers.get(told.storage) else { return false };
        let Told { bytes, used, .. } = told;
        self.recorder.record(&match told.what {
            What::Evicted(cause) => Entry::Evict { tensor, bytes, cause, used },
            What::Regenerated(cost) => Entry::Regenerate { tensor, bytes, cost, used },
        });
        true
    }

    /// Writes out all of it.
    pub fn finish(mut self) -> Result<(), Error> {
        let finished = caught(recorder, || {
            self.record_told();
            self.recorder.finish()
        });
        finished?.map_err(|error| RuntimeError::Recording(error).into())
    }
}

fn recorder() -> String {
    "the recorder".to_owned()
}

/// What happened to a storage.
#[derive(Clone, Copy, Debug)]
struct Told {
    storage: StorageKey,
    bytes: u64,
    /// Bytes in use then.
    used: u64,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Evicted(Cause),
    /// The cost, with the first storage that a run brought back.
    Regenerated(f64),
}

/// Passes on what the engine tells.
#[derive(Debug)]
struct Ear {
    to: Sender<Told>,
    /// Of the last run, until it is told.
    run_cost: f64,
}

impl Listener for Ear {
    fn on(&mut self, event: &Event, view: View<'_>) {
        let (storage, bytes, what) = match *event {
            Event::DidRun { cost, .. } => {
                self.run_cost = cost;
                return;
            }
            Event::DidEvict { storage, bytes, cause } => (storage, bytes, What::Evicted(cause)),
            Event::DidRegenerate { storage, bytes, .. } => {
                let cost = std::mem::take(&mut self.run_cost);
                (storage, bytes, What::Regenerated(cost))
            }
            _ => return,
        };
        // Once the recording is finished, nobody is there.
        let _ = self.to.send(Told { storage, bytes, used: view.used_bytes(), what });
    }
}
