//! *Rooms*: modules outside of the stable API, for adapters, tests and researchers. A room may
//! change in any version.
//!
//! All other modules keep their names and meanings until the next minor version, as Cargo expects
//! of versions that begin with 0. A program that uses a room should pin the version: `remat =
//! "=0.2.0"`.
//!
//! | room | contents |
//! |---|---|
//! | [`engine`] | the state machine: one thread, no clock; generic over the device and the ops |
//! | [`graph`] | the engine's tables: storages, compute paths, and the edges between them |
//! | [`event`] | the engine's events, for every [`Listener`](crate::Listener) |
//! | [`program`] | the command language of runtimes, recordings and the lab, and its [`Driver`](program::Driver) |
//! | [`step`] | a step that repeats, as a value |
//! | [`collective`] | ops in which all ranks of one training take part |
//! | [`ops`] | each op as a value, and samples of all ops |
//! | [`nn`] | networks of papers, as `remat train` trains them |
//! | `data` | data for some of these networks (feature `data`) |
//! | [`evict`] | the evictors and policies of this crate; forecasts |
//! | `files` | files that are read or written as a whole (feature `serde`) |
//! | [`device`] | parts of the devices of this crate |
//! | `tune` | rehearsals, from which a tuner of one's own can be built (feature `lab`) |
//! | `lab` | replays and sweeps of recordings, and plots of them (feature `lab`) |
//! | [`bound`] | lower bounds of the recomputation at a budget |
//! | [`plan`] | buffers of a step known ahead, and the best places for them |
//! | [`memory`] | a best-fit arena over offsets, which can be used by itself |

#[cfg(feature = "lab")]
#[doc(inline)]
pub use crate::lab;
#[doc(inline)]
pub use crate::{bound, collective, command, engine, event, graph, memory, plan, program, step};

/// Each op as a value for [`Runtime::apply`](crate::Runtime::apply) and
/// [`Command::Apply`](crate::program::Command::Apply), and samples of all ops.
pub mod ops {
    #[doc(inline)]
    pub use crate::ops::{
        Accumulate, AdamW, Affine, ArgReduce, AttentionGrad, AvgPool2d, AvgPool2dGrad, BatchNorm,
        BatchNormGrad, BatchNormInfer, Binary, Broadcast, Cast, Clamp, Concat, Contiguous,
        Conv2dGradInput, Conv2dGradWeight, CrossEntropy, CrossEntropyGrad, CumSum, Custom, Extreme,
        Fill, Flip, Gather, GroupNorm, GroupNormGrad, LayerNorm, LayerNormGrad, LeakyRelu, Lion,
        LogSoftmax, LogSoftmaxGrad, LstmSteps, LstmStepsGrad, MatMul, MaxPool2d, MaxPool2dGrad,
        MaxPool2dPick, OneHot, Pad, Permute, Powf, Random, Reduce, Reduction, Reshape, Resize,
        RmsNorm, RmsNormGrad, ScatterAdd, SgdMomentum, Slice, Softmax, SoftmaxGrad, Split, Unary,
        Where, samples,
    };
}

/// Networks of papers, as `remat train` trains them.
pub mod nn {
    #[doc(inline)]
    pub use crate::nn::{
        DenseNet, GanLoss, LARGE_IMAGE, LstmSize, UNet, UnrolledGan, UnrolledGanSize, Upsampling,
        VisionTransformer, Vit, densenet, densenet121, inceptionv4, lstm, unet, vit,
    };
    #[cfg(feature = "data")]
    #[doc(inline)]
    pub use crate::nn::{TreeLstm, TreeLstmSize};
}

/// Data for networks of papers: trees with labels, and points on a ring.
#[cfg(feature = "data")]
pub mod data {
    #[doc(inline)]
    pub use crate::data::{Ring, Tree, TreeBatch, Trees};
}

/// The evictors and policies of this crate, which [`PolicyKind`](crate::PolicyKind) names; lower
/// bounds of scores, for fast policies; forecasts of a known step.
pub mod evict {
    #[doc(inline)]
    pub use crate::evict::{
        Aging, Around, Belady, ByStep, Clock, Coop, EvictAtRandom, Floors, Forecast, ForecastError,
        Foresight, Formula, Learned, LockHubs, Lowered, MegEngine, MegEngineArticle, NeverEvict,
        Ranking, Setting,
    };
}

/// Rehearsals, from which a tuner of one's own can be built.
#[cfg(feature = "lab")]
pub mod tune {
    #[doc(inline)]
    pub use crate::tune::{Rehearsal, Rehearsed, SimOf};
}

/// Parts of the devices of this crate.
pub mod device {
    /// Parts of the processor.
    pub mod cpu {
        #[doc(inline)]
        pub use crate::device::cpu::{Kernels, Team};
    }

    /// Parts of the device for NVIDIA GPUs.
    #[cfg(feature = "cuda")]
    pub mod cuda {
        #[doc(inline)]
        pub use crate::device::cuda::{
            Context, Cuda, Gpu, Kernels, Libraries, Library, Operands, libraries,
        };
    }
}

/// Files that are read or written as a whole.
#[cfg(feature = "serde")]
pub mod files {
    #[doc(inline)]
    pub use crate::files::{WholeFile, read_whole, unpacked};
}
