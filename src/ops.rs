//! Ops of the crate, and the handle [`Tensor`]. Most ops are methods of [`Tensor`].
//!
//! Each op, or small family of related ops, is one module. The module contains everything about the
//! op: inputs, outputs, formula, number of flops, kernels for each device, gradient, and the method
//! on [`Tensor`]. The macro call `registry!` below has one line for each module, and is the only
//! list of ops. The tests run each op on the [`samples`] of the op. Users' own ops are
//! [`Op::Custom`]. With the feature `serde`, [`Operation::attributes`] turns an op into text, and a
//! `Library` makes the op from the text.
//!
//! Images have the shape `[batch, channels, height, width]`. Unless an op's documentation says
//! otherwise, inputs are f32 and of any rank. An op on tensors that are not contiguous fails if the
//! op needs more than [`MAX_RANK`](crate::MAX_RANK) nested loops.
//!
//! An op without a method on tensors is a value that [`Runtime::apply`](crate::Runtime::apply)
//! runs:
//!
//! ```
//! use remat::ops::{Conv2d, Pool2d};
//! use remat::unstable::ops::MaxPool2d;
//! use remat::prelude::*;
//!
//! let runtime = Runtime::builder().budget("64KiB").cpu()?;
//! let image = runtime.tensor(&[1, 1, 4, 4], (0..16).map(|i| i as f32).collect())?;
//! let edges = runtime.tensor(&[1, 1, 1, 2], vec![-1.0, 1.0])?;
//! let y = image.conv2d(&edges, Conv2d::new([1, 1], [0, 0]))?;
//! assert_eq!(y.shape(), [1, 1, 4, 3]);
//!
//! // The places of the largest elements as well, which `Tensor::max_pool2d` leaves out.
//! let pool = Pool2d { kernel: [2, 2], stride: [2, 2], padding: [0, 0] };
//! let largest = runtime.apply(MaxPool2d(pool), &[&image])?;
//! assert_eq!(largest[0].to_vec::<f32>()?, [5.0, 7.0, 13.0, 15.0]);
//! assert_eq!(largest[1].to_vec::<i32>()?, [5, 7, 13, 15]);
//! # Ok::<(), Error>(())
//! ```

mod attention;
#[cfg(feature = "serde")]
mod attributes;
mod batch_norm;
mod bf16;
mod check;
#[cfg(test)]
pub(crate) mod conformance;
mod conv2d;
mod copy;
mod cumsum;
mod custom;
mod definition;
mod elementwise;
mod gradient;
mod index;
#[cfg(feature = "serde")]
mod library;
mod losses;
mod lstm;
mod matmul;
mod norm;
mod pool;
mod random;
mod reduce;
mod resize;
mod rotary;
#[doc(hidden)]
pub mod samples;
mod softmax;
mod tensor;
#[cfg(test)]
mod tests;
mod update;
mod views;

pub(crate) use batch_norm::{ApplyStatistics, Deferred};
pub use batch_norm::{BatchNormOutput, BatchNormParameters};
pub use conv2d::{Conv1d, ConvTranspose2d};
#[doc(hidden)]
pub use custom::Custom;
pub use custom::{CudaKernel, CustomOp};
pub(crate) use gradient::Log;
pub use gradient::{Gradient, InputGradients, Recorded};
#[cfg(feature = "serde")]
pub use library::{Library, LoadOpError, NameTakenError};
pub(crate) use lstm::AfterSteps;
pub use pool::Pool2d;
pub use random::Distribution;
pub(crate) use random::unit;
#[doc(hidden)]
pub use reduce::{Extreme, Reduction};
pub use resize::Interpolation;
pub(crate) use tensor::{Home, Runs, dims};
pub use tensor::{Tensor, Tensors};

use crate::device::{DeviceError, cpu};
use crate::layout::{DType, Layout};
use crate::op::{OpError, Operation, Outputs};
use definition::{Definition, Kernel, Registered};
use samples::Sampled;

#[cfg(feature = "cuda")]
use crate::device::{
    Place,
    cuda::{self, Gpu, Libraries},
};

/// Element type in which most ops compute.
pub(crate) const FLOAT: DType = DType::F32;

/// Type that a variant of [`Op`] contains: the op itself, or a box if the op is large. Large ops
/// are boxed so that [`Op`] stays small, because each command contains an [`Op`], and commands are
/// copied.
macro_rules! held {
    ($op:ident) => { $op };
    ($op:ident in Box) => { Box<$op> };
}

/// Export of an op. An op that is no parameter of a method of [`Tensor`] is documented in
/// [`unstable`](crate::unstable) only.
macro_rules! export {
    ($family:ident $op:ident by method) => {
        pub use $family::$op;
    };
    ($family:ident $op:ident) => {
        #[doc(hidden)]
        pub use $family::$op;
    };
}

macro_rules! registry {
    ($($family:ident: $($op:ident $(in $boxed:ident)? $(by $method:ident)?),*;)*) => {
        $($(export!($family $op $(by $method)?);)*)*

        /// An op. To find an op's inputs and outputs, see the documentation of the type inside the
        /// variant.
        #[derive(Clone, Debug, PartialEq)]
        #[non_exhaustive]
        pub enum Op {
            $($(
                #[doc = concat!("See [`", stringify!($op), "`].")]
                $op(held!($op $(in $boxed)?)),
            )*)*
            /// See [`CustomOp`].
            Custom(Custom),
        }

        $($(impl From<$op> for Op {
            fn from(op: $op) -> Self {
                Self::$op(op.into())
            }
        })*)*

        impl Op {
            /// The op's own implementation of [`Definition`].
            fn definition(&self) -> &dyn Definition {
                match self {
                    $($(Self::$op(op) => op.definition(),)*)*
                    Self::Custom(op) => op,
                }
            }

            /// The op's own implementation of [`Sampled`].
            fn sampled(&self) -> &dyn Sampled {
                match self {
                    $($(Self::$op(op) => op.sampled(),)*)*
                    Self::Custom(op) => op,
                }
            }

            /// Attributes of the op as text. `None` if a custom op returns no text, or if the build
            /// lacks the feature `serde` and the op is one of the crate's ops.
            fn text(&self) -> Option<String> {
                match self {
                    $($(
                        #[cfg(feature = "serde")]
                        Self::$op(op) => Some(attributes::text(op)),
                    )*)*
                    Self::Custom(op) => op.attributes(),
                    #[cfg(not(feature = "serde"))]
                    _ => None,
                }
            }

            /// One loader for each name that an op can have.
            #[cfg(feature = "serde")]
            fn loaders() -> Vec<(String, library::Load)> {
                let mut all = Vec::new();
                $($(all.extend(<$op as Registered>::each().into_iter().map(library::loader));)*)*
                all
            }

            /// One op for each name that an op can have.
            fn each() -> Vec<Self> {
                let mut all = Vec::new();
                $($(all.extend(<$op as Registered>::each().into_iter().map(Self::from));)*)*
                all
            }
        }

        /// All files of CUDA kernels, each once.
        #[cfg(all(test, feature = "cuda"))]
        pub(crate) fn families() -> Vec<&'static cuda::Family> {
            let mut all: Vec<&'static cuda::Family> = Vec::new();
            $($(all.extend(<$op as Registered>::families());)*)*
            all.sort_unstable_by_key(|family| family.name());
            all.dedup_by_key(|family| family.name());
            all
        }
    };
}

// One line for each module. `by method` marks an op that is a parameter of a method of `Tensor`.
registry! {
    elementwise: Unary, Binary, Affine, Clamp, LeakyRelu, Powf, Where, Accumulate;
    matmul: MatMul;
    attention: Attention by method, AttentionGrad;
    lstm: LstmSteps, LstmStepsGrad;
    conv2d: Conv2d in Box by method, Conv2dGradInput in Box, Conv2dGradWeight in Box;
    batch_norm: BatchNorm, BatchNormGrad, BatchNormInfer;
    norm: LayerNorm, LayerNormGrad, RmsNorm, RmsNormGrad, GroupNorm, GroupNormGrad;
    pool: MaxPool2d in Box, MaxPool2dGrad in Box, MaxPool2dPick in Box, AvgPool2d in Box, AvgPool2dGrad in Box;
    reduce: Reduce, ArgReduce;
    cumsum: CumSum;
    resize: Resize;
    softmax: Softmax, SoftmaxGrad, LogSoftmax, LogSoftmaxGrad, CrossEntropy, CrossEntropyGrad;
    copy: Contiguous, Pad, Concat, Flip, Fill in Box;
    bf16: Cast;
    views: Reshape, Permute, Slice, Split, Broadcast;
    index: Gather, ScatterAdd, OneHot;
    random: Random in Box;
    update: SgdMomentum, AdamW, Lion;
}

impl Operation for Op {
    fn name(&self) -> &str {
        self.definition().name()
    }

    fn attributes(&self) -> Option<String> {
        self.text()
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, OpError> {
        let op = self.definition();
        let inferred = match op.inputs().check(inputs) {
            Ok(()) => op.infer(inputs),
            Err(fault) if inputs.iter().any(bf16::is_narrow) => bf16::infer(op, inputs, fault),
            Err(fault) => Err(fault),
        };
        inferred.map_err(|message| OpError::new(op.name(), message))
    }

    fn flops(&self, inputs: &[Layout], outputs: &[Layout]) -> f64 {
        self.definition().flops(inputs, outputs)
    }

    fn rematerializable(&self) -> bool {
        !matches!(self, Self::Custom(op) if op.once())
    }

    fn skipped(&self, why: &(dyn std::error::Error + 'static)) {
        if let Self::Custom(op) = self {
            op.skipped(why);
        }
    }
}

impl Op {
    /// Returns the kernels of the op; an error if the op is a view.
    fn kernel(&self) -> Result<&dyn Kernel, DeviceError> {
        self.definition()
            .kernel()
            .ok_or_else(|| DeviceError::new(format!("{} is a view and has no kernel", self.name())))
    }
}

impl cpu::Kernels for Op {
    fn updates(&self, inputs: usize) -> usize {
        self.definition().kernel().map_or(0, |kernel| kernel.updates(inputs))
    }

    fn cpu_workspace(&self, inputs: &[Layout], outputs: &[Layout]) -> u64 {
        let op = self.definition();
        let bytes = match bf16::Pieces::new(op, inputs, outputs, bf16::MOST_ON_CPU) {
            Some(pieces) => pieces.cpu_workspace(),
            None => op.kernel().map_or(0, |kernel| kernel.cpu_workspace(inputs, outputs)),
        };
        // The number of bytes may exceed the size of any memory. Limit the number to `isize::MAX`,
        // so that the request for a workspace is refused.
        bytes.min(isize::MAX as u64)
    }

    fn cpu(&self, operands: cpu::Operands<'_>) -> Result<(), DeviceError> {
        if operands.places().any(|place| bf16::is_narrow(&place.layout)) {
            let [inputs, outputs] = operands.layouts();
            let op = self.definition();
            if let Some(pieces) = bf16::Pieces::new(op, &inputs, &outputs, bf16::MOST_ON_CPU) {
                return pieces.cpu(operands);
            }
        }
        self.kernel()?.cpu(operands)
    }
}

#[cfg(feature = "cuda")]
impl cuda::Kernels for Op {
    fn cuda_workspace(&self, libraries: &Libraries, inputs: &[Layout], outputs: &[Layout]) -> u64 {
        let op = self.definition();
        let bytes = match bf16::Pieces::new(op, inputs, outputs, bf16::MOST_ON_GPU) {
            Some(pieces) => pieces.cuda_workspace(libraries),
            None => {
                op.kernel().map_or(0, |kernel| kernel.cuda_workspace(libraries, inputs, outputs))
            }
        };
        // The number of bytes may exceed the size of any memory. Limit the number to `isize::MAX`,
        // so that the request for a workspace is refused.
        bytes.min(isize::MAX as u64)
    }

    #[allow(unsafe_code)]
    unsafe fn cuda(&self, gpu: &mut Gpu, operands: &cuda::Operands<'_>) -> Result<(), DeviceError> {
        let mut places = operands.inputs.iter().chain(operands.outputs);
        if places.any(|place| bf16::is_narrow(&place.layout)) {
            let layouts = |all: &[Place]| all.iter().map(|place| place.layout).collect::<Vec<_>>();
            let [inputs, outputs] = [operands.inputs, operands.outputs].map(layouts);
            let op = self.definition();
            if let Some(pieces) = bf16::Pieces::new(op, &inputs, &outputs, bf16::MOST_ON_GPU) {
                return pieces.cuda(gpu, operands);
            }
        }
        self.kernel()?.cuda(gpu, operands)
    }
}
