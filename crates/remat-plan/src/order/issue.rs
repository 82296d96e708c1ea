//! State of a step after some ops have run: the ops that may run next within a reach.

use super::{Capture, Reach};
use std::collections::BTreeSet;

/// A step in progress. Commands arrive in the order of the program, as many as `reach` allows. An
/// op is ready once it has arrived and all its predecessors have run.
#[derive(Clone, Debug)]
pub(super) struct Issue<'a> {
    capture: &'a Capture,
    reach: Reach,
    /// Op -> number of its predecessors that have not run.
    missing: Vec<usize>,
    /// Ops that have arrived and whose predecessors have run. The set always contains the first op
    /// of the program that has not run, so it is empty only at the end.
    ready: BTreeSet<usize>,
    /// Number of commands that have arrived, which are the first commands of the program.
    come: usize,
    ran: usize,
    /// Op that the host waits for. No further command arrives before this op has run.
    awaited: Option<usize>,
}

impl<'a> Issue<'a> {
    pub fn new(capture: &'a Capture, reach: Reach) -> Self {
        let count = capture.ops().len();
        let missing = (0..count).map(|op| capture.predecessors(op).len()).collect();
        let mut issue = Self {
            capture,
            reach,
            missing,
            ready: BTreeSet::new(),
            come: 0,
            ran: 0,
            awaited: None,
        };
        issue.come();
        issue
    }

    /// Ops that may run next, in the order of the program.
    pub const fn ready(&self) -> &BTreeSet<usize> {
        &self.ready
    }

    /// Runs a ready op.
    pub fn run(&mut self, op: usize) {
        self.ready.remove(&op);
        self.ran += 1;
        for &after in self.capture.successors(op) {
            self.missing[after] -= 1;
            if self.missing[after] == 0 && after < self.come {
                self.ready.insert(after);
            }
        }
        if self.awaited == Some(op) {
            self.awaited = None;
        }
        self.come();
    }

    /// Lets as many commands arrive as `reach` allows.
    fn come(&mut self) {
        let count = self.missing.len();
        let most = match self.reach {
            Reach::Offline => count,
            // After the next op, at most `most` of the commands that have arrived may be held back.
            Reach::Held(most) => most.saturating_add(self.ran + 1).min(count),
        };
        while self.come < most && self.awaited.is_none() {
            if self.missing[self.come] == 0 {
                self.ready.insert(self.come);
            }
            let waits = self.capture.ops()[self.come].waits && self.reach != Reach::Offline;
            self.awaited = waits.then_some(self.come);
            self.come += 1;
        }
    }
}
