use crate::error::Error;
use crate::interpreter::Control;
use crate::sync::channel::{Receiver, select};
use std::convert::Infallible;
use std::sync::Arc;

/// The worker's answer to a call such as `Runtime::get_later`. The caller can send further commands
/// before waiting for the answer.
///
/// ```
/// use remat::prelude::*;
///
/// let runtime = Runtime::builder().budget("64KiB").cpu()?;
/// let x = runtime.put(HostTensor::scalar(3.0))?;
/// let before = runtime.get_later(&x)?;
/// let y = x.square()?;
/// drop(x);
/// assert_eq!(y.item()?, 9.0);
/// assert_eq!(before.wait()?.as_f32(), Some(&[3.0][..]));
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
#[must_use = "an answer that nobody waits for takes its error with it"]
pub struct Pending<R> {
    answer: Receiver<Result<R, Error>>,
    /// Channel that is disconnected when the worker ends. `answer` alone does not show the worker's
    /// end: a command that the worker never read stays in the queue, with the sender of its answer.
    ended: Receiver<Infallible>,
    /// The counter of answers that may still be read.
    control: Arc<Control>,
}

impl<R> Pending<R> {
    pub(super) fn new(
        answer: Receiver<Result<R, Error>>,
        ended: Receiver<Infallible>,
        control: Arc<Control>,
    ) -> Self {
        control.add_reader();
        Self { answer, ended, control }
    }

    /// Waits for the answer.
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let stats = runtime.stats_later()?;
    /// let x = runtime.ones(&[2])?;
    /// assert_eq!(stats.wait()?.ops, 0);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns errors of the command, and
    /// [`RuntimeError::Stopped`](crate::error::RuntimeError::Stopped).
    ///
    /// Two kinds of callers cannot wait for an answer that has not arrived. A listener, a cost
    /// model, a device or an op of the runtime gets
    /// [`RuntimeError::OwnThread`](crate::error::RuntimeError::OwnThread). A process that was
    /// forked after the runtime was started gets
    /// [`RuntimeError::Forked`](crate::error::RuntimeError::Forked).
    pub fn wait(self) -> Result<R, Error> {
        if let Some(barred) = self.control.bars_waiting() {
            return self.answer.try_recv().unwrap_or(Err(barred));
        }
        let stopped = || self.control.stopped();
        select! {
            recv(self.answer) -> answer => match answer {
                Ok(answer) => answer,
                // The worker ended during the command, and will soon report the reason for its end.
                Err(_) => {
                    let _ = self.ended.recv();
                    Err(stopped())
                }
            },
            // Look for an answer once more, because the worker may have answered before it ended.
            recv(self.ended) -> _ => self.answer.try_recv().map_err(|_| stopped())?,
        }
    }
}

impl<R> Drop for Pending<R> {
    fn drop(&mut self) {
        self.control.remove_reader();
    }
}
