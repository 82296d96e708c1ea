//! Custom ops with kernels for the cpu and for GPUs that give the same bits.

use remat::device::{DeviceError, cpu};
use remat::ops::{CudaKernel, CustomOp, Gradient, InputGradients, Recorded};
use remat::{DType, Error, Layout, Tensor};

/// `(x) -> (y, inside i32)`: `y` is `x` clamped to `low..=high`; `inside` is 1 where `x` was not
/// clamped.
#[derive(Debug)]
pub struct Clip {
    pub low: f32,
    pub high: f32,
}

impl Clip {
    pub fn of(self, x: &Tensor) -> Result<Tensor, Error> {
        Ok(Tensor::apply(self, &[x])?.swap_remove(0))
    }
}

const SOURCE: &str = r#"
extern "C" __global__ void clip(const float *x, float *y, int *inside, u64 n, float low, float high)
{
    u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    y[i] = x[i] < low ? low : x[i] > high ? high : x[i];
    inside[i] = y[i] == x[i];
}

extern "C" __global__ void clip_grad(const int *inside, const float *dy, float *dx, u64 n)
{
    u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) dx[i] = inside[i] ? dy[i] : 0.0f;
}"#;

fn like(x: &Layout, dtype: DType) -> Layout {
    Layout::contiguous(dtype, *x.shape())
}

impl CustomOp for Clip {
    fn name(&self) -> &str {
        "clip"
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Vec<Layout>, String> {
        match inputs {
            [x] if x.dtype() == DType::F32 => Ok(vec![like(x, DType::F32), like(x, DType::I32)]),
            _ => Err("takes one tensor of floats".to_owned()),
        }
    }

    fn cpu(&self, mut operands: cpu::Operands<'_>) -> Result<(), DeviceError> {
        let ([x], y) = (operands.floats(), operands.write::<f32>(0));
        let inside = operands.write::<i32>(1);
        for ((x, y), inside) in x.iter().zip(y).zip(inside) {
            *y = x.clamp(self.low, self.high);
            *inside = i32::from(*y == *x);
        }
        Ok(())
    }

    fn cuda(&self) -> Option<CudaKernel> {
        // SAFETY: `infer` gives `x`, `y` and `inside` the same number of elements. The kernel takes
        // both numbers as floats.
        Some(unsafe { CudaKernel::new(self, SOURCE, "clip", vec![self.low, self.high]) })
    }

    fn gradient(&self, of: &Recorded<'_>) -> Gradient {
        let inside = of.output(1);
        Gradient::of_one(move |dy| Ok(Tensor::apply(ClipGrad, &[&inside, dy])?.swap_remove(0)))
    }
}

/// `(inside i32, dy) -> (dx)`: `dy` where `inside` is 1, else 0.
#[derive(Debug)]
struct ClipGrad;

impl CustomOp for ClipGrad {
    fn name(&self) -> &str {
        "clip_grad"
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Vec<Layout>, String> {
        match inputs {
            [inside, dy]
                if (inside.dtype(), dy.dtype()) == (DType::I32, DType::F32)
                    && inside.shape() == dy.shape() =>
            {
                Ok(vec![like(dy, DType::F32)])
            }
            _ => Err("takes integers and as many floats".to_owned()),
        }
    }

    fn cpu(&self, mut operands: cpu::Operands<'_>) -> Result<(), DeviceError> {
        let (inside, dy) = (operands.read::<i32>(0), operands.read::<f32>(1));
        for ((inside, dy), dx) in inside.iter().zip(dy).zip(operands.write::<f32>(0)) {
            *dx = if *inside == 0 { 0.0 } else { *dy };
        }
        Ok(())
    }

    fn cuda(&self) -> Option<CudaKernel> {
        // SAFETY: `infer` refuses operands of different shapes, so `inside`, `dy` and `dx` have the
        // same number of elements.
        Some(unsafe { CudaKernel::new(self, SOURCE, "clip_grad", Vec::new()) })
    }

    fn gradient(&self, of: &Recorded<'_>) -> Gradient {
        let inside = of.input(0);
        Gradient::of_first(move |g| {
            let dx = Tensor::apply(ClipGrad, &[&inside, g])?.swap_remove(0);
            Ok(InputGradients::from_iter([None, Some(dx)]))
        })
    }
}
