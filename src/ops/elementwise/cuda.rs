//! Elementwise functions on a GPU.

#![allow(unsafe_code)]

use crate::device::cuda::gpu::Gpu;
use crate::device::cuda::kernels::Family;
use crate::device::cuda::launch::{Grid, Parameter, TILE};
use crate::device::cuda::strides::{Steps, in_fours};
use crate::device::walk::Walk;
use crate::device::{DeviceError, Place};
use crate::layout::Layout;
use smallvec::SmallVec;

/// Names of a function's two kernels: one for packed operands, and one for operands with any
/// strides.
pub(super) type Names = [&'static str; 2];

macro_rules! names {
    ($name:ident) => {
        [concat!(stringify!($name), "_packed"), concat!(stringify!($name), "_strided")]
    };
}
pub(super) use names;

/// Rust form of the C++ struct `Numbers` in `with_numbers.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Numbers([f32; 2]);

// SAFETY: the struct is `repr(C)` and holds no references. The CUDA source declares a struct with
// equal fields in equal order.
unsafe impl Parameter for Numbers {}

impl Numbers {
    /// Makes the parameter from up to two numbers. If fewer than two numbers are given, the kernel
    /// does not read the missing numbers.
    pub fn of(numbers: &[f32]) -> Self {
        Self(std::array::from_fn(|i| numbers.get(i).copied().unwrap_or(0.0)))
    }
}

/// Computes `y = f(operands)`. `more` is the last parameter of the kernels; `None` if the kernels
/// have no further parameter. `y` is packed.
pub(super) fn map<const K: usize>(
    family: &'static Family,
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
    let strides: [&[usize]; K] = std::array::from_fn(|k| &**layouts[k].strides());
    let walk = Walk::new(y.layout.shape(), strides);
    let width = if out.is_aligned() && in_fours(&walk, addresses) { 4 } else { 1 };
    let (units, steps) = (count / width as u64, Steps::new(&walk, width));
    let mut parameters: SmallVec<[&dyn Parameter; 6]> = SmallVec::new();
    parameters.push(&out);
    parameters.extend(addresses.iter().map(|address| address as &dyn Parameter));
    let (kernel, grid) = if layouts.iter().all(Layout::is_contiguous) {
        parameters.push(&count);
        (family.kernel(packed), Grid::of_blocks(count.div_ceil(TILE)))
    } else {
        parameters.extend([&units as &dyn Parameter, &steps]);
        (family.counting(strided, units), Grid::of_threads(units))
    };
    parameters.extend(more);
    // SAFETY: the kernels declare the parameters that are passed: the result, the operands, the
    // number of elements or units, the strides if operands are strided, and the function's own
    // parameters from the caller. The device has checked the operands. The kernels write `count`
    // elements of `y`, and read each operand within its layout.
    unsafe { gpu.launch(kernel, grid, &parameters) }
}
