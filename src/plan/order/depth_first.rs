//! Depth-first orders: a branch at a time, from its beginning or from its end.

use super::super::{Capture, Limits};
use super::{Order, OrderError, Reach, Scheduler};

/// `dfs`: runs the latest ready op. Of several ops made ready at once, the first of the program
/// runs first. So a branch is followed to its end before the next one begins.
///
/// CANN has it among its plain orders (a stack in place of the queue of `bfs`). Time: O(operands).
/// The method is weak where it takes the branches in the wrong order: the values at the beginning
/// of later branches wait through all earlier ones.
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

/// `reverse-dfs`: for each op without successors, in the order of the program, runs first all ops
/// that it needs. Each op runs as late as possible: for the first op that needs it.
///
/// CANN and XLA (`PostOrder`) have this order. Time: O(operands). The method is weak on training
/// steps with updates at the end: the backward pass runs as the updates ask for it, and its values
/// for later updates wait in memory meanwhile.
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
            // Op on the way -> number of its predecessors visited so far.
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
