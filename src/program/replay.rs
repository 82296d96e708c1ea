//! Steps that run by plan: what repeats is done again without choosing, searching or keeping books.
//!
//! ```text
//! watch    a turn is compared with the one before, command by command        (watch.rs, turns.rs)
//! capture  once two are equal, the store writes down what the next one does  (engine/planned.rs, store/tape.rs)
//! prepare  each block that it took gets an address in one block, by planners (prepare.rs)
//! enter    at the boundary of a turn that block is taken                      (enter.rs)
//! follow   as long as commands are as expected: kernels on known places       (follow.rs)
//! leave    at the first that is not, the engine goes through the commands so far in its books, each place where the
//!          plan had it; from then on all is as if there had been no plan      (leave.rs)
//! ```
//!
//! A turn that repeats leaves the tables of the engine as they were: so while turns run by plan, nothing is written there.
//! What a turn makes in place of something that was there before (the new statistics of a batch norm) is copied to where
//! that is when it ends, and takes over its number.
//!
//! Only steps that are marked are planned, at whose boundaries nothing is left but values without a history, while memory
//! is plentiful: a turn that evicts or recomputes is no plan.

mod boundary;
mod enter;
mod follow;
mod leave;
mod prepare;
mod turns;
mod watch;

use super::{Command, Driver};
use crate::device::{Device, Place};
use crate::layout::Layout;
use crate::store::Action;
use boundary::Boundary;
use std::ops::Range;
use turns::{Expected, Numbering};

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

/// A command as it comes in each turn: numbers are relative ([`Numbering`]), values are what they look like.
type Planned = Command<Expected, Layout>;

/// A turn as it is done again.
#[derive(Debug)]
struct StepPlan {
    commands: Vec<Planned>,
    /// How many actions there are up to and with each command.
    ends: Vec<usize>,
    actions: Vec<Action>,
    /// What is there when it begins, and when it ends.
    boundary: Boundary,
    /// Of each block that it takes, in order: its first byte, from that of the plan's block on.
    offsets: Vec<u64>,
    /// Bytes of the plan's block.
    bytes: u64,
    /// What takes the place of something when it ends: the block taken, and the storage at the boundary.
    returns: Vec<(u32, u32)>,
    ops: u64,
    cost: f64,
}

/// A turn that runs by plan.
struct Replay<D: Device> {
    /// First byte of the plan's block.
    start: u64,
    /// Of all operands, action by action.
    places: Vec<Place>,
    layouts: Vec<Layout>,
    actions: Vec<Placed>,
    /// From, to, bytes.
    returns: Vec<(u64, u64, u64)>,
    /// The commands of this turn so far.
    taken: Vec<Command<D::Op, D::Host>>,
    /// Marks of a step among them.
    marks: u64,
}

/// An action whose operands have places: these of them all.
struct Placed {
    operands: Range<usize>,
    inputs: usize,
    workspace: Range<u64>,
}

/// What a driver knows of turns.
pub(super) struct Planning<D: Device> {
    numbers: Numbering,
    /// The commands that are expected: those of the last turn, or of the plan. What comes instead takes their place, if
    /// there is no plan.
    commands: Vec<Planned>,
    /// How many of them have come in this turn.
    at: usize,
    /// Whether this turn is as expected so far.
    is_same: bool,
    /// A mark came: the next command that is no deletion begins a turn.
    is_marked: bool,
    /// Turns to come that nobody looks at, and how many that will be the next time.
    rest: u32,
    patience: u32,
    /// The boundary at which the tape began, and what was counted then.
    taping: Option<(Boundary, crate::engine::Totals)>,
    /// How many actions there were after each command.
    ends: Vec<usize>,
    plan: Option<StepPlan>,
    /// Turns in a row that were not the plan's, or not as the one before.
    misses: u32,
    replay: Option<Replay<D>>,
    left: u64,
}

/// So many turns are rested after a plan first came to nothing, and so many at most, after it did again and again.
const FIRST_REST: u32 = 4;
const MOST_REST: u32 = 256;

/// After so many turns in a row that differ, nobody looks for a while.
const MOST_STRANGE: u32 = 5;

/// After so many other turns in a row, a plan is given up for another.
const MOST_MISSES: u32 = 16;

impl<D: Device> Driver<D> {
    /// From now on steps that repeat run by plan.
    pub fn plan_steps(&mut self, plan: Plan) {
        self.leave_plan();
        self.planning = match plan {
            Plan::Off => None,
            Plan::Auto => Some(Box::new(Planning::new())),
        };
    }

    /// What was planned is planned anew: limits are others now.
    pub(crate) fn forget_plan(&mut self) {
        self.leave_plan();
        if let Some(planning) = &mut self.planning
            && planning.plan.take().is_some()
        {
            planning.commands.clear();
            (planning.at, planning.is_same) = (0, false);
        }
    }

    /// Steps that were left, and the bytes of the plan.
    pub(crate) fn planning_stats(&self) -> (u64, u64) {
        self.planning.as_ref().map_or((0, 0), |planning| {
            (planning.left, planning.plan.as_ref().map_or(0, |plan| plan.bytes))
        })
    }
}

impl<D: Device> Planning<D> {
    fn new() -> Self {
        Self {
            numbers: Numbering::default(),
            commands: Vec::new(),
            at: 0,
            is_same: true,
            is_marked: false,
            rest: 0,
            patience: FIRST_REST,
            taping: None,
            ends: Vec::new(),
            plan: None,
            misses: 0,
            replay: None,
            left: 0,
        }
    }

    /// What was tried came to nothing: turns are not looked at for a while, each time for longer.
    fn give_up(&mut self) {
        self.misses = 0;
        self.rest = self.patience;
        self.patience = (self.patience * 2).min(MOST_REST);
    }
}
