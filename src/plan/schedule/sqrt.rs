//! Chen's checkpoints, as MegEngine sets them.

use super::super::Order;
use super::{Builder, RecomputeSchedule, Rematerializer, ScheduleError};

/// `sqrt`: cuts the step into segments, and makes dropped values again within their segments.
///
/// A segment ends once the bytes that it made and that are still wanted reach a limit. A value that
/// a segment makes and others use later is dropped for its longest time between two uses, from the
/// end of the segment on. For the next use it is made again, with all other missing values of its
/// segment that it needs. The last values of each segment stay.
///
/// Source: Chen et al., Training Deep Nets with Sublinear Memory Cost (2016), in the way of
/// MegEngine's Sublinear with its defaults. The genetic search of cuts, which MegEngine can add
/// (`genetic_nr_iter`, 0 unless set), is left out. Values that another segment needs to run again
/// stay. Limits are tried from half the load downwards by halves, in even steps, and around the
/// best. The cheapest schedule that fits is taken. Time: O(n log n) for each of some 60 tries. The
/// method is weak where costs differ much, because it knows bytes only, and where the budget lies
/// between the loads of two cuts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sqrt;

/// Number of even steps, and number of steps around the best.
const STEPS: u64 = 20;

/// Smallest limit that halving tries, in bytes.
const LEAST_BYTES: u64 = 1024;

impl Rematerializer for Sqrt {
    fn name(&self) -> &'static str {
        "sqrt"
    }

    fn schedule<'a>(
        &self,
        order: &Order<'a>,
        budget: u64,
    ) -> Result<RecomputeSchedule<'a>, ScheduleError> {
        let load = order.load();
        if load <= budget {
            return Ok(RecomputeSchedule::once(order));
        }
        let mut best = Best { budget, found: None, least: load, at: load };
        let halves = (1..64).map(|half| load >> half).take_while(|&bytes| bytes >= LEAST_BYTES);
        let even = (1..=STEPS).map(|step| load / (STEPS + 1) * step);
        for bytes in halves.chain(even) {
            best.see(bytes, segments(order, bytes)?)?;
        }
        let (from, by) = (best.at / 2, best.at / STEPS * 3 / 2);
        for bytes in (0..STEPS).map(|step| from + step * by) {
            best.see(bytes, segments(order, bytes)?)?;
        }
        let least = best.least;
        best.found.map(|(_, schedule)| schedule).ok_or(ScheduleError::Budget {
            name: self.name(),
            budget,
            least,
        })
    }
}

struct Best<'a> {
    budget: u64,
    /// Cheapest schedule that fits, and its cost.
    found: Option<(f64, RecomputeSchedule<'a>)>,
    /// Least load of all tries, and the limit of the try.
    least: u64,
    at: u64,
}

impl<'a> Best<'a> {
    fn see(&mut self, bytes: u64, schedule: RecomputeSchedule<'a>) -> Result<(), ScheduleError> {
        let (load, cost) = (schedule.load()?, schedule.cost());
        if load < self.least {
            (self.least, self.at) = (load, bytes);
        }
        if load <= self.budget && self.found.as_ref().is_none_or(|(least, _)| cost < *least) {
            self.found = Some((cost, schedule));
        }
        Ok(())
    }
}

/// Schedule with segments that leave `bytes` bytes alive.
fn segments<'a>(order: &Order<'a>, bytes: u64) -> Result<RecomputeSchedule<'a>, ScheduleError> {
    let capture = order.capture();
    let mut positions = vec![0; capture.ops().len()];
    order.ops().iter().enumerate().for_each(|(at, &op)| positions[op] = at);
    // Values that another segment needs to run again.
    let mut stays = vec![false; capture.buffers().len()];
    // The loop ends, because each further round adds a value that stays.
    loop {
        let mut builder = Builder::new(order);
        let ends = ends(order, bytes, &builder);
        let drops = drops(order, &ends, &builder);
        for (&op, drops) in order.ops().iter().zip(&drops) {
            builder.run(op, |_, _| {});
            for &buffer in drops {
                // The value may be dropped already.
                if builder.there[buffer] && !stays[buffer] {
                    builder.drop(buffer);
                }
            }
        }
        let segment = |op: usize| ends[positions[op]];
        let is_of_another = |&&(missed, op): &&(usize, usize)| {
            capture.maker(missed).is_some_and(|maker| segment(maker) != segment(op))
        };
        let mut is_done = true;
        for &(missed, _) in builder.missed.iter().filter(is_of_another) {
            (stays[missed], is_done) = (true, false);
        }
        if is_done {
            return builder.finish();
        }
    }
}

/// Position -> end of the segment.
fn ends(order: &Order<'_>, bytes: u64, builder: &Builder<'_>) -> Vec<usize> {
    let ops = order.ops();
    let made = |at: usize| &builder.capture.ops()[ops[at]].makes;
    let size = |buffer: &usize| builder.capture.buffers()[*buffer].bytes;
    let mut ends = vec![ops.len(); ops.len()];
    // The segment so far, the bytes that it made and that are still wanted; buffer -> begin of the
    // segment that made it.
    let (mut begin, mut alive) = (0, 0);
    let mut made_in = vec![None; builder.facts.uses.len()];
    for (at, &op) in ops.iter().enumerate() {
        for &made in made(at).iter().filter(|&&made| !builder.facts.uses[made].is_empty()) {
            made_in[made] = Some(begin);
            alive += size(&made);
        }
        for used in builder.capture.ops()[op].uses() {
            let is_last = builder.facts.uses[used].last() == Some(&at);
            alive -= if is_last && made_in[used] == Some(begin) { size(&used) } else { 0 };
        }
        if alive >= bytes {
            ends[begin..=at].fill(at + 1);
            (begin, alive) = (at + 1, 0);
        }
    }
    ends
}

/// Position -> buffers dropped afterwards.
fn drops(order: &Order<'_>, ends: &[usize], builder: &Builder<'_>) -> Vec<Vec<usize>> {
    let ops = order.ops();
    let made = |at: usize| &builder.capture.ops()[ops[at]].makes;
    let mut drops = vec![Vec::new(); ops.len()];
    for (at, &op) in ops.iter().enumerate() {
        // A value is dropped after its last use. If another value is made from it again, it is made
        // again for that.
        let op = &builder.capture.ops()[op];
        let is_last = |&used: &usize| {
            let is_last = builder.facts.uses[used].last() == Some(&at);
            is_last && builder.facts.may_go[used] && !builder.capture.buffers()[used].after
        };
        drops[at].extend(op.uses().filter(is_last));
        let end = ends[at];
        // The last values of a segment stay.
        if end == at + 1 {
            continue;
        }
        let next_end = ends.get(end).copied().unwrap_or(end);
        for &buffer in made(at).iter().filter(|&&buffer| builder.facts.may_go[buffer]) {
            let uses = &builder.facts.uses[buffer];
            let first = uses.partition_point(|&used| used < end);
            // Uses from the last one in the segment on. A value without a use in the segment stays
            // until its first use.
            let used = &uses[first.saturating_sub(1)..];
            let gaps = used.windows(2).map(|gap| (gap[0], gap[1]));
            let longest = gaps.max_by_key(|&(from, to)| (to - from, usize::MAX - from));
            // A drop is not worthwhile if the next segment uses the value again.
            if let Some((from, to)) = longest
                && to >= next_end
            {
                drops[from].push(buffer);
            }
        }
    }
    drops
}
