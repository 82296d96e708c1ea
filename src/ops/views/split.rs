use crate::error::Error;
use crate::layout::Layout;
use crate::op::{Look, Outputs};
use crate::ops::Tensor;
use crate::ops::check::{Fault, axis_of};
use crate::ops::definition::{Definition, Input, Inputs, Kernel, Registered};
use crate::ops::gradient::{Gradient, Recorded};

/// `(x) -> (view, ..)`: parts of `size` entries along `axis`. The last part may be smaller.
///
/// If the axis has no entries, the result is one part without entries. `x` may have any strides and
/// any dtype.
///
/// The gradient concatenates the gradients of all parts once. Parts made by [`Slice`](super::Slice)
/// would be slower: the gradient of each part would be padded to the size of `x`, and the padded
/// gradients would be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Split {
    /// Dimension that is split.
    pub axis: usize,
    /// Number of entries of a part, at least 1.
    pub size: usize,
}

/// Largest number of parts. The number is limited, because each part is a separate tensor.
const MOST: usize = 1 << 16;

impl Split {
    /// Size of each part of an axis with `entries` entries.
    fn sizes(self, entries: usize) -> impl Iterator<Item = usize> {
        (0..entries.max(1)).step_by(self.size).map(move |start| self.size.min(entries - start))
    }
}

impl Definition for Split {
    fn name(&self) -> &str {
        "split"
    }

    fn inputs(&self) -> Inputs {
        Inputs::Each(const { &[Input::any("x")] })
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault> {
        let (x, Self { axis, size }) = (&inputs[0], *self);
        axis_of(x, "x", axis)?;
        if size == 0 {
            return Err("size is 0, expected at least 1".to_owned());
        }
        let entries = x.shape()[axis];
        let parts = entries.div_ceil(size);
        if parts > MOST {
            return Err(format!(
                "{parts} parts of {size} entries along axis {axis} of x {x}, expected at most {MOST}"
            ));
        }
        let mut start = 0usize;
        let view = |len: usize| {
            // Use checked arithmetic, because `infer` may be called with layouts of arbitrary
            // strides.
            let layout = start
                .checked_mul(x.strides()[axis])
                .and_then(|distance| distance.checked_add(x.offset()))
                .and_then(|_| x.slice(axis, start, len))
                .ok_or_else(|| {
                    format!(
                        "the part from {start} on along axis {axis} of x {x} is beyond all memory"
                    )
                })?;
            start += len;
            Ok(Look { input: 0, layout })
        };
        Ok(Outputs::Views(self.sizes(entries).map(view).collect::<Result<_, Fault>>()?))
    }

    fn flops(&self, _inputs: &[Layout], _outputs: &[Layout]) -> f64 {
        0.0
    }

    fn kernel(&self) -> Option<&dyn Kernel> {
        None
    }

    fn gradient(&self, of: &Recorded<'_>) -> Gradient {
        let axis = self.axis;
        let sizes: Vec<usize> = self.sizes(of.shape(0)[axis]).collect();
        Gradient::of_all(move |dys| Ok([Some(joined(dys, &sizes, axis)?)].into_iter().collect()))
    }
}

/// Concatenates the gradients `dys` of parts that have the sizes `sizes`. A gradient that is `None`
/// is zero. At least one gradient is `Some`.
fn joined(dys: &[Option<Tensor>], sizes: &[usize], axis: usize) -> Result<Tensor, Error> {
    let mut parts: Vec<Tensor> = Vec::with_capacity(dys.len());
    // Number of entries of the parts without a gradient that follow the last part with a gradient.
    let mut zeros = 0;
    for (dy, size) in dys.iter().zip(sizes) {
        match dy {
            None => zeros += size,
            Some(dy) if zeros == 0 => parts.push(dy.clone()),
            Some(dy) => parts.push(dy.pad(axis, std::mem::take(&mut zeros), 0)?),
        }
    }
    if zeros > 0
        && let Some(last) = parts.last_mut()
    {
        *last = last.pad(axis, 0, zeros)?;
    }
    match &parts[..] {
        [only] => Ok(only.clone()),
        all => Tensor::concat(&all.iter().collect::<Vec<_>>(), axis),
    }
}

impl Registered for Split {
    fn each() -> Vec<Self> {
        vec![Self { axis: 0, size: 1 }]
    }

    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static crate::device::cuda::Family> {
        Vec::new()
    }
}
