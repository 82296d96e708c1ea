//! CANN's rules for moving ops to later positions in an order.

use super::{Order, OrderError, Reach, Scheduler};
use crate::{Capture, Limits};

/// `sink`: moves an op to just before the first op that must run after it, if this saves memory
/// between the two positions. Two rules allow a move:
///
/// - the fixed rule: every buffer that the op reads is in memory for the whole step, or the op
///   reads no buffer;
/// - the dynamic rule: the outputs of the op have more bytes than the inputs that the move would
///   keep in memory longer.
///
/// Source: CANN's article on the order of ops, which has the rules for graphs without updates. In
/// this implementation, an op also stays before ops that overwrite its inputs. A pass visits the
/// ops from the last to the first. Passes are repeated until no op moves; in each pass, only one op
/// of a chain moves. Time: O(operands) per pass. Two to four passes are usual, and the limit is 64.
/// The method changes little or nothing if the order of the program is already good, as in training
/// steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sink;

/// Limit on the number of passes.
const MOST_PASSES: usize = 64;

impl Scheduler for Sink {
    fn name(&self) -> &'static str {
        "sink"
    }

    fn order<'a>(
        &self,
        capture: &'a Capture,
        reach: Reach,
        limits: &Limits,
    ) -> Result<Order<'a>, OrderError> {
        let mut ops = capture.program().into_ops();
        for _ in 0..MOST_PASSES {
            let sunk = pass(capture, &ops, limits)
                .ok_or(OrderError::TooLong { scheduler: self.name() })?;
            if sunk == ops {
                break;
            }
            ops = sunk;
        }
        Ok(Order::new(capture, ops)?.within(reach))
    }
}

/// Makes one pass over an order, and returns the new order; `None` if the time is up. Visits each
/// op once, from the last to the first. An op is not moved in this pass if its first successor was
/// moved.
fn pass(capture: &Capture, ops: &[usize], limits: &Limits) -> Option<Vec<usize>> {
    let mut at = vec![0; ops.len()];
    for (position, &op) in ops.iter().enumerate() {
        at[op] = position;
    }
    let mut has_sunk = vec![false; ops.len()];
    // Op -> ops that move to just before it, from the last to the first.
    let mut sunk: Vec<Vec<usize>> = vec![Vec::new(); ops.len()];
    let mut stays = Vec::with_capacity(ops.len());
    for &op in ops.iter().rev() {
        if limits.over() {
            return None;
        }
        let first = capture.successors(op).iter().copied().min_by_key(|&after| at[after]);
        match first.filter(|&to| !has_sunk[to] && sinks(capture, op, to, &at)) {
            Some(to) => {
                sunk[to].push(op);
                has_sunk[op] = true;
            }
            None => stays.push(op),
        }
    }
    let with_sunk = |&op: &usize| sunk[op].iter().rev().copied().chain([op]).collect::<Vec<_>>();
    Some(stays.iter().rev().flat_map(with_sunk).collect())
}

/// Whether an op should move to just before the later op `to`.
fn sinks(capture: &Capture, op: usize, to: usize, at: &[usize]) -> bool {
    let this = &capture.ops()[op];
    let bytes = |buffer: usize| capture.buffers()[buffer].bytes;
    // Without the move, a buffer is freed before `to` if it does not stay after the step and no op
    // from `to` on uses it.
    let goes = |buffer: &usize| {
        let is_used = capture.users(*buffer).iter().any(|&user| at[user] >= at[to]);
        !capture.buffers()[*buffer].after && !is_used
    };
    let longer: u64 = this.uses().filter(goes).map(bytes).sum();
    let shorter: u64 = this.makes.iter().map(|&made| bytes(made)).sum();
    at[to] > at[op] + 1 && !this.waits && shorter > longer
}
