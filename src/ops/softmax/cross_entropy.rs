use super::{ROWS, cpu, length};
use crate::device::{self, DeviceError};
use crate::error::Error;
use crate::layout::{DType, Dims, Layout};
use crate::op::Outputs;
use crate::ops::check::{Fault, fresh, rank, shaped};
use crate::ops::definition::{Definition, Input, Inputs, Kernel, Registered, TRANSCENDENTAL};
use crate::ops::gradient::{Gradient, Recorded};
use crate::ops::samples::{Draw, Operand, Sample, floats, ints};
use crate::ops::{FLOAT, Fill, Op, Tensor};
use smallvec::smallvec;

#[cfg(feature = "cuda")]
use super::cuda;

/// `(logits [n, c], labels i32 [n]) -> (loss [], log_probs [n, c])`: the loss is the mean over the batch of
/// `-log_probs[i, labels[i]]`, where `log_probs = logits - ln sum e^logits` along the last dimension. Labels are in
/// `0..c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct CrossEntropy;

/// `(log_probs [n, c], labels i32 [n], dloss []) -> (dlogits [n, c])`: the gradient
/// `(e^log_probs - [j == labels[i]]) dloss / n` of a [`CrossEntropy`] with second output `log_probs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct CrossEntropyGrad;

impl Tensor {
    /// Mean cross entropy of these logits `[n, c]` and labels `[n]` in `0..c`, as a scalar.
    ///
    /// # Errors
    /// If it is not a matrix of floats, or `labels` does not have an integer per row. A label outside `0..c` makes the
    /// run fail.
    pub fn cross_entropy(&self, labels: &Self) -> Result<Self, Error> {
        Self::call1(CrossEntropy, &[self, labels])
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
        Gradient::of_all(move |dys| {
            let [labels, log_probs] = &reads;
            let of_loss = |dloss| Tensor::call1(CrossEntropyGrad, &[log_probs, labels, dloss]);
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

    fn samples(&self) -> Vec<Sample> {
        samples(|logits, labels| Sample::new(*self, [logits, labels]))
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        let (logits, labels) = drawn(draw);
        Sample::new(*self, [logits, labels])
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        ((*self).into(), absurd(draw).into())
    }
}

impl Kernel for CrossEntropy {
    fn cpu(&self, mut run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
        let ([logits], labels, [loss, log_probs]) = (run.floats(), run.read(1), run.outputs());
        cpu::cross_entropy(&mut loss[0], log_probs, logits, labels, length(run.input(0)))
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
        cuda::cross_entropy(gpu, loss, log_probs, &run.inputs[0], &run.inputs[1], scratch)
    }
}

impl Registered for CrossEntropy {
    fn each() -> Vec<Self> {
        vec![Self]
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
        let (log_probs, rows) = (of.input(0), of.shape(0)[0]);
        let dloss = of.wanted(0).then(|| of.input(2));
        let labels = of.wanted(2).then(|| of.input(1));
        Gradient::of_first(move |g| {
            // e^log_probs g dloss / n
            let of_log_probs = dloss.as_ref().map(|dloss| {
                let scale = dloss.affine(1.0 / rows as f32, 0.0)?;
                log_probs.exp()?.mul(g)?.mul(&scale)
            });
            // It is linear in dloss: sum the product of g and the gradient for a dloss of 1.
            let of_dloss = labels.as_ref().map(|labels| {
                let fill = Fill { shape: Dims::SCALAR, value: 1.0 };
                let one = log_probs.runs()?.apply(fill.into(), &[])?.swap_remove(0);
                g.mul(&Tensor::call1(Self, &[&log_probs, labels, &one])?)?.sum()
            });
            Ok(smallvec![of_log_probs.transpose()?, None, of_dloss.transpose()?])
        })
    }

    fn samples(&self) -> Vec<Sample> {
        samples(|log_probs, labels| Sample::new(*self, [log_probs, labels, floats(&[])]))
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        let (log_probs, labels) = drawn(draw);
        Sample::new(*self, [log_probs, labels, draw.packed([])])
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        let [log_probs, labels] = absurd(draw);
        let dloss = Layout::contiguous(FLOAT, Dims::SCALAR);
        ((*self).into(), vec![log_probs, labels, dloss])
    }
}

impl Kernel for CrossEntropyGrad {
    fn cpu(&self, mut run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
        let (log_probs, labels, dloss) = (run.read(0), run.read(1), run.read::<f32>(2));
        let [dx] = run.outputs();
        cpu::cross_entropy_grad(dx, log_probs, labels, dloss[0], length(run.input(0)))
    }

    #[cfg(feature = "cuda")]
    fn cuda(
        &self,
        gpu: &mut device::cuda::Gpu,
        run: &device::cuda::Operands<'_>,
    ) -> Result<(), DeviceError> {
        let [log_probs, labels, dloss] = [&run.inputs[0], &run.inputs[1], &run.inputs[2]];
        cuda::cross_entropy_grad(gpu, &run.outputs[0], log_probs, labels, dloss)
    }
}

impl Registered for CrossEntropyGrad {
    fn each() -> Vec<Self> {
        vec![Self]
    }

    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static crate::device::cuda::Family> {
        vec![&cuda::FAMILY]
    }
}

/// Samples with logits and labels. Without classes there are no labels.
fn samples(sample: impl Fn(Operand, Operand) -> Sample) -> Vec<Sample> {
    let with_classes = ROWS.iter().filter(|[_, classes]| *classes > 0);
    with_classes.map(|&[n, classes]| sample(floats(&[n, classes]), ints(&[n], classes))).collect()
}

/// Logits and labels of random sizes.
fn drawn(draw: &mut Draw) -> (Operand, Operand) {
    let classes = draw.size();
    let n = if classes == 0 { 0 } else { draw.size() };
    (draw.packed([n, classes]), ints(&[n], classes))
}

/// Logits and labels of absurd sizes.
fn absurd(draw: &mut Draw) -> [Layout; 2] {
    let [n, classes] = draw.absurd_pair();
    [Layout::contiguous(FLOAT, [n, classes]), Layout::contiguous(DType::I32, [n])]
}
