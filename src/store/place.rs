//! Places for bytes: taken, given back, moved.

use super::{Action, Store};
use crate::device::{Device, Place};
use crate::error::Error;
use crate::graph::{Owner, StorageKey};
use crate::guard::guarded;
use crate::layout::Layout;
use crate::memory::{Held, Move, Region, RegionSource};

/// The device as a source of memory, upwards from `taken`.
struct Regions<'a, D> {
    device: &'a mut D,
    taken: u64,
}

impl<D: Device> RegionSource for Regions<'_, D> {
    fn take(&mut self, bytes: u64) -> Option<Region> {
        let range = self.taken..self.taken + bytes;
        // What the device does not have is made up for by evicting.
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
    /// A place for `bytes` bytes, if there is one as things are.
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

    /// Takes memory from the device, where it is taken as needed, so that a block of `bytes` may fit that does not fit
    /// as things are. Whether any was taken.
    pub fn grow(&mut self, bytes: u64) -> bool {
        let taken = self.space.taken();
        self.space.grow(bytes, &mut Regions { device: &mut self.device, taken })
    }

    /// The one door by which bytes go.
    #[inline]
    pub fn free(&mut self, held: Held) {
        if self.tape.is_none() || !self.write_down_free(held) {
            self.give_back(held);
        }
    }

    /// For the tape: a block goes. Whether it is kept.
    #[cold]
    fn write_down_free(&mut self, held: Held) -> bool {
        let Some(tape) = &mut self.tape else { return false };
        // Nothing is planned where there are no places.
        let owner = self
            .space
            .arena()
            .map_or_else(|| Owner::Scratch.number(), |arena| arena.owner(held.block()));
        tape.give(held, self.space.offset(held), owner)
    }

    /// The same, whatever is written down.
    #[inline]
    pub fn give_back(&mut self, held: Held) {
        if self.space.arena().is_none() {
            std::hint::cold_path();
            self.device.release(self.space.offset(held));
        }
        self.space.free(held);
    }

    /// Sets the limit of what may be in use, above which nothing lies. The device may use the memory there for
    /// something else.
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

    /// The moves that make a hole of so many bytes, of as many as are free. What a step finds is let be while the step is
    /// written down, if it goes without.
    pub fn plan_compaction(&self, bytes: u64) -> Vec<Move> {
        let tape = self.tape.as_ref();
        let moves = tape
            .and_then(|tape| self.space.plan_compaction(bytes, |owner| !tape.is_of_before(owner)));
        let moves = moves.or_else(|| self.space.plan_compaction(bytes, |_| true));
        moves.expect("all blocks may move")
    }

    /// Moves a block, on the device and in the books.
    pub fn relocate(&mut self, step: &Move) -> Result<(), Error> {
        guarded("moving a block", || self.device.copy(step.from, step.to, step.bytes))?;
        if let Some(tape) = &mut self.tape {
            tape.relocate(step);
        }
        // At once, so that the books are right should the next one fail.
        self.space.apply_move(step);
        Ok(())
    }

    /// Copies a resident tensor's elements to a place, packed.
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
