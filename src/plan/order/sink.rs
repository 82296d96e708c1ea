//! CANN's rules for moving ops back.

use super::super::{Capture, Limits};
use super::{Order, OrderError, Reach, Scheduler};

/// `sink`: ops of the program move to just before the first op that waits for them, where that costs no memory meanwhile:
///
/// - the fixed rule: all that the op reads is there for the whole step anyway (it is kept, or it reads nothing);
/// - the dynamic rule: what the op makes is larger than what it reads that would go meanwhile.
///
/// From CANN's article on the order of ops, which has the rules for graphs without updates; here an op also stays before
/// those that write over what it reads. Passes go from the end to the beginning until nothing moves
/// any more, a chain one op further each time. O(operands) a pass; two to four are usual and 64 are the most. Weak where the program's order
/// is good already, as those of training steps are: then nothing moves, or little.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sink;

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

/// Each op once, from the last to the first. One whose first successor has moved waits for the next pass. `None` where it is
/// time to answer.
fn pass(capture: &Capture, ops: &[usize], limits: &Limits) -> Option<Vec<usize>> {
    let mut at = vec![0; ops.len()];
    for (position, &op) in ops.iter().enumerate() {
        at[op] = position;
    }
    let mut has_sunk = vec![false; ops.len()];
    // Op -> those that sank to just before it, the last first.
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

/// Whether an op is to run just before another that is later.
fn sinks(capture: &Capture, op: usize, to: usize, at: &[usize]) -> bool {
    let this = &capture.ops()[op];
    let bytes = |buffer: usize| capture.buffers()[buffer].bytes;
    // What it reads goes meanwhile if nobody keeps it and nobody uses it from then on.
    let goes = |buffer: &usize| {
        let is_used = capture.users(*buffer).iter().any(|&user| at[user] >= at[to]);
        !capture.buffers()[*buffer].after && !is_used
    };
    let longer: u64 = this.uses().filter(goes).map(bytes).sum();
    let shorter: u64 = this.makes.iter().map(|&made| bytes(made)).sum();
    at[to] > at[op] + 1 && !this.waits && shorter > longer
}
