//! Class `Session` of the Python package.

use crate::device::TorchDevice;
use crate::ffi::{
    rm_begin, rm_counts, rm_dry, rm_each_guess, rm_each_once, rm_end, rm_expose_later, rm_forked,
    rm_keep, rm_label_later, rm_leave, rm_live, rm_locked, rm_peak, rm_settle, rm_state, rm_stress,
    rm_tainted, rm_tensor, rm_use_heap, rm_valueless,
};
use crate::heap;
use crate::session::{Session as Inner, held};
use pyo3::create_exception;
use pyo3::exceptions::{PyMemoryError, PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict as _, PyDict};
use remat::trace::JsonLines;
use remat::unstable::engine::{Engine, RecomputeLimit, Settings};
use remat::unstable::lab;
use remat::unstable::program::{Command, Driver, TensorId, Window};
use remat::{ByteSize, CostModelKind, PolicyKind};
use std::cell::UnsafeCell;
use std::ffi::{CStr, CString, c_char, c_void};
use std::mem::ManuallyDrop;

create_exception!(
    remat,
    OutOfMemory,
    PyMemoryError,
    "The budget is too small for what the program needs at once."
);

/// Number of the CPU among PyTorch's types of devices.
const CPU: i8 = 0;

/// Session of one budget.
#[pyclass(module = "remat._remat")]
pub(crate) struct Session {
    inner: ManuallyDrop<Box<UnsafeCell<Inner>>>,
    /// Process that made the session.
    process: u32,
}

impl Drop for Session {
    /// Drops the inner session, unless this process was forked. The threads that the inner session
    /// waits for when it is dropped do not exist in a forked process.
    fn drop(&mut self) {
        if self.process == std::process::id() {
            // SAFETY: nothing uses the inner session after this.
            unsafe { ManuallyDrop::drop(&mut self.inner) };
        }
    }
}

// SAFETY: used under the session's lock only.
unsafe impl Send for Session {}
// SAFETY: as for `Send`: each access takes the lock.
unsafe impl Sync for Session {}

#[pymethods]
impl Session {
    #[new]
    #[pyo3(signature = (budget, *, policy, threshold=None, recompute_limit=None, record=None, seed=0, measured=false, device="cpu"))]
    #[allow(clippy::too_many_arguments, reason = "options of the user")]
    fn new(
        budget: &str,
        policy: &str,
        threshold: Option<&str>,
        recompute_limit: Option<f64>,
        record: Option<&str>,
        seed: u64,
        measured: bool,
        device: &str,
    ) -> PyResult<Self> {
        let ByteSize(bytes) = budget.parse().map_err(|error| wrong("budget", &error))?;
        let kind: PolicyKind = policy.parse().map_err(|error| wrong("policy", &error))?;
        let mut settings = Settings::default();
        if let Some(threshold) = threshold {
            let ByteSize(bytes) = threshold.parse().map_err(|error| wrong("threshold", &error))?;
            settings.eviction_threshold = Some(bytes);
        }
        settings.recompute_limit = recompute_limit.map(RecomputeLimit::Multiple);
        settings.min_evict_bytes = Some(bytes / 4096);
        let costs = if measured { CostModelKind::Measured } else { CostModelKind::Flops };
        let memory = TorchDevice { name: device.to_owned(), timed: measured };
        let threshold = settings.eviction_threshold;
        let setting = |error: remat::Error| PyValueError::new_err(error.to_string());
        let engine =
            Engine::new(memory, settings, kind.build(seed), costs.build()).map_err(setting)?;
        let mut driver = Driver::new(engine);
        driver.set_budget(bytes.min(TorchDevice::MOST)).map_err(setting)?;
        if let Some(threshold) = threshold {
            driver.set_eviction_threshold(Some(threshold)).map_err(setting)?;
        }
        if let PolicyKind::Learned(learn) = kind {
            driver.learn_by(lab::learner(learn, seed));
        }
        // From the first eviction on, an evictor that looks ahead knows what a step will use next.
        driver.recognize_steps_once_short();
        driver.name_budgets_by(Some(lab::passing_budget));
        if let Some(path) = record {
            let recorder = JsonLines::create(path)
                .map_err(|error| PyOSError::new_err(format!("record: {path}: {error}")))?;
            driver.record_to(Box::new(recorder), Window::of(0));
        }
        let inner = ManuallyDrop::new(Box::new(UnsafeCell::new(Inner::new(driver))));
        Ok(Self { inner, process: std::process::id() })
    }

    /// Begins to handle the calls of threads with this mode.
    fn begin(&self, mode: &Bound<'_, PyAny>, device_type: i8, index: i8) {
        let py = mode.py();
        let error = py.get_type::<OutOfMemory>();
        if device_type == CPU {
            // SAFETY: Python's lock is held, and no other thread is in PyTorch's allocator at the first call.
            unsafe { rm_use_heap() };
            // SAFETY: nothing uses the session before it begins.
            let session = unsafe { &mut *self.inner.get() };
            heap::begin(session.driver.stats().budget_bytes);
        }
        // SAFETY: the package keeps the mode and this session alive until `close`, and the exception lives as long
        // as the module.
        unsafe {
            rm_begin(
                self.inner.get().cast(),
                mode.as_ptr().cast(),
                error.as_ptr().cast(),
                device_type,
                index,
            );
        }
    }

    /// Gives the bytes of all values that the program holds back to PyTorch. If `restore`, makes evicted values
    /// resident first. Otherwise, reading such a value is an error.
    fn close(&self, restore: bool) -> PyResult<()> {
        self.locked(|session| {
            session.bury();
            let finished = session.driver.finish_recording();
            session.driver.set_budget(TorchDevice::MOST)?;
            let mut failure = None;
            let values = if restore { held(false) } else { Vec::new() };
            for tensor in values {
                if session.driver.key(tensor).is_err() {
                    continue;
                }
                session.driver.execute(Command::Commit(tensor));
                failure = failure.or(session.driver.take_failure());
                // The loss of a value is reported again, even if it was reported before, because
                // the value stays lost.
                failure = failure.or(session.bring(tensor).err());
            }
            // SAFETY: the engine uses no bytes after this.
            unsafe { rm_end() };
            heap::end();
            failure.map_or(finished, Err)
        })
    }

    /// Ends a step.
    fn step(&self) -> PyResult<()> {
        self.locked(|session| {
            session.step();
            session.driver.take_failure().map_or(Ok(()), Err)
        })
    }

    /// Makes a tensor resident, for a reader that runs at once. A leaf is always resident.
    fn bring(&self, tensor: &Bound<'_, PyAny>) -> PyResult<()> {
        let Some(tensor) = evictable(tensor) else { return Ok(()) };
        self.locked(|session| session.bring(tensor))
    }

    /// Makes a tensor a leaf that somebody outside of PyTorch may write to.
    fn expose(&self, tensor: &Bound<'_, PyAny>) -> PyResult<()> {
        let Some((number, _)) = number(tensor) else { return Ok(()) };
        let ran = self.ran(|session| session.expose(number))?;
        // SAFETY: `tensor` is a tensor or a storage.
        unsafe {
            match ran {
                true => rm_keep(tensor.as_ptr().cast(), true),
                false => rm_expose_later(tensor.as_ptr().cast()),
            }
        }
        Ok(())
    }

    /// Makes a tensor a leaf, so that it stays resident.
    fn keep(&self, tensor: &Bound<'_, PyAny>) -> PyResult<()> {
        let Some(number) = evictable(tensor) else { return Ok(()) };
        if self.ran(|session| session.keep(number))? {
            // SAFETY: `tensor` is a tensor or a storage.
            unsafe { rm_keep(tensor.as_ptr().cast(), false) };
        }
        Ok(())
    }

    /// Makes a tensor ordinary: its bytes belong to its storage, and the budget counts them again
    /// when an op uses them.
    fn leave(&self, tensor: &Bound<'_, PyAny>) -> PyResult<()> {
        self.keep(tensor)?;
        self.expose(tensor)?;
        self.locked(|session| {
            // SAFETY: the shim checks whether the object is a tensor or a storage.
            unsafe { rm_leave(tensor.as_ptr().cast()) };
            session.bury();
            Ok(())
        })
    }

    /// Makes every value that fits in the budget resident, for a process that is forked next.
    fn bring_all(&self) -> PyResult<()> {
        self.locked(|session| {
            session.bury();
            for tensor in held(true) {
                // A value that does not fit stays evicted in the child process, and reading it
                // there is an error.
                let _ = session.bring(tensor);
            }
            Ok(())
        })
    }

    /// Makes every value a leaf, because an operator of some computation is about to change.
    fn keep_all(&self) -> PyResult<()> {
        self.locked(|session| {
            session.bury();
            for tensor in held(true) {
                session.keep(tensor)?;
                // SAFETY: a number only.
                unsafe { rm_settle(tensor.0) };
            }
            Ok(())
        })
    }

    /// State of a tensor: `leaf`, `resident` or `evicted`; `None` if the budget does not count it.
    #[staticmethod]
    fn state(tensor: &Bound<'_, PyAny>) -> Option<&'static str> {
        // SAFETY: the shim checks whether the object is a tensor.
        match unsafe { rm_state(tensor.as_ptr().cast()) } {
            1 => Some("leaf"),
            2 => Some("resident"),
            3 => Some("evicted"),
            _ => None,
        }
    }

    /// Changes the budget.
    fn set_budget(&self, budget: &str) -> PyResult<()> {
        let ByteSize(bytes) = budget.parse().map_err(|error| wrong("budget", &error))?;
        self.locked(|session| {
            session.driver.set_budget(bytes)?;
            heap::set_budget(bytes);
            Ok(())
        })
    }

    /// Evicts every value that can be evicted.
    fn evict_all(&self) -> PyResult<()> {
        self.locked(|session| {
            session.evict_all();
            Ok(())
        })
    }

    /// Evicts everything evictable after each op, for tests.
    #[staticmethod]
    fn stress(on: bool) {
        // SAFETY: sets a flag.
        unsafe { rm_stress(on) };
    }

    /// Notes that this process was forked, so that its budget belongs to the parent.
    #[staticmethod]
    fn forked() {
        // SAFETY: sets a flag.
        unsafe { rm_forked() };
    }

    /// Gives a tensor a name, for error messages.
    fn label(&self, tensor: &Bound<'_, PyAny>, label: &str) -> PyResult<()> {
        let text = CString::new(label).map_err(|error| wrong("label", &error))?;
        self.locked(|session| {
            match number(tensor) {
                Some((tensor, _)) => session.label(tensor, label),
                // SAFETY: the shim copies the text.
                None => unsafe { rm_label_later(tensor.as_ptr().cast(), text.as_ptr()) },
            }
            Ok(())
        })
    }

    /// Numbers of calls that cannot run again, by operator: their sizes were unknown before the
    /// run, or they had operands on another device.
    fn once<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.calls(rm_each_once)?.into_py_dict(py)
    }

    /// Begins a dry run, which lasts until `close`: ops compute no values.
    fn dry(&self) -> PyResult<()> {
        self.locked(|_| {
            // SAFETY: sets a flag.
            unsafe { rm_dry() };
            heap::end();
            Ok(())
        })
    }

    /// Numbers of calls of a dry run whose result was assumed, by operator.
    fn guesses<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.calls(rm_each_guess)?.into_py_dict(py)
    }

    /// Whether a dry run has made the tensor, so that it has no values.
    #[staticmethod]
    fn valueless(tensor: &Bound<'_, PyAny>) -> bool {
        // SAFETY: the shim checks whether the object is a tensor.
        unsafe { rm_valueless(tensor.as_ptr().cast()) }
    }

    /// Whether somebody outside of PyTorch may write to the tensor.
    #[staticmethod]
    fn tainted(tensor: &Bound<'_, PyAny>) -> bool {
        // SAFETY: the shim checks whether the object is a tensor or a storage.
        unsafe { rm_tainted(tensor.as_ptr().cast()) }
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let mut found = None;
        self.locked(|session| {
            session.bury();
            found = Some((session.driver.stats(), session.leaf_bytes()));
            Ok(())
        })?;
        let (stats, leaves) = found.unwrap_or_default();
        let mut counts = [0; 4];
        // SAFETY: there is room for four numbers.
        let (live, live_peak) = unsafe {
            rm_counts(counts.as_mut_ptr());
            (rm_live(), rm_peak())
        };
        let [calls, foreign, unknown, misjudged] = counts;
        let out = PyDict::new(py);
        for (name, value) in [
            ("budget_bytes", stats.budget_bytes),
            ("used_bytes", stats.used_bytes),
            ("peak_bytes", stats.peak_bytes),
            ("live_bytes", live),
            ("live_peak_bytes", live_peak),
            ("leaf_bytes", leaves),
            ("heap_bytes", heap::resident()),
            ("ops", stats.ops),
            ("recomputed_ops", stats.recomputed_ops),
            ("evictions", stats.evictions),
            ("evicted_bytes", stats.evicted_bytes),
            ("steps", stats.steps),
            ("thrashed_steps", stats.thrashed_steps),
            ("tensors", stats.tensors as u64),
            ("storages", stats.storages as u64),
            ("paths", stats.paths as u64),
            ("learning_bytes", stats.learning_bytes),
            ("calls", calls),
            ("foreign_calls", foreign),
            ("unknown_calls", unknown),
            ("misjudged_calls", misjudged),
        ] {
            out.set_item(name, value)?;
        }
        out.set_item("base_cost", stats.base_cost)?;
        out.set_item("recompute_cost", stats.recompute_cost)?;
        out.set_item("search_seconds", stats.search_seconds)?;
        Ok(out)
    }
}

/// Tells `see` a number for each of some operators.
type Each = unsafe extern "C" fn(*mut c_void, extern "C" fn(*mut c_void, *const c_char, u64));

impl Session {
    /// Numbers of calls by operator.
    fn calls(&self, each: Each) -> PyResult<Vec<(String, u64)>> {
        extern "C" fn see(data: *mut c_void, name: *const c_char, count: u64) {
            // SAFETY: `data` is the list below, and `name` a text of the shim.
            let (list, name) =
                unsafe { (&mut *data.cast::<Vec<(String, u64)>>(), CStr::from_ptr(name)) };
            list.push((name.to_string_lossy().into_owned(), count));
        }
        let mut found: Vec<(String, u64)> = Vec::new();
        self.locked(|_| {
            // SAFETY: the list outlives the call.
            unsafe { each((&raw mut found).cast(), see) };
            Ok(())
        })?;
        Ok(found)
    }

    /// Runs work on the session, under its lock. Within an op, the work does not run, because the
    /// op's operands are resident.
    fn locked(&self, work: impl FnOnce(&mut Inner) -> Result<(), remat::Error>) -> PyResult<()> {
        self.ran(work).map(drop)
    }

    /// Runs work as [`Self::locked`] does. Returns whether the work ran.
    fn ran(&self, work: impl FnOnce(&mut Inner) -> Result<(), remat::Error>) -> PyResult<bool> {
        struct Job<'a, W> {
            session: &'a UnsafeCell<Inner>,
            work: Option<W>,
            done: Result<(), remat::Error>,
        }
        extern "C" fn run<W: FnOnce(&mut Inner) -> Result<(), remat::Error>>(data: *mut c_void) {
            // SAFETY: `data` is the job below, which only this call uses.
            let job = unsafe { &mut *data.cast::<Job<'_, W>>() };
            if let Some(work) = job.work.take() {
                // SAFETY: the shim holds the session's lock.
                job.done = work(unsafe { &mut *job.session.get() });
            }
        }
        fn start<W: FnOnce(&mut Inner) -> Result<(), remat::Error>>(job: &mut Job<'_, W>) -> bool {
            // SAFETY: `run` casts the pointer back to this type, and the job outlives the call.
            unsafe { rm_locked(run::<W>, std::ptr::from_mut(job).cast()) }
        }
        let mut job = Job { session: &self.inner, work: Some(work), done: Ok(()) };
        let ran = start(&mut job);
        job.done.map(|()| ran).map_err(|error| match error.is_of_memory() {
            true => OutOfMemory::new_err(error.to_string()),
            false => PyRuntimeError::new_err(error.to_string()),
        })
    }
}

/// Number of the value that a tensor views, and whether the value is a leaf; `None` if the budget
/// does not count the value.
fn number(tensor: &Bound<'_, PyAny>) -> Option<(TensorId, bool)> {
    let mut leaf = false;
    // SAFETY: the shim checks whether the object is a tensor.
    let number = unsafe { rm_tensor(tensor.as_ptr().cast(), &raw mut leaf) };
    (number != 0).then_some((TensorId(number), leaf))
}

fn evictable(tensor: &Bound<'_, PyAny>) -> Option<TensorId> {
    number(tensor).filter(|(_, leaf)| !leaf).map(|(tensor, _)| tensor)
}

pub(crate) fn wrong(option: &str, error: &dyn std::fmt::Display) -> PyErr {
    PyValueError::new_err(format!("{option}: {error}"))
}
