use super::{cpu, length};
use crate::device::{self, DeviceError};
use crate::error::Error;
use crate::layout::{DType, Dims, Layout};
use crate::op::Outputs;
use crate::ops::check::{Fault, fresh, rank, shaped};
use crate::ops::definition::{Definition, Input, Inputs, Kernel, Registered, TRANSCENDENTAL};
use crate::ops::gradient::{Gradient, Recorded};
use crate::ops::{FLOAT, Tensor};
use smallvec::smallvec;

#[cfg(feature = "cuda")]
use super::cuda;

/// `(logits [n, c], labels i32 [n]) -> (loss [], log_probs [n, c])`: mean cross entropy.
///
/// `log_probs = logits - ln sum e^logits` along the last dimension. A label lies in `0..c`, or is
/// `ignore_index`, which leaves the row out of the loss. The loss is the mean of `-sum_j t[j]
/// log_probs[i, j]` over the rows `i` that are not left out. The target `t` is `label_smoothing /
/// c`, plus `1 - label_smoothing` at the label. If all labels are `ignore_index`, the loss is NaN.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
// Old recordings, made before this op had attributes, contain no attributes for it.
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct CrossEntropy {
    /// Part of each label's probability that is spread evenly over all classes, from 0 to 1
    /// (Szegedy et al., CVPR 2016).
    #[cfg_attr(feature = "serde", serde(with = "crate::ops::attributes::float"))]
    pub label_smoothing: f32,
    /// Label of the rows that are left out of the loss.
    pub ignore_index: i32,
}

/// Default attributes, as in PyTorch: no smoothing, and an `ignore_index` of -100.
impl Default for CrossEntropy {
    fn default() -> Self {
        Self { label_smoothing: 0.0, ignore_index: -100 }
    }
}

/// `(log_probs [n, c], labels i32 [n], dloss []) -> (dlogits [n, c])`: gradient of
/// [`CrossEntropy`].
///
/// The gradient is `(e^log_probs - t) dloss / count`, and 0 in rows whose label is `ignore_index`.
/// `log_probs` is the second output of [`CrossEntropy`], and `count` is the number of labels other
/// than `ignore_index`.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct CrossEntropyGrad {
    /// See [`CrossEntropy`].
    #[cfg_attr(feature = "serde", serde(with = "crate::ops::attributes::float"))]
    pub label_smoothing: f32,
    /// See [`CrossEntropy`].
    pub ignore_index: i32,
}

/// Attributes of a default [`CrossEntropy`].
impl Default for CrossEntropyGrad {
    fn default() -> Self {
        let CrossEntropy { label_smoothing, ignore_index } = CrossEntropy::default();
        Self { label_smoothing, ignore_index }
    }
}

/// Target probabilities of a row, computed from the row's label.
#[derive(Clone, Copy, Debug)]
pub(super) struct Targets {
    /// Probability that the class of the label gets in addition to `off`.
    pub on: f32,
    /// Probability that every class gets, including the class of the label.
    pub off: f32,
    /// Label of the rows that are left out of the loss.
    pub ignore: i32,
}

impl Targets {
    fn new(smoothing: f32, ignore: i32, classes: usize) -> Self {
        Self { on: 1.0 - smoothing, off: smoothing / classes.max(1) as f32, ignore }
    }
}

/// Fails unless the label smoothing is from 0 to 1.
fn share(smoothing: f32) -> Result<(), Fault> {
    if (0.0..=1.0).contains(&smoothing) {
        Ok(())
    } else {
        Err(format!("label_smoothing is {smoothing}, expected between 0 and 1"))
    }
}

impl Tensor {
    /// Mean cross entropy of the logits `[n, c]` in this tensor and labels `[n]` in `0..c`, as a
    /// scalar.
    ///
    /// Rows with a label of -100 are left out of the mean.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let logits = runtime.zeros(&[2, 4])?;
    /// let labels = runtime.tensor(&[2], vec![0, 3])?;
    /// let loss = logits.cross_entropy(&labels)?.item()?;
    /// assert!((loss - 4f32.ln()).abs() < 1e-6);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if this tensor is not a matrix of floats, or `labels` does not have one
    /// integer for each row. If a label other than -100 is outside `0..c`, the op fails when it
    /// runs.
    pub fn cross_entropy(&self, labels: &Self) -> Result<Self, Error> {
        self.cross_entropy_with(labels, CrossEntropy::default())
    }

    /// Mean cross entropy with smoothed labels, or with another `ignore_index`.
    ///
    /// ```
    /// use remat::unstable::ops::CrossEntropy;
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("64KiB").cpu()?;
    /// let logits = runtime.tensor(&[2, 3], vec![2.0, 0.0, 1.0, 0.0, 3.0, 0.0])?;
    /// let labels = runtime.tensor(&[2], vec![0, -1])?;
    /// let with = CrossEntropy { label_smoothing: 0.1, ignore_index: -1 };
    /// let loss = logits.cross_entropy_with(&labels, with)?.item()?;
    /// assert!((loss - 0.507_606).abs() < 1e-5);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Errors of [`Tensor::cross_entropy`], and [`Error::Op`] if the smoothing is not from 0 to 1.
    pub fn cross_entropy_with(&self, labels: &Self, with: CrossEntropy) -> Result<Self, Error> {
        // Convert all logits to f32 first. An op on bf16 could run in pieces, but cross entropy
        // cannot, because the mean over all rows is not a sum of the results of pieces.
        Self::call1(with, &[&self.cast(FLOAT)?, labels])
    }
}

impl Definition for CrossEntropy {
    fn name(&self) -> &str {
        "cross_entropy"
    }

    fn inputs(&self) -> Inputs {
        Inputs::Each(const { &[Input::packed("logits"), Input::packed_ints("labels")] })
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault> {
        share(self.label_smoothing)?;
        let [logits, labels] = [&inputs[0], &inputs[1]];
        let [n, _] = rank(logits, "logits")?;
        shaped(labels, "labels", DType::I32, &[n])?;
        Ok(Outputs::fresh([fresh(FLOAT, Dims::SCALAR)?, fresh(FLOAT, *logits.shape())?]))
    }

    fn flops(&self, inputs: &[Layout], _outputs: &[Layout]) -> f64 {
        inputs[0].elements() as f64 * (TRANSCENDENTAL + 4.0)
    }

    fn kernel(&self) -> Option<&dyn Kernel> {
        Some(self)
    }

    fn gradient(&self, of: &Recorded<'_>) -> Gradient {
        if !of.wanted(0) {
            return Gradient::zero();
        }
        let reads = [of.input(1), of.output(1)];
        let Self { label_smoothing, ignore_index } = *self;
        let grad = CrossEntropyGrad { label_smoothing, ignore_index };
        Gradient::of_all(move |dys| {
            let [labels, log_probs] = &reads;
            let of_loss = |dloss| Tensor::call1(grad, &[log_probs, labels, dloss]);
            let of_log_probs = |dy| Tensor::call1(super::LogSoftmaxGrad, &[log_probs, dy]);
            let dx = match (&dys[0], &dys[1]) {
                (Some(dloss), Some(dy)) => Some(of_loss(dloss)?.add(&of_log_probs(dy)?)?),
                (Some(dloss), None) => Some(of_loss(dloss)?),
                (None, Some(dy)) => Some(of_log_probs(dy)?),
                (None, None) => None,
            };
            Ok(smallvec![dx])
        })
    }
}

impl Kernel for CrossEntropy {
    fn cpu(&self, mut run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
        let ([logits], labels, [loss, log_probs]) = (run.floats(), run.read(1), run.outputs());
        let classes = length(run.input(0));
        let targets = Targets::new(self.label_smoothing, self.ignore_index, classes);
        cpu::cross_entropy(&mut loss[0], log_probs, logits, labels, classes, targets)
    }

    #[cfg(feature = "cuda")]
    fn cuda_workspace(
        &self,
        _libraries: &device::cuda::Libraries,
        inputs: &[Layout],
        _outputs: &[Layout],
    ) -> u64 {
        cuda::workspace(&inputs[0])
    }

    #[cfg(feature = "cuda")]
    fn cuda(
        &self,
        gpu: &mut device::cuda::Gpu,
        run: &device::cuda::Operands<'_>,
    ) -> Result<(), DeviceError> {
        let scratch = device::cuda::Scratch::of(gpu, run);
        let [loss, log_probs] = [&run.outputs[0], &run.outputs[1]];
        let [logits, labels] = [&run.inputs[0], &run.inputs[1]];
        let classes = length(&logits.layout);
        let targets = Targets::new(self.label_smoothing, self.ignore_index, classes);
        cuda::cross_entropy(gpu, [loss, log_probs], logits, labels, targets, scratch)
    }
}

impl Registered for CrossEntropy {
    fn each() -> Vec<Self> {
        vec![Self::default()]
    }

    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static crate::device::cuda::Family> {
        vec![&cuda::FAMILY]
    }
}

impl Definition for CrossEntropyGrad {
    fn name(&self) -> &str {
        "cross_entropy_grad"
    }

    fn inputs(&self) -> Inputs {
        Inputs::Each(
            const { &[Input::packed("log_probs"), Input::packed_ints("labels"), Input::packed("dloss")] },
        )
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault> {
        share(self.label_smoothing)?;
        let [log_probs, labels, dloss] = [&inputs[0], &inputs[1], &inputs[2]];
        let [n, _] = rank(log_probs, "log_probs")?;
        shaped(labels, "labels", DType::I32, &[n])?;
        shaped(dloss, "dloss", FLOAT, &[])?;
        Ok(Outputs::fresh([fresh(FLOAT, *log_probs.shape())?]))
    }

    fn flops(&self, _inputs: &[Layout], outputs: &[Layout]) -> f64 {
        outputs[0].elements() as f64 * (TRANSCENDENTAL + 1.0)
    }

    fn kernel(&self) -> Option<&dyn Kernel> {
        Some(self)
    }

    fn gradient(&self, of: &Recorded<'_>) -> Gradient {
        let (op, log_probs, labels) = (*self, of.input(0), of.input(1));
        let dloss = of.wanted(0).then(|| of.input(2));
        let dloss_wanted = of.wanted(2);
        Gradient::of_first(move |g| {
            // The gradient of the logits is `dloss` times the slope `(e^log_probs - t) / count`.
            let slope = Tensor::call1(op, &[&log_probs, &labels, &log_probs.scalar(1.0)?])?;
            let of_log_probs = dloss.as_ref().map(|dloss| {
                // Call the op with log-probabilities of -1e4, so that `e^log_probs` is 0 and the
                // result is `-t / count`. The slope minus `-t / count` is `e^log_probs / count`.
                let none = log_probs.scalar(-1e4)?.broadcast(log_probs.shape())?;
                let targets = Tensor::call1(op, &[&none, &labels, &log_probs.scalar(1.0)?])?;
                slope.sub(&targets)?.mul(g)?.mul(dloss)
            });
            let of_dloss = dloss_wanted.then(|| g.mul(&slope)?.sum());
            Ok(smallvec![of_log_probs.transpose()?, None, of_dloss.transpose()?])
        })
    }
}

impl Kernel for CrossEntropyGrad {
    fn cpu(&self, mut run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
        let (log_probs, labels, dloss) = (run.read(0), run.read(1), run.read::<f32>(2));
        let ([dx], classes) = (run.outputs(), length(run.input(0)));
        let targets = Targets::new(self.label_smoothing, self.ignore_index, classes);
        cpu::cross_entropy_grad(dx, log_probs, labels, dloss[0], classes, targets)
    }

    #[cfg(feature = "cuda")]
    fn cuda_workspace(
        &self,
        _libraries: &device::cuda::Libraries,
        _inputs: &[Layout],
        _outputs: &[Layout],
    ) -> u64 {
        cuda::WORKSPACE_OF_GRAD
    }

    #[cfg(feature = "cuda")]
    fn cuda(
        &self,
        gpu: &mut device::cuda::Gpu,
        run: &device::cuda::Operands<'_>,
    ) -> Result<(), DeviceError> {
        let scratch = device::cuda::Scratch::of(gpu, run);
        let inputs = [&run.inputs[0], &run.inputs[1], &run.inputs[2]];
        let classes = length(&inputs[0].layout);
        let targets = Targets::new(self.label_smoothing, self.ignore_index, classes);
        cuda::cross_entropy_grad(gpu, &run.outputs[0], inputs, targets, scratch)
    }
}

impl Registered for CrossEntropyGrad {
    fn each() -> Vec<Self> {
        vec![Self::default()]
    }

    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static crate::device::cuda::Family> {
        vec![&cuda::FAMILY]
    }
}
