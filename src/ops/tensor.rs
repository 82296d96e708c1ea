//! The handle of a tensor, and its methods that are not ops. The module of each op defines the
//! method of that op.

mod home;
mod operators;

pub(crate) use home::{Home, Runs};

use super::Op;
use super::gradient::Log;
use crate::command::TensorId;
use crate::error::Error;
use crate::host::{Element, HostTensor};
use crate::layout::{DType, Dims, Layout};
use crate::op::OpError;
use smallvec::SmallVec;
use std::fmt;
use std::sync::{Arc, Weak};

/// Outputs of an op, in order.
pub type Tensors = SmallVec<[Tensor; 2]>;

/// A handle to a tensor. The value of a tensor never changes: an update in place consumes a handle
/// and returns a new handle.
///
/// Clones are cheap. After the last clone is dropped, the runtime deletes the tensor once all
/// commands sent before the drop have run. Dropping never blocks and never panics. A handle does
/// not keep its runtime alive: once the runtime is gone, methods return
/// [`RuntimeError::Stopped`](crate::error::RuntimeError::Stopped).
///
/// Ops are methods, and return at once. The operators `+`, `-`, `*` and `/` take tensors and
/// numbers. Inputs that an op requires to be contiguous are packed first.
///
/// ```
/// use remat::prelude::*;
///
/// let runtime = Runtime::builder().budget("64KiB").cpu()?;
/// let x = runtime.tensor(&[2, 2], vec![1.0, 2.0, 3.0, 4.0])?;
/// let b = runtime.tensor(&[2], vec![10.0, 20.0])?;
/// let y = (x.matmul(&x)? + &b)?.relu()?;
/// assert_eq!(y.shape(), [2, 2]);
/// assert_eq!(y.to_vec::<f32>()?, [17.0, 30.0, 25.0, 42.0]);
/// assert_eq!(y.sum()?.item()?, 114.0);
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// A method returns an error at once if the op does not accept its operands. The message names the
/// operands. A failure on the device is reported by the next read of a tensor that depends on the
/// failed op, or by the next [`Runtime::sync`](crate::Runtime::sync).
#[derive(Clone)]
pub struct Tensor {
    handle: Arc<Handle>,
    /// Log of the tape that records the ops which read this tensor. `Some` if the tensor is watched
    /// or depends on a watched tensor, else `None`.
    log: Option<Weak<Log>>,
}

struct Handle {
    id: TensorId,
    layout: Layout,
    home: Arc<Home>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.home.push(self.id);
    }
}

impl Tensor {
    pub(crate) fn new(id: TensorId, layout: Layout, home: Arc<Home>) -> Self {
        Self { handle: Arc::new(Handle { id, layout, home }), log: None }
    }

    /// Number of the tensor, unique in the process.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.zeros(&[2])?;
    /// assert_eq!(x.clone().id(), x.id());
    /// assert_ne!(x.square()?.id(), x.id());
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn id(&self) -> TensorId {
        self.handle.id
    }

    /// Type, shape and strides.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.zeros(&[2, 3])?;
    /// assert_eq!(x.layout().bytes(), 24);
    /// assert!(x.layout().is_contiguous());
    /// assert!(!x.t()?.layout().is_contiguous());
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.handle.layout
    }

    /// Sizes, outermost first.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.zeros(&[2, 3])?;
    /// assert_eq!(x.shape(), [2, 3]);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        self.handle.layout.shape()
    }

    /// Number of dimensions.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// assert_eq!(runtime.zeros(&[2, 3])?.rank(), 2);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn rank(&self) -> usize {
        self.handle.layout.rank()
    }

    /// Element type.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// assert_eq!(runtime.tensor(&[2], vec![1.0, 2.0])?.dtype(), DType::F32);
    /// assert_eq!(runtime.tensor(&[2], vec![1, 2])?.dtype(), DType::I32);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.handle.layout.dtype()
    }

    /// Returns another handle of this tensor, without a tape: ops on the new handle are not
    /// recorded.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let mut x = runtime.tensor(&[2], vec![1.0, 2.0])?;
    /// let tape = Tape::new(&runtime);
    /// tape.watch(&mut x);
    /// // The second factor counts as a constant.
    /// let y = x.mul(&x.detach())?.sum()?;
    /// let gradients = tape.backward(&y)?;
    /// let dx = gradients.get(&x).expect("y depends on x");
    /// assert_eq!(dx.to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn detach(&self) -> Self {
        Self { handle: Arc::clone(&self.handle), log: None }
    }

    /// Reads the value. Waits for the commands that were sent before this call.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[2], vec![1.0, 2.0])?;
    /// let host = x.to_host()?;
    /// assert_eq!(host.dtype(), DType::F32);
    /// assert_eq!(host.as_f32().expect("floats"), [1.0, 2.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Errors of [`Runtime::get`](crate::Runtime::get).
    pub fn to_host(&self) -> Result<HostTensor, Error> {
        self.runs()?.get(self)
    }

    /// Reads the elements in row-major order: `to_vec::<f32>()`. Waits for the commands that were
    /// sent before this call.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[2], vec![1.0, 2.0])?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 2.0]);
    /// assert!(x.to_vec::<i32>().is_err());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if the elements are of another type; also errors of
    /// [`Runtime::get`](crate::Runtime::get).
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>, Error> {
        let host = self.to_host()?;
        T::take(host).map_err(|host| {
            let message = format!("{} does not have elements of type {}", host.layout(), T::DTYPE);
            OpError::new("to_vec", message).into()
        })
    }

    /// Reads the element of a tensor with one element, such as a loss. Waits for the commands that
    /// were sent before this call.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[2], vec![1.0, 2.0])?;
    /// assert_eq!(x.sum()?.item()?, 3.0);
    /// assert!(x.item().is_err());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if there is not exactly one element, or the element is not a float; also
    /// errors of [`Runtime::get`](crate::Runtime::get).
    pub fn item(&self) -> Result<f32, Error> {
        if self.layout().elements() != 1 {
            let message =
                format!("{} has {} elements, expected 1", self.layout(), self.layout().elements());
            return Err(OpError::new("item", message).into());
        }
        Ok(self.to_vec::<f32>()?[0])
    }

    /// Makes this handle refer to the value of `value`; see
    /// [`Runtime::replace`](crate::Runtime::replace).
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let mut state = runtime.zeros(&[2])?;
    /// let next = (&state + 1.0)?;
    /// state.replace(&next)?;
    /// assert_eq!(state.to_vec::<f32>()?, [1.0, 1.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Errors of [`Runtime::replace`](crate::Runtime::replace).
    pub fn replace(&mut self, value: &Self) -> Result<(), Error> {
        self.runs()?.replace(self, value)
    }

    /// Runs an op in the runtime of the first input. Inputs that are not contiguous are packed
    /// first, if the op requires contiguous inputs.
    ///
    /// # Panics
    /// If there are no inputs.
    pub(super) fn call(op: impl Into<Op>, inputs: &[&Self]) -> Result<Tensors, Error> {
        let op = op.into();
        let wanted = op.definition().inputs();
        let runs = inputs[0].runs()?;
        let is_packed =
            |(i, x): (usize, &&Self)| !wanted.is_packed(i) || x.layout().is_contiguous();
        if inputs.iter().enumerate().all(is_packed) {
            return runs.apply(op, inputs);
        }
        let packed = inputs
            .iter()
            .enumerate()
            .map(|(i, x)| if wanted.is_packed(i) { x.contiguous() } else { Ok((*x).clone()) });
        let packed = packed.collect::<Result<SmallVec<[Self; 4]>, _>>()?;
        runs.apply(op, &packed.iter().collect::<SmallVec<[&Self; 4]>>())
    }

    /// Like [`Tensor::call`], but returns the first output only.
    pub(super) fn call1(op: impl Into<Op>, inputs: &[&Self]) -> Result<Self, Error> {
        Ok(Self::call(op, inputs)?.swap_remove(0))
    }

    /// Runtime that runs this tensor's methods.
    pub(super) fn runs(&self) -> Result<Arc<dyn Runs>, Error> {
        self.handle.home.runs()
    }

    /// Number of the tensor's runtime, unique in the process.
    pub(crate) fn runtime(&self) -> u64 {
        self.handle.home.number()
    }

    /// Whether this is the only handle of the tensor. If no clone exists, all commands that other
    /// threads sent with clones are already in the queue.
    pub(crate) fn is_last_handle(&mut self) -> bool {
        Arc::get_mut(&mut self.handle).is_some()
    }

    /// Log that records the ops which read this tensor; `None` if no log records ops on this
    /// tensor.
    pub(crate) fn tape(&self) -> Option<Arc<Log>> {
        self.log.as_ref()?.upgrade().filter(|log| log.is_open())
    }

    /// Sets the log that records the ops which read this tensor.
    pub(crate) fn follow(&mut self, log: Option<Weak<Log>>) {
        self.log = log;
    }
}

/// Makes `Dims` of a shape or a list of axes; an error if the list is too long.
pub(crate) fn dims(op: &str, values: &[usize]) -> Result<Dims, Error> {
    Dims::try_new(values).ok_or_else(|| {
        let (count, most) = (values.len(), Dims::MAX_LEN);
        // Show only the start of the list in the message, because the list may have a million
        // entries.
        let first = &values[..8];
        let message = format!(
            "{count} dimensions, but at most {most} are supported; the first are {first:?}"
        );
        OpError::new(op, message).into()
    })
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor#{} {}", self.handle.id, self.handle.layout)
    }
}
