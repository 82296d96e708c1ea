//! Victims that the other victims make needless.
//!
//! A request often needs several evictions. The candidates with the lowest scores, which are costs
//! per byte, are evicted until enough bytes are free. If the last candidate is large, some of the
//! earlier ones are then needless: without them, enough bytes would be free, too. The choice of
//! candidates is a minimum knapsack problem. Leaving out needless items, the most costly ones first,
//! is a known improvement of the greedy choice (Csirik, Frenk, Labbé and Zhang 1991).

use smallvec::SmallVec;

/// Limit on the number of candidates that are compared for one choice.
pub(super) const MOST: usize = 64;

/// Candidate that is about to be evicted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Item {
    pub score: f64,
    pub bytes: u64,
    /// Position among the candidates.
    pub at: usize,
}

/// Candidates in the order of rising scores, until they have enough bytes.
#[derive(Debug, Default)]
pub(super) struct Cover {
    items: SmallVec<[Item; 8]>,
    bytes: u64,
}

impl Cover {
    pub fn push(&mut self, item: Item) {
        self.bytes += item.bytes;
        self.items.push(item);
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Positions of all candidates.
    pub fn positions(&self) -> impl Iterator<Item = usize> {
        self.items.iter().map(|item| item.at)
    }

    /// The candidate with the lowest score among those whose eviction is needed to free `wanted`
    /// bytes. The first candidate, if all together have fewer bytes. A candidate with a score of at
    /// most 0 is never left out, because its eviction costs nothing.
    ///
    /// # Panics
    /// Panics if there is no candidate.
    pub fn lowest_needed(&self, wanted: u64) -> Item {
        let Some(mut spare) = self.bytes.checked_sub(wanted) else { return self.items[0] };
        let mut costly: SmallVec<[usize; 8]> = (0..self.items.len()).collect();
        let loss = |&at: &usize| self.items[at].score * self.items[at].bytes as f64;
        costly.sort_by(|a, b| loss(b).total_cmp(&loss(a)));
        let mut first = self.items.len();
        for at in costly {
            let Item { score, bytes, .. } = self.items[at];
            if score > 0.0 && bytes <= spare {
                spare -= bytes;
            } else {
                first = first.min(at);
            }
        }
        self.items[first]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lowest_needed(items: &[(f64, u64)], wanted: u64) -> usize {
        let mut cover = Cover::default();
        for (at, &(score, bytes)) in items.iter().enumerate() {
            cover.push(Item { score, bytes, at });
        }
        cover.lowest_needed(wanted).at
    }

    #[test]
    fn small_candidates_before_a_large_one_are_left_out() {
        assert_eq!(lowest_needed(&[(1.0, 10), (2.0, 10), (3.0, 100)], 100), 2);
        assert_eq!(lowest_needed(&[(1.0, 10), (2.0, 10), (3.0, 100)], 101), 0);
        // The second one costs more.
        assert_eq!(lowest_needed(&[(1.0, 10), (2.0, 10), (3.0, 100)], 110), 0);
        assert_eq!(lowest_needed(&[(1.0, 10), (1.1, 5), (3.0, 100)], 105), 1);
    }

    #[test]
    fn what_is_free_of_cost_is_never_left_out() {
        assert_eq!(lowest_needed(&[(-1.0, 10), (3.0, 100)], 100), 0);
        assert_eq!(lowest_needed(&[(0.0, 10), (3.0, 100)], 100), 0);
    }

    #[test]
    fn too_few_bytes_begin_with_the_lowest_score() {
        assert_eq!(lowest_needed(&[(1.0, 10), (3.0, 100)], 200), 0);
    }

    /// All chosen candidates together, each chosen after the eviction of the ones before, free
    /// enough bytes, and none of them is needless.
    #[test]
    fn no_victim_is_needless() {
        let mut draw = remat_rng::SplitMix64::new(1);
        for _ in 0..1000 {
            let mut items: Vec<(f64, u64)> =
                (0..1 + draw.below(9)).map(|_| (draw.unit(), 1 + draw.below(50) as u64)).collect();
            items.sort_by(|a, b| a.0.total_cmp(&b.0));
            let all: u64 = items.iter().map(|item| item.1).sum();
            let wanted = 1 + draw.below(all as usize) as u64;
            let (mut left, mut missing, mut victims) = (items, wanted as i64, Vec::new());
            while missing > 0 {
                // As the search does: the lowest scores, until they have enough bytes.
                let mut sum = 0;
                let enough = left.iter().take_while(|item| {
                    let goes_on = sum < missing;
                    sum += item.1 as i64;
                    goes_on
                });
                let enough = enough.count();
                let victim = left.remove(lowest_needed(&left[..enough], missing as u64));
                missing -= victim.1 as i64;
                victims.push(victim.1 as i64);
            }
            assert!(
                victims.iter().all(|&bytes| bytes > -missing),
                "{victims:?}, {missing} to spare"
            );
        }
    }
}
