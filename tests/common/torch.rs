//! Stream of ops that PyTorch's dispatcher sends while an ordinary eager loop trains. This module
//! imitates the stream without PyTorch.
//!
//! A tensor is a storage, with the value that the storage holds between two writes. An in-place
//! write makes a new value from the old value, and deletes the old one. Therefore no parameter is
//! updated in place: each step makes new parameters.
//!
//! Autograd holds the values that its backward ops read. The mark of a step comes when the
//! optimizer is done, and the loss is read after the mark. Gradients are freed when the next step
//! begins.

use remat::Layout;
use remat::op::Outputs;
use remat::unstable::program::{Apply, Command, RecordedOp, TensorId};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

/// Command of the stream.
pub type Sent = Command<RecordedOp, Layout>;

/// Numbers of values whose last holder was dropped.
type Dead = Rc<RefCell<Vec<u64>>>;

#[derive(Debug)]
struct Storage {
    value: Cell<u64>,
    bytes: usize,
    dead: Dead,
}

impl Drop for Storage {
    fn drop(&mut self) {
        self.dead.borrow_mut().push(self.value.get());
    }
}

/// Handle that keeps a storage.
#[derive(Clone, Debug)]
pub struct T(Rc<Storage>);

impl T {
    pub fn bytes(&self) -> usize {
        self.0.bytes
    }
}

/// Operand of a backward op.
#[derive(Clone, Debug)]
enum Read {
    /// Gradient of an output of the node, by the output's number.
    Grad(usize),
    Saved(T),
}

/// Backward op: its name, work, operands, and the variables whose gradients it makes.
#[derive(Debug)]
struct Back {
    name: &'static str,
    flops: f64,
    reads: Vec<Read>,
    /// Number of each variable, and the bytes of its gradient.
    makes: Vec<(usize, usize)>,
}

impl Back {
    fn new(name: &'static str, flops: f64, reads: Vec<Read>, makes: &[&Var]) -> Self {
        Self { name, flops, reads, makes: makes.iter().map(|var| (var.id, var.bytes)).collect() }
    }
}

/// Variable of autograd's graph.
#[derive(Clone, Debug)]
pub struct Var {
    pub t: T,
    id: usize,
    /// Bytes of the part of the storage that the variable views.
    bytes: usize,
}

/// Source of the stream: the tape, and all commands sent so far.
#[derive(Debug, Default)]
pub struct Torch {
    pub sent: Vec<Sent>,
    dead: Dead,
    next: u64,
    vars: usize,
    /// Outputs and backward ops of each forward op so far.
    tape: Vec<(Vec<usize>, Vec<Back>)>,
}

/// Optimizer of the training loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Optimizer {
    Adam,
    Momentum,
}

/// Parameter, with its gradient and its optimizer state.
#[derive(Debug)]
pub struct Param {
    pub var: Var,
    grad: Option<T>,
    state: Vec<T>,
}

impl Torch {
    fn bury(&mut self) {
        let dead: Vec<u64> = self.dead.borrow_mut().drain(..).collect();
        self.sent.extend(dead.into_iter().map(|value| Command::Del(TensorId(value))));
    }

    fn storage(&mut self, value: u64, bytes: usize) -> T {
        T(Rc::new(Storage { value: Cell::new(value), bytes, dead: Rc::clone(&self.dead) }))
    }

    fn send(&mut self, name: &str, flops: f64, inputs: &[&T], bytes: &[usize]) -> u64 {
        let mut ids: Vec<TensorId> = Vec::new();
        for input in inputs {
            let id = TensorId(input.0.value.get());
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        let made = self.next;
        self.next += bytes.len() as u64;
        let least = bytes.iter().sum::<usize>() as f64 / 16.0;
        let op = RecordedOp { flops: Some(flops.max(least)), ..RecordedOp::new(name, 0.0) };
        let outputs = Outputs::fresh(bytes.iter().map(|&bytes| Layout::raw(bytes)));
        self.sent.push(Command::Apply(Apply::new(op, ids.as_slice(), outputs, TensorId(made))));
        made
    }

    /// Sends an op that makes one storage for each of `bytes`.
    pub fn op(&mut self, name: &str, flops: f64, inputs: &[&T], bytes: &[usize]) -> Vec<T> {
        self.bury();
        let made = self.send(name, flops, inputs, bytes);
        (made..).zip(bytes).map(|(value, &bytes)| self.storage(value, bytes)).collect()
    }

    fn one(&mut self, name: &str, flops: f64, inputs: &[&T], bytes: usize) -> T {
        self.op(name, flops, inputs, &[bytes]).remove(0)
    }

    /// Sends an op that writes over `target`.
    pub fn over(&mut self, name: &str, target: &T, others: &[&T]) {
        self.bury();
        let inputs: Vec<&T> = [target].into_iter().chain(others.iter().copied()).collect();
        let made = self.send(name, 0.0, &inputs, &[target.bytes()]);
        self.sent.push(Command::Del(TensorId(target.0.value.replace(made))));
    }

    /// Uploads a leaf of `bytes` bytes, which no op can recompute.
    pub fn there(&mut self, bytes: usize) -> T {
        self.bury();
        let tensor = TensorId(self.next);
        self.next += 1;
        self.sent.push(Command::Put { tensor, host: Arc::new(Layout::raw(bytes)), leaf: true });
        self.storage(tensor.0, bytes)
    }

    pub fn read(&mut self, t: &T) {
        self.bury();
        self.send("_local_scalar_dense", 0.0, &[t], &[]);
    }

    pub fn mark(&mut self) {
        self.bury();
        self.sent.push(Command::Step);
    }

    pub fn var(&mut self, t: T) -> Var {
        let bytes = t.bytes();
        self.part(&t, bytes)
    }

    fn part(&mut self, t: &T, bytes: usize) -> Var {
        self.vars += 1;
        Var { t: t.clone(), id: self.vars, bytes }
    }

    pub fn param(&mut self, elements: usize) -> Param {
        let t = self.one("empty", 0.0, &[], 4 * elements);
        self.over("uniform_", &t, &[]);
        Param { var: self.var(t), grad: None, state: Vec::new() }
    }

    fn node(&mut self, out: &Var, backs: Vec<Back>) {
        self.tape.push((vec![out.id], backs));
    }

    /// Sends `x @ w + b`, with `rows` rows in `x`. The `first` layer of a network makes no gradient
    /// of its input.
    pub fn linear(
        &mut self,
        x: &Var,
        (w, b): (&Var, &Var),
        [rows, n, m]: [usize; 3],
        first: bool,
    ) -> Var {
        let flops = 2.0 * (rows * n * m) as f64;
        let out = self.one("addmm", flops, &[&b.t, &x.t, &w.t], 4 * rows * m);
        let out = self.var(out);
        let saved = |of: &Var| vec![Read::Grad(0), Read::Saved(of.t.clone())];
        let mut backs = Vec::new();
        if !first {
            backs.push(Back::new("mm", flops, saved(w), &[x]));
        }
        backs.push(Back::new("mm", flops, saved(x), &[w]));
        backs.push(Back::new("sum", 0.0, vec![Read::Grad(0)], &[b]));
        self.node(&out, backs);
        out
    }

    /// Sends an op of one input. The backward op reads the output with `by_output`, and the input
    /// otherwise.
    pub fn unary(&mut self, name: &'static str, x: &Var, by_output: bool) -> Var {
        let t = self.one(name, 0.0, &[&x.t], x.bytes);
        let out = self.var(t);
        let saved = if by_output { &out.t } else { &x.t };
        let reads = vec![Read::Grad(0), Read::Saved(saved.clone())];
        self.node(&out, vec![Back::new("unary_backward", 0.0, reads, &[x])]);
        out
    }

    /// Sends an op that writes over its input. The backward op reads the result.
    pub fn in_place(&mut self, name: &'static str, x: Var) -> Var {
        self.over(name, &x.t, &[]);
        let out = self.part(&x.t, x.bytes);
        let reads = vec![Read::Grad(0), Read::Saved(x.t.clone())];
        self.node(&out, vec![Back::new("unary_backward", 0.0, reads, &[&x])]);
        out
    }

    pub fn dropout(&mut self, x: &Var) -> Var {
        let mut made = self.op("native_dropout", 0.0, &[&x.t], &[x.bytes, x.bytes / 4]);
        let mask = made.pop().unwrap();
        let out = self.var(made.pop().unwrap());
        let reads = vec![Read::Grad(0), Read::Saved(mask)];
        self.node(&out, vec![Back::new("dropout_backward", 0.0, reads, &[x])]);
        out
    }

    /// Sends `x + y`. Both operands share the gradient of the sum, so no backward op runs.
    pub fn add(&mut self, x: &Var, y: &Var) -> Var {
        let t = self.one("add", 0.0, &[&x.t, &y.t], x.bytes);
        let out = self.var(t);
        self.node(&out, vec![Back::new("", 0.0, vec![Read::Grad(0)], &[x, y])]);
        out
    }

    /// Sends `x += y`.
    pub fn add_to(&mut self, x: Var, y: &Var) -> Var {
        self.over("add_", &x.t, &[&y.t]);
        let out = self.part(&x.t, x.bytes);
        self.node(&out, vec![Back::new("", 0.0, vec![Read::Grad(0)], &[&x, y])]);
        out
    }

    pub fn mul(&mut self, x: &Var, y: &Var) -> Var {
        let t = self.one("mul", 0.0, &[&x.t, &y.t], x.bytes);
        let out = self.var(t);
        let back = |of: &Var, other: &Var| {
            let reads = vec![Read::Grad(0), Read::Saved(other.t.clone())];
            Back::new("mul", 0.0, reads, &[of])
        };
        self.node(&out, vec![back(x, y), back(y, x)]);
        out
    }

    /// Splits a tensor into views. One backward op concatenates their gradients, once all are
    /// known.
    pub fn chunk(&mut self, x: &Var, parts: usize) -> Vec<Var> {
        let made: Vec<Var> = (0..parts).map(|_| self.part(&x.t, x.bytes / parts)).collect();
        let reads = (0..parts).map(Read::Grad).collect();
        let outs = made.iter().map(|var| var.id).collect();
        self.tape.push((outs, vec![Back::new("cat", 0.0, reads, &[x])]));
        made
    }

    /// Concatenates tensors. The gradients of the parts are views of the result's gradient.
    pub fn cat(&mut self, parts: &[Var]) -> Var {
        let read: Vec<&T> = parts.iter().map(|part| &part.t).collect();
        let t = self.one("cat", 0.0, &read, parts.iter().map(|part| part.bytes).sum());
        let out = self.var(t);
        let parts: Vec<&Var> = parts.iter().collect();
        self.node(&out, vec![Back::new("", 0.0, vec![Read::Grad(0)], &parts)]);
        out
    }

    /// Sends an op with one backward op, which makes the gradients of `wants`. The backward op
    /// reads `saves` and all outputs but the first, and also the first with `saves_output`.
    pub fn general(
        &mut self,
        name: &'static str,
        flops: f64,
        inputs: &[&Var],
        bytes: &[usize],
        (saves, saves_output): (&[&Var], bool),
        wants: &[&Var],
    ) -> Var {
        let reads: Vec<&T> = inputs.iter().map(|input| &input.t).collect();
        let mut made = self.op(name, flops, &reads, bytes);
        let mut saved: Vec<T> = saves.iter().map(|saved| saved.t.clone()).collect();
        saved.extend(made.split_off(1));
        let out = self.var(made.pop().unwrap());
        saved.extend(Some(out.t.clone()).filter(|_| saves_output));
        let saved = saved.into_iter().map(Read::Saved);
        let reads = std::iter::once(Read::Grad(0)).chain(saved).collect();
        self.node(&out, vec![Back::new("general_backward", 2.0 * flops, reads, wants)]);
        out
    }

    pub fn cross_entropy(&mut self, x: &Var, labels: &T) -> Var {
        let log = self.unary("log_softmax", x, true);
        let mut made = self.op("nll_loss", 0.0, &[&log.t, labels], &[4, 4]);
        let weight = made.pop().unwrap();
        let out = self.var(made.pop().unwrap());
        let saved = [&log.t, labels, &weight].map(|saved| Read::Saved(saved.clone()));
        let reads = std::iter::once(Read::Grad(0)).chain(saved).collect();
        self.node(&out, vec![Back::new("nll_loss_backward", 0.0, reads, &[&log])]);
        out
    }

    pub fn backward(&mut self, loss: &Var, params: &mut [Param]) {
        let mut grads: HashMap<usize, T> = HashMap::new();
        let seed = self.one("ones_like", 0.0, &[&loss.t], loss.bytes);
        grads.insert(loss.id, seed);
        for (outs, backs) in std::mem::take(&mut self.tape).into_iter().rev() {
            let ready: Vec<T> = outs.iter().filter_map(|out| grads.remove(out)).collect();
            if ready.is_empty() {
                continue;
            }
            for Back { name, flops, reads, makes } in backs {
                let reads: Vec<&T> = reads
                    .iter()
                    .filter_map(|read| match read {
                        Read::Grad(output) => ready.get(*output),
                        Read::Saved(t) => Some(t),
                    })
                    .collect();
                let bytes: Vec<usize> = makes.iter().map(|made| made.1).collect();
                let made = match name {
                    "" => makes.iter().map(|_| ready[0].clone()).collect(),
                    _ => self.op(name, flops, &reads, &bytes),
                };
                for ((var, bytes), made) in makes.into_iter().zip(made) {
                    let sum = match grads.remove(&var) {
                        Some(other) => self.one("add", 0.0, &[&other, &made], bytes),
                        None => made,
                    };
                    grads.insert(var, sum);
                }
            }
        }
        for param in params {
            param.grad = grads.remove(&param.var.id);
        }
    }

    pub fn zero_grad(params: &mut [Param]) {
        params.iter_mut().for_each(|param| param.grad = None);
    }

    pub fn optimize(&mut self, params: &mut [Param], optimizer: Optimizer) {
        for Param { var, grad, state } in params {
            let Some(grad) = grad else { continue };
            match optimizer {
                Optimizer::Adam => {
                    if state.is_empty() {
                        let bytes = var.t.bytes();
                        *state =
                            (0..2).map(|_| self.one("zeros_like", 0.0, &[&var.t], bytes)).collect();
                        let count = self.one("zeros", 0.0, &[], 4);
                        state.push(count);
                    }
                    self.over("add_", &state[2], &[]);
                    self.over("lerp_", &state[0], &[grad]);
                    self.over("mul_", &state[1], &[]);
                    self.over("addcmul_", &state[1], &[grad]);
                    let root = self.one("sqrt", 0.0, &[&state[1]], var.t.bytes());
                    let by = self.one("div", 0.0, &[&root], var.t.bytes());
                    drop(root);
                    self.over("add_", &by, &[]);
                    self.over("addcdiv_", &var.t, &[&state[0], &by]);
                }
                Optimizer::Momentum => {
                    let decayed = self.one("add", 0.0, &[grad, &var.t], var.t.bytes());
                    match state.first() {
                        None => {
                            let buffer = self.one("clone", 0.0, &[&decayed], var.t.bytes());
                            state.push(buffer);
                        }
                        Some(buffer) => {
                            self.over("mul_", buffer, &[]);
                            self.over("add_", buffer, &[&decayed]);
                        }
                    }
                    self.over("add_", &var.t, &[&state[0]]);
                }
            }
        }
    }
}
