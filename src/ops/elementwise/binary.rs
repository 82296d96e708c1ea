//! Elementwise functions of two tensors, with broadcasting.

use super::{cpu, like_both};
use crate::device::cpu::math;
use crate::device::{self, DeviceError};
use crate::error::Error;
use crate::layout::Layout;
use crate::op::Outputs;
use crate::ops::Tensor;
use crate::ops::bf16::Cuts;
use crate::ops::check::Fault;
use crate::ops::definition::{Definition, Input, Inputs, Kernel, Registered, TRANSCENDENTAL};
use crate::ops::gradient::{Gradient, InputGradients, Recorded, sum_to};
use smallvec::smallvec;

/// Defines the functions of two tensors, one function for each row of the table. A row has:
///
/// - the formula;
/// - the variant of the enum, and the name of the method;
/// - flops per element;
/// - the code of the function of `a` and `b`: on the CPU, in CUDA C++, and in f64 for tests;
/// - the gradients with respect to `a` and `b`, given `dy`; each gradient lists the operands among
///   `a`, `b` and `y` that its formula reads.
///
/// A row has `zero` in place of the gradients if both gradients are zero everywhere.
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
            /// Computes the function in f64, for tests.
            ///
            /// ```
            /// use remat::unstable::ops::Binary;
            ///
            /// assert_eq!(Binary::Maximum.exact(1.0, 5.0), 5.0);
            /// ```
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
                include_str!("binary.cu"),
                $("BINARY(", stringify!($name), ", ", $cuda, ")\n",)*
            ),
        );

        impl Tensor {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// [`Error::Op`] if a tensor does not hold floats, or the shapes do not broadcast.
                pub fn $name(&self, other: &Tensor) -> Result<Tensor, Error> {
                    Self::call1(Binary::$function, &[self, other])
                }
            )*
        }
    };
}

/// Makes the gradient rule of a row. The rule computes the wanted gradients, and sums each gradient
/// over the dimensions along which the operand was broadcast.
macro_rules! gradient {
    ($of:ident, zero) => {
        Gradient::zero()
    };
    ($of:ident, $a:tt, $b:tt) => {{
        let (a, b) = (one!($of, 0, $a), one!($of, 1, $b));
        Gradient::of_first(move |dy| Ok(smallvec![a(dy)?, b(dy)?]) as Result<InputGradients, Error>)
    }};
}

/// Gradient with respect to one operand.
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

/// Gradient of a maximum for its operand `a`, given `dy`.
///
/// The gradient is `dy` where `a` is larger than `b`, half of `dy` where `a` and `b` are equal, and
/// zero where `a` is less than `b`. A plain product with `dy` would be NaN where `a` is less than
/// `b` and `dy` is infinite; here the gradient is zero.
fn unless_less(dy: &Tensor, a: &Tensor, b: &Tensor) -> Result<Tensor, Error> {
    // Comparisons with NaN are false, so `share` is 1 if `a` or `b` is NaN. Each operand then
    // receives all of `dy`.
    let share = b.gt(a)?.add(&b.ge(a)?)?.affine(-0.5, 1.0)?;
    share.relu_grad(dy)?.mul(&share)
}

binary! {
    /// `a + b`
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[2, 2], vec![1.0, 2.0, 3.0, 4.0])?;
    /// let row = runtime.tensor(&[2], vec![10.0, 20.0])?;
    /// assert_eq!(x.add(&row)?.to_vec::<f32>()?, [11.0, 22.0, 13.0, 24.0]);
    /// # Ok::<(), Error>(())
    /// ```
    Add add: 1.0,
        #[inline(always)] |a, b| a + b,
        "a + b",
        |a, b| a + b,
        [(|dy| Ok(dy.clone()) as Result<_, Error>), (|dy| Ok(dy.clone()) as Result<_, Error>)];
    /// `a - b`
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let a = runtime.tensor(&[2], vec![5.0, 7.0])?;
    /// let b = runtime.tensor(&[2], vec![1.0, 2.0])?;
    /// assert_eq!(a.sub(&b)?.to_vec::<f32>()?, [4.0, 5.0]);
    /// # Ok::<(), Error>(())
    /// ```
    Sub sub: 1.0,
        #[inline(always)] |a, b| a - b,
        "a - b",
        |a, b| a - b,
        [(|dy| Ok(dy.clone()) as Result<_, Error>), (|dy| dy.neg())];
    /// `a * b`
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let a = runtime.tensor(&[2], vec![2.0, 3.0])?;
    /// let b = runtime.tensor(&[2], vec![4.0, 5.0])?;
    /// assert_eq!(a.mul(&b)?.to_vec::<f32>()?, [8.0, 15.0]);
    /// # Ok::<(), Error>(())
    /// ```
    Mul mul: 1.0,
        #[inline(always)] |a, b| a * b,
        "a * b",
        |a, b| a * b,
        [(|dy, b| dy.mul(b)), (|dy, a| dy.mul(a))];
    /// `a / b`
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let a = runtime.tensor(&[2], vec![6.0, 8.0])?;
    /// let b = runtime.tensor(&[2], vec![2.0, 16.0])?;
    /// assert_eq!(a.div(&b)?.to_vec::<f32>()?, [3.0, 0.5]);
    /// # Ok::<(), Error>(())
    /// ```
    Div div: 1.0,
        #[inline(always)] |a, b| a / b,
        "a / b",
        |a, b| a / b,
        [(|dy, b| dy.div(b)), (|dy, y, b| dy.mul(y)?.div(b)?.neg())];
    /// The larger of `a` and `b`; NaN if `a` or `b` is NaN. Where `a` and `b` are equal, each
    /// operand receives half of the gradient.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let a = runtime.tensor(&[2], vec![1.0, 5.0])?;
    /// let b = runtime.tensor(&[2], vec![3.0, 2.0])?;
    /// assert_eq!(a.maximum(&b)?.to_vec::<f32>()?, [3.0, 5.0]);
    /// # Ok::<(), Error>(())
    /// ```
    Maximum maximum: 1.0,
        math::larger,
        "Larger()(a, b)",
        f64::max,
        [(|dy, a, b| unless_less(dy, a, b)), (|dy, a, b| unless_less(dy, b, a))];
    /// The smaller of `a` and `b`; NaN if `a` or `b` is NaN. Where `a` and `b` are equal, each
    /// operand receives half of the gradient.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let a = runtime.tensor(&[2], vec![1.0, 5.0])?;
    /// let b = runtime.tensor(&[2], vec![3.0, 2.0])?;
    /// assert_eq!(a.minimum(&b)?.to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), Error>(())
    /// ```
    Minimum minimum: 1.0,
        math::smaller,
        "Smaller()(a, b)",
        f64::min,
        [(|dy, a, b| unless_less(dy, b, a)), (|dy, a, b| unless_less(dy, a, b))];
    /// `a` to the power of `b`. As in C, `a^0` and `1^b` are 1 even if `a` or `b` is NaN. A
    /// negative `a` to a power that is not an integer is NaN.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let a = runtime.tensor(&[2], vec![2.0, 3.0])?;
    /// let b = runtime.tensor(&[2], vec![3.0, 2.0])?;
    /// assert_eq!(a.pow(&b)?.to_vec::<f32>()?, [8.0, 9.0]);
    /// # Ok::<(), Error>(())
    /// ```
    Pow pow: 2.0 * TRANSCENDENTAL,
        math::pow,
        "powf(a, b)",
        f64::powf,
        [
            (|dy, a, b| {
                let slope = b.mul(&a.pow(&b.affine(1.0, -1.0)?)?)?;
                dy.mul(&slope.masked_fill(&b.eq(&b.scalar(0.0)?)?, 0.0)?)
            }),
            (|dy, a, b, y| {
                let zero = a.scalar(0.0)?;
                // The derivative of `0^b` with respect to `b` is 0 for `b >= 0`.
                let still = a.eq(&zero)?.mul(&b.ge(&zero)?)?;
                dy.mul(&y.mul(&a.log()?)?.masked_fill(&still, 0.0)?)
            })
        ];
    /// 1 where `a == b`, else 0.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[3], vec![1.0, 2.0, 3.0])?;
    /// let two = runtime.full(&[1], 2.0)?;
    /// assert_eq!(x.eq(&two)?.to_vec::<f32>()?, [0.0, 1.0, 0.0]);
    /// # Ok::<(), Error>(())
    /// ```
    Eq eq: 1.0,
        #[inline(always)] |a, b| f32::from(u8::from(a == b)),
        "a == b ? 1.0f : 0.0f",
        |a, b| f64::from(u8::from(a == b)),
        [zero];
    /// 1 where `a != b`, else 0.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[3], vec![1.0, 2.0, 3.0])?;
    /// let two = runtime.full(&[1], 2.0)?;
    /// assert_eq!(x.ne(&two)?.to_vec::<f32>()?, [1.0, 0.0, 1.0]);
    /// # Ok::<(), Error>(())
    /// ```
    Ne ne: 1.0,
        #[inline(always)] |a, b| f32::from(u8::from(a != b)),
        "a != b ? 1.0f : 0.0f",
        |a, b| f64::from(u8::from(a != b)),
        [zero];
    /// 1 where `a < b`, else 0.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[3], vec![1.0, 2.0, 3.0])?;
    /// let two = runtime.full(&[1], 2.0)?;
    /// assert_eq!(x.lt(&two)?.to_vec::<f32>()?, [1.0, 0.0, 0.0]);
    /// # Ok::<(), Error>(())
    /// ```
    Lt lt: 1.0,
        #[inline(always)] |a, b| f32::from(u8::from(a < b)),
        "a < b ? 1.0f : 0.0f",
        |a, b| f64::from(u8::from(a < b)),
        [zero];
    /// 1 where `a <= b`, else 0.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[3], vec![1.0, 2.0, 3.0])?;
    /// let two = runtime.full(&[1], 2.0)?;
    /// assert_eq!(x.le(&two)?.to_vec::<f32>()?, [1.0, 1.0, 0.0]);
    /// # Ok::<(), Error>(())
    /// ```
    Le le: 1.0,
        #[inline(always)] |a, b| f32::from(u8::from(a <= b)),
        "a <= b ? 1.0f : 0.0f",
        |a, b| f64::from(u8::from(a <= b)),
        [zero];
    /// 1 where `a > b`, else 0.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[3], vec![1.0, 2.0, 3.0])?;
    /// let two = runtime.full(&[1], 2.0)?;
    /// assert_eq!(x.gt(&two)?.to_vec::<f32>()?, [0.0, 0.0, 1.0]);
    /// # Ok::<(), Error>(())
    /// ```
    Gt gt: 1.0,
        #[inline(always)] |a, b| f32::from(u8::from(a > b)),
        "a > b ? 1.0f : 0.0f",
        |a, b| f64::from(u8::from(a > b)),
        [zero];
    /// 1 where `a >= b`, else 0.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[3], vec![1.0, 2.0, 3.0])?;
    /// let two = runtime.full(&[1], 2.0)?;
    /// assert_eq!(x.ge(&two)?.to_vec::<f32>()?, [0.0, 1.0, 1.0]);
    /// # Ok::<(), Error>(())
    /// ```
    Ge ge: 1.0,
        #[inline(always)] |a, b| f32::from(u8::from(a >= b)),
        "a >= b ? 1.0f : 0.0f",
        |a, b| f64::from(u8::from(a >= b)),
        [zero];
    /// `b` where `a > 0`, else 0. The function is the gradient of a relu, where `a` is the relu's
    /// output and `b` is the gradient of the output.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let y = runtime.tensor(&[2], vec![0.0, 2.0])?;
    /// let dy = runtime.tensor(&[2], vec![5.0, 5.0])?;
    /// assert_eq!(y.relu_grad(&dy)?.to_vec::<f32>()?, [0.0, 5.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ReluGrad relu_grad: 1.0,
        #[inline(always)] |a, b| if a > 0.0 { b } else { 0.0 },
        "a > 0.0f ? b : 0.0f",
        |a, b| if a > 0.0 { b } else { 0.0 },
        [zero, (|dy, a| a.relu_grad(dy))];
    /// `b * (1 - a^2)`, the gradient of a tanh, where `a` is the tanh's output and `b` is the
    /// gradient of the output.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let y = runtime.tensor(&[2], vec![0.0, 0.5])?;
    /// let dy = runtime.tensor(&[2], vec![2.0, 2.0])?;
    /// assert_eq!(y.tanh_grad(&dy)?.to_vec::<f32>()?, [2.0, 1.5]);
    /// # Ok::<(), Error>(())
    /// ```
    TanhGrad tanh_grad: 3.0,
        #[inline(always)] |a, b| b * (1.0 - a * a),
        "b * (1.0f - a * a)",
        |a, b| b * (1.0 - a * a),
        [(|dy, a, b| dy.mul(b)?.mul(a)?.affine(-2.0, 0.0)), (|dy, a| a.tanh_grad(dy))];
    /// `b * a * (1 - a)`, the gradient of a sigmoid, where `a` is the sigmoid's output and `b` is
    /// the gradient of the output.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let y = runtime.tensor(&[2], vec![0.5, 1.0])?;
    /// let dy = runtime.tensor(&[2], vec![4.0, 4.0])?;
    /// assert_eq!(y.sigmoid_grad(&dy)?.to_vec::<f32>()?, [1.0, 0.0]);
    /// # Ok::<(), Error>(())
    /// ```
    SigmoidGrad sigmoid_grad: 3.0,
        #[inline(always)] |a, b| b * a * (1.0 - a),
        "b * a * (1.0f - a)",
        |a, b| b * a * (1.0 - a),
        [(|dy, a, b| dy.mul(b)?.mul(&a.affine(-2.0, 1.0)?)), (|dy, a| a.sigmoid_grad(dy))];
    /// `b` times the derivative of [`silu`](Tensor::silu) at `a`.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let (x, dy) = (runtime.zeros(&[2])?, runtime.ones(&[2])?);
    /// assert_eq!(x.silu_grad(&dy)?.to_vec::<f32>()?, [0.5, 0.5]);
    /// # Ok::<(), Error>(())
    /// ```
    SiluGrad silu_grad: TRANSCENDENTAL + 5.0,
        #[inline(always)] |a, b| b * math::silu_slope(a),
        "b * silu_slope(a)",
        |a, b| {
            let gate = 1.0 / (1.0 + (-a).exp());
            b * gate * (1.0 + a * (1.0 - gate))
        },
        [
            // With `s = sigmoid(a)`, the second derivative of silu is
            // `s (1 - s) (2 + a (1 - 2 s))`.
            (|dy, a, b| {
                let gate = a.sigmoid()?;
                let bend = a.mul(&gate.affine(-2.0, 1.0)?)?.affine(1.0, 2.0)?;
                gate.sigmoid_grad(&dy.mul(b)?.mul(&bend)?)
            }),
            (|dy, a| a.silu_grad(dy))
        ];
    /// `b` times the derivative of [`gelu`](Tensor::gelu) at `a`.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let (x, dy) = (runtime.zeros(&[2])?, runtime.ones(&[2])?);
    /// assert_eq!(x.gelu_grad(&dy)?.to_vec::<f32>()?, [0.5, 0.5]);
    /// # Ok::<(), Error>(())
    /// ```
    GeluGrad gelu_grad: 2.0 * TRANSCENDENTAL + 5.0,
        #[inline(always)] |a, b| b * math::gelu_slope(a),
        "b * gelu_slope(a)",
        |a, b| {
            let below = 0.5 * math::exact::erfc(-a * std::f64::consts::FRAC_1_SQRT_2);
            b * (below + a * (-0.5 * a * a).exp() / std::f64::consts::TAU.sqrt())
        },
        [
            // The second derivative of GELU is `e^(-a^2 / 2) / sqrt(2 pi) (2 - a^2)`.
            (|dy, a, b| {
                let aa = a.square()?;
                let bell = aa.affine(-0.5, 0.0)?.exp()?.affine(0.398_942_3, 0.0)?;
                dy.mul(b)?.mul(&bell.mul(&aa.affine(-1.0, 2.0)?)?)
            }),
            (|dy, a| a.gelu_grad(dy))
        ];
    /// `b` times the derivative of [`gelu_tanh`](Tensor::gelu_tanh) at `a`.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let (x, dy) = (runtime.zeros(&[2])?, runtime.ones(&[2])?);
    /// assert_eq!(x.gelu_tanh_grad(&dy)?.to_vec::<f32>()?, [0.5, 0.5]);
    /// # Ok::<(), Error>(())
    /// ```
    GeluTanhGrad gelu_tanh_grad: TRANSCENDENTAL + 12.0,
        #[inline(always)] |a, b| b * math::gelu_tanh_slope(a),
        "b * gelu_tanh_slope(a)",
        |a, b| {
            let (c, d) = (1.595_769_121_605_730_8, 0.071_354_816_272_600_25);
            let gate = 1.0 / (1.0 + (-a * (c + d * a * a)).exp());
            b * (gate + gate * (1.0 - gate) * (a * (c + 3.0 * d * a * a)))
        },
        [
            // The derivative of `s = sigmoid(a (c + d a^2))` is `s (1 - s) v`, with `v = c + 3 d
            // a^2`. The second derivative of `a s` is `s (1 - s) (2 v + a (1 - 2 s) v^2 + 6 d
            // a^2)`.
            (|dy, a, b| {
                let aa = a.square()?;
                let gate = aa.affine(0.071_354_814, 1.595_769_2)?.mul(a)?.sigmoid()?;
                let v = aa.affine(3.0 * 0.071_354_814, 1.595_769_2)?;
                let bent = a.mul(&gate.affine(-2.0, 1.0)?)?.mul(&v.square()?)?;
                let bend = bent.add(&v.affine(2.0, 0.0)?)?.add(&aa.affine(6.0 * 0.071_354_814, 0.0)?)?;
                gate.sigmoid_grad(&dy.mul(b)?.mul(&bend)?)
            }),
            (|dy, a| a.gelu_tanh_grad(dy))
        ];
    /// `-(b ln a + (1 - b) ln(1 - a))`, the cross entropy of a probability `a` and a target `b`,
    /// both from 0 to 1. As in PyTorch, logarithms are at least -100, and the gradient divides by
    /// at least `1e-12`.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let p = runtime.tensor(&[2], vec![1.0, 0.0])?;
    /// let target = runtime.tensor(&[2], vec![1.0, 1.0])?;
    /// assert_eq!(p.binary_cross_entropies(&target)?.to_vec::<f32>()?, [0.0, 100.0]);
    /// # Ok::<(), Error>(())
    /// ```
    BinaryCrossEntropy binary_cross_entropies: 2.0 * TRANSCENDENTAL + 6.0,
        #[inline(always)] |a: f32, b: f32| {
            let [on, off] = [a.ln(), (-a).ln_1p()].map(|log| math::larger(log, -100.0));
            -(b * on + (1.0 - b) * off)
        },
        "-(b * Larger()(logf(a), -100.0f) + (1.0f - b) * Larger()(log1pf(-a), -100.0f))",
        |a: f64, b: f64| -(b * a.ln().max(-100.0) + (1.0 - b) * (-a).ln_1p().max(-100.0)),
        [
            (|dy, a, b| {
                let spread = a.mul(&a.affine(-1.0, 1.0)?)?.clamp(1e-12, f32::INFINITY)?;
                dy.mul(&a.sub(b)?.div(&spread)?)
            }),
            (|dy, a| {
                let log = |x: &Tensor| x.log()?.clamp(-100.0, f32::INFINITY);
                dy.mul(&log(&a.affine(-1.0, 1.0)?)?.sub(&log(a)?)?)
            })
        ];
}
