//! List scheduling that chooses by memory.

use super::{Issue, Order, OrderError, Reach, Scheduler};
use crate::capture::Usage;
use crate::{Capture, Limits};
use std::cmp::Reverse;

/// `least-peak`: always runs the ready op that takes the least memory.
///
/// Among ready ops that do not raise the peak, the op that leaves the fewest bytes in use runs. If
/// all ready ops raise the peak, the op that raises the peak least runs. The first op of the
/// program wins a tie.
///
/// PyTorch Inductor has this method (LPMF), with an error that is corrected here: the bytes in use
/// must be updated for the chosen op. Time: O(n * r) for n ops, at most r of which are ready at the
/// same time. With a limited reach, the choice is among the ops that have arrived. The method looks
/// only one op ahead, so it is weak if the bytes in use have to rise before they can fall.
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
