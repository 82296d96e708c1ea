//! Handles.

use super::command::Ids;
use crate::layout::{DType, Dims, Layout};
use crossbeam_channel::{Receiver, Sender};
use smallvec::SmallVec;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The outputs of an op, in order.
pub type Tensors = SmallVec<[Tensor; 2]>;

/// A handle to a tensor. Its value never changes: an op that updates in place consumes a handle and
/// gives a new one.
///
/// Cheap to clone. When the last clone goes, the tensor is deleted in order: after all commands given
/// before. Dropping it never blocks and never panics.
#[derive(Clone)]
pub struct Tensor {
    handle: Arc<Handle>,
}

struct Handle {
    id: u64,
    runtime: u64,
    layout: Layout,
    trash: Arc<Trash>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.trash.push(self.id);
    }
}

/// Handles that went. The next command takes them along, so a drop is a push under an uncontended
/// lock, and deletions stay in order with commands. An idle worker is woken.
pub(crate) struct Trash {
    dropped: Mutex<Dropped>,
    wake: Sender<()>,
    woken: Receiver<()>,
}

#[derive(Default)]
struct Dropped {
    ids: Ids,
    /// The worker waits for a command, or to be woken.
    sleeps: bool,
}

impl Default for Trash {
    fn default() -> Self {
        let (wake, woken) = crossbeam_channel::bounded(1);
        Self { dropped: Mutex::default(), wake, woken }
    }
}

impl Trash {
    fn push(&self, id: u64) {
        let mut dropped = self.lock();
        dropped.ids.push(id);
        if std::mem::take(&mut dropped.sleeps) {
            drop(dropped);
            // Full: it is being woken already.
            let _ = self.wake.try_send(());
        }
    }

    pub(super) fn take(&self) -> Ids {
        std::mem::take(&mut self.lock().ids)
    }

    /// For the worker. `None`: there is nothing, and the next handle that goes will wake it.
    pub fn take_or_sleep(&self) -> Option<Ids> {
        let mut dropped = self.lock();
        if dropped.ids.is_empty() {
            dropped.sleeps = true;
            return None;
        }
        Some(std::mem::take(&mut dropped.ids))
    }

    /// Where the worker is woken.
    pub fn woken(&self) -> &Receiver<()> {
        &self.woken
    }

    fn lock(&self) -> MutexGuard<'_, Dropped> {
        self.dropped.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tensor {
    pub(super) fn new(id: u64, runtime: u64, layout: Layout, trash: Arc<Trash>) -> Self {
        Self { handle: Arc::new(Handle { id, runtime, layout, trash }) }
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
    pub fn shape(&self) -> &Dims {
        self.handle.layout.shape()
    }

    /// Element type.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.handle.layout.dtype()
    }

    pub(super) fn runtime(&self) -> u64 {
        self.handle.runtime
    }

    /// Whether this is the only handle. If so, whatever other threads sent with handles that they
    /// dropped since is in the queue already.
    pub(super) fn is_last_handle(&mut self) -> bool {
        Arc::get_mut(&mut self.handle).is_some()
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor#{} {}", self.handle.id, self.handle.layout)
    }
}
