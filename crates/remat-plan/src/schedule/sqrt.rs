//! Chen's checkpoints, placed as MegEngine places them.

use super::{Builder, RecomputeSchedule, Rematerializer, ScheduleError};
use crate::Order;

/// `sqrt`: cuts the step into segments, and makes dropped values again within their segments.
///
/// A segment ends once its own values that are still needed reach a limit in bytes. A value that
/// later segments use is dropped between two of its uses, the second of which is in a later
/// segment. Among several pairs of uses that qualify, the pair with the longest distance is chosen.
/// The value is made again for its next use, together with the missing values of its segment that
/// are needed for it. The values of the last op of each segment are not dropped.
///
/// Source: Chen et al., Training Deep Nets with Sublinear Memory Cost (2016), in the version of
/// MegEngine's Sublinear with its defaults. MegEngine can also search for cuts with a genetic
/// algorithm (`genetic_nr_iter`, 0 by default), which is left out. A value is kept if a repeated
/// run in another segment needs the value. Several limits are tried: halves, quarters and so on of
/// the load, then limits in even steps, then limits around the limit that gave the least load. The
/// cheapest schedule within the budget is taken. Time: O(n log n) for each of some 60 limits. The
/// method is weak if the costs of ops differ much, because it considers only bytes. The method is
/// also weak if the budget lies between the loads of two cuts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sqrt;

/// Number of limits that are tried in even steps, and again around the best limit.
const STEPS: u64 = 20;

/// Smallest limit in bytes that is tried by halving the load.
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
    /// Cheapest schedule within the budget, and its cost.
    found: Option<(f64, RecomputeSchedule<'a>)>,
    /// Least load of all schedules so far, and the limit that gave this load.
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

/// Schedule whose segments end once their own values that are still needed reach `bytes` bytes.
fn segments<'a>(order: &Order<'a>, bytes: u64) -> Result<RecomputeSchedule<'a>, ScheduleError> {
    let capture = order.capture();
    let mut positions = vec![0; capture.ops().len()];
    order.ops().iter().enumerate().for_each(|(at, &op)| positions[op] = at);
    // Values that are kept because a repeated run in another segment needs them.
    let mut stays = vec![false; capture.buffers().len()];
    // The loop ends, because each iteration adds a value that is kept.
    loop {
        let mut builder = Builder::new(order);
        let ends = ends(order, bytes, &builder);
        let drops = drops(order, &ends, &builder);
        for (&op, drops) in order.ops().iter().zip(&drops) {
            builder.run(op, |_, _| {});
            for &buffer in drops {
                // The value may have been dropped before.
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

/// Position -> end of its segment (exclusive).
fn ends(order: &Order<'_>, bytes: u64, builder: &Builder<'_>) -> Vec<usize> {
    let ops = order.ops();
    let made = |at: usize| &builder.capture.ops()[ops[at]].makes;
    let size = |buffer: &usize| builder.capture.buffers()[*buffer].bytes;
    let mut ends = vec![ops.len(); ops.len()];
    // `begin` is the begin of the current segment. `alive` is the bytes that this segment made and
    // that are still needed. `made_in` maps each buffer to the begin of the segment that made the
    // buffer.
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

/// Position -> buffers that are dropped after the op at this position.
fn drops(order: &Order<'_>, ends: &[usize], builder: &Builder<'_>) -> Vec<Vec<usize>> {
    let ops = order.ops();
    let made = |at: usize| &builder.capture.ops()[ops[at]].makes;
    let mut drops = vec![Vec::new(); ops.len()];
    for (at, &op) in ops.iter().enumerate() {
        // A value is dropped after its last use. Only first runs of ops count as uses here. If a
        // repeated run reads the value later, the value is recomputed then.
        let op = &builder.capture.ops()[op];
        let is_last = |&used: &usize| {
            let is_last = builder.facts.uses[used].last() == Some(&at);
            is_last && builder.facts.may_go[used] && !builder.capture.buffers()[used].after
        };
        drops[at].extend(op.uses().filter(is_last));
        let end = ends[at];
        // The values of the last op of a segment are not dropped.
        if end == at + 1 {
            continue;
        }
        let next_end = ends.get(end).copied().unwrap_or(end);
        for &buffer in made(at).iter().filter(|&&buffer| builder.facts.may_go[buffer]) {
            let uses = &builder.facts.uses[buffer];
            let first = uses.partition_point(|&used| used < end);
            // Last use of the value in its segment, and all later uses. A value that its own
            // segment does not use is kept until its first use.
            let used = &uses[first.saturating_sub(1)..];
            let gaps = used.windows(2).map(|gap| (gap[0], gap[1]));
            let longest = gaps.max_by_key(|&(from, to)| (to - from, usize::MAX - from));
            // A drop is not worthwhile if the next use is in this segment or the following segment.
            if let Some((from, to)) = longest
                && to >= next_end
            {
                drops[from].push(buffer);
            }
        }
    }
    drops
}
