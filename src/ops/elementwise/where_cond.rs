use super::cpu;
use crate::device::{self, DeviceError};
use crate::error::Error;
use crate::layout::{Layout, broadcast_shapes};
use crate::op::Outputs;
use crate::ops::bf16::Cuts;
use crate::ops::check::{Fault, fresh, walkable_as};
use crate::ops::definition::{Definition, Input, Inputs, Kernel, Registered};
use crate::ops::gradient::{Gradient, InputGradients, Recorded, sum_to};
use crate::ops::{FLOAT, Tensor};
use smallvec::smallvec;

/// `(mask, a, b) -> (y)`: `a` where `mask` is not 0, else `b`, with broadcasting. The operands may
/// have any strides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Where;

impl Tensor {
    /// Selects `a` where this tensor is not 0, else `b`. All three tensors broadcast to one shape.
    /// A comparison such as [`gt`](Self::gt) returns a suitable tensor of 0 and 1.
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("64KiB").cpu()?;
    /// let x = runtime.tensor(&[4], vec![1.0, -2.0, 3.0, -4.0])?;
    /// let is_positive = x.gt(&runtime.zeros(&[1])?)?;
    /// let y = is_positive.where_cond(&x, &runtime.full(&[1], 0.5)?)?;
    /// assert_eq!(y.to_vec::<f32>()?, [1.0, 0.5, 3.0, 0.5]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if a tensor does not hold floats, or the shapes do not broadcast.
    pub fn where_cond(&self, a: &Self, b: &Self) -> Result<Self, Error> {
        Self::call1(Where, &[self, a, b])
    }

    /// Replaces elements by `value` where `mask` is not 0; both tensors broadcast to one shape.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[3], vec![1.0, 2.0, 3.0])?;
    /// let mask = x.gt(&runtime.full(&[1], 1.5)?)?;
    /// assert_eq!(x.masked_fill(&mask, 0.0)?.to_vec::<f32>()?, [1.0, 0.0, 0.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if a tensor does not hold floats, or the shapes do not broadcast.
    pub fn masked_fill(&self, mask: &Self, value: f32) -> Result<Self, Error> {
        mask.where_cond(&self.scalar(value)?, self)
    }
}

impl Definition for Where {
    fn name(&self) -> &str {
        "where"
    }

    fn inputs(&self) -> Inputs {
        Inputs::Each(const { &[Input::floats("mask"), Input::floats("a"), Input::floats("b")] })
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault> {
        let [mask, a, b] = [&inputs[0], &inputs[1], &inputs[2]];
        let shape = broadcast_shapes(a.shape(), b.shape())
            .and_then(|shape| broadcast_shapes(mask.shape(), &shape));
        let shape = shape.ok_or_else(|| {
            format!("mask {}, a {} and b {} do not broadcast", mask.shape(), a.shape(), b.shape())
        })?;
        walkable_as(&shape, [("mask", mask), ("a", a), ("b", b)])?;
        Ok(Outputs::fresh([fresh(FLOAT, shape)?]))
    }

    fn cuts(&self, inputs: &[Layout], outputs: &[Layout]) -> Option<Cuts> {
        Some(Cuts::elementwise(inputs, &outputs[0]))
    }

    fn flops(&self, _inputs: &[Layout], outputs: &[Layout]) -> f64 {
        outputs[0].elements() as f64
    }

    fn kernel(&self) -> Option<&dyn Kernel> {
        Some(self)
    }

    fn gradient(&self, of: &Recorded<'_>) -> Gradient {
        let mask = of.input(0);
        let shapes = [1, 2].map(|i| of.wanted(i).then(|| of.shape(i)));
        Gradient::of_first(move |dy| {
            let zero = dy.scalar(0.0)?;
            let part = |i: usize| {
                let Some(shape) = &shapes[i] else { return Ok(None) };
                let [a, b] = [[dy, &zero], [&zero, dy]][i];
                sum_to(&mask.where_cond(a, b)?, shape).map(Some)
            };
            Ok(smallvec![None, part(0)?, part(1)?]) as Result<InputGradients, Error>
        })
    }
}

impl Kernel for Where {
    fn cpu(&self, mut run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
        let (inputs, [y]) = (run.floats(), run.outputs());
        cpu::choose(y, run.output(0), inputs, [0, 1, 2].map(|i| run.input(i)));
        Ok(())
    }

    #[cfg(feature = "cuda")]
    fn cuda(
        &self,
        gpu: &mut device::cuda::Gpu,
        run: &device::cuda::Operands<'_>,
    ) -> Result<(), DeviceError> {
        use super::cuda::{map, names};
        let [mask, a, b] = [&run.inputs[0], &run.inputs[1], &run.inputs[2]];
        map(&FAMILY, gpu, names!(where), &run.outputs[0], [mask, a, b], None)
    }
}

#[cfg(feature = "cuda")]
static FAMILY: device::cuda::Family = device::cuda::Family::new(
    "where",
    concat!(include_str!("elementwise.cu"), include_str!("where_cond.cu")),
);

impl Registered for Where {
    fn each() -> Vec<Self> {
        vec![Self]
    }

    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static crate::device::cuda::Family> {
        vec![&FAMILY]
    }
}
