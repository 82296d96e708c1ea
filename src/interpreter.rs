//! The worker thread: takes commands in order, and owns the engine.

use crate::device::{Device, Reading};
use crate::engine::{Engine, LastRun, TensorKey};
use crate::error::Error;
use crate::op::{Op as _, Output, Outputs};
use crate::runtime::{Command, Message};
use crate::trace::{self, Event, OutputEvent, Recorder, Source};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a device is asked for values that somebody waits for. It goes on with other work meanwhile: to wait
/// for one value would be to let the device run dry.
const PATIENCE: Duration = Duration::from_micros(20);

pub(crate) struct Interpreter<D: Device> {
    engine: Engine<D>,
    /// Tensor number -> its key, for each tensor with a handle whose deletion has not arrived.
    tensors: FxHashMap<u64, TensorKey>,
    /// Who waits for a value that the device has yet to give, in the order of the reads.
    readers: VecDeque<Sender<Result<D::Host, Error>>>,
    /// When the device was last asked for one.
    asked: Instant,
    recorder: Option<Box<dyn Recorder>>,
}

impl<D: Device> Interpreter<D> {
    pub fn new(
        engine: Engine<D>,
        mut recorder: Option<Box<dyn Recorder>>,
        cost_model: String,
    ) -> Self {
        if let Some(recorder) = &mut recorder {
            recorder.record(&Event::Begin { version: trace::VERSION, cost_model });
        }
        Self {
            engine,
            tensors: FxHashMap::default(),
            readers: VecDeque::new(),
            asked: Instant::now(),
            recorder,
        }
    }

    /// Executes commands until all senders are gone.
    pub fn run(mut self, commands: &Receiver<Message<D::Op, D::Host>>) {
        while let Some(message) = self.next(commands) {
            for id in message.deleted {
                if let Some(key) = self.tensors.remove(&id) {
                    self.engine.del(key);
                    self.record(|_| Event::Del { tensor: id });
                }
            }
            self.execute(message.command);
        }
        while !self.readers.is_empty() {
            std::thread::sleep(PATIENCE);
            self.answer_readers();
        }
        if let Some(Err(error)) = self.recorder.as_mut().map(|r| r.finish()) {
            tracing::error!(target: "remat", %error, "the recording is lost");
        }
    }

    /// The next command, once there is one. Readers are answered meanwhile. `None`: there will be no more.
    fn next(
        &mut self,
        commands: &Receiver<Message<D::Op, D::Host>>,
    ) -> Option<Message<D::Op, D::Host>> {
        loop {
            if self.readers.is_empty() {
                return commands.recv().ok();
            }
            if self.asked.elapsed() >= PATIENCE {
                self.answer_readers();
            }
            match commands.recv_timeout(PATIENCE) {
                Ok(message) => return Some(message),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
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

    fn execute(&mut self, command: Command<D::Op, D::Host>) {
        match command {
            Command::Put { id, host } => {
                let key = self.engine.put(host);
                self.tensors.insert(id, key);
                self.record(|engine| Event::Put {
                    tensor: id,
                    bytes: engine.layout(key).map_or(0, |layout| layout.bytes()),
                    cost: engine.last_run().cost,
                });
            }
            Command::Apply { op, inputs, consumed, outputs, made } => {
                self.apply(op, &inputs, consumed, &outputs, &made)
            }
            // Whoever asked may have gone meanwhile; the answer is not missed then.
            Command::Get { id, reply } => {
                match self.key(id).and_then(|key| self.engine.get_later(key)) {
                    Ok(Reading::Later) => self.readers.push_back(reply),
                    Ok(Reading::Done(value)) => drop(reply.send(Ok(value))),
                    Err(error) => drop(reply.send(Err(error))),
                }
                self.record(|_| Event::Get { tensor: id });
            }
            Command::Sync { reply } => {
                let done = self.engine.sync();
                // What failed on the way is why the rest did.
                let _ = reply.send(self.engine.take_failure().map_or(done, Err));
            }
            Command::Stats { reply } => {
                let _ = reply.send(Ok(self.engine.stats()));
            }
            Command::FinishRecording { reply } => {
                let result = self.recorder.take().map_or(Ok(()), |mut recorder| recorder.finish());
                let _ = reply.send(result.map_err(|e| Error::Recording(Arc::new(e))));
            }
            Command::Drop { id } => {
                let result = self.key(id).and_then(|key| self.engine.drop_now(key));
                self.report(result);
                self.record(|_| Event::Drop { tensor: id });
            }
            Command::Commit { id } => {
                let result = self.key(id).and_then(|key| self.engine.commit(key));
                self.report(result);
                self.record(|_| Event::Commit { tensor: id });
            }
            Command::Label { id, label } => {
                let result = self.key(id).and_then(|key| self.engine.label(key, &label));
                self.report(result);
            }
            Command::Step => {
                self.engine.step();
                self.record(|_| Event::Step);
            }
        }
    }

    fn apply(&mut self, op: D::Op, inputs: &[u64], consumed: u64, outputs: &Outputs, made: &[u64]) {
        let mut keys = SmallVec::<[TensorKey; 4]>::new();
        for &id in inputs {
            match self.key(id) {
                Ok(key) => keys.push(key),
                Err(error) => return self.engine.fail(error),
            }
        }
        for output in outputs {
            if let Output::InPlace { input } = *output {
                if is_consumed(consumed, input) {
                    self.tensors.remove(&inputs[input]);
                } else {
                    // The caller still holds the old value: the engine consumes another handle to it.
                    keys[input] = self.engine.alias(keys[input]).expect("the key was just found");
                }
            }
        }
        let name = self.recorder.is_some().then(|| op.name().to_owned());
        match self.engine.issue(op, &keys, outputs) {
            Ok(keys) => {
                self.tensors.extend(made.iter().copied().zip(keys));
                if let Some(op) = name {
                    self.record_apply(op, inputs, consumed, outputs, made);
                }
            }
            Err(error) => self.engine.fail(error),
        }
    }

    fn record_apply(
        &mut self,
        op: String,
        inputs: &[u64],
        consumed: u64,
        outputs: &Outputs,
        made: &[u64],
    ) {
        let outputs = outputs
            .iter()
            .zip(made)
            .map(|(output, &tensor)| {
                let layout = self.engine.layout(self.tensors[&tensor]).expect("just made");
                let source = match *output {
                    Output::Fresh(_) => Source::Fresh,
                    Output::View { input, .. } => Source::View { input },
                    Output::InPlace { input } => {
                        Source::InPlace { input, consumed: is_consumed(consumed, input) }
                    }
                };
                OutputEvent { tensor, bytes: layout.bytes(), source }
            })
            .collect();
        let LastRun { cost, flops, workspace, rematerializable } = self.engine.last_run();
        let flops = Some(flops);
        let inputs = inputs.to_vec();
        self.record(|_| Event::Apply {
            op,
            inputs,
            outputs,
            workspace,
            cost,
            flops,
            rematerializable,
        });
    }

    /// Costs nothing when nobody records.
    fn record(&mut self, event: impl FnOnce(&Engine<D>) -> Event) {
        if let Some(recorder) = &mut self.recorder {
            recorder.record(&event(&self.engine));
        }
    }

    fn key(&self, id: u64) -> Result<TensorKey, Error> {
        self.tensors.get(&id).copied().ok_or(Error::UnknownTensor)
    }

    /// Keeps the failure of a command that nobody waits for.
    fn report<T>(&mut self, result: Result<T, Error>) {
        if let Err(error) = result {
            self.engine.fail(error);
        }
    }
}

/// Bit `input` of the mask; inputs beyond it are not consumed.
const fn is_consumed(mask: u64, input: usize) -> bool {
    input < u64::BITS as usize && mask >> input & 1 == 1
}
