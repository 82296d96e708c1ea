//! LSTM steps on the CPU. The sequences of a batch do not depend on each other, so each task
//! computes all steps of some sequences without waiting for other tasks:
//!
//! ```text
//!   products = y[s - 1] weight^T      a matrix of few rows and a large one, which is the same in each step
//!   gates[s] = f(products + sums[s] + bias)
//! ```
//!
//! The weight is packed once, in panels of columns. A panel has as many columns as the inner loop
//! of the product handles at a time. All tasks read the packed weight. The division into tasks
//! depends only on the number of sequences, so the bits do not depend on the number of threads.

use super::shape::{Shape, TimeRows};
use crate::device::cpu::math::{sigmoid, tanh};
use crate::device::cpu::split::{chunks, each};
use crate::device::cpu::wide::widest;
use crate::layout::Layout;
use crate::ops::conv2d::cpu::simd::{Level, Matrices, padded};

/// Number of columns in a panel of the packed weight.
const PANEL: usize = 48;

/// Number of sequences that the product handles at a time. The number of sequences of a task is a
/// multiple of this number. With fewer than `2 * SEQUENCES` sequences, a task has only `SEQUENCES /
/// 2` sequences, so that several tasks still share the work.
const SEQUENCES: usize = 8;

/// Largest number of tasks, each with its own scratch memory. The number is constant, because
/// results must not depend on the number of threads.
const TASKS: usize = 16;

/// Number of multiplications below which the calling thread does all work, without other threads.
const WORTH_SHARING: f64 = 100_000.0;

/// Number of sequences that a task computes.
fn share(shape: &Shape) -> usize {
    if shape.n < 2 * SEQUENCES {
        return SEQUENCES / 2;
    }
    shape.n.div_ceil(TASKS).next_multiple_of(SEQUENCES)
}

/// Number of floats of a packed matrix, including the padding of its last panel.
const fn packed(depth: usize, columns: usize) -> usize {
    depth.saturating_mul(columns / PANEL * PANEL + padded(columns % PANEL))
}

/// Number of scratch floats of a task: the products of all gates, and `h` and `c` of each sequence.
fn scratch(shape: &Shape, sequences: usize) -> usize {
    sequences.saturating_mul(6 * shape.h)
}

/// Number of scratch floats of a task of the gradient: `dh` and `dc` of each sequence, and two
/// rows.
fn scratch_of_grad(shape: &Shape, sequences: usize) -> usize {
    (2 * sequences + 2).saturating_mul(shape.h)
}

fn is_empty(shape: &Shape) -> bool {
    [shape.n, shape.t, shape.h].contains(&0)
}

fn bytes(shape: &Shape, packed: usize, of_task: impl Fn(&Shape, usize) -> usize) -> u64 {
    if is_empty(shape) {
        return 0;
    }
    let share = share(shape).min(shape.n);
    let tasks = shape.n.div_ceil(share).saturating_mul(of_task(shape, share));
    (packed.saturating_add(tasks) as u64).saturating_mul(size_of::<f32>() as u64)
}

/// Bytes of workspace of [`forward`].
pub fn workspace(shape: &Shape) -> u64 {
    bytes(shape, packed(shape.h, shape.gates()), scratch)
}

/// Bytes of workspace of [`grad`].
pub fn workspace_of_grad(shape: &Shape) -> u64 {
    bytes(shape, packed(shape.gates(), shape.h), scratch_of_grad)
}

/// Right-hand side of products, packed in panels. Packing pays off, because many products with few
/// rows each read the panels.
#[derive(Clone, Copy)]
struct Panels<'a> {
    data: &'a [f32],
    depth: usize,
    columns: usize,
    level: Level,
}

impl<'a> Panels<'a> {
    /// Packs `depth` rows of `columns` columns. `strides` are the distances between rows, and
    /// between columns.
    fn new(
        from: &[f32],
        [row, column]: [usize; 2],
        [depth, columns]: [usize; 2],
        to: &'a mut [f32],
    ) -> Self {
        let is_large = (depth * columns) as f64 >= WORTH_SHARING;
        let least = if is_large { 1 } else { columns };
        each(chunks(to, depth * PANEL), least, |i, panel| {
            let first = i * PANEL;
            let width = PANEL.min(columns - first);
            for (l, to) in panel.chunks_exact_mut(padded(width)).enumerate() {
                let from = &from[l * row + first * column..];
                let to = &mut to[..width];
                if column == 1 {
                    to.copy_from_slice(&from[..width]);
                } else {
                    to.iter_mut().enumerate().for_each(|(j, to)| *to = from[j * column]);
                }
            }
        });
        Self { data: to, depth, columns, level: Level::detect() }
    }

    /// Computes `c = a * self` for `rows` rows of `a`, which are `distance` apart.
    fn multiply(&self, rows: usize, a: &[f32], distance: usize, c: &mut [f32]) {
        let Self { data, depth, columns, level } = *self;
        for (i, b) in data.chunks(depth * PANEL).enumerate() {
            let first = i * PANEL;
            let width = PANEL.min(columns - first);
            let of = Matrices {
                sizes: [rows, depth, width],
                a,
                a_strides: [distance, 1],
                b,
                b_stride: padded(width),
                c_stride: columns,
                factor: 1.0,
                add: false,
            };
            level.multiply(&of, &mut c[first..]);
        }
    }
}

/// Splits the first `len` floats off `from`, and returns them.
fn take<'a>(from: &mut &'a mut [f32], len: usize) -> &'a mut [f32] {
    let (piece, rest) = std::mem::take(from).split_at_mut(len);
    *from = rest;
    piece
}

/// Inputs of [`forward`].
pub struct Given<'a> {
    pub sums: &'a [f32],
    pub weight: (&'a [f32], &'a Layout),
    pub bias: &'a [f32],
    pub h0: TimeRows<'a>,
    pub c0: TimeRows<'a>,
}

/// Computes the outputs of the steps: `y`, `c`, `gates`, and the last `y` and `c`.
pub fn forward(
    shape: &Shape,
    [y, c, gates, h_last, c_last]: [&mut [f32]; 5],
    of: &Given<'_>,
    workspace: &mut [f32],
) {
    let Shape { n, t, h } = *shape;
    if is_empty(shape) {
        // Start with the initial `h` and `c`, which are the results if there are no steps.
        let last = h_last.chunks_exact_mut(h.max(1)).zip(c_last.chunks_exact_mut(h.max(1)));
        for (i, (h, c)) in last.enumerate() {
            of.h0.copy(i, 0, h);
            of.c0.copy(i, 0, c);
        }
        return;
    }
    let (to, scratches) = workspace.split_at_mut(packed(h, 4 * h));
    let [row, column] = [0, 1].map(|axis| of.weight.1.strides()[axis]);
    // Swap the strides to read the weight transposed.
    let weight = Panels::new(of.weight.0, [column, row], [h, 4 * h], to);
    // Each task has `share` sequences, and its own outputs and scratch memory.
    let share = share(shape).min(n);
    let parts = [
        chunks(y, share * t * h),
        chunks(c, share * t * h),
        chunks(gates, share * t * 4 * h),
        chunks(h_last, share * h),
        chunks(c_last, share * h),
        chunks(scratches, scratch(shape, share)),
    ];
    each(parts, least(shape), |task, [y, c, gates, h_last, c_last, mut scratch]| {
        let (first, sequences) = (task * share, h_last.len() / h);
        let products = take(&mut scratch, sequences * 4 * h);
        let [h_before, c_before] = [(); 2].map(|()| take(&mut scratch, sequences * h));
        // Pack the initial `h` and `c` of the task's sequences.
        let before = h_before.chunks_exact_mut(h).zip(c_before.chunks_exact_mut(h));
        for (i, (h_before, c_before)) in before.enumerate() {
            of.h0.copy(first + i, 0, h_before);
            of.c0.copy(first + i, 0, c_before);
        }
        // Each step computes one matrix product for all sequences, and then the gates of each
        // sequence.
        for s in 0..t {
            match s.checked_sub(1) {
                None => weight.multiply(sequences, h_before, h, products),
                Some(last) => weight.multiply(sequences, &y[last * h..], t * h, products),
            }
            for (i, products) in products.chunks_exact(4 * h).enumerate() {
                let at = i * t + s;
                let sums = &of.sums[((first + i) * t + s) * 4 * h..][..4 * h];
                let gates = &mut gates[at * 4 * h..][..4 * h];
                let (before, c) = c[..(at + 1) * h].split_at_mut(at * h);
                let before = if s == 0 { &c_before[i * h..][..h] } else { &before[(at - 1) * h..] };
                widest(
                    #[inline(always)]
                    || step(gates, [products, sums, of.bias], before, c, &mut y[at * h..][..h]),
                );
            }
        }
        // Copy `y` and `c` of the last step.
        for (i, (h_last, c_last)) in
            h_last.chunks_exact_mut(h).zip(c_last.chunks_exact_mut(h)).enumerate()
        {
            let at = (i * t + t - 1) * h;
            h_last.copy_from_slice(&y[at..][..h]);
            c_last.copy_from_slice(&c[at..][..h]);
        }
    });
}

/// Fewest tasks that a thread takes at a time: all, if waking other threads would take longer than
/// the work.
fn least(shape: &Shape) -> usize {
    if shape.units() * ((4 * shape.h) as f64) < WORTH_SHARING { TASKS } else { 1 }
}

/// Splits a row into four parts, one for each gate.
#[inline(always)]
fn quarters(of: &mut [f32]) -> [&mut [f32]; 4] {
    let (front, back) = of.split_at_mut(of.len() / 2);
    let ((i, f), (g, o)) = (front.split_at_mut(front.len() / 2), back.split_at_mut(back.len() / 2));
    [i, f, g, o]
}

/// Computes a step of a sequence. The work is divided into loops with few operands, so that the
/// compiler vectorizes each loop.
#[inline(always)]
fn step(
    gates: &mut [f32],
    [products, sums, bias]: [&[f32]; 3],
    before: &[f32],
    c: &mut [f32],
    y: &mut [f32],
) {
    for (gate, ((product, sum), bias)) in gates.iter_mut().zip(products.iter().zip(sums).zip(bias))
    {
        *gate = product + sum + bias;
    }
    let [i, f, g, o] = quarters(gates);
    i.iter_mut().for_each(|x| *x = sigmoid(*x));
    f.iter_mut().for_each(|x| *x = sigmoid(*x));
    g.iter_mut().for_each(|x| *x = tanh(*x));
    o.iter_mut().for_each(|x| *x = sigmoid(*x));
    let kept = f.iter().zip(before);
    let added = i.iter().zip(&*g);
    for (c, ((f, before), (i, g))) in c.iter_mut().zip(kept.zip(added)) {
        *c = f * before + i * g;
    }
    for (y, (o, c)) in y.iter_mut().zip(o.iter().zip(&*c)) {
        *y = o * tanh(*c);
    }
}

/// Inputs of the gradient.
pub struct GivenBack<'a> {
    pub gates: &'a [f32],
    pub c: &'a [f32],
    pub c0: TimeRows<'a>,
    pub weight: (&'a [f32], &'a Layout),
    pub dy: TimeRows<'a>,
    pub dh_last: TimeRows<'a>,
    pub dc_last: TimeRows<'a>,
}

/// Computes `dsums`, `dh0` and `dc0`.
pub fn grad(
    shape: &Shape,
    [dsums, dh0, dc0]: [&mut [f32]; 3],
    of: &GivenBack<'_>,
    workspace: &mut [f32],
) {
    let Shape { n, t, h } = *shape;
    if is_empty(shape) {
        let first = dh0.chunks_exact_mut(h.max(1)).zip(dc0.chunks_exact_mut(h.max(1)));
        for (i, (dh, dc)) in first.enumerate() {
            of.dh_last.copy(i, 0, dh);
            of.dc_last.copy(i, 0, dc);
        }
        return;
    }
    let (to, scratches) = workspace.split_at_mut(packed(4 * h, h));
    let strides = [0, 1].map(|axis| of.weight.1.strides()[axis]);
    let weight = Panels::new(of.weight.0, strides, [4 * h, h], to);
    let share = share(shape).min(n);
    let parts = [
        chunks(dsums, share * t * 4 * h),
        chunks(dh0, share * h),
        chunks(dc0, share * h),
        chunks(scratches, scratch_of_grad(shape, share)),
    ];
    each(parts, least(shape), |task, [dsums, dh0, dc0, mut scratch]| {
        let (first, sequences) = (task * share, dh0.len() / h);
        let [dh, dc] = [(); 2].map(|()| take(&mut scratch, sequences * h));
        let [row, bent] = [(); 2].map(|()| take(&mut scratch, h));
        for (i, (dh, dc)) in dh.chunks_exact_mut(h).zip(dc.chunks_exact_mut(h)).enumerate() {
            of.dh_last.copy(first + i, 0, dh);
            of.dc_last.copy(first + i, 0, dc);
        }
        for s in (0..t).rev() {
            let memory = dh.chunks_exact_mut(h).zip(dc.chunks_exact_mut(h));
            for (i, (dh, dc)) in memory.enumerate() {
                let at = (first + i) * t + s;
                of.dy.copy(first + i, s, row);
                let gates = &of.gates[at * 4 * h..][..4 * h];
                let c = &of.c[at * h..][..h];
                let dsums = &mut dsums[(i * t + s) * 4 * h..][..4 * h];
                widest(
                    #[inline(always)]
                    || enter(gates, c, row, bent, [dh, dc]),
                );
                let before = if s == 0 {
                    of.c0.copy(first + i, 0, row);
                    &*row
                } else {
                    &of.c[(at - 1) * h..][..h]
                };
                widest(
                    #[inline(always)]
                    || leave(dsums, gates, before, [dh, bent], dc),
                );
            }
            weight.multiply(sequences, &dsums[s * 4 * h..], t * 4 * h, dh);
        }
        dh0.copy_from_slice(dh);
        dc0.copy_from_slice(dc);
    });
}

/// Adds `dy`, the gradient of the step's output, to `dh`. Adds the gradient that `c` receives
/// through the output to `dc`. Writes `tanh(c)` to `bent`.
#[inline(always)]
fn enter(gates: &[f32], c: &[f32], dy: &[f32], bent: &mut [f32], [dh, dc]: [&mut [f32]; 2]) {
    let o = &gates[3 * c.len()..];
    bent.iter_mut().zip(c).for_each(|(bent, &c)| *bent = tanh(c));
    dh.iter_mut().zip(dy).for_each(|(dh, dy)| *dh += dy);
    for ((dc, dh), (o, bent)) in dc.iter_mut().zip(&*dh).zip(o.iter().zip(&*bent)) {
        *dc += dh * o * (1.0 - bent * bent);
    }
}

/// Computes the gradients of the sums of the step's gates, and turns `dc` into the `dc` of the
/// previous step.
#[inline(always)]
fn leave(
    dsums: &mut [f32],
    gates: &[f32],
    before: &[f32],
    [dh, bent]: [&[f32]; 2],
    dc: &mut [f32],
) {
    let h = dc.len();
    let [i, f, g, o] = [0, 1, 2, 3].map(|k| &gates[k * h..][..h]);
    let [di, df, dg, d_o] = quarters(dsums);
    for (d, (dc, (i, g))) in di.iter_mut().zip(dc.iter().zip(i.iter().zip(g))) {
        *d = dc * g * (i * (1.0 - i));
    }
    for (d, (dc, (f, before))) in df.iter_mut().zip(dc.iter().zip(f.iter().zip(before))) {
        *d = dc * before * (f * (1.0 - f));
    }
    for (d, (dc, (i, g))) in dg.iter_mut().zip(dc.iter().zip(i.iter().zip(g))) {
        *d = dc * i * (1.0 - g * g);
    }
    for (d, (dh, (o, bent))) in d_o.iter_mut().zip(dh.iter().zip(o.iter().zip(bent))) {
        *d = dh * bent * (o * (1.0 - o));
    }
    dc.iter_mut().zip(f).for_each(|(dc, f)| *dc *= f);
}
