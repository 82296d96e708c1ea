//! Ops that select entries by index: gather, scatter-add and one-hot.

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod gather;
mod one_hot;
mod scatter_add;

pub use gather::Gather;
pub use one_hot::OneHot;
pub use scatter_add::ScatterAdd;

use super::check::{Fault, axis_of, rank};
use crate::layout::Layout;

/// Length of `index`. An error unless `index` has one dimension and `x` has the axis `axis`.
fn numbers(x: &Layout, role: &str, axis: usize, index: &Layout) -> Result<usize, Fault> {
    axis_of(x, role, axis)?;
    let [n] = rank(index, "index")?;
    Ok(n)
}
