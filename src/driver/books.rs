//! Execution of commands on the engine, and the driver's own tables. The tables map tensor numbers
//! to the engine's tensors, and to values of a known step. The recording of executed commands is
//! also here.

mod foresee;
mod record;

use super::numbers::Numbers;
use super::recording::Recording;
use super::turn::Writing;
use crate::command::{Apply, Command, Consumed, RecordedCommand, RecordedOp, TensorId};
use crate::device::Device;
use crate::engine::{Engine, Issue};
use crate::error::{Error, HandleError};
use crate::graph::{StorageKey, TensorKey};
use crate::hint::cold;
use crate::layout::Layout;
use crate::op::Outputs;
use smallvec::SmallVec;

/// An engine, with the tables for commands.
pub(super) struct Books<D: Device> {
    pub engine: Engine<D>,
    /// The engine's key of each tensor, by tensor number.
    pub tensors: Numbers,
    pub recording: Option<Recording>,
    /// The turn whose commands are being copied for a learner.
    pub writing: Option<Box<Writing>>,
    /// The panic of the recorder as an error, to be returned when the recording is finished.
    pub recording_lost: Option<Error>,
    /// Cost of the current command, in units of the cost model. The cost of recomputing the
    /// command's inputs is not included.
    pub last_cost: f64,
    /// The error of the current command. The recognizer takes the error: its predictions assume
    /// that commands succeed.
    pub failed: Option<Error>,
    /// Outputs of the current command, to be bound to values of the known step; empty if no step is
    /// foreseen.
    to_bind: SmallVec<[TensorId; 2]>,
}

/// Keys of an op's inputs. Consumed inputs are removed from the table.
pub(super) type Given = SmallVec<[TensorKey; 8]>;

impl<D: Device> Books<D> {
    pub fn new(engine: Engine<D>) -> Self {
        Self {
            engine,
            tensors: Numbers::default(),
            recording: None,
            writing: None,
            recording_lost: None,
            last_cost: 0.0,
            failed: None,
            to_bind: SmallVec::new(),
        }
    }

    #[inline]
    pub fn key(&self, tensor: TensorId) -> Result<TensorKey, Error> {
        self.tensors.get(tensor).ok_or_else(|| HandleError::Unknown.into())
    }

    /// The storage of a tensor.
    pub fn storage_of(&self, tensor: TensorId) -> Option<StorageKey> {
        let key = self.tensors.get(tensor)?;
        Some(self.engine.graph().tensor(key)?.storage)
    }

    pub fn layout_of(&self, tensor: TensorId) -> Option<Layout> {
        Some(self.engine.graph().tensor(self.tensors.get(tensor)?)?.layout)
    }

    /// Bytes of a tensor's storage; 0 for a number that names no tensor.
    pub fn bytes_of(&self, tensor: TensorId) -> u64 {
        let storage = self.storage_of(tensor);
        storage.map_or(0, |storage| self.engine.graph().storage(storage).bytes)
    }

    /// Executes a command by reference. Only the op is copied.
    #[inline(always)]
    pub fn run_shared(&mut self, command: &Command<D::Op, D::Host>)
    where
        D::Op: Clone,
    {
        match command {
            Command::Apply(Apply { op, inputs, consumed, outputs, made }) => {
                let _ = self.apply(op.clone(), inputs, consumed, outputs, *made);
            }
            Command::Del(tensor) => self.forget(*tensor),
            other => self.run(other.clone()),
        }
    }

    /// Executes a command. A value read by the command is dropped.
    ///
    /// Not inlined, so that the machine code for frequent commands stays compact.
    #[inline(never)]
    pub fn run(&mut self, command: Command<D::Op, D::Host>) {
        match command {
            Command::Apply(Apply { op, ref inputs, ref consumed, ref outputs, made }) => {
                let _ = self.apply(op, inputs, consumed, outputs, made);
            }
            Command::Del(tensor) => self.forget(tensor),
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
                // Wait for the read here, because no caller would take the value of a promised
                // read.
                let read = self.about(tensor, Command::Get(tensor), Engine::get);
                self.report(read);
            }
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
                let with = |engine: &mut Engine<D>, key| engine.label(key, &label);
                let labelled = self.about(tensor, command, with);
                self.report(labelled);
            }
            Command::Step => {
                self.engine.step();
                self.record(|| Command::Step);
            }
            Command::Sync => {
                let done = self.engine.sync();
                self.report(done);
                self.record(|| Command::Sync);
            }
        }
    }

    #[inline]
    pub fn forget(&mut self, tensor: TensorId) {
        if let Some(key) = self.tensors.remove(tensor) {
            self.engine.del(key);
            self.record(|| Command::Del(tensor));
        }
    }

    /// Calls `with` on a tensor, and records `command`. Records nothing if the number names no
    /// tensor.
    pub fn about<T>(
        &mut self,
        tensor: TensorId,
        command: RecordedCommand,
        with: impl FnOnce(&mut Engine<D>, TensorKey) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let key = self.key(tensor)?;
        let done = with(&mut self.engine, key);
        if let Err(error) = &done {
            self.failed = Some(error.clone());
        }
        self.record(|| command);
        done
    }

    /// Executes an op. Returns the failure if the op did not run.
    #[inline]
    pub fn apply(
        &mut self,
        op: D::Op,
        inputs: &[TensorId],
        consumed: &Consumed,
        outputs: &Outputs,
        made: TensorId,
    ) -> Option<Error> {
        let keys = match self.give(inputs, consumed, outputs) {
            Ok(keys) => keys,
            Err(error) => {
                let error = self.engine.skip(&op, cold(error));
                self.engine.fail(error.clone());
                return Some(error);
            }
        };
        let spoken = self.speaks_of(&op).map(|op| {
            std::hint::cold_path();
            let (inputs, consumed, outputs) = (inputs.into(), consumed.clone(), outputs.clone());
            Apply { op, inputs, consumed, outputs, made }
        });
        match self.engine.issue(op, &keys, outputs) {
            Ok((new, failed)) => {
                self.last_cost = self.engine.last_run().cost;
                for (&key, tensor) in new.iter().zip(made.and_next(new.len())) {
                    self.tensors.insert(tensor, key);
                }
                if let Some(mut call) = spoken {
                    std::hint::cold_path();
                    call.op = call.op.after(self.engine.last_run());
                    self.record_call(call, &keys, &new);
                }
                if let Some(error) = &failed {
                    std::hint::cold_path();
                    self.note_failure(error);
                }
                failed
            }
            Err(error) => {
                self.did_not_apply(&error, spoken, &keys, outputs, made);
                Some(error)
            }
        }
    }

    /// Notes why an op did not run. A postponed op has not failed: the engine keeps no failure.
    #[cold]
    fn note_failure(&mut self, error: &Error) {
        let is_kept = self.engine.last_failure().is_some_and(|last| last.key() == error.key());
        if is_kept {
            self.failed = Some(error.clone());
        }
    }

    /// Handles an op that was refused or failed.
    #[cold]
    #[inline(never)]
    fn did_not_apply(
        &mut self,
        error: &Error,
        spoken: Option<Apply<RecordedOp>>,
        keys: &[TensorKey],
        outputs: &Outputs,
        made: TensorId,
    ) {
        spoken.into_iter().for_each(|call| self.record_skipped(call));
        self.fail(error);
        self.take_back(keys, outputs, made, error);
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
                Err(error) => unknown = Some(self.engine.skip(&op, error)),
            }
        }
        let done = match unknown {
            None => self.engine.issue_all(updates),
            Some(error) => {
                updates.iter().for_each(|issue| _ = self.engine.skip(&issue.op, error.clone()));
                Err(error)
            }
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
                self.fail(&error);
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
            self.tensors.remove(target);
        } else {
            old = self.engine.alias(old)?;
        }
        let key = match self.engine.replace(old, new) {
            Ok(key) => key,
            Err(error) => {
                // A target that cannot be replaced keeps its old value.
                self.fail(&error);
                self.engine.keep_old(&[old], &error);
                old
            }
        };
        self.tensors.insert(made, key);
        if key == old {
            self.record_no_replacement(target, consumed, made);
        } else {
            self.record(|| Command::Replace { target, consumed, value, made });
        }
        Ok(())
    }

    /// Collects the engine's keys of an op's inputs. Consumed inputs leave the table. If an update
    /// does not consume its target, the update gets an alias of the target instead.
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
                // The caller still holds the old value: the engine consumes a second handle to it.
                keys[input] = self.engine.alias(keys[input])?;
            }
        }
        Ok(keys)
    }

    /// Undoes the preparation of an op that was not issued: each new number of an update target
    /// names the target's old value.
    fn take_back(&mut self, keys: &[TensorKey], outputs: &Outputs, made: TensorId, why: &Error) {
        let targets = outputs.targets().min(keys.len());
        self.engine.keep_old(&keys[..targets], why);
        self.tensors.extend(made.and_next(targets).zip(keys.iter().copied()));
    }

    /// Keeps the failure of the current command in the engine and in `failed`.
    fn fail(&mut self, error: &Error) {
        self.engine.fail(error.clone());
        self.failed = Some(error.clone());
    }

    /// Keeps the error of a result in the engine as a failure. For commands whose caller gets no
    /// result.
    pub fn report<T>(&mut self, result: Result<T, Error>) {
        if let Err(error) = result {
            self.engine.fail(error);
        }
    }
}
