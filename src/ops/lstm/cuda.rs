//! LSTM steps on a GPU. For each step, cuBLAS computes the matrix product, and one kernel computes
//! everything else.

#![allow(unsafe_code)]

use super::shape::Shape;
use crate::device::cuda::blas::{self, Form, Products, Side};
use crate::device::cuda::scratch::padded;
use crate::device::cuda::{Family, Gpu, Grid, Operands, Parameter, Ptr, Scratch};
use crate::device::{DeviceError, Place};
use crate::layout::Layout;
use crate::ops::copy::cuda::copy;
use std::sync::Arc;

pub(super) static FAMILY: Family = Family::new("lstm", include_str!("lstm.cu"));

const FLOAT: u64 = size_of::<f32>() as u64;

/// Rust form of the C++ struct `Sizes` in `lstm.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Sizes {
    n: u64,
    t: u64,
    h: u64,
    s: u64,
}

// SAFETY: the struct is `repr(C)` and holds no references. The CUDA source declares a struct with
// equal fields in equal order.
unsafe impl Parameter for Sizes {}

impl Sizes {
    const fn new(shape: &Shape, s: usize) -> Self {
        Self { n: shape.n as u64, t: shape.t as u64, h: shape.h as u64, s: s as u64 }
    }
}

/// Rust form of the C++ struct `Rows` in `lstm.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Rows {
    data: Ptr,
    sequence: u64,
    unit: u64,
}

// SAFETY: the struct is `repr(C)` and holds no references. The CUDA source declares a struct with
// equal fields in equal order.
unsafe impl Parameter for Rows {}

impl Rows {
    /// Rows of step `s` of a tensor `[n, t, h]`, or all rows of a tensor `[n, h]`.
    fn new(gpu: &Gpu, place: &Place, s: usize) -> Self {
        let data = gpu.first(place);
        let [sequence, step, unit] = match **place.layout.strides() {
            [n, t, h] => [n, t, h].map(|stride| stride as u64),
            [n, h] => [n as u64, 0, h as u64],
            _ => unreachable!("two or three dimensions"),
        };
        Self { data: data.plus(s as u64 * step * FLOAT), sequence, unit }
    }
}

/// Address of step `s` of a packed tensor `[n, t, len]`.
fn step(first: Ptr, s: usize, len: usize) -> Ptr {
    first.plus((s * len) as u64 * FLOAT)
}

/// Bytes of a copy of the weight; 0 if cuBLAS can read the weight without a copy.
fn copied(weight: &Layout) -> u64 {
    let [rows, columns] = [0, 1].map(|axis| weight.shape()[axis]);
    let strides = [0, 1].map(|axis| weight.strides()[axis]);
    if Form::of([rows, columns], strides).is_some() { 0 } else { weight.bytes() }
}

/// Describes the weight, transposed or not, as one side of products.
fn side(
    gpu: &mut Gpu,
    scratch: &mut Scratch,
    weight: &Place,
    turned: bool,
) -> Result<Side, DeviceError> {
    let layout = &weight.layout;
    let mut sizes = [0, 1].map(|axis| layout.shape()[axis]);
    let mut strides = [0, 1].map(|axis| layout.strides()[axis]);
    let mut first = gpu.first(weight);
    let bytes = copied(layout);
    if bytes > 0 {
        let to = scratch.take(bytes)?;
        // SAFETY: the weight is an operand of the run, which the device has checked, and `take`
        // returned enough memory of the workspace for the whole weight.
        unsafe { copy(gpu, to, first, layout)? };
        (first, strides) = (to, [sizes[1], 1]);
    }
    if turned {
        sizes.reverse();
        strides.reverse();
    }
    let form = Form::of(sizes, strides).expect("as it lies, or packed");
    Ok(Side { first, form, step: 0 })
}

/// Describes the rows of a step of a packed tensor `[n, t, len]` as one side of products.
fn rows(shape: &Shape, first: Ptr, len: usize, t: usize) -> Side {
    let form = Form::of([shape.n, len], [t * len, 1]).expect("rows that do not overlap");
    Side { first, form, step: 0 }
}

/// Bytes of workspace of [`forward`]: a copy of the weight, a contiguous copy of `h0`, a product,
/// and cuBLAS's workspace.
pub(super) fn workspace(shape: &Shape, weight: &Layout) -> u64 {
    if shape.units() == 0.0 {
        return 0;
    }
    let units = (shape.n as u64).saturating_mul(shape.h as u64).saturating_mul(FLOAT);
    let product = units.saturating_mul(4);
    [copied(weight), units, product]
        .into_iter()
        .map(padded)
        .fold(blas::workspace(product, shape.h), u64::saturating_add)
}

/// Bytes of workspace of [`grad`]: a copy of the weight, and cuBLAS's workspace.
pub(super) fn workspace_of_grad(shape: &Shape, weight: &Layout) -> u64 {
    if shape.units() == 0.0 {
        return 0;
    }
    let units = (shape.n as u64).saturating_mul(shape.h as u64).saturating_mul(FLOAT);
    padded(copied(weight)).saturating_add(blas::workspace(units, shape.gates()))
}

/// Computes the steps. At least one output has elements.
pub(super) fn forward(gpu: &mut Gpu, run: &Operands<'_>) -> Result<(), DeviceError> {
    let shape = Shape::of(&run.inputs[0].layout);
    let Shape { n, t, h } = shape;
    let [y, c, gates, h_last, c_last] = std::array::from_fn(|i| gpu.first(&run.outputs[i]));
    let [h0, c0] = [3, 4].map(|i| &run.inputs[i]);
    if t == 0 {
        for (to, from) in [(h_last, h0), (c_last, c0)] {
            // SAFETY: `from` is an operand of the run, and `to` is an output of equal shape. The
            // device has checked all operands and outputs.
            unsafe { copy(gpu, to, gpu.first(from), &from.layout)? };
        }
        return Ok(());
    }
    let [sums, bias] = [0, 2].map(|i| gpu.first(&run.inputs[i]));
    let mut scratch = Scratch::of(gpu, run);
    let weight = side(gpu, &mut scratch, &run.inputs[1], true)?;
    let units = (n * h) as u64 * FLOAT;
    let before = scratch.take(units)?;
    // SAFETY: `h0` is an operand of the run, which the device has checked, and `take` returned
    // enough memory of the workspace for `h0`.
    unsafe { copy(gpu, before, gpu.first(h0), &h0.layout)? };
    let product = scratch.take(4 * units)?;
    let workspace = scratch.take(blas::workspace(4 * units, h))?;
    let libraries = Arc::clone(gpu.libraries());
    for s in 0..t {
        let (a, c_before) = match s.checked_sub(1) {
            None => (rows(&shape, before, h, 1), Rows::new(gpu, c0, 0)),
            Some(last) => {
                let (sequence, data) = ((t * h) as u64, step(c, last, h));
                (rows(&shape, step(y, last, h), h, t), Rows { data, sequence, unit: 1 })
            }
        };
        let sizes = [n, h, 4 * h];
        let of = Products { batch: 1, sizes, a, b: weight, y: product, add: false, workspace };
        // SAFETY: the product reads `n` rows of `h0` in the workspace, or of a step of `y` that the
        // kernel has written. The product also reads the weight or its copy. `take` returned enough
        // memory of the workspace for the product and for cuBLAS.
        unsafe { libraries.blas().multiply(&of)? };
        let of = Sizes::new(&shape, s);
        let parameters: [&dyn Parameter; 10] =
            [&y, &c, &gates, &h_last, &c_last, &product, &sums, &bias, &c_before, &of];
        let grid = Grid::of_threads((n * h) as u64);
        // SAFETY: the parameters are those that the kernel declares, and the device has checked the
        // operands. The kernel reads the product, and the rows of this step and of the previous
        // step. The kernel writes the rows of this step, and in the last step also `h_last` and
        // `c_last`.
        unsafe { gpu.launch(FAMILY.kernel("lstm_step"), grid, &parameters)? };
    }
    Ok(())
}

/// Computes the gradient of the steps. At least one output has elements.
pub(super) fn grad(gpu: &mut Gpu, run: &Operands<'_>) -> Result<(), DeviceError> {
    let shape = Shape::of(&run.inputs[0].layout);
    let Shape { n, t, h } = shape;
    let [dsums, dh, dc] = std::array::from_fn(|i| gpu.first(&run.outputs[i]));
    let [gates, c] = [0, 1].map(|i| gpu.first(&run.inputs[i]));
    for (to, i) in [(dh, 5), (dc, 6)] {
        let from = &run.inputs[i];
        // SAFETY: `from` is an operand of the run, and `to` is an output of equal shape. The device
        // has checked all operands and outputs.
        unsafe { copy(gpu, to, gpu.first(from), &from.layout)? };
    }
    if t == 0 {
        return Ok(());
    }
    let mut scratch = Scratch::of(gpu, run);
    let weight = side(gpu, &mut scratch, &run.inputs[3], false)?;
    let workspace = scratch.take(blas::workspace((n * h) as u64 * FLOAT, 4 * h))?;
    let libraries = Arc::clone(gpu.libraries());
    for s in (0..t).rev() {
        let before = match s.checked_sub(1) {
            None => Rows::new(gpu, &run.inputs[2], 0),
            Some(last) => Rows { data: step(c, last, h), sequence: (t * h) as u64, unit: 1 },
        };
        let (dy, of) = (Rows::new(gpu, &run.inputs[4], s), Sizes::new(&shape, s));
        let parameters: [&dyn Parameter; 8] = [&dsums, &dc, &dh, &gates, &c, &before, &dy, &of];
        let grid = Grid::of_threads((n * h) as u64);
        // SAFETY: the parameters are those that the kernel declares, and the device has checked the
        // operands. The kernel reads the rows of this step and of the previous step. The kernel
        // writes this step's rows of `dsums`, and `dc`.
        unsafe { gpu.launch(FAMILY.kernel("lstm_step_grad"), grid, &parameters)? };
        let a = rows(&shape, step(dsums, s, 4 * h), 4 * h, t);
        let sizes = [n, 4 * h, h];
        let of = Products { batch: 1, sizes, a, b: weight, y: dh, add: false, workspace };
        // SAFETY: the product reads the rows of a step of `dsums`, which the kernel has written,
        // and the weight or its copy. The product writes `dh`, an output with as many elements as
        // the product. `take` returned enough memory of the workspace for cuBLAS.
        unsafe { libraries.blas().multiply(&of)? };
    }
    Ok(())
}
