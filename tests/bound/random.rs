//! Small random programs with every kind of command.

use remat::Layout;
use remat::op::{Look, Outputs};
use remat::unstable::program::{
    Apply, Command, RecordedCommand, RecordedOp, RecordedProgram, RecordedValue, TensorId,
};
use remat_rng::SplitMix64;

/// Program of `ops` ops, with siblings, views, updates in place, workspaces, uploads, constants,
/// reads and deletes.
pub fn program(seed: u64, ops: usize) -> RecordedProgram {
    let mut random = SplitMix64::new(seed);
    let mut maker = Maker { program: RecordedProgram::default(), sizes: Vec::new() };
    for _ in 0..1 + random.below(3) {
        maker.put(&mut random);
    }
    // As in training, values accumulate in a forward part, and a backward part reads these values.
    let forward = ops.div_ceil(2);
    for op in 0..ops {
        let alive: Vec<TensorId> = maker.program.alive().collect();
        let back = op >= forward;
        let count = 1 + random.below(3);
        let mut inputs: Vec<TensorId> = Vec::new();
        for i in 0..count {
            let newest = alive.len() - 1 - random.below(alive.len().min(2));
            // The backward part reads the values of the forward part, the last one first.
            let mirrored = (2 * alive.len()).saturating_sub(op + forward).min(alive.len() - 1);
            let at = match (i, back) {
                (0, _) => newest,
                (1, true) => mirrored,
                _ => random.below(alive.len()),
            };
            inputs.push(alive[at]);
        }
        maker.op(&mut random, inputs);
        if random.one_in(8) {
            maker.put(&mut random);
        }
        while random.one_in(3) {
            maker.other(&mut random);
        }
    }
    let left: Vec<TensorId> = maker.program.alive().collect();
    for tensor in left.into_iter().rev() {
        if random.one_in(3) {
            maker.push(Command::Get(tensor));
        } else if random.one_in(6) {
            maker.push(Command::Commit(tensor));
        }
    }
    maker.program
}

struct Maker {
    program: RecordedProgram,
    /// Bytes of the value that each tensor views.
    sizes: Vec<usize>,
}

impl Maker {
    fn push(&mut self, command: RecordedCommand) {
        self.program.push(command).expect("it makes sense");
    }

    fn put(&mut self, random: &mut SplitMix64) {
        let bytes = 1 + random.below(6);
        let (tensor, leaf) = (self.program.next(), random.one_in(4));
        let host = match random.one_in(3) {
            true => RecordedValue::constant(bytes as u64),
            false => RecordedValue::new(bytes as u64, random.below(4) as f64),
        };
        self.sizes.push(bytes);
        self.push(Command::Put { tensor, host: host.into(), leaf });
    }

    fn op(&mut self, random: &mut SplitMix64, mut inputs: Vec<TensorId>) {
        let mut op = RecordedOp::new("op", (random.below(20) + 1) as f64);
        if random.one_in(3) {
            op.workspace = random.below(4) as u64;
        }
        op.rematerializable = !random.one_in(12);
        let made = self.program.next();
        match random.below(16) {
            0 => {
                let looks = (0..1 + random.below(2)).map(|_| {
                    let input = random.below(inputs.len());
                    let size = self.sizes[inputs[input].index()];
                    Look { input, layout: Layout::raw(size) }
                });
                let outputs = Outputs::Views(looks.collect());
                for look in outputs.views() {
                    self.sizes.push(self.sizes[inputs[look.input].index()]);
                }
                op.cost = 0.0;
                self.push(Command::Apply(Apply::new(op, inputs, outputs, made)));
            }
            1 | 2 => self.update(random, op, inputs),
            3 => self.push(Command::Apply(Apply::new(op, inputs, Outputs::default(), made))),
            5 | 6 => {
                let size = self.sizes[inputs[0].index()];
                let mut call = Apply::new(op, inputs, Outputs::Over, made);
                call.consumed = (0..1).filter(|_| !random.one_in(3)).collect();
                self.try_push(Command::Apply(call), vec![size]);
            }
            4 => {
                inputs.clear();
                self.fresh(random, op, inputs);
            }
            _ => self.fresh(random, op, inputs),
        }
    }

    /// Adds an update, or several as one command, if the program allows them.
    fn update(&mut self, random: &mut SplitMix64, op: RecordedOp, inputs: Vec<TensorId>) {
        let made = self.program.next();
        if random.one_in(2) {
            let (call, sizes) = self.call(random, op, inputs, made, true);
            return self.try_push(Command::Apply(call), sizes);
        }
        let (call, mut sizes) = self.call(random, op, inputs, made, false);
        let mut calls = vec![call];
        let alive: Vec<TensorId> = self.program.alive().collect();
        for _ in 0..random.below(4) {
            let count = 1 + random.below(2);
            let inputs = (0..count).map(|_| alive[random.below(alive.len())]).collect();
            let mut op = RecordedOp::new("op", (random.below(20) + 1) as f64);
            op.workspace = random.below(6) as u64;
            let (call, more) = self.call(random, op, inputs, made.plus(sizes.len()), false);
            let is_given_away =
                |input: &TensorId| calls.iter().flat_map(Apply::ended).any(|id| id == *input);
            if !call.inputs.iter().any(is_given_away) {
                calls.push(call);
                sizes.extend(more);
            }
        }
        self.try_push(Command::UpdateAll(calls), sizes);
    }

    /// Adds a command, unless it is invalid, such as one that updates a tensor twice.
    fn try_push(&mut self, command: RecordedCommand, sizes: Vec<usize>) {
        if self.program.push(command).is_ok() {
            self.sizes.extend(sizes);
        }
    }

    /// Makes one update, and the sizes of its outputs.
    fn call(
        &self,
        random: &mut SplitMix64,
        op: RecordedOp,
        mut inputs: Vec<TensorId>,
        made: TensorId,
        makes_more: bool,
    ) -> (Apply<RecordedOp>, Vec<usize>) {
        inputs.dedup();
        let targets = 1 + random.below(inputs.len());
        let count = if makes_more { random.below(2) } else { 0 };
        let fresh: Vec<usize> = (0..count).map(|_| 1 + random.below(8)).collect();
        let old = inputs[..targets].iter().map(|input| self.sizes[input.index()]);
        let sizes = old.chain(fresh.iter().copied()).collect();
        let fresh = fresh.iter().map(|&bytes| Layout::raw(bytes)).collect();
        let mut call = Apply::new(op, inputs, Outputs::Updates { targets, fresh }, made);
        call.consumed = (0..targets).filter(|_| !random.one_in(3)).collect();
        (call, sizes)
    }

    fn fresh(&mut self, random: &mut SplitMix64, op: RecordedOp, inputs: Vec<TensorId>) {
        let count = if random.one_in(4) { 2 + random.below(2) } else { 1 };
        let sizes: Vec<usize> = (0..count).map(|_| 1 + random.below(8)).collect();
        let outputs = Outputs::fresh(sizes.iter().map(|&bytes| Layout::raw(bytes)));
        self.sizes.extend(sizes);
        let made = self.program.next();
        self.push(Command::Apply(Apply::new(op, inputs, outputs, made)));
    }

    fn other(&mut self, random: &mut SplitMix64) {
        let alive: Vec<TensorId> = self.program.alive().collect();
        if alive.len() < 2 {
            return;
        }
        let any = alive[random.below(alive.len())];
        match random.below(12) {
            0 => self.push(Command::Get(any)),
            1 => self.push(Command::Commit(any)),
            2 => self.push(Command::Step),
            3 => {
                let (size, made) = (self.sizes[any.index()], self.program.next());
                let other = alive.iter().find(|t| **t != any && self.sizes[t.index()] == size);
                if let Some(&value) = other {
                    self.sizes.push(size);
                    let consumed = random.one_in(2);
                    self.push(Command::Replace { target: any, consumed, value, made });
                }
            }
            _ => self.push(Command::Del(any)),
        }
    }
}
