//! DTR ahead of time.

use super::super::Order;
use super::{Builder, RecomputeSchedule, Rematerializer, ScheduleError};

/// `static-dtr`: the step is gone through once; when the next run does not fit, what is in memory is dropped until it does,
/// always that of the least
///
/// ```text
/// (count * time)^time_factor * regained^memory_factor / (bytes * distance)
/// ```
///
/// where `time` is what it costs to make it again with all that is missing for that, `regained` the bytes of those,
/// `count` how many that are missing and still wanted are made from it, itself included, and `distance` how many ops come
/// before its next use. What is never used again goes first.
///
/// As MegEngine has it for traced graphs (`DTRConfig`, with its two factors), with these differences: times are the captured
/// costs instead of bytes over 1e8; distances are counted in ops; what has not been made yet does not count as missing; and
/// what could not be made again as it was, because an update in place comes first, is not dropped. O(operands) for each
/// drop. Weak near the least memory that is possible: a chain that is dropped whole has to come back whole.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StaticDtr {
    /// How much it counts what it costs to make something again.
    pub time_factor: f64,
    /// How much it counts how many bytes that takes.
    pub memory_factor: f64,
}

impl Default for StaticDtr {
    /// 1 and 1, as MegEngine has them.
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
        // What is to be there at the end, all of it at once.
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
    /// Drops until an op fits, or nothing is left to drop.
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

/// What it takes to make each buffer again.
struct Worth<'o> {
    /// The ops that have run, in order.
    order: &'o [usize],
    time: Vec<f64>,
    regained: Vec<f64>,
    count: Vec<f64>,
}

/// What is missing may be needed on several ways, and counts on each: there can be more ways than numbers.
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
