//! Memory needs of a program, command by command, and the gaps in which values may be absent.

use super::terms::Terms;
use crate::command::{Apply, Command, RecordedCommand, RecordedOp, Reruns, TensorId};
use crate::cost::{CostModel, Run};
use crate::layout::Layout;
use crate::op::{Operation as _, Outputs};
use crate::step::{Deed, Reader, Values};
use remat_memory::ByteSize;
use smallvec::SmallVec;

/// Memory needs of a program: the part of the bound that does not depend on the budget.
///
/// A position is the index of a command in the program. The size of each value is rounded up to a
/// multiple of the granule, the unit of allocations.
#[derive(Clone, Debug)]
pub struct Demand {
    /// Position -> bytes that the command needs, plus the bytes of all values that cannot be
    /// evicted at that time.
    pub(super) needs: Vec<u64>,
    /// Position -> bytes in use if every value stays in memory until its last use.
    pub(super) usage: Vec<u64>,
    /// Cost of running every command once.
    pub(super) work: f64,
    /// Gaps in which values may be absent, and the costs of their absence.
    pub(super) terms: Terms,
    /// Position and name of the command that needs the most bytes.
    largest: Option<(usize, String)>,
}

/// A content of the bytes that one or more tensors share. An update in place makes a new value.
#[derive(Clone, Debug)]
pub(super) struct Value {
    pub bytes: u64,
    /// Path that makes the value; `None` if the op that made the value cannot run again.
    pub path: Option<u32>,
    /// Last position that needs the value. If no command needs the value: the position of the
    /// command that makes the value.
    pub last: u32,
    /// Whether the value cannot be evicted from some position on.
    pub stays: bool,
    /// Paths that read the value, in order.
    pub readers: Vec<u32>,
}

/// A compute path that may run again.
#[derive(Clone, Debug)]
pub(super) struct Path {
    pub cost: f64,
    /// Values that the path reads, each once.
    pub sources: SmallVec<[u32; 4]>,
    pub outputs: SmallVec<[u32; 2]>,
}

/// Positions `from + 1 .. to`, at which a value may be absent. The commands at `from` and `to` need
/// the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    pub value: u32,
    pub from: u32,
    pub to: u32,
}

/// Error: a single command needs more than the budget, so no run fits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no run fits a budget of {budget}: {what} (instruction {number}) needs {bytes} at once, unevictable values \
     included",
    budget = ByteSize::apart(*.budget, *.bytes)[0], bytes = ByteSize::apart(*.budget, *.bytes)[1], number = .position + 1
)]
pub struct Misfit {
    /// Position of the command, from 0 on.
    pub position: usize,
    /// Op of the command, or the kind of a command without an op.
    pub what: String,
    /// Bytes that the command reads and makes, plus its workspace and all values that cannot be
    /// evicted at that time.
    pub bytes: u64,
    /// Budget in bytes.
    pub budget: u64,
}

impl Demand {
    /// Reads the commands of a [`Program`](crate::program::Program).
    ///
    /// Sizes are rounded up to multiples of `granule` bytes. `costs` gives the cost of running an
    /// op. Time: O(commands + tensors), times a factor that grows with the histories of values
    /// without handles.
    #[must_use]
    pub fn new(commands: &[RecordedCommand], granule: u64, costs: &mut dyn CostModel) -> Self {
        let mut builder = Builder {
            granule: granule.max(1),
            costs,
            reader: Reader::default(),
            values: Vec::new(),
            paths: Vec::new(),
            needs: vec![0; commands.len()],
            work: 0.0,
        };
        for (at, command) in commands.iter().enumerate() {
            builder.command(at as u32, command);
        }
        builder.finish(commands)
    }

    /// Number of commands.
    #[must_use]
    pub const fn commands(&self) -> usize {
        self.needs.len()
    }

    /// Cost of running all commands once, in the unit of the costs.
    #[must_use]
    pub const fn work(&self) -> f64 {
        self.work
    }

    /// Peak bytes in use if every value stays in memory until its last use.
    #[must_use]
    pub fn peak_bytes(&self) -> u64 {
        self.usage.iter().copied().max().unwrap_or(0)
    }

    /// Least budget that [`Demand::bound`] accepts.
    #[must_use]
    pub fn least_bytes(&self) -> u64 {
        self.largest.as_ref().map_or(0, |(at, _)| self.needs[*at])
    }

    /// Fails if some command alone needs more than the budget.
    pub(super) fn check(&self, budget: u64) -> Result<(), Misfit> {
        match &self.largest {
            Some((position, what)) if self.needs[*position] > budget => Err(Misfit {
                position: *position,
                what: what.clone(),
                bytes: self.needs[*position],
                budget,
            }),
            _ => Ok(()),
        }
    }
}

/// A value, with its uses in the commands that were read so far.
struct Open {
    value: Value,
    /// Positions of the commands that need the value, as long as the value can be evicted.
    uses: SmallVec<[u32; 4]>,
    /// First position from which on the value cannot be evicted; `NEVER` if it can always be
    /// evicted.
    stays_from: u32,
    /// Whether the value cannot be evicted any more after its first use.
    stays_once_used: bool,
    /// Last position at which a handle to the value exists; `None` if a handle exists at the end of
    /// the program.
    held_until: Option<u32>,
}

/// Value of `stays_from` for a value that can be evicted at any time.
const NEVER: u32 = u32::MAX;

struct Builder<'a> {
    granule: u64,
    costs: &'a mut dyn CostModel,
    reader: Reader,
    values: Vec<Open>,
    paths: Vec<Path>,
    needs: Vec<u64>,
    work: f64,
}

impl Builder<'_> {
    fn command(&mut self, at: u32, command: &RecordedCommand) {
        let costs = self.costs_of(command);
        let updates = command.calls().iter().any(|call| self.updates(at, call));
        let mut deed = self.reader.read(command, |host| host.layout);
        deed.reads.sort_unstable();
        let (last, needs) = match command {
            Command::Put { host, leaf, .. } => {
                let path = host.cost.map(|_| costs[0]);
                let made = match path {
                    None => Made::Stays,
                    Some(_) if *leaf => Made::StaysOnceUsed,
                    Some(_) => Made::Goes,
                };
                let values = self.make(at, &deed, made, path);
                (at, if path.is_none() { self.needed_at(&values, at) } else { 0 })
            }
            // `Drop` only suggests an eviction. A run that ignores a `Drop` recomputes no more than
            // a run that evicts the value.
            Command::Drop(_) => (at, 0),
            Command::Del(_) => (at.wrapping_sub(1), 0),
            _ => match command.calls() {
                [] => {
                    let needs = self.needed_at(&deed.reads, at);
                    if matches!(command, Command::Commit(_) | Command::Replace { .. }) {
                        deed.reads.iter().for_each(|&value| self.stays_from(value, at + 1));
                    }
                    (at, needs)
                }
                [view] if view.outputs.written().is_none() => (at, 0),
                [call] if !updates => (at, self.apply(at, call, &deed, costs[0])),
                calls => (at, self.update(at, calls, &deed)),
            },
        };
        self.needs[at as usize] += needs;
        for value in deed.gone {
            self.values[value as usize].held_until = Some(last);
        }
    }

    /// Adds an op. Returns the bytes that the op needs, without the values that cannot be evicted.
    /// The result is 0 for an op without inputs, because the op may run later.
    fn apply(&mut self, at: u32, call: &Apply<RecordedOp>, deed: &Deed, cost: f64) -> u64 {
        let needs = self.needed_at(&deed.reads, at) + self.round(call.op.workspace);
        let once = !call.op.rematerializable;
        let how = if once { Made::Stays } else { Made::Goes };
        self.make(at, deed, how, (!once).then_some(cost));
        // A value that is written over gives its bytes to the new value.
        let more = deed.makes.iter().filter(|made| !made.over).map(|made| made.value);
        let more: Values = more.collect();
        match once || !deed.reads.is_empty() {
            true => needs + self.needed_at(&more, at),
            // An op without inputs may run as late as the first read of its output.
            false => 0,
        }
    }

    /// Whether the op updates inputs, or writes over a value that cannot be evicted, which is an
    /// update too. Called before the command is read.
    fn updates(&self, at: u32, call: &Apply<RecordedOp>) -> bool {
        let is_leaf = |&old: &TensorId| {
            let old = self.reader.value(old).map(|old| &self.values[old as usize]);
            old.is_some_and(|old| old.value.path.is_none() || old.stays_from <= at)
        };
        match call.outputs {
            Outputs::Over => call.inputs.first().is_some_and(is_leaf),
            ref outputs => outputs.are_updates(),
        }
    }

    /// Adds updates in place; their inputs are in memory from the first update to the last. Returns
    /// the bytes that the updates need, without the values that cannot be evicted.
    fn update(&mut self, at: u32, calls: &[Apply<RecordedOp>], deed: &Deed) -> u64 {
        let sources_bytes = self.needed_at(&deed.reads, at);
        let (mut copies, mut most) = (0, 0);
        let mut made = deed.makes.iter();
        for call in calls {
            let new =
                made.by_ref().take(call.outputs.len()).filter(|made| !made.in_place && !made.over);
            copies += new.map(|made| self.round(self.reader.bytes(made.value))).sum::<u64>();
            most = most.max(copies + self.round(call.op.workspace));
        }
        self.make(at, deed, Made::Stays, None);
        sources_bytes + most
    }

    /// Adds the values that `deed` makes. If `path` is `Some`, also adds a path of this cost from
    /// the values that `deed` reads. Returns the values made.
    fn make(&mut self, at: u32, deed: &Deed, made: Made, path: Option<f64>) -> Values {
        let number = self.paths.len() as u32;
        let values: Values = deed.makes.iter().map(|made| made.value).collect();
        for &value in &values {
            let bytes = self.round(self.reader.bytes(value));
            // A value made without inputs may be absent at this position, because its op may run
            // later.
            let is_needed = !deed.reads.is_empty();
            let uses = if is_needed { SmallVec::from_slice(&[at]) } else { SmallVec::new() };
            self.values.push(Open {
                value: Value {
                    bytes,
                    path: path.map(|_| number),
                    last: at,
                    stays: made != Made::Goes,
                    readers: vec![],
                },
                uses,
                stays_from: if made == Made::Stays { at + 1 } else { NEVER },
                stays_once_used: made == Made::StaysOnceUsed,
                held_until: None,
            });
        }
        if let Some(cost) = path.filter(|_| !values.is_empty()) {
            for &source in &deed.reads {
                self.values[source as usize].value.readers.push(number);
            }
            let (sources, outputs) = (deed.reads.clone(), values.iter().copied().collect());
            self.paths.push(Path { cost, sources, outputs });
        }
        values
    }

    /// Marks a use of `values` at position `at`. Returns the bytes of the values that can be
    /// evicted at `at`.
    fn needed_at(&mut self, values: &[u32], at: u32) -> u64 {
        let mut bytes = 0;
        for &value in values {
            let open = &mut self.values[value as usize];
            open.value.last = at;
            if open.stays_from <= at {
                continue;
            }
            bytes += open.value.bytes;
            if open.uses.last() != Some(&at) {
                open.uses.push(at);
            }
            if open.stays_once_used {
                open.stays_from = open.stays_from.min(at + 1);
            }
        }
        bytes
    }

    fn stays_from(&mut self, value: u32, at: u32) {
        let open = &mut self.values[value as usize];
        open.stays_from = open.stays_from.min(at);
        open.value.stays = true;
    }

    fn round(&self, bytes: u64) -> u64 {
        bytes.next_multiple_of(self.granule)
    }

    /// Least cost of running each call or the upload of the command again. Adds the costs of the
    /// first runs to `work`.
    fn costs_of(&mut self, command: &RecordedCommand) -> SmallVec<[f64; 1]> {
        if let Command::Put { host, .. } = command {
            let (outputs, bytes) = ([host.layout], host.layout.bytes());
            let (op, seconds) = ("put", host.cost);
            let run = Run { op, inputs: &[], outputs: &outputs, flops: 0.0, bytes, seconds };
            return host.cost.iter().map(|_| self.cost(run, host.reruns.as_deref())).collect();
        }
        let cost = |call: &Apply<RecordedOp>| {
            let inputs = self.reader.inputs(call);
            if call.outputs.written().is_none() {
                // Views cost nothing, except in recordings that give a view a cost.
                self.work += call.op.cost;
                return 0.0;
            }
            let outputs: SmallVec<[Layout; 2]> = (0..call.outputs.len())
                .map(|output| call.outputs.layout(output, |input| inputs[input]))
                .collect();
            let (op, seconds) = (call.op.name(), Some(call.op.cost));
            let flops = call.op.flops(&inputs, &outputs);
            let bytes = call.op.moved(&inputs, &outputs);
            let run = Run { op, inputs: &inputs, outputs: &outputs, flops, bytes, seconds };
            self.cost(run, call.op.reruns.as_deref())
        };
        command.calls().iter().map(cost).collect()
    }

    fn cost(&mut self, run: Run<'_>, reruns: Option<&Reruns>) -> f64 {
        let cost = self.costs.cost(run).max(0.0);
        self.work += cost;
        match reruns {
            None => cost,
            Some(reruns) => self.costs.cost(Run { seconds: Some(reruns.least()), ..run }).max(0.0),
        }
    }

    fn finish(self, commands: &[RecordedCommand]) -> Demand {
        let Self { values, paths, mut needs, work, .. } = self;
        let count = needs.len();
        // Position -> change, from this position on, of the bytes that cannot be evicted
        // (`staying`) and of the bytes in gaps (`away`).
        let mut staying = vec![0i64; count + 1];
        let mut away = vec![0i64; count + 1];
        let mut gaps = Vec::new();
        for (number, open) in values.iter().enumerate() {
            let bytes = open.value.bytes as i64;
            if open.stays_from != NEVER {
                let last = open.held_until.unwrap_or(count as u32 - 1).max(open.value.last);
                if open.stays_from <= last {
                    staying[open.stays_from as usize] += bytes;
                    staying[last as usize + 1] -= bytes;
                }
            }
            for ends in open.uses.windows(2) {
                let (from, to) = (ends[0], ends[1]);
                if to > from + 1 && bytes > 0 && open.value.path.is_some() {
                    gaps.push(Gap { value: number as u32, from, to });
                    away[from as usize + 1] += bytes;
                    away[to as usize] -= bytes;
                }
            }
        }
        let mut usage = vec![0; count];
        let (mut stays, mut may_go) = (0i64, 0i64);
        for at in 0..count {
            stays += staying[at];
            may_go += away[at];
            needs[at] += stays as u64;
            usage[at] = needs[at] + may_go as u64;
        }
        let largest = (0..count).rev().max_by_key(|at| needs[*at]);
        let what = |at: usize| {
            let command = &commands[at];
            (at, command.op().map_or_else(|| command.kind().to_owned(), |op| format!("`{op}`")))
        };
        let values: Vec<Value> = values.into_iter().map(|open| open.value).collect();
        let terms = Terms::new(&values, &paths, &gaps);
        Demand { needs, usage, work, terms, largest: largest.map(what) }
    }
}

/// Whether a new value may be evicted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Made {
    Goes,
    /// The value cannot be evicted from the next command on.
    Stays,
    /// The value cannot be evicted after the first command that needs it.
    StaysOnceUsed,
}
