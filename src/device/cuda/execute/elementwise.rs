//! Functions of one and of two elements.

#![allow(unsafe_code)]

use super::steps::{Steps, in_fours};
use crate::device::cuda::gpu::Gpu;
use crate::device::cuda::kernels::ELEMENTWISE;
use crate::device::cuda::launch::{Grid, Parameter, TILE};
use crate::device::walk::Walk;
use crate::device::{DeviceError, Place};
use crate::layout::Layout;
use crate::ops::{Binary, Unary};
use smallvec::SmallVec;

/// The kernels of a function: for packed operands, and for operands of any strides.
type Names = [&'static str; 2];

macro_rules! names {
    ($name:literal) => {
        [concat!($name, "_packed"), concat!($name, "_strided")]
    };
}

/// `y = f(x)`.
pub(super) fn unary(gpu: &mut Gpu, f: Unary, y: &Place, x: &Place) -> Result<(), DeviceError> {
    let names = match f {
        Unary::Neg => names!("neg"),
        Unary::Relu => names!("relu"),
        Unary::Exp => names!("exp"),
        Unary::Log => names!("log"),
        Unary::Sqrt => names!("sqrt"),
        Unary::Recip => names!("recip"),
        Unary::Square => names!("square"),
        Unary::Tanh => names!("tanh"),
        Unary::Sigmoid => names!("sigmoid"),
    };
    map(gpu, names, y, [x], None)
}

/// `Affine` of `elementwise.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Affine {
    scale: f32,
    shift: f32,
}

// SAFETY: two numbers.
unsafe impl Parameter for Affine {}

/// `y = x * scale + shift`.
pub(super) fn affine(
    gpu: &mut Gpu,
    y: &Place,
    x: &Place,
    scale: f32,
    shift: f32,
) -> Result<(), DeviceError> {
    map(gpu, names!("affine"), y, [x], Some(&Affine { scale, shift }))
}

/// `y = f(a, b)`, both operands broadcast to the shape of `y`.
pub(super) fn binary(
    gpu: &mut Gpu,
    f: Binary,
    y: &Place,
    a: &Place,
    b: &Place,
) -> Result<(), DeviceError> {
    let names = match f {
        Binary::Add => names!("add"),
        Binary::Sub => names!("sub"),
        Binary::Mul => names!("mul"),
        Binary::Div => names!("div"),
        Binary::Maximum => names!("maximum"),
        Binary::Greater => names!("greater"),
        Binary::ReluGrad => names!("relu_grad"),
        Binary::TanhGrad => names!("tanh_grad"),
        Binary::SigmoidGrad => names!("sigmoid_grad"),
    };
    map(gpu, names, y, [a, b], None)
}

/// `acc += x`.
pub(super) fn accumulate(gpu: &mut Gpu, acc: &Place, x: &Place) -> Result<(), DeviceError> {
    map(gpu, names!("add"), acc, [acc, x], None)
}

/// `y = f(operands)`, with what else the kernels take. `y` is packed.
fn map<const K: usize>(
    gpu: &mut Gpu,
    [packed, strided]: Names,
    y: &Place,
    operands: [&Place; K],
    more: Option<&dyn Parameter>,
) -> Result<(), DeviceError> {
    let layouts: [Layout; K] = operands.map(|x| {
        x.layout.broadcast_to(y.layout.shape()).expect("an operand that broadcasts to the output")
    });
    let addresses = operands.map(|x| gpu.first(x));
    let (out, count) = (gpu.first(y), y.layout.elements() as u64);
    let strides: [_; K] = std::array::from_fn(|k| layouts[k].strides());
    let walk = Walk::new(y.layout.shape(), strides);
    let width = if out.is_aligned() && in_fours(&walk, addresses) { 4 } else { 1 };
    let (units, steps) = (count / width as u64, Steps::new(&walk, width));
    let mut parameters: SmallVec<[&dyn Parameter; 6]> = SmallVec::new();
    parameters.push(&out);
    parameters.extend(addresses.iter().map(|address| address as &dyn Parameter));
    let (kernel, grid) = if layouts.iter().all(Layout::is_contiguous) {
        parameters.push(&count);
        (ELEMENTWISE.kernel(packed), Grid::of_blocks(count.div_ceil(TILE)))
    } else {
        parameters.extend([&units as &dyn Parameter, &steps]);
        (ELEMENTWISE.counting(strided, units), Grid::of_threads(units))
    };
    parameters.extend(more);
    gpu.launch(kernel, grid, &parameters)
}
