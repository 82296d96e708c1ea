//! Allocator that counts the live bytes of the heap.

// Each test that counts uses a part of this module.
#![allow(dead_code)]

use std::alloc::{GlobalAlloc, Layout as Allocation, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Allocator that counts the live bytes of all threads.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

fn taken(bytes: usize) {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
    PEAK.fetch_max(LIVE.fetch_add(bytes, Relaxed) + bytes, Relaxed);
}

// SAFETY: every method forwards to the system's allocator, with the arguments of its caller. The
// default `realloc` allocates, copies and frees, so both blocks are counted while both exist.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, of: Allocation) -> *mut u8 {
        taken(of.size());
        // SAFETY: the caller upholds the contract of `GlobalAlloc::alloc`, which `System` asks for.
        unsafe { System.alloc(of) }
    }

    unsafe fn alloc_zeroed(&self, of: Allocation) -> *mut u8 {
        taken(of.size());
        // SAFETY: the caller upholds the contract of `alloc_zeroed`, which `System` asks for.
        unsafe { System.alloc_zeroed(of) }
    }

    unsafe fn dealloc(&self, at: *mut u8, of: Allocation) {
        LIVE.fetch_sub(of.size(), Relaxed);
        // SAFETY: `System` allocated the block, in one of the methods above, with layout `of`.
        unsafe { System.dealloc(at, of) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Number of allocations of this thread so far.
pub fn allocations() -> usize {
    ALLOCATIONS.get()
}

/// Bytes on the heap now.
pub fn live() -> usize {
    LIVE.load(Relaxed)
}

/// Peak of the live bytes during `body`, minus the live bytes before; and the result of `body`.
pub fn peak_during<R>(body: impl FnOnce() -> R) -> (usize, R) {
    let before = LIVE.load(Relaxed);
    PEAK.store(before, Relaxed);
    let result = body();
    (PEAK.load(Relaxed) - before, result)
}
