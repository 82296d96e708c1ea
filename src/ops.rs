//! The ops that come with the crate: what they are called, take and give. No kernels here.
//!
//! Images are `[batch, channels, height, width]`. Inputs are f32 unless said otherwise. Elementwise
//! ops, reductions, `MatMul` and `Contiguous` take any strides; all others want contiguous inputs.

mod infer;
#[cfg(test)]
pub(crate) mod samples;
mod work;

use crate::layout::{DType, Dims};

/// A function of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unary {
    /// `-x`
    Neg,
    /// `max(x, 0)`; NaN stays NaN
    Relu,
    /// `e^x`
    Exp,
    /// natural logarithm
    Log,
    /// square root
    Sqrt,
    /// `1 / x`
    Recip,
    /// `x * x`
    Square,
    /// hyperbolic tangent
    Tanh,
    /// `1 / (1 + e^-x)`
    Sigmoid,
}

/// A function of two elements, with broadcasting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Binary {
    /// `a + b`
    Add,
    /// `a - b`
    Sub,
    /// `a * b`
    Mul,
    /// `a / b`
    Div,
    /// the larger of the two; NaN if either is
    Maximum,
    /// 1 where `a > b`, else 0
    Greater,
    /// `b` where `a > 0`, else 0: the gradient `b` of a relu whose output was `a`
    ReluGrad,
    /// `b * (1 - a^2)`: the gradient `b` of a tanh whose output was `a`
    TanhGrad,
    /// `b * a * (1 - a)`: the gradient `b` of a sigmoid whose output was `a`
    SigmoidGrad,
}

/// How a reduction joins elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reduction {
    /// Sum.
    Sum,
    /// Sum divided by the number of elements joined.
    Mean,
    /// Largest; NaN if any is.
    Max,
}

/// What random numbers are drawn from.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Distribution {
    /// Evenly from `low` (included) to `high` (excluded).
    Uniform {
        /// Smallest value.
        low: f32,
        /// Just above the largest value.
        high: f32,
    },
    /// Gaussian.
    Normal {
        /// Mean.
        mean: f32,
        /// Standard deviation.
        std: f32,
    },
    /// 1 with probability `p`, else 0.
    Bernoulli {
        /// Probability of a 1.
        p: f32,
    },
}

/// Stride and zero padding of a convolution, height first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Conv2d {
    /// Step between windows.
    pub stride: [usize; 2],
    /// Rows and columns of zeros on each side.
    pub padding: [usize; 2],
}

/// Windows of a pooling op, height first. Padding holds no elements: it never wins a maximum and does
/// not count in an average.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pool2d {
    /// Window size.
    pub kernel: [usize; 2],
    /// Step between windows.
    pub stride: [usize; 2],
    /// Rows and columns added on each side; at most half the window.
    pub padding: [usize; 2],
}

/// An op. Each variant says `(inputs) -> (outputs)`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Op {
    /// `(x) -> (y)`, elementwise.
    Unary(Unary),
    /// `(a, b) -> (y)`, elementwise with broadcasting.
    Binary(Binary),
    /// `(x) -> (x * scale + shift)`.
    Affine {
        /// Factor.
        scale: f32,
        /// Summand.
        shift: f32,
    },
    /// `(a [.., m, k], b [.., k, n]) -> ([.., m, n])`. Leading dimensions broadcast. Transposed
    /// operands are views (`Permute`), so all transposes are this one op.
    MatMul,
    /// `(x [n, c, h, w], weight [o, c, kh, kw]) -> (y [n, o, h', w'])`, with
    /// `h' = (h + 2 * padding - kh) / stride + 1`.
    Conv2d(Conv2d),
    /// `(dy, weight) -> (dx [n, c, h, w])`.
    Conv2dGradInput {
        /// The convolution.
        conv: Conv2d,
        /// Height and width of `x`.
        input: [usize; 2],
    },
    /// `(x, dy) -> (dweight [o, c, kh, kw])`.
    Conv2dGradWeight {
        /// The convolution.
        conv: Conv2d,
        /// Height and width of the kernel.
        kernel: [usize; 2],
    },
    /// `(x [n, c, ..], gamma [c], beta [c], running_mean [c], running_var [c]) -> (y, mean [c],
    /// inv_std [c], new_running_mean [c], new_running_var [c])`. Normalizes with the statistics of
    /// the batch; the running variance takes the unbiased one. Nothing is updated in place, so running
    /// it again is harmless.
    BatchNorm {
        /// Weight of this batch in the running statistics.
        momentum: f32,
        /// Added to the variance.
        eps: f32,
    },
    /// `(x, gamma, mean, inv_std, dy) -> (dx, dgamma, dbeta)`.
    BatchNormGrad,
    /// `(x [n, c, ..], gamma, beta, running_mean, running_var) -> (y)`.
    BatchNormInfer {
        /// Added to the variance.
        eps: f32,
    },
    /// `(x [n, c, h, w]) -> (y, argmax i32)`; `argmax` is the place `h * width + w` of the first
    /// largest element of each window, NaN counting as the largest.
    MaxPool2d(Pool2d),
    /// `(argmax, dy) -> (dx [n, c, h, w])`: each element of `dy` goes to its place. A place outside the
    /// image is an error of the run; one inside the image but outside its own window
    /// is not allowed, and its effect differs between devices.
    MaxPool2dGrad {
        /// The pooling.
        pool: Pool2d,
        /// Height and width of `x`.
        input: [usize; 2],
    },
    /// `(x) -> (y)`.
    AvgPool2d(Pool2d),
    /// `(dy) -> (dx [n, c, h, w])`.
    AvgPool2dGrad {
        /// The pooling.
        pool: Pool2d,
        /// Height and width of `x`.
        input: [usize; 2],
    },
    /// `(x) -> (y)`: joins all elements along `axes`, which stay as size 1 if `keep_dims`.
    Reduce {
        /// How.
        kind: Reduction,
        /// Which dimensions.
        axes: Dims,
        /// Whether the result keeps them.
        keep_dims: bool,
    },
    /// `(x) -> (y)` along the last dimension.
    Softmax,
    /// `(y, dy) -> (dx)`.
    SoftmaxGrad,
    /// `(x) -> (y)` along the last dimension.
    LogSoftmax,
    /// `(y, dy) -> (dx)`.
    LogSoftmaxGrad,
    /// `(logits [n, c], labels i32 [n]) -> (loss [], log_probs [n, c])`; the loss is the mean over the
    /// batch.
    CrossEntropy,
    /// `(log_probs, labels, dloss []) -> (dlogits)`.
    CrossEntropyGrad,
    /// `(x) -> (y)`: the same elements, packed. Any dtype.
    Contiguous,
    /// `(x) -> (view)`. `x` must be contiguous.
    Reshape {
        /// New shape.
        shape: Dims,
    },
    /// `(x) -> (view)`: dimension `i` of the result is dimension `axes[i]` of `x`.
    Permute {
        /// Order of dimensions.
        axes: Dims,
    },
    /// `(x) -> (view)`: entries `start..start + len` along `axis`.
    Slice {
        /// Which dimension.
        axis: usize,
        /// First entry.
        start: usize,
        /// Number of entries.
        len: usize,
    },
    /// `(x) -> (view)`: repeats dimensions of size 1, and adds some in front.
    Broadcast {
        /// New shape.
        shape: Dims,
    },
    /// `(x) -> (y)`: zeros before and after along `axis`.
    Pad {
        /// Which dimension.
        axis: usize,
        /// Entries in front.
        before: usize,
        /// Entries behind.
        after: usize,
    },
    /// `(x0, x1, ..) -> (y)`: one after the other along `axis`. Any dtype.
    Concat {
        /// Which dimension.
        axis: usize,
    },
    /// `(x, index i32 [n]) -> (y)`: entries `index` of `x` along `axis`. An index out of range is an
    /// error of the run.
    Gather {
        /// Which dimension.
        axis: usize,
    },
    /// `(y, index i32 [n]) -> (x)`: zeros, plus each entry of `y` added at its index along `axis`, in
    /// the order of `index`.
    ScatterAdd {
        /// Which dimension.
        axis: usize,
        /// Its size in the result.
        size: usize,
    },
    /// `() -> (y)`: one value everywhere.
    Fill {
        /// Shape of the result.
        shape: Dims,
        /// The value.
        value: f32,
    },
    /// `() -> (y)`: random numbers from Philox4x32-10 (Salmon et al., SC 2011). Key and counter are
    /// part of the op, so running it again draws the same numbers.
    Random {
        /// What from.
        distribution: Distribution,
        /// Shape of the result.
        shape: Dims,
        /// Which stream: the seed.
        key: u64,
        /// Where in the stream this tensor starts: the tensor's number.
        counter: u64,
    },
    /// `(param, velocity, grad) -> (param, velocity)`, both in place:
    /// `v = momentum * v + grad + weight_decay * p; p -= lr * v`.
    SgdMomentum {
        /// Learning rate.
        lr: f32,
        /// How much of the velocity is kept.
        momentum: f32,
        /// L2 penalty.
        weight_decay: f32,
    },
    /// `(acc, x) -> (acc)`, in place: `acc += x`, same shapes; `x` of any strides.
    Accumulate,
}

/// The names of all ops, each once. Tests and tables use it to check that they cover every op.
#[must_use]
pub const fn names() -> &'static [&'static str] {
    infer::NAMES
}

/// The dtype most ops compute in.
pub(crate) const FLOAT: DType = DType::F32;
