//! Search for prices of memory by subgradient steps. The prices of each step prove a bound; the
//! search returns the best bound.

use super::charge::Line;
use super::terms::{Item, Terms};
use super::{Bound, Demand, Misfit, Prices};
use smallvec::SmallVec;

/// Effort spent on a bound. Every effort gives a valid bound; more effort mostly gives a higher
/// bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Limit on the number of instants that have a price.
    pub instants: usize,
    /// Limit on the number of steps. A step takes time O(gaps + instants).
    pub steps: usize,
}

impl Default for Effort {
    /// Effort that takes milliseconds for a thousand ops and tens of milliseconds for ten thousand
    /// ops.
    fn default() -> Self {
        Self { instants: 200, steps: 600 }
    }
}

impl Effort {
    /// Several times the default effort. A bound by this effort is close to the best bound that the
    /// relaxation allows.
    pub const THOROUGH: Self = Self { instants: 400, steps: 4000 };
}

/// Number of steps without a higher bound after which the distance from the best value to the goal
/// is halved.
const PATIENCE: usize = 25;

/// First and last distance from the best value found so far up to the goal, as fractions of the
/// cost of the program. The search begins with the first distance, and ends when the distance is
/// below the last.
const GOALS: [f64; 2] = [0.05, 1e-6];

/// A search returns to its best prices once its value is too far below the best value: by more than
/// `ASTRAY` times the distance from the best value to the goal.
const ASTRAY: f64 = 50.0;

/// Allowance for rounding errors that is subtracted from each value, as a fraction of the peak
/// bytes times the sum of all prices. The allowance exceeds the rounding errors of the sums.
const ROUNDING: f64 = 1e-11;

/// A gap, and the chosen instants during the gap.
#[derive(Clone, Copy)]
pub(super) struct Placed<'a> {
    pub item: &'a Item,
    /// Indices `low .. high` of the chosen instants that lie in the gap. The charge for the shared
    /// sources of the gap covers the indices from `middle` on.
    pub low: u32,
    pub middle: u32,
    pub high: u32,
}

/// Dual function of a demand under a budget. The function maps prices of memory to a lower bound on
/// the recomputation.
pub(super) struct Dual<'a> {
    terms: &'a Terms,
    /// Instant -> bytes in use above the budget.
    pub excess: Vec<f64>,
    pub items: Vec<Placed<'a>>,
    /// Most bytes in use at any command.
    most_used: f64,
    /// Number of items without shared sources; these items come first.
    pub single: usize,
    pub groups: Vec<Together>,
    /// Instant -> sum of the prices of all earlier instants.
    sums: Vec<f64>,
    /// Instant -> change from this instant on in the bytes that absences save.
    saved: Vec<f64>,
    /// Scratch memory for the choices (`Way`) of the gaps of the current group.
    ways: Vec<Way>,
    /// Item -> whether its value is absent at the prices of the last call of `value`.
    is_away: Vec<bool>,
}

/// A bound, and the absences in a solution of the relaxed problem that gives the bound. The
/// solution is approximate: the solver stops before the optimum.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Relaxed {
    /// The bound, with the prices that prove it.
    pub bound: Bound,
    /// Absences, one for each gap of a value in which memory is short.
    pub absences: Vec<Absence>,
}

/// Fraction of a value that is absent between two commands that need it.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Absence {
    /// Position of the command before the gap. If the gap is before the first use of the value,
    /// this command makes the value.
    pub from: u32,
    /// Position of the command after the gap.
    pub to: u32,
    /// Size of the value in bytes.
    pub bytes: u64,
    /// Fraction absent: 0 if the value is kept, 1 if it is evicted. Most fractions are near 0 or 1.
    pub share: f64,
}

/// A group of gaps in `Terms`, and the gaps of the group that contain chosen instants.
pub(super) struct Together {
    pub group: usize,
    pub items: std::ops::Range<usize>,
}

/// One choice for a gap of a group: the value is absent, and the gap uses the shared sources.
#[derive(Clone, Copy)]
struct Way {
    /// Instants `start .. end`, in which the gap uses the shared sources.
    start: usize,
    end: usize,
    /// Gain of this choice, less the gain of the best choice without the shared sources.
    gain: f64,
    item: usize,
    /// Line of the charge for the sources that are not shared.
    line: Line,
}

impl<'a> Dual<'a> {
    pub fn new(demand: &'a Demand, budget: u64, points: &[u32]) -> Self {
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
        let is_away = vec![false; items.len()];
        Self {
            terms,
            excess: excess.collect(),
            most_used: demand.peak_bytes() as f64,
            items,
            single,
            groups,
            sums: vec![0.0; points.len() + 1],
            saved: vec![0.0; points.len() + 1],
            ways: Vec::new(),
            is_away,
        }
    }

    /// Value of the dual function at these prices, rounded down. Writes the absences at these
    /// prices to `saved` and `is_away`.
    fn value(&mut self, prices: &[f64]) -> f64 {
        let mut value = 0.0;
        for (i, (price, excess)) in prices.iter().zip(&self.excess).enumerate() {
            self.sums[i + 1] = self.sums[i] + price;
            value += price * excess;
        }
        self.saved.fill(0.0);
        self.is_away.fill(false);
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
                self.is_away[i] = true;
            }
        }
        for number in 0..self.groups.len() {
            value -= self.group(number);
        }
        value - ROUNDING * self.most_used * self.sums[prices.len()]
    }

    /// Largest gain of a group. A gain is the price of the bytes that absences save, less the cost
    /// of these absences.
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
                let (start, end) = (middle as usize, high as usize);
                ways.push(Way { start, end, gain: full - charge - gain, item: i, line });
            }
            base += gain;
            self.saved[from] += bytes;
            self.saved[to] -= bytes;
            self.is_away[i] = gain > 0.0;
        }
        // Choose the best line of the charge for the shared sources. For each line, `cover` finds
        // the best intervals in which the shared sources are held.
        ways.sort_by_key(|way| way.end);
        let mut best = (0.0, Line::FREE);
        for &line in self.terms.groups[group].charge.lines() {
            let value = self.cover(&ways, line.held, None) - line.cost;
            if value > best.0 {
                best = (value, line);
            }
        }
        // Each gap inside a chosen interval changes from its best choice without the shared sources
        // to its choice with the shared sources.
        if best.0 > 0.0 {
            let mut covered = Vec::new();
            self.cover(&ways, best.1.held, Some(&mut covered));
            for &(start, end) in &covered {
                self.saved[start] -= best.1.held;
                self.saved[end] += best.1.held;
            }
            let is_in = |way: &&Way| covered.iter().any(|&(s, e)| s <= way.start && way.end <= e);
            for way in ways.iter().filter(is_in) {
                let (_, from, to, bytes) = self.without(way.item);
                self.saved[from] -= bytes;
                self.saved[to] += bytes;
                let Placed { item, low, high, .. } = self.items[way.item];
                let bytes = item.bytes - way.line.held;
                self.saved[low as usize] += bytes;
                self.saved[high as usize] -= bytes;
                self.is_away[way.item] = true;
            }
        }
        self.ways = ways;
        base + best.0
    }

    /// Largest total gain of `ways`, if the shared sources hold `held` bytes while one of the
    /// values is absent. The maximum is over all choices of intervals in which the sources are
    /// held.
    fn cover(&self, ways: &[Way], held: f64, mut covered: Option<&mut Vec<(usize, usize)>>) -> f64 {
        // Index of a way -> largest total gain up to the end of the way, and the interval that ends
        // with the way, if any.
        let mut most: Vec<(f64, Option<(usize, usize)>)> = Vec::with_capacity(ways.len());
        for (j, last) in ways.iter().enumerate() {
            let mut here = most.last().map_or((0.0, None), |&(value, _)| (value, None));
            // An interval ends at the end of `last`, and begins at the start of some way.
            let mut starts: SmallVec<[usize; 8]> = ways[..=j].iter().map(|way| way.start).collect();
            starts.sort_unstable();
            starts.dedup();
            for &start in &starts {
                let inside = ways[..=j].iter().filter(|way| way.start >= start);
                let gain: f64 = inside.map(|way| way.gain).sum();
                let before = ways[..j].partition_point(|way| way.end <= start);
                let before = before.checked_sub(1).map_or(0.0, |i| most[i].0);
                let value = before + gain - held * (self.sums[last.end] - self.sums[start]);
                if value > here.0 {
                    here = (value, Some((start, last.end)));
                }
            }
            most.push(here);
        }
        let value = most.last().map_or(0.0, |(value, _)| *value);
        let mut left = most.len();
        while let (Some(covered), Some(i)) = (covered.as_deref_mut(), left.checked_sub(1)) {
            left = match most[i].1 {
                Some((start, end)) => {
                    covered.push((start, end));
                    ways.partition_point(|way| way.end <= start).min(i)
                }
                None => i,
            };
        }
        value
    }

    /// Best choice for a gap of a group without the shared sources. Returns the gain, the instants
    /// `from` and `to` between which bytes are saved, and the number of these bytes.
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
    /// Lower bound on the recomputation under a budget, with prices of memory that prove the bound.
    /// Time: O(gaps) for each of a few hundred steps.
    ///
    /// # Errors
    /// [`Misfit`] if a single command needs more than the budget, so that no run of the program
    /// fits.
    pub fn bound(&self, budget: u64) -> Result<Bound, Misfit> {
        self.bound_by(budget, Effort::default())
    }

    /// [`Demand::bound`] with the given effort.
    ///
    /// # Errors
    /// The errors of [`Demand::bound`].
    pub fn bound_by(&self, budget: u64, effort: Effort) -> Result<Bound, Misfit> {
        Ok(self.relaxed(budget, effort)?.bound)
    }

    /// [`Demand::bound_by`] with the absences of the relaxed solution. If the share of an absence
    /// is near 1, it is best to evict the value in that gap.
    ///
    /// # Errors
    /// The errors of [`Demand::bound`].
    pub fn relaxed(&self, budget: u64, effort: Effort) -> Result<Relaxed, Misfit> {
        self.check(budget)?;
        let points = self.instants(budget, effort.instants);
        if points.is_empty() || self.work <= 0.0 {
            let prices = Prices::default();
            let bound = Bound { budget, work: self.work, cost: 0.0, prices };
            return Ok(Relaxed { bound, absences: Vec::new() });
        }
        let mut dual = Dual::new(self, budget, &points);
        let Ascent { value, prices, away } = ascend(&mut dual, self.work, effort.steps);
        let bound = Bound {
            budget,
            work: self.work,
            cost: value.max(0.0),
            prices: Prices::new(points.into_iter().zip(prices)),
        };
        let absence = |(placed, share): (&Placed<'_>, f64)| Absence {
            from: placed.item.from,
            to: placed.item.to,
            bytes: placed.item.bytes as u64,
            share,
        };
        let absences = dual.items.iter().zip(away).map(absence).collect();
        Ok(Relaxed { bound, absences })
    }

    /// Returns at most about `most` instants at which the bytes in use exceed the budget. If more
    /// instants exceed the budget, they are divided into intervals of equal length. Each interval
    /// gives the instant with the most bytes in use, and the instant whose command needs the most
    /// bytes.
    pub(super) fn instants(&self, budget: u64, most: usize) -> Vec<u32> {
        let short: Vec<u32> =
            (0..self.usage.len() as u32).filter(|&at| self.usage[at as usize] > budget).collect();
        if short.len() <= most {
            return short;
        }
        let stretch = short.len().div_ceil((most / 2).max(1));
        let mut points = Vec::with_capacity(most);
        for stretch in short.chunks(stretch) {
            let highest = |figures: &[u64]| {
                *stretch.iter().rev().max_by_key(|&&at| figures[at as usize]).expect("not empty")
            };
            let (one, two) = (highest(&self.usage), highest(&self.needs));
            points.push(one.min(two));
            if one != two {
                points.push(one.max(two));
            }
        }
        points
    }
}

/// Result of [`ascend`].
struct Ascent {
    /// Best value of the dual function, and the prices that give it.
    value: f64,
    prices: Vec<f64>,
    /// Item -> fraction of the value that is absent. At given prices, a value is either absent or
    /// not, so the bytes saved rarely equal the bytes above the budget. The mean over the last
    /// steps tends to a solution of the relaxed problem (Anstreicher and Wolsey, 2009).
    away: Vec<f64>,
}

/// Weight of the last step in the mean of `Ascent::away`.
const LAST_STEP: f64 = 0.02;

/// Maximizes the dual function by Polyak's steps, towards a goal slightly above the best value so
/// far. Each direction is changed so that it does not undo the previous step (Camerini, Fratta and
/// Maffioli, 1975).
fn ascend(dual: &mut Dual<'_>, work: f64, steps: usize) -> Ascent {
    let count = dual.excess.len();
    let mut prices = vec![0.0; count];
    let mut best = (f64::NEG_INFINITY, prices.clone());
    let mut slope = vec![0.0; count];
    let mut way = vec![0.0; count];
    let mut away = vec![0.0; dual.items.len()];
    let (mut ahead, mut stuck) = (GOALS[0] * work, 0);
    for number in 0..steps {
        if ahead < GOALS[1] * work {
            break;
        }
        // Store better prices. If the value is far below the best value, return to the best prices.
        // After `PATIENCE` steps without a better value, halve the distance of the goal.
        let value = dual.value(&prices);
        if value.is_finite() && value > best.0 + 1e-3 * ahead {
            best = (value, prices.clone());
            stuck = 0;
        } else if value.is_nan() || value < best.0 - ASTRAY * ahead {
            prices.clone_from(&best.1);
            way.fill(0.0);
            ahead /= 2.0;
            stuck = 0;
            continue;
        } else {
            stuck += 1;
            if stuck >= PATIENCE {
                ahead /= 2.0;
                stuck = 0;
            }
        }
        // The slope of the dual function at an instant: bytes in use above the budget, less the
        // bytes that absences save.
        let mut saved = 0.0;
        for (i, slope) in slope.iter_mut().enumerate() {
            saved += dual.saved[i];
            *slope = dual.excess[i] - saved;
        }
        let norm = turn(&mut way, &mut slope, &prices);
        // `is_over`: the slope is zero except for rounding errors. At each instant with a price,
        // the absences save exactly the bytes above the budget.
        let is_over = norm <= (1e-9 * dual.most_used).powi(2);
        let weight = if is_over { 1.0 } else { LAST_STEP.max(1.0 / (number + 1) as f64) };
        for (away, is_away) in away.iter_mut().zip(&dual.is_away) {
            *away += weight * (f64::from(u8::from(*is_away)) - *away);
        }
        if norm.is_nan() || is_over {
            break;
        }
        let step = (best.0.max(0.0) + ahead - value) / norm;
        for (price, way) in prices.iter_mut().zip(&way) {
            *price = (*price + step * way).max(0.0);
        }
    }
    Ascent { value: best.0, prices: best.1, away }
}

/// Sets `way` to the next direction, computed from the slope and the previous direction in `way`.
/// Returns the square of the length of the new direction. The new direction lowers no price that is
/// 0.
fn turn(way: &mut [f64], slope: &mut [f64], prices: &[f64]) -> f64 {
    let (mut along, mut length, mut steep) = (0.0, 0.0, 0.0);
    for ((slope, way), price) in slope.iter_mut().zip(&*way).zip(prices) {
        if *price <= 0.0 {
            *slope = slope.max(0.0);
        }
        along += *slope * way;
        length += way * way;
        steep += *slope * *slope;
    }
    let back = if along < 0.0 && length > 0.0 { -along / length } else { 0.0 };
    let mut norm = 0.0;
    for ((way, slope), price) in way.iter_mut().zip(&*slope).zip(prices) {
        *way = slope + back * *way;
        if *price <= 0.0 {
            *way = way.max(0.0);
        }
        norm += *way * *way;
    }
    if norm <= 1e-12 * steep {
        way.copy_from_slice(slope);
        norm = steep;
    }
    norm
}
