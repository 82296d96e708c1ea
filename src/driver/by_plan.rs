//! Steps that run by plan: what repeats is done again without choosing, searching or keeping books.
//!
//! ```text
//! watch    a turn is compared with those before, command by command           (watch.rs, turns.rs)
//! foretell which kind of turn comes next                                      (kinds.rs)
//! capture  if it came twice, the store writes down what the next one does     (engine/planned.rs, store/tape.rs)
//! prepare  each block that it took gets an address in one block, by planners, while
//!          another turn runs                                                  (prepare.rs)
//! enter    at the boundary of a turn that block is taken                      (enter.rs)
//! follow   as long as commands are as expected: kernels on known places       (follow.rs)
//! leave    at the first that is not, the engine goes through the commands so far in its books, each place where the
//!          plan had it, and the recognizer of steps is told which turns came; from then on all is as if there had
//!          been no plan                                                       (leave.rs)
//! glance   where turns are all new, they are looked at from afar only         (glance.rs)
//! help     it is counted how much all of this helps                           (help.rs)
//! ```
//!
//! A turn that repeats leaves the tables of the engine as they were: so while turns run by plan, nothing is written there.
//! What a turn makes in place of something that was there before (the new statistics of a batch norm) is copied to where
//! that is when it ends, and takes over its number.
//!
//! Turns of several kinds (training, evaluation) have their plans side by side, and run in one block, as large as the largest
//! of them needs.
//!
//! A turn that fits in memory when nothing is in the way is planned without evictions, whatever was evicted when it was written
//! down. One that does not is done again as it was: what was evicted then is evicted, what was recomputed is recomputed, and
//! what was moved is moved, unless there is an address that makes that needless.
//!
//! Only steps that are marked are planned, at whose boundaries nothing is left but values without a history.

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

/// Whether steps run by plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Plan {
    /// Never.
    #[default]
    Off,
    /// Those that repeat, as soon as they do.
    Auto,
}

/// A command as it comes in each turn: tensors are called as [`Numbering`] says, values are what they look like.
type TurnCommand = Command<Expected, Layout>;

/// A turn as it is done again.
#[derive(Debug)]
struct StepPlan {
    /// How many actions there are up to and with each command.
    ends: Vec<usize>,
    actions: Vec<Action>,
    /// What is there when it begins, and when it ends.
    boundary: Boundary,
    /// Slots that look at the storages of it that the plan speaks of: their numbers in the plan.
    before: Vec<u32>,
    /// Of each block that it takes, in order: its first byte, from that of the plan's block on. `None` if nothing is done
    /// with it.
    offsets: Vec<Option<u64>>,
    /// Those of them that are not moved there, in order.
    taken: Vec<u32>,
    /// Bytes of the plan's block.
    bytes: u64,
    /// Bytes over which its blocks were spread when it ran without a plan, beside what is there between turns.
    unplanned_bytes: u64,
    /// What takes the place of something when it ends: the block taken, and the storage at the boundary.
    returns: Vec<(u32, u32)>,
    /// Which tensors that it makes are in which slots then.
    heirs: Vec<(u32, u32)>,
    /// Of each run that was the first of its path: the command that it is of, and the call in that.
    firsts: Vec<(u32, u32)>,
    /// Whether nothing is evicted in it, and nothing recomputed.
    is_plentiful: bool,
    /// Whether each storage that lost its last handle stayed, in order. Where none is left, it went.
    unheld_stays: Vec<bool>,
    took: Totals,
    /// If what is recomputed is verified: the actions that make what it evicts or makes again, and of each, the how manieth it
    /// was of all that ran for the first time.
    verified: FxHashMap<usize, u32>,
    /// Its operands in the block, where that last was.
    laid: Option<Laid>,
}

/// Turns that run by plan.
struct Replay<D: Device> {
    /// First byte of the block, and its size.
    start: u64,
    bytes: u64,
    /// What is there between turns.
    boundary: Boundary,
    /// Which of all times it is that plans are entered.
    entry: u64,
    /// The kind of the turn at hand.
    kind: usize,
    /// The commands of this turn so far.
    taken: Vec<Command<D::Op, D::Host>>,
    /// Marks of a step among them.
    marks: u64,
    /// How many turns ran by plan before this one, since plans were entered.
    turns: usize,
}

/// A plan whose operands have places.
#[derive(Debug)]
struct Laid {
    /// The entry for which it was laid out, or found to be right.
    entry: u64,
    /// First byte of the block, and of each storage of before.
    start: u64,
    before: Vec<u64>,
    /// Of all operands, action by action.
    places: Vec<Place>,
    layouts: Vec<Layout>,
    actions: Vec<Placed>,
    /// From, to, bytes.
    returns: Vec<(u64, u64, u64)>,
}

/// An action whose operands have places: these of them all.
#[derive(Debug)]
struct Placed {
    operands: Range<usize>,
    inputs: usize,
    workspace: Range<u64>,
}

/// What a driver knows of turns.
pub(super) struct Planning<D: Device> {
    numbers: Numbering,
    kinds: Kinds,
    /// The turn at hand, if it does not run by plan.
    turn: Watched,
    /// A mark came: the next command that is no deletion begins a turn.
    is_marked: bool,
    /// Of the turn at hand.
    stopwatch: Stopwatch,
    /// Turns that nobody looks at, after plans came to nothing again and again.
    rest: Rest<4, 256>,
    /// Turns in a row that were of no known kind.
    strange: u32,
    /// After a rest because of too many of those.
    glance: Option<Glance>,
    /// The boundary at which the tape began, and what was counted then.
    taping: Option<(Boundary, Totals)>,
    replay: Option<Replay<D>>,
    /// How often plans were entered.
    entries: u64,
    balance: Balance,
    help: Help,
}

/// What plans have saved of late, less what they took: about a third of what one command costs without a plan is 1.
#[derive(Debug, Default)]
struct Balance(i64);

/// What stands beside plans in a driver.
pub(super) struct Beside<'a, D: Device> {
    pub books: &'a mut Books<D>,
    pub recognition: &'a mut Recognition,
    /// Whether commands wait that are known.
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

    /// What was planned is planned anew: limits are others now.
    pub fn forget(&mut self) {
        self.kinds.clear();
        self.turn = Watched::default();
        self.stopwatch.void();
    }

    /// What was tried came to nothing: turns are not looked at for a while, each time for longer.
    fn give_up(&mut self) {
        (self.strange, self.balance) = (0, Balance::default());
        self.numbers.restart();
        self.rest.begin();
    }

    /// Where a rest is over: whether turns are only glanced at, since those before it were like none before.
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

    /// Turns of this kind could not be planned. If none can be, nobody looks at any for a while.
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
    /// No more than that is remembered, so that what is in vain now is soon seen.
    const MOST: i64 = 1 << 16;

    /// How many bytes may be moved in the time of 1.
    const MOVED: u64 = 1 << 10;

    /// A turn of so many commands ran by plan.
    fn ran(&mut self, commands: usize) {
        self.0 = (self.0 + 2 * commands as i64).min(Self::MOST);
    }

    /// A plan was left after so many commands.
    fn left(&mut self, commands: usize) {
        self.0 -= commands as i64;
    }

    /// So many bytes were moved to make room for plans.
    fn moved(&mut self, bytes: u64) {
        self.0 -= (bytes / Self::MOVED) as i64;
    }

    /// Whether plans are in vain: they took more than they saved, and more than a turn of so many commands takes.
    fn is_spent(&self, commands: usize) -> bool {
        self.0 < -(commands as i64)
    }
}
