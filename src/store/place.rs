//! Allocating, freeing and moving blocks of memory.

use super::{Action, Store};
use crate::device::{Device, Place};
use crate::error::Error;
use crate::graph::{Owner, StorageKey};
use crate::guard::guarded;
use crate::layout::Layout;
use remat_memory::{Held, Move, Region, RegionSource};

/// Device as a source of memory. `take` allocates the bytes that begin at `taken`.
struct Regions<'a, D> {
    device: &'a mut D,
    taken: u64,
}

impl<D: Device> RegionSource for Regions<'_, D> {
    fn take(&mut self, bytes: u64) -> Option<Region> {
        let range = self.taken..self.taken + bytes;
        // A device without further memory is not an error: the engine then evicts.
        guarded("taking memory", || self.device.take(range)).ok()?;
        let region = Region { start: self.taken, bytes };
        self.taken = region.end();
        Some(region)
    }

    fn give_back(&mut self, region: Region) {
        self.device.give_back(region.start..region.end());
    }

    fn may_join(&self, _below: Region, _above: Region) -> bool {
        true
    }
}

impl<D: Device> Store<D> {
    /// Allocates a block of at least `bytes` bytes. Returns `None` if no hole is large enough.
    #[inline(always)]
    pub fn place(&mut self, bytes: u64, owner: Owner) -> Option<Held> {
        if self.script.is_some() {
            return self.place_by_script(bytes, owner.number());
        }
        let held = self.space.alloc(bytes, owner.number())?;
        if let Some(tape) = &mut self.tape {
            std::hint::cold_path();
            tape.take(held, self.space.offset(held), owner.number());
        }
        Some(held)
    }

    /// Allocates more memory from a device that provides it on demand, so that a block of `bytes`
    /// bytes fits. Returns whether any memory was allocated.
    pub fn grow(&mut self, bytes: u64) -> bool {
        let taken = self.space.taken();
        self.space.grow(bytes, &mut Regions { device: &mut self.device, taken })
    }

    /// Frees a block, unless the tape keeps the block. No other method takes a block away from a
    /// storage.
    #[inline]
    pub fn free(&mut self, held: Held) {
        if self.tape.is_none() || !self.write_down_free(held) {
            self.give_back(held);
        }
    }

    /// Notes on the tape that a block is freed. Returns true if the tape keeps the block allocated.
    #[cold]
    fn write_down_free(&mut self, held: Held) -> bool {
        let Some(tape) = &mut self.tape else { return false };
        // The owner is needed only for plans, which are made only with an arena.
        let owner = self
            .space
            .arena()
            .map_or_else(|| Owner::Scratch.number(), |arena| arena.owner(held.block()));
        tape.give(held, self.space.offset(held), owner)
    }

    /// Frees a block without a note on the tape.
    #[inline]
    pub fn give_back(&mut self, held: Held) {
        if self.space.arena().is_none() {
            std::hint::cold_path();
            self.device.release(self.space.offset(held));
        }
        self.space.free(held);
    }

    /// Sets the limit on bytes in use. All blocks lie below the limit, so the device may use the
    /// memory above the limit for other purposes.
    pub fn set_limit(&mut self, bytes: u64) -> Result<(), Error> {
        let (before, taken) = (self.space.limit(), self.space.taken());
        if self.space.arena().is_none() || self.space.grows() {
            self.space.set_limit(bytes);
            self.space.trim(&mut Regions { device: &mut self.device, taken });
            return Ok(());
        }
        if bytes > before {
            guarded("raising the budget", || self.device.take(before..bytes))?;
        }
        self.space.set_limit(bytes);
        if bytes < before {
            self.device.give_back(bytes..before);
        }
        Ok(())
    }

    /// Returns moves that make a hole of `bytes` bytes. At least `bytes` bytes must be free. While
    /// a turn is taped for a plan, blocks from before the turn move only if no other moves suffice.
    pub fn plan_compaction(&self, bytes: u64) -> Vec<Move> {
        let tape = self.tape.as_ref();
        let moves = tape
            .and_then(|tape| self.space.plan_compaction(bytes, |owner| !tape.is_of_before(owner)));
        let moves = moves.or_else(|| self.space.plan_compaction(bytes, |_| true));
        moves.expect("all blocks may move")
    }

    /// Moves a block, on the device and in the tables.
    pub fn relocate(&mut self, step: &Move) -> Result<(), Error> {
        guarded("moving a block", || self.device.copy(step.from, step.to, step.bytes))?;
        if let Some(tape) = &mut self.tape {
            tape.relocate(step);
        }
        // Update the tables after each move, so that the tables are right even if the next move
        // fails.
        self.space.apply_move(step);
        Ok(())
    }

    /// Copies the elements of a resident tensor to the block `to`, in packed layout.
    pub fn duplicate(
        &mut self,
        from: StorageKey,
        look: Layout,
        to: Held,
        packed: Layout,
    ) -> Result<(), Error> {
        let held = self.graph.held(from).expect("what is copied is resident");
        if let Some(tape) = &mut self.tape {
            tape.push(|record, _| Action::Copy {
                from: record.operand(held, look),
                to: record.operand(to, packed),
            });
        }
        if self.is_done()? {
            return Ok(());
        }
        let from = Place { storage: self.space.offset(held), layout: look };
        let to = Place { storage: self.space.offset(to), layout: packed };
        guarded("copying the old value of an update", || self.device.duplicate(from, to))
    }
}
