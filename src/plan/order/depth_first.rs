//! One branch after the other, from its beginning or from its end.

use super::super::{Capture, Limits};
use super::{Order, OrderError, Reach, Scheduler};

/// `dfs`: what became ready last runs first; of several that one op makes ready, the first of the program. So a branch is
/// followed to its end before the next one begins.
///
/// As CANN has it among its plain orders (a stack in place of the queue of `bfs`). O(operands). Weak where it takes the
/// branches in the wrong order: what begins the later ones waits through all of the earlier.
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

/// `reverse-dfs`: for each op that none waits for, in the order of the program, first all that it needs, each as late as
/// possible: an op runs when the first of those that want it does.
///
/// As CANN and XLA (`PostOrder`) have it. O(operands). Weak on training steps with updates at the end: it runs the backward
/// pass as the updates ask for it, and keeps what it has to hand down meanwhile.
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
            // Each with how many of those that it needs have been asked for.
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
