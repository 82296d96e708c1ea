//! Bytes that each command needs at once, counted value by value from the definitions alone. For
//! each command, the count goes through all values made so far.
//!
//! This module shares no code with the bound, nor with the search in `exact`.

use remat::op::Outputs;
use remat::unstable::program::{Apply, Command, RecordedCommand, RecordedOp, TensorId};
use std::collections::HashMap;

/// Bytes with one content.
struct Value {
    bytes: u64,
    /// Command after which the value must stay in memory.
    stays_after: Option<usize>,
    /// Whether the value is a leaf, which stays once a command has read it.
    is_leaf: bool,
    /// Number of tensors that view the value.
    handles: usize,
    /// Command that dropped the last handle, and whether that command needed the value.
    let_go: Option<(usize, bool)>,
}

impl Value {
    /// Whether the value is in memory when command number `at` runs, even if the command does not
    /// read it.
    fn is_held(&self, at: usize) -> bool {
        let until = |(end, needed)| if needed { at <= end } else { at < end };
        self.stays_after.is_some_and(|since| since < at) && self.let_go.is_none_or(until)
    }
}

/// Values a command reads, and bytes it makes.
#[derive(Default)]
struct Need {
    reads: Vec<usize>,
    /// Bytes of outputs and of workspace, for each run. The outputs of one run are still in memory
    /// in the next.
    runs: Vec<(u64, u64)>,
}

struct Reader {
    granule: u64,
    values: Vec<Value>,
    tensors: HashMap<TensorId, (usize, u64)>,
    needs: Vec<Need>,
}

/// Bytes that each command needs at once. Sizes are rounded up to multiples of `granule`.
pub fn working_sets(commands: &[RecordedCommand], granule: u64) -> Vec<u64> {
    let mut reader =
        Reader { granule, values: Vec::new(), tensors: HashMap::new(), needs: Vec::new() };
    commands.iter().for_each(|command| reader.read(command));
    (0..commands.len()).map(|at| reader.working_set(at)).collect()
}

impl Reader {
    fn working_set(&self, at: usize) -> u64 {
        let need = &self.needs[at];
        let is_there =
            |value: &usize| need.reads.contains(value) || self.values[*value].is_held(at);
        let there = (0..self.values.len()).filter(is_there);
        let mut bytes: u64 = there.map(|value| self.values[value].bytes).sum();
        let mut most = if need.reads.is_empty() && need.runs.is_empty() { 0 } else { bytes };
        for (made, workspace) in &need.runs {
            bytes += made;
            most = most.max(bytes + workspace);
        }
        most
    }

    fn round(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.granule) * self.granule
    }

    fn make(&mut self, tensor: TensorId, bytes: u64, stays_after: Option<usize>, is_leaf: bool) {
        self.tensors.insert(tensor, (self.values.len(), bytes));
        self.values.push(Value { bytes, stays_after, is_leaf, handles: 1, let_go: None });
    }

    /// Adds a tensor that views a value.
    fn look(&mut self, tensor: TensorId, value: usize, bytes: u64) {
        self.values[value].handles += 1;
        self.tensors.insert(tensor, (value, bytes));
    }

    fn of(&self, tensor: TensorId) -> usize {
        self.tensors[&tensor].0
    }

    fn stays(&mut self, value: usize) {
        let at = self.needs.len();
        let stays_after = &mut self.values[value].stays_after;
        *stays_after = Some(stays_after.map_or(at, |before| before.min(at)));
    }

    fn let_go(&mut self, tensor: TensorId, needed: bool) {
        let (at, value) = (self.needs.len(), self.of(tensor));
        let value = &mut self.values[value];
        value.handles -= 1;
        if value.handles == 0 {
            value.let_go = Some((at, needed));
        }
    }

    fn read(&mut self, command: &RecordedCommand) {
        let at = self.needs.len();
        let mut need = Need::default();
        match command {
            Command::Put { tensor, host, leaf } => {
                let bytes = self.round(host.layout.bytes());
                let is_constant = host.cost.is_none();
                self.make(*tensor, bytes, is_constant.then_some(at), *leaf && !is_constant);
                // Values that are not constants are uploaded when they are first read.
                need.runs.extend(is_constant.then_some((bytes, 0)));
            }
            Command::Apply(call) => match &call.outputs {
                Outputs::Updates { .. } => self.update(std::slice::from_ref(call), &mut need),
                Outputs::Over => {
                    let old = &self.values[self.of(call.inputs[0])];
                    let runs_again = old.stays_after.is_none() && call.op.rematerializable;
                    self.update(std::slice::from_ref(call), &mut need);
                    if runs_again {
                        self.values.last_mut().expect("it was made").stays_after = None;
                    }
                }
                Outputs::Views(looks) => {
                    for (tensor, look) in call.outputs().zip(looks) {
                        let value = self.of(call.inputs[look.input]);
                        self.look(tensor, value, self.round(look.layout.bytes()));
                    }
                }
                Outputs::Fresh(layouts) => {
                    need.reads = call.inputs.iter().map(|input| self.of(*input)).collect();
                    let again = call.op.rematerializable;
                    let mut made = 0;
                    for (tensor, layout) in call.outputs().zip(layouts) {
                        let bytes = self.round(layout.bytes());
                        self.make(tensor, bytes, (!again).then_some(at), false);
                        made += bytes;
                    }
                    // Outputs of an op without inputs may be made when they are first read.
                    if !(again && need.reads.is_empty()) {
                        need.runs.push((made, self.round(call.op.workspace)));
                    }
                }
            },
            Command::UpdateAll(calls) => self.update(calls, &mut need),
            Command::Get(tensor) => need.reads.push(self.of(*tensor)),
            Command::Commit(tensor) => {
                need.reads.push(self.of(*tensor));
                self.stays(self.of(*tensor));
            }
            Command::Replace { target, consumed, value, made } => {
                let (new, bytes) = self.tensors[value];
                need.reads.push(new);
                self.stays(new);
                self.look(*made, new, bytes);
                if *consumed {
                    self.let_go(*target, true);
                }
            }
            Command::Del(tensor) => self.let_go(*tensor, false),
            _ => {}
        }
        for &value in &need.reads {
            if self.values[value].is_leaf {
                self.stays(value);
            }
        }
        self.needs.push(need);
    }

    fn update(&mut self, calls: &[Apply<RecordedOp>], need: &mut Need) {
        let at = self.needs.len();
        need.reads =
            calls.iter().flat_map(|call| &call.inputs).map(|input| self.of(*input)).collect();
        for call in calls {
            let (targets, fresh) = call.outputs.written().expect("it updates");
            let mut made = 0;
            for (i, tensor) in call.outputs().enumerate() {
                let (bytes, in_place) = match call.inputs.get(i).filter(|_| i < targets) {
                    None => (self.round(fresh[i - targets].bytes()), false),
                    Some(target) => {
                        let (old, bytes) = self.tensors[target];
                        let reads = need.reads.iter().filter(|read| **read == old).count();
                        let value = &self.values[old];
                        let is_last = call.consumed.contains(i) && value.handles == 1;
                        (bytes, is_last && reads == 1 && bytes == value.bytes)
                    }
                };
                self.make(tensor, bytes, Some(at), false);
                made += if in_place { 0 } else { bytes };
            }
            need.runs.push((made, self.round(call.op.workspace)));
        }
        for target in calls.iter().flat_map(Apply::ended) {
            self.let_go(target, true);
        }
    }
}
