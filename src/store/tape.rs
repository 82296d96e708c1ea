//! What a store did, in order, so that it can be planned and done again: which kernels ran where, and when each block was
//! in use.

use crate::graph::{Owner, PathKey};
use crate::layout::Layout;
use crate::memory::{Block, Held, Move};
use rustc_hash::{FxHashMap, FxHashSet};
use std::ops::Range;

/// Where bytes were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spot {
    /// In a block that was there before, by its number among those of them that the record speaks of.
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

/// Something that a device was asked for, or did not need to be.
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
        again: Again,
    },
    /// A value came from the host.
    Upload { to: Operand, again: Again },
    /// An old value was copied for an update.
    Copy { from: Operand, to: Operand },
    /// The host read a value.
    Read { from: Operand },
    /// The bytes in a block that was taken went, for want of room.
    Evict { block: u32 },
    /// So many bytes of a block that was taken moved, to make a hole: it goes by another number from then on.
    Move { from: u32, to: u32, bytes: u64 },
}

/// Of what ran before: the how manieth it was, of all that ran for the first time.
pub(crate) type Again = Option<u32>;

impl Action {
    /// Whether it was done because memory is short. A script does that before the command that it was done for.
    pub const fn is_for_room(&self) -> bool {
        matches!(self, Self::Evict { .. } | Self::Move { .. }) || self.again().is_some()
    }

    /// Of what it does again.
    pub const fn again(&self) -> Again {
        match *self {
            Self::Run { again, .. } | Self::Upload { again, .. } => again,
            _ => None,
        }
    }

    /// Whether it is asked of a device by a store.
    pub const fn writes(&self) -> bool {
        matches!(self, Self::Run { .. } | Self::Upload { .. } | Self::Copy { .. })
    }
}

/// How long a block was in use: from before the action of this number, the first that needed it, up to before that one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Life {
    pub bytes: u64,
    /// First byte.
    pub offset: u64,
    /// If it was moved there: its number before.
    pub moved_from: Option<u32>,
    pub lower: usize,
    /// `None` if it is in use still.
    pub upper: Option<usize>,
    /// Whether anything was done with it. Otherwise it was taken for what then had no room.
    pub is_used: bool,
}

/// A block that was there before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before {
    pub held: Held,
    pub went: bool,
}

/// What was done, and which blocks were in use meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub actions: Vec<Action>,
    /// Of each block taken, in the order in which they were.
    pub lives: Vec<Life>,
    /// Blocks that were there before and with which something was done, or that went. Nobody asks about others.
    pub before: Vec<Before>,
    /// Where blocks are; `None` for those that are not in this record. All others were there before.
    spots: FxHashMap<Block, Option<Spot>>,
    /// Why it cannot be planned.
    pub spoiled: Option<&'static str>,
}

impl Record {
    fn take(&mut self, held: Held, offset: u64) {
        let (bytes, lower) = (held.bytes, self.actions.len());
        let (moved_from, upper, is_used) = (None, None, false);
        self.lives.push(Life { bytes, offset, moved_from, lower, upper, is_used });
        self.spots.insert(held.block(), Some(Spot::Taken(self.lives.len() as u32 - 1)));
    }

    /// It cannot be planned if this is so.
    pub fn spoil_if(&mut self, is_so: bool, why: &'static str) {
        self.spoiled = self.spoiled.or(is_so.then_some(why));
    }

    /// A block goes. Returns where it was.
    fn give(&mut self, held: Held) -> Option<Spot> {
        let spot = self.forget(held);
        spot.inspect(|&spot| self.end(spot))
    }

    fn forget(&mut self, held: Held) -> Option<Spot> {
        let spot = self.find(held);
        self.spots.remove(&held.block());
        spot
    }

    /// Where a block is; `None` if it is not in this record.
    fn find(&mut self, held: Held) -> Option<Spot> {
        let before = &mut self.before;
        *self.spots.entry(held.block()).or_insert_with(|| {
            before.push(Before { held, went: false });
            Some(Spot::Before(before.len() as u32 - 1))
        })
    }

    fn end(&mut self, spot: Spot) {
        match spot {
            Spot::Before(number) => self.before[number as usize].went = true,
            Spot::Taken(number) => self.lives[number as usize].upper = Some(self.actions.len()),
        }
    }

    /// From when to when it is to be there.
    pub fn span(&self, life: &Life) -> (u64, u64) {
        // One longer than there are actions, for what is there then.
        let upper = life.upper.unwrap_or(self.actions.len() + 1).max(life.lower + 1);
        (life.lower as u64, upper as u64)
    }

    /// Which of the blocks taken this is.
    pub fn taken(&self, held: Held) -> Option<u32> {
        match self.spots.get(&held.block()) {
            Some(Some(Spot::Taken(number))) => Some(*number),
            _ => None,
        }
    }

    pub fn operand(&mut self, held: Held, layout: Layout) -> Operand {
        let spot = self.find(held).unwrap_or_else(|| {
            self.spoil_if(true, "a block was used that nobody knows of");
            Spot::Before(0)
        });
        if let Spot::Taken(block) = spot
            && let life @ Life { is_used: false, .. } = &mut self.lives[block as usize]
        {
            (life.lower, life.is_used) = (self.actions.len(), true);
        }
        Operand { spot, layout }
    }
}

/// Two records of the same turn.
#[derive(Debug, Default)]
pub(crate) struct Tape {
    /// What would be done in a larger memory, or in one without holes. Bytes that were evicted for room and brought back are
    /// taken to have been there all the time, and what ran again to bring them back did not run.
    pub plentiful: Record,
    /// What was done.
    pub short: Record,
    /// Whether each storage that lost its last handle stayed, in order.
    pub unheld_stays: Vec<bool>,
    /// The blocks of before that went: whose they were, and where.
    pub went: FxHashMap<Block, (u64, Range<u64>)>,
    /// If what was there before is to stay where it is: owners of what was taken since.
    new: FxHashSet<u64>,
    /// Blocks of before that went: they are not used for anything else meanwhile, if it goes without them. Only where `short`
    /// may become a plan.
    pub kept: Vec<Held>,
    keeps_before: bool,
    /// Where evicted bytes would be in a larger memory, by their owner.
    away: FxHashMap<u64, Spot>,
    /// The run at hand: its path, and whether that ran before.
    run: (Option<PathKey>, bool),
    /// So many ran for the first time, and of their paths, the how manieth it was.
    firsts: u32,
    paths: FxHashMap<PathKey, u32>,
    /// Whether the command at hand had done something of its own.
    is_begun: bool,
    /// Blocks that went in the command at hand, though not for room.
    ended: Vec<u32>,
}

impl Tape {
    /// `is_short`: if there is no room for all of the turn, it may be planned all the same.
    pub fn new(is_short: bool) -> Self {
        Self { keeps_before: is_short, ..Self::default() }
    }

    /// Whether a block that is to stay where it is belongs to this owner: it was there before.
    pub fn is_of_before(&self, owner: u64) -> bool {
        self.keeps_before && Owner::storage(owner).is_some() && !self.new.contains(&owner)
    }

    /// Over how many bytes the blocks are spread that were used since, those of before among them left out; and the first of
    /// all these bytes, `None` if blocks of before were among them. `there` is what is there now of before.
    pub fn spread(&self, there: impl Iterator<Item = Range<u64>>) -> (u64, Option<u64>) {
        let Some(used) = self.used() else { return (0, None) };
        let among = |before: Range<u64>| {
            before.end.min(used.end).saturating_sub(before.start.max(used.start))
        };
        let went = self.went.values().map(|(_, range)| range.clone());
        let among: u64 = there.chain(went).map(among).sum();
        (used.end - used.start - among, (among == 0).then_some(used.start))
    }

    /// From the first of the bytes that were used since to the last.
    fn used(&self) -> Option<Range<u64>> {
        let used = || self.short.lives.iter().filter(|life| life.is_used);
        let start = used().map(|life| life.offset).min()?;
        let end = used().map(|life| life.offset + life.bytes).max()?;
        Some(start..end)
    }

    /// A command begins. Returns how many actions there are in the two records.
    pub fn next_command(&mut self) -> Ends {
        self.is_begun = false;
        self.ended.clear();
        self.ends()
    }

    pub fn ends(&self) -> Ends {
        Ends { plentiful: self.plentiful.actions.len(), short: self.short.actions.len() }
    }

    /// A path is run, or what is run only once.
    pub fn begin_run(&mut self, path: Option<PathKey>, again: bool) {
        self.run = (path, again);
    }

    /// That is over: it was kept.
    pub fn end_run(&mut self) {
        self.run = (None, false);
    }

    /// A block is taken for an owner.
    pub fn take(&mut self, held: Held, offset: u64, owner: u64) {
        if self.keeps_before {
            self.new.insert(owner);
        }
        self.short.take(held, offset);
        let is_again = self.run.1;
        match self.away.remove(&owner) {
            None if is_again => _ = self.plentiful.spots.insert(held.block(), None),
            None => self.plentiful.take(held, offset),
            back => _ = self.plentiful.spots.insert(held.block(), back),
        }
    }

    /// A block goes, that began there and was that owner's. Whether it is to be [kept](Self::kept).
    pub fn give(&mut self, held: Held, offset: u64, owner: u64) -> bool {
        self.plentiful.give(held);
        match self.short.give(held) {
            Some(Spot::Taken(block)) if !self.run.1 => self.ended.push(block),
            Some(Spot::Before(_)) => {
                self.went.insert(held.block(), (owner, offset..offset + held.bytes));
                if self.keeps_before {
                    self.kept.push(held);
                    return true;
                }
            }
            _ => {}
        }
        false
    }

    /// What is kept is needed. Returns that.
    pub fn take_back(&mut self) -> Vec<Held> {
        self.short.spoil_if(!self.kept.is_empty(), "memory was too short to keep old values");
        std::mem::take(&mut self.kept)
    }

    /// A block is moved to make a hole.
    pub fn relocate(&mut self, step: &Move) {
        let Some(Some(Spot::Taken(from))) = self.short.spots.get(&step.block).copied() else {
            return self.short.spoil_if(true, "what is there between steps was moved");
        };
        let lives = &mut self.short.lives;
        let to = lives.len() as u32;
        let moved = &mut lives[from as usize];
        if !moved.is_used {
            // What is to be made there is not there yet.
            moved.offset = step.to;
            return;
        }
        let lower = self.short.actions.len();
        moved.upper = Some(lower);
        let life = Life { offset: step.to, moved_from: Some(from), lower, upper: None, ..*moved };
        lives.push(life);
        self.short.spots.insert(step.block, Some(Spot::Taken(to)));
        self.push_for_room(Action::Move { from, to, bytes: step.bytes });
    }

    /// The block of an owner goes for want of room. `is_held`: its bytes will be wanted again, and not only to bring back
    /// others.
    pub fn evict(&mut self, held: Held, owner: u64, is_held: bool) {
        if is_held {
            self.away.extend(self.plentiful.forget(held).map(|spot| (owner, spot)));
            self.plentiful.spots.insert(held.block(), None);
        }
        match self.short.give(held) {
            Some(Spot::Taken(block)) if self.short.lives[block as usize].is_used => {
                self.push_for_room(Action::Evict { block });
            }
            _ => self.short.spoil_if(true, "something of before was evicted"),
        }
        self.short.spots.insert(held.block(), None);
    }

    /// Something happened to a block that is no part of any plan.
    pub fn spoil(&mut self, why: &'static str) {
        self.plentiful.spoil_if(true, why);
        self.short.spoil_if(true, why);
    }

    /// Nobody holds an owner's bytes any more: in a larger memory, they would go now. `held` is where they are.
    pub fn forget(&mut self, held: Option<Held>, owner: u64) {
        let known = held.and_then(|held| {
            let spot = self.plentiful.find(held);
            self.plentiful.spots.insert(held.block(), None);
            spot
        });
        if let Some(spot) = known.or_else(|| self.away.remove(&owner)) {
            self.plentiful.end(spot);
        }
    }

    /// Something is done, in terms of a record.
    pub fn push(&mut self, action: impl Fn(&mut Record, Again) -> Action) {
        match self.run {
            (path, false) => {
                self.is_begun = true;
                let done = action(&mut self.plentiful, None);
                if matches!(done, Action::Run { .. } | Action::Upload { .. }) {
                    self.paths.extend(path.map(|path| (path, self.firsts)));
                    self.firsts += 1;
                }
                self.plentiful.actions.push(done);
                let done = action(&mut self.short, None);
                self.short.actions.push(done);
            }
            (path, true) => {
                let first = path.and_then(|path| self.paths.get(&path)).copied();
                self.short.spoil_if(first.is_none(), "something of before ran again");
                let done = action(&mut self.short, first);
                self.push_for_room(done);
            }
        }
    }

    /// Before the command that it was done for, a script does this. So what went in that command is in use until then.
    fn push_for_room(&mut self, action: Action) {
        self.short.spoil_if(self.is_begun, "room was made in the middle of a command");
        self.short.actions.push(action);
        for &block in &self.ended {
            self.short.lives[block as usize].upper = Some(self.short.actions.len());
        }
    }
}

/// How many actions there are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    pub plentiful: usize,
    pub short: usize,
}
