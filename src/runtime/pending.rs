use crate::error::Error;
use crossbeam_channel::{Receiver, select};
use std::convert::Infallible;

/// An answer on its way: asked for now, waited for when it is needed. Commands given in between are not
/// held up by it.
///
/// ```
/// use remat::{HostTensor, Ops, Runtime};
///
/// let runtime = Runtime::builder().budget("64KiB").cpu()?;
/// let x = runtime.put(HostTensor::scalar(3.0))?;
/// let before = runtime.get_later(&x)?;
/// let y = runtime.square(&x)?;
/// drop(x);
/// assert_eq!(runtime.get(&y)?.as_f32(), Some(&[9.0][..]));
/// assert_eq!(before.wait()?.as_f32(), Some(&[3.0][..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "an answer that nobody waits for takes its error with it"]
pub struct Pending<R> {
    pub(super) answer: Receiver<Result<R, Error>>,
    /// Disconnected once the worker is gone. A question it has not read stays in the queue, and the
    /// sender for its answer with it, so `answer` alone would not tell.
    pub(super) ended: Receiver<Infallible>,
}

impl<R> Pending<R> {
    /// The answer, once it is there.
    ///
    /// # Errors
    /// Those of the question, and [`Error::Stopped`].
    pub fn wait(self) -> Result<R, Error> {
        select! {
            recv(self.answer) -> answer => answer.map_err(|_| Error::Stopped)?,
            // It may have answered before it ended.
            recv(self.ended) -> _ => self.answer.try_recv().map_err(|_| Error::Stopped)?,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::device::sim::{Sim, Speed};
    use crate::{Error, HostTensor, Ops as _, Runtime};

    /// The queue keeps what the worker did not read, so each question used to wait for an answer from a
    /// worker that had panicked.
    #[test]
    fn a_worker_that_ended_leaves_nobody_waiting() {
        let broken = || Sim::new(Speed::CPU).with_workspace(|_, _, _| panic!("on purpose"));
        let runtime: Runtime = Runtime::builder().budget("64KiB").device(broken).unwrap();
        let x = runtime.put(HostTensor::scalar(1.0)).unwrap();
        let questions: Vec<_> = (0..100)
            .map_while(|_| runtime.square(&x).and_then(|y| runtime.get_later(&y)).ok())
            .collect();
        assert!(questions.into_iter().all(|q| matches!(q.wait(), Err(Error::Stopped))));
        assert!(matches!(runtime.sync(), Err(Error::Stopped)));
    }
}
