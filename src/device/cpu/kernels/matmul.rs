//! Products of matrices, dense or strided, on the cpu.
//!
//! The result is cut into tiles, and each tile is one single-threaded call into the `matrixmultiply` crate. How a
//! product is cut depends on its sizes only, so its bits do not depend on the number of threads:
//!
//! ```text
//!                columns
//!             +-----+-----+-----+
//!     rows    |  0  |  1  |  2  |     a tile reads its rows of `a` and its columns of `b`, all of both
//!             +-----+-----+-----+
//!             |  3  |  4  |  5  |
//!             +-----+-----+-----+
//! ```

use std::ops::Range;

use rayon::prelude::*;

/// Tiles have at least about this many multiplications: below, waking a thread costs more than it gains.
const MIN_TILE: usize = 512 * 1024;

/// Tiles have at most this many rows and columns: enough that reading the operands costs little.
const MAX_TILE: [usize; 2] = [256, 512];

/// Rows and columns of tiles are multiples of these, which the inner loops of `matrixmultiply` like.
const TILE_STEP: [usize; 2] = [32, 64];

/// One side of a product: elements of `data` seen as a batch of matrices. Any stride may be 0.
#[derive(Clone, Copy, Debug)]
pub struct Operand<'a> {
    /// Element `[i][r][c]` is at `i * batch_stride + r * row_stride + c * column_stride`.
    pub data: &'a [f32],
    /// Distance between matrices; 0 uses one matrix for the whole batch.
    pub batch_stride: usize,
    /// Distance between rows.
    pub row_stride: usize,
    /// Distance between columns.
    pub column_stride: usize,
}

impl<'a> Operand<'a> {
    /// One matrix; for a transposed one, exchange the strides.
    #[must_use]
    pub fn new(data: &'a [f32], row_stride: usize, column_stride: usize) -> Self {
        Self { data, batch_stride: 0, row_stride, column_stride }
    }

    /// Whether all elements of `batch` matrices of these sizes, which are not zero, are inside `data`.
    fn holds(&self, batch: usize, rows: usize, columns: usize) -> bool {
        let last = |count: usize, stride: usize| (count - 1).checked_mul(stride);
        let sum = || {
            last(batch, self.batch_stride)?
                .checked_add(last(rows, self.row_stride)?)?
                .checked_add(last(columns, self.column_stride)?)
        };
        sum().is_some_and(|last| last < self.data.len())
    }
}

/// `c = a * b`, with `a` of `m` rows and `k` columns, `b` of `k` rows and `n` columns, and `c` dense, row after row.
///
/// All of `c` is overwritten, with zeros if `k` is 0.
///
/// # Panics
/// If `c` does not have `m * n` elements, or an element of `a` or `b` is outside its data.
pub fn matmul(m: usize, k: usize, n: usize, a: Operand<'_>, b: Operand<'_>, c: &mut [f32]) {
    matmul_batched(1, [m, k, n], a, b, c);
}

/// `c[i] = a[i] * b[i]` for all `i` below `batch`, with sizes `[m, k, n]` as in [`matmul`].
///
/// # Panics
/// If `c` does not have `batch * m * n` elements, or an element of `a` or `b` is outside its data.
pub fn matmul_batched(
    batch: usize,
    [m, k, n]: [usize; 3],
    a: Operand<'_>,
    b: Operand<'_>,
    c: &mut [f32],
) {
    let len = m.checked_mul(n).and_then(|len| len.checked_mul(batch));
    assert_eq!(Some(c.len()), len, "length of c for {batch} products of {m} x {k} x {n}");
    if c.is_empty() {
        return;
    }
    if k == 0 {
        c.fill(0.0);
        return;
    }
    let [rows, columns] = tile_sizes(m, k, n);
    let (down, across) = (m.div_ceil(rows), n.div_ceil(columns));
    let product =
        Product { batch, sizes: [m, k, n], a, b, c: Output(c.as_mut_ptr()), len: c.len() };
    let run = |tile: usize| {
        let (i, tile) = (tile / (down * across), tile % (down * across));
        let (row, column) = (tile / across * rows, tile % across * columns);
        product.run_tile(i, row..(row + rows).min(m), column..(column + columns).min(n));
    };
    let tiles = batch * down * across;
    let at_once = (MIN_TILE / (rows * columns * k)).max(1);
    if tiles <= at_once {
        (0..tiles).for_each(run);
    } else {
        (0..tiles).into_par_iter().with_min_len(at_once).for_each(run);
    }
}

/// Rows and columns of the tiles of a product.
fn tile_sizes(m: usize, k: usize, n: usize) -> [usize; 2] {
    let even = |len: usize, most: usize, step: usize| {
        len.div_ceil(len.div_ceil(most)).next_multiple_of(step).min(len)
    };
    let mut sizes = [even(m, MAX_TILE[0], TILE_STEP[0]), even(n, MAX_TILE[1], TILE_STEP[1])];
    // Fewer than four tiles leave threads idle: halve the longer side while the halves are large enough.
    while m.div_ceil(sizes[0]) * n.div_ceil(sizes[1]) < 4 && sizes[0] * sizes[1] * k >= 2 * MIN_TILE
    {
        let long = usize::from(sizes[1] * TILE_STEP[0] > sizes[0] * TILE_STEP[1]);
        let half = sizes[long].div_ceil(2).next_multiple_of(TILE_STEP[long]);
        if half >= sizes[long] {
            break;
        }
        sizes[long] = half;
    }
    sizes
}

/// Where the results go, shared by the threads that compute disjoint tiles.
#[derive(Clone, Copy)]
struct Output(*mut f32);

// SAFETY: the pointer is only used in `Product::run_tile`, by which each thread writes tiles of its own.
unsafe impl Send for Output {}
// SAFETY: as above.
unsafe impl Sync for Output {}

struct Product<'a> {
    batch: usize,
    sizes: [usize; 3],
    a: Operand<'a>,
    b: Operand<'a>,
    c: Output,
    /// Elements behind `c`.
    len: usize,
}

impl Product<'_> {
    /// Computes `rows` and `columns` of product `i`; no tile may be computed by two threads at once.
    fn run_tile(&self, i: usize, rows: Range<usize>, columns: Range<usize>) {
        let [m, k, n] = self.sizes;
        let (a, b) = (self.a, self.b);
        assert!(
            i < self.batch && rows.end <= m && columns.end <= n && self.batch * m * n == self.len
        );
        assert!(!rows.is_empty() && !columns.is_empty() && k > 0);
        assert!(a.holds(self.batch, m, k), "elements of a are outside its data");
        assert!(b.holds(self.batch, k, n), "elements of b are outside its data");
        // SAFETY: the asserts keep every element of the tile, its rows of `a` and its columns of `b` inside their
        // slices. `c` comes from a mutable borrow that outlives this call, and tiles are disjoint.
        unsafe {
            matrixmultiply::sgemm(
                rows.len(),
                k,
                columns.len(),
                1.0,
                a.data.as_ptr().add(i * a.batch_stride + rows.start * a.row_stride),
                a.row_stride as isize,
                a.column_stride as isize,
                b.data.as_ptr().add(i * b.batch_stride + columns.start * b.column_stride),
                b.row_stride as isize,
                b.column_stride as isize,
                0.0,
                self.c.0.add((i * m + rows.start) * n + columns.start),
                n as isize,
                1,
            );
        }
    }
}
