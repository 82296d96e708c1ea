//! Calculations of a program: finds operands that fit, and makes the call.

use super::player::{Player, Slot};
use super::program::{Calc, Data, Distribution, Pick, Window};
use remat::op::Operation as _;
use remat::ops::{BatchNormParameters, Conv2d, Distribution as From, Op, Pool2d};
use remat::unstable::ops::samples::{self, Draw, Sample, Sizes, Values};
use remat::unstable::ops::{
    Contiguous, CrossEntropy, MaxPool2d, MaxPool2dPick, Random, Reduce, Reduction,
};
use remat::{DType, Dims, Error, HostTensor, Layout, MAX_RANK, Tensor, broadcast_shapes};

/// Most multiplications of a product of matrices.
const MOST_WORK: usize = 40_000_000;

/// Tensors made by a calculation, and the positions of its operands.
type Made = (Vec<Tensor>, Vec<usize>);

impl Player<'_> {
    /// Runs a calculation and holds its results. A result that would be too large is left out.
    pub fn calc(&mut self, calc: &Calc) {
        let made = self.try_calc(calc);
        if let Some(Some((made, sources))) = self.accept(made) {
            let unknown = self.is_unknown(&sources);
            made.into_iter().for_each(|tensor| self.hold(tensor, unknown));
        }
    }

    /// Position of a tensor of floats that fits. If no tensor fits, puts a new one of shape `or()`.
    pub fn float(
        &mut self,
        pick: Pick,
        fits: impl Fn(&Layout) -> bool,
        or: impl FnOnce() -> Vec<usize>,
    ) -> usize {
        let found = self.pick(pick, |layout| layout.dtype() == DType::F32 && fits(layout));
        found.unwrap_or_else(|| {
            let tensor = self.put(&Data { shape: or(), seed: pick as u64 }, false);
            self.hold(tensor, false);
            self.slots.len() - 1
        })
    }

    fn shape(&self, i: usize) -> Vec<usize> {
        self.slots[i].tensor.shape().to_vec()
    }

    fn tensor(&self, i: usize) -> Tensor {
        self.slots[i].tensor.clone()
    }

    fn try_calc(&mut self, calc: &Calc) -> Result<Option<Made>, Error> {
        let one = |made: Result<Tensor, Error>, sources: &[usize]| {
            made.map(|tensor| Some((vec![tensor], sources.to_vec())))
        };
        match *calc {
            Calc::Unary(f, x) => {
                let x = self.some(x);
                one(apply(f, &[&self.tensor(x)]), &[x])
            }
            Calc::Binary(f, a, b) => {
                let a = self.some(a);
                let of = *self.slots[a].tensor.layout().shape();
                let most = self.program.most_elements;
                let fits = |layout: &Layout| {
                    let both = broadcast_shapes(&of, layout.shape());
                    both.is_some_and(|shape| shape.elements() <= most)
                };
                let b = self.float(b, fits, Vec::new);
                one(apply(f, &[&self.tensor(a), &self.tensor(b)]), &[a, b])
            }
            Calc::Affine { x, scale, shift } => {
                let x = self.some(x);
                one(self.tensor(x).affine(scale, shift), &[x])
            }
            Calc::MatMul { a, b, turned, columns } => self.matmul([a, b], turned, columns),
            Calc::Conv { x, weight, channels, window, seed } => {
                self.conv(x, weight, (channels, window, seed))
            }
            Calc::BatchNorm { x, vectors, momentum, keeps } => {
                let (x, parts) = self.for_batch_norm(x, vectors);
                let tensors = parts.map(|i| self.tensor(i));
                let new = self.tensor(x).batch_norm(&parameters(&tensors), momentum, 1e-3)?;
                drop(tensors);
                let mut made = vec![new.y, new.mean, new.inv_std];
                let running = [new.running_mean, new.running_var];
                let sources: Vec<usize> = parts.into_iter().chain([x]).collect();
                if keeps {
                    let unknown = self.is_unknown(&sources);
                    for (target, tensor) in parts[2..].iter().zip(running) {
                        let value = Slot { tensor, others: Vec::new(), unknown };
                        self.replace(*target, &value);
                    }
                } else {
                    made.extend(running);
                }
                Ok(Some((made, sources)))
            }
            Calc::BatchNormInfer { x, vectors } => {
                let (x, parts) = self.for_batch_norm(x, vectors);
                let tensors = parts.map(|i| self.tensor(i));
                let sources: Vec<usize> = parts.into_iter().chain([x]).collect();
                one(self.tensor(x).batch_norm_infer(&parameters(&tensors), 1e-3), &sources)
            }
            Calc::MaxPool { x, window } => {
                let x = self.image(x);
                let pool = pool(&self.shape(x), window);
                // The result includes the places of the maxima, and the values found at those
                // places.
                let mut made = Tensor::apply(MaxPool2d(pool), &[&self.tensor(x)])?;
                made.push(apply(MaxPool2dPick { pool }, &[&made[1], &self.tensor(x)])?);
                Ok(Some((made.into_vec(), vec![x])))
            }
            Calc::AvgPool { x, window } => {
                let x = self.image(x);
                one(self.tensor(x).avg_pool2d(pool(&self.shape(x), window)), &[x])
            }
            Calc::Reduce { x, kind, axes, keep_dims } => {
                let x = match kind {
                    Reduction::Max => self.float(x, |x| x.elements() > 0, || vec![3, 8]),
                    _ => self.some(x),
                };
                let rank = self.shape(x).len();
                let axes: Vec<usize> = (0..rank).filter(|axis| axes >> axis & 1 == 1).collect();
                let op = Reduce { kind, axes: Dims::new(&axes), keep_dims };
                one(apply(op, &[&self.tensor(x)]), &[x])
            }
            Calc::Softmax(x) => {
                let x = self.rows(x);
                one(self.tensor(x).softmax(), &[x])
            }
            Calc::LogSoftmax(x) => {
                let x = self.rows(x);
                one(self.tensor(x).log_softmax(), &[x])
            }
            Calc::LayerNorm { x, vectors } => {
                let fits = |layout: &Layout| layout.rank() > 0 && layout.elements() > 0;
                let x = self.float(x, fits, || vec![4, 8]);
                let [gamma, beta] = self.vectors(vectors, self.shape(x)[self.shape(x).len() - 1]);
                let made = self.tensor(x).layer_norm(&self.tensor(gamma), &self.tensor(beta), 1e-3);
                one(made, &[x, gamma, beta])
            }
            Calc::CrossEntropy { logits, seed } => {
                let fits = |layout: &Layout| layout.rank() == 2 && layout.shape()[1] > 0;
                let x = self.float(logits, fits, || vec![4, 8]);
                let [n, classes] = [0, 1].map(|axis| self.shape(x)[axis]);
                let labels = self.indices(n, classes, seed);
                let inputs = [&self.tensor(x), &self.tensor(labels)];
                // The result includes the logarithms.
                Ok(Some((Tensor::apply(CrossEntropy::default(), &inputs)?.into_vec(), vec![x])))
            }
            Calc::Concat { ref parts, axis } => self.concat(parts, axis),
            Calc::Pad { x, axis, before, after } => {
                let x = self.rows(x);
                let shape = self.shape(x);
                let axis = axis % shape.len();
                let room = Dims::new(&shape).with(axis, shape[axis] + before + after);
                if !self.has_room_for(&room) {
                    return Ok(None);
                }
                one(self.tensor(x).pad(axis, before, after), &[x])
            }
            Calc::Gather { x, axis, count, seed } => {
                let x = self.rows(x);
                let shape = self.shape(x);
                let axis = axis % shape.len();
                let count = if shape[axis] == 0 { 0 } else { count };
                if !self.has_room_for(&Dims::new(&shape).with(axis, count)) {
                    return Ok(None);
                }
                let index = self.indices(count, shape[axis], seed);
                one(self.tensor(x).gather(&self.tensor(index), axis), &[x])
            }
            Calc::ScatterAdd { x, axis, size, seed } => {
                let x = self.rows(x);
                let shape = self.shape(x);
                let axis = axis % shape.len();
                if !self.has_room_for(&Dims::new(&shape).with(axis, size)) {
                    return Ok(None);
                }
                let index = self.indices(shape[axis], size, seed);
                one(self.tensor(x).scatter_add(&self.tensor(index), axis, size), &[x])
            }
            Calc::Contiguous(x) => {
                let x = self.anything(x);
                one(apply(Contiguous, &[&self.tensor(x)]), &[x])
            }
            Calc::Reshape { x, how } => {
                let x = self.anything(x);
                let shapes = shapes_of(self.shape(x).iter().product());
                one(self.tensor(x).reshape(&shapes[how % shapes.len()]), &[x])
            }
            Calc::Permute { x, how } => {
                let x = self.anything(x);
                let mut axes: Vec<usize> = (0..self.shape(x).len()).collect();
                if !axes.is_empty() {
                    let rank = axes.len();
                    axes.rotate_left(how % rank);
                    if how / rank % 2 == 1 {
                        axes.reverse();
                    }
                }
                one(self.tensor(x).permute(&axes), &[x])
            }
            Calc::Slice { x, axis, start, len } => {
                let x = self.anything(x);
                let shape = self.shape(x);
                if shape.is_empty() {
                    return Ok(None);
                }
                let axis = axis % shape.len();
                let start = start % (shape[axis] + 1);
                let room = shape[axis] - start;
                // In rare cases the slice is empty.
                let len = if room == 0 || len % 16 == 15 { 0 } else { 1 + len % room };
                one(self.tensor(x).slice(axis, start..start + len), &[x])
            }
            Calc::Broadcast { x, times } => {
                let x = self.anything(x);
                let mut shape = self.shape(x);
                match shape.iter().position(|&size| size == 1) {
                    Some(axis) => shape[axis] = times,
                    None if shape.len() < MAX_RANK => shape.insert(0, times),
                    None => {}
                }
                if !self.has_room_for(&shape) {
                    return Ok(None);
                }
                one(self.tensor(x).broadcast(&shape), &[x])
            }
            Calc::Full { ref shape, value } => {
                if !self.has_room_for(shape) {
                    return Ok(None);
                }
                one(self.runtime.full(shape, value), &[])
            }
            Calc::Random { ref shape, from } => {
                if !self.has_room_for(shape) {
                    return Ok(None);
                }
                let from = match from {
                    Distribution::Uniform => From::Uniform { low: -1.0, high: 2.0 },
                    Distribution::Normal => From::Normal { mean: 0.5, std: 2.0 },
                    Distribution::Bernoulli => From::Bernoulli { p: 0.3 },
                };
                one(self.random(shape, from), &[])
            }
            Calc::Sample { op, seed, from } => self.sample(op, seed, from),
            Calc::Dropout { x, p } => {
                let x = self.some(x);
                if self.program.beside.is_empty() {
                    return one(self.tensor(x).dropout(p), &[x]);
                }
                let kept = self.random(&self.shape(x), From::Bernoulli { p })?;
                one(self.tensor(x).mul(&kept), &[x])
            }
        }
    }

    /// Runs a sample of op number `op`. Ops that update their inputs are left out, since
    /// [`Update`](super::program::Update) draws them.
    fn sample(&mut self, op: usize, seed: u64, from: Pick) -> Result<Option<Made>, Error> {
        let each = samples::each();
        let Sample { op, operands } = Draw::new(seed, Sizes::Small).sample(&each[op % each.len()]);
        let seen: Vec<Layout> = operands.iter().map(|operand| operand.seen).collect();
        if op.infer(&seen).expect("a sample fits").targets() > 0 {
            return Ok(None);
        }
        let mut sources = Vec::new();
        for (i, operand) in operands.iter().enumerate() {
            let shape = operand.seen.shape();
            let fits = |layout: &Layout| layout.shape() == shape && layout.is_contiguous();
            let source = match operand.values {
                Values::Real => self.float(from + i, fits, || shape.to_vec()),
                values => self.within(values, shape, seed),
            };
            sources.push(source);
        }
        let inputs: Vec<Tensor> = sources.iter().map(|&i| self.tensor(i)).collect();
        let made = match &*inputs {
            [] => self.runtime.apply(op, &[])?,
            _ => Tensor::apply(op, &inputs.iter().collect::<Vec<_>>())?,
        };
        Ok(Some((made.into_vec(), sources)))
    }

    /// Position of a new tensor of numbers in the range that `values` asks for.
    fn within(&mut self, values: Values, shape: &Dims, seed: u64) -> usize {
        let random = |i: usize| (seed as usize).wrapping_add(7 * i + i * i);
        let positive = |i: usize| 0.25 + (random(i) % 64) as f32 / 16.0;
        let all = 0..shape.elements();
        let host = match values {
            Values::Positive => HostTensor::f32(*shape, all.map(positive).collect()),
            Values::Share => HostTensor::f32(*shape, all.map(|i| positive(i) / 5.0).collect()),
            _ => {
                let integer = |i| values.integer(i, random(i)).expect("these are integers");
                HostTensor::i32(*shape, all.map(integer).collect())
            }
        };
        let tensor = self.runtime.put(host.unwrap()).unwrap();
        self.hold(tensor, false);
        self.slots.len() - 1
    }

    /// Random numbers. With two threads, each thread numbers its own draws, so that the order of
    /// the threads' calls does not matter.
    fn random(&self, shape: &[usize], from: From) -> Result<Tensor, Error> {
        if self.program.beside.is_empty() {
            return self.runtime.random(shape, from);
        }
        let counter = self.randoms.replace(self.randoms.get() + 1);
        let shape = Dims::new(shape);
        let op = Random { distribution: from, shape, key: self.thread, counter };
        Ok(self.runtime.apply(op, &[])?.swap_remove(0))
    }

    fn matmul(
        &mut self,
        picks: [Pick; 2],
        turned: [bool; 2],
        columns: usize,
    ) -> Result<Option<Made>, Error> {
        let matrix = |shape: &[usize], turned: bool| {
            let (lead, last) = shape.split_at(shape.len() - 2);
            let [rows, columns] = if turned { [last[1], last[0]] } else { [last[0], last[1]] };
            (Dims::new(lead), rows, columns)
        };
        let a = self.float(picks[0], |layout| layout.rank() >= 2, || vec![4, 8]);
        let (lead, m, k) = matrix(&self.shape(a), turned[0]);
        let most = self.program.most_elements;
        let is_small = |lead: &Dims, n: usize| {
            let size = lead.elements() * m * n;
            size <= most && size * k <= MOST_WORK
        };
        let fits = |layout: &Layout| {
            if layout.rank() < 2 {
                return false;
            }
            let (other, rows, n) = matrix(layout.shape(), turned[1]);
            rows == k && broadcast_shapes(&lead, &other).is_some_and(|lead| is_small(&lead, n))
        };
        if !is_small(&lead, columns) || k * columns > most {
            return Ok(None);
        }
        let b = self
            .float(picks[1], fits, || if turned[1] { vec![columns, k] } else { vec![k, columns] });
        let operand = |i: usize, turned: bool| {
            let tensor = self.tensor(i);
            if turned { tensor.transpose() } else { Ok(tensor) }
        };
        let product = operand(a, turned[0])?.matmul(&operand(b, turned[1])?)?;
        Ok(Some((vec![product], vec![a, b])))
    }

    fn conv(
        &mut self,
        x: Pick,
        weight: Option<Pick>,
        (channels, window, seed): (usize, Window, u64),
    ) -> Result<Option<Made>, Error> {
        let x = self.image(x);
        let shape = self.shape(x);
        let (c, size) = (shape[1], [shape[2], shape[3]]);
        let Window { stride, padding, .. } = window;
        let room = [0, 1].map(|i| size[i] + 2 * padding[i]);
        let kernel = [0, 1].map(|i| window.kernel[i].min(room[i]));
        let fits = |layout: &Layout| {
            let shape = layout.shape();
            shape.len() == 4
                && shape[1] == c
                && (1..=8).contains(&shape[0])
                && (0..2).all(|i| (1..=room[i]).contains(&shape[2 + i]))
        };
        let found = weight.and_then(|pick| {
            self.pick(pick, |layout| layout.dtype() == DType::F32 && fits(layout))
        });
        let weight = found.unwrap_or_else(|| {
            let shape = vec![channels, c, kernel[0], kernel[1]];
            let tensor = self.put(&Data { shape, seed }, false);
            self.hold(tensor, false);
            self.slots.len() - 1
        });
        let of = self.shape(weight);
        let windows = [0, 1].map(|i| (room[i] - of[2 + i]) / stride[i] + 1);
        if !self.has_room_for(&[shape[0], of[0], windows[0], windows[1]]) {
            return Ok(None);
        }
        let conv = Conv2d::new(stride, padding);
        let y = self.tensor(x).conv2d(&self.tensor(weight), conv)?;
        Ok(Some((vec![y], vec![x, weight])))
    }

    fn concat(&mut self, parts: &[Pick], axis: usize) -> Result<Option<Made>, Error> {
        let Some(first) = self.pick(parts[0], |layout| layout.rank() > 0) else { return Ok(None) };
        let of = *self.slots[first].tensor.layout();
        let axis = axis % of.rank();
        let fits = |layout: &Layout| {
            layout.dtype() == of.dtype()
                && layout.rank() == of.rank()
                && layout.shape().with(axis, 0) == of.shape().with(axis, 0)
        };
        let rest = parts[1..].iter().map(|&pick| self.pick(pick, fits).expect("it is like itself"));
        let sources: Vec<usize> = std::iter::once(first).chain(rest).collect();
        let size = sources.iter().map(|&i| self.shape(i)[axis]).sum();
        if !self.has_room_for(&of.shape().with(axis, size)) {
            return Ok(None);
        }
        let tensors: Vec<Tensor> = sources.iter().map(|&i| self.tensor(i)).collect();
        let y = Tensor::concat(&tensors.iter().collect::<Vec<_>>(), axis)?;
        Ok(Some((vec![y], sources)))
    }

    /// Positions of images, and of the vectors that a batch norm has per channel.
    fn for_batch_norm(&mut self, x: Pick, vectors: Pick) -> (usize, [usize; 4]) {
        let fits = |layout: &Layout| layout.rank() >= 2 && layout.elements() > 0;
        let x = self.float(x, fits, || vec![2, 3, 4, 5]);
        (x, self.vectors(vectors, self.shape(x)[1]))
    }

    /// Positions of `N` vectors of `n` elements.
    fn vectors<const N: usize>(&mut self, first: Pick, n: usize) -> [usize; N] {
        let is_vector = |layout: &Layout| **layout.shape() == [n] && layout.is_contiguous();
        std::array::from_fn(|i| self.float(first + i, is_vector, || vec![n]))
    }

    /// Position of a tensor of floats.
    fn some(&mut self, pick: Pick) -> usize {
        self.float(pick, |_| true, || vec![3, 8])
    }

    /// Position of a tensor of floats with at least one dimension.
    fn rows(&mut self, pick: Pick) -> usize {
        self.float(pick, |layout| layout.rank() > 0, || vec![4, 8])
    }

    fn image(&mut self, pick: Pick) -> usize {
        let fits = |layout: &Layout| layout.rank() == 4 && layout.elements() > 0;
        self.float(pick, fits, || vec![2, 3, 8, 7])
    }

    fn anything(&mut self, pick: Pick) -> usize {
        self.pick(pick, |_| true).unwrap_or_else(|| self.some(pick))
    }

    /// Position of a new vector of `count` integers below `below`.
    fn indices(&mut self, count: usize, below: usize, seed: u64) -> usize {
        let number = |i: usize| (seed as usize + 7 * i + i * i) % below;
        let numbers = (0..count).map(|i| number(i) as i32).collect();
        let host = HostTensor::i32([count], numbers).unwrap();
        let tensor = self.runtime.put(host).unwrap();
        self.hold(tensor, false);
        self.slots.len() - 1
    }
}

/// Runs an op and returns the first output.
fn apply(op: impl Into<Op>, inputs: &[&Tensor]) -> Result<Tensor, Error> {
    Ok(Tensor::apply(op, inputs)?.swap_remove(0))
}

/// Parameters of a batch norm, from four vectors.
fn parameters([gamma, beta, running_mean, running_var]: &[Tensor; 4]) -> BatchNormParameters<'_> {
    BatchNormParameters { gamma, beta, running_mean, running_var }
}

/// Pooling whose window fits an image of this shape.
fn pool(shape: &[usize], window: Window) -> Pool2d {
    let kernel = [0, 1].map(|i| window.kernel[i].min(shape[2 + i]));
    let padding = [0, 1].map(|i| window.padding[i].min(kernel[i] / 2));
    Pool2d { kernel, stride: window.stride, padding }
}

/// Some of the shapes that have `elements` elements.
fn shapes_of(elements: usize) -> Vec<Vec<usize>> {
    let mut shapes = vec![vec![elements], vec![1, elements], vec![elements, 1]];
    for first in (2..10).filter(|first| elements.is_multiple_of(*first)) {
        let rest = elements / first;
        shapes.push(vec![first, rest]);
        shapes.push(vec![rest, first]);
        for second in (2..5).filter(|second| rest.is_multiple_of(*second)) {
            shapes.push(vec![first, second, rest / second]);
            shapes.push(vec![1, first, second, rest / second]);
        }
    }
    shapes
}
