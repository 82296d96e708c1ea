//! Elementwise functions of two tensors, with broadcasting.

use super::{cpu, like_both};
use crate::device::cpu::math;
use crate::device::{self, DeviceError};
use crate::error::Error;
use crate::layout::{Dims, Layout};
use crate::op::Outputs;
use crate::ops::check::Fault;
use crate::ops::definition::{Definition, Input, Inputs, Kernel, Registered};
use crate::ops::gradient::{Gradient, InputGradients, Recorded, sum_to};
use crate::ops::samples::{Draw, SHAPES, Sample, arranged, floats, turned};
use crate::ops::{Op, Tensor};
use smallvec::smallvec;

/// A row of the table: formula; variant and method; flops per element; the function of `a` and `b` on the CPU, in CUDA
/// C++, and in f64 for tests; and the gradients with respect to `a` and `b`, given `dy`, with those of `a`, `b` and `y`
/// that they read. `zero` instead: the gradient is zero everywhere.
macro_rules! binary {
    ($(
        $(#[$doc:meta])*
        $function:ident $name:ident: $flops:expr,
            $cpu:expr,
            $cuda:literal,
            $exact:expr,
            [$($gradient:tt)*];
    )*) => {
        /// `(a, b) -> (y)`: an elementwise function of two tensors, with broadcasting.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
        #[non_exhaustive]
        pub enum Binary {
            $($(#[$doc])* $function,)*
        }

        impl Binary {
            /// The function in f64, for tests.
            #[must_use]
            pub fn exact(self, a: f64, b: f64) -> f64 {
                let f: fn(f64, f64) -> f64 = match self {
                    $(Self::$function => $exact,)*
                };
                f(a, b)
            }

            #[cfg(feature = "cuda")]
            const fn kernels(self) -> super::cuda::Names {
                match self {
                    $(Self::$function => super::cuda::names!($name),)*
                }
            }
        }

        impl Definition for Binary {
            fn name(&self) -> &str {
                match self {
                    $(Self::$function => stringify!($name),)*
                }
            }

            fn inputs(&self) -> Inputs {
                Inputs::Each(const { &[Input::floats("a"), Input::floats("b")] })
            }

            fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault> {
                like_both(inputs)
            }

            fn flops(&self, _inputs: &[Layout], outputs: &[Layout]) -> f64 {
                let flops: f64 = match self {
                    $(Self::$function => $flops,)*
                };
                outputs[0].elements() as f64 * flops
            }

            fn kernel(&self) -> Option<&dyn Kernel> {
                Some(self)
            }

            fn gradient(&self, of: &Recorded<'_>) -> Gradient {
                match self {
                    $(Self::$function => gradient!(of, $($gradient)*),)*
                }
            }

            fn samples(&self) -> Vec<Sample> {
                let large = [1023, 512];
                let mut all = vec![
                    Sample::new(*self, [floats(&large), floats(&large)]),
                    Sample::new(*self, [turned(&large), floats(&[1])]),
                ];
                if *self == Self::Add {
                    for shape in SHAPES {
                        for x in arranged(shape) {
                            all.push(Sample::new(*self, [x.clone(), floats(shape)]));
                            all.push(Sample::new(*self, [floats(&[]), x]));
                        }
                    }
                }
                all
            }

            fn draw(&self, draw: &mut Draw) -> Sample {
                let shape = draw.shape(0, 4);
                let [a, b] = [draw.part(&shape), draw.part(&shape)];
                let b = if *self == Self::Div { b.positive() } else { b };
                Sample::new(*self, [a, b])
            }

            fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
                let shape = draw.absurd_dims();
                let part = Dims::new(&shape[draw.below(shape.len() + 1)..]);
                let inputs = [shape, part].map(|shape| Layout::contiguous(crate::ops::FLOAT, shape));
                ((*self).into(), inputs.into())
            }
        }

        impl Kernel for Binary {
            fn cpu(&self, mut run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
                let ([a, b], [y]) = (run.floats(), run.outputs());
                let (y, a, b) = ((y, run.output(0)), (a, run.input(0)), (b, run.input(1)));
                match self {
                    $(Self::$function => cpu::zip(y, a, b, $cpu),)*
                }
                Ok(())
            }

            #[cfg(feature = "cuda")]
            fn cuda(
                &self,
                gpu: &mut device::cuda::Gpu,
                run: &device::cuda::Operands<'_>,
            ) -> Result<(), DeviceError> {
                let [a, b] = [&run.inputs[0], &run.inputs[1]];
                super::cuda::map(&FAMILY, gpu, self.kernels(), &run.outputs[0], [a, b], None)
            }
        }

        impl Registered for Binary {
            fn each() -> Vec<Self> {
                vec![$(Self::$function),*]
            }

            #[cfg(all(test, feature = "cuda"))]
            fn families() -> Vec<&'static crate::device::cuda::Family> {
                vec![&FAMILY]
            }
        }

        #[cfg(feature = "cuda")]
        pub(super) static FAMILY: device::cuda::Family = device::cuda::Family::new(
            "binary",
            concat!(
                include_str!("elementwise.cu"),
                $("BINARY(", stringify!($name), ", ", $cuda, ")\n",)*
            ),
        );

        impl Tensor {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// If either does not hold floats, or they do not broadcast to one shape.
                pub fn $name(&self, other: &Tensor) -> Result<Tensor, Error> {
                    Self::call1(Binary::$function, &[self, other])
                }
            )*
        }
    };
}

/// The gradient with respect to each operand for which it is wanted, summed to the operand's shape.
macro_rules! gradient {
    ($of:ident, zero) => {
        Gradient::zero()
    };
    ($of:ident, $a:tt, $b:tt) => {{
        let (a, b) = (one!($of, 0, $a), one!($of, 1, $b));
        Gradient::of_first(move |dy| Ok(smallvec![a(dy)?, b(dy)?]) as Result<InputGradients, Error>)
    }};
}

/// The gradient with respect to one operand.
macro_rules! one {
    ($of:ident, $i:literal, zero) => {
        |_: &Tensor| -> Result<Option<Tensor>, Error> { Ok(None) }
    };
    ($of:ident, $i:literal, (|$dy:ident $(, $read:ident)*| $gradient:expr)) => {{
        let shape = $of.shape($i);
        let reads = $of.wanted($i).then(|| ($(read!($of, $read),)*));
        move |$dy: &Tensor| -> Result<Option<Tensor>, Error> {
            let Some(($($read,)*)) = &reads else { return Ok(None) };
            sum_to(&$gradient?, &shape).map(Some)
        }
    }};
}

macro_rules! read {
    ($of:ident, a) => {
        $of.input(0)
    };
    ($of:ident, b) => {
        $of.input(1)
    };
    ($of:ident, y) => {
        $of.output(0)
    };
}

binary! {
    /// `a + b`
    Add add: 1.0,
        #[inline(always)] |a, b| a + b,
        "a + b",
        |a, b| a + b,
        [(|dy| Ok(dy.clone()) as Result<_, Error>), (|dy| Ok(dy.clone()) as Result<_, Error>)];
    /// `a - b`
    Sub sub: 1.0,
        #[inline(always)] |a, b| a - b,
        "a - b",
        |a, b| a - b,
        [(|dy| Ok(dy.clone()) as Result<_, Error>), (|dy| dy.neg())];
    /// `a * b`
    Mul mul: 1.0,
        #[inline(always)] |a, b| a * b,
        "a * b",
        |a, b| a * b,
        [(|dy, b| dy.mul(b)), (|dy, a| dy.mul(a))];
    /// `a / b`
    Div div: 1.0,
        #[inline(always)] |a, b| a / b,
        "a / b",
        |a, b| a / b,
        [(|dy, b| dy.div(b)), (|dy, y, b| dy.mul(y)?.div(b)?.neg())];
    /// the larger of `a` and `b`, NaN if either is; where they are equal, `a` receives the gradient
    Maximum maximum: 1.0,
        math::larger,
        "Larger()(a, b)",
        f64::max,
        [
            (|dy, a, b| dy.mul(&b.greater(a)?.affine(-1.0, 1.0)?)),
            (|dy, a, b| dy.mul(&b.greater(a)?))
        ];
    /// 1 where `a > b`, else 0
    Greater greater: 1.0,
        #[inline(always)] |a, b| f32::from(u8::from(a > b)),
        "a > b ? 1.0f : 0.0f",
        |a, b| if a > b { 1.0 } else { 0.0 },
        [zero];
    /// `b` where `a > 0`, else 0: the gradient of a relu, for its output `a` and the output's gradient `b`
    ReluGrad relu_grad: 1.0,
        #[inline(always)] |a, b| if a > 0.0 { b } else { 0.0 },
        "a > 0.0f ? b : 0.0f",
        |a, b| if a > 0.0 { b } else { 0.0 },
        [zero, (|dy, a| a.relu_grad(dy))];
    /// `b * (1 - a^2)`: the gradient of a tanh, for its output `a` and the output's gradient `b`
    TanhGrad tanh_grad: 3.0,
        #[inline(always)] |a, b| b * (1.0 - a * a),
        "b * (1.0f - a * a)",
        |a, b| b * (1.0 - a * a),
        [(|dy, a, b| dy.mul(b)?.mul(a)?.affine(-2.0, 0.0)), (|dy, a| a.tanh_grad(dy))];
    /// `b * a * (1 - a)`: the gradient of a sigmoid, for its output `a` and the output's gradient `b`
    SigmoidGrad sigmoid_grad: 3.0,
        #[inline(always)] |a, b| b * a * (1.0 - a),
        "b * a * (1.0f - a)",
        |a, b| b * a * (1.0 - a),
        [(|dy, a, b| dy.mul(b)?.mul(&a.affine(-2.0, 1.0)?)), (|dy, a| a.sigmoid_grad(dy))];
}
