//! Prices of memory, by subgradient steps: each is a valid bound, and the best is kept.

use super::charge::{Charge, Line};
use super::terms::{Item, Terms};
use super::{Bound, Demand, Misfit, Prices};

/// The most instants that have a price.
const MOST_INSTANTS: usize = 200;

/// Steps, at most.
const ROUNDS: usize = 600;

/// Ends when this many steps, with ever smaller ones, have not helped.
const SMALLEST_STEP: f64 = 1e-3;

/// After so many steps without a gain they become smaller.
const PATIENCE: usize = 20;

/// A gap among chosen instants.
#[derive(Clone, Copy)]
struct Placed<'a> {
    item: &'a Item,
    /// Instants `low .. high` are in the gap, and from `middle` on its shared sources are asked for.
    low: u32,
    middle: u32,
    high: u32,
}

/// The dual function of a demand under a budget.
struct Dual<'a> {
    terms: &'a Terms,
    /// Of each chosen instant: bytes in use above the budget.
    excess: Vec<f64>,
    items: Vec<Placed<'a>>,
    /// Gaps without sources that others share come first.
    single: usize,
    groups: Vec<Together>,
    /// Prices, summed up.
    sums: Vec<f64>,
    /// Bytes saved: what is more from each instant on.
    saved: Vec<f64>,
    /// Of the gaps of a group: price held, gain, number, and whether the shared sources are asked for.
    ways: Vec<Way>,
}

/// A group.
struct Together {
    group: usize,
    items: std::ops::Range<usize>,
}

/// What a gap may do in its group.
#[derive(Clone, Copy)]
struct Way {
    /// Price of a byte for as long as the shared sources are asked for.
    w: f64,
    /// More than without them.
    gain: f64,
    item: usize,
    /// What it asks for with them.
    line: Line,
}

impl<'a> Dual<'a> {
    fn new(demand: &'a Demand, budget: u64, points: &[u32]) -> Self {
        let terms = &demand.terms;
        let excess = points.iter().map(|&at| demand.usage[at as usize] as f64 - budget as f64);
        let place = |position: u32| points.partition_point(|&at| at <= position) as u32;
        let placed = |item: &'a Item| {
            let low = place(item.from);
            let high = points.partition_point(|&at| at < item.to) as u32;
            let middle = item.shared.as_ref().map_or(low, |shared| place(shared.from).min(high));
            (low < high).then_some(Placed { item, low, middle: middle.max(low), high })
        };
        let mut items: Vec<Placed<'a>> =
            terms.items.iter().filter(|item| item.shared.is_none()).filter_map(placed).collect();
        let single = items.len();
        let mut groups = Vec::new();
        for (number, group) in terms.groups.iter().enumerate() {
            let start = items.len();
            items.extend(group.members.iter().filter_map(|i| placed(&terms.items[*i as usize])));
            if items.len() > start {
                groups.push(Together { group: number, items: start..items.len() });
            }
        }
        Self {
            terms,
            excess: excess.collect(),
            items,
            single,
            groups,
            sums: vec![0.0; points.len() + 1],
            saved: vec![0.0; points.len() + 1],
            ways: Vec::new(),
        }
    }

    /// The dual function, and in `saved` what is away at these prices.
    fn value(&mut self, prices: &[f64]) -> f64 {
        let mut value = 0.0;
        for (i, (price, excess)) in prices.iter().zip(&self.excess).enumerate() {
            self.sums[i + 1] = self.sums[i] + price;
            value += price * excess;
        }
        self.saved.fill(0.0);
        for i in 0..self.single {
            let Placed { item, low, high, .. } = self.items[i];
            let (low, high) = (low as usize, high as usize);
            let w = self.sums[high] - self.sums[low];
            let gain = w * item.bytes - item.cost;
            if gain <= 0.0 {
                continue;
            }
            if let Some((line, charge)) = item.alone.least(w)
                && gain > charge
            {
                value -= gain - charge;
                let bytes = item.bytes - line.held;
                self.saved[low] += bytes;
                self.saved[high] -= bytes;
            }
        }
        for number in 0..self.groups.len() {
            value -= self.group(number);
        }
        value
    }

    /// What a group gains at most.
    fn group(&mut self, number: usize) -> f64 {
        let Together { group, items } = &self.groups[number];
        let (group, items) = (*group, items.clone());
        let mut ways = std::mem::take(&mut self.ways);
        ways.clear();
        let mut base = 0.0;
        for i in items {
            let (gain, from, to, bytes) = self.without(i);
            let Placed { item, low, middle, high } = self.items[i];
            let shared = item.shared.as_ref().expect("it is in a group");
            let w = self.sums[high as usize] - self.sums[low as usize];
            let full = w * item.bytes - item.cost;
            if full > gain
                && let Some((line, charge)) = shared.own.least(w)
                && full - charge > gain
            {
                let w = self.sums[high as usize] - self.sums[middle as usize];
                ways.push(Way { w, gain: full - charge - gain, item: i, line });
            }
            base += gain;
            self.saved[from] += bytes;
            self.saved[to] -= bytes;
        }
        ways.sort_by(|a, b| a.w.total_cmp(&b.w));
        let charge: &Charge = &self.terms.groups[group].charge;
        let mut best = (0.0, 0, Line::FREE);
        let mut sum = 0.0;
        for (i, way) in ways.iter().enumerate() {
            sum += way.gain;
            if let Some((line, charge)) = charge.least(way.w)
                && sum - charge > best.0
            {
                best = (sum - charge, i + 1, line);
            }
        }
        let (more, count, held) = best;
        for way in &ways[..count] {
            let (_, from, to, bytes) = self.without(way.item);
            self.saved[from] -= bytes;
            self.saved[to] += bytes;
            let Placed { item, low, high, .. } = self.items[way.item];
            let bytes = item.bytes - way.line.held;
            self.saved[low as usize] += bytes;
            self.saved[high as usize] -= bytes;
        }
        if let Some(longest) = count.checked_sub(1).map(|i| &ways[i]) {
            let item = &self.items[longest.item];
            self.saved[item.middle as usize] -= held.held;
            self.saved[item.high as usize] += held.held;
        }
        self.ways = ways;
        base + more
    }

    /// The most that a gap of a group gains without the shared sources: its gain, and which bytes it saves where.
    fn without(&self, i: usize) -> (f64, usize, usize, f64) {
        let Placed { item, low, middle, high } = self.items[i];
        let (low, middle, high) = (low as usize, middle as usize, high as usize);
        let shared = item.shared.as_ref().expect("it is in a group");
        let mut best = (0.0, low, low, 0.0);
        for (end, charge) in [(high, &item.alone), (middle, &shared.own)] {
            let w = self.sums[end] - self.sums[low];
            if let Some((line, charge)) = charge.least(w) {
                let gain = w * item.bytes - item.cost - charge;
                if gain > best.0 {
                    best = (gain, low, end, item.bytes - line.held);
                }
            }
        }
        best
    }
}

impl Demand {
    /// The least that must be recomputed under a budget, and prices of memory that show it. O(gaps) for each of a few
    /// hundred steps.
    ///
    /// # Errors
    /// If some command alone needs more than the budget: then there is no way to run the program.
    pub fn bound(&self, budget: u64) -> Result<Bound, Misfit> {
        self.check(budget)?;
        let points = self.instants(budget);
        if points.is_empty() || self.work <= 0.0 {
            return Ok(Bound { budget, work: self.work, cost: 0.0, prices: Prices::default() });
        }
        let mut dual = Dual::new(self, budget, &points);
        let (value, prices) = ascend(&mut dual, self.work);
        Ok(Bound {
            budget,
            work: self.work,
            cost: value.max(0.0),
            prices: Prices::new(points.into_iter().zip(prices)),
        })
    }

    /// Where memory is short: of many instants, those of the highest use in stretches of the same length.
    fn instants(&self, budget: u64) -> Vec<u32> {
        let short: Vec<u32> =
            (0..self.usage.len() as u32).filter(|&at| self.usage[at as usize] > budget).collect();
        let stretch = short.len().div_ceil(MOST_INSTANTS).max(1);
        let highest = |stretch: &[u32]| {
            *stretch.iter().rev().max_by_key(|&&at| self.usage[at as usize]).expect("not empty")
        };
        short.chunks(stretch).map(highest).collect()
    }
}

/// Climbs the dual function, by Polyak's step with a goal a little above the best so far.
fn ascend(dual: &mut Dual<'_>, work: f64) -> (f64, Vec<f64>) {
    let count = dual.excess.len();
    let mut prices = vec![0.0; count];
    let mut best = (f64::NEG_INFINITY, prices.clone());
    let mut slope = vec![0.0; count];
    let (mut size, mut stuck) = (1.5, 0);
    for _ in 0..ROUNDS {
        let value = dual.value(&prices);
        if value > best.0 + 1e-7 * work {
            best.0 = value;
            best.1.clone_from(&prices);
            stuck = 0;
        } else {
            stuck += 1;
            if stuck == PATIENCE {
                size *= 0.7;
                stuck = 0;
                prices.clone_from(&best.1);
                if size < SMALLEST_STEP {
                    break;
                }
                continue;
            }
        }
        let (mut saved, mut norm) = (0.0, 0.0);
        for i in 0..count {
            saved += dual.saved[i];
            slope[i] = dual.excess[i] - saved;
            if prices[i] > 0.0 || slope[i] > 0.0 {
                norm += slope[i] * slope[i];
            }
        }
        if norm == 0.0 {
            break;
        }
        let goal = best.0.max(0.0) * 1.1 + 0.01 * work;
        let step = size * (goal - value) / norm;
        for i in 0..count {
            prices[i] = (prices[i] + step * slope[i]).max(0.0);
        }
    }
    best
}
