//! Fabric that measures the time of its calls.

use super::fabric::{Fabric, FabricError};
use crate::sync::atomic::{AtomicU64, Ordering};
use std::fmt;
use std::time::{Duration, Instant};

/// A fabric with the time spent in all its calls.
pub(super) struct Timed {
    fabric: Box<dyn Fabric>,
    nanoseconds: AtomicU64,
}

impl Timed {
    pub fn new(fabric: impl Fabric) -> Self {
        Self { fabric: Box::new(fabric), nanoseconds: AtomicU64::new(0) }
    }

    /// Time of all calls together.
    pub fn time(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed))
    }

    fn during<T>(&self, call: impl FnOnce(&dyn Fabric) -> T) -> T {
        let start = Instant::now();
        let result = call(&*self.fabric);
        self.nanoseconds.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        result
    }
}

impl Fabric for Timed {
    fn rank(&self) -> usize {
        self.fabric.rank()
    }

    fn size(&self) -> usize {
        self.fabric.size()
    }

    fn local(&self) -> (usize, usize) {
        self.fabric.local()
    }

    fn all_to_all(&self, send: &[u8], receive: &mut [u8]) -> Result<(), FabricError> {
        self.during(|fabric| fabric.all_to_all(send, receive))
    }

    fn all_gather(&self, send: &[u8], receive: &mut [u8]) -> Result<(), FabricError> {
        self.during(|fabric| fabric.all_gather(send, receive))
    }

    fn broadcast(&self, root: usize, bytes: &mut [u8]) -> Result<(), FabricError> {
        self.during(|fabric| fabric.broadcast(root, bytes))
    }
}

impl fmt::Debug for Timed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fabric.fmt(f)
    }
}
