//! Descent: the search for the least capacity into which buffers fit. The searches of a descent use
//! lower and lower capacities, and more and more nodes. A node is one placed buffer.

use super::preorder::Preorder;
use super::restarts::Restarts;
use super::search::{Answer, Search};
use super::sections::Part;
use super::state::Rules;
use crate::Limits;

/// Progress of the descent for one part, which is a group of buffers linked in time.
#[derive(Debug)]
pub(super) struct Descent {
    /// Proven lower bound on the height of a placement, in units.
    pub floor: u64,
    /// Height of the best placement so far, in units.
    pub height: u64,
    /// Address of each item in the best placement, in units. The vector is empty if the placement
    /// of the caller is still the best.
    pub offsets: Vec<u64>,
    /// One search for each preorder, at the lowest capacity that is not excluded. The lowest
    /// capacity is tried many times, so its searches keep their failed states. The vector is empty
    /// during the descent of another part, to save memory.
    lowest: Vec<Search>,
    /// One search for each preorder, at higher capacities. The vector is empty during the descent
    /// of another part.
    higher: Vec<Search>,
    restarts: Option<Restarts>,
    rules: Rules,
    /// Limit on the nodes of the next search at one capacity.
    effort: u64,
}

impl Descent {
    /// Descent of a part that has a known placement of this height.
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

    /// Frees the searches, which are needed only to continue the descent.
    pub fn pause(&mut self) {
        (self.lowest, self.higher) = (Vec::new(), Vec::new());
    }

    /// Lowers the height. Stops when the height is at most `goal` or proven to be the least. Also
    /// stops after one round of searches with `effort` nodes at each capacity, and doubles `effort`
    /// for the next round. Subtracts the nodes that the searches used from `nodes`, and stops when
    /// `nodes` is 0.
    pub fn step(&mut self, part: &Part, goal: u64, nodes: &mut u64, limits: &Limits) {
        if self.lowest.is_empty() {
            let search = |order: &Preorder| Search::new(part, order.sort(part), self.rules);
            self.lowest = Preorder::ALL.iter().map(search).collect();
            self.higher = Preorder::ALL.iter().map(search).collect();
        }
        let mut capacity = self.floor.max(goal);
        // Capacities below `least` have been tried in this round.
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

    /// Tries each preorder at a capacity, until one of them gives an answer.
    fn fits(&mut self, capacity: u64, lowest: bool, nodes: &mut u64, limits: &Limits) -> Answer {
        let searches = if lowest { &mut self.lowest } else { &mut self.higher };
        for search in searches {
            // The lowest capacity gets the most effort, because the best placement often has this
            // height.
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

    /// Runs short searches in random orders. All short searches together may use more nodes than
    /// the searches at a single capacity.
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
