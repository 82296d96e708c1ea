//! Attention on a GPU. A thread block computes one tile of queries or keys, and reads all tiles of
//! the other operand in order.

#![allow(unsafe_code)]

use super::Attention;
use super::shape::Shape;
use crate::device::cuda::{Family, Gpu, Grid, Operands, Parameter, Ptr};
use crate::device::{DeviceError, Place};
use crate::layout::Layout;

pub(super) static FAMILY: Family = Family::new("attention", include_str!("attention.cu"));

/// Largest number of elements in a row of queries, keys or values. Longer rows would not fit in the
/// shared memory of a block.
const DEEPEST: usize = 256;
/// Largest number of blocks in a grid. If there are more tiles, each block computes several tiles.
const MOST_BLOCKS: u64 = 1 << 20;

/// Rust form of the C++ struct `Heads` in `attention.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Heads {
    data: Ptr,
    strides: [u64; 4],
}

// SAFETY: the struct is `repr(C)` and holds no references. The CUDA source declares a struct with
// equal fields in equal order.
unsafe impl Parameter for Heads {}

/// Rust form of the C++ struct `Sizes` in `attention.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Sizes {
    heads: u64,
    h: u64,
    t: u64,
    s: u64,
    d: u64,
    causal: u32,
    scale: f32,
}

// SAFETY: the struct is `repr(C)` and holds no references. The CUDA source declares a struct with
// equal fields in equal order.
unsafe impl Parameter for Sizes {}

impl Heads {
    fn new(gpu: &Gpu, place: &Place) -> Self {
        let strides = std::array::from_fn(|axis| place.layout.strides()[axis] as u64);
        Self { data: gpu.first(place), strides }
    }
}

/// Kernels for rows of up to 64, 128 or 256 elements, and the number of queries or keys that a
/// thread block computes.
struct Kernels {
    forward: &'static str,
    to_queries: &'static str,
    to_keys: &'static str,
    rows: u64,
}

impl Kernels {
    fn new(d: usize) -> Result<Self, DeviceError> {
        Ok(match d {
            0..=64 => Self {
                forward: "attention_64",
                to_queries: "attention_grad_queries_64",
                to_keys: "attention_grad_keys_64",
                rows: 16,
            },
            65..=128 => Self {
                forward: "attention_128",
                to_queries: "attention_grad_queries_128",
                to_keys: "attention_grad_keys_128",
                rows: 16,
            },
            129..=DEEPEST => Self {
                forward: "attention_256",
                to_queries: "attention_grad_queries_256",
                to_keys: "attention_grad_keys_256",
                rows: 8,
            },
            _ => {
                return Err(DeviceError::new(format!(
                    "attention: heads have {d} elements per row, but a GPU supports at most {DEEPEST}: use more \
                     heads, or matmul() and softmax()"
                )));
            }
        })
    }

    fn grid(&self, shape: &Shape, rows: usize) -> Grid {
        let blocks = (shape.heads() as u64).saturating_mul((rows as u64).div_ceil(self.rows));
        Grid::of_blocks(blocks.min(MOST_BLOCKS))
    }
}

fn sizes(shape: &Shape) -> Sizes {
    let [heads, h, t, s, d] =
        [shape.heads(), shape.h, shape.t, shape.s, shape.d].map(|size| size as u64);
    Sizes { heads, h, t, s, d, causal: shape.causal.into(), scale: shape.scale }
}

/// Computes `y` and `lse`. At least one of the two outputs must have elements.
pub(super) fn forward(gpu: &mut Gpu, op: Attention, run: &Operands<'_>) -> Result<(), DeviceError> {
    let layouts: [Layout; 3] = std::array::from_fn(|i| run.inputs[i].layout);
    let shape = Shape::of(op, &layouts);
    let kernels = Kernels::new(shape.d)?;
    let [q, k, v] = std::array::from_fn(|i| Heads::new(gpu, &run.inputs[i]));
    let [y, lse] = std::array::from_fn(|i| gpu.first(&run.outputs[i]));
    let (grid, of) = (kernels.grid(&shape, shape.t), sizes(&shape));
    // SAFETY: the parameters are those that the kernel declares, and the device has checked the
    // operands. The kernel reads `q`, `k` and `v` at their strides, and writes a row of `y` and an
    // element of `lse` for each query.
    unsafe { gpu.launch(FAMILY.kernel(kernels.forward), grid, &[&y, &lse, &q, &k, &v, &of]) }
}

/// Computes `dq`, `dk` and `dv`. At least one of the three outputs must have elements.
pub(super) fn grad(gpu: &mut Gpu, op: Attention, run: &Operands<'_>) -> Result<(), DeviceError> {
    let layouts: [Layout; 3] = std::array::from_fn(|i| run.inputs[i].layout);
    let shape = Shape::of(op, &layouts);
    let kernels = Kernels::new(shape.d)?;
    let [q, k, v, dy] = [0, 1, 2, 5].map(|i| Heads::new(gpu, &run.inputs[i]));
    let [lse, delta] = [3, 4].map(|i| gpu.first(&run.inputs[i]));
    let [dq, dk, dv] = std::array::from_fn(|i| gpu.first(&run.outputs[i]));
    let of = sizes(&shape);
    if shape.t > 0 {
        let kernel = FAMILY.kernel(kernels.to_queries);
        let grid = kernels.grid(&shape, shape.t);
        // SAFETY: the parameters are those that the kernel declares, and the device has checked the
        // operands. The kernel reads all inputs at their strides, and writes a row of `dq` for each
        // query.
        unsafe { gpu.launch(kernel, grid, &[&dq, &q, &k, &v, &dy, &lse, &delta, &of])? };
    }
    if shape.s > 0 {
        let kernel = FAMILY.kernel(kernels.to_keys);
        let grid = kernels.grid(&shape, shape.s);
        // SAFETY: the parameters are those that the kernel declares, and the device has checked the
        // operands. The kernel reads all inputs at their strides, and writes a row of `dk` and of
        // `dv` for each key.
        unsafe { gpu.launch(kernel, grid, &[&dk, &dv, &q, &k, &v, &dy, &lse, &delta, &of])? };
    }
    Ok(())
}
