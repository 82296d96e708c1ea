//! Tapes. A tape records a store's actions in order: the kernels that ran, their blocks, and when
//! each block was in use. Plans are made from tapes.

use crate::graph::{Owner, PathKey};
use crate::layout::Layout;
use remat_memory::{Block, Held, Move};
use rustc_hash::{FxHashMap, FxHashSet};
use std::ops::Range;

/// Block of a tensor, by its number in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spot {
    /// Block that was allocated before the tape began: index into [`Record::before`].
    Before(u32),
    /// Block that was allocated since the tape began: index into [`Record::lives`].
    Taken(u32),
}

/// Block of a tensor, and the tensor's layout in the block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Operand {
    pub spot: Spot,
    pub layout: Layout,
}

/// Action of a device, or the eviction of a block.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Run of a kernel.
    Run {
        /// Operands: the inputs, followed by the outputs.
        operands: Vec<Operand>,
        inputs: usize,
        /// Block of the workspace, and bytes needed.
        workspace: Option<(Spot, u64)>,
        flops: f64,
        again: Again,
    },
    /// Upload of a value from the host.
    Upload { to: Operand, again: Again },
    /// Copy of an old value for an update in place.
    Copy { from: Operand, to: Operand },
    /// Read of a value by the host.
    Read { from: Operand },
    /// Eviction of a block because memory is short.
    Evict { block: u32 },
    /// Move of the first `bytes` bytes of block `from`, to make a hole. After the move, the block
    /// has the number `to`.
    Move { from: u32, to: u32, bytes: u64 },
}

/// Number of the first run that an action repeats, counted over all first runs; `None` if the
/// action repeats no run.
pub(crate) type Again = Option<u32>;

impl Action {
    /// Whether the action was done because memory is short. A script repeats an action for lack of
    /// memory before the command that needed the memory.
    pub const fn is_for_room(&self) -> bool {
        matches!(self, Self::Evict { .. } | Self::Move { .. }) || self.again().is_some()
    }

    /// Number of the first run that the action repeats, if any.
    pub const fn again(&self) -> Again {
        match *self {
            Self::Run { again, .. } | Self::Upload { again, .. } => again,
            _ => None,
        }
    }

    /// Whether a device writes to memory for the action.
    pub const fn writes(&self) -> bool {
        matches!(self, Self::Run { .. } | Self::Upload { .. } | Self::Copy { .. })
    }
}

/// Lifetime of a block: the block is in use during the actions `lower..upper`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Life {
    pub bytes: u64,
    /// Offset of the first byte.
    pub offset: u64,
    /// Number that the block had before it was moved to `offset`; `None` if it was not moved.
    pub moved_from: Option<u32>,
    pub lower: usize,
    /// End of the lifetime; `None` if the block is still in use.
    pub upper: Option<usize>,
    /// Whether any action used the block. A block stays unused if memory does not suffice for the
    /// run for which the block was allocated.
    pub is_used: bool,
}

/// Block allocated before the tape began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before {
    pub held: Held,
    pub went: bool,
}

/// Actions, and the lifetimes of their blocks.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub actions: Vec<Action>,
    /// Lifetime of each allocated block, in the order of allocation.
    pub lives: Vec<Life>,
    /// Blocks allocated before the tape began that were used or freed since. Blocks from before the
    /// tape that are neither used nor freed are left out.
    pub before: Vec<Before>,
    /// Number of each known block; `None` for blocks that are not in the record. A block that has
    /// no entry in `spots` was allocated before the tape began.
    spots: FxHashMap<Block, Option<Spot>>,
    /// Reason why the record cannot be planned.
    pub spoiled: Option<&'static str>,
}

impl Record {
    fn take(&mut self, held: Held, offset: u64) {
        let (bytes, lower) = (held.bytes, self.actions.len());
        let (moved_from, upper, is_used) = (None, None, false);
        self.lives.push(Life { bytes, offset, moved_from, lower, upper, is_used });
        self.spots.insert(held.block(), Some(Spot::Taken(self.lives.len() as u32 - 1)));
    }

    /// Marks the record as impossible to plan if `is_so` is true. `why` is the reason; only the
    /// first reason is kept.
    pub fn spoil_if(&mut self, is_so: bool, why: &'static str) {
        self.spoiled = self.spoiled.or(is_so.then_some(why));
    }

    /// Ends the lifetime of a freed block. Returns the block's number.
    fn give(&mut self, held: Held) -> Option<Spot> {
        let spot = self.forget(held);
        spot.inspect(|&spot| self.end(spot))
    }

    fn forget(&mut self, held: Held) -> Option<Spot> {
        let spot = self.find(held);
        self.spots.remove(&held.block());
        spot
    }

    /// Number of a block. An unknown block counts as allocated before the tape began, and gets a
    /// number. Returns `None` if the block is not in the record.
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

    /// Range `[from, to)` of actions during which a block must stay allocated.
    pub fn span(&self, life: &Life) -> (u64, u64) {
        // A block that is still in use gets a lifetime that ends after the last action, so that it
        // counts as in use at the end.
        let upper = life.upper.unwrap_or(self.actions.len() + 1).max(life.lower + 1);
        (life.lower as u64, upper as u64)
    }

    /// Number of a block allocated since the tape began; `None` for all other blocks.
    pub fn taken(&self, held: Held) -> Option<u32> {
        match self.spots.get(&held.block()) {
            Some(Some(Spot::Taken(number))) => Some(*number),
            _ => None,
        }
    }

    pub fn operand(&mut self, held: Held, layout: Layout) -> Operand {
        let spot = self.find(held).unwrap_or_else(|| {
            self.spoil_if(true, "an unknown block was used");
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

/// Tape of one turn: two records of the same commands.
#[derive(Debug, Default)]
pub(crate) struct Tape {
    /// Actions as they would be if the memory were larger or had no holes. A value that was evicted
    /// for lack of memory and later restored counts as resident in between, so runs that restore
    /// values are left out.
    pub plentiful: Record,
    /// Actions that were really done.
    pub short: Record,
    /// An entry for each evictable storage that lost its last handle, in the order of these losses:
    /// whether the storage stayed resident.
    pub unheld_stays: Vec<bool>,
    /// An entry for each leaf that lost its last handle and is no smaller than the values computed
    /// from it, in the order of these losses: whether the leaf gave way to them.
    pub gives_way: Vec<bool>,
    /// Freed blocks that were allocated before the tape began, each with its owner and its range of
    /// bytes.
    pub went: FxHashMap<Block, (u64, Range<u64>)>,
    /// Owners of blocks allocated since the tape began. The list is empty unless `keeps_before` is
    /// set.
    new: FxHashSet<u64>,
    /// Freed blocks that were allocated before the tape began. While memory suffices, the bytes of
    /// kept blocks are not allocated again. The list is empty unless `keeps_before` is set.
    pub kept: Vec<Held>,
    keeps_before: bool,
    /// Blocks in `plentiful` whose storages are evicted but still held, by owner.
    away: FxHashMap<u64, Spot>,
    /// Current run: its path, and whether the path ran before.
    run: (Option<PathKey>, bool),
    /// Number of first runs so far.
    firsts: u32,
    /// Number of the first run of each path, counted over all first runs.
    paths: FxHashMap<PathKey, u32>,
    /// Whether the current command has begun its own actions. Moves, evictions and repeated runs
    /// only prepare the command, and are not its own actions.
    is_begun: bool,
    /// Blocks that the current command freed. Blocks freed by evictions and repeated runs are left
    /// out.
    ended: Vec<u32>,
}

impl Tape {
    /// Makes an empty tape. If `is_short` is set, memory cannot hold all values of the turn at
    /// once, so only the record `short` may become a plan.
    pub fn new(is_short: bool) -> Self {
        Self { keeps_before: is_short, ..Self::default() }
    }

    /// Whether the owner's block was allocated before the tape began and must not be moved.
    pub fn is_of_before(&self, owner: u64) -> bool {
        self.keeps_before && Owner::storage(owner).is_some() && !self.new.contains(&owner)
    }

    /// Number of bytes from the first to the last block used since the tape began. The bytes of
    /// older blocks within the range do not count. Also returns the offset of the first byte;
    /// `None` if older blocks lie within the range.
    ///
    /// `there` has the byte ranges of the older blocks that are still in use.
    pub fn spread(&self, there: impl Iterator<Item = Range<u64>>) -> (u64, Option<u64>) {
        let Some(used) = self.used() else { return (0, None) };
        let among = |before: Range<u64>| {
            before.end.min(used.end).saturating_sub(before.start.max(used.start))
        };
        let went = self.went.values().map(|(_, range)| range.clone());
        let among: u64 = there.chain(went).map(among).sum();
        (used.end - used.start - among, (among == 0).then_some(used.start))
    }

    /// Range of bytes from the first to the last block used since the tape began.
    fn used(&self) -> Option<Range<u64>> {
        let used = || self.short.lives.iter().filter(|life| life.is_used);
        let start = used().map(|life| life.offset).min()?;
        let end = used().map(|life| life.offset + life.bytes).max()?;
        Some(start..end)
    }

    /// Begins a command. Returns the current lengths of both records.
    pub fn next_command(&mut self) -> Ends {
        self.is_begun = false;
        self.ended.clear();
        self.ends()
    }

    pub fn ends(&self) -> Ends {
        Ends { plentiful: self.plentiful.actions.len(), short: self.short.actions.len() }
    }

    /// Begins a run. `path` is `None` for work that runs only once.
    pub fn begin_run(&mut self, path: Option<PathKey>, again: bool) {
        self.run = (path, again);
    }

    /// Ends the run that [`Self::begin_run`] began.
    pub fn end_run(&mut self) {
        self.run = (None, false);
    }

    /// Notes that a block at `offset` is allocated for `owner`.
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

    /// Notes that `owner` frees a block at `offset`. Returns whether the tape [keeps](Self::kept)
    /// the block.
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

    /// Returns all kept blocks, to be freed because memory is short.
    pub fn take_back(&mut self) -> Vec<Held> {
        self.short.spoil_if(!self.kept.is_empty(), "memory was too short to keep old values");
        std::mem::take(&mut self.kept)
    }

    /// Notes that a block is moved to make a hole.
    pub fn relocate(&mut self, step: &Move) {
        let Some(Some(Spot::Taken(from))) = self.short.spots.get(&step.block).copied() else {
            return self.short.spoil_if(true, "a block that is held between steps was moved");
        };
        let lives = &mut self.short.lives;
        let to = lives.len() as u32;
        let moved = &mut lives[from as usize];
        if !moved.is_used {
            // A block without a value need not be moved: its lifetime begins at the new address.
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

    /// Notes the eviction of a block because memory is short. `is_held` is true if a handle holds
    /// the storage; otherwise the storage only serves to recompute others.
    pub fn evict(&mut self, held: Held, owner: u64, is_held: bool) {
        if is_held {
            self.away.extend(self.plentiful.forget(held).map(|spot| (owner, spot)));
            self.plentiful.spots.insert(held.block(), None);
        }
        match self.short.give(held) {
            Some(Spot::Taken(block)) if self.short.lives[block as usize].is_used => {
                self.push_for_room(Action::Evict { block });
            }
            _ => self.short.spoil_if(true, "a tensor from an earlier step was evicted"),
        }
        self.short.spots.insert(held.block(), None);
    }

    /// Marks both records of the tape as impossible to plan.
    pub fn spoil(&mut self, why: &'static str) {
        self.plentiful.spoil_if(true, why);
        self.short.spoil_if(true, why);
    }

    /// Notes that no handle holds the owner's storage any more. In the record `plentiful`, the
    /// storage's bytes are freed now. `held` is the block, if the storage is resident.
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

    /// Adds an action to both records. `action` is called once for each record.
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
                self.short.spoil_if(first.is_none(), "an op of an earlier step ran again");
                let done = action(&mut self.short, first);
                self.push_for_room(done);
            }
        }
    }

    /// Adds an action that frees memory for the current command. A script repeats the action before
    /// the current command. Blocks that the current command has already freed thus count as still
    /// in use during the action.
    fn push_for_room(&mut self, action: Action) {
        self.short.spoil_if(self.is_begun, "memory was freed in the middle of a command");
        self.short.actions.push(action);
        for &block in &self.ended {
            self.short.lives[block as usize].upper = Some(self.short.actions.len());
        }
    }
}

/// Numbers of actions in the two records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    pub plentiful: usize,
    pub short: usize,
}
