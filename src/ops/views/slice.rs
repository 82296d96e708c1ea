use super::seen_as;
use crate::error::Error;
use crate::layout::Layout;
use crate::op::{OpError, Outputs};
use crate::ops::Tensor;
use crate::ops::check::{Fault, axis_of};
use crate::ops::definition::{Definition, Input, Inputs, Kernel, Registered};
use crate::ops::gradient::{Gradient, Recorded};
use std::ops::{Bound, RangeBounds};

/// `(x) -> (view)`: entries `start..start + len` along `axis`. `x` may have any strides and any
/// dtype.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Slice {
    /// Dimension that is sliced.
    pub axis: usize,
    /// Index of the first entry.
    pub start: usize,
    /// Number of entries.
    pub len: usize,
}

impl Tensor {
    /// A view of the entries `range` along `axis`.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("64KiB").cpu()?;
    /// let x = runtime.zeros(&[2, 8])?;
    /// assert_eq!(x.slice(1, 2..5)?.shape(), [2, 3]);
    /// assert_eq!(x.slice(1, 2..)?.shape(), [2, 6]);
    /// assert_eq!(x.slice(0, ..=0)?.shape(), [1, 8]);
    /// let (start, end) = (5, 2);
    /// let error = x.slice(1, start..end).unwrap_err();
    /// assert_eq!(error.to_string(), "slice: entries 5..2 are not in axis 1 of x f32[2, 8]");
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if the tensor does not have the axis, or if the range is not within the axis
    /// or ends before its start.
    pub fn slice(&self, axis: usize, range: impl RangeBounds<usize>) -> Result<Self, Error> {
        let start = match range.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&last) => last.saturating_add(1),
            Bound::Excluded(&end) => end,
            // If the tensor does not have the axis, use any value: `Slice` returns an error below.
            Bound::Unbounded => self.shape().get(axis).copied().unwrap_or(start),
        };
        let len = end.checked_sub(start).ok_or_else(|| {
            let x = self.layout();
            OpError::new("slice", format!("entries {start}..{end} are not in axis {axis} of x {x}"))
        })?;
        Self::call1(Slice { axis, start, len }, &[self])
    }
}

impl Definition for Slice {
    fn name(&self) -> &str {
        "slice"
    }

    fn inputs(&self) -> Inputs {
        Inputs::Each(const { &[Input::any("x")] })
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault> {
        let (x, Self { axis, start, len }) = (&inputs[0], *self);
        axis_of(x, "x", axis)?;
        // Use checked arithmetic, because `infer` may be called with layouts of arbitrary strides.
        let view = start
            .checked_mul(x.strides()[axis])
            .and_then(|distance| distance.checked_add(x.offset()))
            .and_then(|_| x.slice(axis, start, len))
            .ok_or_else(|| {
                format!("{len} entries from {start} on are not all in axis {axis} of x {x}")
            })?;
        Ok(seen_as(view))
    }

    fn flops(&self, _inputs: &[Layout], _outputs: &[Layout]) -> f64 {
        0.0
    }

    fn kernel(&self) -> Option<&dyn Kernel> {
        None
    }

    fn gradient(&self, of: &Recorded<'_>) -> Gradient {
        let Self { axis, start, len } = *self;
        let after = of.shape(0)[axis] - start - len;
        Gradient::of_one(move |dy| dy.pad(axis, start, after))
    }
}

impl Registered for Slice {
    fn each() -> Vec<Self> {
        vec![Self { axis: 0, start: 0, len: 0 }]
    }

    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static crate::device::cuda::Family> {
        Vec::new()
    }
}
