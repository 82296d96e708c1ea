//! Recompute schedules: a step that takes less memory because it runs some ops again.
//!
//! A [`RecomputeSchedule`] is a list of runs and drops, in which some ops run more than once. A
//! schedule is checked when it is made: each run must find the same input values as the op's first
//! run. A [`Rematerializer`] finds a schedule for a budget. [`Sqrt`] cuts the step into segments,
//! and drops values at the ends of segments. [`StaticDtr`] drops values when memory is short, and
//! chooses them by the later ops of the step.
//!
//! ```
//! use remat_plan::schedule::{Rematerializer, StaticDtr};
//! use remat_plan::{Capture, CapturedBuffer, CapturedOp};
//!
//! // A chain of four ops, whose values are read again from the last to the first.
//! let op = |reads: &[usize], made: usize| CapturedOp::new("f").reads(reads).makes([made]).costs(1.0);
//! let ops = vec![op(&[0], 1), op(&[1], 2), op(&[2], 3), op(&[3], 4)];
//! let back = vec![op(&[3, 4], 5), op(&[2, 5], 6), op(&[1, 6], 7), op(&[0, 7], 8)];
//! let mut buffers = vec![CapturedBuffer::kept(10); 1];
//! buffers.resize(9, CapturedBuffer::transient(10));
//! let capture = Capture::new(buffers, [ops, back].concat())?;
//! assert_eq!(capture.program().load(), 60);
//! let schedule = StaticDtr::default().schedule(&capture.program(), 50)?;
//! assert_eq!((schedule.load()?, schedule.reruns()), (50, 1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod builder;
mod error;
mod facts;
mod rematerializer;
mod sqrt;
mod static_dtr;
#[cfg(test)]
mod tests;

pub use error::ScheduleError;
pub use rematerializer::{Rematerializer, UnknownRematerializer, all, named};
pub use sqrt::Sqrt;
pub use static_dtr::StaticDtr;

use self::builder::Builder;
use self::facts::Facts;
use super::{Buffer, Capture, Lifetimes, Order, PlanError};

/// Single action of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// An op runs, for the first time or again.
    Run(usize),
    /// The bytes of a buffer are dropped. If a later run reads the buffer, the op that makes the
    /// buffer must run again before that run.
    Drop(usize),
}

/// A list of runs and drops.
///
/// A schedule is always valid: [`RecomputeSchedule::new`] checks it. After its last use, a buffer
/// is freed without an [`Action::Drop`].
#[derive(Clone, Debug)]
pub struct RecomputeSchedule<'a> {
    capture: &'a Capture,
    actions: Vec<Action>,
}

/// A range of runs in which a buffer is in memory. A buffer that is dropped and made again has
/// several lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// Number of the buffer.
    pub buffer: usize,
    /// Position, among all runs, of the run that makes the buffer; 0 if the buffer exists before
    /// the step.
    pub begin: usize,
    /// Position, among all runs, of the first run after the life. From this run on, another buffer
    /// may use the bytes.
    pub end: usize,
}

impl<'a> RecomputeSchedule<'a> {
    /// Checks the actions. Time: O(operands).
    ///
    /// # Errors
    ///
    /// [`ScheduleError`] in these cases:
    ///
    /// - A first run breaks the order of the step.
    /// - A run finds an input missing or changed.
    /// - An op runs again but may run only once.
    /// - A dropped buffer is not in memory, or cannot be made again.
    /// - An op never runs.
    /// - A result is not in memory at the end.
    pub fn new(capture: &'a Capture, actions: Vec<Action>) -> Result<Self, ScheduleError> {
        let mut there: Vec<bool> = capture.buffers().iter().map(|buffer| buffer.before).collect();
        // `updates`: buffer -> number of its updates so far. `ran`: op that has run -> the number
        // of updates of each buffer that the op reads, at the first run of the op.
        let mut updates = vec![0_u32; there.len()];
        let mut ran: Vec<Option<Vec<u32>>> = vec![None; capture.ops().len()];
        for (at, &action) in actions.iter().enumerate() {
            match action {
                // Only a buffer in memory may be dropped, and only if its maker may run again and
                // the buffer was not updated.
                Action::Drop(buffer) => {
                    if there.get(buffer) != Some(&true) {
                        return Err(ScheduleError::NotThere { at, buffer });
                    }
                    let maker =
                        capture.maker(buffer).filter(|&maker| may_run_again(capture, maker));
                    if maker.is_none() || updates[buffer] > 0 {
                        return Err(ScheduleError::Lost { at, buffer });
                    }
                    there[buffer] = false;
                }
                Action::Run(op) => {
                    let Some(this) = capture.ops().get(op) else {
                        return Err(ScheduleError::NoOp { at, op });
                    };
                    if let Some(buffer) = this.uses().find(|&buffer| !there[buffer]) {
                        return Err(ScheduleError::NotThere { at, buffer });
                    }
                    // A repeated run must find the same versions of its inputs; a first run must
                    // come after its predecessors.
                    let found: Vec<u32> = this.reads.iter().map(|&read| updates[read]).collect();
                    match &ran[op] {
                        Some(_) if !may_run_again(capture, op) => {
                            return Err(ScheduleError::Once { at, op });
                        }
                        Some(before) if *before != found => {
                            return Err(ScheduleError::Changed { at, op });
                        }
                        Some(_) if this.makes.iter().any(|&made| updates[made] > 0) => {
                            return Err(ScheduleError::Changed { at, op });
                        }
                        Some(_) => {}
                        None => {
                            let first = capture.predecessors(op).iter();
                            if let Some(&needed) = first.clone().find(|&&one| ran[one].is_none()) {
                                return Err(ScheduleError::Early { at, op, needed });
                            }
                            this.updates.iter().for_each(|&updated| updates[updated] += 1);
                            ran[op] = Some(found);
                        }
                    }
                    this.makes.iter().for_each(|&made| there[made] = true);
                }
            }
        }
        if let Some(op) = ran.iter().position(Option::is_none) {
            return Err(ScheduleError::Never { op });
        }
        let mut buffers = capture.buffers().iter().zip(&there);
        match buffers.position(|(buffer, there)| buffer.after && !there) {
            Some(buffer) => Err(ScheduleError::NotThere { at: actions.len(), buffer }),
            None => Ok(Self { capture, actions }),
        }
    }

    /// Schedule that runs every op once, in the given order.
    #[must_use]
    pub fn once(order: &Order<'a>) -> Self {
        let actions = order.ops().iter().map(|&op| Action::Run(op)).collect();
        Self { capture: order.capture(), actions }
    }

    /// The step.
    #[must_use]
    pub const fn capture(&self) -> &'a Capture {
        self.capture
    }

    /// Actions in order.
    #[must_use]
    pub fn actions(&self) -> &[Action] {
        &self.actions
    }

    /// Ops that run, in order, including repeated runs.
    pub fn runs(&self) -> impl Iterator<Item = usize> {
        self.actions.iter().filter_map(|&action| match action {
            Action::Run(op) => Some(op),
            Action::Drop(_) => None,
        })
    }

    /// Number of runs that are not the first of their op.
    #[must_use]
    pub fn reruns(&self) -> usize {
        self.runs().count() - self.capture.ops().len()
    }

    /// Cost of all runs.
    #[must_use]
    pub fn cost(&self) -> f64 {
        self.runs().map(|op| self.capture.ops()[op].cost).sum()
    }

    /// Cost of all runs divided by the cost of running each op once; 1 if all costs are 0.
    #[must_use]
    pub fn slowdown(&self) -> f64 {
        let once = self.capture.cost();
        if once > 0.0 { self.cost() / once } else { 1.0 }
    }

    /// Lives of the buffers, in positions of runs, sorted by buffer and then by time. A life lasts
    /// from a run that makes the buffer to the last use before the buffer is dropped or made again.
    #[must_use]
    pub fn lives(&self) -> Vec<Life> {
        let capture = self.capture;
        let mut lives = Vec::with_capacity(capture.buffers().len());
        // Buffer -> its current life.
        let life = |buffer: usize, begin: usize| Life { buffer, begin, end: begin + 1 };
        let before = |(number, _)| life(number, 0);
        let mut going: Vec<Option<Life>> = capture
            .buffers()
            .iter()
            .enumerate()
            .map(|one| one.1.before.then(|| before(one)))
            .collect();
        let mut at = 0;
        for &action in &self.actions {
            match action {
                Action::Drop(buffer) => lives.extend(going[buffer].take()),
                Action::Run(op) => {
                    let op = &capture.ops()[op];
                    for buffer in op.uses() {
                        going[buffer].iter_mut().for_each(|life| life.end = at + 1);
                    }
                    // A buffer that is made again begins a new life even if it was not dropped,
                    // because no op needed the buffer between its last use and this run.
                    for &made in &op.makes {
                        lives.extend(going[made].replace(life(made, at)));
                    }
                    at += 1;
                }
            }
        }
        for life in going.iter_mut().flatten() {
            let stays = capture.buffers()[life.buffer].after;
            life.end = if stays { at.max(1) } else { life.end };
        }
        lives.extend(going.into_iter().flatten());
        lives.sort_unstable_by_key(|life| (life.buffer, life.begin));
        lives
    }

    /// Lifetimes for a planner: first all [`lives`](Self::lives), then one workspace for each run
    /// whose op needs a workspace.
    ///
    /// # Errors
    ///
    /// [`PlanError::TooLarge`] if the bytes of all lives and workspaces add up to 2^64 or more. A
    /// buffer with several lives counts several times.
    pub fn lifetimes(&self) -> Result<Lifetimes, PlanError> {
        let lives = self.lives().into_iter().map(|Life { buffer, begin, end }| {
            let captured = self.capture.buffers()[buffer];
            Buffer::new(begin as u64, end as u64, captured.bytes).aligned(captured.align)
        });
        let runs = self.runs().map(|op| self.capture.ops()[op].workspace);
        let workspaces = (0..).zip(runs).filter(|&(_, bytes)| bytes > 0);
        let workspaces = workspaces.map(|(at, bytes)| Buffer::new(at, at + 1, bytes));
        Lifetimes::new(lives.chain(workspaces))
    }

    /// Peak of the bytes in use. Time: O(n log n) for n lives.
    ///
    /// # Errors
    ///
    /// The errors of [`RecomputeSchedule::lifetimes`].
    pub fn load(&self) -> Result<u64, PlanError> {
        Ok(self.lifetimes()?.load())
    }
}

/// Whether an op can run twice with the same results.
fn may_run_again(capture: &Capture, op: usize) -> bool {
    let op = &capture.ops()[op];
    op.rematerializable && !op.waits && op.updates.is_empty()
}
