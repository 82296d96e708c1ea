//! Sums, means, maxima and minima over any dimensions, and functions that are composed of these
//! four reductions. Tensors may have any strides.

mod arg;
mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod moments;

pub use arg::{ArgReduce, Extreme};

use super::bf16::{Cut, Cuts, Made, along_longest};
use super::check::{Fault, axis_of, fresh, walkable};
use super::definition::{Definition, Input, Inputs, Kernel, Registered};
use super::gradient::{Gradient, Recorded};
use super::{FLOAT, Tensor, dims};
use crate::device::walk::Walk;
use crate::device::{self, DeviceError};
use crate::error::Error;
use crate::layout::{Dims, Layout, MAX_RANK};
use crate::op::Outputs;
use smallvec::SmallVec;

/// A list of sizes, strides or axes.
type List = SmallVec<[usize; MAX_RANK]>;

/// Function that reduces elements to one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Reduction {
    /// Sum.
    Sum,
    /// Arithmetic mean.
    Mean,
    /// Maximum; NaN if any element is NaN.
    Max,
    /// Minimum; NaN if any element is NaN.
    Min,
}

/// `(x) -> (y)`: reduces `x` along `axes`. If `keep_dims` is set, the reduced dimensions have size
/// 1 in the result; if not, they are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Reduce {
    /// Sum, mean, maximum or minimum.
    pub kind: Reduction,
    /// Dimensions to reduce.
    pub axes: Dims,
    /// Whether the result keeps the reduced dimensions, with size 1.
    pub keep_dims: bool,
}

impl Reduction {
    /// Whether the reduction of an empty list of elements is an error.
    pub(super) const fn needs_elements(self) -> bool {
        matches!(self, Self::Max | Self::Min)
    }
}

impl Tensor {
    /// Sum of all elements, as a scalar.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[2, 2], vec![1.0, 2.0, 3.0, 6.0])?;
    /// assert_eq!(x.sum()?.item()?, 12.0);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if this tensor does not hold floats.
    pub fn sum(&self) -> Result<Self, Error> {
        self.reduce_all(Reduction::Sum)
    }

    /// Mean of all elements, as a scalar; NaN if there are no elements.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[2, 2], vec![1.0, 2.0, 3.0, 6.0])?;
    /// assert_eq!(x.mean()?.item()?, 3.0);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if this tensor does not hold floats.
    pub fn mean(&self) -> Result<Self, Error> {
        self.reduce_all(Reduction::Mean)
    }

    /// Maximum of all elements, as a scalar; NaN if any element is NaN. If several elements equal
    /// the maximum, the gradient is split evenly among them.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[2, 2], vec![1.0, 2.0, 3.0, 6.0])?;
    /// assert_eq!(x.max()?.item()?, 6.0);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if this tensor does not hold floats, or has no elements.
    pub fn max(&self) -> Result<Self, Error> {
        self.reduce_all(Reduction::Max)
    }

    /// Minimum of all elements, as a scalar; NaN if any element is NaN. If several elements equal
    /// the minimum, the gradient is split evenly among them.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[2, 2], vec![1.0, 2.0, 3.0, 6.0])?;
    /// assert_eq!(x.min()?.item()?, 1.0);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if this tensor does not hold floats, or has no elements.
    pub fn min(&self) -> Result<Self, Error> {
        self.reduce_all(Reduction::Min)
    }

    /// Sums along `axes`. If `keep_dims` is set, the reduced dimensions are kept with size 1; if
    /// not, they are removed.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[2, 2], vec![1.0, 2.0, 3.0, 6.0])?;
    /// assert_eq!(x.sum_along(&[0], false)?.to_vec::<f32>()?, [4.0, 8.0]);
    /// assert_eq!(x.sum_along(&[1], false)?.shape(), [2]);
    /// assert_eq!(x.sum_along(&[1], true)?.shape(), [2, 1]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if this tensor does not hold floats, or an axis does not exist or is given
    /// twice.
    pub fn sum_along(&self, axes: &[usize], keep_dims: bool) -> Result<Self, Error> {
        self.reduce(Reduction::Sum, axes, keep_dims)
    }

    /// Means along `axes`, NaN if there are no elements. `keep_dims` has the meaning that it has
    /// for [`Tensor::sum_along`].
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[2, 2], vec![1.0, 2.0, 3.0, 6.0])?;
    /// assert_eq!(x.mean_along(&[1], false)?.to_vec::<f32>()?, [1.5, 4.5]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Errors of [`Tensor::sum_along`].
    pub fn mean_along(&self, axes: &[usize], keep_dims: bool) -> Result<Self, Error> {
        self.reduce(Reduction::Mean, axes, keep_dims)
    }

    /// Maxima along `axes`; NaN if any element is NaN. If several elements equal their maximum, the
    /// gradient is split evenly among them. `keep_dims` has the meaning that it has for
    /// [`Tensor::sum_along`].
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[2, 2], vec![1.0, 5.0, 3.0, 2.0])?;
    /// assert_eq!(x.max_along(&[0], false)?.to_vec::<f32>()?, [3.0, 5.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Errors of [`Tensor::sum_along`]; also [`Error::Op`] if there are no elements along `axes`.
    pub fn max_along(&self, axes: &[usize], keep_dims: bool) -> Result<Self, Error> {
        self.reduce(Reduction::Max, axes, keep_dims)
    }

    /// Minima along `axes`; NaN if any element is NaN. If several elements equal their minimum, the
    /// gradient is split evenly among them. `keep_dims` has the meaning that it has for
    /// [`Tensor::sum_along`].
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[2, 2], vec![1.0, 5.0, 3.0, 2.0])?;
    /// assert_eq!(x.min_along(&[0], false)?.to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Errors of [`Tensor::max_along`].
    pub fn min_along(&self, axes: &[usize], keep_dims: bool) -> Result<Self, Error> {
        self.reduce(Reduction::Min, axes, keep_dims)
    }

    fn reduce_all(&self, kind: Reduction) -> Result<Self, Error> {
        let axes = Dims::from_fn(self.rank(), |axis| axis);
        self.reduce(kind, &axes, false)
    }

    fn reduce(&self, kind: Reduction, axes: &[usize], keep_dims: bool) -> Result<Self, Error> {
        let axes = dims("reduce", axes)?;
        Self::call1(Reduce { kind, axes, keep_dims }, &[self])
    }
}

impl Definition for Reduce {
    fn name(&self) -> &str {
        match self.kind {
            Reduction::Sum => "sum",
            Reduction::Mean => "mean",
            Reduction::Max => "max",
            Reduction::Min => "min",
        }
    }

    fn inputs(&self) -> Inputs {
        Inputs::Each(const { &[Input::floats("x")] })
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault> {
        let (x, Self { kind, axes, keep_dims }) = (&inputs[0], *self);
        for (i, &axis) in axes.iter().enumerate() {
            axis_of(x, "x", axis)?;
            if axes[..i].contains(&axis) {
                return Err(format!("axis {axis} is given twice in {axes}"));
            }
        }
        let mut sizes = List::new();
        let mut nothing_joined = false;
        for (axis, &size) in x.shape().iter().enumerate() {
            let joined = axes.contains(&axis);
            nothing_joined |= joined && size == 0;
            if !joined || keep_dims {
                sizes.push(if joined { 1 } else { size });
            }
        }
        let shape = Dims::new(&sizes);
        if x.rank() > MAX_RANK {
            walks(x, &axes).iter().try_for_each(|(walk, _)| walkable(walk, [("x", x)]))?;
        }
        if kind.needs_elements() && nothing_joined && shape.elements() > 0 {
            let which = if kind == Reduction::Max { "largest" } else { "smallest" };
            return Err(format!("x {x} has no elements along {axes} to take the {which} of"));
        }
        Ok(Outputs::fresh([fresh(FLOAT, shape)?]))
    }

    fn cuts(&self, inputs: &[Layout], _outputs: &[Layout]) -> Option<Cuts> {
        let x = inputs[0].shape();
        let is_reduced = |axis: &usize| self.axes.contains(axis);
        let kept = (0..x.len()).filter(|axis| !is_reduced(axis)).max_by_key(|&axis| x[axis]);
        let (cut, made) = match kept {
            Some(axis) if x[axis] > 1 => {
                let before = (0..axis).filter(is_reduced).count();
                let own = if self.keep_dims { axis } else { axis - before };
                (Cut::Along(axis), Made::plain(Cut::Along(own)))
            }
            _ if self.kind == Reduction::Sum => (along_longest(x, x.len()), Made::sum()),
            _ => (Cut::Whole, Made::plain(Cut::Whole)),
        };
        Some(Cuts::new([cut], [made]))
    }

    fn flops(&self, inputs: &[Layout], outputs: &[Layout]) -> f64 {
        inputs[0].elements().max(outputs[0].elements()) as f64
    }

    fn kernel(&self) -> Option<&dyn Kernel> {
        Some(self)
    }

    fn gradient(&self, of: &Recorded<'_>) -> Gradient {
        let shape = of.shape(0);
        let kept = self.axes.iter().fold(shape, |kept, &axis| kept.with(axis, 1));
        let spread = move |dy: &Tensor| dy.reshape(&kept)?.broadcast(&shape);
        match self.kind {
            Reduction::Sum => Gradient::of_one(spread),
            Reduction::Mean => {
                let joined: usize = self.axes.iter().map(|&axis| shape[axis]).product();
                Gradient::of_one(move |dy| spread(&dy.affine(1.0 / joined as f32, 0.0)?))
            }
            // The elements that equal the maximum or minimum get equal shares of the gradient.
            Reduction::Max | Reduction::Min => {
                let (x, y, axes) = (of.input(0), of.output(0), self.axes);
                Gradient::of_one(move |dy| {
                    let chosen = x.eq(&y.reshape(&kept)?)?;
                    let each = dy.reshape(&kept)?.div(&chosen.sum_along(&axes, true)?)?;
                    chosen.mul(&each)
                })
            }
        }
    }
}

/// Loops over the dimensions `axes`, and the product of the sizes of the dimensions `axes`.
fn walk_along(layout: &Layout, axes: impl Iterator<Item = usize>) -> (Walk<1>, usize) {
    let (sizes, strides): (List, List) =
        axes.map(|axis| (layout.shape()[axis], layout.strides()[axis])).unzip();
    let elements = sizes.iter().fold(1usize, |n, &size| n.saturating_mul(size));
    (Walk::new(&sizes, [&strides]), elements)
}

/// Loops over the kept dimensions, and loops over the reduced dimensions. The loops over the
/// reduced dimensions visit the elements in the order of their addresses.
fn walks(layout: &Layout, axes: &[usize]) -> [(Walk<1>, usize); 2] {
    let strides = layout.strides();
    let kept = (0..layout.rank()).filter(|axis| !axes.contains(axis));
    let mut joined: List = axes.into();
    // Sort axes by descending stride. Put axes of stride 0 first, because the order of repeated
    // elements does not matter.
    joined.sort_by_key(|&axis| (std::cmp::Reverse(strides[axis].wrapping_sub(1)), axis));
    [walk_along(layout, kept), walk_along(layout, joined.into_iter())]
}

impl Kernel for Reduce {
    fn cpu_workspace(&self, inputs: &[Layout], _outputs: &[Layout]) -> u64 {
        let words = cpu::workspace_len(&inputs[0], &self.axes);
        (words as u64).saturating_mul(size_of::<u32>() as u64)
    }

    fn cpu(&self, mut run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
        let ([x], [y], workspace) = (run.floats(), run.outputs(), run.workspace());
        cpu::reduce(self.kind, y, x, run.input(0), &self.axes, workspace);
        Ok(())
    }

    #[cfg(feature = "cuda")]
    fn cuda_workspace(
        &self,
        _libraries: &device::cuda::Libraries,
        inputs: &[Layout],
        _outputs: &[Layout],
    ) -> u64 {
        cuda::workspace(&inputs[0], &self.axes)
    }

    #[cfg(feature = "cuda")]
    fn cuda(
        &self,
        gpu: &mut device::cuda::Gpu,
        run: &device::cuda::Operands<'_>,
    ) -> Result<(), DeviceError> {
        let scratch = device::cuda::Scratch::of(gpu, run);
        cuda::reduce(gpu, self.kind, &run.outputs[0], &run.inputs[0], &self.axes, scratch)
    }
}

impl Registered for Reduce {
    fn each() -> Vec<Self> {
        let of = |kind| Self { kind, axes: Dims::SCALAR, keep_dims: false };
        [Reduction::Sum, Reduction::Mean, Reduction::Max, Reduction::Min].map(of).into()
    }

    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static crate::device::cuda::Family> {
        vec![&cuda::FAMILY]
    }
}
