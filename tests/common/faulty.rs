//! Device that fails on request, around a device that works.

use remat::Layout;
use remat::device::{Call, Device, DeviceError, Memory, Place, Reading, Took};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Kind of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The op asks for more scratch than the memory has.
    NoMemory,
    /// The call fails before it does anything. A call that cannot return an error succeeds.
    Fails,
    /// The call panics before it does anything.
    Panics,
}

/// A test's handle on a faulty device: counts its calls and makes it fail.
#[derive(Debug, Default)]
pub struct Faults {
    /// Number of calls.
    calls: AtomicU64,
    /// Number of ops run.
    runs: AtomicU64,
    plan: Mutex<Option<(When, Fault)>>,
    happened: AtomicBool,
    watcher: Watcher,
}

/// Callback that receives each action of the device before it happens.
#[derive(Default)]
struct Watcher(Mutex<Option<Watch>>);

type Watch = Box<dyn FnMut(Doing) + Send>;

/// Action of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    Write,
    Run,
}

impl std::fmt::Debug for Watcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Watcher")
    }
}

/// Call, or run of an op, that fails: its number, counted from the start.
#[derive(Clone, Copy, Debug)]
enum When {
    Call(u64),
    Run(u64),
}

impl Faults {
    /// Calls `watcher` on the device's thread before each upload and each op.
    pub fn watch(&self, watcher: impl FnMut(Doing) + Send + 'static) {
        *self.watcher.0.lock().unwrap() = Some(Box::new(watcher));
    }

    fn tell(&self, doing: Doing) {
        // The watcher is called without holding the lock, because other threads may wait for the
        // watcher.
        let watcher = self.watcher.0.lock().unwrap().take();
        if let Some(mut watcher) = watcher {
            watcher(doing);
            self.watcher.0.lock().unwrap().get_or_insert(watcher);
        }
    }

    /// Makes call number `n` fail, counted from 0 at the next call.
    pub fn at_call(&self, n: u64, fault: Fault) {
        self.plan(When::Call(self.calls.load(Ordering::SeqCst) + n), fault);
    }

    /// Makes run number `n` of an op fail, counted from 0 at the next run.
    pub fn at_run(&self, n: u64, fault: Fault) {
        self.plan(When::Run(self.runs.load(Ordering::SeqCst) + n), fault);
    }

    fn plan(&self, when: When, fault: Fault) {
        self.happened.store(false, Ordering::SeqCst);
        *self.plan.lock().unwrap() = Some((when, fault));
    }

    /// Cancels a planned failure that has not happened yet. Returns whether the failure has already
    /// happened.
    pub fn disarm(&self) -> bool {
        *self.plan.lock().unwrap() = None;
        self.happened.load(Ordering::SeqCst)
    }

    /// Counts a call and returns the fault, if any. Each fault happens once.
    fn next(&self) -> Option<Fault> {
        let call = self.calls.fetch_add(1, Ordering::SeqCst);
        let mut plan = self.plan.lock().unwrap();
        let due = match *plan {
            Some((When::Call(n), fault)) if n == call => Some(fault),
            _ => None,
        };
        if due.is_some() {
            *plan = None;
            self.happened.store(true, Ordering::SeqCst);
        }
        due
    }

    /// Returns the fault of the next run of an op, if any, when the workspace of that run is asked
    /// for.
    fn next_run(&self) -> Option<Fault> {
        let run = self.runs.load(Ordering::SeqCst);
        let mut plan = self.plan.lock().unwrap();
        let due = match *plan {
            Some((When::Run(n), fault)) if n == run => Some(fault),
            _ => None,
        };
        if due.is_some() {
            *plan = None;
            self.happened.store(true, Ordering::SeqCst);
        }
        due
    }

    fn check(&self) -> Result<(), DeviceError> {
        match self.next() {
            None | Some(Fault::NoMemory) => Ok(()),
            Some(Fault::Fails) => Err(DeviceError::new("failed on purpose")),
            Some(Fault::Panics) => panic!("on purpose"),
        }
    }
}

/// Device that fails as its [`Faults`] say.
#[derive(Debug)]
pub struct Faulty<D> {
    inner: D,
    faults: Arc<Faults>,
}

impl<D> Faulty<D> {
    /// Wraps the device that `make` makes. Making the device is the first call that may fail.
    pub fn new(
        faults: Arc<Faults>,
        make: impl FnOnce() -> Result<D, DeviceError>,
    ) -> Result<Self, DeviceError> {
        faults.check()?;
        Ok(Self { inner: make()?, faults })
    }
}

impl<D: Device> Device for Faulty<D> {
    type Op = D::Op;
    type Host = D::Host;

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn memory(&self) -> Memory {
        self.inner.memory()
    }

    fn layout_of(host: &D::Host) -> Layout {
        D::layout_of(host)
    }

    fn write(&mut self, host: &D::Host, to: Place) -> Result<Took, DeviceError> {
        self.faults.tell(Doing::Write);
        self.faults.check()?;
        self.inner.write(host, to)
    }

    fn read(&mut self, from: Place) -> Result<D::Host, DeviceError> {
        self.faults.check()?;
        self.inner.read(from)
    }

    fn has_bits(&self) -> bool {
        self.inner.has_bits()
    }

    fn bits(&mut self, from: Place, see: &mut dyn FnMut(&[u8])) -> Result<(), DeviceError> {
        self.faults.check()?;
        self.inner.bits(from, see)
    }

    fn read_later(&mut self, from: Place) -> Result<Reading<D::Host>, DeviceError> {
        self.faults.check()?;
        self.inner.read_later(from)
    }

    fn take_read(&mut self) -> Option<Result<D::Host, DeviceError>> {
        self.inner.take_read()
    }

    fn copy(&mut self, from: u64, to: u64, bytes: u64) -> Result<(), DeviceError> {
        self.faults.check()?;
        self.inner.copy(from, to, bytes)
    }

    fn workspace(&self, op: &D::Op, inputs: &[Layout], outputs: &[Layout]) -> u64 {
        match self.faults.next().or_else(|| self.faults.next_run()) {
            None => self.inner.workspace(op, inputs, outputs),
            Some(Fault::NoMemory | Fault::Fails) => 1 << 60,
            Some(Fault::Panics) => panic!("on purpose"),
        }
    }

    fn execute(&mut self, call: Call<'_, D::Op>) -> Result<Took, DeviceError> {
        self.faults.runs.fetch_add(1, Ordering::SeqCst);
        self.faults.tell(Doing::Run);
        self.faults.check()?;
        self.inner.execute(call)
    }

    fn take_time(&mut self) -> Option<f64> {
        self.inner.take_time()
    }

    fn sync(&mut self) -> Result<(), DeviceError> {
        self.faults.check()?;
        self.inner.sync()
    }
}
