//! Matrix products.

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;

use super::bf16::{Cut, Cuts, Made, longest};
use super::check::{Fault, fresh};
use super::definition::{Definition, Input, Inputs, Kernel, Registered};
use super::gradient::{Gradient, InputGradients, Recorded, sum_to};
use super::{FLOAT, Tensor};
use crate::device::{self, DeviceError};
use crate::error::Error;
use crate::layout::{Dims, Layout, MAX_RANK, broadcast_shapes};
use crate::op::Outputs;
use smallvec::smallvec;

/// `(a [.., m, k], b [.., k, n]) -> (y [.., m, n])`, the matrix product:
/// `y[i][j] = sum over l of a[i][l] * b[l][j]`.
///
/// Leading dimensions broadcast. An operand may be a transposed view, made by
/// [`Permute`](super::Permute). The op reads a transposed view without a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MatMul;

impl Tensor {
    /// Matrix product; see [`MatMul`].
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let a = runtime.tensor(&[2, 2], vec![1.0, 2.0, 3.0, 4.0])?;
    /// let b = runtime.tensor(&[2, 1], vec![10.0, 1.0])?;
    /// let y = a.matmul(&b)?;
    /// assert_eq!(y.shape(), [2, 1]);
    /// assert_eq!(y.to_vec::<f32>()?, [12.0, 34.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if a tensor does not hold floats, or has fewer than two or more than
    /// [`MAX_RANK`] dimensions. Also an error if the number of columns of this tensor is not the
    /// number of rows of `other`, or the leading dimensions do not broadcast.
    pub fn matmul(&self, other: &Self) -> Result<Self, Error> {
        Self::call1(MatMul, &[self, other])
    }
}

/// Leading dimensions, number of rows and number of columns of a batch of matrices.
fn matrix(x: &Layout, role: &str) -> Result<(Dims, usize, usize), Fault> {
    if x.rank() > MAX_RANK {
        return Err(format!(
            "{role} is {x} of rank {}, expected at most {MAX_RANK}: reshape it to fewer dimensions",
            x.rank()
        ));
    }
    match **x.shape() {
        [ref lead @ .., rows, columns] => Ok((Dims::new(lead), rows, columns)),
        _ => Err(format!("{role} is {x} of rank {}, expected at least 2", x.rank())),
    }
}

impl Definition for MatMul {
    fn name(&self) -> &str {
        "matmul"
    }

    fn inputs(&self) -> Inputs {
        Inputs::Each(const { &[Input::floats("a"), Input::floats("b")] })
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault> {
        let [a, b] = [&inputs[0], &inputs[1]];
        let (lead_a, m, k) = matrix(a, "a")?;
        let (lead_b, k_b, n) = matrix(b, "b")?;
        if k != k_b {
            return Err(format!(
                "a {} has {k} columns but b {} has {k_b} rows",
                a.shape(),
                b.shape()
            ));
        }
        let lead = broadcast_shapes(&lead_a, &lead_b).ok_or_else(|| {
            format!("leading dimensions of a {} and b {} do not broadcast", a.shape(), b.shape())
        })?;
        let mut shape = [m; MAX_RANK];
        let rank = lead.len() + 2;
        shape[..lead.len()].copy_from_slice(&lead);
        shape[rank - 1] = n;
        Ok(Outputs::fresh([fresh(FLOAT, Dims::new(&shape[..rank]))?]))
    }

    fn cuts(&self, inputs: &[Layout], outputs: &[Layout]) -> Option<Cuts> {
        let [a, b, y] = [&inputs[0], &inputs[1], &outputs[0]].map(|x| x.shape());
        let lead = y.len() - 2;
        if let Some(axis) = longest(y, lead).filter(|&axis| y[axis] > 1) {
            let cut = |x: &Dims| match (axis + x.len()).checked_sub(y.len()) {
                Some(own) if x[own] == y[axis] => Cut::Along(own),
                _ => Cut::Whole,
            };
            return Some(Cuts::new([cut(a), cut(b)], [Made::activations(Cut::Along(axis))]));
        }
        let (m, k, n) = (y[lead], a[a.len() - 1], y[lead + 1]);
        let [rows, columns] =
            [|x: &Dims| Cut::Along(x.len() - 2), |x: &Dims| Cut::Along(x.len() - 1)];
        Some(if k > m.max(n) {
            // The gradient of a weight has few elements, and each element is a long sum. Cut the
            // sums into pieces, and add up the results of the pieces.
            Cuts::new([columns(a), rows(b)], [Made::sum_of_activations()])
        } else if m >= n {
            Cuts::new([rows(a), Cut::Whole], [Made::activations(rows(y))])
        } else {
            Cuts::new([Cut::Whole, columns(b)], [Made::activations(columns(y))])
        })
    }

    fn flops(&self, inputs: &[Layout], outputs: &[Layout]) -> f64 {
        let k = inputs[0].shape()[inputs[0].rank() - 1];
        2.0 * outputs[0].elements() as f64 * k as f64
    }

    fn kernel(&self) -> Option<&dyn Kernel> {
        Some(self)
    }

    fn gradient(&self, of: &Recorded<'_>) -> Gradient {
        let reads = [of.wanted(1).then(|| of.input(0)), of.wanted(0).then(|| of.input(1))];
        let shapes = [of.shape(0), of.shape(1)];
        Gradient::of_first(move |dy| {
            let [a, b] = &reads;
            let mut gradients: InputGradients = smallvec![None, None];
            if let Some(b) = b {
                gradients[0] = Some(sum_to(&dy.matmul(&b.transpose()?)?, &shapes[0])?);
            }
            if let Some(a) = a {
                gradients[1] = Some(sum_to(&a.transpose()?.matmul(dy)?, &shapes[1])?);
            }
            Ok(gradients)
        })
    }
}

impl Kernel for MatMul {
    fn cpu(&self, mut run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
        let ([a, b], [y]) = (run.floats(), run.outputs());
        cpu::product((y, run.output(0)), (a, run.input(0)), (b, run.input(1)));
        Ok(())
    }

    #[cfg(feature = "cuda")]
    fn cuda_workspace(
        &self,
        _libraries: &device::cuda::Libraries,
        inputs: &[Layout],
        outputs: &[Layout],
    ) -> u64 {
        cuda::workspace(&inputs[0], &inputs[1], &outputs[0])
    }

    #[cfg(feature = "cuda")]
    fn cuda(
        &self,
        gpu: &mut device::cuda::Gpu,
        run: &device::cuda::Operands<'_>,
    ) -> Result<(), DeviceError> {
        cuda::product(gpu, run)
    }
}

impl Registered for MatMul {
    fn each() -> Vec<Self> {
        vec![Self]
    }

    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static crate::device::cuda::Family> {
        Vec::new()
    }
}
