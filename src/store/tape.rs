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
#[derive(Debug, Default)]
pub(crate) struct Tape {
    pub actions: Vec<Action>,
    /// Of each block taken, in the order in which they were.
    pub lives: Vec<Life>,
    /// Of each block that was there before: whether it went.
    pub went: Vec<bool>,
    spots: FxHashMap<Held, Spot>,
    /// Something was done that cannot be planned: with a block that nobody knows of.
    pub is_spoiled: bool,
}

impl Tape {
    /// These blocks are there before.
    pub fn new(before: impl IntoIterator<Item = Held>) -> Self {
        let mut tape = Self::default();
        for (number, held) in before.into_iter().enumerate() {
            tape.spots.insert(held, Spot::Before(number as u32));
            tape.went.push(false);
        }
        tape
    }

    pub fn take(&mut self, held: Held) {
        self.spots.insert(held, Spot::Taken(self.lives.len() as u32));
        self.lives.push(Life { bytes: held.bytes, lower: self.actions.len(), upper: None });
    }

    pub fn give(&mut self, held: Held) {
        match self.spots.remove(&held) {
            Some(Spot::Before(number)) => self.went[number as usize] = true,
            Some(Spot::Taken(number)) => {
                self.lives[number as usize].upper = Some(self.actions.len());
            }
            None => self.is_spoiled = true,
        }
    }

    /// Where a block is; `None` if it is not known.
    pub fn spot(&self, held: Held) -> Option<Spot> {
        self.spots.get(&held).copied()
    }

    pub fn operand(&mut self, held: Held, layout: Layout) -> Operand {
        let spot = self.spot(held).unwrap_or_else(|| {
            self.is_spoiled = true;
            Spot::Before(0)
        });
        Operand { spot, layout }
    }
}
