//! Products of matrices, by cuBLAS.
//!
//! A product made again has the same bits. cuBLAS promises it for one version of the library on one kind of
//! GPU, as long as "a single CUDA stream is active only": with several, it "may optimize total performance
//! by picking different internal implementations", by the workspace each of them finds (cuBLAS
//! documentation, "Results Reproducibility", <https://docs.nvidia.com/cuda/cublas/#results-reproducibility>).
//! Here a handle has one stream, and each product is given a workspace whose size depends on sizes alone.
//! How addresses are aligned might count as well, and is the same again: tensors and workspaces begin at
//! multiples of 256 bytes, wherever they are put.

#![allow(unsafe_code)]

use super::launch::Ptr;
use crate::device::DeviceError;
use cudarc::cublas::result::{self, CublasError};
use cudarc::cublas::sys;
use cudarc::driver::CudaStream;
use std::ffi::{c_int, c_longlong, c_void};
use std::sync::Arc;

/// Bytes of workspace, at least and at most. Below 16 KiB routines may fail; what NVIDIA recommends for
/// Hopper is the most.
const WORKSPACE: [u64; 2] = [64 << 10, 32 << 20];

/// Largest size of a matrix.
pub(crate) const LARGEST: usize = c_int::MAX as usize;

/// Products at a time: cuBLAS 10 and 11 failed at 65536 on some devices (PyTorch issue 45724). Round, so
/// that each lot begins where the first one might.
const LOT: usize = 1 << 15;

/// Long sums may be cut in parts of this many products or more, and in so many parts. To be tuned on a GPU.
const PART: usize = 128;
const PARTS: usize = 16;

/// Bytes of workspace for products that write so many bytes, each a sum of `k` products. cuBLAS wants it to
/// cut sums in parts, which are written there and added up later, where there is too little else to share
/// among the processors. Small budgets feel it: no more than that.
pub(crate) fn workspace(output_bytes: u64, k: usize) -> u64 {
    let [least, most] = WORKSPACE;
    output_bytes.saturating_mul((k / PART).min(PARTS) as u64).clamp(least, most)
}

/// What the elements are, and how they are multiplied and added up.
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

    /// Elements are rounded to 10 bits of mantissa, products and sums are f32.
    const TF32: Self =
        Self { compute: sys::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32, ..Self::F32 };
}

/// How a matrix lies: one of its strides is 1, the other is `leading`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    /// Whether columns are runs, instead of rows.
    transposed: bool,
    /// Elements from one run to the next; at least a run's length.
    leading: usize,
}

impl Form {
    /// How a matrix of `rows` and `columns` with these strides lies. `None`: cuBLAS cannot read it.
    pub(crate) fn of(
        [rows, columns]: [usize; 2],
        [row_stride, column_stride]: [usize; 2],
    ) -> Option<Self> {
        // The stride along a dimension of size 1 is never used, and may be anything.
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

    /// How a matrix that is packed row by row lies.
    pub(crate) const fn packed(columns: usize) -> Self {
        Self { transposed: false, leading: columns }
    }

    /// How the transpose of a matrix that is packed row by row lies.
    pub(crate) const fn transposed(rows: usize) -> Self {
        Self { transposed: true, leading: rows }
    }

    /// Where an element is.
    #[cfg(test)]
    pub(crate) const fn place(self, row: usize, column: usize) -> usize {
        if self.transposed { column * self.leading + row } else { row * self.leading + column }
    }

    const fn operation(self) -> sys::cublasOperation_t {
        // cuBLAS takes runs for columns. So what it calls `y^T = b^T * a^T` is our `y = a * b`.
        if self.transposed {
            sys::cublasOperation_t::CUBLAS_OP_T
        } else {
            sys::cublasOperation_t::CUBLAS_OP_N
        }
    }
}

/// One side of a batch of products.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Side {
    /// The first element of the first matrix.
    pub first: Ptr,
    /// How each of them lies.
    pub form: Form,
    /// Elements from one to the next; 0 uses one for all.
    pub step: usize,
}

/// `y[i] = a[i] * b[i]`, for `i` below `batch`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Products {
    /// How many.
    pub batch: usize,
    /// Rows of `a`, columns of `a` and rows of `b`, columns of `b`; none of them 0.
    pub sizes: [usize; 3],
    /// The left side.
    pub a: Side,
    /// The right side.
    pub b: Side,
    /// Where `y` goes: rows are runs, and all is packed.
    pub y: Ptr,
    /// Whether products are added to what is in `y`.
    pub add: bool,
    /// As many bytes as [`workspace`] says for `y`.
    pub workspace: Ptr,
}

/// cuBLAS, for one stream.
pub(crate) struct Blas {
    /// The handle works on it.
    _stream: Arc<CudaStream>,
    handle: sys::cublasHandle_t,
    precision: Precision,
}

// SAFETY: a handle may be used from any thread, by one at a time.
unsafe impl Send for Blas {}

impl Blas {
    /// A handle, in the context that is current.
    pub(crate) fn open(stream: Arc<CudaStream>, tf32: bool) -> Result<Self, DeviceError> {
        let starting = |e| failed("starting", e);
        let handle = result::create_handle().map_err(starting)?;
        let precision = if tf32 { Precision::TF32 } else { Precision::F32 };
        let blas = Self { _stream: stream, handle, precision };
        // SAFETY: the handle was just made, and the stream lives as long as it. Both libraries mean the
        // same by a stream.
        unsafe { result::set_stream(handle, blas._stream.cu_stream().cast()) }.map_err(starting)?;
        // No fewer bits than the compute type asks for: TF32 is only where that says so.
        // SAFETY: as above.
        unsafe { sys::cublasSetMathMode(handle, sys::cublasMath_t::CUBLAS_DEFAULT_MATH) }
            .result()
            .map_err(starting)?;
        Ok(blas)
    }

    /// Multiplies, once all that was given to the stream before is done.
    ///
    /// # Safety
    /// All elements that the products read and write, and the bytes of the workspace, are of the operands and the
    /// workspace of the run at hand.
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
        // SAFETY: so many bytes are the run's, as the caller promises, and nothing else is in them until the
        // stream has come past this product.
        unsafe { sys::cublasSetWorkspace_v2(self.handle, pointer(scratch), bytes as usize) }
            .result()
            .map_err(|e| failed("taking a workspace", e))?;
        let (alpha, beta) = (1.0f32, if add { 1.0f32 } else { 0.0 });
        for start in (0..batch).step_by(LOT) {
            // SAFETY: as many elements as the sizes say are of the run's operands, as the caller promises; factors
            // are read before this returns.
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
        // SAFETY: made in `open`, and used no more. It waits for what is still running.
        let _ = unsafe { result::destroy_handle(self.handle) };
    }
}

/// A size as cuBLAS takes it.
fn size(what: &str, value: usize) -> Result<c_int, DeviceError> {
    c_int::try_from(value).map_err(|_| {
        DeviceError::new(format!(
            "cublas: a product with {value} {what}, and {LARGEST} is the most"
        ))
    })
}

/// An address as C has it.
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
    fn what_cublas_cannot_read_has_no_form() {
        let plain = |transposed, leading| Some(Form { transposed, leading });
        assert_eq!(Form::of([3, 4], [4, 1]), plain(false, 4));
        assert_eq!(Form::of([3, 4], [7, 1]), plain(false, 7));
        assert_eq!(Form::of([3, 4], [1, 3]), plain(true, 3));
        // A row or a column of any stride; one element.
        assert_eq!(Form::of([1, 4], [0, 1]), plain(false, 4));
        assert_eq!(Form::of([1, 4], [0, 9]), plain(true, 9));
        assert_eq!(Form::of([4, 1], [9, 0]), plain(false, 9));
        assert_eq!(Form::of([4, 1], [1, 0]), plain(false, 1));
        assert_eq!(Form::of([1, 1], [0, 0]), plain(false, 1));
        // Repeated elements, no unit stride, runs that overlap, and a step that is too long.
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
