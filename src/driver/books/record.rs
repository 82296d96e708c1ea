//! Writes executed commands to a recorder, and to the turn that is copied for a learner.

use super::{Books, Given};
use crate::command::{
    Apply, Command, Consumed, RecordedCommand, RecordedOp, RecordedValue, TensorId,
};
use crate::device::Device;
use crate::driver::Entry;
use crate::engine::{Engine, Keys, LastRun};
use crate::layout::Layout;
use crate::op::{Look, Operation, Outputs};
use std::sync::Arc;

impl<D: Device> Books<D> {
    /// Whether executed commands are copied, for a recorder or for a learner.
    #[inline(always)]
    pub const fn is_written(&self) -> bool {
        self.recording.is_some() || self.writing.is_some()
    }

    /// The recorded form of an op before its run; `None` if no command is recorded or copied for a
    /// learner.
    #[inline]
    pub fn speaks_of(&self, op: &D::Op) -> Option<RecordedOp> {
        self.is_written().then(|| RecordedOp::before(op))
    }

    #[inline]
    pub fn record_put(&mut self, tensor: TensorId, layout: Layout, leaf: bool) {
        if self.is_written() {
            let host =
                RecordedValue { layout, cost: Some(self.engine.last_run().cost), reruns: None };
            self.record_command(Command::Put { tensor, host: Arc::new(host), leaf });
        }
    }

    /// Records a replacement that was not made, as a view that gives the new number to the old
    /// value.
    #[inline]
    pub fn record_no_replacement(&mut self, target: TensorId, consumed: bool, made: TensorId) {
        if self.is_written() {
            self.record_views("replace".into(), &[target], made);
            if consumed {
                self.record_command(Command::Del(target));
            }
        }
    }

    /// Records an issued op, given its inputs and outputs.
    pub fn record_call(&mut self, call: Apply<RecordedOp>, given: &Given, new: &Keys) {
        match is_skipped(&call, given, new) {
            true => self.record_skipped(call),
            false => self.record_command(Command::Apply(call)),
        }
    }

    /// Records updates issued as a single command. If an update was skipped, each update is
    /// recorded as a command of its own.
    pub fn record_calls(&mut self, calls: Vec<(Apply<RecordedOp>, Given, Keys)>) {
        if calls.iter().any(|(call, given, new)| is_skipped(call, given, new)) {
            calls.into_iter().for_each(|(call, given, new)| self.record_call(call, &given, &new));
        } else {
            let calls = calls.into_iter().map(|(call, ..)| call).collect();
            self.record_command(Command::UpdateAll(calls));
        }
    }

    /// Records a skipped update. The outputs that replace targets become views of the old values.
    /// The fresh outputs are lost, and are recorded as outputs of an op without inputs.
    pub fn record_skipped(&mut self, mut call: Apply<RecordedOp>) {
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

    /// Records views that give new numbers to existing values.
    fn record_views(&mut self, name: Arc<str>, old: &[TensorId], made: TensorId) {
        let layout = |tensor| self.key(tensor).and_then(|key| self.engine.layout(key));
        let looks = made.and_next(old.len()).map(layout).enumerate();
        let looks = looks.filter_map(|(input, layout)| Some(Look { input, layout: layout.ok()? }));
        let looks = looks.collect();
        let op = RecordedOp { flops: Some(0.0), ..RecordedOp::new(name, 0.0) };
        self.record_command(Command::Apply(Apply::new(op, old, Outputs::Views(looks), made)));
    }

    /// Records a command that was executed. The closure that makes the recorded command runs only
    /// if commands are recorded or copied for a learner, because it takes time.
    #[inline]
    pub fn record(&mut self, command: impl FnOnce() -> RecordedCommand) {
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

    pub fn record_entry(&mut self, entry: impl FnOnce(&Engine<D>) -> Entry) {
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

/// Whether an update was skipped: its new numbers name the old values.
fn is_skipped(call: &Apply<RecordedOp>, given: &Given, new: &Keys) -> bool {
    let targets = call.outputs.targets().min(new.len());
    targets > 0 && given[..targets] == new[..targets]
}

impl RecordedOp {
    /// The recorded form of an op, with the fields known before the op runs.
    fn before(op: &impl Operation) -> Self {
        Self {
            attributes: op.attributes().map(Into::into),
            rematerializable: op.rematerializable(),
            ..Self::new(op.name(), 0.0)
        }
    }

    /// Adds the measurements of the op's run.
    pub(in crate::driver) fn after(self, run: LastRun) -> Self {
        let LastRun { cost, flops, workspace, rematerializable } = run;
        Self { cost, flops: Some(flops), workspace, rematerializable, ..self }
    }
}
