//! What a store did, in order, so that it can be planned and done again: which kernels ran where, and when each block was
//! in use.

use crate::layout::Layout;
use crate::memory::Held;
use rustc_hash::FxHashMap;

/// Where bytes were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spot {
    /// In a block that was there before, by its number among those.
    Before(u32),
    /// In a block that was taken since, by its number among those.
    Taken(u32),
}

/// A tensor's bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Operand {
    pub spot: Spot,
    pub layout: Layout,
}

/// Something that a device was asked for.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// A kernel.
    Run {
        /// Inputs, then outputs.
        operands: Vec<Operand>,
        inputs: usize,
        /// Where its workspace was, and how many bytes it has.
        workspace: Option<(Spot, u64)>,
        flops: f64,
    },
    /// A value came from the host.
    Upload { to: Operand },
    /// An old value was copied for an update.
    Copy { from: Operand, to: Operand },
    /// The host read a value.
    Read { from: Operand },
}

/// How long a block was in use: from before the action of this number up to before that one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Life {
    pub bytes: u64,
    pub lower: usize,
    /// `None` if it is in use still.
    pub upper: Option<usize>,
}

/// See the [module](self) documentation.
///
/// What is done because memory is short is left out: bytes that were evicted for room and brought back are taken to have been
/// there all the time, and what ran again to bring them back did not run. So the tape is what would have been done in a
/// larger memory, or in one without holes.
#[derive(Debug, Default)]
pub(crate) struct Tape {
    pub actions: Vec<Action>,
    /// Of each block taken, in the order in which they were.
    pub lives: Vec<Life>,
    /// Of each block that was there before: whether it went.
    pub went: Vec<bool>,
    /// Where blocks are; `None` for those that are only there because memory is short.
    spots: FxHashMap<Held, Option<Spot>>,
    /// Where evicted bytes would be, by their owner.
    away: FxHashMap<u64, Spot>,
    /// What is run now ran before.
    pub is_again: bool,
    /// Something was done that cannot be planned: with a block that nobody knows of.
    pub is_spoiled: bool,
}

impl Tape {
    /// These blocks are there before.
    pub fn new(before: impl IntoIterator<Item = Held>) -> Self {
        let mut tape = Self::default();
        for (number, held) in before.into_iter().enumerate() {
            tape.spots.insert(held, Some(Spot::Before(number as u32)));
            tape.went.push(false);
        }
        tape
    }

    /// A block is taken for an owner.
    pub fn take(&mut self, held: Held, owner: u64) {
        let spot = match self.away.remove(&owner) {
            None if self.is_again => None,
            None => {
                let (bytes, lower) = (held.bytes, self.actions.len());
                self.lives.push(Life { bytes, lower, upper: None });
                Some(Spot::Taken(self.lives.len() as u32 - 1))
            }
            back => back,
        };
        self.spots.insert(held, spot);
    }

    /// A block goes.
    pub fn give(&mut self, held: Held) {
        match self.spots.remove(&held) {
            Some(Some(spot)) => self.end(spot),
            Some(None) => {}
            None => self.is_spoiled = true,
        }
    }

    /// The block of an owner goes for want of room, and its bytes will be wanted again.
    pub fn evict(&mut self, held: Held, owner: u64) {
        match self.spots.insert(held, None) {
            Some(Some(spot)) => drop(self.away.insert(owner, spot)),
            Some(None) => {}
            None => self.is_spoiled = true,
        }
    }

    /// Nobody holds an owner's bytes any more: in a larger memory, they would go now. `held` is where they are.
    pub fn forget(&mut self, held: Option<Held>, owner: u64) {
        let known = held.and_then(|held| self.spots.get_mut(&held)).and_then(Option::take);
        if let Some(spot) = known.or_else(|| self.away.remove(&owner)) {
            self.end(spot);
        }
    }

    fn end(&mut self, spot: Spot) {
        match spot {
            Spot::Before(number) => self.went[number as usize] = true,
            Spot::Taken(number) => self.lives[number as usize].upper = Some(self.actions.len()),
        }
    }

    /// Where a block is; `None` if it is not known, or would not be there in a larger memory.
    pub fn spot(&self, held: Held) -> Option<Spot> {
        self.spots.get(&held).copied().flatten()
    }

    pub fn operand(&mut self, held: Held, layout: Layout) -> Operand {
        let spot = self.spot(held).unwrap_or_else(|| {
            self.is_spoiled = true;
            Spot::Before(0)
        });
        Operand { spot, layout }
    }
}
