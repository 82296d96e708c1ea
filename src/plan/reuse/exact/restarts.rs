//! Short searches in many orders: luck in one of them finds what long ones do not.

use super::super::super::Limits;
use super::preorder::Preorder;
use super::search::{Answer, Rules, Search};
use super::scatter;
use super::sections::Part;

/// Orders near those that did well.
///
/// How long a search takes varies without bound with its order, so many short ones are better than one that is long
/// (Gomes, Selman and Kautz, AAAI 1998).
#[derive(Debug)]
pub(super) struct Restarts {
    /// What is varied: the preorders, and the order of the last success.
    bases: Vec<Vec<usize>>,
    /// Searches so far.
    count: u64,
    /// By how much the next capacity is less than the height.
    stride: u64,
    /// Searches that failed since the last success or change of the stride.
    failed: u32,
    rules: Rules,
}

impl Restarts {
    /// By how many places a buffer may move in an order.
    const SPREADS: [u64; 4] = [4, 8, 16, 32];
    /// How many searches may fail before capacity is lowered by less.
    const PATIENCE: u32 = 24;

    pub fn new(part: &Part, rules: Rules) -> Self {
        let bases = Preorder::ALL.iter().map(|order| order.sort(part)).collect();
        Self { bases, count: 0, stride: u64::MAX, failed: 0, rules }
    }

    /// Lowers `height`, to `least` at best, with `nodes` steps, which are counted down. The addresses found if any were.
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
                let (offsets, lower) = search.placement();
                (found, *height, self.failed) = (Some(offsets), lower, 0);
                self.stride = self.stride.saturating_mul(2);
                self.bases.truncate(Preorder::ALL.len());
                self.bases.push(order);
            } else {
                self.failed += 1;
                if self.failed == Self::PATIENCE {
                    (self.failed, self.stride) = (0, self.stride / 2);
                }
            }
        }
        found
    }

    /// The next order.
    fn vary(&mut self) -> Vec<usize> {
        let bases = self.bases.len() as u64;
        let base = &self.bases[(self.count % bases) as usize];
        let spread = Self::SPREADS[(self.count / bases % Self::SPREADS.len() as u64) as usize];
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
