//! Kernels of the convolution and of its two gradients.

use super::{Conv2d, Conv2dGradInput, Conv2dGradWeight, bytes, cpu};
use crate::device::conv_shape::{ConvShape, Kind};
use crate::device::{self, DeviceError};
use crate::layout::Layout;
use crate::ops::definition::Kernel;

/// A convolution, or one of its gradients.
trait Convolution {
    const KIND: Kind;

    fn conv(&self) -> &Conv2d;

    /// Sizes of the convolution, from the layouts of the two operands and the result. The operands
    /// are in the order in which the description of the [`Kind`] names them.
    fn shape_of(&self, [a, b, result]: [&Layout; 3]) -> ConvShape {
        let [x, weight] = match Self::KIND {
            Kind::Forward => [a, b],
            Kind::GradInput => [result, b],
            Kind::GradWeight => [a, result],
        };
        self.conv().shape(x, weight)
    }
}

impl Convolution for Conv2d {
    const KIND: Kind = Kind::Forward;

    fn conv(&self) -> &Conv2d {
        self
    }
}

impl Convolution for Conv2dGradInput {
    const KIND: Kind = Kind::GradInput;

    fn conv(&self) -> &Conv2d {
        &self.conv
    }
}

impl Convolution for Conv2dGradWeight {
    const KIND: Kind = Kind::GradWeight;

    fn conv(&self) -> &Conv2d {
        &self.conv
    }
}

impl<C: Convolution> Kernel for C {
    fn cpu_workspace(&self, inputs: &[Layout], outputs: &[Layout]) -> u64 {
        let shape = self.shape_of([&inputs[0], &inputs[1], &outputs[0]]);
        bytes(cpu::workspace_len(C::KIND, &shape))
    }

    fn cpu(&self, mut run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
        let shape = self.shape_of([run.input(0), run.input(1), run.output(0)]);
        let (operands, [result]) = (run.floats(), run.outputs());
        cpu::run(C::KIND, &shape, operands, result, run.workspace());
        Ok(())
    }

    #[cfg(feature = "cuda")]
    fn cuda_workspace(
        &self,
        libraries: &device::cuda::Libraries,
        inputs: &[Layout],
        outputs: &[Layout],
    ) -> u64 {
        let shape = self.shape_of([&inputs[0], &inputs[1], &outputs[0]]);
        super::cuda::workspace(libraries, C::KIND, shape, inputs)
    }

    #[cfg(feature = "cuda")]
    fn cuda(
        &self,
        gpu: &mut device::cuda::Gpu,
        run: &device::cuda::Operands<'_>,
    ) -> Result<(), DeviceError> {
        let [a, b, result] = [&run.inputs[0], &run.inputs[1], &run.outputs[0]];
        let shape = self.shape_of([&a.layout, &b.layout, &result.layout]);
        super::cuda::run(gpu, C::KIND, shape, run)
    }
}
