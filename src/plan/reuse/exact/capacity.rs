//! Descent to the least capacity into which buffers fit: lower and lower capacities, with growing
//! effort.

use super::super::super::Limits;
use super::preorder::Preorder;
use super::restarts::Restarts;
use super::search::{Answer, Search};
use super::sections::Part;
use super::state::Rules;

/// Progress of the descent for one part.
#[derive(Debug)]
pub(super) struct Descent {
    /// Proven lower bound of the height, in units.
    pub floor: u64,
    /// Height of the best placement so far, in units.
    pub height: u64,
    /// Address of each item in that placement; empty as long as only the caller knows it.
    pub offsets: Vec<u64>,
    /// A search for each preorder at the least capacity. That capacity is asked for again and
    /// again, so failed states are remembered. Empty while the part rests, to save memory when
    /// there are many parts.
    lowest: Vec<Search>,
    /// A search for each preorder at other capacities; empty while the part rests.
    higher: Vec<Search>,
    restarts: Option<Restarts>,
    rules: Rules,
    /// Limit on the nodes of a search at its next trial.
    effort: u64,
}

impl Descent {
    /// Descent of a part with a known placement of `height`.
    pub fn new(part: &Part, height: u64, rules: Rules) -> Self {
        Self {
            floor: part.load(),
            height,
            offsets: Vec::new(),
            lowest: Vec::new(),
            higher: Vec::new(),
            restarts: None,
            rules,
            effort: 2 * part.items.len() as u64,
        }
    }

    /// Frees memory needed only to continue.
    pub fn pause(&mut self) {
        (self.lowest, self.higher) = (Vec::new(), Vec::new());
    }

    /// Lowers the height until it is proven least or at most `goal`, or every capacity tried has
    /// had its effort; the effort then doubles. Counts `nodes` down, and stops at 0.
    pub fn step(&mut self, part: &Part, goal: u64, nodes: &mut u64, limits: &Limits) {
        if self.lowest.is_empty() {
            let search = |order: &Preorder| Search::new(part, order.sort(part), self.rules);
            self.lowest = Preorder::ALL.iter().map(search).collect();
            self.higher = Preorder::ALL.iter().map(search).collect();
        }
        let mut capacity = self.floor.max(goal);
        // Capacities below `least` have had their effort.
        let mut least = capacity;
        while least < self.height {
            match self.fits(capacity, least == self.floor.max(goal), nodes, limits) {
                Answer::Placed => {}
                Answer::Never => {
                    self.floor = capacity + 1;
                    least = least.max(self.floor);
                }
                Answer::Unknown if *nodes == 0 || limits.over() => return,
                Answer::Unknown => {
                    self.restart(part, goal, nodes, limits);
                    least = capacity + 1;
                }
            }
            capacity = least.midpoint(self.height.saturating_sub(1));
        }
        self.effort = self.effort.saturating_mul(2);
    }

    /// Answer for a capacity, after trying each preorder.
    fn fits(&mut self, capacity: u64, lowest: bool, nodes: &mut u64, limits: &Limits) -> Answer {
        let searches = if lowest { &mut self.lowest } else { &mut self.higher };
        for search in searches {
            // The least capacity gets the most effort: the best placement often reaches it.
            let given = (self.effort * if lowest { 16 } else { 1 }).min(*nodes);
            let mut left = given;
            let answer = search.fits(capacity, &mut left, limits);
            *nodes -= given - left;
            if answer == Answer::Placed {
                (self.offsets, self.height) = search.state.placement();
            }
            if answer != Answer::Unknown {
                return answer;
            }
        }
        Answer::Unknown
    }

    /// Runs short searches, with more effort than one capacity has had.
    fn restart(&mut self, part: &Part, goal: u64, nodes: &mut u64, limits: &Limits) {
        let given = self.effort.saturating_mul(24).min(*nodes);
        let mut left = given;
        let least = self.floor.max(goal);
        let restarts = self.restarts.get_or_insert_with(|| Restarts::new(part, self.rules));
        let found = restarts.lower(part, least, &mut self.height, &mut left, limits);
        if let Some(offsets) = found {
            self.offsets = offsets;
        }
        *nodes -= given - left;
    }
}
