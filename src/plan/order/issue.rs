//! Which ops may run next.

use super::{Capture, Reach};
use std::collections::BTreeSet;

/// A step that goes on in some order: commands come as far as they may, and those run whose needs have run.
#[derive(Clone, Debug)]
pub(super) struct Issue<'a> {
    capture: &'a Capture,
    reach: Reach,
    /// Op -> how many that must run before it have not.
    missing: Vec<usize>,
    /// Those that have come, have not run, and miss nothing. Not empty while any have not run: the first in the program that
    /// has not run has come, and misses nothing.
    ready: BTreeSet<usize>,
    /// How many have come, the first of the program.
    come: usize,
    ran: usize,
    /// What the host waits for: nothing comes before it has run.
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

    /// Those that may run next, in the order of the program.
    pub const fn ready(&self) -> &BTreeSet<usize> {
        &self.ready
    }

    /// Runs one of them.
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

    /// More come, as far as they may.
    fn come(&mut self) {
        let count = self.missing.len();
        let most = match self.reach {
            Reach::Offline => count,
            // While the next one runs, so many of those that have come have not.
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
