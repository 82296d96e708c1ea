//! Handles, and what can be done with one beside ops: each op adds its own method, in its own module.

mod home;
mod operators;

pub(crate) use home::{Home, Ids, Runs};

use super::Op;
use super::gradient::Log;
use crate::error::Error;
use crate::host::{Element, HostTensor};
use crate::layout::{DType, Dims, Layout, MAX_RANK};
use crate::op::OpError;
use smallvec::SmallVec;
use std::fmt;
use std::sync::{Arc, Weak};

/// The outputs of an op, in order.
pub type Tensors = SmallVec<[Tensor; 2]>;

/// A handle to a tensor. Its value never changes: an op that updates in place consumes a handle and
/// gives a new one.
///
/// Cheap to clone. When the last clone goes, the tensor is deleted in order: after all commands given
/// before. Dropping it never blocks and never panics. A handle does not keep its runtime alive: once that is
/// gone, its methods return [`Error::Stopped`].
///
/// Ops are methods, which return at once; operators are `+`, `-`, `*`, `/` with tensors and numbers. What an op
/// wants contiguous is packed where it is not.
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
/// Each method fails if its operands do not fit, at once and with a message that names them. Failures
/// on the device are reported where a value is next read or the runtime waited for.
#[derive(Clone)]
pub struct Tensor {
    handle: Arc<Handle>,
    /// Where ops that read it are written down, if it is watched or depends on what is.
    log: Option<Weak<Log>>,
}

struct Handle {
    id: u64,
    layout: Layout,
    home: Arc<Home>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.home.push(self.id);
    }
}

impl Tensor {
    pub(crate) fn new(id: u64, layout: Layout, home: Arc<Home>) -> Self {
        Self { handle: Arc::new(Handle { id, layout, home }), log: None }
    }

    /// Number of the tensor, unique within the process.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.handle.id
    }

    /// Type, shape and strides.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.handle.layout
    }

    /// Sizes, outermost first.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        self.handle.layout.shape()
    }

    /// Number of dimensions.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.handle.layout.rank()
    }

    /// Element type.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.handle.layout.dtype()
    }

    /// The same tensor, but no tape writes down what is done with it.
    #[must_use]
    pub fn detach(&self) -> Self {
        Self { handle: Arc::clone(&self.handle), log: None }
    }

    /// The value. Waits for the commands before it.
    ///
    /// # Errors
    /// As for [`Runtime::get`](crate::Runtime::get).
    pub fn to_host(&self) -> Result<HostTensor, Error> {
        self.runs()?.get(self)
    }

    /// The elements in row-major order: `to_vec::<f32>()`. Waits for the commands before it.
    ///
    /// # Errors
    /// If they are of another type; else as for [`Runtime::get`](crate::Runtime::get).
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>, Error> {
        let host = self.to_host()?;
        T::take(host).map_err(|host| {
            let message = format!("{} does not hold {}", host.layout(), T::DTYPE);
            OpError::new("to_vec", message).into()
        })
    }

    /// The only element, as a loss is. Waits for the commands before it.
    ///
    /// # Errors
    /// If there are more or fewer elements, or they are no floats; else as for [`Runtime::get`](crate::Runtime::get).
    pub fn item(&self) -> Result<f32, Error> {
        if self.layout().elements() != 1 {
            let message = format!("{} has {} elements", self.layout(), self.layout().elements());
            return Err(OpError::new("item", message).into());
        }
        Ok(self.to_vec::<f32>()?[0])
    }

    /// From now on this handle stands for `value`; see [`Runtime::replace`](crate::Runtime::replace).
    ///
    /// # Errors
    /// As there.
    pub fn replace(&mut self, value: &Self) -> Result<(), Error> {
        self.runs()?.replace(self, value)
    }

    /// Runs an op on several tensors, the first of which has the runtime, packing what the op wants packed.
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

    /// The same, for the first output.
    pub(super) fn call1(op: impl Into<Op>, inputs: &[&Self]) -> Result<Self, Error> {
        Ok(Self::call(op, inputs)?.swap_remove(0))
    }

    /// What runs its methods.
    pub(super) fn runs(&self) -> Result<Arc<dyn Runs>, Error> {
        self.handle.home.runs()
    }

    /// The number of its runtime.
    pub(crate) fn runtime(&self) -> u64 {
        self.handle.home.number()
    }

    /// Whether this is the only handle. If so, whatever other threads sent with handles that they
    /// dropped since is in the queue already.
    pub(crate) fn is_last_handle(&mut self) -> bool {
        Arc::get_mut(&mut self.handle).is_some()
    }

    /// Where ops that read it are to be written down, if anywhere.
    pub(crate) fn tape(&self) -> Option<Arc<Log>> {
        self.log.as_ref()?.upgrade().filter(|log| log.is_open())
    }

    /// Lets ops that read it be written down, or not.
    pub(crate) fn follow(&mut self, log: Option<Weak<Log>>) {
        self.log = log;
    }
}

/// A shape or a list of axes, if it is not too long.
pub(crate) fn dims(op: &str, values: &[usize]) -> Result<Dims, Error> {
    Dims::try_new(values).ok_or_else(|| {
        let message = format!(
            "{values:?} has {} dimensions, but at most {MAX_RANK} are supported",
            values.len()
        );
        OpError::new(op, message).into()
    })
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor#{} {}", self.handle.id, self.handle.layout)
    }
}
