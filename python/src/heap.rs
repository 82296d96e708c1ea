//! Heap for tensors on the CPU, which keeps the memory of the process within the budget.
//!
//! `malloc` keeps freed blocks, but cannot use them for a larger tensor. With `malloc`, a process
//! under a budget grew to several times the budget. The heap of this module places tensors in one
//! range of addresses by best fit. Pages of freed tensors stay with the process, for the next
//! tensors. When all pages together exceed the budget, the heap returns pages of free space to the
//! system.
//!
//! Only operator calls under the budget get memory of the heap.

use crate::ffi::rm_live;
use memmap2::{MmapMut, MmapOptions, UncheckedAdvice};
use remat::unstable::memory::{Arena, Block, Chunk};
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Smallest tensor in the heap, in bytes. `malloc` places smaller tensors, because the gaps that
/// they leave are negligible.
const LEAST: usize = 32 << 10;

/// Largest range of addresses to request, and the smallest range that is useful, in bytes.
const RANGES: (u64, u64) = (1 << 40, 1 << 30);

/// Unit in which pages go back to the system, in bytes.
const UNIT: u64 = 64 << 10;

/// Pages that may be resident beyond the budget: the budget divided by the first number, plus the
/// second number in bytes.
const SLACK: (u64, u64) = (20, 8 << 20);

static HEAP: Mutex<Option<Heap>> = Mutex::new(None);

/// First address of the range, and its length; 0 before there is a heap. The range is never given
/// back.
static RANGE: (AtomicUsize, AtomicUsize) = (AtomicUsize::new(0), AtomicUsize::new(0));

struct Heap {
    map: MmapMut,
    arena: Arena,
    /// Block of each address that was handed out.
    blocks: HashMap<usize, Block>,
    /// Whether each unit may have resident pages. All units of blocks do.
    resident: Vec<bool>,
    /// Number of resident units.
    units: u64,
    /// End of the units that were ever resident.
    top: u64,
    /// Budget in bytes, while one is in use.
    budget: Option<u64>,
}

/// Begins to place tensors in the heap, within a budget.
pub(crate) fn begin(budget: u64) {
    let mut heap = lock();
    if heap.is_none() {
        *heap = Heap::new();
    }
    if let Some(heap) = &mut *heap {
        heap.budget = Some(budget);
    }
}

/// Changes the budget, if one is in use.
pub(crate) fn set_budget(bytes: u64) {
    if let Some(budget) = lock().as_mut().and_then(|heap| heap.budget.as_mut()) {
        *budget = bytes;
    }
}

/// Ends the placing of tensors in the heap. Tensors that are in the heap stay there.
pub(crate) fn end() {
    if let Some(heap) = &mut *lock() {
        heap.budget = None;
        heap.give_back(0);
    }
}

/// Bytes of pages that the heap has, with those of free space.
pub(crate) fn resident() -> u64 {
    lock().as_ref().map_or(0, |heap| heap.units * UNIT)
}

fn lock() -> MutexGuard<'static, Option<Heap>> {
    HEAP.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Heap {
    /// `None` if the system has no range of addresses to give.
    fn new() -> Option<Self> {
        let mut bytes = RANGES.0;
        let map = loop {
            let range = MmapOptions::new().len(bytes as usize).no_reserve_swap().map_anon();
            if let Ok(map) = range {
                break map;
            }
            bytes /= 2;
            if bytes < RANGES.1 {
                return None;
            }
        };
        let base = map.as_ptr() as usize;
        RANGE.0.store(base, Ordering::Release);
        RANGE.1.store(bytes as usize, Ordering::Release);
        Some(Self {
            map,
            arena: Arena::new(bytes),
            blocks: HashMap::new(),
            resident: vec![false; (bytes / UNIT) as usize],
            units: 0,
            top: 0,
            budget: None,
        })
    }

    fn alloc(&mut self, bytes: u64) -> Option<usize> {
        let budget = self.budget?;
        let block = self.arena.alloc(bytes, 0)?;
        let offset = self.arena.offset(block);
        let last = (offset + bytes.max(1) - 1) / UNIT;
        self.top = self.top.max(last + 1);
        for unit in offset / UNIT..=last {
            let resident = &mut self.resident[unit as usize];
            self.units += u64::from(!std::mem::replace(resident, true));
        }
        let address = self.map.as_ptr() as usize + offset as usize;
        self.blocks.insert(address, block);
        // SAFETY: reads a number of the shim.
        let elsewhere = unsafe { rm_live() }.saturating_sub(self.arena.used());
        let most = budget.saturating_add(budget / SLACK.0).saturating_add(SLACK.1);
        self.give_back(most.saturating_sub(elsewhere));
        Some(address)
    }

    fn free(&mut self, address: usize) -> bool {
        let block = self.blocks.remove(&address);
        block.map(|block| self.arena.free(block)).is_some()
    }

    /// Gives pages of free space back to the system, until at most `most` bytes are resident.
    fn give_back(&mut self, most: u64) {
        let most = most / UNIT;
        if self.units <= most {
            return;
        }
        // Among equal holes, the best fit takes the lowest, so space at high addresses is used
        // last. Return this space first.
        for hole in self.arena.chunks().rev().filter(Chunk::is_free) {
            let (mut unit, end) = (hole.offset.div_ceil(UNIT), self.top.min(hole.end() / UNIT));
            while unit < end && self.units > most {
                let run = self.resident[unit as usize..end as usize].iter();
                let run = run.take_while(|resident| **resident).count() as u64;
                if run > 0 {
                    let (start, bytes) = ((unit * UNIT) as usize, (run * UNIT) as usize);
                    // SAFETY: the map is private and anonymous, and no block has bytes in these pages.
                    let _ = unsafe {
                        self.map.unchecked_advise_range(UncheckedAdvice::DontNeed, start, bytes)
                    };
                    self.resident[unit as usize..(unit + run) as usize].fill(false);
                    self.units -= run;
                }
                unit += run.max(1);
            }
        }
    }
}

/// Memory for a tensor; null if `malloc` has to provide it.
#[unsafe(no_mangle)]
extern "C" fn remat_heap_alloc(bytes: usize) -> *mut c_void {
    if bytes < LEAST || RANGE.1.load(Ordering::Relaxed) == 0 {
        return std::ptr::null_mut();
    }
    let address = lock().as_mut().and_then(|heap| heap.alloc(bytes as u64));
    address.map_or(std::ptr::null_mut(), |address| address as *mut c_void)
}

/// Frees memory of the heap. Returns false if the memory is not of the heap.
#[unsafe(no_mangle)]
extern "C" fn remat_heap_free(memory: *mut c_void) -> bool {
    let (base, bytes) = (RANGE.0.load(Ordering::Acquire), RANGE.1.load(Ordering::Acquire));
    let address = memory as usize;
    if address.wrapping_sub(base) >= bytes {
        return false;
    }
    lock().as_mut().is_some_and(|heap| heap.free(address))
}
