//! Ops that copy elements (packing, padding, concatenation and reversal), and the op that fills a
//! tensor with one value.

mod concat;
mod contiguous;
mod cpu;
#[cfg(feature = "cuda")]
pub(in crate::ops) mod cuda;
mod fill;
mod flip;
mod pad;
mod parts;

pub use concat::Concat;
pub use contiguous::Contiguous;
pub use fill::Fill;
pub use flip::Flip;
pub use pad::Pad;

use crate::layout::Layout;

/// Number of elements of a row: the product of all dimensions from `axis` on.
fn row(layout: &Layout, axis: usize) -> usize {
    layout.shape()[axis..].iter().product()
}
