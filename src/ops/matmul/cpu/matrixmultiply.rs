//! Products of matrices, dense or strided, on the CPU.
//!
//! The result is cut into tiles. One single-threaded call of the `matrixmultiply` crate computes
//! each tile. The division into tiles depends only on the sizes of the product, so the bits do not
//! depend on the number of threads:
//!
//! ```text
//!                columns
//!             +-----+-----+-----+
//!     rows    |  0  |  1  |  2  |     a tile reads its rows of `a` and its columns of `b`, all of both
//!             +-----+-----+-----+
//!             |  3  |  4  |  5  |
//!             +-----+-----+-----+
//! ```

use crate::device::cpu::split::share;
use crate::sync::atomic::{AtomicPtr, Ordering};
use std::ops::Range;

/// Approximate lower limit of the number of multiplications in a tile. With fewer multiplications,
/// waking another thread takes more time than the thread saves.
const MIN_TILE: usize = 512 * 1024;

/// Largest numbers of rows and of columns of a tile. In tiles of the largest size, reading the
/// operands takes little of the time.
const MAX_TILE: [usize; 2] = [512, 512];

/// Smallest size, in elements, of the tiles that are cut further until a product has 4 tiles.
/// Smaller tiles are cut only until the product has 2 tiles, because in small tiles, reading the
/// operands takes most of the time.
const LARGE_TILE: usize = 256 * 256;

/// Numbers of which the rows and columns of a tile are multiples. The inner loops of
/// `matrixmultiply` are fastest for multiples of these numbers.
const TILE_STEP: [usize; 2] = [32, 64];

/// One side of a product: the elements of `data` as a batch of matrices. Any stride may be 0.
#[derive(Clone, Copy, Debug)]
pub struct Operand<'a> {
    /// Element `[i][r][c]` is at `i * batch_stride + r * row_stride + c * column_stride`.
    pub data: &'a [f32],
    /// Distance between matrices; 0 if all products share one matrix.
    pub batch_stride: usize,
    /// Distance between rows.
    pub row_stride: usize,
    /// Distance between columns.
    pub column_stride: usize,
}

impl Operand<'_> {
    /// Whether all elements of `batch` matrices are inside `data`. The sizes must not be 0.
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

/// Computes `c[i] = a[i] * b[i]` for all `i` below `batch`. `a[i]` has `m` rows and `k` columns,
/// `b[i]` has `k` rows and `n` columns, and `c` is dense, row after row. All of `c` is overwritten,
/// with zeros if `k` is 0.
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
        Product { batch, sizes: [m, k, n], a, b, c: AtomicPtr::new(c.as_mut_ptr()), len: c.len() };
    let run = |tile: usize| {
        let (i, tile) = (tile / (down * across), tile % (down * across));
        let (row, column) = (tile / across * rows, tile % across * columns);
        product.run_tile(i, row..(row + rows).min(m), column..(column + columns).min(n));
    };
    let tiles = batch * down * across;
    let at_once = (MIN_TILE / (rows * columns * k)).max(1);
    share(tiles, at_once, &run);
}

/// Numbers of rows and columns of the tiles of a product.
fn tile_sizes(m: usize, k: usize, n: usize) -> [usize; 2] {
    let even = |len: usize, most: usize, step: usize| {
        len.div_ceil(len.div_ceil(most)).next_multiple_of(step).min(len)
    };
    let mut sizes = [even(m, MAX_TILE[0], TILE_STEP[0]), even(n, MAX_TILE[1], TILE_STEP[1])];
    // With too few tiles, threads would be idle. Halve the longer side of the tiles while the
    // halves are large enough.
    loop {
        let tiles = m.div_ceil(sizes[0]) * n.div_ceil(sizes[1]);
        let wanted = if sizes[0] * sizes[1] >= LARGE_TILE { 4 } else { 2 };
        if tiles >= wanted || sizes[0] * sizes[1] * k < 2 * MIN_TILE {
            return sizes;
        }
        let long = usize::from(sizes[1] * TILE_STEP[0] > sizes[0] * TILE_STEP[1]);
        let half = sizes[long].div_ceil(2).next_multiple_of(TILE_STEP[long]);
        if half >= sizes[long] {
            return sizes;
        }
        sizes[long] = half;
    }
}

struct Product<'a> {
    batch: usize,
    sizes: [usize; 3],
    a: Operand<'a>,
    b: Operand<'a>,
    /// Address of the results, shared by threads that compute disjoint tiles. The address never
    /// changes.
    c: AtomicPtr<f32>,
    /// Number of elements at `c`.
    len: usize,
}

impl Product<'_> {
    /// Computes `rows` and `columns` of product `i`. Two threads must not compute one tile at the
    /// same time.
    #[expect(unsafe_code, reason = "`matrixmultiply` takes pointers")]
    fn run_tile(&self, i: usize, rows: Range<usize>, columns: Range<usize>) {
        let [m, k, n] = self.sizes;
        let (a, b) = (self.a, self.b);
        assert!(
            i < self.batch && rows.end <= m && columns.end <= n && self.batch * m * n == self.len
        );
        assert!(!rows.is_empty() && !columns.is_empty() && k > 0);
        assert!(a.holds(self.batch, m, k), "elements of a are outside its data");
        assert!(b.holds(self.batch, k, n), "elements of b are outside its data");
        let c = self.c.load(Ordering::Relaxed);
        // SAFETY: the asserts guarantee that every element of the tile, its rows of `a` and its
        // columns of `b` is inside its slice. `matmul_batched` guarantees that `c` comes from a
        // mutable borrow that outlives this call, and that tiles are disjoint.
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
                c.add((i * m + rows.start) * n + columns.start),
                n as isize,
                1,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::sync::ThreadPoolBuilder;
    use proptest::prelude::*;

    /// A single matrix. For a transposed matrix, exchange the strides.
    fn matrix(data: &[f32], row_stride: usize, column_stride: usize) -> Operand<'_> {
        Operand { data, batch_stride: 0, row_stride, column_stride }
    }

    fn matmul(m: usize, k: usize, n: usize, a: Operand<'_>, b: Operand<'_>, c: &mut [f32]) {
        matmul_batched(1, [m, k, n], a, b, c);
    }

    use super::*;

    fn values(len: usize) -> Vec<f32> {
        (0..len).map(|i| ((i * 7919) % 1013) as f32 / 512.0 - 1.0).collect()
    }

    /// Form of a dense operand: transposed or not, shared by the batch or not.
    #[derive(Clone, Copy, Debug)]
    struct Form {
        transposed: bool,
        shared: bool,
    }

    impl Form {
        fn operand(self, data: &[f32], rows: usize, columns: usize) -> Operand<'_> {
            let [row_stride, column_stride] =
                if self.transposed { [1, rows] } else { [columns, 1] };
            let batch_stride = if self.shared { 0 } else { rows * columns };
            Operand { data, batch_stride, row_stride, column_stride }
        }
    }

    fn at(x: &Operand<'_>, i: usize, row: usize, column: usize) -> f64 {
        f64::from(x.data[i * x.batch_stride + row * x.row_stride + column * x.column_stride])
    }

    fn check(batch: usize, [m, k, n]: [usize; 3], forms: [Form; 2]) {
        let (a, b) = (values(batch * m * k), values(batch * k * n));
        let (a, b) = (forms[0].operand(&a, m, k), forms[1].operand(&b, k, n));
        let mut c = vec![f32::NAN; batch * m * n];
        matmul_batched(batch, [m, k, n], a, b, &mut c);
        for (index, &c) in c.iter().enumerate() {
            let (i, row, column) = (index / (m * n), index / n % m, index % n);
            let products = || (0..k).map(|j| at(&a, i, row, j) * at(&b, i, j, column));
            let (sum, magnitude) = (products().sum::<f64>(), products().map(f64::abs).sum::<f64>());
            // The comparison is false for NaN, so a NaN fails the test.
            assert!(
                (f64::from(c) - sum).abs() <= 1e-5 * magnitude,
                "[{i}][{row}][{column}] is {c}, not {sum}"
            );
        }
    }

    const DENSE: Form = Form { transposed: false, shared: false };

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn any_sizes(
            batch in 0..4_usize,
            sizes in prop::array::uniform3(0..70_usize),
            forms in prop::array::uniform2((any::<bool>(), any::<bool>())),
        ) {
            check(batch, sizes, forms.map(|(transposed, shared)| Form { transposed, shared }));
        }
    }

    #[test]
    fn many_tiles() {
        check(1, [530, 40, 1030], [DENSE; 2]);
        check(1, [16, 200, 1500], [DENSE, Form { transposed: true, shared: false }]);
        check(40, [9, 30, 11], [Form { transposed: false, shared: true }, DENSE]);
    }

    #[test]
    fn nothing_to_sum_is_zero() {
        let mut c = [f32::NAN; 6];
        matmul(2, 0, 3, matrix(&[], 0, 1), matrix(&[], 3, 1), &mut c);
        assert_eq!(c, [0.0; 6]);
    }

    /// A stride of 0 repeats elements: here, a row of the left matrix, and the only element of the
    /// right matrix.
    #[test]
    fn broadcast_rows_and_columns() {
        let mut c = [f32::NAN; 4];
        matmul(2, 3, 2, matrix(&[1.0, 2.0, 3.0], 0, 1), matrix(&[2.0], 0, 0), &mut c);
        assert_eq!(c, [12.0; 4]);
    }

    #[test]
    fn bits_do_not_depend_on_threads() {
        for [m, k, n] in [[300, 300, 300], [16, 144, 1024], [1000, 64, 10]] {
            let (a, b) = (values(m * k), values(k * n));
            let runs = [1, 2, 3, 2].map(|threads| {
                let pool =
                    ThreadPoolBuilder::new().num_threads(threads).build().expect("a thread pool");
                let mut c = vec![0.0; m * n];
                pool.install(|| matmul(m, k, n, matrix(&a, k, 1), matrix(&b, n, 1), &mut c));
                c.into_iter().map(f32::to_bits).collect::<Vec<_>>()
            });
            assert!(runs.iter().all(|run| *run == runs[0]), "{m} x {k} x {n}");
        }
    }

    #[test]
    #[should_panic(expected = "elements of b are outside its data")]
    fn short_operand_panics() {
        matmul(2, 3, 2, matrix(&[0.0; 6], 3, 1), matrix(&[0.0; 5], 2, 1), &mut [0.0; 4]);
    }

    #[test]
    #[should_panic(expected = "length of c")]
    fn wrong_output_panics() {
        matmul(2, 3, 2, matrix(&[0.0; 6], 3, 1), matrix(&[0.0; 6], 2, 1), &mut [0.0; 5]);
    }
}
