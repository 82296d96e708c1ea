use crate::device::{self, DeviceError};
use crate::error::Error;
use crate::layout::Layout;
use crate::op::Outputs;
use crate::ops::Tensor;
use crate::ops::check::{Fault, fresh};
use crate::ops::definition::{Definition, Input, Inputs, Kernel, Registered};
use crate::ops::gradient::{Gradient, Recorded};

/// `(x) -> (y)`: a packed copy of `x`. `x` may have any strides and any dtype.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Contiguous;

impl Tensor {
    /// Returns this tensor if it is contiguous; otherwise, returns a packed copy.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.zeros(&[2, 3])?.t()?;
    /// assert!(!x.layout().is_contiguous());
    /// assert!(x.contiguous()?.layout().is_contiguous());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// If the runtime of this tensor has stopped.
    pub fn contiguous(&self) -> Result<Self, Error> {
        if self.layout().is_contiguous() {
            Ok(self.clone())
        } else {
            Self::call1(Contiguous, &[self])
        }
    }
}

impl Definition for Contiguous {
    fn name(&self) -> &str {
        "contiguous"
    }

    fn inputs(&self) -> Inputs {
        Inputs::Each(const { &[Input::any("x")] })
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault> {
        let x = &inputs[0];
        Ok(Outputs::fresh([fresh(x.dtype(), *x.shape())?]))
    }

    fn flops(&self, _inputs: &[Layout], outputs: &[Layout]) -> f64 {
        outputs[0].elements() as f64
    }

    fn kernel(&self) -> Option<&dyn Kernel> {
        Some(self)
    }

    fn gradient(&self, _of: &Recorded<'_>) -> Gradient {
        Gradient::of_one(|dy| Ok(dy.clone()))
    }
}

impl Kernel for Contiguous {
    fn cpu(&self, mut run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
        device::cpu::copy::packed(run.write(0), run.read(0), run.input(0));
        Ok(())
    }

    #[cfg(feature = "cuda")]
    fn cuda(
        &self,
        gpu: &mut device::cuda::Gpu,
        run: &device::cuda::Operands<'_>,
    ) -> Result<(), DeviceError> {
        super::cuda::contiguous(gpu, &run.outputs[0], &run.inputs[0])
    }
}

impl Registered for Contiguous {
    fn each() -> Vec<Self> {
        vec![Self]
    }

    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static crate::device::cuda::Family> {
        vec![&super::cuda::FAMILY]
    }
}
