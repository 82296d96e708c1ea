//! Declarations of `shim/api.h` and of the functions in `shim/dispatch.cpp`.

use std::ffi::{c_char, c_void};

/// Kind of an op's outputs: `RmKind` of the shim.
#[repr(u32)]
#[allow(dead_code, reason = "the shim makes the other kinds")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Fresh = 0,
    Over = 1,
    Update = 2,
    Notice = 3,
    Reserve = 4,
    Snapshot = 5,
    Write = 6,
}

/// An op, for the engine: `RmApply` of the shim.
/// Outcome of an op.
#[repr(u32)]
pub(crate) enum Outcome {
    Done = 0,
    NoMemory = 1,
    Failed = 2,
}

#[repr(C)]
pub(crate) struct Apply {
    pub record: *mut c_void,
    pub name: *const c_char,
    pub inputs: *const u64,
    pub inputs_len: usize,
    pub targets: usize,
    pub outputs: *const u64,
    pub outputs_len: usize,
    pub kind: Kind,
    pub over: u64,
    pub again: bool,
    pub work: f64,
    pub moved: u64,
    pub made: u64,
    pub error: *mut c_char,
}

unsafe extern "C" {
    pub fn rm_install();
    pub fn rm_locked(work: extern "C" fn(*mut c_void), data: *mut c_void) -> bool;
    pub fn rm_begin(
        session: *mut c_void,
        mode: *mut c_void,
        out_of_memory: *mut c_void,
        device_type: i8,
        index: i8,
    );
    pub fn rm_end();
    pub fn rm_stress(on: bool);
    pub fn rm_forked();
    pub fn rm_use_heap();
    pub fn rm_dry();
    pub fn rm_execute(
        record: *mut c_void,
        inputs: *const u64,
        inputs_len: usize,
        outputs: *const u64,
        outputs_len: usize,
        text: *mut c_void,
        say: extern "C" fn(*mut c_void, *const c_char, usize),
    ) -> i32;
    pub fn rm_record_made(
        record: *mut c_void,
        kind: Kind,
        made: u64,
        outputs: usize,
        replaces: *const u64,
        replaces_len: usize,
    );
    pub fn rm_forget_record(record: *mut c_void);
    pub fn rm_adopt(storage: *mut c_void, tensor: u64, number: u64, tainted: bool);
    pub fn rm_release(number: u64);
    pub fn rm_clone(from: u64, to: u64) -> i32;
    pub fn rm_synchronize();
    pub fn rm_stand_in(from: u64, to: u64);
    pub fn rm_settle(tensor: u64);
    pub fn rm_take_dead(out: *mut u64, most: usize) -> usize;
    pub fn rm_each_held(
        evictable_only: bool,
        data: *mut c_void,
        see: extern "C" fn(*mut c_void, u64),
    );
    pub fn rm_live() -> u64;
    pub fn rm_peak() -> u64;
    pub fn rm_counts(out: *mut u64);
    pub fn rm_each_once(data: *mut c_void, see: extern "C" fn(*mut c_void, *const c_char, u64));
    pub fn rm_each_guess(data: *mut c_void, see: extern "C" fn(*mut c_void, *const c_char, u64));
    pub fn rm_label_later(object: *mut c_void, label: *const c_char);
    pub fn rm_valueless(object: *mut c_void) -> bool;
    pub fn rm_tensor(object: *mut c_void, leaf: *mut bool) -> u64;
    pub fn rm_tainted(object: *mut c_void) -> bool;
    pub fn rm_leave(object: *mut c_void);
    pub fn rm_state(object: *mut c_void) -> i32;
    pub fn rm_keep(object: *mut c_void, tainted: bool);
    pub fn rm_expose_later(object: *mut c_void);
    pub fn rm_notice_record() -> *mut c_void;
    pub fn rm_warn(text: *const c_char, len: usize);
}
