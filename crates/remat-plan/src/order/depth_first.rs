//! Depth-first orders, which run one branch at a time. A branch is followed from its first op or
//! from its last op.

use super::{Order, OrderError, Reach, Scheduler};
use crate::{Capture, Limits};

/// `dfs`: runs the op that became ready last. If several ops became ready together, the op that
/// comes first in the program runs first. Choosing the newest ready op makes a branch run to its
/// end before the next branch begins.
///
/// CANN also has this order. The method uses a stack where `bfs` uses a queue. Time: O(operands).
/// The order is weak if the branches come in the wrong order: the inputs of the later branches stay
/// in memory while all earlier branches run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DepthFirst;

impl Scheduler for DepthFirst {
    fn name(&self) -> &'static str {
        "dfs"
    }

    fn order<'a>(
        &self,
        capture: &'a Capture,
        reach: Reach,
        _limits: &Limits,
    ) -> Result<Order<'a>, OrderError> {
        let count = capture.ops().len();
        let mut missing: Vec<usize> = (0..count).map(|op| capture.predecessors(op).len()).collect();
        let mut stack: Vec<usize> = (0..count).rev().filter(|&op| missing[op] == 0).collect();
        let mut ops = Vec::with_capacity(count);
        while let Some(op) = stack.pop() {
            ops.push(op);
            for &after in capture.successors(op).iter().rev() {
                missing[after] -= 1;
                if missing[after] == 0 {
                    stack.push(after);
                }
            }
        }
        Ok(Order::new(capture, ops)?.within(reach))
    }
}

/// `reverse-dfs`: visits the ops without successors in the order of the program. All ops that a
/// visited op needs run just before it. Each op therefore runs only when the first op that needs
/// its results is about to run.
///
/// CANN and XLA (`PostOrder`) have this order. Time: O(operands). The order is weak on training
/// steps whose updates are at the end. Just before each update, the order runs only the part of the
/// backward pass that the update needs. The values for later updates stay in memory until these
/// updates run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReverseDepthFirst;

impl Scheduler for ReverseDepthFirst {
    fn name(&self) -> &'static str {
        "reverse-dfs"
    }

    fn order<'a>(
        &self,
        capture: &'a Capture,
        reach: Reach,
        _limits: &Limits,
    ) -> Result<Order<'a>, OrderError> {
        let count = capture.ops().len();
        let mut ops = Vec::with_capacity(count);
        let mut seen = vec![false; count];
        for last in (0..count).filter(|&op| capture.successors(op).is_empty()) {
            // Ops whose predecessors are being visited, each with the number of its predecessors
            // visited so far.
            let mut stack = vec![(last, 0)];
            seen[last] = true;
            while let Some((op, asked)) = stack.last_mut() {
                match capture.predecessors(*op).get(*asked) {
                    Some(&needed) => {
                        *asked += 1;
                        if !std::mem::replace(&mut seen[needed], true) {
                            stack.push((needed, 0));
                        }
                    }
                    None => {
                        ops.push(*op);
                        stack.pop();
                    }
                }
            }
        }
        Ok(Order::new(capture, ops)?.within(reach))
    }
}
