//! DTR's eviction by score, computed before the step runs.

use super::{Builder, RecomputeSchedule, Rematerializer, ScheduleError};
use crate::Order;

/// `static-dtr`: simulates the step once. If the next run does not fit into the budget, buffers are
/// dropped until the run fits. The next buffer to drop is always the buffer with the least
///
/// ```text
/// (count * time)^time_factor * regained^memory_factor / (bytes * distance)
/// ```
///
/// where `time` is the cost of making the buffer again, including all missing buffers that are
/// needed for it. `regained` is the total size of the buffers that are made when the buffer is made
/// again. `count` is 1 plus the number of missing buffers with a later use that are made from the
/// buffer, directly or through other missing buffers. `distance` is the number of ops up to the
/// next use of the buffer. Buffers that are never used again are dropped first.
///
/// Source: MegEngine's method for traced graphs (`DTRConfig`, with its two factors). Four things
/// differ from MegEngine's method. `time` is computed from the costs of the captured ops, not from
/// bytes divided by 1e8. Distances are counted in ops. A buffer that has not been made yet does not
/// count as missing. A buffer is not dropped if an update in place would change its contents when
/// it is made again. Time: O(operands) for each drop. The method is weak near the least possible
/// memory: if all values of a chain are dropped, the whole chain has to be recomputed for a single
/// value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StaticDtr {
    /// Exponent of the cost of making a buffer again.
    pub time_factor: f64,
    /// Exponent of `regained`, the bytes made when a buffer is made again.
    pub memory_factor: f64,
}

impl Default for StaticDtr {
    /// Factors 1 and 1, as in MegEngine.
    fn default() -> Self {
        Self { time_factor: 1.0, memory_factor: 1.0 }
    }
}

impl Rematerializer for StaticDtr {
    fn name(&self) -> &'static str {
        "static-dtr"
    }

    fn schedule<'a>(
        &self,
        order: &Order<'a>,
        budget: u64,
    ) -> Result<RecomputeSchedule<'a>, ScheduleError> {
        if order.load() <= budget {
            return Ok(RecomputeSchedule::once(order));
        }
        let mut builder = Builder::new(order);
        let mut worth = Worth::new(builder.capture.buffers().len());
        for (at, &op) in order.ops().iter().enumerate() {
            worth.order = &order.ops()[..at];
            builder.run(op, |builder, op| self.make_room(builder, &mut worth, op, budget));
        }
        // All buffers that stay after the step must be in memory at the same time at the end.
        worth.order = order.ops();
        let buffers = order.capture().buffers().iter().enumerate();
        let results = buffers.filter(|(_, buffer)| buffer.after).map(|(number, _)| number);
        results.clone().for_each(|result| builder.pins[result] += 1);
        for result in results {
            if let Some(maker) = order.capture().maker(result)
                && !builder.there[result]
            {
                builder.run(maker, |builder, op| self.make_room(builder, &mut worth, op, budget));
            }
        }
        let schedule = builder.finish()?;
        match schedule.load()? {
            load if load <= budget => Ok(schedule),
            least => Err(ScheduleError::Budget { name: self.name(), budget, least }),
        }
    }
}

impl StaticDtr {
    /// Drops buffers until `op` fits into the budget, or no buffer is left that may be dropped.
    fn make_room(&self, builder: &mut Builder<'_>, worth: &mut Worth<'_>, op: usize, budget: u64) {
        let at = worth.order.len();
        let bytes = |buffer: usize| builder.capture.buffers()[buffer].bytes;
        let count = builder.capture.buffers().len();
        let this = &builder.capture.ops()[op];
        let made = this.makes.iter().copied().filter(|&made| !builder.there[made]);
        let needed: u64 = made.map(bytes).sum::<u64>() + this.workspace;
        let is_in_use = |&buffer: &usize| {
            let facts = &builder.facts;
            let is_wanted = facts.may_go[buffer] || facts.wanted_until[buffer] >= at;
            builder.there[buffer] && (builder.capture.buffers()[buffer].after || is_wanted)
        };
        let mut usage: u64 = (0..count).filter(is_in_use).map(bytes).sum();
        while usage.saturating_add(needed) > budget {
            worth.look(builder);
            let may_go = |&buffer: &usize| {
                builder.there[buffer]
                    && builder.facts.may_go[buffer]
                    && builder.pins[buffer] == 0
                    && builder.capture.buffers()[buffer].bytes > 0
                    && !this.makes.contains(&buffer)
            };
            let score = |buffer: usize| match builder.facts.next_use(buffer, at) {
                None if !builder.capture.buffers()[buffer].after => 0.0,
                next => {
                    let distance = next.unwrap_or(builder.capture.ops().len()) - at + 1;
                    let bytes = builder.capture.buffers()[buffer].bytes;
                    (worth.count[buffer] * worth.time[buffer]).powf(self.time_factor)
                        * worth.regained[buffer].powf(self.memory_factor)
                        / (bytes as f64 * distance as f64)
                }
            };
            let all = (0..count).filter(may_go).map(|buffer| (score(buffer), buffer));
            let Some((_, least)) = all.min_by(|a, b| a.0.total_cmp(&b.0)) else { return };
            usage -= builder.capture.buffers()[least].bytes;
            builder.drop(least);
        }
    }
}

/// Cost of making each buffer again: the terms `time`, `regained` and `count` of the score.
struct Worth<'o> {
    /// Ops that have run, in order.
    order: &'o [usize],
    time: Vec<f64>,
    regained: Vec<f64>,
    count: Vec<f64>,
}

/// Limit on the sums in [`Worth`]. A missing buffer is added once for each path from the missing
/// buffer to the buffer whose cost is computed. The number of paths can exceed the largest float.
const MOST: f64 = 1e100;

impl Worth<'_> {
    fn new(buffers: usize) -> Self {
        let zeros = || vec![0.0; buffers];
        Self { order: &[], time: zeros(), regained: zeros(), count: zeros() }
    }

    fn look(&mut self, builder: &Builder<'_>) {
        let capture = builder.capture;
        for &op in self.order {
            let op = &capture.ops()[op];
            let made = op.makes.iter().map(|&made| capture.buffers()[made].bytes as f64);
            let (mut time, mut regained) = (op.cost, made.sum::<f64>());
            for buffer in op.uses().filter(|&buffer| !builder.there[buffer]) {
                time += self.time[buffer];
                regained += self.regained[buffer];
            }
            for &made in &op.makes {
                self.time[made] = time.min(MOST);
                self.regained[made] = regained.min(MOST);
            }
        }
        self.count.fill(1.0);
        let at = self.order.len();
        for &op in self.order.iter().rev() {
            let op = &capture.ops()[op];
            let is_missed = |&&made: &&usize| {
                !builder.there[made] && builder.facts.next_use(made, at).is_some()
            };
            let count: f64 = op.makes.iter().filter(is_missed).map(|&made| self.count[made]).sum();
            op.uses()
                .for_each(|buffer| self.count[buffer] = (self.count[buffer] + count).min(MOST));
        }
    }
}
