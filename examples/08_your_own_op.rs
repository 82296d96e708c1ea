//! A custom op for the CPU and for NVIDIA GPUs: `x * sigmoid(beta * x)` in one pass over memory
//! instead of three. The op has a gradient, so it works on a tape and under a budget like the
//! crate's ops.
//!
//! `cargo run --release --example 08_your_own_op`

use remat::Layout;
use remat::device::{DeviceError, cpu};
use remat::ops::{CudaKernel, CustomOp, Gradient, Recorded};
use remat::prelude::*;

/// `(x) -> (x * sigmoid(beta * x))`: swish (Ramachandran et al., 2017).
#[derive(Debug)]
struct Swish {
    beta: f32,
}

impl CustomOp for Swish {
    fn name(&self) -> &str {
        "swish"
    }

    // Parameters as text. From the name and this text, a recording can construct the op.
    fn attributes(&self) -> Option<String> {
        Some(self.beta.to_string())
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Vec<Layout>, String> {
        match inputs {
            [x] if x.dtype() == DType::F32 => Ok(vec![Layout::contiguous(DType::F32, *x.shape())]),
            _ => Err("takes one tensor of floats".to_owned()),
        }
    }

    fn cpu(&self, mut operands: cpu::Operands<'_>) -> Result<(), DeviceError> {
        let ([x], [y]) = (operands.floats(), operands.outputs());
        for (x, y) in x.iter().zip(y) {
            *y = x / (1.0 + (-self.beta * x).exp());
        }
        Ok(())
    }

    fn cuda(&self) -> Option<CudaKernel> {
        const SOURCE: &str = r#"
            extern "C" __global__ void swish(const float *x, float *y, u64 n, float beta)
            {
                u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
                if (i < n) y[i] = x[i] / (1.0f + expf(-beta * x[i]));
            }"#;
        // SAFETY: the kernel's parameters are an input, an output, their number of elements and one
        // float, as `CudaKernel` passes them. The kernel accesses only elements below that number.
        Some(unsafe { CudaKernel::new(self, SOURCE, "swish", vec![self.beta]) })
    }

    // dx = dy * (s + beta * x * s * (1 - s)), with s = sigmoid(beta * x)
    fn gradient(&self, of: &Recorded<'_>) -> Gradient {
        let (beta, x) = (self.beta, of.input(0));
        Gradient::of_one(move |dy| {
            let s = (&x * beta)?.sigmoid()?;
            let bend = s.sigmoid_grad(&x)? * beta;
            dy * (&s + bend)
        })
    }
}

/// `x` times the sigmoid of `beta` times `x`.
///
/// # Errors
///
/// An error if the elements of `x` are not floats.
pub fn swish(x: &Tensor, beta: f32) -> Result<Tensor, Error> {
    Ok(Tensor::apply(Swish { beta }, &[x])?.swap_remove(0))
}

/// Computes the gradient through thirty-two layers.
fn work(runtime: &Runtime) -> Result<Vec<f32>, Error> {
    let mut w = runtime.normal(&[64, 64], 0.0, 0.2)?;
    let tape = Tape::new(runtime);
    tape.watch(&mut w);
    let mut y = runtime.normal(&[256, 64], 0.0, 1.0)?;
    for _ in 0..32 {
        y = swish(&y.matmul(&w)?, 1.5)?;
    }
    let loss = y.mean()?;
    drop(y);
    let gradients = tape.backward(&loss)?;
    gradients.get(&w).expect("the loss depends on w").to_vec()
}

fn main() -> Result<(), Error> {
    let plenty = Runtime::builder().cpu()?;
    let expected = work(&plenty)?;
    let peak = plenty.stats()?.peak_bytes;

    let runtime = Runtime::builder().budget(peak * 2 / 5).cpu()?;
    let gradient = work(&runtime)?;
    let stats = runtime.stats()?;
    println!("gradient {:?} ..", &gradient[..3]);
    println!("{} of {peak} bytes, {} ops run again", stats.peak_bytes, stats.recomputed_ops);
    assert_eq!(gradient, expected);
    assert!(stats.recomputed_ops > 0);
    Ok(())
}
