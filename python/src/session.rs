//! Session: turns operator calls into commands of remat. A value of a storage between two writes is
//! a tensor of remat; views are `PyTorch`'s own business.

use crate::device::{Outside, TorchDevice};
use crate::ffi::{
    Apply, Kind, rm_each_held, rm_notice_record, rm_point, rm_record_made,
    rm_rename, rm_settle, rm_take_dead,
};
use crate::op::{Record, TorchOp};
use remat::op::{Outputs, SmallVec};
use remat::unstable::program::{Command, Driver, Ids, TensorId};
use remat::{Error, Layout};
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::Arc;

/// Driver of one budget, with the numbers of its tensors.
pub(crate) struct Session {
    pub driver: Driver<TorchDevice>,
    next: u64,
    names: HashMap<*const c_char, Arc<str>>,
    marks: Marks,
}

/// Marks of the ends of steps. At a mark, compute paths of earlier steps are cut.
#[derive(Debug, Default)]
struct Marks {
    /// Number of operators since the last mark.
    operators: usize,
    /// Whether the first step that the program marked has ended.
    settled: bool,
}

impl Marks {
    /// Limits for automatic marks, for programs without an optimizer: a mark is set after
    /// `OPERATORS` operators, but not before `PER_TENSOR` operators for each tensor in the graph.
    /// The limits are far above the operators of a step.
    const OPERATORS: usize = 1 << 13;
    const PER_TENSOR: usize = 8;
}

impl Session {
    pub fn new(driver: Driver<TorchDevice>) -> Self {
        Self { driver, next: 1, names: HashMap::default(), marks: Marks::default() }
    }

    /// Deletes the tensors that nobody holds any more.
    pub fn bury(&mut self) {
        let mut dead = [0; 64];
        loop {
            // SAFETY: there is room for 64 numbers.
            let count = unsafe { rm_take_dead(dead.as_mut_ptr(), dead.len()) };
            for &tensor in &dead[..count] {
                if self.driver.key(TensorId(tensor)).is_ok() {
                    self.driver.del(TensorId(tensor));
                }
            }
            if count < dead.len() {
                return;
            }
        }
    }

    /// Ends a step.
    pub fn step(&mut self) {
        self.bury();
        if !std::mem::replace(&mut self.marks.settled, true) {
            self.driver.end_first_step();
        }
        self.mark();
    }

    /// Called after each operator.
    pub fn done(&mut self) {
        self.marks.operators += 1;
        let Marks { operators, .. } = self.marks;
        if operators >= Marks::OPERATORS
            && operators >= Marks::PER_TENSOR * self.driver.stats().tensors
        {
            self.mark();
        }
    }

    fn mark(&mut self) {
        self.marks.operators = 0;
        self.driver.execute(Command::Step);
    }

    /// Makes a leaf out of a storage that the program holds. Returns the leaf's number.
    pub fn put(&mut self, storage: *mut c_void, bytes: u64, tainted: bool) -> Result<u64, Error> {
        let tensor = self.numbers(1);
        let host = Arc::new(Outside { storage, tensor: tensor.0, bytes, tainted });
        self.driver.execute(Command::Put { tensor, host, leaf: true });
        self.failure()?;
        Ok(tensor.0)
    }

    /// Evicts every value that can be evicted.
    pub fn evict_all(&mut self) {
        self.bury();
        for tensor in held(true) {
            self.driver.execute(Command::Drop(tensor));
        }
    }

    /// Makes a value resident, for a reader that runs at once.
    pub fn bring(&mut self, tensor: TensorId) -> Result<(), Error> {
        self.driver.visit(tensor, |_, _| Ok(()))
    }

    /// Makes a value a leaf.
    pub fn keep(&mut self, tensor: TensorId) -> Result<(), Error> {
        self.driver.execute(Command::Commit(tensor));
        self.failure()
    }

    /// Makes a value a leaf whose bytes somebody outside of `PyTorch` may change. Whatever needs
    /// the value's bytes gets a copy first.
    pub fn expose(&mut self, tensor: TensorId) -> Result<(), Error> {
        // SAFETY: the shim makes a record that belongs to the caller.
        let record = Record(unsafe { rm_notice_record() });
        let name = Arc::from("remat::expose");
        self.apply(record, name, Kind::Notice, &[tensor.0], 1, &[], 0.0, false).map(drop)
    }

    /// Runs an op. Returns the number of the first output.
    #[allow(clippy::too_many_arguments, reason = "fields of the shim's call")]
    fn apply(
        &mut self,
        record: Record,
        name: Arc<str>,
        kind: Kind,
        inputs: &[u64],
        targets: usize,
        bytes: &[u64],
        work: f64,
        again: bool,
    ) -> Result<u64, Error> {
        let fresh: SmallVec<[Layout; 1]> =
            bytes.iter().map(|&bytes| Layout::raw(bytes as usize)).collect();
        let outputs = match kind {
            Kind::Update | Kind::Notice => Outputs::Updates { targets, fresh },
            _ => Outputs::Fresh(fresh),
        };
        let count = outputs.len();
        let made = self.numbers(count);
        let over = (kind == Kind::Over).then(|| TensorId(inputs[0]));
        let gives = over.is_some_and(|target| self.driver.would_go(target));
        // SAFETY: the record is alive, and nothing else uses it now.
        unsafe { rm_record_made(record.0, made.0, count, gives) };
        // The storages that are written to hold the new values from now on.
        let targets = if kind == Kind::Over { 1 } else { targets };
        for (at, &target) in inputs[..targets].iter().enumerate() {
            // SAFETY: numbers only.
            unsafe { rm_rename(target, made.0 + at as u64) };
        }
        let op = TorchOp::new(record, name, kind, outputs.clone(), work, again);
        let ids: Ids = inputs.iter().copied().map(TensorId).collect();
        let mut call = remat::unstable::program::Apply::new(op, ids, outputs, made);
        if over.is_none() {
            call.consumed = (0..targets).collect();
        }
        self.driver.execute(Command::Apply(call));
        let failure = self.driver.take_failure();
        match (over, &failure) {
            (Some(target), None) => {
                if gives {
                    self.driver.execute(Command::Drop(target));
                }
                self.driver.del(target);
            }
            (Some(target), Some(_)) => {
                // The storage goes on with its old value.
                if let Some(place) = self.place(target) {
                    // SAFETY: numbers only. The shim has moved the bytes back to this number.
                    unsafe {
                        rm_rename(made.0, target.0);
                        rm_point(target.0, place);
                    }
                }
                self.driver.del(made);
            }
            (None, _) => {
                for at in 0..targets {
                    // SAFETY: numbers only.
                    unsafe { rm_settle(made.0 + at as u64) };
                }
            }
        }
        match failure {
            None => Ok(made.0),
            Some(error) => {
                // No storage holds the outputs that were not made.
                for at in targets..count {
                    self.driver.del(TensorId(made.0 + at as u64));
                }
                Err(error)
            }
        }
    }

    /// Number of a value's bytes in the table; `None` if the value is not resident.
    fn place(&mut self, tensor: TensorId) -> Option<u64> {
        let mut number = None;
        let visited = self.driver.visit(tensor, |_, place| {
            number = Some(place.storage);
            Ok(())
        });
        visited.ok().and(number)
    }

    fn name(&mut self, name: *const c_char) -> Arc<str> {
        let known = self.names.entry(name).or_insert_with(|| {
            // SAFETY: names of operators are never freed.
            unsafe { CStr::from_ptr(name) }.to_string_lossy().into()
        });
        Arc::clone(known)
    }

    fn numbers(&mut self, count: usize) -> TensorId {
        let first = TensorId(self.next);
        self.next += count.max(1) as u64;
        first
    }

    fn failure(&mut self) -> Result<(), Error> {
        self.driver.take_failure().map_or(Ok(()), Err)
    }
}

/// Values that storages hold: all, or those that can be evicted.
pub(crate) fn held(evictable_only: bool) -> Vec<TensorId> {
    extern "C" fn see(data: *mut c_void, tensor: u64) {
        // SAFETY: `data` is the list below.
        unsafe { &mut *data.cast::<Vec<TensorId>>() }.push(TensorId(tensor));
    }
    let mut found: Vec<TensorId> = Vec::new();
    // SAFETY: the list outlives the call.
    unsafe { rm_each_held(evictable_only, (&raw mut found).cast(), see) };
    found
}

/// Text for the shim, which gives it back to [`remat_free_text`].
fn text(error: &Error) -> *mut c_char {
    let text = error.to_string().replace('\0', "");
    CString::new(text).map_or(std::ptr::null_mut(), CString::into_raw)
}

/// The session of a call from the shim.
///
/// # Safety
/// The shim passes the pointer that [`crate::python`] gave it, and holds the session's lock.
unsafe fn of<'a>(session: *mut c_void) -> &'a mut Session {
    // SAFETY: the caller holds the lock, so nobody else uses the session.
    unsafe { &mut *session.cast::<Session>() }
}

/// List of the shim.
///
/// # Safety
/// `from` has `length` numbers, or `length` is 0.
unsafe fn list<'a>(from: *const u64, length: usize) -> &'a [u64] {
    match length {
        0 => &[],
        // SAFETY: as the caller says.
        _ => unsafe { std::slice::from_raw_parts(from, length) },
    }
}

#[unsafe(no_mangle)]
extern "C" fn remat_bury(session: *mut c_void) {
    // SAFETY: called by the shim, under the lock.
    unsafe { of(session) }.bury();
}

#[unsafe(no_mangle)]
extern "C" fn remat_put(
    session: *mut c_void,
    storage: *mut c_void,
    bytes: u64,
    tainted: bool,
    error: *mut *mut c_char,
) -> u64 {
    // SAFETY: called by the shim, under the lock.
    match unsafe { of(session) }.put(storage, bytes, tainted) {
        Ok(tensor) => tensor,
        Err(failure) => {
            // SAFETY: the shim passes a place for the text.
            unsafe { *error = text(&failure) };
            0
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn remat_apply(session: *mut c_void, call: *mut Apply) -> i32 {
    // SAFETY: called by the shim, under the lock, with a call that nobody else uses.
    let (session, call) = unsafe { (of(session), &mut *call) };
    let name = session.name(call.name);
    // SAFETY: the shim passes lists of these lengths.
    let (inputs, bytes) = unsafe {
        (list(call.inputs, call.inputs_len), list(call.outputs, call.outputs_len))
    };
    let record = Record(call.record);
    let Apply { kind, targets, work, again, .. } = *call;
    match session.apply(record, name, kind, inputs, targets, bytes, work, again) {
        Ok(made) => {
            call.made = made;
            0
        }
        Err(failure) => {
            call.error = text(&failure);
            1
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn remat_evict_all(session: *mut c_void) {
    // SAFETY: called by the shim, under the lock.
    unsafe { of(session) }.evict_all();
}

#[unsafe(no_mangle)]
extern "C" fn remat_done(session: *mut c_void) {
    // SAFETY: called by the shim, under the lock.
    unsafe { of(session) }.done();
}

#[unsafe(no_mangle)]
extern "C" fn remat_free_text(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: the pointer came from `CString::into_raw`.
        drop(unsafe { CString::from_raw(text) });
    }
}
