//! The order in which the ops of a step run: what is in memory at once depends on it.
//!
//! An [`Order`] is one that keeps all edges of its [`Capture`], those that updates in place add included. A [`Scheduler`]
//! finds one; [`best_of`] takes the best of several, and never one that is worse than the program's own.
//!
//! # What can be replayed
//!
//! A program gives its commands one at a time. Whoever runs it can hold back commands that have come, and run later ones
//! before them, but nothing that has not come. So an order can be had of a running program if and only if it is cut by no
//! wait: where the host waits for an op (it reads a value), what comes after in the program is not known before that op is
//! done, so it cannot run before it. And before an op runs, all up to the last in the program of those that run up to it
//! must have come: those of them that have not run are *held back*. [`Order::held`] is the most that are at once, and
//! [`Reach`] says how many may be. The program's own order holds back nothing, and is the only one that does.
//!
//! ```
//! use remat::plan::order::{Reach, Scheduler, Sink};
//! use remat::plan::{Decoder, Limits};
//!
//! let capture = Decoder { layers: 24, width: 1024, tokens: 256 }.capture()?;
//! let sink = Sink.order(&capture, Reach::Offline, &Limits::none())?;
//! // All casts but the first are held back while the first layer begins.
//! assert_eq!((sink.held(), capture.program().held()), (Some(4 * 24 - 1), Some(0)));
//! assert!(sink.load() < capture.program().load());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod as_written;
mod best;
mod breadth_first;
mod depth_first;
mod exact;
mod floor;
mod issue;
mod least_peak;
mod scheduler;
mod sink;
#[cfg(test)]
mod tests;

pub use as_written::AsWritten;
pub use best::{Scored, best_of, score};
pub use breadth_first::BreadthFirst;
pub use depth_first::{DepthFirst, ReverseDepthFirst};
pub use exact::Exact;
pub use floor::floor;
pub use least_peak::LeastPeak;
pub use scheduler::{Reach, Scheduler, UnknownOrder, all, named};
pub use sink::Sink;

use self::issue::Issue;
use super::capture::{Capture, Usage};
use super::{Buffer, Lifetimes, PlanError};
use std::sync::Arc;

/// All ops of a step, one after the other, each after those that it needs.
#[derive(Clone, Debug)]
#[doc(alias("topological order", "schedule"))]
pub struct Order<'a> {
    capture: &'a Capture,
    /// A permutation of the ops that violates no edge.
    ops: Vec<usize>,
    held: Option<usize>,
}

impl Capture {
    /// The order in which the program has its ops.
    #[must_use]
    pub fn program(&self) -> Order<'_> {
        Order { capture: self, ops: (0..self.ops().len()).collect(), held: Some(0) }
    }
}

impl<'a> Order<'a> {
    /// These ops of the step, in this order. O(operands).
    ///
    /// # Errors
    ///
    /// An op that is missing, or there twice, or before one that must run before it.
    pub fn new(capture: &'a Capture, ops: Vec<usize>) -> Result<Self, OrderError> {
        let count = capture.ops().len();
        let mut ran = vec![false; count];
        for &op in &ops {
            match ran.get_mut(op) {
                Some(ran) if !*ran => *ran = true,
                _ => return Err(OrderError::NotOnce { op }),
            }
            if let Some(&needed) = capture.predecessors(op).iter().find(|&&needed| !ran[needed]) {
                let name = |op: usize| Arc::clone(&capture.ops()[op].name);
                return Err(OrderError::Edge { op, name: name(op), needed, needs: name(needed) });
            }
        }
        if ops.len() < count {
            return Err(OrderError::Missing { ops: ops.len(), count });
        }
        let held = held(capture, &ops);
        Ok(Self { capture, ops, held })
    }

    /// The step.
    #[must_use]
    pub const fn capture(&self) -> &'a Capture {
        self.capture
    }

    /// The ops, by their positions in the program.
    #[must_use]
    pub fn ops(&self) -> &[usize] {
        &self.ops
    }

    /// The same, to be kept.
    #[must_use]
    pub fn into_ops(self) -> Vec<usize> {
        self.ops
    }

    /// How many commands that have come wait at once, at most, for this order to be had of a running program. `None`:
    /// offline only, for something runs before the host has seen what it waits for first.
    #[must_use]
    pub const fn held(&self) -> Option<usize> {
        self.held
    }

    /// Whether it can be had of a program that runs, as far as `reach` goes.
    #[must_use]
    pub fn is_within(&self, reach: Reach) -> bool {
        match reach {
            Reach::Offline => true,
            Reach::Held(most) => self.held.is_some_and(|held| held <= most),
        }
    }

    /// Most bytes alive at once. O(operands).
    #[must_use]
    pub fn load(&self) -> u64 {
        let mut usage = Usage::new(self.capture);
        self.ops.iter().for_each(|&op| usage.run(op));
        usage.peak()
    }

    /// When each buffer is alive, an instant being an op of this order: from where it is made until after its last reader.
    /// First the buffers of the step, by their numbers; then the workspace of each op that has one, in the order of the
    /// program, for an instant. What is updated in place stays where it is.
    ///
    /// # Errors
    ///
    /// None that a valid step can have.
    pub fn lifetimes(&self) -> Result<Lifetimes, PlanError> {
        let mut at = vec![0_u64; self.ops.len()];
        for (position, &op) in self.ops.iter().enumerate() {
            at[op] = position as u64;
        }
        let end = (self.ops.len() as u64).max(1);
        let buffers = self.capture.buffers().iter().enumerate().map(|(number, buffer)| {
            let lower = self.capture.maker(number).map_or(0, |maker| at[maker]);
            let last = self.capture.users(number).iter().map(|&user| at[user]).max();
            let upper = if buffer.after { end } else { last.unwrap_or(lower).max(lower) + 1 };
            Buffer::new(lower, upper, buffer.bytes).aligned(buffer.align)
        });
        let workspaces = self.capture.ops().iter().zip(&at).filter(|(op, _)| op.workspace > 0);
        let workspaces = workspaces.map(|(op, &at)| Buffer::new(at, at + 1, op.workspace));
        Lifetimes::new(buffers.chain(workspaces))
    }

    /// The order within reach that is nearest to this one: at each moment, of the ops that may run, the one that comes
    /// first here. The same order if it is within reach.
    #[must_use]
    pub fn within(self, reach: Reach) -> Self {
        if self.is_within(reach) {
            return self;
        }
        let mut rank = vec![0; self.ops.len()];
        for (position, &op) in self.ops.iter().enumerate() {
            rank[op] = position;
        }
        let mut issue = Issue::new(self.capture, reach);
        let mut ops = Vec::with_capacity(rank.len());
        while let Some(&op) = issue.ready().iter().min_by_key(|&&op| rank[op]) {
            issue.run(op);
            ops.push(op);
        }
        let held = held(self.capture, &ops);
        Self { ops, held, ..self }
    }
}

/// See [`Order::held`].
fn held(capture: &Capture, ops: &[usize]) -> Option<usize> {
    let (mut come, mut most) = (0, 0);
    for (ran, &op) in ops.iter().enumerate() {
        if capture.ops()[op].waits && come > op {
            return None;
        }
        come = come.max(op + 1);
        most = most.max(come - (ran + 1));
    }
    Some(most)
}

/// Why there is no order.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OrderError {
    /// There twice, or there is none of this number.
    #[error("op {op} is there twice, or is no op of the step")]
    NotOnce {
        /// Which.
        op: usize,
    },
    /// Not there.
    #[error("{ops} ops of a step that has {count}")]
    Missing {
        /// How many there are.
        ops: usize,
        /// How many there should be.
        count: usize,
    },
    /// Before one that must come first.
    #[error("op {op} (`{name}`) runs before op {needed} (`{needs}`), which must run first")]
    Edge {
        /// Which.
        op: usize,
        /// Its name.
        name: Arc<str>,
        /// What must run before it.
        needed: usize,
        /// The name of that.
        needs: Arc<str>,
    },
    /// A search that would take too much memory.
    #[error(
        "{scheduler} looks at {limit} sets of ops at most, and there are more: use another, such as least-peak"
    )]
    TooMany {
        /// Which scheduler.
        scheduler: &'static str,
        /// What it can do.
        limit: usize,
    },
    /// A search that would take too long.
    #[error("{scheduler} was not done in time: give it longer, or use another, such as dfs")]
    TooLong {
        /// Which scheduler.
        scheduler: &'static str,
    },
    /// No plan of it.
    #[error(transparent)]
    Plan(#[from] PlanError),
}
