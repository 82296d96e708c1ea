//! Properties of the buffers of a step in some order: their uses, and whether they may be dropped.

use super::may_run_again;
use crate::Order;

/// Properties of buffers that rematerializers need to choose which buffers to drop. A position is
/// an index in the order.
#[derive(Debug)]
pub(super) struct Facts {
    /// Buffer -> positions of the ops that use it, in order.
    pub uses: Vec<Vec<usize>>,
    /// Buffer -> whether the buffer may be dropped. Three conditions must hold:
    ///
    /// - The op that makes the buffer may run again.
    /// - No op updates the buffer.
    /// - Up to the last use of the buffer, the inputs of the op that makes it keep their values, or
    ///   can be made again with the same values.
    pub may_go: Vec<bool>,
    /// Buffer -> last position at which the buffer may be used, or read to make another buffer
    /// again. The position is needed only for buffers that may not be dropped.
    pub wanted_until: Vec<usize>,
}

const NEVER: usize = usize::MAX;

impl Facts {
    /// Collects the facts. Time: O(operands).
    pub fn new(order: &Order<'_>) -> Self {
        let capture = order.capture();
        let count = capture.buffers().len();
        let mut uses: Vec<Vec<usize>> = vec![Vec::new(); count];
        let mut updates: Vec<Vec<usize>> = vec![Vec::new(); count];
        for (at, &op) in order.ops().iter().enumerate() {
            let op = &capture.ops()[op];
            op.uses().for_each(|buffer| uses[buffer].push(at));
            op.updates.iter().for_each(|&buffer| updates[buffer].push(at));
        }
        // Buffer -> position up to which the buffer can be made again with the same contents.
        let mut made_until = vec![NEVER; count];
        let mut may_go = vec![false; count];
        for (at, &op) in order.ops().iter().enumerate() {
            let this = &capture.ops()[op];
            // Position of the next update of a buffer. After this update, a repeated run of `op`
            // would read a different value, or overwrite the updated value.
            let next_update = |buffer: usize| {
                let next = updates[buffer].iter().copied().find(|&update| update > at);
                next.unwrap_or(NEVER)
            };
            let read = this.reads.iter().map(|&read| made_until[read].min(next_update(read)));
            let made = this.makes.iter().map(|&made| next_update(made));
            let until = read.chain(made).min().unwrap_or(NEVER);
            for &made in &this.makes {
                made_until[made] = until;
                let last = uses[made].last().copied().unwrap_or(at);
                let last = if capture.buffers()[made].after { NEVER } else { last };
                may_go[made] =
                    may_run_again(capture, op) && updates[made].is_empty() && last <= until;
            }
        }
        // A buffer that may not be dropped must stay as long as any buffer made from it may have to
        // be made again.
        let last = |uses: &Vec<usize>| uses.last().copied().unwrap_or(0);
        let mut wanted_until: Vec<usize> = uses.iter().map(last).collect();
        for &op in order.ops().iter().rev() {
            let op = &capture.ops()[op];
            let made = op.makes.iter().filter(|&&made| may_go[made]);
            let until = made.map(|&made| wanted_until[made]).max().unwrap_or(0);
            op.reads.iter().for_each(|&read| wanted_until[read] = wanted_until[read].max(until));
        }
        Self { uses, may_go, wanted_until }
    }

    /// Position of the next use of a buffer, from position `from` on.
    pub fn next_use(&self, buffer: usize, from: usize) -> Option<usize> {
        let uses = &self.uses[buffer];
        uses.get(uses.partition_point(|&at| at < from)).copied()
    }
}
