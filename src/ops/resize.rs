//! Resampling along a dimension: enlarging and shrinking of images, and adaptive average pooling.

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;

use super::bf16::{Cuts, Made, along_longest_but};
use super::check::{Fault, axis_of, fresh};
use super::definition::{Definition, Input, Inputs, Kernel, Registered};
use super::gradient::{Gradient, Recorded};
use super::{FLOAT, Tensor};
use crate::device::{self, DeviceError};
use crate::error::Error;
use crate::layout::Layout;
use crate::op::Outputs;
use std::ops::Range;

/// Formula that makes a result of `size` entries from `n` entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Interpolation {
    /// Entry `j` of the result is entry `floor(j n / size)` of the input.
    Nearest,
    /// Entry `j` of the result is the linear interpolation of the input at the position `(j + 1/2)
    /// n / size - 1/2`. Positions outside the input are clamped to the first or last input entry.
    Linear,
    /// Entry `j` of the result is the linear interpolation of the input at the position `j (n - 1)
    /// / (size - 1)`. The first and the last entry of the result equal the first and the last entry
    /// of the input.
    LinearAlignCorners,
    /// Entry `j` of the result is the mean of the input entries from `floor(j n / size)` to below
    /// `ceil((j + 1) n / size)`.
    Area,
}

/// `(x) -> (y)`: resamples `x` to size `size` along `axis`. `x` must be contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Resize {
    /// Dimension to resample.
    pub axis: usize,
    /// Size of the dimension in the result.
    pub size: usize,
    /// Formula for the entries of the result.
    pub sampling: Interpolation,
    /// Whether to compute the gradient. Resampling multiplies the entries by a matrix of weights;
    /// the gradient multiplies by the transposed matrix.
    pub transposed: bool,
}

impl Tensor {
    /// Resamples images `[n, c, h, w]` to another height and width by copying the nearest pixels.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[1, 1, 1, 2], vec![1.0, 2.0])?;
    /// let y = x.upsample_nearest([2, 4])?;
    /// assert_eq!(y.to_vec::<f32>()?, [1.0, 1.0, 2.0, 2.0, 1.0, 1.0, 2.0, 2.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if this tensor does not hold floats, has fewer than four dimensions, or a side
    /// is 0.
    pub fn upsample_nearest(&self, size: [usize; 2]) -> Result<Self, Error> {
        self.resize(size, Interpolation::Nearest)
    }

    /// Resamples images `[n, c, h, w]` to another height and width by linear interpolation along
    /// height and width. If `align_corners` is set, the corner pixels keep their values.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[1, 1, 1, 2], vec![0.0, 2.0])?;
    /// assert_eq!(x.upsample_bilinear([1, 3], true)?.to_vec::<f32>()?, [0.0, 1.0, 2.0]);
    /// assert_eq!(x.upsample_bilinear([1, 4], false)?.to_vec::<f32>()?, [0.0, 0.5, 1.5, 2.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Errors of [`Tensor::upsample_nearest`].
    pub fn upsample_bilinear(&self, size: [usize; 2], align_corners: bool) -> Result<Self, Error> {
        let sampling =
            if align_corners { Interpolation::LinearAlignCorners } else { Interpolation::Linear };
        self.resize(size, sampling)
    }

    /// Averages images `[n, c, h, w]` over windows. The sizes of the windows are chosen so that the
    /// result has the height and width `size`.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[1, 1, 2, 2], vec![1.0, 2.0, 3.0, 6.0])?;
    /// assert_eq!(x.adaptive_avg_pool2d([1, 2])?.to_vec::<f32>()?, [2.0, 4.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Errors of [`Tensor::upsample_nearest`].
    pub fn adaptive_avg_pool2d(&self, size: [usize; 2]) -> Result<Self, Error> {
        self.resize(size, Interpolation::Area)
    }

    fn resize(&self, size: [usize; 2], sampling: Interpolation) -> Result<Self, Error> {
        let along = |x: &Self, axis: usize, size: usize| {
            Self::call1(Resize { axis, size, sampling, transposed: false }, &[x])
        };
        along(&along(self, 2, size[0])?, 3, size[1])
    }
}

/// Resampling of `n` entries to `size` entries.
#[derive(Clone, Copy, Debug)]
struct Taps {
    n: u64,
    size: u64,
    sampling: Interpolation,
}

impl Taps {
    /// Range of the input entries from which entry `j` of the result is computed. Also returns the
    /// weight of the first entry of the range, and the weight of each further entry.
    fn of(self, j: u64) -> (Range<usize>, [f32; 2]) {
        let Self { n, size, sampling } = self;
        // Interpolates linearly at the position `top / bottom`.
        let between = |top: u64, bottom: u64| {
            let (first, rest) = (top / bottom, (top % bottom) as f64 / bottom as f64);
            let end = if rest > 0.0 && first + 1 < n { first + 2 } else { first + 1 };
            let of_first = if end == first + 1 { 1.0 } else { 1.0 - rest };
            (first as usize..end as usize, [of_first as f32, rest as f32])
        };
        match sampling {
            Interpolation::Nearest => between(j * n / size, 1),
            Interpolation::Linear => between(((2 * j + 1) * n).saturating_sub(size), 2 * size),
            Interpolation::LinearAlignCorners => between(j * (n - 1), (size - 1).max(1)),
            Interpolation::Area => {
                let (start, end) = (j * n / size, ((j + 1) * n).div_ceil(size));
                (start as usize..end as usize, [(1.0 / (end - start) as f64) as f32; 2])
            }
        }
    }
}

impl Resize {
    /// Returns the numbers of entries and the formula of the resampling along `axis`, and the
    /// number of elements in an entry of `x`.
    fn taps(&self, x: &Layout) -> (Taps, usize) {
        let [given, made] = [x.shape()[self.axis], self.size].map(|size| size as u64);
        let (n, size) = if self.transposed { (made, given) } else { (given, made) };
        let taps = Taps { n, size, sampling: self.sampling };
        (taps, x.shape()[self.axis + 1..].iter().product())
    }
}

impl Definition for Resize {
    fn name(&self) -> &str {
        "resize"
    }

    fn inputs(&self) -> Inputs {
        Inputs::Each(const { &[Input::packed("x")] })
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault> {
        let (x, axis, size) = (&inputs[0], self.axis, self.size);
        axis_of(x, "x", axis)?;
        let range = 1..1 << 31;
        if !range.contains(&size) || !range.contains(&x.shape()[axis]) {
            return Err(format!(
                "x {x} is resized to {size} along axis {axis}, expected sizes from 1 to {}",
                range.end - 1
            ));
        }
        Ok(Outputs::fresh([fresh(FLOAT, x.shape().with(axis, size))?]))
    }

    fn cuts(&self, inputs: &[Layout], _outputs: &[Layout]) -> Option<Cuts> {
        let others = along_longest_but(inputs[0].shape(), self.axis);
        Some(Cuts::new([others], [Made::activations(others)]))
    }

    fn flops(&self, inputs: &[Layout], outputs: &[Layout]) -> f64 {
        // Flops: a multiplication and an addition for each weight.
        2.0 * inputs[0].elements().max(outputs[0].elements()) as f64
    }

    fn kernel(&self) -> Option<&dyn Kernel> {
        Some(self)
    }

    fn gradient(&self, of: &Recorded<'_>) -> Gradient {
        let back = Self { size: of.shape(0)[self.axis], transposed: !self.transposed, ..*self };
        Gradient::of_one(move |dy| Tensor::call1(back, &[dy]))
    }
}

impl Kernel for Resize {
    fn cpu(&self, mut run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
        let ([x], [y], (taps, inner)) = (run.floats(), run.outputs(), self.taps(run.input(0)));
        if self.transposed {
            cpu::transposed(y, x, taps, inner);
        } else {
            cpu::resize(y, x, taps, inner);
        }
        Ok(())
    }

    #[cfg(feature = "cuda")]
    fn cuda(
        &self,
        gpu: &mut device::cuda::Gpu,
        run: &device::cuda::Operands<'_>,
    ) -> Result<(), DeviceError> {
        let x = &run.inputs[0];
        let (taps, inner) = self.taps(&x.layout);
        cuda::resize(gpu, &run.outputs[0], x, taps, inner, self.transposed)
    }
}

impl Registered for Resize {
    fn each() -> Vec<Self> {
        vec![Self { axis: 0, size: 1, sampling: Interpolation::Linear, transposed: false }]
    }

    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static crate::device::cuda::Family> {
        vec![&cuda::FAMILY]
    }
}
