//! List scheduling by memory.

use super::super::capture::Usage;
use super::super::{Capture, Limits};
use super::{Issue, Order, OrderError, Reach, Scheduler};
use std::cmp::Reverse;

/// `least-peak`: runs the ready op that is cheapest in memory at each moment.
///
/// If some ready ops stay below the peak so far, the one with the fewest bytes in use afterwards
/// runs. Otherwise the one with the fewest bytes in use meanwhile runs. The first op of the program
/// wins a tie.
///
/// PyTorch Inductor has the method (LPMF), with an error that is mended here: bytes in use are
/// those of the op that is taken. Time: O(n * r) for n ops of which r are ready at once. Within a
/// reach the choice is among ops that have arrived. The method is weak where memory has to rise
/// first to fall later, because it looks one op ahead.
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
