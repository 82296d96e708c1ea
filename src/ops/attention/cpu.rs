//! Computes attention on the CPU, in tiles of queries and keys that stay in the cache.
//!
//! One task computes a whole head. The outer loop of the task goes over tiles of keys. The inner
//! loop goes over the tiles of queries that see a key of the tile:
//!
//! ```text
//!              keys
//!            +------+------+
//!   queries  |  0   |      |      causal: tiles without a number are not computed
//!            +------+------+
//!            |  1   |  2   |
//!            +------+------+
//! ```
//!
//! Until the last tile of keys, the outputs hold intermediate results: `y` holds sums before the
//! division by the sum of exponentials, and `lse` holds the largest score so far. The number of
//! tasks is constant and each task has its own scratch memory, so the bits do not depend on the
//! number of threads.

use super::shape::Shape;
use crate::device::cpu::lanes::Lanes;
use crate::device::cpu::math::{exp, larger};
use crate::device::cpu::split::{chunks, each};
use crate::device::cpu::wide::widest;
use crate::layout::Layout;
use crate::ops::conv2d::cpu::simd::{Level, Matrices, padded};

/// Largest number of queries in a tile. [`KEYS`] is the largest number of keys in a tile.
const QUERIES: usize = 32;
const KEYS: usize = 128;

/// Largest number of tasks, each with its own scratch memory. The number is constant, because
/// results must not depend on the number of threads.
const TASKS: usize = 16;

/// Number of multiplications below which the calling thread does all work, without other threads.
const WORTH_SHARING: f64 = 100_000.0;

/// An operand `[b, h, n, d]` of any strides.
#[derive(Clone, Copy)]
pub struct HeadRows<'a> {
    data: &'a [f32],
    strides: [usize; 4],
    /// Number of heads in each entry of the batch.
    h: usize,
}

/// Rows `[n, d]` of one head, of any strides.
#[derive(Clone, Copy)]
struct Rows<'a> {
    data: &'a [f32],
    strides: [usize; 2],
}

impl<'a> HeadRows<'a> {
    pub fn new(data: &'a [f32], layout: &Layout) -> Self {
        let strides = std::array::from_fn(|axis| layout.strides()[axis]);
        Self { data, strides, h: layout.shape()[1] }
    }

    /// Head number `i` of an operand that has elements.
    fn head(&self, i: usize) -> Rows<'a> {
        let [b, h, row, column] = self.strides;
        let at = i / self.h * b + i % self.h * h;
        Rows { data: &self.data[at..], strides: [row, column] }
    }
}

impl<'a> Rows<'a> {
    /// All elements from the start of a row on.
    fn from(&self, row: usize) -> &'a [f32] {
        &self.data[row * self.strides[0]..]
    }

    /// Copies `rows` rows of `d` elements, and pads each copied row.
    fn pack(&self, first: usize, rows: usize, d: usize, to: &mut [f32]) {
        let [row, column] = self.strides;
        for (r, to) in to.chunks_mut(padded(d)).take(rows).enumerate() {
            let from = &self.data[(first + r) * row..];
            if column == 1 {
                to[..d].copy_from_slice(&from[..d]);
            } else {
                to[..d].iter_mut().enumerate().for_each(|(l, to)| *to = from[l * column]);
            }
        }
    }

    /// Copies `rows` rows of `d` elements, transposed: the copy has `d` rows, `width` elements
    /// apart.
    fn pack_turned(&self, first: usize, rows: usize, d: usize, to: &mut [f32], width: usize) {
        /// Number of rows that are copied together, so that their elements stay in the cache.
        const BLOCK: usize = 16;
        let [row, column] = self.strides;
        for r in (0..rows).step_by(BLOCK) {
            let rows = BLOCK.min(rows - r);
            for l in 0..d {
                let from = &self.data[(first + r) * row + l * column..];
                let to = &mut to[l * width + r..][..rows];
                to.iter_mut().enumerate().for_each(|(i, to)| *to = from[i * row]);
            }
        }
    }
}

/// Sizes of the tiles in which attention of a shape is computed.
#[derive(Clone, Copy)]
struct Tiles {
    queries: usize,
    keys: usize,
    /// Padded length of a row with one element for each key.
    wide: usize,
    /// Padded length of a row of `d` elements.
    deep: usize,
}

impl Tiles {
    fn new(shape: &Shape) -> Self {
        let keys = KEYS.min(shape.s);
        Self { queries: QUERIES.min(shape.t), keys, wide: padded(keys), deep: padded(shape.d) }
    }

    const fn scores(&self) -> usize {
        self.queries * self.wide
    }

    /// Number of scratch floats of a task: transposed keys, values, scores, and a sum for each
    /// query.
    fn forward(&self, shape: &Shape) -> usize {
        shape.d * self.wide + self.keys * self.deep + self.scores() + padded(shape.t)
    }

    /// Number of scratch floats of a task of the gradient: transposed keys and values, keys,
    /// queries and `dy`, and two tiles of scores.
    fn grad(&self, shape: &Shape) -> usize {
        2 * shape.d * self.wide + (self.keys + 2 * self.queries) * self.deep + 2 * self.scores()
    }
}

/// Whether an operand has no elements, so that there is nothing to compute.
fn is_empty(shape: &Shape) -> bool {
    [shape.b, shape.h, shape.t, shape.s, shape.d].contains(&0)
}

/// Number of heads that a task computes.
fn share(shape: &Shape) -> usize {
    shape.heads().div_ceil(TASKS).max(1)
}

fn bytes(shape: &Shape, floats: usize) -> u64 {
    let tasks = shape.heads().div_ceil(share(shape));
    (tasks as u64).saturating_mul(floats as u64).saturating_mul(size_of::<f32>() as u64)
}

/// Bytes of workspace of [`forward`].
pub fn workspace(shape: &Shape) -> u64 {
    if is_empty(shape) { 0 } else { bytes(shape, Tiles::new(shape).forward(shape)) }
}

/// Bytes of workspace of [`grad`].
pub fn workspace_of_grad(shape: &Shape) -> u64 {
    if is_empty(shape) { 0 } else { bytes(shape, Tiles::new(shape).grad(shape)) }
}

/// Splits the first `len` floats off `from`, and returns them.
fn take<'a>(from: &mut &'a mut [f32], len: usize) -> &'a mut [f32] {
    let (piece, rest) = std::mem::take(from).split_at_mut(len);
    *from = rest;
    piece
}

/// Computes `y` and `lse`.
pub fn forward(
    shape: &Shape,
    [y, lse]: [&mut [f32]; 2],
    [q, k, v]: [HeadRows<'_>; 3],
    workspace: &mut [f32],
) {
    if is_empty(shape) {
        y.fill(0.0);
        // If `d` is 0 and there are keys, all scores are 0. `lse` is then the logarithm of the
        // number of keys that the query sees.
        let rows = lse.iter_mut().enumerate();
        rows.for_each(|(i, lse)| *lse = (shape.seen(i % shape.t) as f64).ln() as f32);
        return;
    }
    let (level, tiles, share) = (Level::detect(), Tiles::new(shape), share(shape));
    let (t, d) = (shape.t, shape.d);
    let floats = tiles.forward(shape);
    let parts = [chunks(y, share * t * d), chunks(lse, share * t), chunks(workspace, floats)];
    each(parts, least(shape), |task, [y, lse, scratch]| {
        let heads = y.chunks_exact_mut(t * d).zip(lse.chunks_exact_mut(t));
        for (i, (y, lse)) in heads.enumerate() {
            let [q, k, v] = [q, k, v].map(|x| x.head(task * share + i));
            Head { shape, level, tiles }.forward([y, lse], [q, k, v], scratch);
        }
    });
}

/// Fewest tasks that a thread takes at a time: all, if waking other threads would take longer than
/// the work.
fn least(shape: &Shape) -> usize {
    if shape.scores() * (shape.d as f64) < WORTH_SHARING { TASKS } else { 1 }
}

/// Inputs of the gradient.
#[derive(Clone, Copy)]
pub struct Given<'a> {
    pub q: HeadRows<'a>,
    pub k: HeadRows<'a>,
    pub v: HeadRows<'a>,
    pub lse: &'a [f32],
    pub delta: &'a [f32],
    pub dy: HeadRows<'a>,
}

/// Inputs of the gradient for one head.
struct GivenHead<'a> {
    q: Rows<'a>,
    k: Rows<'a>,
    v: Rows<'a>,
    lse: &'a [f32],
    delta: &'a [f32],
    dy: Rows<'a>,
}

/// Computes `dq`, `dk` and `dv`.
pub fn grad(shape: &Shape, mut out: [&mut [f32]; 3], of: Given<'_>, workspace: &mut [f32]) {
    out.iter_mut().for_each(|out| out.fill(0.0));
    if is_empty(shape) {
        return;
    }
    let (level, tiles, share) = (Level::detect(), Tiles::new(shape), share(shape));
    let (t, s, d) = (shape.t, shape.s, shape.d);
    let floats = tiles.grad(shape);
    let [dq, dk, dv] = out;
    let [queries, keys] = [t, s].map(|rows| share * rows * d);
    let parts =
        [chunks(dq, queries), chunks(dk, keys), chunks(dv, keys), chunks(workspace, floats)];
    each(parts, least(shape), |task, [dq, dk, dv, scratch]| {
        let keys = dk.chunks_exact_mut(s * d).zip(dv.chunks_exact_mut(s * d));
        for (i, (dq, (dk, dv))) in dq.chunks_exact_mut(t * d).zip(keys).enumerate() {
            let head = task * share + i;
            let [q, k, v, dy] = [of.q, of.k, of.v, of.dy].map(|x| x.head(head));
            let [lse, delta] = [of.lse, of.delta].map(|rows| &rows[head * t..][..t]);
            let of = GivenHead { q, k, v, lse, delta, dy };
            Head { shape, level, tiles }.grad([dq, dk, dv], of, scratch);
        }
    });
}

struct Head<'a> {
    shape: &'a Shape,
    level: Level,
    tiles: Tiles,
}

impl Head<'_> {
    /// Calls `body(first, rows, columns)` for each tile of queries that see keys of the tile
    /// `key..key + keys`. `first` and `rows` are the first query and the number of queries.
    /// `columns` is the number of keys of the tile that at least one of the queries sees.
    fn queries(&self, key: usize, keys: usize, mut body: impl FnMut(usize, usize, usize)) {
        let Shape { t, causal, .. } = *self.shape;
        let before = if causal { key / self.tiles.queries * self.tiles.queries } else { 0 };
        for first in (before..t).step_by(self.tiles.queries) {
            let rows = self.tiles.queries.min(t - first);
            let columns = self.shape.seen(first + rows - 1).saturating_sub(key).min(keys);
            if columns > 0 {
                body(first, rows, columns);
            }
        }
    }

    fn forward(
        &self,
        [y, lse]: [&mut [f32]; 2],
        [q, k, v]: [Rows<'_>; 3],
        mut scratch: &mut [f32],
    ) {
        let Shape { t, s, d, scale, .. } = *self.shape;
        let Tiles { keys, wide, deep, .. } = self.tiles;
        let turned = take(&mut scratch, d * wide);
        let values = take(&mut scratch, keys * deep);
        let scores = take(&mut scratch, self.tiles.scores());
        let sums = &mut scratch[..t];
        lse.fill(f32::NEG_INFINITY);
        sums.fill(0.0);
        for key in (0..s).step_by(keys) {
            let keys = keys.min(s - key);
            // Pack the tile of keys and values once for all tiles of queries.
            k.pack_turned(key, keys, d, turned, wide);
            v.pack(key, keys, d, values);
            self.queries(key, keys, |first, rows, columns| {
                // Scores of the tile: `scale * q k^T`.
                let of = Matrices {
                    sizes: [rows, d, columns],
                    a: q.from(first),
                    a_strides: q.strides,
                    b: turned,
                    b_stride: wide,
                    c_stride: wide,
                    factor: scale,
                    add: false,
                };
                self.level.multiply(&of, scores);
                // Replace the scores by exponentials, relative to the largest score of each row so
                // far. If the largest score of a row has grown, rescale the sums in `y` to it.
                for (r, row) in scores.chunks_mut(wide).take(rows).enumerate() {
                    let seen = self.shape.seen(first + r).saturating_sub(key).min(columns);
                    let (seen, hidden) = row[..columns].split_at_mut(seen);
                    hidden.fill(0.0);
                    if !seen.is_empty() {
                        let query = first + r;
                        let kept = exponentials(seen, &mut lse[query], &mut sums[query]);
                        if key > 0 {
                            let y = &mut y[query * d..][..d];
                            widest(
                                #[inline(always)]
                                || y.iter_mut().for_each(|y| *y *= kept),
                            );
                        }
                    }
                }
                // Add the exponentials times the values to `y`. For the first tile of keys,
                // overwrite `y` instead.
                let of = Matrices {
                    sizes: [rows, columns, d],
                    a: scores,
                    a_strides: [wide, 1],
                    b: values,
                    b_stride: deep,
                    c_stride: d,
                    factor: 1.0,
                    add: key > 0,
                };
                self.level.multiply(&of, &mut y[first * d..]);
            });
        }
        // After the last tile of keys, divide `y` by the sums of exponentials, and complete `lse`.
        for ((y, lse), &sum) in y.chunks_exact_mut(d).zip(lse).zip(&*sums) {
            widest(
                #[inline(always)]
                || y.iter_mut().for_each(|y| *y /= sum),
            );
            *lse += sum.ln();
        }
    }

    fn grad(&self, [dq, dk, dv]: [&mut [f32]; 3], of: GivenHead<'_>, mut scratch: &mut [f32]) {
        let Shape { s, d, scale, .. } = *self.shape;
        let Tiles { queries, keys, wide, deep } = self.tiles;
        let GivenHead { q, k, v, lse, delta, dy } = of;
        let keys_turned = take(&mut scratch, d * wide);
        let values_turned = take(&mut scratch, d * wide);
        let keys_packed = take(&mut scratch, keys * deep);
        let queries_packed = take(&mut scratch, queries * deep);
        let dy_packed = take(&mut scratch, queries * deep);
        let p = take(&mut scratch, self.tiles.scores());
        let ds = take(&mut scratch, self.tiles.scores());
        for key in (0..s).step_by(keys) {
            let keys = keys.min(s - key);
            // Pack the tile of keys and values once for all tiles of queries.
            k.pack_turned(key, keys, d, keys_turned, wide);
            v.pack_turned(key, keys, d, values_turned, wide);
            k.pack(key, keys, d, keys_packed);
            self.queries(key, keys, |first, rows, columns| {
                q.pack(first, rows, d, queries_packed);
                dy.pack(first, rows, d, dy_packed);
                // Compute the scores into `p`, and `dy v^T` into `ds`.
                let of_queries = Matrices {
                    sizes: [rows, d, columns],
                    a: queries_packed,
                    a_strides: [deep, 1],
                    b: keys_turned,
                    b_stride: wide,
                    c_stride: wide,
                    factor: scale,
                    add: false,
                };
                self.level.multiply(&of_queries, p);
                let of_dy = Matrices { a: dy_packed, b: values_turned, factor: 1.0, ..of_queries };
                self.level.multiply(&of_dy, ds);
                // Compute the probabilities `p` from the scores, and `ds = p (dy v^T - delta)`.
                // Keys that a query does not see get zeros.
                let both = p.chunks_mut(wide).zip(ds.chunks_mut(wide));
                for (r, (p, ds)) in both.take(rows).enumerate() {
                    let (lse, delta) = (lse[first + r], delta[first + r]);
                    let seen = self.shape.seen(first + r).saturating_sub(key).min(columns);
                    widest(
                        #[inline(always)]
                        || {
                            for (p, ds) in p[..seen].iter_mut().zip(&mut ds[..seen]) {
                                *p = exp(*p - lse);
                                *ds = *p * (*ds - delta);
                            }
                        },
                    );
                    p[seen..columns].fill(0.0);
                    ds[seen..columns].fill(0.0);
                }
                // Add the contributions of the tile to `dv`, `dk` and `dq`.
                let to_keys = Matrices {
                    sizes: [columns, rows, d],
                    a: p,
                    a_strides: [1, wide],
                    b: dy_packed,
                    b_stride: deep,
                    c_stride: d,
                    factor: 1.0,
                    add: true,
                };
                self.level.multiply(&to_keys, &mut dv[key * d..]);
                let of_ds = Matrices { a: ds, b: queries_packed, factor: scale, ..to_keys };
                self.level.multiply(&of_ds, &mut dk[key * d..]);
                let to_queries = Matrices {
                    sizes: [rows, columns, d],
                    a: ds,
                    a_strides: [wide, 1],
                    b: keys_packed,
                    ..of_ds
                };
                self.level.multiply(&to_queries, &mut dq[first * d..]);
            });
        }
    }
}

/// Replaces each score `x` by `e^(x - most)`, where `most` is the largest score of the row so far.
/// Updates `most`, and `sum`, the sum of all exponentials so far. Returns the factor that rescales
/// earlier results of the row from the previous `most` to the new one.
fn exponentials(row: &mut [f32], most: &mut f32, sum: &mut f32) -> f32 {
    let mut largest = Lanes::new(f32::NEG_INFINITY);
    largest.add(
        row,
        #[inline(always)]
        |most, x: f32| larger(most, x),
    );
    let now = larger(*most, largest.join(larger));
    widest(
        #[inline(always)]
        || row.iter_mut().for_each(|x| *x = exp(*x - now)),
    );
    let mut sums = Lanes::new(0.0);
    sums.add(
        row,
        #[inline(always)]
        |sum, x: f32| sum + x,
    );
    let kept = exp(*most - now);
    *sum = *sum * kept + sums.join(|a, b| a + b);
    *most = now;
    kept
}
