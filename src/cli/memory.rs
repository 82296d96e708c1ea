//! The end of memory: an allocation that fails ends the program with an error.
//!
//! Rust aborts a program whose allocation fails. Stable Rust has no hook for a failed allocation,
//! but the abort raises SIGABRT. [`end_with_an_error`] handles this signal, if the last allocation
//! has failed. Callers that can go on without the memory, such as `try_reserve`, do not abort.
//!
//! A thread that starts needs a stack for its signals. Without memory for this stack, the standard
//! library panics. [`end_with_an_error`] also ends the program in the hook of this panic.

#![allow(unsafe_code, reason = "an allocator that counts, and a handler of a signal")]

use super::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use remat::ByteSize;
use remat::unstable::files::WholeFile;
use signal_hook::low_level::exit;
use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Cursor, Write};
use std::time::Duration;

/// The allocator of the system. `Watched` keeps the size of the allocation that failed last.
struct Watched;

#[global_allocator]
static ALLOCATOR: Watched = Watched;

/// Bytes of the allocation that failed last; 0 if none has failed.
static FAILED: AtomicUsize = AtomicUsize::new(0);

/// Longest time that a second thread without memory waits for the first thread to end the program.
const AT_MOST: Duration = Duration::from_secs(10);

/// Whether some thread has begun to report the end of memory.
static IS_TOLD: AtomicBool = AtomicBool::new(false);

fn watched(memory: *mut u8, bytes: usize) -> *mut u8 {
    if memory.is_null() {
        FAILED.store(bytes, Ordering::Relaxed);
    }
    memory
}

// SAFETY: all calls are passed on unchanged to the allocator of the system.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `GlobalAlloc`, which is also the contract of
        // `System`.
        watched(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        watched(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: as above; `memory` came from `System`.
        watched(unsafe { System.realloc(memory, layout, bytes) }, bytes)
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above; `memory` came from `System`.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Reports that `what` has failed, removes unfinished files and ends the program.
fn end(what: std::fmt::Arguments<'_>) -> ! {
    // A second thread has nothing to add, but must not end the program before the first thread has
    // made its report.
    if IS_TOLD.swap(true, Ordering::Relaxed) {
        std::thread::sleep(AT_MOST);
    } else {
        // The message is built without an allocation and sent in one write, because another thread
        // may report its own failure at this moment.
        let mut line = Cursor::new([0; 512]);
        let _ = writeln!(
            line,
            "error: the system has no more memory: {what} failed; free memory, raise its limit (ulimit -v), or use \
             less data, smaller sizes or fewer threads"
        );
        let end = line.position() as usize;
        let _ = std::io::stderr().write_all(&line.get_ref()[..end]);
        WholeFile::remove_unfinished();
    }
    exit(1)
}

/// Makes the program end with an error when memory runs out. Unfinished files are removed.
pub fn end_with_an_error() {
    let panicked = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        // Message of the standard library about a thread's stack for signals, or about the guard
        // page of this stack.
        if panic.payload_as_str().is_some_and(|said| {
            said.starts_with("failed to ") && said.contains("alternative stack")
        }) {
            end(format_args!("the start of a thread"));
        }
        panicked(panic);
    }));
    #[cfg(unix)]
    {
        let aborted = || {
            let bytes = FAILED.load(Ordering::Relaxed);
            if bytes != 0 {
                end(format_args!("an allocation of {}", ByteSize(bytes as u64)));
            }
        };
        // If the signal cannot be handled, the program is aborted, as without `end_with_an_error`.
        // SAFETY: the thread that aborts raises the signal itself, between two calls of the
        // allocator. The closure therefore interrupts no other code, and may take locks.
        let _ = unsafe { signal_hook::low_level::register(signal_hook::consts::SIGABRT, aborted) };
    }
}
