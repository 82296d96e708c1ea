//! Entries by index: gather, scatter-add and one-hot.

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
use super::samples::{Draw, SHAPES};
use crate::layout::{Dims, Layout};

/// The length of `index`, if it is a list and `x` has that axis.
fn numbers(x: &Layout, role: &str, axis: usize, index: &Layout) -> Result<usize, Fault> {
    axis_of(x, role, axis)?;
    let [n] = rank(index, "index")?;
    Ok(n)
}

/// Shapes, an axis of each, and lengths of the index: 0 where there are no entries.
fn samples() -> Vec<(&'static [usize], usize, usize)> {
    let mut all: Vec<(&'static [usize], usize, usize)> = vec![(&[700, 100], 0, 1000)];
    for shape in SHAPES {
        for (axis, &size) in shape.iter().enumerate() {
            let entry = Dims::new(shape).with(axis, 1).elements();
            let numbers = [0, 5, 5001].into_iter().filter(|&n| n == 0 || size > 0);
            all.extend(numbers.filter(|n| n * entry <= 2_000_000).map(|n| (shape, axis, n)));
        }
    }
    all
}

/// The same at random.
fn draw(draw: &mut Draw) -> (Dims, usize, usize) {
    let shape = draw.shape(1, 4);
    let axis = draw.below(shape.len());
    (shape, axis, if shape[axis] == 0 { 0 } else { draw.size() })
}
