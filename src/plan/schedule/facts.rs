//! What of a step may be dropped and made again, in some order.

use super::super::Order;
use super::may_run_again;

/// What rematerializers know of a step beforehand. Positions are those in the order.
#[derive(Debug)]
pub(super) struct Facts {
    /// Buffer -> where it is used, in order.
    pub uses: Vec<Vec<usize>>,
    /// Buffer -> whether it may be dropped: its maker may run again, nobody updates it, and as long as anybody uses it, all
    /// that it is made from is, or can be made again, as it was.
    pub may_go: Vec<bool>,
    /// Buffer that may not be dropped -> the last position at which it may be wanted to make something again, or used.
    pub wanted_until: Vec<usize>,
}

const NEVER: usize = usize::MAX;

impl Facts {
    /// O(operands).
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
        // Buffer -> the position up to which it can be made again as it was.
        let mut made_until = vec![NEVER; count];
        let mut may_go = vec![false; count];
        for (at, &op) in order.ops().iter().enumerate() {
            let this = &capture.ops()[op];
            // A run after that would find something else, or write over it.
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
        // Who cannot be made again has to wait for those that are made from it.
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

    /// Where a buffer is used next, from a position on.
    pub fn next_use(&self, buffer: usize, from: usize) -> Option<usize> {
        let uses = &self.uses[buffer];
        uses.get(uses.partition_point(|&at| at < from)).copied()
    }
}
