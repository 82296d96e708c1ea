//! List scheduling by memory.

use super::super::capture::Usage;
use super::super::{Capture, Limits};
use super::{Issue, Order, OrderError, Reach, Scheduler};
use std::cmp::Reverse;

/// `least-peak`: at each moment, if some op that is ready keeps below the peak so far, of those the one after which the fewest
/// bytes are in use; otherwise the one while which the fewest are. Of equal ones, the first of the program.
///
/// As PyTorch Inductor has it (LPMF), but for an error there: what is in use is that of the op that is taken. O(n * r)
/// for n ops of which r are ready at once. Within a reach it chooses among what has come. Weak where memory has to rise
/// first to fall later: it looks one op ahead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeastPeak;

impl Scheduler for LeastPeak {
    fn name(&self) -> &'static str {
        "least-peak"
    }

    fn order<'a>(
        &self,
        capture: &'a Capture,
        reach: Reach,
        limits: &Limits,
    ) -> Result<Order<'a>, OrderError> {
        let mut issue = Issue::new(capture, reach);
        let mut usage = Usage::new(capture);
        let mut ops = Vec::with_capacity(capture.ops().len());
        let urgency = |usage: &Usage<'_>, op: usize| {
            let (during, after) = (usage.during(op), usage.after(op));
            let is_below = during <= usage.peak();
            (Reverse(is_below), if is_below { after } else { during }, op)
        };
        while let Some(&op) = issue.ready().iter().min_by_key(|&&op| urgency(&usage, op)) {
            if limits.over() {
                return Err(OrderError::TooLong { scheduler: self.name() });
            }
            issue.run(op);
            usage.run(op);
            ops.push(op);
        }
        Order::new(capture, ops)
    }
}
