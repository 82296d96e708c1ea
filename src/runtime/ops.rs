//! The crate's ops as methods.

use super::{Runtime, Tensor, Tensors};
use crate::error::Error;
use crate::layout::{Dims, MAX_RANK};
use crate::op::OpError;
use crate::ops::{Binary, Conv2d, Distribution, Op, Pool2d, Reduction, Unary};

/// Something that runs the crate's ops: a [`Runtime`], or a [`Tape`](crate::autograd::Tape) that also
/// records them. Code that only needs to compute takes `&dyn Ops`.
///
/// What each op takes and gives is said at [`Op`]. Images, matrices and indices that must be contiguous
/// are packed when they are not.
///
/// # Errors
/// Each method fails if its operands do not fit, at once and with a message that names them. Failures
/// on the device are reported by the next `get` or `sync`.
#[allow(clippy::missing_errors_doc)] // Said once above, for all.
pub trait Ops {
    /// Runs an op; see [`Runtime::apply`].
    fn run(&self, op: Op, inputs: &[&Tensor]) -> Result<Tensors, Error>;

    /// Key and counter for a random op; see [`Runtime::next_random`].
    fn random_state(&self) -> (u64, u64);

    /// Makes a tensor a leaf; see [`Runtime::commit`].
    fn commit(&self, x: &Tensor) -> Result<(), Error>;

    /// Lets a handle stand for another value; see [`Runtime::replace`].
    fn replace(&self, target: &mut Tensor, value: &Tensor) -> Result<(), Error>;

    /// Runs an op and returns its first output.
    fn run1(&self, op: Op, inputs: &[&Tensor]) -> Result<Tensor, Error> {
        Ok(self.run(op, inputs)?.swap_remove(0))
    }

    /// The same tensor if it is contiguous, else a packed copy.
    fn contiguous(&self, x: &Tensor) -> Result<Tensor, Error> {
        if x.layout().is_contiguous() { Ok(x.clone()) } else { self.run1(Op::Contiguous, &[x]) }
    }

    /// `-x`
    fn neg(&self, x: &Tensor) -> Result<Tensor, Error> {
        self.run1(Op::Unary(Unary::Neg), &[x])
    }

    /// `max(x, 0)`
    fn relu(&self, x: &Tensor) -> Result<Tensor, Error> {
        self.run1(Op::Unary(Unary::Relu), &[x])
    }

    /// `e^x`
    fn exp(&self, x: &Tensor) -> Result<Tensor, Error> {
        self.run1(Op::Unary(Unary::Exp), &[x])
    }

    /// Natural logarithm.
    fn log(&self, x: &Tensor) -> Result<Tensor, Error> {
        self.run1(Op::Unary(Unary::Log), &[x])
    }

    /// Square root.
    fn sqrt(&self, x: &Tensor) -> Result<Tensor, Error> {
        self.run1(Op::Unary(Unary::Sqrt), &[x])
    }

    /// `1 / x`
    fn recip(&self, x: &Tensor) -> Result<Tensor, Error> {
        self.run1(Op::Unary(Unary::Recip), &[x])
    }

    /// `x * x`
    fn square(&self, x: &Tensor) -> Result<Tensor, Error> {
        self.run1(Op::Unary(Unary::Square), &[x])
    }

    /// Hyperbolic tangent.
    fn tanh(&self, x: &Tensor) -> Result<Tensor, Error> {
        self.run1(Op::Unary(Unary::Tanh), &[x])
    }

    /// `1 / (1 + e^-x)`
    fn sigmoid(&self, x: &Tensor) -> Result<Tensor, Error> {
        self.run1(Op::Unary(Unary::Sigmoid), &[x])
    }

    /// `a + b`, with broadcasting.
    fn add(&self, a: &Tensor, b: &Tensor) -> Result<Tensor, Error> {
        self.run1(Op::Binary(Binary::Add), &[a, b])
    }

    /// `a - b`, with broadcasting.
    fn sub(&self, a: &Tensor, b: &Tensor) -> Result<Tensor, Error> {
        self.run1(Op::Binary(Binary::Sub), &[a, b])
    }

    /// `a * b`, elementwise with broadcasting.
    fn mul(&self, a: &Tensor, b: &Tensor) -> Result<Tensor, Error> {
        self.run1(Op::Binary(Binary::Mul), &[a, b])
    }

    /// `a / b`, with broadcasting.
    fn div(&self, a: &Tensor, b: &Tensor) -> Result<Tensor, Error> {
        self.run1(Op::Binary(Binary::Div), &[a, b])
    }

    /// The larger of the two, with broadcasting.
    fn maximum(&self, a: &Tensor, b: &Tensor) -> Result<Tensor, Error> {
        self.run1(Op::Binary(Binary::Maximum), &[a, b])
    }

    /// `x * scale + shift`
    fn affine(&self, x: &Tensor, scale: f32, shift: f32) -> Result<Tensor, Error> {
        self.run1(Op::Affine { scale, shift }, &[x])
    }

    /// Matrix product of the last two dimensions; leading ones broadcast.
    fn matmul(&self, a: &Tensor, b: &Tensor) -> Result<Tensor, Error> {
        self.run1(Op::MatMul, &[a, b])
    }

    /// Convolution of images with a kernel `[out, in, height, width]`.
    fn conv2d(&self, x: &Tensor, weight: &Tensor, conv: Conv2d) -> Result<Tensor, Error> {
        self.run1(Op::Conv2d(conv), &[&self.contiguous(x)?, &self.contiguous(weight)?])
    }

    /// Batch normalization by the statistics of the batch: `[y, mean, inv_std, running_mean,
    /// running_var]`, the last two updated.
    fn batch_norm(
        &self,
        x: &Tensor,
        [gamma, beta, running_mean, running_var]: [&Tensor; 4],
        momentum: f32,
        eps: f32,
    ) -> Result<[Tensor; 5], Error> {
        let x = self.contiguous(x)?;
        let inputs = [&x, gamma, beta, running_mean, running_var];
        let outputs = self.run(Op::BatchNorm { momentum, eps }, &inputs)?;
        Ok(outputs.into_vec().try_into().expect("batch norm has five outputs"))
    }

    /// Batch normalization by given statistics.
    fn batch_norm_infer(
        &self,
        x: &Tensor,
        [gamma, beta, mean, var]: [&Tensor; 4],
        eps: f32,
    ) -> Result<Tensor, Error> {
        self.run1(Op::BatchNormInfer { eps }, &[&self.contiguous(x)?, gamma, beta, mean, var])
    }

    /// Largest element of each window.
    fn max_pool2d(&self, x: &Tensor, pool: Pool2d) -> Result<Tensor, Error> {
        self.run1(Op::MaxPool2d(pool), &[&self.contiguous(x)?])
    }

    /// Mean of each window.
    fn avg_pool2d(&self, x: &Tensor, pool: Pool2d) -> Result<Tensor, Error> {
        self.run1(Op::AvgPool2d(pool), &[&self.contiguous(x)?])
    }

    /// Mean over height and width: `[n, c, h, w]` to `[n, c]`.
    fn global_avg_pool(&self, x: &Tensor) -> Result<Tensor, Error> {
        self.reduce(x, Reduction::Mean, &[2, 3], false)
    }

    /// Joins all elements along `axes`.
    fn reduce(
        &self,
        x: &Tensor,
        kind: Reduction,
        axes: &[usize],
        keep_dims: bool,
    ) -> Result<Tensor, Error> {
        let axes = dims("reduce", axes)?;
        self.run1(Op::Reduce { kind, axes, keep_dims }, &[x])
    }

    /// Sum of all elements, as a scalar.
    fn sum(&self, x: &Tensor) -> Result<Tensor, Error> {
        self.reduce(x, Reduction::Sum, &all_axes(x), false)
    }

    /// Mean of all elements, as a scalar.
    fn mean(&self, x: &Tensor) -> Result<Tensor, Error> {
        self.reduce(x, Reduction::Mean, &all_axes(x), false)
    }

    /// Softmax along the last dimension.
    fn softmax(&self, x: &Tensor) -> Result<Tensor, Error> {
        self.run1(Op::Softmax, &[&self.contiguous(x)?])
    }

    /// Logarithm of the softmax along the last dimension.
    fn log_softmax(&self, x: &Tensor) -> Result<Tensor, Error> {
        self.run1(Op::LogSoftmax, &[&self.contiguous(x)?])
    }

    /// Mean cross entropy of logits `[n, c]` against labels `[n]`, as a scalar.
    fn cross_entropy(&self, logits: &Tensor, labels: &Tensor) -> Result<Tensor, Error> {
        self.run1(Op::CrossEntropy, &[&self.contiguous(logits)?, &self.contiguous(labels)?])
    }

    /// The same elements under another shape: a view if `x` is contiguous, of a packed copy otherwise.
    fn reshape(&self, x: &Tensor, shape: &[usize]) -> Result<Tensor, Error> {
        let shape = dims("reshape", shape)?;
        self.run1(Op::Reshape { shape }, &[&self.contiguous(x)?])
    }

    /// A view with dimensions reordered.
    fn permute(&self, x: &Tensor, axes: &[usize]) -> Result<Tensor, Error> {
        let axes = dims("permute", axes)?;
        self.run1(Op::Permute { axes }, &[x])
    }

    /// A view with the last two dimensions swapped.
    fn transpose(&self, x: &Tensor) -> Result<Tensor, Error> {
        let mut axes = all_axes(x);
        let n = axes.len();
        if n >= 2 {
            axes.swap(n - 1, n - 2);
        }
        self.permute(x, &axes)
    }

    /// A view of entries `start..start + len` along `axis`.
    fn slice(&self, x: &Tensor, axis: usize, start: usize, len: usize) -> Result<Tensor, Error> {
        self.run1(Op::Slice { axis, start, len }, &[x])
    }

    /// A view that repeats dimensions of size 1.
    fn broadcast(&self, x: &Tensor, shape: &[usize]) -> Result<Tensor, Error> {
        let shape = dims("broadcast", shape)?;
        self.run1(Op::Broadcast { shape }, &[x])
    }

    /// Zeros before and after along `axis`.
    fn pad(&self, x: &Tensor, axis: usize, before: usize, after: usize) -> Result<Tensor, Error> {
        self.run1(Op::Pad { axis, before, after }, &[&self.contiguous(x)?])
    }

    /// One after the other along `axis`.
    fn concat(&self, parts: &[&Tensor], axis: usize) -> Result<Tensor, Error> {
        let parts =
            parts.iter().map(|part| self.contiguous(part)).collect::<Result<Vec<_>, _>>()?;
        self.run1(Op::Concat { axis }, &parts.iter().collect::<Vec<_>>())
    }

    /// Entries `index` of `x` along `axis`.
    fn gather(&self, x: &Tensor, index: &Tensor, axis: usize) -> Result<Tensor, Error> {
        self.run1(Op::Gather { axis }, &[&self.contiguous(x)?, &self.contiguous(index)?])
    }

    /// Zeros of size `size` along `axis`, with each entry of `y` added at its index.
    fn scatter_add(
        &self,
        y: &Tensor,
        index: &Tensor,
        axis: usize,
        size: usize,
    ) -> Result<Tensor, Error> {
        self.run1(Op::ScatterAdd { axis, size }, &[&self.contiguous(y)?, &self.contiguous(index)?])
    }

    /// One value everywhere.
    fn full(&self, shape: &[usize], value: f32) -> Result<Tensor, Error> {
        let shape = dims("fill", shape)?;
        self.run1(Op::Fill { shape, value }, &[])
    }

    /// Random numbers; drawn again they are the same.
    fn random(&self, shape: &[usize], distribution: Distribution) -> Result<Tensor, Error> {
        let shape = dims("random", shape)?;
        let (key, counter) = self.random_state();
        self.run1(Op::Random { distribution, shape, key, counter }, &[])
    }

    /// Zeroes each element with probability `p`, and scales the others by `1 / (1 - p)`.
    fn dropout(&self, x: &Tensor, p: f32) -> Result<Tensor, Error> {
        if !(0.0..=1.0).contains(&p) {
            return Err(OpError::new("dropout", format!("p is {p}, not a probability")).into());
        }
        let kept = self.random(x.shape(), Distribution::Bernoulli { p: 1.0 - p })?;
        let scale = if p < 1.0 { 1.0 / (1.0 - p) } else { 0.0 };
        self.mul(x, &self.affine(&kept, scale, 0.0)?)
    }
}

impl Ops for Runtime {
    fn run(&self, op: Op, inputs: &[&Tensor]) -> Result<Tensors, Error> {
        self.apply(op, inputs)
    }

    fn random_state(&self) -> (u64, u64) {
        self.next_random()
    }

    fn commit(&self, x: &Tensor) -> Result<(), Error> {
        Self::commit(self, x)
    }

    fn replace(&self, target: &mut Tensor, value: &Tensor) -> Result<(), Error> {
        Self::replace(self, target, value)
    }
}

fn all_axes(x: &Tensor) -> Vec<usize> {
    (0..x.shape().len()).collect()
}

fn dims(op: &str, values: &[usize]) -> Result<Dims, Error> {
    Dims::try_new(values).ok_or_else(|| {
        let message = format!(
            "{values:?} has {} dimensions, but at most {} are supported",
            values.len(),
            MAX_RANK
        );
        OpError::new(op, message).into()
    })
}
