use super::cpu;
use crate::device::{self, DeviceError};
use crate::layout::Layout;
use crate::op::Outputs;
use crate::ops::bf16::Cuts;
use crate::ops::check::{Fault, walkable_as};
use crate::ops::definition::{Definition, Input, Inputs, Kernel, Registered};
use crate::ops::gradient::{Gradient, Recorded};

/// `(acc, x) -> (acc)`: adds `x` to `acc` in place. `acc` and `x` have equal shapes, and `x` may
/// have any strides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Accumulate;

impl Definition for Accumulate {
    fn name(&self) -> &str {
        "accumulate"
    }

    fn inputs(&self) -> Inputs {
        Inputs::Each(const { &[Input::packed("acc"), Input::floats("x")] })
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault> {
        let [acc, x] = [&inputs[0], &inputs[1]];
        if x.shape() != acc.shape() {
            return Err(format!("x is {x}, expected {acc} like acc"));
        }
        walkable_as(x.shape(), [("x", x)])?;
        Ok(Outputs::updates(1))
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

    fn gradient(&self, _of: &Recorded<'_>) -> Gradient {
        Gradient::missing()
    }
}

impl Kernel for Accumulate {
    fn updates(&self, _inputs: usize) -> usize {
        1
    }

    fn cpu(&self, mut run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
        let (x, [acc]) = (run.read(1), run.outputs());
        cpu::update(
            acc,
            x,
            run.input(1),
            #[inline(always)]
            |acc, x| *acc += x,
        );
        Ok(())
    }

    #[cfg(feature = "cuda")]
    fn cuda(
        &self,
        gpu: &mut device::cuda::Gpu,
        run: &device::cuda::Operands<'_>,
    ) -> Result<(), DeviceError> {
        use super::binary::FAMILY;
        use super::cuda::{map, names};
        let acc = &run.outputs[0];
        map(&FAMILY, gpu, names!(add), acc, [acc, &run.inputs[1]], None)
    }
}

impl Registered for Accumulate {
    fn each() -> Vec<Self> {
        vec![Self]
    }

    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static crate::device::cuda::Family> {
        Vec::new()
    }
}
