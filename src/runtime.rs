//! What a program holds: a [`Runtime`] to give commands to, and [`Tensor`] handles.
//!
//! Commands are sent to a worker thread and executed there in order; see `interpreter.rs`. All but
//! `get` and `sync` return at once. Shapes are inferred here, on the caller's thread, so a question
//! about a shape never waits, and a shape that does not fit is an error at the call that made it.

mod builder;
mod command;
mod ops;
mod pending;
mod tensor;

pub use builder::Builder;
pub(crate) use command::{Command, Message};
pub use ops::Ops;
pub use pending::Pending;
pub use tensor::{Tensor, Tensors};

use crate::engine::Stats;
use crate::error::Error;
use crate::host::HostTensor;
use crate::layout::Layout;
use crate::op::{Op, OpError, Output, Outputs, check_outputs};
use crossbeam_channel::{Receiver, Sender};
use smallvec::SmallVec;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use tensor::Trash;

/// Commands that may wait for the worker; a caller further ahead than that waits as well.
const QUEUE: usize = 1024;

/// A runtime: tensors under a hard memory budget.
///
/// Generic over the op type and the host data, which default to those of the crate. Cheap to clone;
/// all clones give commands to the same worker. Dropping the last one finishes what was sent, ends
/// the worker and frees everything; tensors may outlive it, and are useless then.
///
/// ```
/// use remat::{HostTensor, Ops, Runtime};
///
/// let runtime = Runtime::builder().budget("64KiB").cpu()?;
/// let x = runtime.put(HostTensor::f32([2, 2], vec![1.0, 2.0, 3.0, 4.0])?)?;
/// let y = runtime.matmul(&x, &x)?;
/// drop(x);
/// assert_eq!(runtime.get(&y)?.as_f32(), Some(&[7.0, 10.0, 15.0, 22.0][..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Runtime<O: Op = crate::ops::Op, H = HostTensor> {
    shared: Arc<Shared<O, H>>,
}

struct Shared<O: Op, H> {
    /// Number of this runtime in the process, to know its tensors by.
    number: u64,
    /// `Some` until dropped.
    sender: Option<Sender<Message<O, H>>>,
    worker: Option<JoinHandle<()>>,
    /// Disconnected once the worker is gone.
    ended: Receiver<Infallible>,
    trash: Arc<Trash>,
    next_random: AtomicU64,
    seed: u64,
    layout_of: fn(&H) -> Layout,
}

impl Runtime {
    /// Starts the description of a runtime.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl<O: Op, H: Send + Sync + 'static> Runtime<O, H> {
    fn start(
        sender: Sender<Message<O, H>>,
        worker: JoinHandle<()>,
        ended: Receiver<Infallible>,
        seed: u64,
        layout_of: fn(&H) -> Layout,
    ) -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let shared = Shared {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            sender: Some(sender),
            worker: Some(worker),
            ended,
            trash: Arc::default(),
            next_random: AtomicU64::new(0),
            seed,
            layout_of,
        };
        Self { shared: Arc::new(shared) }
    }

    /// Brings a value from the host. The host copy is shared, and kept while it may be needed again.
    ///
    /// # Errors
    /// [`Error::Stopped`]. That memory is short is reported by the next `get` or `sync`.
    pub fn put(&self, host: impl Into<Arc<H>>) -> Result<Tensor, Error> {
        let host = host.into();
        let tensor = self.new_tensor((self.shared.layout_of)(&host));
        self.send(Command::Put { id: tensor.id(), host })?;
        Ok(tensor)
    }

    /// Runs an op. All inputs keep their values: an op that updates in place works on copies here; see
    /// [`Runtime::update`].
    ///
    /// # Errors
    /// If the inputs do not fit the op or belong to another runtime. What happens on the device is
    /// reported by the next `get` of a tensor that depends on it, or the next `sync`.
    pub fn apply(&self, op: O, inputs: &[&Tensor]) -> Result<Tensors, Error> {
        let outputs = self.infer(&op, inputs)?;
        self.issue(op, inputs, 0, outputs)
    }

    /// Runs an op that updates in place. Its first inputs are `targets`, whose new values are its
    /// outputs; the handles in `targets` stand for the new values afterwards.
    ///
    /// Other handles to the old values keep them, at the price of a copy: without any, the update works
    /// in the storage itself.
    ///
    /// # Errors
    /// As for [`Runtime::apply`], and if the outputs of the op are not just its first inputs in place.
    /// Nothing has changed then.
    pub fn update(
        &self,
        op: O,
        targets: &mut [&mut Tensor],
        others: &[&Tensor],
    ) -> Result<(), Error> {
        let consumed = targets.iter_mut().enumerate().take(u64::BITS as usize);
        let consumed =
            consumed.fold(0, |mask, (i, target)| mask | u64::from(target.is_last_handle()) << i);
        let inputs: SmallVec<[&Tensor; 4]> =
            targets.iter().map(|t| &**t).chain(others.iter().copied()).collect();
        let outputs = self.infer(&op, &inputs)?;
        let expected = (0..targets.len()).map(|input| Output::InPlace { input });
        if !outputs.iter().copied().eq(expected) {
            let message =
                format!("does not update just its first {} inputs in place", targets.len());
            return Err(OpError::new(op.name(), message).into());
        }
        let made = self.issue(op, &inputs, consumed, outputs)?;
        drop(inputs);
        for (target, new) in targets.iter_mut().zip(made) {
            **target = new;
        }
        Ok(())
    }

    /// The value of a tensor. Waits for the commands before it.
    ///
    /// # Errors
    /// The failure that the tensor depends on, wherever it happened first; or that regenerating it
    /// does not fit; or that it belongs to another runtime.
    pub fn get(&self, tensor: &Tensor) -> Result<H, Error> {
        self.get_later(tensor)?.wait()
    }

    /// Asks for the value of a tensor as it is now, without waiting for it.
    ///
    /// # Errors
    /// If the tensor belongs to another runtime; all else is reported by [`Pending::wait`].
    pub fn get_later(&self, tensor: &Tensor) -> Result<Pending<H>, Error> {
        let id = self.own(tensor, "get")?;
        self.ask(|reply| Command::Get { id, reply })
    }

    /// A wish: evict this tensor now. A leaf stays.
    ///
    /// # Errors
    /// If the tensor belongs to another runtime.
    pub fn drop_now(&self, tensor: &Tensor) -> Result<(), Error> {
        let id = self.own(tensor, "drop")?;
        self.send(Command::Drop { id })
    }

    /// Makes a tensor a leaf: resident for good, its history free to go.
    ///
    /// # Errors
    /// If the tensor belongs to another runtime. That it cannot be regenerated is reported by the next
    /// `sync`.
    pub fn commit(&self, tensor: &Tensor) -> Result<(), Error> {
        let id = self.own(tensor, "commit")?;
        self.send(Command::Commit { id })
    }

    /// Names a tensor, for out-of-memory reports.
    ///
    /// # Errors
    /// If the tensor belongs to another runtime.
    pub fn label(&self, tensor: &Tensor, label: impl Into<String>) -> Result<(), Error> {
        let id = self.own(tensor, "label")?;
        self.send(Command::Label { id, label: label.into() })
    }

    /// Marks the end of a turn of the training loop. A tensor that is still held but was made from an
    /// earlier step's value that is not becomes a leaf, so that history stays bounded.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn step(&self) -> Result<(), Error> {
        self.send(Command::Step)
    }

    /// Waits until everything sent so far is done.
    ///
    /// # Errors
    /// The first failure since the last call that no `get` has reported.
    pub fn sync(&self) -> Result<(), Error> {
        self.ask(|reply| Command::Sync { reply })?.wait()
    }

    /// The counters, after everything sent so far.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn stats(&self) -> Result<Stats, Error> {
        self.stats_later()?.wait()
    }

    /// Asks for the counters as they will be after everything sent so far, without waiting for them.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn stats_later(&self) -> Result<Pending<Stats>, Error> {
        self.ask(|reply| Command::Stats { reply })
    }

    /// Brings the recording to safety and ends it. Without this it is finished when the runtime goes,
    /// and what goes wrong then is only logged.
    ///
    /// # Errors
    /// If it could not be written.
    pub fn finish_recording(&self) -> Result<(), Error> {
        self.ask(|reply| Command::FinishRecording { reply })?.wait()
    }

    /// Key and counter of the next random op: the runtime's seed, and a number never used before.
    #[must_use]
    pub fn next_random(&self) -> (u64, u64) {
        (self.shared.seed, self.shared.next_random.fetch_add(1, Ordering::Relaxed))
    }

    /// Outputs of `op`, by the shapes alone.
    fn infer(&self, op: &O, inputs: &[&Tensor]) -> Result<Outputs, Error> {
        if let Some(input) = inputs.iter().position(|t| t.runtime() != self.shared.number) {
            return Err(Error::ForeignTensor { op: op.name().to_owned(), input });
        }
        let layouts: SmallVec<[Layout; 3]> = inputs.iter().map(|t| *t.layout()).collect();
        let outputs = op.infer(&layouts)?;
        check_outputs(op, |input| layouts.get(input), &outputs)?;
        Ok(outputs)
    }

    fn issue(
        &self,
        op: O,
        inputs: &[&Tensor],
        consumed: u64,
        outputs: Outputs,
    ) -> Result<Tensors, Error> {
        let layout = |output: &Output| match *output {
            Output::Fresh(layout) | Output::View { layout, .. } => layout,
            Output::InPlace { input } => {
                Layout::contiguous(inputs[input].dtype(), *inputs[input].shape())
            }
        };
        let made: Tensors = outputs.iter().map(|output| self.new_tensor(layout(output))).collect();
        let inputs = inputs.iter().map(|t| t.id()).collect();
        let ids = made.iter().map(Tensor::id).collect();
        self.send(Command::Apply { op, inputs, consumed, outputs, made: ids })?;
        Ok(made)
    }

    fn new_tensor(&self, layout: Layout) -> Tensor {
        // Unique in the process, so that a tape or gradients never mistake another runtime's tensor.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Tensor::new(id, self.shared.number, layout, Arc::clone(&self.shared.trash))
    }

    fn own(&self, tensor: &Tensor, what: &str) -> Result<u64, Error> {
        if tensor.runtime() == self.shared.number {
            Ok(tensor.id())
        } else {
            Err(Error::ForeignTensor { op: what.to_owned(), input: 0 })
        }
    }

    /// Sends a command, and with it the handles that went since the last one. Whatever used them was
    /// sent before they went, so the order is right.
    fn send(&self, command: Command<O, H>) -> Result<(), Error> {
        let deleted = self.shared.trash.take();
        let sender = self.shared.sender.as_ref().expect("there until dropped");
        sender.send(Message { deleted, command }).map_err(|_| Error::Stopped)
    }

    fn ask<R>(
        &self,
        command: impl FnOnce(Sender<Result<R, Error>>) -> Command<O, H>,
    ) -> Result<Pending<R>, Error> {
        let (reply, answer) = crossbeam_channel::bounded(1);
        self.send(command(reply))?;
        Ok(Pending { answer, ended: self.shared.ended.clone() })
    }
}

impl<O: Op, H> Clone for Runtime<O, H> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<O: Op, H> std::fmt::Debug for Runtime<O, H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime").field("number", &self.shared.number).finish_non_exhaustive()
    }
}

impl<O: Op, H> Drop for Shared<O, H> {
    fn drop(&mut self) {
        // Without a sender the worker finishes what was sent and ends.
        drop(self.sender.take());
        if let Some(worker) = self.worker.take() {
            // A panic of the worker was reported to whoever waited for it.
            let _ = worker.join();
        }
    }
}
