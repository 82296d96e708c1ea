//! The least capacity into which buffers fit: ever lower ones are tried, with ever more effort.

use super::super::super::Limits;
use super::preorder::Preorder;
use super::search::{Answer, Rules, Search};
use super::sections::Part;

/// How far the search for the least capacity of one part has come.
#[derive(Debug)]
pub(super) struct Descent {
    /// It is known that nothing less will do.
    pub floor: u64,
    /// Into this it fits.
    pub height: u64,
    /// The address of each item, with this height; empty as long as only the caller knows it.
    pub offsets: Vec<u64>,
    searches: Vec<Search>,
    /// How many nodes a search may take at its next trial.
    effort: u64,
}

impl Descent {
    /// Of a part that is known to fit into `height`.
    pub fn new(part: &Part, height: u64, rules: Rules) -> Self {
        let search = |order: &Preorder| Search::new(part, order.sort(part), rules);
        Self {
            floor: part.load(),
            height,
            offsets: Vec::new(),
            searches: Preorder::ALL.iter().map(search).collect(),
            effort: 2 * part.items.len() as u64,
        }
    }

    /// Tries capacities from `goal` up until the height is known to be least, is no more than `goal`, or each has had
    /// its effort, which then doubles. Counts `nodes` down, and stops at 0.
    pub fn step(&mut self, goal: u64, nodes: &mut u64, limits: &Limits) {
        let mut capacity = self.floor.max(goal);
        // Lower ones had their effort.
        let mut lowest = capacity;
        while lowest < self.height {
            match self.fits(capacity, nodes, limits) {
                Answer::Placed => {}
                Answer::Never => {
                    self.floor = capacity + 1;
                    lowest = lowest.max(self.floor);
                }
                Answer::Unknown if *nodes == 0 || limits.over() => return,
                Answer::Unknown => lowest = capacity + 1,
            }
            capacity = lowest.midpoint(self.height.saturating_sub(1));
        }
        self.effort = self.effort.saturating_mul(2);
    }

    /// Whether it fits, asked in each order.
    fn fits(&mut self, capacity: u64, nodes: &mut u64, limits: &Limits) -> Answer {
        for search in &mut self.searches {
            let given = self.effort.min(*nodes);
            let mut left = given;
            let answer = search.fits(capacity, &mut left, limits);
            *nodes -= given - left;
            if answer == Answer::Placed {
                (self.offsets, self.height) = search.placement();
            }
            if answer != Answer::Unknown {
                return answer;
            }
        }
        Answer::Unknown
    }
}
