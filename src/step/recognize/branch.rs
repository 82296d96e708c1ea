use super::NodeId;
use smallvec::{SmallVec, smallvec};

/// Number of remembered runs. A run is a series of occurrences of a node after which the same
/// successor came.
const RUNS: usize = 16;

/// Count of a run that the end of the program may have cut off. The true count of the run is
/// unknown, so predictions skip the run.
const FOR_GOOD: u32 = u32::MAX;

/// Successors of a node that has several, with the lengths of their runs.
///
/// To predict, the branch finds the last time when the current successor had come as often in a row
/// as it has now. The prediction is the successor that came next at that time. For example, an
/// evaluation that once followed nine training steps is predicted after nine training steps.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(super) struct Branch {
    /// Runs in the order in which they came: a successor, and how often in a row it came. The count
    /// of the last run may still grow.
    runs: SmallVec<[(NodeId, u32); 4]>,
}

impl Branch {
    /// A branch at which `first` has come `times` times and then `second` once.
    pub fn new(first: NodeId, times: u32, second: NodeId) -> Self {
        Self { runs: smallvec![(first, times), (second, 1)] }
    }

    /// Successors seen so far, the latest first.
    pub fn all(&self) -> impl Iterator<Item = NodeId> {
        self.runs.iter().rev().map(|run| run.0)
    }

    pub fn took(&mut self, node: NodeId) {
        match self.runs.last_mut() {
            Some(run) if run.0 == node => run.1 = run.1.saturating_add(1),
            _ => self.push(node, 1),
        }
    }

    fn push(&mut self, node: NodeId, times: u32) {
        if self.runs.len() == RUNS {
            self.runs.remove(0);
        }
        self.runs.push((node, times));
    }

    /// Prepares for another run of the program: the successor that came first in the current run
    /// will be predicted first. The program may have ended within the last run, so the count of the
    /// last run is not used for predictions.
    pub fn begin_again(&mut self) {
        let first = self.runs[0].0;
        match self.runs.last_mut() {
            // The last run has not begun.
            Some((_, 0)) => {}
            Some((last, times)) if *last == first => *times = 0,
            Some((_, times)) => {
                *times = FOR_GOOD;
                self.push(first, 0);
            }
            None => {}
        }
    }

    /// Replaces the last successor, `node`, by `known`. `None` means that no successor came.
    pub fn mistook(&mut self, node: NodeId, known: Option<NodeId>) {
        if self.runs.last() == Some(&(node, 1)) {
            self.runs.pop();
            known.into_iter().for_each(|known| self.took(known));
        }
        if self.runs.len() == 1 {
            // Only one successor is left, but a branch needs two runs: repeat its run.
            self.runs.push(self.runs[0]);
        }
    }

    /// Replaces each node by the node that `now` returns for it; `None` removes the node. Returns
    /// `None` if no successor is left.
    pub fn renamed(self, now: impl Fn(NodeId) -> Option<NodeId>) -> Option<Self> {
        let mut runs: SmallVec<[(NodeId, u32); 4]> = SmallVec::new();
        for (node, times) in self.runs {
            match (now(node), runs.last_mut()) {
                (None, _) => {}
                (Some(node), Some(last)) if last.0 == node => {
                    last.1 = last.1.saturating_add(times);
                }
                (Some(node), _) => runs.push((node, times)),
            }
        }
        match runs[..] {
            [] => None,
            // Only one successor is left, but a branch needs two runs: repeat its run.
            [only] => Some(Self { runs: smallvec![only, only] }),
            _ => Some(Self { runs }),
        }
    }

    /// The predicted successor.
    pub fn expected(&self) -> NodeId {
        let (&(now, count), past) = self.runs.split_last().expect("two have come");
        let is_now = |run: &(NodeId, u32)| run.0 == now;
        match past.iter().rposition(|run| is_now(run) && run.1 != FOR_GOOD) {
            Some(run) if past[run].1 == count => self.runs[run + 1].0,
            // The current successor has not come before. The previous successor is expected next if
            // it came more often in a row than the current successor has so far.
            None if !past.iter().any(is_now) => match past.last() {
                Some(&(before, times)) if times > count => before,
                _ => now,
            },
            _ => now,
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
        // The successors are 1 2 1 1 1 2: successor 2 follows after successor 1 came three times,
        // and successor 1 follows after successor 2 came once.
        for _ in 0..5 {
            for _ in 0..3 {
                assert_eq!(branch.expected(), 1);
                branch.took(1);
            }
            assert_eq!(branch.expected(), 2);
            branch.took(2);
        }
        // Successor 2 comes more often in a row than ever before, so it is expected to come again.
        for _ in 0..9 {
            branch.took(2);
        }
        assert_eq!(branch.expected(), 2);
        assert_eq!(branch.all().next(), Some(2));
        assert!(branch.runs.len() <= RUNS);
    }

    #[test]
    fn another_run_begins_as_the_one_before() {
        for program in
            [&[1, 2, 2, 2, 2][..], &[1, 1, 2, 1, 1, 2, 1, 1, 2, 1], &[3, 1, 1, 2, 1, 1, 2, 1, 1, 2]]
        {
            let mut before = Branch::new(program[0], 1, program[1]);
            program[2..].iter().for_each(|&node| before.took(node));
            before.begin_again();
            let again = before.runs.clone();
            before.begin_again();
            assert_eq!(before.runs, again, "it had begun");
            for &node in program {
                assert_eq!(before.expected(), node, "{program:?}: {:?}", before.runs);
                before.took(node);
            }
        }
    }
}
