//! Kahn's order: the op that became ready first runs first.

use super::{Order, OrderError, Reach, Scheduler};
use crate::{Capture, Limits};
use std::collections::VecDeque;

/// `bfs`: runs ops in the order in which they become ready. Ops that become ready together run in
/// the order of the program.
///
/// The method is Kahn's algorithm (1962), which CANN also uses. Time: O(operands). The order is
/// weak on deep graphs: all branches advance together, so the values of all branches are in memory
/// at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BreadthFirst;

impl Scheduler for BreadthFirst {
    fn name(&self) -> &'static str {
        "bfs"
    }

    fn order<'a>(
        &self,
        capture: &'a Capture,
        reach: Reach,
        _limits: &Limits,
    ) -> Result<Order<'a>, OrderError> {
        let count = capture.ops().len();
        let mut missing: Vec<usize> = (0..count).map(|op| capture.predecessors(op).len()).collect();
        let mut queue: VecDeque<usize> = (0..count).filter(|&op| missing[op] == 0).collect();
        let mut ops = Vec::with_capacity(count);
        while let Some(op) = queue.pop_front() {
            ops.push(op);
            for &after in capture.successors(op) {
                missing[after] -= 1;
                if missing[after] == 0 {
                    queue.push_back(after);
                }
            }
        }
        Ok(Order::new(capture, ops)?.within(reach))
    }
}
