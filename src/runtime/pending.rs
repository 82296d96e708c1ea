use crate::error::Error;
use crossbeam_channel::Receiver;

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
}

impl<R> Pending<R> {
    /// The answer, once it is there.
    ///
    /// # Errors
    /// Those of the question, and [`Error::Stopped`].
    pub fn wait(self) -> Result<R, Error> {
        self.answer.recv().map_err(|_| Error::Stopped)?
    }
}
