//! Many short searches, each in a different random order. A short search in a good order can find
//! more than a long search in a bad order.

use super::preorder::Preorder;
use super::scatter;
use super::search::{Answer, Search};
use super::sections::Part;
use super::state::Rules;
use crate::Limits;

/// Source of random variations of good orders, and the searches in these orders.
///
/// The time of a search depends strongly on its order. Many short searches are therefore better
/// than a single long search (Gomes, Selman and Kautz, AAAI 1998).
#[derive(Debug)]
pub(super) struct Restarts {
    /// Orders that are varied until enough good orders are known, and sometimes afterwards too.
    preorders: [Vec<usize>; 3],
    /// Good orders, each with the largest number of buffers that its search had placed at the same
    /// time.
    elites: Vec<(usize, Vec<usize>)>,
    /// Number of searches so far.
    count: u64,
    /// Number of units by which the next capacity to try is below the height of the best placement.
    stride: u64,
    /// Number of failed searches since the last successful search or the last change of `stride`.
    failed: u32,
    rules: Rules,
}

impl Restarts {
    /// Number of good orders that are kept.
    const ELITES: usize = 8;
    /// Number of failed searches in a row after which `stride` is halved.
    const PATIENCE: u32 = 24;

    pub fn new(part: &Part, rules: Rules) -> Self {
        let preorders = Preorder::ALL.map(|order| order.sort(part));
        Self { preorders, elites: Vec::new(), count: 0, stride: u64::MAX, failed: 0, rules }
    }

    /// Lowers `height`, at best to `least`. Uses at most `nodes` nodes, and subtracts the used
    /// nodes from `nodes`. Returns the addresses of the lowest placement found.
    pub fn lower(
        &mut self,
        part: &Part,
        least: u64,
        height: &mut u64,
        nodes: &mut u64,
        limits: &Limits,
    ) -> Option<Vec<u64>> {
        let mut found = None;
        let short = 4 * part.items.len() as u64;
        while *height > least && *nodes > 0 && !limits.over() {
            self.stride = self.stride.clamp(1, (*height - least).div_ceil(2));
            let order = self.vary();
            let mut search = Search::new(part, order.clone(), self.rules);
            let given = short.min(*nodes);
            let mut left = given;
            let answer = search.fits(*height - self.stride, &mut left, limits);
            *nodes -= given - left;
            if answer == Answer::Placed {
                let (offsets, lower) = search.state.placement();
                (found, *height, self.failed) = (Some(offsets), lower, 0);
                self.stride = self.stride.saturating_mul(2);
                self.keep(part.items.len(), order);
            } else {
                self.keep(search.state.deepest, order);
                self.failed += 1;
                if self.failed == Self::PATIENCE {
                    (self.failed, self.stride) = (0, self.stride / 2);
                }
            }
        }
        found
    }

    fn keep(&mut self, deepest: usize, order: Vec<usize>) {
        if self.elites.len() < Self::ELITES {
            self.elites.push((deepest, order));
        } else if let Some(worst) = self.elites.iter_mut().min_by_key(|elite| elite.0)
            && deepest >= worst.0
        {
            *worst = (deepest, order);
        }
    }

    /// Order for the next search: a preorder or a good order, slightly shuffled.
    fn vary(&mut self) -> Vec<usize> {
        let draw = scatter(self.count) as usize;
        let fresh = self.elites.len() < Self::ELITES || draw.is_multiple_of(8);
        let (base, spreads) = if fresh {
            (&self.preorders[(draw >> 4) % 3], [4, 8, 16, 32])
        } else {
            (&self.elites[(draw >> 4) % Self::ELITES].1, [2, 3, 5, 8])
        };
        let spread = spreads[(draw >> 40) % 4];
        let mut keyed: Vec<(u64, usize)> = base
            .iter()
            .enumerate()
            .map(|(rank, &item)| {
                let draw = scatter(self.count << 32 | rank as u64) >> 32;
                (((rank as u64) << 32) + draw * spread, item)
            })
            .collect();
        keyed.sort_unstable();
        self.count += 1;
        keyed.into_iter().map(|(_, item)| item).collect()
    }
}
