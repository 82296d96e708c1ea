use super::cpu;
use crate::device::{self, DeviceError};
use crate::error::Error;
use crate::layout::{DType, Layout};
use crate::op::Outputs;
use crate::ops::check::{Fault, fresh};
use crate::ops::definition::{Definition, Input, Inputs, Kernel, Registered};
use crate::ops::gradient::{Gradient, Recorded};
use crate::ops::{FLOAT, Tensor};

/// `(x) -> (y)`: converts floats to f32 or `bf16`. A float is rounded to the nearest `bf16`; on a
/// tie, to the `bf16` whose last bit is 0. `x` may have any strides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Cast {
    /// Type of the result: [`DType::F32`] or [`DType::BF16`].
    pub to: DType,
}

impl Tensor {
    /// Converts this tensor to f32 or `bf16`; returns this tensor itself if it already has the
    /// type. A float that `bf16` cannot represent becomes the nearest `bf16`.
    ///
    /// A `bf16` takes half the bytes of an f32. Ops compute in f32. If an op reads `bf16` and f32
    /// tensors, its results are `bf16`, except for sums, statistics and gradients of f32 tensors.
    ///
    /// ```
    /// use remat::{DType, prelude::*};
    ///
    /// let runtime = Runtime::builder().budget("64KiB").cpu()?;
    /// let x = runtime.tensor(&[2], vec![1.0, 1.001])?.cast(DType::BF16)?;
    /// assert_eq!(x.layout().bytes(), 4);
    /// let w = runtime.tensor(&[2], vec![3.0, 5.0])?;
    /// let y = x.mul(&w)?;
    /// assert_eq!(y.dtype(), DType::BF16);
    /// assert_eq!(y.cast(DType::F32)?.to_vec::<f32>()?, [3.0, 5.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] unless both this tensor and `to` are f32 or `bf16`.
    pub fn cast(&self, to: DType) -> Result<Self, Error> {
        if self.dtype() == to { Ok(self.clone()) } else { Self::call1(Cast { to }, &[self]) }
    }
}

/// Fails unless `dtype` is f32 or `bf16`.
fn check(dtype: DType, what: &dyn std::fmt::Display) -> Result<(), Fault> {
    match dtype {
        DType::F32 | DType::BF16 => Ok(()),
        _ => Err(format!("{what}, expected f32 or bf16")),
    }
}

impl Definition for Cast {
    fn name(&self) -> &str {
        "cast"
    }

    fn inputs(&self) -> Inputs {
        Inputs::Each(const { &[Input::any("x")] })
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault> {
        let x = &inputs[0];
        check(x.dtype(), &format_args!("x is {x}"))?;
        check(self.to, &format_args!("the type to cast to is {}", self.to))?;
        Ok(Outputs::fresh([fresh(self.to, *x.shape())?]))
    }

    fn flops(&self, _inputs: &[Layout], outputs: &[Layout]) -> f64 {
        outputs[0].elements() as f64
    }

    fn kernel(&self) -> Option<&dyn Kernel> {
        Some(self)
    }

    fn gradient(&self, _of: &Recorded<'_>) -> Gradient {
        // Return the gradient unchanged, because the tape converts it to the type of the input.
        Gradient::of_one(|dy| Ok(dy.clone()))
    }
}

impl Kernel for Cast {
    fn cpu(&self, mut run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
        let x = *run.input(0);
        match (x.dtype(), self.to) {
            (DType::BF16, FLOAT) => cpu::pack(run.write(0), run.read(0), &x, cpu::widened),
            (FLOAT, DType::BF16) => cpu::pack(run.write(0), run.read(0), &x, cpu::rounded),
            _ => device::cpu::copy::packed(run.write(0), run.read(0), &x),
        }
        Ok(())
    }

    #[cfg(feature = "cuda")]
    fn cuda(
        &self,
        gpu: &mut device::cuda::Gpu,
        run: &device::cuda::Operands<'_>,
    ) -> Result<(), DeviceError> {
        super::cuda::cast(gpu, &run.outputs[0], &run.inputs[0])
    }
}

impl Registered for Cast {
    fn each() -> Vec<Self> {
        vec![Self { to: DType::BF16 }]
    }

    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static device::cuda::Family> {
        vec![&super::cuda::FAMILY]
    }
}
