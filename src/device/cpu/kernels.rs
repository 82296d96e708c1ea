//! The arithmetic: pure functions over slices of elements and the sizes of the tensors in them.
//!
//! A slice starts with the first element of its tensor; strides count from there. Outputs are packed and
//! are overwritten entirely.

pub(super) mod batch_norm;
#[allow(unsafe_code)]
pub(super) mod conv2d;
pub(super) mod copy;
pub(super) mod elementwise;
pub(super) mod index;
mod lanes;
mod math;
#[allow(unsafe_code)]
mod matmul;
pub(super) mod pool;
pub(super) mod product;
pub(super) mod random;
pub(super) mod reduce;
pub(super) mod sgd;
pub(super) mod softmax;
mod split;
#[allow(unsafe_code)]
mod wide;
