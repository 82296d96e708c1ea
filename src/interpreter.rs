//! The worker thread: receives commands and questions in order, and drives the engine. Runtimes and
//! tensors send commands and questions (`Shared::send` in `runtime.rs`); `runtime/builder.rs`
//! starts the thread.

mod control;
mod message;

pub(crate) use control::Control;
pub(crate) use message::{Description, Message, Question, What};

use crate::command::{Ahead, Command, Ids, TensorId, Waiting, Window};
use crate::device::{Device, Reading};
use crate::driver::{Driver, LearnOptions, Learners, Recorder};
use crate::engine::Engine;
use crate::error::Error;
use crate::guard::words;
use crate::ops::Home;
use crate::sync::channel::{Receiver, RecvTimeoutError, Sender, TryRecvError, select};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::span::EnteredSpan;
use tracing::{Level, enabled, trace_span};

/// Interval between two requests to a device for values that callers wait for. Between the
/// requests, the worker sends the device other work, because a blocking wait would leave the device
/// idle.
const PATIENCE: Duration = Duration::from_micros(20);

/// Time without a command after which the program counts as idle. While the program is idle, the
/// worker itself collects dropped handles. At other times, the next command brings them to the
/// worker.
const IDLE: Duration = Duration::from_millis(10);

type Messages<D> = Receiver<Message<<D as Device>::Op, <D as Device>::Host>>;

pub(crate) struct Interpreter<D: Device> {
    driver: Driver<D>,
    /// Factory of learners, used when the policy changes.
    learners: Learners,
    control: Arc<Control>,
    /// Dropped handles that no message has brought to the worker yet.
    home: Arc<Home>,
    /// Messages that wait until the window of the first message is complete. A window is complete
    /// when all later messages that the evictor may read have arrived. The queue is empty without a
    /// window.
    waiting: VecDeque<Message<D::Op, D::Host>>,
    /// Counter of the messages in the window; `None` without a window.
    ahead: Option<Ahead>,
    /// Callers that wait for values from the device, in the order of the reads.
    readers: VecDeque<Sender<Result<D::Host, Error>>>,
    /// Time of the last request to the device for a value.
    asked: Instant,
    /// Handles dropped while the worker was idle, each with the number of messages sent before the
    /// drop. The worker deletes a handle after its number of messages, so that the time of
    /// collection has no effect.
    dropped: VecDeque<(u64, Ids)>,
}

impl<D: Device> Interpreter<D> {
    pub fn new(
        mut engine: Engine<D>,
        window: Window,
        interrupt: Option<Box<dyn Fn() -> bool + Send>>,
        control: Arc<Control>,
        home: Arc<Home>,
        recorder: Option<Box<dyn Recorder>>,
        learning: LearnOptions,
    ) -> Self {
        let cancel = Arc::clone(&control);
        match interrupt {
            None => engine.interrupt_when(move || cancel.is_cancelled()),
            Some(wanted) => engine.interrupt_when(move || cancel.is_cancelled() || wanted()),
        }
        let mut driver = Driver::new(engine);
        let learners = learning.begin(&mut driver);
        if let Some(recorder) = recorder {
            driver.record_to(recorder, window);
        }
        Self {
            driver,
            learners,
            control,
            home,
            waiting: VecDeque::new(),
            ahead: (window.commands > 0).then(|| Ahead::new(window)),
            readers: VecDeque::new(),
            asked: Instant::now(),
            dropped: VecDeque::new(),
        }
    }

    /// Executes commands until all senders are dropped or the engine is broken. Returns the reason
    /// if the engine is broken.
    pub fn run(mut self, messages: &Messages<D>) -> Option<String> {
        let mut at_hand = IDLING;
        match catch_unwind(AssertUnwindSafe(|| self.obey_all(messages, &mut at_hand))) {
            Ok(None) => {}
            Ok(Some(broken)) => return Some(broken.to_string()),
            Err(panic) => return Some(format!("{at_hand} panicked: {}", words(&*panic))),
        }
        while !self.readers.is_empty() {
            crate::sync::thread::sleep(PATIENCE);
            self.answer_readers();
        }
        if let Err(error) = self.driver.finish_recording() {
            tracing::error!(target: "remat", %error, "the recording is lost");
        }
        None
    }

    /// Executes messages until no sender is left, or until the engine is broken. Returns the error
    /// of a broken engine. `at_hand` describes the current activity.
    fn obey_all(&mut self, messages: &Messages<D>, at_hand: &mut &'static str) -> Option<Error> {
        loop {
            if !self.readers.is_empty() && self.asked.elapsed() >= PATIENCE {
                self.answer_readers();
            }
            if self.ahead.is_some() {
                *at_hand = IDLING;
                let message = self.foresee(messages)?;
                self.obey(message, at_hand);
            } else {
                // Try without waiting first: usually a message has already arrived, and the clock
                // need not be read.
                match messages.try_recv() {
                    Ok(message) => self.obey(message, at_hand),
                    Err(_) => {
                        *at_hand = IDLING;
                        let message = self.wait(messages)?;
                        self.obey(message, at_hand);
                    }
                }
            }
            if let Some(broken) = self.driver.engine().broken() {
                return Some(broken.clone());
            }
        }
    }

    /// Takes the next message, once its window is complete and admitted. `None` if no sender is
    /// left.
    fn foresee(&mut self, messages: &Messages<D>) -> Option<Message<D::Op, D::Host>> {
        while !self.ahead.as_ref()?.is_complete() {
            let next = match messages.try_recv() {
                Ok(message) => Some(message),
                Err(TryRecvError::Disconnected) => None,
                Err(TryRecvError::Empty) => self.wait(messages),
            };
            let Some(message) = next else { break };
            self.admit(&message);
            self.waiting.push_back(message);
        }
        let message = self.waiting.pop_front()?;
        self.ahead.as_mut()?.pop(waiting::<D>(&message.what));
        Some(message)
    }

    fn admit(&mut self, message: &Message<D::Op, D::Host>) {
        for &tensor in &message.deleted {
            self.driver.admit(&Command::Del(tensor));
        }
        match &message.what {
            What::Do(command) => self.driver.admit(command),
            What::Ask(Question::Get { tensor, .. }) => self.driver.admit(&Command::Get(*tensor)),
            What::Ask(_) => {}
        }
        if let Some(ahead) = &mut self.ahead {
            ahead.push(waiting::<D>(&message.what));
        }
    }

    /// Waits for the next message. While waiting, the worker sends values to readers, and deletes
    /// handles that an idle program drops. `None` if no sender is left.
    #[cold]
    fn wait(&mut self, messages: &Messages<D>) -> Option<Message<D::Op, D::Host>> {
        loop {
            let patience = if self.readers.is_empty() { IDLE } else { PATIENCE };
            if !self.readers.is_empty() && self.asked.elapsed() >= PATIENCE {
                self.answer_readers();
            }
            match messages.recv_timeout(patience) {
                Ok(message) => return Some(message),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) if !self.readers.is_empty() => continue,
                // With a window, do not delete dropped handles here: their position among the
                // commands would depend on timing. The next message brings the handles.
                Err(RecvTimeoutError::Timeout) if self.ahead.is_some() => {
                    return messages.recv().ok();
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            let found = self.home.take_or_sleep();
            let sleeps = found.is_none();
            self.dropped.extend(found);
            self.delete_dropped();
            if sleeps {
                select! {
                    recv(messages) -> message => return message.ok(),
                    recv(self.home.woken()) -> _ => {}
                }
            }
        }
    }

    /// Deletes dropped handles for which all messages sent before the drop were executed.
    fn delete_dropped(&mut self) {
        let done = self.control.at();
        while let Some((_, ids)) = self.dropped.pop_front_if(|(sent, _)| *sent <= done) {
            self.delete(&ids);
        }
    }

    fn delete(&mut self, dropped: &[TensorId]) {
        for &tensor in dropped {
            let _span = span(|| ("del", None));
            self.driver.del(tensor);
        }
    }

    /// Sends values that the device has finished to their readers.
    fn answer_readers(&mut self) {
        while !self.readers.is_empty()
            && let Some(value) = self.driver.engine_mut().take_read()
            && let Some(reader) = self.readers.pop_front()
        {
            // Sending fails if the caller has stopped waiting, which is no error.
            let _ = reader.send(value);
        }
        self.asked = Instant::now();
    }

    fn obey(&mut self, message: Message<D::Op, D::Host>, at_hand: &mut &'static str) {
        if !self.dropped.is_empty() {
            self.delete_dropped();
        }
        self.control.next_command();
        *at_hand = message.what.words()[1];
        self.delete(&message.deleted);
        let what = &message.what;
        let _span = span(|| (what.words()[0], what.op()));
        let landed = match what {
            What::Do(Command::Put { host, .. }) => Some(D::layout_of(host).bytes()),
            _ => None,
        };
        match message.what {
            What::Do(command) => self.driver.execute(command),
            What::Ask(question) => self.answer(question),
        }
        if let Some(bytes) = landed {
            self.control.land(bytes);
        }
    }

    /// Answers a question. An answer for which the caller no longer waits is dropped.
    fn answer(&mut self, question: Question<D::Host>) {
        if !matches!(question, Question::Get { .. } | Question::FinishRecording { .. }) {
            self.driver.record_wait();
        }
        let engine = self.driver.engine_mut();
        match question {
            Question::Get { tensor, reply } => match self.driver.get(tensor) {
                Ok(Reading::Later) => self.readers.push_back(reply),
                Ok(Reading::Done(value)) => drop(reply.send(Ok(value))),
                Err(error) => drop(reply.send(Err(error))),
            },
            Question::Sync { reply } => {
                let done = engine.sync();
                // Report an earlier failure first, because it explains later failures.
                let _ = reply.send(self.driver.take_failure().map_or(done, Err));
            }
            Question::Stats { reply } => {
                drop(reply.send(Ok(self.driver.stats())));
            }
            Question::Change { change, reply } => {
                let _ = reply.send(change.make(&mut self.driver, &self.learners));
            }
            Question::Snapshot { reply } => drop(reply.send(Ok(engine.snapshot()))),
            Question::Describe { what, reply } => {
                let words = match what {
                    Description::Occupancy(width) => {
                        engine.arena().map_or_else(String::new, |arena| arena.occupancy(width))
                    }
                    Description::Map => engine.memory_map(),
                };
                let _ = reply.send(Ok(words));
            }
            Question::Forecasts { turns, reply } => {
                let _ = reply.send(Ok(self.driver.forecasts(turns)));
            }
            Question::KnownSteps { reply } => {
                let _ = reply.send(Ok(self.driver.known_steps()));
            }
            Question::FinishRecording { reply } => {
                let _ = reply.send(self.driver.finish_recording());
            }
        }
    }
}

/// Properties of a message that decide whether a window is complete.
fn waiting<D: Device>(what: &What<D::Op, D::Host>) -> Waiting {
    match what {
        What::Do(command) => Waiting::of(command, |host| D::layout_of(host).bytes()),
        What::Ask(_) => Waiting::QUESTION,
    }
}

/// Enters a span for a command. `None` if tracing is off, because even an unused span takes time.
#[inline]
fn span<'a>(of: impl FnOnce() -> (&'static str, Option<&'a str>)) -> Option<EnteredSpan> {
    enabled!(target: "remat", Level::TRACE).then(|| {
        std::hint::cold_path();
        let (kind, op) = of();
        trace_span!(target: "remat", "command", kind, op).entered()
    })
}

/// Description of the worker's activity while it waits.
const IDLING: &str = "the worker";
