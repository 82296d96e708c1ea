//! Steps that run by plan: a turn that repeats an earlier turn runs without evictor, allocator or
//! bookkeeping. A *turn* is one execution of a step. Turns with equal commands are of one *kind*.
//!
//! ```text
//! watch    a turn is compared with earlier turns, command by command       (watch.rs, turns.rs)
//! foretell the kind of the next turn is predicted                          (kinds.rs)
//! capture  a turn of a kind that came twice is written down by the store   (engine/planned.rs,
//!                                                                          store/tape.rs)
//! prepare  planners give each of its blocks an address in one large block,
//!          while another turn runs                                         (prepare.rs)
//! enter    at the boundary of a turn the large block is allocated          (enter.rs)
//! follow   expected commands run as kernels on known places                (follow.rs)
//! leave    at an unexpected command the plan is left                       (leave.rs)
//! glance   where turns are all new, only a hash of each is taken           (glance.rs)
//! help     the benefit of plans is measured                                (help.rs)
//! ```
//!
//! When a plan is left, the engine executes the commands of the turn again, but only updates its
//! tables. Each block gets the address that it had in the plan. The recognizer receives the turns
//! that ran by plan. The engine's state is then as if there had been no plan.
//!
//! A repeated turn leaves the engine's tables as they were, so a turn by plan does not write to the
//! tables at all. However, a turn may replace a value that was made before the turn, such as the
//! running statistics of a batch norm. At the end of a turn by plan, a replacing value is copied
//! over the old value. The replacing value takes over the old value's slot in the table of live
//! tensors (`boundary.rs`).
//!
//! Turns of several kinds (training, evaluation) have plans side by side. All plans use one block,
//! which is as large as the largest plan needs.
//!
//! A turn that would fit in memory without gaps between blocks is planned without evictions, even
//! if the captured turn evicted storages. Any other turn is planned as it ran, with the same
//! evictions and recomputation. A plan with evictions repeats the moves of blocks too, unless the
//! planners find addresses that need no moves.
//!
//! Only marked steps are planned, and only if all values at the boundaries of the step are leaves.

mod boundary;
mod enter;
mod follow;
mod glance;
mod help;
mod kinds;
mod leave;
mod prepare;
mod turns;
mod watch;

use super::books::Books;
use super::recognize::Recognition;
use super::rest::Rest;
use crate::command::Command;
use crate::device::{Device, Place};
use crate::engine::Totals;
use crate::layout::Layout;
use crate::store::Action;
use boundary::Boundary;
pub(super) use follow::{Followed, Next};
use glance::{Glance, Seen};
use help::{Help, Stopwatch};
use kinds::Kinds;
pub(super) use leave::Left;
use rustc_hash::FxHashMap;
use std::ops::Range;
use turns::{Expected, Numbering};
use watch::Watched;

/// Whether repeated steps run by plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Plan {
    /// Steps never run by plan.
    #[default]
    Off,
    /// A step runs by plan whenever it repeats.
    Auto,
}

/// A command as it appears in each turn of a kind. Tensors are named by [`Numbering`]; host values
/// are replaced by their layouts.
type TurnCommand = Command<Expected, Layout>;

/// The plan of a turn.
#[derive(Debug)]
struct StepPlan {
    /// Number of actions of the plan up to the end of each command.
    ends: Vec<usize>,
    actions: Vec<Action>,
    /// Live tensors at the start of the turn, which equal the live tensors at its end.
    boundary: Boundary,
    /// Slot of a tensor that uses the storage, for each storage made before the turn. The order is
    /// that of the storages' numbers in the plan.
    before: Vec<u32>,
    /// Offset in bytes of each block within the plan's block, in the order of allocation. `None`
    /// for a block that no action uses.
    offsets: Vec<Option<u64>>,
    /// Blocks that the turn allocates, in the order of allocation. Targets of moves are left out.
    taken: Vec<u32>,
    /// Bytes of the plan's block.
    bytes: u64,
    /// Length in bytes of the address range of the turn's blocks when the turn ran without a plan.
    /// Storages made before the turn are left out.
    unplanned_bytes: u64,
    /// Copies at the end of the turn. Each entry has the block to copy, and the number of the older
    /// storage that the block's value replaces.
    returns: Vec<(u32, u32)>,
    /// Tensors that take over a slot at the end of the turn. Each entry has the tensor's index
    /// among the tensors made in the turn, and the slot.
    heirs: Vec<(u32, u32)>,
    /// Command index of each first run of a path, and index of the call in the command.
    firsts: Vec<(u32, u32)>,
    /// Whether the turn has no evictions and no recomputation.
    is_plentiful: bool,
    /// An entry for each storage that lost its last handle, in the order of these losses: whether the
    /// storage stayed resident. A storage without an entry was freed.
    unheld_stays: Vec<bool>,
    /// Whether each leaf gave way to the values computed from it, when it lost its last handle.
    gives_way: Vec<bool>,
    took: Totals,
    /// Maps each action whose outputs are evicted or made again to its index among the first runs.
    /// The map is empty unless recomputed values are verified.
    verified: FxHashMap<usize, u32>,
    /// Places of all operands, valid for the address at which the plan's block was last allocated.
    laid: Option<Laid>,
}

/// State of the driver while turns run by plan.
struct Replay<D: Device> {
    /// First byte of the plan's block, and its size in bytes.
    start: u64,
    bytes: u64,
    /// Live tensors between turns.
    boundary: Boundary,
    /// Serial number of the present period of turns by plan: how often the driver entered plans
    /// before.
    entry: u64,
    /// Kind of the current turn.
    kind: usize,
    /// Commands of the current turn that were executed.
    taken: Vec<Command<D::Op, D::Host>>,
    /// Number of step marks in `taken`.
    marks: u64,
    /// Number of whole turns that ran by plan since the driver entered plans.
    turns: usize,
}

/// Places of a plan's operands, for one address of the plan's block.
#[derive(Debug)]
struct Laid {
    /// Serial number ([`Replay::entry`]) of the last period of turns by plan in which the places
    /// were valid.
    entry: u64,
    /// First byte of the plan's block. `before` has the first byte of each storage made before the
    /// turn.
    start: u64,
    before: Vec<u64>,
    /// Places of all operands, action by action.
    places: Vec<Place>,
    layouts: Vec<Layout>,
    actions: Vec<Placed>,
    /// Copies at the end of the turn: source, target, bytes.
    returns: Vec<(u64, u64, u64)>,
}

/// Places of the operands of one action: a range of `Laid::places`, the number of inputs, and the
/// workspace.
#[derive(Debug)]
struct Placed {
    operands: Range<usize>,
    inputs: usize,
    workspace: Range<u64>,
}

/// Knowledge of a driver about turns, and their plans.
pub(super) struct Planning<D: Device> {
    numbers: Numbering,
    kinds: Kinds,
    /// The current turn, unless it runs by plan.
    turn: Watched,
    /// Whether a step mark has come. After a mark, the next command other than a deletion begins a
    /// turn.
    is_marked: bool,
    /// Measures the time of the current turn.
    stopwatch: Stopwatch,
    /// Rest after plans failed repeatedly: a number of turns that are not compared with earlier
    /// turns.
    rest: Rest<4, 256>,
    /// Number of consecutive turns of unknown kind.
    strange: u32,
    /// Hashes of turns. After too many unknown turns and a rest, turns are hashed instead of
    /// compared.
    glance: Option<Glance>,
    /// Live tensors and counters at the start of the current turn; `None` unless the turn is
    /// captured on a tape.
    taping: Option<(Boundary, Totals)>,
    replay: Option<Replay<D>>,
    /// Number of times that plans were entered.
    entries: u64,
    balance: Balance,
    help: Help,
}

/// Time recently saved by plans, minus the time that plans cost. One unit is about a third of the
/// time that a command takes without a plan.
#[derive(Debug, Default)]
struct Balance(i64);

/// Parts of a driver, beside its plans, that plans use.
pub(super) struct Beside<'a, D: Device> {
    pub books: &'a mut Books<D>,
    pub recognition: &'a mut Recognition,
    /// Whether admitted commands wait.
    pub waits: bool,
}

impl<D: Device> Planning<D> {
    pub fn new() -> Self {
        Self {
            numbers: Numbering::default(),
            kinds: Kinds::default(),
            turn: Watched::default(),
            is_marked: false,
            stopwatch: Stopwatch::default(),
            rest: Rest::default(),
            strange: 0,
            glance: None,
            taping: None,
            replay: None,
            entries: 0,
            balance: Balance::default(),
            help: Help::default(),
        }
    }

    /// Forgets all plans, because limits have changed.
    pub fn forget(&mut self) {
        self.kinds.clear();
        self.turn = Watched::default();
        self.stopwatch.void();
    }

    /// Begins a rest, in which turns are not compared; each rest has twice as many turns as the
    /// last.
    fn give_up(&mut self) {
        (self.strange, self.balance) = (0, Balance::default());
        self.numbers.restart();
        self.rest.begin();
    }

    /// Returns whether turns are still hashed instead of compared. Hashing ends when a hash
    /// repeats. The method is called at the end of each turn after a rest.
    fn only_glances(&mut self) -> bool {
        let Some(glance) = &mut self.glance else { return false };
        match glance.turn_ends() {
            None => glance.begin(),
            Some(Seen::New) => {}
            Some(Seen::Enough) => self.rest.begin(),
            Some(Seen::Again) => {
                self.glance = None;
                return false;
            }
        }
        true
    }

    /// Notes that a kind could not be planned. If no kind can be planned, a rest begins in which
    /// turns are not compared.
    fn refuse(&mut self, kind: usize) {
        self.kinds.get_mut(kind).refuse();
        self.give_up_if_all_are_refused();
    }

    fn give_up_if_all_are_refused(&mut self) {
        if self.kinds.all().iter().all(kinds::Kind::is_refused) {
            self.give_up();
        }
    }
}

impl Balance {
    /// Upper bound of the balance. With the bound, the balance soon becomes negative when plans
    /// stop saving time.
    const MOST: i64 = 1 << 16;

    /// Number of bytes that a device is assumed to move in one unit of [`Balance`].
    const MOVED: u64 = 1 << 10;

    /// Adds the time that a turn of `commands` commands saved by running by plan.
    fn ran(&mut self, commands: usize) {
        self.0 = (self.0 + 2 * commands as i64).min(Self::MOST);
    }

    /// Subtracts the cost of leaving a plan after `commands` commands.
    fn left(&mut self, commands: usize) {
        self.0 -= commands as i64;
    }

    /// Subtracts the time for moving `bytes` bytes, which made room for the plan's block.
    fn moved(&mut self, bytes: u64) {
        self.0 -= (bytes / Self::MOVED) as i64;
    }

    /// Whether plans cost more time than they saved, and the loss exceeds the cost of a turn of
    /// `commands` commands.
    fn is_spent(&self, commands: usize) -> bool {
        self.0 < -(commands as i64)
    }
}
