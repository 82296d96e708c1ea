use super::{GroupNormGrad, View, cpu, gradients};
use crate::device::{self, DeviceError};
use crate::error::Error;
use crate::layout::Layout;
use crate::op::Outputs;
use crate::ops::bf16::{Cut, Cuts, Made};
use crate::ops::check::{Fault, fresh, number, shaped};
use crate::ops::definition::{Definition, Input, Inputs, Kernel, Registered};
use crate::ops::gradient::{Gradient, Recorded};
use crate::ops::{FLOAT, Tensor};

#[cfg(feature = "cuda")]
use super::cuda;

/// `(x [n, c, ..], gamma [c], beta [c]) -> (y [n, c, ..], mean [n, groups], inv_std [n, groups])`:
/// `y = (x - mean) * inv_std * gamma + beta`. `mean` and `inv_std = 1 / sqrt(var + eps)` are
/// statistics of each group of `c / groups` channels of each image, with the biased variance (Wu
/// and He, ECCV 2018).
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct GroupNorm {
    /// Number of groups, which divides the number of channels.
    pub groups: usize,
    /// Number added to the variance.
    #[cfg_attr(feature = "serde", serde(with = "crate::ops::attributes::float"))]
    pub eps: f32,
}

impl Tensor {
    /// Group normalization of images `[n, c, ..]`: `(x - mean) / sqrt(var + eps) * gamma + beta`.
    /// Each group of `c / groups` channels of each image has its own mean and variance. `gamma` and
    /// `beta` have one element for each channel. See [`GroupNorm`].
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[1, 2, 2], vec![1.0, 3.0, 5.0, 9.0])?;
    /// let y = x.group_norm(2, &runtime.ones(&[2])?, &runtime.zeros(&[2])?, 0.0)?;
    /// assert_eq!(y.to_vec::<f32>()?, [-1.0, 1.0, -1.0, 1.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if:
    ///
    /// - this tensor has fewer than two dimensions, does not hold floats, or has groups without
    ///   elements;
    /// - `groups` does not divide the number of channels;
    /// - a parameter does not have one element for each channel;
    /// - `eps` is negative or not finite.
    pub fn group_norm(
        &self,
        groups: usize,
        gamma: &Self,
        beta: &Self,
        eps: f32,
    ) -> Result<Self, Error> {
        Self::call1(GroupNorm { groups, eps }, &[self, gamma, beta])
    }
}

/// Number of images and of channels of `x`; an error unless `groups` divides the number of
/// channels.
pub(super) fn sizes(x: &Layout, groups: usize) -> Result<[usize; 2], Fault> {
    let &[n, channels, ..] = &x.shape()[..] else {
        return Err(format!("x is {x} of rank {}, expected at least 2", x.rank()));
    };
    if groups == 0 || channels % groups != 0 {
        return Err(format!("x {x} has {channels} channels, which {groups} groups do not divide"));
    }
    Ok([n, channels])
}

/// Number of channels of a group, and number of elements of a channel.
pub(super) fn sides(x: &Layout, groups: usize) -> [usize; 2] {
    [x.shape()[1] / groups, x.shape()[2..].iter().product()]
}

impl Definition for GroupNorm {
    fn name(&self) -> &str {
        "group_norm"
    }

    fn inputs(&self) -> Inputs {
        Inputs::Each(const { &[Input::packed("x"), Input::packed("gamma"), Input::packed("beta")] })
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault> {
        let x = &inputs[0];
        let [n, channels] = sizes(x, self.groups)?;
        shaped(&inputs[1], "gamma", FLOAT, &[channels])?;
        shaped(&inputs[2], "beta", FLOAT, &[channels])?;
        number(self.eps, "eps", 0.0)?;
        if x.elements() == 0 && n > 0 {
            return Err(format!("x is {x}, expected at least one element per group"));
        }
        let statistic = fresh(FLOAT, [n, self.groups])?;
        Ok(Outputs::fresh([fresh(FLOAT, *x.shape())?, statistic, statistic]))
    }

    fn cuts(&self, _inputs: &[Layout], _outputs: &[Layout]) -> Option<Cuts> {
        let images = Cut::Along(0);
        Some(Cuts::new(
            [images, Cut::Whole, Cut::Whole],
            [Made::activations(images), Made::plain(images), Made::plain(images)],
        ))
    }

    fn flops(&self, _inputs: &[Layout], outputs: &[Layout]) -> f64 {
        // Each element takes as many operations as in a layer norm.
        outputs[0].elements() as f64 * 8.0
    }

    fn kernel(&self) -> Option<&dyn Kernel> {
        Some(self)
    }

    fn gradient(&self, of: &Recorded<'_>) -> Gradient {
        let view = View::of_groups(&of.shape(0), self.groups);
        gradients::of_norm(of, view, true, GroupNormGrad { groups: self.groups })
    }
}

impl Kernel for GroupNorm {
    fn cpu(&self, mut run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
        let (outputs, inputs) = (run.outputs(), run.floats());
        cpu::group(outputs, inputs, self.eps, sides(run.input(0), self.groups));
        Ok(())
    }

    #[cfg(feature = "cuda")]
    fn cuda(
        &self,
        gpu: &mut device::cuda::Gpu,
        run: &device::cuda::Operands<'_>,
    ) -> Result<(), DeviceError> {
        cuda::group(gpu, run.outputs, run.inputs, self.eps, self.groups)
    }
}

impl Registered for GroupNorm {
    fn each() -> Vec<Self> {
        vec![Self { groups: 1, eps: 1e-5 }]
    }

    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static device::cuda::Family> {
        vec![&cuda::FAMILY]
    }
}
