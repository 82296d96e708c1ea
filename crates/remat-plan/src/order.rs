//! Orders of the ops of a step. The order determines how many bytes are in use at the same time.
//!
//! An *edge* is a pair of ops, the first of which must run before the second. An [`Order`] keeps
//! all edges of its [`Capture`], including edges that come from updates in place. A [`Scheduler`]
//! finds an order. [`best_of`] returns the best order that several schedulers find, but never an
//! order that is worse than the order of the program.
//!
//! # Orders that can be replayed
//!
//! A program gives its commands one at a time. A runtime can hold back commands that have arrived,
//! and run later commands first. A runtime cannot run commands that have not arrived. A *wait* is
//! an op that the host waits for, for example to read a value. The program issues its later
//! commands only after the wait has run. Therefore, a running program can follow an order iff each
//! wait runs before all commands that follow the wait in the program.
//!
//! Once an op has run, all commands that precede it in the program have arrived. Commands that have
//! arrived but not run are *held back*. [`Order::held`] is the largest number of commands held back
//! at the same time, and [`Reach`] limits this number. The order of the program is the only order
//! that holds back no command.
//!
//! ```
//! use remat_plan::order::{Reach, Scheduler, Sink};
//! use remat_plan::{Decoder, Limits};
//!
//! let capture = Decoder { layers: 24, width: 1024, tokens: 256 }.capture()?;
//! let sink = Sink.order(&capture, Reach::Offline, &Limits::none())?;
//! // The first layer begins after the first of 96 casts: the other 95 casts are held back.
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

/// A sequence of all ops of a step, in which each op comes after its predecessors.
#[derive(Clone, Debug)]
#[doc(alias("topological order", "schedule"))]
pub struct Order<'a> {
    capture: &'a Capture,
    /// Permutation of the ops that keeps all edges of the capture.
    ops: Vec<usize>,
    held: Option<usize>,
}

impl Capture {
    /// Order in which the program runs the ops.
    #[must_use]
    pub fn program(&self) -> Order<'_> {
        Order { capture: self, ops: (0..self.ops().len()).collect(), held: Some(0) }
    }
}

impl<'a> Order<'a> {
    /// Checks an order, given as positions of ops in the program. Time: O(operands).
    ///
    /// # Errors
    ///
    /// [`OrderError`] if an op is missing, occurs twice, or runs before a predecessor.
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

    /// Ops in the order in which they run. An op is given by its position in the program.
    #[must_use]
    pub fn ops(&self) -> &[usize] {
        &self.ops
    }

    /// Returns [`ops`](Self::ops) as a vector.
    #[must_use]
    pub fn into_ops(self) -> Vec<usize> {
        self.ops
    }

    /// Largest number of commands held back at the same time if a running program follows this
    /// order. `None` if no running program can follow the order: some op runs before a wait that
    /// precedes the op in the program.
    #[must_use]
    pub const fn held(&self) -> Option<usize> {
        self.held
    }

    /// Whether `reach` allows this order.
    #[must_use]
    pub fn is_within(&self, reach: Reach) -> bool {
        match reach {
            Reach::Offline => true,
            Reach::Held(most) => self.held.is_some_and(|held| held <= most),
        }
    }

    /// Peak of the bytes in use. Time: O(operands).
    #[must_use]
    pub fn load(&self) -> u64 {
        let mut usage = Usage::new(self.capture);
        self.ops.iter().for_each(|&op| usage.run(op));
        usage.peak()
    }

    /// Lifetimes of the buffers. An instant is the position of an op in this order. A buffer is
    /// alive from the op that makes it to the last op that uses it. A buffer that exists before the
    /// step is alive from the start, and a buffer that stays is alive to the end. An update in
    /// place begins no new life: the buffer keeps its address.
    ///
    /// The buffers of the step come first, by their numbers. The workspaces follow, one for each op
    /// that needs a workspace, in the order of the program. A workspace is alive for one instant.
    ///
    /// # Errors
    ///
    /// [`PlanError`] never occurs for a valid step.
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

    /// Changes the order to a similar order that `reach` allows: whenever several ops may run, the
    /// op that comes first in this order runs. If `reach` allows this order, it is returned
    /// unchanged.
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

/// Value of [`Order::held`].
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

/// Reasons why a list of ops is not a valid order, or why no order was found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OrderError {
    /// An op occurs twice, or is not an op of the step.
    #[error("op {op} occurs twice, or is not an op of the step")]
    NotOnce {
        /// Position of the op.
        op: usize,
    },
    /// The list has fewer ops than the step.
    #[error("the order has {ops} ops, but the step has {count}")]
    Missing {
        /// Number of ops given.
        ops: usize,
        /// Number of ops in the step.
        count: usize,
    },
    /// An op runs before a predecessor.
    #[error("op {op} (`{name}`) runs before op {needed} (`{needs}`), which must run first")]
    Edge {
        /// Position of the op.
        op: usize,
        /// Name of the op.
        name: Arc<str>,
        /// Position of the missing predecessor.
        needed: usize,
        /// Name of the missing predecessor.
        needs: Arc<str>,
    },
    /// A search would take too much memory.
    #[error(
        "{scheduler} searches at most {limit} sets of ops, but there are more: use another order, such as least-peak"
    )]
    TooMany {
        /// Name of the scheduler.
        scheduler: &'static str,
        /// Limit of the scheduler on the number of sets of ops.
        limit: usize,
    },
    /// A search had not ended when its time was up.
    #[error("{scheduler} ran out of time: allow more time, or use another order, such as dfs")]
    TooLong {
        /// Name of the scheduler.
        scheduler: &'static str,
    },
    /// The planner failed to place the buffers of this order.
    #[error(transparent)]
    Plan(#[from] PlanError),
}
