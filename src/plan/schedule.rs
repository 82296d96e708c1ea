//! What runs again: a step in less memory than it needs, for more work.
//!
//! A [`RecomputeSchedule`] says what runs when, some of it more than once, and what is dropped in between. It is checked when it is
//! made: each run finds what it reads, as it was when the op first ran. A [`Rematerializer`] finds one for a budget:
//! [`Sqrt`] drops by segments of the step, [`StaticDtr`] whenever memory is short, knowing what comes.
//!
//! ```
//! use remat::plan::schedule::{Rematerializer, StaticDtr};
//! use remat::plan::{Capture, CapturedBuffer, CapturedOp};
//!
//! // A chain of four, whose values are read again from the last to the first.
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

/// What is done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// An op runs, for the first time or again.
    Run(usize),
    /// A buffer's bytes are given up. It is made again before it is read again.
    Drop(usize),
}

/// What runs when, and what is dropped when.
///
/// Valid by construction. A buffer that nobody reads any more goes by itself, without a [`Action::Drop`].
#[derive(Clone, Debug)]
pub struct RecomputeSchedule<'a> {
    capture: &'a Capture,
    actions: Vec<Action>,
}

/// A time for which a buffer is there. One that is dropped and made again has several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// Which buffer.
    pub buffer: usize,
    /// The run that makes it: its position among all runs. 0 if it is there before.
    pub begin: usize,
    /// The first run after, at which its bytes may be another's.
    pub end: usize,
}

impl<'a> RecomputeSchedule<'a> {
    /// These actions. O(operands).
    ///
    /// # Errors
    ///
    /// A first run that breaks the order of the step; one that finds its inputs not there, or not as they were; an op that
    /// may not run again; a drop of what is not there, or of what cannot be made again; ops that never run, or results that
    /// are not there at the end.
    pub fn new(capture: &'a Capture, actions: Vec<Action>) -> Result<Self, ScheduleError> {
        let mut there: Vec<bool> = capture.buffers().iter().map(|buffer| buffer.before).collect();
        // Of each buffer, how often it was updated; and of each op that has run, the same of all that it reads.
        let mut updates = vec![0_u32; there.len()];
        let mut ran: Vec<Option<Vec<u32>>> = vec![None; capture.ops().len()];
        for (at, &action) in actions.iter().enumerate() {
            match action {
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

    /// Everything once, in this order.
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

    /// What is done, in order.
    #[must_use]
    pub fn actions(&self) -> &[Action] {
        &self.actions
    }

    /// The ops that run, in order, those that run again included.
    pub fn runs(&self) -> impl Iterator<Item = usize> {
        self.actions.iter().filter_map(|&action| match action {
            Action::Run(op) => Some(op),
            Action::Drop(_) => None,
        })
    }

    /// How many runs are not the first of their op.
    #[must_use]
    pub fn reruns(&self) -> usize {
        self.runs().count() - self.capture.ops().len()
    }

    /// What all runs cost.
    #[must_use]
    pub fn cost(&self) -> f64 {
        self.runs().map(|op| self.capture.ops()[op].cost).sum()
    }

    /// What all runs cost, over what each op costs once; 1 where nothing costs anything.
    #[must_use]
    pub fn slowdown(&self) -> f64 {
        let once = self.capture.cost();
        if once > 0.0 { self.cost() / once } else { 1.0 }
    }

    /// When each buffer is there, by the positions of runs: from a run that makes it up to the last that uses it before it is
    /// made again. Sorted by buffer, then by time.
    #[must_use]
    pub fn lives(&self) -> Vec<Life> {
        let capture = self.capture;
        let mut lives = Vec::with_capacity(capture.buffers().len());
        // Of each buffer, its life that goes on.
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
                    // What is made again begins anew, even if it was not dropped: nobody needed it since its last use.
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

    /// What a planner has to place: first all [`lives`](Self::lives), then the workspace of each run that has one.
    ///
    /// # Errors
    ///
    /// 2^64 bytes or more: what is made again counts again.
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

    /// Most bytes in use at once. O(n log n) for n lives.
    ///
    /// # Errors
    ///
    /// As for [`RecomputeSchedule::lifetimes`].
    pub fn load(&self) -> Result<u64, PlanError> {
        Ok(self.lifetimes()?.load())
    }
}

/// Whether an op can run twice and do the same.
fn may_run_again(capture: &Capture, op: usize) -> bool {
    let op = &capture.ops()[op];
    op.rematerializable && !op.waits && op.updates.is_empty()
}
