//! Elementwise functions of one tensor.

use super::{cpu, like_input};
use crate::device::cpu::math;
use crate::device::{self, DeviceError};
use crate::error::Error;
use crate::layout::Layout;
use crate::op::Outputs;
use crate::ops::Tensor;
use crate::ops::bf16::Cuts;
use crate::ops::check::Fault;
use crate::ops::definition::{Definition, Input, Inputs, Kernel, Registered, TRANSCENDENTAL};
use crate::ops::gradient::{Gradient, Recorded};

/// Defines the functions of one tensor, one function for each row of the table. A row has:
///
/// - the formula;
/// - the variant of the enum, and the name of the method;
/// - flops per element;
/// - the code of the function of `x`: on the CPU, in CUDA C++, and in f64 for tests;
/// - the gradient, given `dy`; if the formula of the gradient reads `x` or `y`, also the name of
///   that operand.
///
/// A row has `zero` in place of the gradient if the gradient is zero everywhere.
macro_rules! unary {
    ($(
        $(#[$doc:meta])*
        $function:ident $name:ident: $flops:expr,
            $cpu:expr,
            $cuda:literal,
            $exact:expr,
            [$($gradient:tt)*];
    )*) => {
        /// `(x) -> (y)`: an elementwise function.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
        #[non_exhaustive]
        pub enum Unary {
            $($(#[$doc])* $function,)*
        }

        impl Unary {
            /// Computes the function in f64, for tests.
            ///
            /// ```
            /// use remat::unstable::ops::Unary;
            ///
            /// assert_eq!(Unary::Square.exact(3.0), 9.0);
            /// ```
            #[must_use]
            pub fn exact(self, x: f64) -> f64 {
                let f: fn(f64) -> f64 = match self {
                    $(Self::$function => $exact,)*
                };
                f(x)
            }

            #[cfg(feature = "cuda")]
            const fn kernels(self) -> super::cuda::Names {
                match self {
                    $(Self::$function => super::cuda::names!($name),)*
                }
            }
        }

        impl Definition for Unary {
            fn name(&self) -> &str {
                match self {
                    $(Self::$function => stringify!($name),)*
                }
            }

            fn inputs(&self) -> Inputs {
                Inputs::Each(const { &[Input::floats("x")] })
            }

            fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault> {
                like_input(inputs)
            }

            fn cuts(&self, inputs: &[Layout], outputs: &[Layout]) -> Option<Cuts> {
                Some(Cuts::elementwise(inputs, &outputs[0]))
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
        }

        impl Kernel for Unary {
            fn cpu(&self, mut run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
                let ([x], [y], layout) = (run.floats(), run.outputs(), run.input(0));
                match self {
                    $(Self::$function => cpu::map(y, x, layout, $cpu),)*
                }
                Ok(())
            }

            #[cfg(feature = "cuda")]
            fn cuda(
                &self,
                gpu: &mut device::cuda::Gpu,
                run: &device::cuda::Operands<'_>,
            ) -> Result<(), DeviceError> {
                super::cuda::map(&FAMILY, gpu, self.kernels(), &run.outputs[0], [&run.inputs[0]], None)
            }
        }

        impl Registered for Unary {
            fn each() -> Vec<Self> {
                vec![$(Self::$function),*]
            }

            #[cfg(all(test, feature = "cuda"))]
            fn families() -> Vec<&'static crate::device::cuda::Family> {
                vec![&FAMILY]
            }
        }

        #[cfg(feature = "cuda")]
        static FAMILY: device::cuda::Family = device::cuda::Family::new(
            "unary",
            concat!(
                include_str!("elementwise.cu"),
                $("UNARY(", stringify!($name), ", ", $cuda, ")\n",)*
            ),
        );

        impl Tensor {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// [`Error::Op`] if this tensor does not hold floats.
                pub fn $name(&self) -> Result<Tensor, Error> {
                    Self::call1(Unary::$function, &[self])
                }
            )*
        }
    };
}

/// Makes the gradient rule of a row of the table.
macro_rules! gradient {
    ($of:ident, zero) => {
        Gradient::zero()
    };
    ($of:ident, |$dy:ident $(, $read:ident)?| $gradient:expr) => {{
        $(let $read = read!($of, $read);)?
        Gradient::of_one(move |$dy| $gradient)
    }};
}

/// Value that a gradient reads: the input `x` or the output `y`.
macro_rules! read {
    ($of:ident, x) => {
        $of.input(0)
    };
    ($of:ident, y) => {
        $of.output(0)
    };
}

unary! {
    /// Negation: `-x`.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[2], vec![1.0, -2.0])?;
    /// assert_eq!(x.neg()?.to_vec::<f32>()?, [-1.0, 2.0]);
    /// # Ok::<(), Error>(())
    /// ```
    Neg neg: 1.0,
        #[inline(always)] |x| -x,
        "-x",
        |x| -x,
        [|dy| dy.neg()];
    /// Rectifier: `max(x, 0)`; NaN stays NaN.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[2], vec![-1.0, 2.0])?;
    /// assert_eq!(x.relu()?.to_vec::<f32>()?, [0.0, 2.0]);
    /// # Ok::<(), Error>(())
    /// ```
    Relu relu: 1.0,
        math::relu,
        "x < 0.0f ? 0.0f : x",
        |x| if x > 0.0 { x } else { 0.0 },
        [|dy, y| y.relu_grad(dy)];
    /// Exponential: `e^x`.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// assert_eq!(runtime.zeros(&[2])?.exp()?.to_vec::<f32>()?, [1.0, 1.0]);
    /// # Ok::<(), Error>(())
    /// ```
    Exp exp: TRANSCENDENTAL,
        math::exp,
        "expf(x)",
        f64::exp,
        [|dy, y| dy.mul(&y)];
    /// Natural logarithm.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// assert_eq!(runtime.ones(&[2])?.log()?.to_vec::<f32>()?, [0.0, 0.0]);
    /// # Ok::<(), Error>(())
    /// ```
    Log log: TRANSCENDENTAL,
        f32::ln,
        "logf(x)",
        f64::ln,
        [|dy, x| dy.div(&x)];
    /// Square root.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[2], vec![4.0, 9.0])?;
    /// assert_eq!(x.sqrt()?.to_vec::<f32>()?, [2.0, 3.0]);
    /// # Ok::<(), Error>(())
    /// ```
    Sqrt sqrt: 1.0,
        f32::sqrt,
        "sqrtf(x)",
        f64::sqrt,
        [|dy, y| dy.div(&y)?.affine(0.5, 0.0)];
    /// Reciprocal: `1 / x`.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[2], vec![2.0, 4.0])?;
    /// assert_eq!(x.recip()?.to_vec::<f32>()?, [0.5, 0.25]);
    /// # Ok::<(), Error>(())
    /// ```
    Recip recip: 1.0,
        f32::recip,
        "1.0f / x",
        |x| 1.0 / x,
        [|dy, y| dy.mul(&y.square()?)?.neg()];
    /// Square: `x * x`.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[2], vec![3.0, -2.0])?;
    /// assert_eq!(x.square()?.to_vec::<f32>()?, [9.0, 4.0]);
    /// # Ok::<(), Error>(())
    /// ```
    Square square: 1.0,
        #[inline(always)] |x| x * x,
        "x * x",
        |x| x * x,
        [|dy, x| dy.mul(&x)?.affine(2.0, 0.0)];
    /// Hyperbolic tangent.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[2], vec![0.0, 100.0])?;
    /// assert_eq!(x.tanh()?.to_vec::<f32>()?, [0.0, 1.0]);
    /// # Ok::<(), Error>(())
    /// ```
    Tanh tanh: TRANSCENDENTAL,
        math::tanh,
        "tanhf(x)",
        f64::tanh,
        [|dy, y| y.tanh_grad(dy)];
    /// Logistic function: `1 / (1 + e^-x)`.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[2], vec![0.0, 100.0])?;
    /// assert_eq!(x.sigmoid()?.to_vec::<f32>()?, [0.5, 1.0]);
    /// # Ok::<(), Error>(())
    /// ```
    Sigmoid sigmoid: TRANSCENDENTAL,
        math::sigmoid,
        "1.0f / (1.0f + expf(-x))",
        |x| 1.0 / (1.0 + (-x).exp()),
        [|dy, y| y.sigmoid_grad(dy)];
    /// `x * sigmoid(x)` (Elfwing, Uchibe and Doya, 2017), also known as swish.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[2], vec![0.0, 100.0])?;
    /// assert_eq!(x.silu()?.to_vec::<f32>()?, [0.0, 100.0]);
    /// # Ok::<(), Error>(())
    /// ```
    Silu silu: TRANSCENDENTAL + 1.0,
        math::silu,
        "x / (1.0f + expf(-x))",
        |x| x / (1.0 + (-x).exp()),
        [|dy, x| x.silu_grad(dy)];
    /// `x` times the cumulative distribution function of the standard normal distribution at `x`
    /// (Hendrycks and Gimpel, 2016).
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[2], vec![0.0, 10.0])?;
    /// assert_eq!(x.gelu()?.to_vec::<f32>()?, [0.0, 10.0]);
    /// # Ok::<(), Error>(())
    /// ```
    Gelu gelu: TRANSCENDENTAL + 2.0,
        math::gelu,
        "0.5f * x * erfcf(-0.70710678f * x)",
        |x| 0.5 * x * math::exact::erfc(-x * std::f64::consts::FRAC_1_SQRT_2),
        [|dy, x| x.gelu_grad(dy)];
    /// `x * sigmoid(2 u)`, where `u = sqrt(2 / pi) * (x + 0.044715 * x^3)`: the usual approximation
    /// of [`gelu`](Tensor::gelu).
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[2], vec![0.0, 10.0])?;
    /// assert_eq!(x.gelu_tanh()?.to_vec::<f32>()?, [0.0, 10.0]);
    /// # Ok::<(), Error>(())
    /// ```
    GeluTanh gelu_tanh: TRANSCENDENTAL + 5.0,
        math::gelu_tanh,
        "x / (1.0f + expf(-x * (1.5957692f + 0.071354814f * x * x)))",
        |x| x / (1.0 + (-x * (1.595_769_121_605_730_8 + 0.071_354_816_272_600_25 * x * x)).exp()),
        [|dy, x| x.gelu_tanh_grad(dy)];
    /// Smooth rectifier: `ln(1 + e^x)`.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let y = runtime.zeros(&[1])?.softplus()?;
    /// assert!((y.item()? - 2f32.ln()).abs() < 1e-6);
    /// # Ok::<(), Error>(())
    /// ```
    Softplus softplus: 2.0 * TRANSCENDENTAL,
        math::softplus,
        "(x < 0.0f ? 0.0f : x) + log1pf(expf(-fabsf(x)))",
        |x| x.max(0.0) + (-x.abs()).exp().ln_1p(),
        [|dy, x| x.sigmoid()?.mul(dy)];
    /// Error function.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[2], vec![0.0, 10.0])?;
    /// assert_eq!(x.erf()?.to_vec::<f32>()?, [0.0, 1.0]);
    /// # Ok::<(), Error>(())
    /// ```
    Erf erf: TRANSCENDENTAL,
        math::erf,
        "erff(x)",
        math::exact::erf,
        [|dy, x| dy.mul(&x.square()?.neg()?.exp()?.affine(std::f32::consts::FRAC_2_SQRT_PI, 0.0)?)];
    /// Absolute value.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[2], vec![-2.0, 3.0])?;
    /// assert_eq!(x.abs()?.to_vec::<f32>()?, [2.0, 3.0]);
    /// # Ok::<(), Error>(())
    /// ```
    Abs abs: 1.0,
        f32::abs,
        "fabsf(x)",
        f64::abs,
        [|dy, x| dy.mul(&x.sign()?)];
    /// Sign: 1 where `x > 0`, -1 where `x < 0`, else `x`, which is zero or NaN.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[3], vec![-2.0, 0.0, 3.0])?;
    /// assert_eq!(x.sign()?.to_vec::<f32>()?, [-1.0, 0.0, 1.0]);
    /// # Ok::<(), Error>(())
    /// ```
    Sign sign: 1.0,
        #[inline(always)] |x: f32| if x > 0.0 { 1.0 } else if x < 0.0 { -1.0 } else { x },
        "x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x",
        |x| if x > 0.0 { 1.0 } else if x < 0.0 { -1.0 } else { x },
        [zero];
    /// Sine of an angle in radians.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[2], vec![0.0, std::f32::consts::FRAC_PI_2])?;
    /// assert_eq!(x.sin()?.to_vec::<f32>()?, [0.0, 1.0]);
    /// # Ok::<(), Error>(())
    /// ```
    Sin sin: TRANSCENDENTAL,
        math::sin,
        "sinf(x)",
        f64::sin,
        [|dy, x| dy.mul(&x.cos()?)];
    /// Cosine of an angle in radians.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[2], vec![0.0, std::f32::consts::PI])?;
    /// assert_eq!(x.cos()?.to_vec::<f32>()?, [1.0, -1.0]);
    /// # Ok::<(), Error>(())
    /// ```
    Cos cos: TRANSCENDENTAL,
        math::cos,
        "cosf(x)",
        f64::cos,
        [|dy, x| dy.mul(&x.sin()?)?.neg()];
}
