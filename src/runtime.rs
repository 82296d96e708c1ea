//! The user's side: a [`Runtime`], which takes commands, and [`Tensor`] handles.
//!
//! Commands go to a worker thread, which executes them in order; see `interpreter.rs`. All commands
//! but `get` and `sync` return at once. Shapes are inferred on the caller's thread. Reading a shape
//! therefore never waits, and operands of wrong types or shapes are refused at once.

mod builder;
mod create;
mod inspect;
mod pending;
mod settings;
mod update;

#[cfg(feature = "lab")]
pub(crate) use builder::available_memory;
pub use builder::{Builder, CostModelChoice, PolicyChoice};
pub use pending::Pending;
pub use update::Update;

use crate::command::{Apply, Command, Consumed, Ids, TensorId};
use crate::engine::Stats;
use crate::error::{Error, HandleError};
use crate::guard::inferred;
use crate::host::HostTensor;
use crate::interpreter::{Control, Message, Question, What};
use crate::layout::Layout;
use crate::op::{Operation, Outputs, check_outputs};
use crate::ops::{Deferred, Home, Log, Op, Runs, Tensor, Tensors};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::channel::{Receiver, Sender, TrySendError};
use crate::sync::thread::JoinHandle;
use crate::sync::{Mutex, lock};
use smallvec::SmallVec;
use std::any::Any;
use std::convert::Infallible;
use std::sync::Arc;

/// Limit on commands waiting for the worker. At the limit, callers block.
const QUEUE: usize = 1024;

/// A runtime: tensors under a hard memory budget.
///
/// `Runtime` is generic over the type of ops and of host data; the defaults are the crate's own
/// types. A runtime is cheap to clone; all clones send commands to the same worker thread.
///
/// Dropping the last clone waits until all commands are done, ends the worker and frees everything.
/// Tensors that outlive the runtime cannot be read. If no [`Pending`] answer is left to read, the
/// remaining commands fail if they need a regeneration.
///
/// ```
/// use remat::prelude::*;
///
/// let runtime = Runtime::builder().budget("64KiB").cpu()?;
/// let x = runtime.tensor(&[2, 2], vec![1.0, 2.0, 3.0, 4.0])?;
/// let y = x.matmul(&x)?;
/// drop(x);
/// assert_eq!(y.to_vec::<f32>()?, [7.0, 10.0, 15.0, 22.0]);
/// # Ok::<(), Error>(())
/// ```
pub struct Runtime<O: Operation = Op, H = HostTensor> {
    shared: Arc<Shared<O, H>>,
}

struct Shared<O: Operation, H> {
    /// `Some` until the runtime is dropped.
    sender: Option<Sender<Message<O, H>>>,
    thread: Option<JoinHandle<()>>,
    /// Channel that is disconnected when the worker ends.
    ended: Receiver<Infallible>,
    control: Arc<Control>,
    home: Arc<Home>,
    next_random: AtomicU64,
    /// Batch statistics since the last update; `None` if batch norms update their running
    /// statistics themselves.
    deferred: Mutex<Option<Vec<Deferred>>>,
    budget: AtomicU64,
    seed: u64,
    sqrt_sampling: bool,
    layout_of: fn(&H) -> Layout,
}

/// Handles of a started worker thread, from which a runtime is made.
struct Worker<O: Operation, H> {
    sender: Sender<Message<O, H>>,
    thread: JoinHandle<()>,
    ended: Receiver<Infallible>,
    control: Arc<Control>,
    home: Arc<Home>,
    budget: u64,
    seed: u64,
    sqrt_sampling: bool,
}

impl Runtime {
    /// A builder: set options on it, then start a runtime.
    ///
    /// ```
    /// use remat::Runtime;
    ///
    /// let runtime = Runtime::builder().budget("64KiB").seed(1).threads(1).cpu()?;
    /// assert_eq!(runtime.budget(), 64 << 10);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Leaves the running statistics of batch norms to the optimizer from now on; see
    /// [`Ranks::share_statistics`](crate::collective::Ranks::share_statistics).
    pub(crate) fn defer_statistics(&self) {
        lock(&self.shared.deferred).get_or_insert_default();
    }

    /// Takes the statistics of the batches since the last call.
    pub(crate) fn take_statistics(&self) -> Vec<Deferred> {
        lock(&self.shared.deferred).as_mut().map(std::mem::take).unwrap_or_default()
    }
}

impl<O: Operation, H: Send + Sync + 'static> Runtime<O, H> {
    fn start(worker: Worker<O, H>, layout_of: fn(&H) -> Layout) -> Self {
        let Worker { sender, thread, ended, control, home, budget, seed, sqrt_sampling } = worker;
        let shared = Arc::new(Shared {
            sender: Some(sender),
            thread: Some(thread),
            ended,
            control,
            home,
            next_random: AtomicU64::new(0),
            deferred: Mutex::default(),
            budget: AtomicU64::new(budget),
            seed,
            sqrt_sampling,
            layout_of,
        });
        // Methods of tensors exist only for the crate's ops, so keep a reference only to a runtime
        // with the crate's ops.
        let any: Arc<dyn Any + Send + Sync> = Arc::clone(&shared) as _;
        if let Ok(shared) = any.downcast::<Shared<Op, HostTensor>>() {
            let runs: Arc<dyn Runs> = shared;
            runs.home().set_runs(Arc::downgrade(&runs));
        }
        Self { shared }
    }

    /// Uploads a host value.
    ///
    /// The runtime shares the value with the caller, and keeps it as the tensor's host copy as long
    /// as needed. The tensor can therefore be evicted, and uploaded again. Host copies do not count
    /// against the budget; [`Stats::host_bytes`] counts them. [`Runtime::put_leaf`] keeps no host
    /// copy.
    ///
    /// If the value does not fit on the device, it is uploaded when an op or a `get` reads it. The
    /// call blocks while more than 64 MiB of earlier values wait to be uploaded.
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.put(HostTensor::f32([2], vec![1.0, 2.0])?)?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`RuntimeError::Stopped`](crate::error::RuntimeError::Stopped).
    pub fn put(&self, host: impl Into<Arc<H>>) -> Result<Tensor, Error> {
        self.upload(host.into(), false)
    }

    /// Uploads a host value that is never evicted. No host copy is kept once the value is on the
    /// device. If the value does not fit, it is uploaded later, as with [`Runtime::put`].
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.put_leaf(HostTensor::scalar(2.0))?;
    /// assert_eq!(x.item()?, 2.0);
    /// assert_eq!(runtime.stats()?.host_bytes, 0);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails as [`Runtime::put`] does.
    pub fn put_leaf(&self, host: impl Into<Arc<H>>) -> Result<Tensor, Error> {
        self.upload(host.into(), true)
    }

    fn upload(&self, host: Arc<H>, leaf: bool) -> Result<Tensor, Error> {
        let tensor = self.shared.new_tensor((self.shared.layout_of)(&host));
        let bytes = tensor.layout().bytes();
        self.shared.control.take_off(bytes);
        self.shared.command(Command::Put { tensor: tensor.id(), host, leaf })?;
        // Wait only after sending the command: a worker that looks ahead may be waiting for it.
        self.shared.control.await_landing(bytes)?;
        Ok(tensor)
    }

    /// Runs an op. All inputs keep their values: an op that updates in place works on a copy. To
    /// update a tensor itself, call [`Runtime::update`].
    ///
    /// ```
    /// use remat::unstable::ops::Accumulate;
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.ones(&[2])?;
    /// let sum = runtime.apply(Accumulate, &[&x, &x])?;
    /// assert_eq!(sum[0].to_vec::<f32>()?, [2.0, 2.0]);
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 1.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the op does not accept the types or shapes of the inputs, or if an input belongs to
    /// another runtime. Also fails if a tape watches an input and the op has no gradient. A failure
    /// on the device is reported by the next `get` of a tensor that depends on the op, or by the
    /// next `sync`.
    pub fn apply(&self, op: impl Into<O>, inputs: &[&Tensor]) -> Result<Tensors, Error> {
        self.shared.apply(op.into(), inputs)
    }

    /// Reads the value of a tensor. Waits for all earlier commands.
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[2], vec![1, 2])?;
    /// assert_eq!(runtime.get(&x)?, HostTensor::i32([2], vec![1, 2])?);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// - If the tensor was lost to a failure: returns this failure.
    /// - If an update was skipped because of a failure that is not reported yet: returns this
    ///   failure. The next `get` returns the value.
    /// - If the budget does not suffice to regenerate the tensor, or if the regeneration takes too
    ///   many runs or was cancelled.
    /// - If the tensor belongs to another runtime.
    pub fn get(&self, tensor: &Tensor) -> Result<H, Error> {
        self.get_later(tensor)?.wait()
    }

    /// Asks for the current value of a tensor, without waiting.
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.ones(&[2])?;
    /// let pending = runtime.get_later(&x)?;
    /// let y = x.square()?;
    /// assert_eq!(pending.wait()?.as_f32(), Some(&[1.0, 1.0][..]));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the tensor belongs to another runtime. [`Pending::wait`] reports all other errors.
    pub fn get_later(&self, tensor: &Tensor) -> Result<Pending<H>, Error> {
        self.shared.get_later(tensor)
    }

    /// Evicts `tensor` now, if it can be recomputed. A leaf stays resident.
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.full(&[2], 3.0)?;
    /// let y = x.square()?;
    /// runtime.drop_now(&y)?;
    /// assert_eq!(runtime.stats()?.evictions, 1);
    /// assert_eq!(y.to_vec::<f32>()?, [9.0, 9.0]);
    /// assert_eq!(runtime.stats()?.recomputed_ops, 1);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the tensor belongs to another runtime.
    #[doc(alias = "swap_out")]
    pub fn drop_now(&self, tensor: &Tensor) -> Result<(), Error> {
        let id = self.shared.own(tensor, "drop")?;
        self.shared.command(Command::Drop(id))
    }

    /// Cancels regenerations for the commands sent so far.
    ///
    /// Before the next op is rerun, the command that needs the rerun fails with
    /// [`RegenerationError::Cancelled`](crate::error::RegenerationError::Cancelled). Later commands
    /// that were sent before the call also fail if they need a regeneration. Commands that need no
    /// regeneration, and commands that are sent after the call, are unaffected. Any thread may call
    /// `cancel`, for example a Ctrl-C handler.
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.ones(&[2])?;
    /// runtime.cancel();
    /// // Nothing was being regenerated.
    /// assert_eq!(x.sum()?.item()?, 2.0);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn cancel(&self) {
        self.shared.control.cancel();
    }

    /// Returns a handle that cancels like [`Runtime::cancel`] and does not keep the runtime alive.
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let canceller = runtime.canceller();
    /// let thread = std::thread::spawn(move || canceller.cancel());
    /// assert_eq!(runtime.ones(&[2])?.sum()?.item()?, 2.0);
    /// thread.join().unwrap();
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn canceller(&self) -> Canceller {
        Canceller(Arc::clone(&self.shared.control))
    }

    /// Makes a tensor a leaf: the tensor stays resident, and its history and host copy are freed.
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.full(&[2], 3.0)?;
    /// let y = x.square()?;
    /// runtime.commit(&y)?;
    /// runtime.drop_now(&y)?;
    /// assert_eq!(runtime.stats()?.evictions, 0);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the tensor belongs to another runtime. If the tensor cannot be regenerated, the
    /// next `sync` returns the failure.
    #[doc(alias = "pin")]
    pub fn commit(&self, tensor: &Tensor) -> Result<(), Error> {
        let id = self.shared.own(tensor, "commit")?;
        self.shared.command(Command::Commit(id))
    }

    /// Names a tensor in out-of-memory errors and in events.
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let weights = runtime.ones(&[64])?;
    /// runtime.label(&weights, "weights of the first layer")?;
    /// assert!(runtime.memory_map()?.contains("weights of the first layer"));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the tensor belongs to another runtime.
    pub fn label(&self, tensor: &Tensor, label: impl Into<String>) -> Result<(), Error> {
        let id = self.shared.own(tensor, "label")?;
        self.shared.command(Command::Label { tensor: id, label: label.into() })
    }

    /// Marks the end of a step of the training loop. A tensor that was computed from a value of an
    /// earlier step becomes a leaf, if the earlier value no longer has a handle. Without marks,
    /// histories would grow from step to step.
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let mut weights = runtime.ones(&[2])?;
    /// for _ in 0..3 {
    ///     weights = (&weights * 2.0)?;
    ///     runtime.step()?;
    /// }
    /// assert_eq!(weights.to_vec::<f32>()?, [8.0, 8.0]);
    /// assert_eq!(runtime.stats()?.steps, 3);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`RuntimeError::Stopped`](crate::error::RuntimeError::Stopped).
    #[doc(alias = "mark_step")]
    pub fn step(&self) -> Result<(), Error> {
        self.shared.command(Command::Step)
    }

    /// Makes all [`Runtime::replace`] calls so far final.
    pub(crate) fn confirm(&self) -> Result<(), Error> {
        self.shared.command(Command::Confirm)
    }

    /// Waits until all commands sent so far are done.
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.ones(&[200_000])?;
    /// let y = x.exp()?;
    /// // The two take more than 1 MiB together.
    /// assert!(matches!(runtime.sync(), Err(Error::OutOfMemory(_))));
    /// runtime.sync()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns the first failure that was not reported before.
    pub fn sync(&self) -> Result<(), Error> {
        self.shared.ask(|reply| Question::Sync { reply })?.wait()
    }

    /// The current memory limit in bytes.
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// assert_eq!(runtime.budget(), 1 << 20);
    /// runtime.set_budget("512KiB")?;
    /// assert_eq!(runtime.budget(), 512 << 10);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn budget(&self) -> u64 {
        self.shared.budget.load(Ordering::Relaxed)
    }

    /// The counters, after all commands sent so far.
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.ones(&[2])?;
    /// let y = x.exp()?;
    /// let stats = runtime.stats()?;
    /// assert_eq!((stats.ops, stats.tensors, stats.evictions), (2, 2, 0));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`RuntimeError::Stopped`](crate::error::RuntimeError::Stopped).
    pub fn stats(&self) -> Result<Stats, Error> {
        self.stats_later()?.wait()
    }

    /// Asks for the counters after all commands sent so far, without waiting.
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let before = runtime.stats_later()?;
    /// let x = runtime.ones(&[2])?;
    /// assert_eq!(before.wait()?.ops, 0);
    /// assert_eq!(runtime.stats()?.ops, 1);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`RuntimeError::Stopped`](crate::error::RuntimeError::Stopped).
    pub fn stats_later(&self) -> Result<Pending<Stats>, Error> {
        self.shared.ask(|reply| Question::Stats { reply })
    }

    /// Ends the recording, and writes all commands that are not written yet. If `finish_recording`
    /// is not called, the recording ends when the runtime is dropped, and errors are only logged.
    ///
    /// ```
    /// use remat::prelude::*;
    /// use remat::trace::JsonLines;
    ///
    /// let lines = JsonLines::to(std::io::sink());
    /// let runtime = Runtime::builder().budget("1MiB").record(lines).cpu()?;
    /// let x = runtime.ones(&[2])?;
    /// runtime.finish_recording()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the recording could not be written.
    pub fn finish_recording(&self) -> Result<(), Error> {
        self.shared.ask(|reply| Question::FinishRecording { reply })?.wait()
    }

    /// Returns the key and the counter of the next random op: the runtime's seed, and a number that
    /// was not used before.
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").seed(7).cpu()?;
    /// assert_eq!(runtime.next_random(), (7, 0));
    /// assert_eq!(runtime.next_random(), (7, 1));
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn next_random(&self) -> (u64, u64) {
        self.shared.next_random()
    }

    /// The seed, and the number of the next random op. A later run can pass the number to
    /// [`Runtime::set_random_position`] to continue the random numbers.
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").seed(7).cpu()?;
    /// let x = runtime.uniform(&[2], 0.0..1.0)?;
    /// assert_eq!(runtime.random_position(), (7, 1));
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn random_position(&self) -> (u64, u64) {
        (self.shared.seed, self.shared.next_random.load(Ordering::Relaxed))
    }

    /// Sets the number of the next random op.
    ///
    /// A run that continues another run with the same seed must call `set_random_position`, because
    /// its random ops would otherwise draw the same numbers again.
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.uniform(&[4], 0.0..1.0)?;
    /// runtime.set_random_position(0);
    /// let again = runtime.uniform(&[4], 0.0..1.0)?;
    /// assert_eq!(x.to_vec::<f32>()?, again.to_vec::<f32>()?);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn set_random_position(&self, position: u64) {
        self.shared.next_random.store(position, Ordering::Relaxed);
    }
}

impl<O: Operation, H: Send + Sync + 'static> Shared<O, H> {
    fn apply(&self, op: O, inputs: &[&Tensor]) -> Result<Tensors, Error> {
        let outputs = self.infer(&op, inputs)?;
        let log = Log::of(op.name(), inputs)?;
        // Only the crate's ops have gradients.
        let recorded =
            log.and_then(|log| Some((log, (&op as &dyn Any).downcast_ref::<Op>()?.clone())));
        let (call, mut made) = self.call(op, inputs, Consumed::default(), outputs);
        self.command(Command::Apply(call))?;
        if let Some((log, op)) = recorded {
            log.record(&op, inputs, &mut made)?;
        }
        Ok(made)
    }

    fn get_later(&self, tensor: &Tensor) -> Result<Pending<H>, Error> {
        let tensor = self.own(tensor, "get")?;
        self.ask(|reply| Question::Get { tensor, reply })
    }

    /// Infers the outputs of `op` from the layouts of its inputs.
    fn infer(&self, op: &O, inputs: &[&Tensor]) -> Result<Outputs, Error> {
        if let Some(input) = inputs.iter().position(|t| t.runtime() != self.home.number()) {
            return Err(HandleError::Foreign { op: op.name().to_owned(), input }.into());
        }
        let mut layouts = SmallVec::<[Layout; 3]>::new();
        for input in inputs {
            layouts.push(*input.layout());
        }
        let outputs = inferred(op, &layouts)??;
        check_outputs(op, |input| layouts.get(input), &outputs)?;
        Ok(outputs)
    }

    /// Makes the command of an op, and handles to its outputs.
    #[inline(always)] // Otherwise large arguments are copied.
    fn call(
        &self,
        op: O,
        inputs: &[&Tensor],
        consumed: Consumed,
        outputs: Outputs,
    ) -> (Apply<O>, Tensors) {
        let first = new_ids(outputs.len());
        let mut made = Tensors::new();
        for (output, id) in first.and_next(outputs.len()).enumerate() {
            let layout = outputs.layout(output, |input| *inputs[input].layout());
            made.push(Tensor::new(id, layout, Arc::clone(&self.home)));
        }
        let mut read = Ids::new();
        for input in inputs {
            read.push(input.id());
        }
        (Apply { op, inputs: read, consumed, outputs, made: first }, made)
    }

    fn new_tensor(&self, layout: Layout) -> Tensor {
        Tensor::new(new_ids(1), layout, Arc::clone(&self.home))
    }

    fn own(&self, tensor: &Tensor, what: &str) -> Result<TensorId, Error> {
        if tensor.runtime() == self.home.number() {
            Ok(tensor.id())
        } else {
            Err(HandleError::Foreign { op: what.to_owned(), input: 0 }.into())
        }
    }

    /// Sends a command, with the handles dropped since the last message. All commands that use a
    /// dropped handle were sent before the drop, so they run before the deletion.
    #[inline(always)] // Otherwise large arguments are copied.
    fn send(&self, what: What<O, H>) -> Result<(), Error> {
        let deleted = self.home.take();
        let sender = self.sender.as_ref().expect("there until dropped");
        self.control.will_send();
        match sender.try_send(Message { deleted, what }) {
            Ok(()) => Ok(()),
            Err(refused) => self.send_later(sender, refused),
        }
    }

    /// Sends a message that did not fit in the full queue, once the queue has room.
    #[cold]
    fn send_later(
        &self,
        sender: &Sender<Message<O, H>>,
        refused: TrySendError<Message<O, H>>,
    ) -> Result<(), Error> {
        match (refused, self.control.bars_waiting()) {
            (TrySendError::Full(_), Some(barred)) => Err(barred),
            (TrySendError::Full(message), None) => {
                sender.send(message).map_err(|_| self.control.stopped())
            }
            (TrySendError::Disconnected(_), _) => Err(self.control.stopped()),
        }
    }

    #[inline(always)]
    fn command(&self, command: Command<O, H>) -> Result<(), Error> {
        self.send(What::Do(command))
    }

    fn ask<R>(
        &self,
        question: impl FnOnce(Sender<Result<R, Error>>) -> Question<H>,
    ) -> Result<Pending<R>, Error> {
        let (reply, answer) = crate::sync::channel::bounded(1);
        let Self { ended, control, .. } = self;
        // Make `Pending` before sending the command, so that the worker already counts the answer
        // as awaited.
        let pending = Pending::new(answer, ended.clone(), Arc::clone(control));
        self.send(What::Ask(question(reply)))?;
        Ok(pending)
    }

    fn next_random(&self) -> (u64, u64) {
        (self.seed, self.next_random.fetch_add(1, Ordering::Relaxed))
    }
}

/// Reserves `count` consecutive tensor numbers. Returns the first.
///
/// Numbers are unique in the process, so that a tape never confuses tensors of two runtimes.
fn new_ids(count: usize) -> TensorId {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    TensorId(NEXT.fetch_add(count as u64, Ordering::Relaxed))
}

impl Runs for Shared<Op, HostTensor> {
    fn home(&self) -> &Home {
        &self.home
    }

    fn apply(&self, op: Op, inputs: &[&Tensor]) -> Result<Tensors, Error> {
        self.apply(op, inputs)
    }

    fn get(&self, x: &Tensor) -> Result<HostTensor, Error> {
        self.get_later(x)?.wait()
    }

    fn replace(&self, target: &mut Tensor, value: &Tensor) -> Result<(), Error> {
        self.replace(target, value)
    }

    fn next_random(&self) -> (u64, u64) {
        self.next_random()
    }

    fn defers_statistics(&self) -> bool {
        lock(&self.deferred).is_some()
    }

    fn defer(&self, deferred: Deferred) -> Result<(), Error> {
        // Make the statistics leaves, so that the batch is not kept to recompute them.
        self.command(Command::Commit(deferred.statistics.id()))?;
        if let Some(all) = &mut *lock(&self.deferred) {
            all.push(deferred);
        }
        Ok(())
    }
}

/// Handle that cancels like [`Runtime::cancel`] and does not keep the runtime alive.
#[derive(Clone, Debug)]
pub struct Canceller(Arc<Control>);

impl Canceller {
    /// Cancels like [`Runtime::cancel`]. The call has no effect if the runtime was dropped.
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let canceller = runtime.canceller();
    /// drop(runtime);
    /// canceller.cancel();
    /// # Ok::<(), Error>(())
    /// ```
    pub fn cancel(&self) {
        self.0.cancel();
    }
}

impl<O: Operation, H> Clone for Runtime<O, H> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<O: Operation, H> std::fmt::Debug for Runtime<O, H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime")
            .field("number", &self.shared.home.number())
            .finish_non_exhaustive()
    }
}

impl<O: Operation, H> Drop for Shared<O, H> {
    fn drop(&mut self) {
        // Without a sender, the worker finishes the commands in the queue and ends.
        self.control.close();
        drop(self.sender.take());
        if let Some(thread) = self.thread.take()
            // On the worker's own thread or in a forked process, waiting would never end.
            && self.control.bars_waiting().is_none()
        {
            // A panic of the worker was reported to the callers that waited for it.
            let _ = thread.join();
        }
    }
}
