use super::NodeId;
use smallvec::{SmallVec, smallvec};

/// So many runs are remembered.
const RUNS: usize = 16;

/// Several commands have come after this one. What comes next is what came the last time that the same one had come as
/// often as it has now: training nine times, then evaluation.
#[derive(Debug)]
pub(super) struct Branch {
    /// What came, and how often without another in between. The last one may go on.
    runs: SmallVec<[(NodeId, u32); 4]>,
}

impl Branch {
    /// `first` has come always, so many times, and now `second`.
    pub fn new(first: NodeId, times: u32, second: NodeId) -> Self {
        Self { runs: smallvec![(first, times), (second, 1)] }
    }

    /// What has come so far.
    pub fn all(&self) -> impl Iterator<Item = NodeId> {
        self.runs.iter().rev().map(|run| run.0)
    }

    pub fn took(&mut self, node: NodeId) {
        match self.runs.last_mut() {
            Some(run) if run.0 == node => run.1 = run.1.saturating_add(1),
            _ => {
                if self.runs.len() == RUNS {
                    self.runs.remove(0);
                }
                self.runs.push((node, 1));
            }
        }
    }

    /// What came last was not `node`, but `known` as so often.
    pub fn mistook(&mut self, node: NodeId, known: NodeId) {
        if self.runs.last() == Some(&(node, 1)) {
            self.runs.pop();
            self.took(known);
        }
        if self.runs.len() == 1 {
            // There is no other any more.
            self.runs.push(self.runs[0]);
        }
    }

    /// What comes next.
    pub fn expected(&self) -> NodeId {
        let (&(now, count), past) = self.runs.split_last().expect("two have come");
        match past.iter().rposition(|run| run.0 == now) {
            Some(run) if past[run].1 == count => self.runs[run + 1].0,
            Some(_) => now,
            // It comes for the first time: for once, if that was so of all others.
            None => match past.last() {
                Some(&(before, times)) if times > count => before,
                _ => now,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_counted() {
        let mut branch = Branch::new(1, 1, 2);
        assert_eq!(branch.expected(), 2);
        branch = Branch::new(1, 3, 2);
        assert_eq!(branch.expected(), 1, "once, perhaps");
        for _ in 0..3 {
            branch.took(1);
        }
        branch.took(2);
        // 1 2 1 1 1 2: after three of the first, the second; after one of that, the first.
        for _ in 0..5 {
            for _ in 0..3 {
                assert_eq!(branch.expected(), 1);
                branch.took(1);
            }
            assert_eq!(branch.expected(), 2);
            branch.took(2);
        }
        // It comes more often than ever: as if it went on for good.
        for _ in 0..9 {
            branch.took(2);
        }
        assert_eq!(branch.expected(), 2);
        assert_eq!(branch.all().next(), Some(2));
        assert!(branch.runs.len() <= RUNS);
    }
}
