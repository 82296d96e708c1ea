//! Matrix products by cuBLAS.
//!
//! A repeated product gives the same bits. cuBLAS promises the same bits for one version of the
//! library on one kind of GPU, as long as "a single CUDA stream is active only". With several
//! streams, cuBLAS "may optimize total performance by picking different internal implementations",
//! depending on the workspace that each implementation finds (cuBLAS documentation, "Results
//! Reproducibility", <https://docs.nvidia.com/cuda/cublas/#results-reproducibility>). In this
//! crate, a handle has one stream, and the size of a product's workspace depends only on the sizes
//! of the product. The alignment of addresses might also change the bits, but the alignment never
//! varies: tensors and workspaces always begin at multiples of 256 bytes.

#![allow(unsafe_code)]

use super::launch::Ptr;
use crate::device::DeviceError;
use cudarc::cublas::result::{self, CublasError};
use cudarc::cublas::sys;
use cudarc::driver::CudaStream;
use std::ffi::{c_int, c_longlong, c_void};
use std::sync::Arc;

/// Smallest and largest size of a workspace in bytes. Routines may fail with less than 16 KiB. The
/// largest size is NVIDIA's recommendation for Hopper.
const WORKSPACE: [u64; 2] = [64 << 10, 32 << 20];

/// Largest size and stride of a matrix, because cuBLAS receives them as `int`.
pub(crate) const LARGEST: usize = c_int::MAX as usize;

/// Largest number of products in one call: cuBLAS 10 and 11 failed at 65536 products on some
/// devices (PyTorch issue 45724). Larger batches are cut into lots of this size. The number is a
/// power of two, so that the addresses of all lots have the alignment of the first lot's address.
const LOT: usize = 1 << 15;

/// Smallest number of products in each part of a long sum. A sum has at most [`PARTS`] parts. The
/// numbers `PART` and `PARTS` were not tuned on a GPU.
const PART: usize = 128;
const PARTS: usize = 16;

/// Bytes of workspace for products that write `output_bytes` bytes, where each element is a sum of
/// `k` products. If there are too few output elements to keep all multiprocessors busy, cuBLAS cuts
/// long sums into parts. cuBLAS writes the parts to the workspace, and adds them up later. The size
/// of the workspace is limited, because the workspace counts against the budget.
pub(crate) fn workspace(output_bytes: u64, k: usize) -> u64 {
    let [least, most] = WORKSPACE;
    output_bytes.saturating_mul((k / PART).min(PARTS) as u64).clamp(least, most)
}

/// Type of the elements, and precision in which products and sums are computed.
#[derive(Clone, Copy, Debug)]
struct Precision {
    data: sys::cudaDataType,
    element_bytes: usize,
    compute: sys::cublasComputeType_t,
}

impl Precision {
    const F32: Self = Self {
        data: sys::cudaDataType::CUDA_R_32F,
        element_bytes: 4,
        compute: sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
    };

    /// Elements are rounded to 10 bits of mantissa; products and sums are f32.
    const TF32: Self =
        Self { compute: sys::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32, ..Self::F32 };
}

/// Form of a matrix in memory. One of its two strides is 1, and the other is `leading`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    /// Whether columns are contiguous, instead of rows.
    transposed: bool,
    /// Distance in elements from one row (or column, if `transposed`) to the next. The distance is
    /// at least the length of a row (or column).
    leading: usize,
}

impl Form {
    /// Form of a matrix with the given numbers of rows and columns and the given strides. `None` if
    /// cuBLAS cannot read a matrix with these strides.
    pub(crate) fn of(
        [rows, columns]: [usize; 2],
        [row_stride, column_stride]: [usize; 2],
    ) -> Option<Self> {
        // The stride along a dimension of size 1 is never used, and may be any number.
        let runs = |count: usize, stride: usize, len: usize, step: usize| {
            let leading = if count == 1 { len.max(1) } else { stride };
            let fits = (step == 1 || len == 1) && leading >= len.max(1);
            (fits && leading <= LARGEST).then_some(leading)
        };
        let form = |transposed| move |leading| Self { transposed, leading };
        runs(rows, row_stride, columns, column_stride)
            .map(form(false))
            .or_else(|| runs(columns, column_stride, rows, row_stride).map(form(true)))
    }

    /// Form of a matrix that is packed row by row.
    pub(crate) const fn packed(columns: usize) -> Self {
        Self { transposed: false, leading: columns }
    }

    /// Form of the transpose of a matrix that is packed row by row.
    pub(crate) const fn transposed(rows: usize) -> Self {
        Self { transposed: true, leading: rows }
    }

    /// Index of an element in memory, relative to the first element of the matrix.
    #[cfg(test)]
    pub(crate) const fn place(self, row: usize, column: usize) -> usize {
        if self.transposed { column * self.leading + row } else { row * self.leading + column }
    }

    const fn operation(self) -> sys::cublasOperation_t {
        // cuBLAS expects column-major matrices, and therefore reads a row-major matrix as its
        // transpose. To compute `y = a * b`, cuBLAS computes `y^T = b^T * a^T`.
        if self.transposed {
            sys::cublasOperation_t::CUBLAS_OP_T
        } else {
            sys::cublasOperation_t::CUBLAS_OP_N
        }
    }
}

/// The left or the right matrices of a batch of products.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Side {
    /// Address of the first element of the first matrix.
    pub first: Ptr,
    /// Form of each matrix.
    pub form: Form,
    /// Distance in elements from one matrix to the next; 0 if all products read one matrix.
    pub step: usize,
}

/// `y[i] = a[i] * b[i]`, for `i` below `batch`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Products {
    /// Number of products.
    pub batch: usize,
    /// Three sizes, none of them 0: the number of rows of `a`; the number of columns of `a`, which
    /// is the number of rows of `b`; and the number of columns of `b`.
    pub sizes: [usize; 3],
    /// The left side.
    pub a: Side,
    /// The right side.
    pub b: Side,
    /// Address of the result, which is packed row by row.
    pub y: Ptr,
    /// Whether the products are added to the old contents of `y`.
    pub add: bool,
    /// Address of the workspace. The size of the workspace is the result of [`workspace`] for `y`.
    pub workspace: Ptr,
}

/// A cuBLAS handle for one stream.
pub(crate) struct Blas {
    /// Stream of the handle, kept alive as long as the handle.
    _stream: Arc<CudaStream>,
    handle: sys::cublasHandle_t,
    precision: Precision,
}

// SAFETY: cuBLAS allows any thread to use a handle, but only one thread at a time. `&mut self`
// guarantees that only one thread uses the handle.
unsafe impl Send for Blas {}

impl Blas {
    /// Opens a handle in the current context.
    pub(crate) fn open(stream: Arc<CudaStream>, tf32: bool) -> Result<Self, DeviceError> {
        let starting = |e| failed("starting", e);
        let handle = result::create_handle().map_err(starting)?;
        let precision = if tf32 { Precision::TF32 } else { Precision::F32 };
        let blas = Self { _stream: stream, handle, precision };
        // SAFETY: the handle was just made, and `_stream` keeps the stream alive as long as the
        // handle. A stream of the driver API and a stream of the runtime API are pointers of one
        // type.
        unsafe { result::set_stream(handle, blas._stream.cu_stream().cast()) }.map_err(starting)?;
        // Use full precision. cuBLAS then uses TF32 only if the compute type of a product requests
        // it. SAFETY: the handle was just made, and is used by this thread alone.
        unsafe { sys::cublasSetMathMode(handle, sys::cublasMath_t::CUBLAS_DEFAULT_MATH) }
            .result()
            .map_err(starting)?;
        Ok(blas)
    }

    /// Queues the products behind all work that was submitted to the stream before.
    ///
    /// # Safety
    /// The caller guarantees that all elements that the products read and write belong to operands
    /// of the current run. The bytes of `workspace` belong to the workspace of the current run.
    pub(crate) unsafe fn multiply(&mut self, products: &Products) -> Result<(), DeviceError> {
        let Products { batch, sizes: [m, k, n], a, b, y, add, workspace: scratch } = *products;
        let rows = size("rows on the left", m)?;
        let sum = size("columns on the left", k)?;
        let columns = size("columns on the right", n)?;
        let Precision { data, element_bytes, compute } = self.precision;
        let plus = |first: Ptr, elements: usize| first.plus((elements * element_bytes) as u64);
        let [a_leading, b_leading] = [
            size("elements in a row", a.form.leading)?,
            size("elements in a row", b.form.leading)?,
        ];
        let bytes = workspace((batch * m * n * element_bytes) as u64, k);
        // SAFETY: the caller guarantees that `bytes` bytes at `scratch` belong to the workspace of
        // the run. The stream works in order, so no later work uses the bytes before the product is
        // done.
        unsafe { sys::cublasSetWorkspace_v2(self.handle, pointer(scratch), bytes as usize) }
            .result()
            .map_err(|e| failed("taking a workspace", e))?;
        let (alpha, beta) = (1.0f32, if add { 1.0f32 } else { 0.0 });
        for start in (0..batch).step_by(LOT) {
            // SAFETY: the caller guarantees that all elements that the product reads and writes, by
            // its sizes and steps, belong to the run's operands. cuBLAS reads the factors `alpha`
            // and `beta` before the call returns.
            unsafe {
                result::gemm_strided_batched_ex(
                    self.handle,
                    b.form.operation(),
                    a.form.operation(),
                    columns,
                    rows,
                    sum,
                    (&raw const alpha).cast(),
                    pointer(plus(b.first, start * b.step)),
                    data,
                    b_leading,
                    b.step as c_longlong,
                    pointer(plus(a.first, start * a.step)),
                    data,
                    a_leading,
                    a.step as c_longlong,
                    (&raw const beta).cast(),
                    pointer(plus(y, start * m * n)),
                    data,
                    columns,
                    (m * n) as c_longlong,
                    LOT.min(batch - start) as c_int,
                    compute,
                    sys::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
                )
            }
            .map_err(|e| failed(&format!("{batch} products of {m} x {k} x {n}"), e))?;
        }
        Ok(())
    }
}

impl Drop for Blas {
    fn drop(&mut self) {
        // SAFETY: the handle was made in `open` and is not used again. cuBLAS waits for running
        // work.
        let _ = unsafe { result::destroy_handle(self.handle) };
    }
}

/// Converts a size to the `int` of cuBLAS; an error if the size does not fit.
fn size(what: &str, value: usize) -> Result<c_int, DeviceError> {
    c_int::try_from(value).map_err(|_| {
        DeviceError::new(format!(
            "cublas: a product has {value} {what}, but at most {LARGEST} are supported"
        ))
    })
}

/// An address as a C pointer.
pub(crate) const fn pointer(at: Ptr) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(at.0 as usize)
}

fn failed(what: &str, error: CublasError) -> DeviceError {
    DeviceError::new(format!("cublas: {what}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_finds_the_elements_that_strides_do() {
        let mut direct = 0;
        for rows in 1..4 {
            for columns in 1..4 {
                for row_stride in 0..5 {
                    for column_stride in 0..5 {
                        let Some(form) = Form::of([rows, columns], [row_stride, column_stride])
                        else {
                            continue;
                        };
                        direct += 1;
                        let run = if form.transposed { rows } else { columns };
                        assert!(form.leading >= run, "{form:?}");
                        for (row, column) in
                            (0..rows).flat_map(|r| (0..columns).map(move |c| (r, c)))
                        {
                            assert_eq!(
                                form.place(row, column),
                                row * row_stride + column * column_stride,
                                "{form:?} of {rows} x {columns}, {row_stride}, {column_stride}"
                            );
                        }
                    }
                }
            }
        }
        assert!(direct > 50);
    }

    #[test]
    fn layouts_that_cublas_cannot_read_have_no_form() {
        let plain = |transposed, leading| Some(Form { transposed, leading });
        assert_eq!(Form::of([3, 4], [4, 1]), plain(false, 4));
        assert_eq!(Form::of([3, 4], [7, 1]), plain(false, 7));
        assert_eq!(Form::of([3, 4], [1, 3]), plain(true, 3));
        // cuBLAS can read a single row or column of any stride, and a single element.
        assert_eq!(Form::of([1, 4], [0, 1]), plain(false, 4));
        assert_eq!(Form::of([1, 4], [0, 9]), plain(true, 9));
        assert_eq!(Form::of([4, 1], [9, 0]), plain(false, 9));
        assert_eq!(Form::of([4, 1], [1, 0]), plain(false, 1));
        assert_eq!(Form::of([1, 1], [0, 0]), plain(false, 1));
        // cuBLAS cannot read matrices with repeated elements, without a stride of 1, with
        // overlapping rows, or with a stride that is too long.
        assert_eq!(Form::of([3, 4], [0, 1]), None);
        assert_eq!(Form::of([3, 4], [1, 0]), None);
        assert_eq!(Form::of([4, 1], [0, 1]), None);
        assert_eq!(Form::of([3, 4], [8, 2]), None);
        assert_eq!(Form::of([3, 4], [2, 1]), None);
        assert_eq!(Form::of([3, 4], [1 << 31, 1]), None);
    }

    #[test]
    fn workspaces_follow_the_output_and_the_length_of_sums() {
        assert_eq!(workspace(0, 4096), 64 << 10);
        assert_eq!(workspace(4 << 10, 4096), 64 << 10);
        assert_eq!(workspace(1 << 20, 127), 64 << 10);
        assert_eq!(workspace(1 << 20, 700), 5 << 20);
        assert_eq!(workspace(1 << 20, 4096), 16 << 20);
        assert_eq!(workspace(u64::MAX, 4096), 32 << 20);
    }

    #[test]
    fn sizes_beyond_an_int_are_refused() {
        assert_eq!(size("rows", 7).unwrap(), 7);
        let error = size("rows on the left", 1 << 31).unwrap_err().to_string();
        assert!(error.contains("2147483648 rows on the left"), "{error}");
    }
}
