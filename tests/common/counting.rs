//! An allocator that counts what lives on the heap.

// Each test that counts uses a part of it.
#![allow(dead_code)]

use std::alloc::{GlobalAlloc, Layout as Allocation, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Counts what lives on the heap, whichever thread took it.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn taken(bytes: usize) {
    PEAK.fetch_max(LIVE.fetch_add(bytes, Relaxed) + bytes, Relaxed);
}

// SAFETY: the system's allocator does the work. What is made larger is taken anew, and so counted with what it
// replaces, as both are there at once.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, of: Allocation) -> *mut u8 {
        taken(of.size());
        // SAFETY: as the caller promised.
        unsafe { System.alloc(of) }
    }

    unsafe fn alloc_zeroed(&self, of: Allocation) -> *mut u8 {
        taken(of.size());
        // SAFETY: as the caller promised.
        unsafe { System.alloc_zeroed(of) }
    }

    unsafe fn dealloc(&self, at: *mut u8, of: Allocation) {
        LIVE.fetch_sub(of.size(), Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(at, of) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes that are on the heap now.
#[allow(dead_code)] // Not all want it.
pub fn live() -> usize {
    LIVE.load(Relaxed)
}

/// Most bytes that were taken during `body`, beside those that were there before.
pub fn peak_during<R>(body: impl FnOnce() -> R) -> (usize, R) {
    let before = LIVE.load(Relaxed);
    PEAK.store(before, Relaxed);
    let result = body();
    (PEAK.load(Relaxed) - before, result)
}
