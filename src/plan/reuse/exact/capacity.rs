//! The least capacity into which buffers fit: ever lower ones are tried, with ever more effort.

use super::super::super::Limits;
use super::preorder::Preorder;
use super::restarts::Restarts;
use super::search::{Answer, Search};
use super::sections::Part;
use super::state::Rules;

/// How far the search for the least capacity of one part has come.
#[derive(Debug)]
pub(super) struct Descent {
    /// It is known that nothing less will do.
    pub floor: u64,
    /// Into this it fits.
    pub height: u64,
    /// The address of each item, with this height; empty as long as only the caller knows it.
    pub offsets: Vec<u64>,
    /// In each order, at the least capacity: it is asked for again and again, and what failed is remembered. Empty
    /// while the part rests: there may be many parts, and a search takes room.
    lowest: Vec<Search>,
    /// In each order, at others; empty likewise.
    higher: Vec<Search>,
    restarts: Option<Restarts>,
    rules: Rules,
    /// How many nodes a search may take at its next trial.
    effort: u64,
}

impl Descent {
    /// Of a part that is known to fit into `height`.
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

    /// Frees what is only needed to go on.
    pub fn pause(&mut self) {
        (self.lowest, self.higher) = (Vec::new(), Vec::new());
    }

    /// Lowers the height until it is known to be least, is no more than `goal`, or all ways have had their effort,
    /// which then doubles. Counts `nodes` down, and stops at 0.
    pub fn step(&mut self, part: &Part, goal: u64, nodes: &mut u64, limits: &Limits) {
        if self.lowest.is_empty() {
            let search = |order: &Preorder| Search::new(part, order.sort(part), self.rules);
            self.lowest = Preorder::ALL.iter().map(search).collect();
            self.higher = Preorder::ALL.iter().map(search).collect();
        }
        let mut capacity = self.floor.max(goal);
        // Lower ones had their effort.
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

    /// Whether it fits, asked in each order.
    fn fits(&mut self, capacity: u64, lowest: bool, nodes: &mut u64, limits: &Limits) -> Answer {
        let searches = if lowest { &mut self.lowest } else { &mut self.higher };
        for search in searches {
            // The least is what is reached most often.
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

    /// Short searches, with more effort than one capacity has had.
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
