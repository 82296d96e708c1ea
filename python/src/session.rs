//! Session: turns operator calls into commands of remat. A value of a storage between two writes is
//! a tensor of remat. Views are handled by `PyTorch` alone.

use crate::device::{Outside, TorchDevice};
use crate::ffi::{
    Apply, Kind, Outcome, rm_each_held, rm_notice_record, rm_record_made, rm_settle, rm_stand_in,
    rm_take_dead,
};
use crate::op::{Record, TorchOp};
use remat::op::{Outputs, SmallVec};
use remat::unstable::graph::Residence;
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
    /// Most bytes of leaves at the end of a step.
    leaf_bytes: u64,
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
        Self { driver, next: 1, names: HashMap::default(), leaf_bytes: 0, marks: Marks::default() }
    }

    /// Deletes the tensors that the program no longer holds.
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
        self.leaf_bytes = self.leaf_bytes();
    }

    /// Makes a leaf out of a storage that the program holds. Returns the leaf's number.
    pub fn put(&mut self, storage: *mut c_void, bytes: u64, tainted: bool) -> Result<u64, Error> {
        let tensor = self.numbers(1);
        let host = Arc::new(Outside { storage, tensor: tensor.0, bytes, tainted });
        self.driver.execute(Command::Put { tensor, host, leaf: true });
        self.failure()?;
        self.bring(tensor)?;
        Ok(tensor.0)
    }

    /// Bytes of resident values that have no compute path, so that they cannot be evicted: now, or at
    /// the end of a step, whichever is more.
    pub fn leaf_bytes(&self) -> u64 {
        let storages = self.driver.engine().graph().storages();
        let leaves = storages.filter_map(|(_, storage)| match storage.residence {
            Residence::Resident(held) if storage.producer.is_none() => Some(held.bytes),
            _ => None,
        });
        self.leaf_bytes.max(leaves.sum())
    }

    /// Names a value for error messages.
    pub fn label(&mut self, tensor: TensorId, label: &str) {
        self.driver.execute(Command::Label { tensor, label: label.into() });
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

    /// Makes a value a leaf whose bytes code outside of `PyTorch` may change. Before that, tensors
    /// whose recomputation needs the bytes get a copy.
    pub fn expose(&mut self, tensor: TensorId) -> Result<(), Error> {
        // SAFETY: the shim makes a record that belongs to the caller.
        let record = Record(unsafe { rm_notice_record() });
        let name = Arc::from("remat::expose");
        let call = Call {
            kind: Kind::Notice,
            inputs: &[tensor.0],
            targets: 1,
            bytes: &[],
            over: 0,
            work: 0.0,
            moved: 0,
            again: false,
        };
        self.apply(record, name, &call).map(drop)
    }

    /// Runs an op. Returns the number of the first output.
    fn apply(&mut self, record: Record, name: Arc<str>, call: &Call<'_>) -> Result<u64, Error> {
        let Call { mut kind, inputs, targets, bytes, .. } = *call;
        // The engine may have made a leaf of a value since.
        if kind == Kind::Over && self.is_leaf(TensorId(inputs[0])) {
            kind = Kind::Update;
        }
        let fresh: SmallVec<[Layout; 1]> =
            bytes.iter().map(|&bytes| Layout::raw(bytes as usize)).collect();
        let outputs = match kind {
            Kind::Update | Kind::Notice => Outputs::Updates { targets, fresh },
            Kind::Over => Outputs::Over,
            _ => Outputs::Fresh(fresh),
        };
        let count = outputs.len();
        let made = self.numbers(count);
        let is_write = kind == Kind::Write;
        let replaces = if is_write { std::slice::from_ref(&call.over) } else { &inputs[..targets] };
        // SAFETY: the record is alive, nothing else uses it now, and the list outlives the call.
        unsafe {
            rm_record_made(record.0, kind, made.0, count, replaces.as_ptr(), replaces.len());
        }
        if is_write {
            // The op does not read the old value, whose bytes are free for the new one.
            self.driver.del(TensorId(call.over));
        }
        let op = TorchOp::new(record, name, outputs.clone(), call);
        let ids: Ids = inputs.iter().copied().map(TensorId).collect();
        let mut apply = remat::unstable::program::Apply::new(op, ids, outputs, made);
        apply.consumed = (0..targets).collect();
        let failure = self.driver.apply(apply).err();
        if !is_write {
            for (&target, made) in replaces.iter().zip(made.0..) {
                if failure.is_some() {
                    // SAFETY: numbers only. The new number of an op that was skipped names the old value.
                    unsafe { rm_stand_in(target, made) };
                }
                if kind != Kind::Over {
                    // SAFETY: a number only.
                    unsafe { rm_settle(made) };
                }
            }
        }
        let Some(error) = failure else { return Ok(made.0) };
        if !is_write {
            // No storage holds the outputs that were not made.
            for at in targets..count {
                self.driver.del(TensorId(made.0 + at as u64));
            }
        }
        Err(error)
    }

    /// Whether nothing can restore a value.
    fn is_leaf(&self, tensor: TensorId) -> bool {
        let graph = self.driver.engine().graph();
        let key = self.driver.key(tensor).ok();
        key.and_then(|key| graph.tensor(key))
            .is_some_and(|tensor| graph.storage(tensor.storage).producer.is_none())
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

/// An op of the shim: see [`Apply`].
pub(crate) struct Call<'a> {
    pub kind: Kind,
    pub inputs: &'a [u64],
    pub targets: usize,
    pub bytes: &'a [u64],
    pub over: u64,
    pub work: f64,
    pub moved: u64,
    pub again: bool,
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
extern "C" fn remat_label(session: *mut c_void, tensor: u64, label: *const c_char) {
    // SAFETY: the shim passes a text that ends with 0.
    let label = unsafe { CStr::from_ptr(label) }.to_string_lossy();
    // SAFETY: called by the shim, under the lock.
    unsafe { of(session) }.label(TensorId(tensor), &label);
}

#[unsafe(no_mangle)]
extern "C" fn remat_apply(session: *mut c_void, call: *mut Apply) -> Outcome {
    // SAFETY: called by the shim, under the lock, with a call that nobody else uses.
    let (session, call) = unsafe { (of(session), &mut *call) };
    let name = session.name(call.name);
    // SAFETY: the shim passes lists of these lengths.
    let (inputs, bytes) =
        unsafe { (list(call.inputs, call.inputs_len), list(call.outputs, call.outputs_len)) };
    let record = Record(call.record);
    let Apply { kind, targets, over, work, moved, again, .. } = *call;
    let asked = Call { kind, inputs, targets, bytes, over, work, moved, again };
    match session.apply(record, name, &asked) {
        Ok(made) => {
            call.made = made;
            Outcome::Done
        }
        Err(failure) => {
            call.error = text(&failure);
            if failure.is_of_memory() { Outcome::NoMemory } else { Outcome::Failed }
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn remat_evict_all(session: *mut c_void) {
    // SAFETY: called by the shim, under the lock.
    unsafe { of(session) }.evict_all();
}

#[unsafe(no_mangle)]
extern "C" fn remat_expose(session: *mut c_void, tensor: u64) {
    // SAFETY: called by the shim, under the lock. The value is resident, as an operand of the op that just ran, so
    // only the copies for other tensors can fail. Reading such a tensor reports the failure.
    let _ = unsafe { of(session) }.expose(TensorId(tensor));
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
