//! Least cost that any run recomputes, found by trying all runs: Dijkstra's algorithm over the sets
//! of resident values, command by command.
//!
//! The search makes the same assumptions as the theorem (`remat::unstable::bound`), and shares no code with
//! the bound.

use remat::op::Outputs;
use remat::unstable::program::{
    Apply, Command, RecordedCommand, RecordedOp, RecordedProgram, TensorId,
};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// Set of values, one bit each. A path without inputs has one more bit, which is set once it has
/// run.
type Set = u64;

#[derive(Debug)]
struct Value {
    bytes: u64,
    /// Path that can make the value again.
    path: Option<usize>,
}

#[derive(Debug)]
struct Path {
    reads: Set,
    makes: Set,
    /// Value that the path may write over.
    over: Set,
    scratch: u64,
    cost: u64,
    /// Bit that is set once this path has run, if it reads nothing.
    ran: Set,
}

/// Needs and effects of a command, in values.
#[derive(Debug, Default)]
struct Step {
    /// Values that must be in memory at once, throughout the command.
    reads: Set,
    /// Runs of the command, in order.
    runs: Vec<Run>,
    /// Ops that may write over the old value.
    taken_over: Vec<TakenOver>,
    /// Values that must stay in memory from this command on.
    stays: Set,
    /// Values that no longer have to stay in memory after this command.
    goes: Set,
    /// Path that may run from this command on.
    offers: Option<usize>,
}

/// Run of an op, or of one of several updates.
#[derive(Debug, Default)]
struct Run {
    /// Values that are in memory after the run.
    makes: Set,
    /// Bytes of workspace during the run.
    scratch: u64,
}

#[derive(Debug)]
struct TakenOver {
    /// Index of the run that writes over the value.
    run: usize,
    old: Set,
    new: Set,
}

/// Program in terms of sets of values.
#[derive(Debug, Default)]
pub struct Exact {
    values: Vec<Value>,
    paths: Vec<Path>,
    steps: Vec<Step>,
    /// Value of each tensor, by the tensor's number.
    tensors: Vec<usize>,
    handles: Vec<usize>,
    bits: usize,
    /// Values that stay once they are in memory.
    leaves: Set,
    /// Values that stay in memory after the steps so far.
    staying: Set,
}

const fn bit(value: usize) -> Set {
    1 << value
}

impl Exact {
    /// Reads a program. `None` if it needs more than 40 bits.
    pub fn new(program: &RecordedProgram) -> Option<Self> {
        let mut exact = Self::default();
        for command in program.commands() {
            let step = exact.step(command);
            exact.staying = exact.staying_after(exact.staying, &step);
            exact.steps.push(step);
        }
        // Bits of values come first, then the bits of paths without inputs.
        let values = exact.values.len();
        let free: Vec<usize> =
            (0..exact.paths.len()).filter(|&p| exact.paths[p].reads == 0).collect();
        exact.bits = values + free.len();
        for (i, path) in free.into_iter().enumerate() {
            exact.paths[path].ran = bit(values + i);
        }
        (exact.bits <= 40).then_some(exact)
    }

    /// Values that must stay in memory after a step. A leaf that is uploaded late stays from the
    /// first command that reads it.
    fn staying_after(&self, before: Set, step: &Step) -> Set {
        (before | step.stays | (self.leaves & step.reads)) & !step.goes
    }

    fn value(&mut self, bytes: u64, path: Option<usize>) -> usize {
        self.values.push(Value { bytes, path });
        self.handles.push(1);
        self.tensors.push(self.values.len() - 1);
        self.values.len() - 1
    }

    fn of(&self, tensor: TensorId) -> usize {
        self.tensors[tensor.index()]
    }

    fn step(&mut self, command: &RecordedCommand) -> Step {
        let mut step = Step::default();
        match command {
            Command::Put { host, leaf, .. } => {
                let bytes = host.layout.bytes();
                match host.cost {
                    None => {
                        let value = self.value(bytes, None);
                        step.runs = vec![Run { makes: bit(value), scratch: 0 }];
                        step.stays = bit(value);
                    }
                    Some(cost) => {
                        let path = self.paths.len();
                        let value = self.value(bytes, Some(path));
                        let (makes, cost) = (bit(value), cost as u64);
                        self.paths.push(Path {
                            reads: 0,
                            makes,
                            over: 0,
                            scratch: 0,
                            cost,
                            ran: 0,
                        });
                        step.offers = Some(path);
                        if *leaf {
                            self.leaves |= makes;
                        }
                    }
                }
            }
            Command::Apply(call) => match &call.outputs {
                Outputs::Views(looks) => {
                    for look in looks {
                        let value = self.of(call.inputs[look.input]);
                        self.handles[value] += 1;
                        self.tensors.push(value);
                    }
                }
                Outputs::Updates { .. } => self.update(std::slice::from_ref(call), &mut step),
                Outputs::Over if self.is_over_leaf(call) => {
                    self.update(std::slice::from_ref(call), &mut step);
                }
                Outputs::Over => {
                    let path = self.paths.len();
                    self.update(std::slice::from_ref(call), &mut step);
                    let new = self.values.len() - 1;
                    self.values[new].path = Some(path);
                    step.stays = 0;
                    let (reads, makes, over) = (step.reads, bit(new), bit(self.of(call.inputs[0])));
                    let (scratch, cost) = (call.op.workspace, call.op.cost as u64);
                    self.paths.push(Path { reads, makes, over, scratch, cost, ran: 0 });
                }
                Outputs::Fresh(layouts) => {
                    step.reads =
                        call.inputs.iter().map(|input| bit(self.of(*input))).fold(0, |a, b| a | b);
                    let scratch = call.op.workspace;
                    let path = call.op.rematerializable.then_some(self.paths.len());
                    let makes = layouts
                        .iter()
                        .map(|layout| bit(self.value(layout.bytes(), path)))
                        .fold(0, |a, b| a | b);
                    if path.is_some() && makes != 0 {
                        let (reads, cost) = (step.reads, call.op.cost as u64);
                        self.paths.push(Path { reads, makes, over: 0, scratch, cost, ran: 0 });
                    }
                    // A path without inputs may run later, when its outputs are first read.
                    if path.is_some() && step.reads == 0 {
                        step.offers = path.filter(|_| makes != 0);
                    } else {
                        step.runs = vec![Run { makes, scratch }];
                        step.stays = if path.is_none() { makes } else { 0 };
                    }
                }
            },
            Command::UpdateAll(calls) => self.update(calls, &mut step),
            Command::Get(tensor) => step.reads = bit(self.of(*tensor)),
            Command::Commit(tensor) => {
                step.reads = bit(self.of(*tensor));
                step.stays = step.reads;
            }
            Command::Replace { target, consumed, value, .. } => {
                let value = self.of(*value);
                step.reads = bit(value);
                step.stays = bit(value);
                self.handles[value] += 1;
                self.tensors.push(value);
                if *consumed {
                    self.end(*target, &mut step);
                }
            }
            Command::Del(tensor) => self.end(*tensor, &mut step),
            _ => {}
        }
        step
    }

    /// Whether nothing can restore the value that an op writes over, or the op runs only once.
    fn is_over_leaf(&self, call: &Apply<RecordedOp>) -> bool {
        let old = self.of(call.inputs[0]);
        let stays = self.values[old].path.is_none() || self.staying & bit(old) != 0;
        stays || !call.op.rematerializable
    }

    fn end(&mut self, tensor: TensorId, step: &mut Step) {
        let value = self.of(tensor);
        self.handles[value] -= 1;
        if self.handles[value] == 0 {
            step.goes |= bit(value);
        }
    }

    fn update(&mut self, calls: &[Apply<RecordedOp>], step: &mut Step) {
        let inputs = calls.iter().flat_map(|call| &call.inputs);
        let read: Vec<usize> = inputs.map(|input| self.of(*input)).collect();
        step.reads = read.iter().fold(0, |set, value| set | bit(*value));
        for (run, call) in calls.iter().enumerate() {
            let mut makes = 0;
            for i in 0..call.outputs.len() {
                let target = call.inputs.get(i).filter(|_| i < call.outputs.targets());
                let old = target.map(|target| self.of(*target));
                // In these programs, every tensor views the whole of its value.
                let bytes = match (old, call.outputs.written()) {
                    (Some(old), _) => self.values[old].bytes,
                    (None, written) => {
                        let (targets, fresh) = written.unwrap();
                        fresh[i - targets].bytes()
                    }
                };
                let new = self.value(bytes, None);
                step.stays |= bit(new);
                let last = old.filter(|&old| {
                    call.consumed.contains(i)
                        && self.handles[old] == 1
                        && read.iter().filter(|other| **other == old).count() == 1
                });
                match last {
                    Some(old) => {
                        let (old, new) = (bit(old), bit(new));
                        step.taken_over.push(TakenOver { run, old, new });
                    }
                    None => makes |= bit(new),
                }
            }
            step.runs.push(Run { makes, scratch: call.op.workspace });
        }
        for target in calls.iter().flat_map(Apply::ended) {
            self.end(target, step);
        }
    }

    fn bytes(&self, set: Set) -> u64 {
        let mut sum = 0;
        let mut rest = set & (bit(self.values.len()) - 1);
        while rest != 0 {
            sum += self.values[rest.trailing_zeros() as usize].bytes;
            rest &= rest - 1;
        }
        sum
    }

    /// Values that may still be needed from each step on.
    fn useful(&self) -> Vec<Set> {
        let mut useful = vec![0; self.steps.len() + 1];
        for at in (0..self.steps.len()).rev() {
            let mut set = useful[at + 1] | self.steps[at].reads;
            loop {
                let before = set;
                for (i, value) in self.values.iter().enumerate() {
                    if let Some(path) = value.path.filter(|_| set & bit(i) != 0) {
                        set |= self.paths[path].reads;
                    }
                }
                if set == before {
                    break;
                }
            }
            useful[at] = set;
        }
        useful
    }

    /// Least cost to recompute under a budget. `None` if no run fits.
    pub fn least(&self, budget: u64) -> Option<u64> {
        let useful = self.useful();
        let runs = (bit(self.bits) - 1) & !(bit(self.values.len()) - 1);
        let mut offered = vec![false; self.paths.len()];
        let mut made: Set = 0;
        let mut states: HashMap<Set, u64> = HashMap::from([(0, 0)]);
        // Values that must stay in memory once they are resident.
        let mut staying: Set = 0;
        for (at, step) in self.steps.iter().enumerate() {
            let stays_after = self.staying_after(staying, step);
            let states_before = self.between(states, budget, staying, useful[at] | runs, &offered);
            states = HashMap::new();
            for (state, cost) in states_before {
                if state & step.reads != step.reads {
                    continue;
                }
                for after in self.after(state, step, budget) {
                    let kept = after & (useful[at + 1] | runs | stays_after);
                    let known = states.entry(kept).or_insert(u64::MAX);
                    *known = cost.min(*known);
                }
            }
            made |= step.runs.iter().fold(0, |makes, run| makes | run.makes);
            made |= step.taken_over.iter().fold(0, |news, taken| news | taken.new);
            if let Some(path) = step.offers {
                offered[path] = true;
                made |= self.paths[path].makes;
            }
            for (offered, path) in offered.iter_mut().zip(&self.paths) {
                *offered |= path.makes & made == path.makes;
            }
            staying = stays_after;
            if states.is_empty() {
                return None;
            }
        }
        states.into_values().min()
    }

    /// Sets of resident values after a command. Each updated value is either written over or
    /// copied, and all combinations are tried.
    fn after(&self, before: Set, step: &Step, budget: u64) -> Vec<Set> {
        let ways = 0..1u32 << step.taken_over.len();
        let after = |copies: u32| {
            let is_copied = |i: usize| copies >> i & 1 == 1;
            let mut set = before;
            if self.bytes(set) > budget {
                return None;
            }
            for (number, run) in step.runs.iter().enumerate() {
                set |= run.makes;
                for (i, taken) in step.taken_over.iter().enumerate() {
                    if taken.run == number && is_copied(i) {
                        set |= taken.new;
                    }
                }
                if self.bytes(set) + run.scratch > budget {
                    return None;
                }
            }
            for (i, taken) in step.taken_over.iter().enumerate() {
                if !is_copied(i) {
                    set = set & !taken.old | taken.new;
                }
            }
            Some(set)
        };
        ways.filter_map(after).collect()
    }

    /// Sets of resident values that evictions and recomputations can reach between two commands,
    /// each with its least cost.
    fn between(
        &self,
        states: HashMap<Set, u64>,
        budget: u64,
        staying: Set,
        keep: Set,
        offered: &[bool],
    ) -> HashMap<Set, u64> {
        let mut best = states;
        let mut heap: BinaryHeap<Reverse<(u64, Set)>> =
            best.iter().map(|(state, cost)| Reverse((*cost, *state))).collect();
        while let Some(Reverse((cost, state))) = heap.pop() {
            if best[&state] < cost {
                continue;
            }
            let mut reach = |to: Set, cost: u64| {
                let known = best.entry(to).or_insert(u64::MAX);
                if cost < *known {
                    *known = cost;
                    heap.push(Reverse((cost, to)));
                }
            };
            let mut rest = state & (bit(self.values.len()) - 1) & !staying;
            while rest != 0 {
                let lowest = rest & rest.wrapping_neg();
                reach(state & !lowest, cost);
                rest &= !lowest;
            }
            for (path, _) in self.paths.iter().zip(offered).filter(|(_, offered)| **offered) {
                let missing = path.makes & !state & (keep | staying);
                if missing == 0 || state & path.reads != path.reads {
                    continue;
                }
                let is_first = path.ran != 0 && state & path.ran == 0;
                let price = if is_first { 0 } else { path.cost };
                if self.bytes(state | path.makes) + path.scratch <= budget {
                    reach(state | (path.makes & keep) | path.ran, cost + price);
                }
                let is_over = path.over != 0 && staying & path.over == 0;
                if is_over && self.bytes(state) + path.scratch <= budget {
                    reach(state & !path.over | (path.makes & keep), cost + price);
                }
            }
        }
        best
    }
}
