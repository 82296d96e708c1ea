//! Elementwise functions of one tensor and of numbers that are attributes of the op.

use super::{cpu, like_input};
use crate::device::cpu::math;
use crate::device::{self, DeviceError};
use crate::error::Error;
use crate::layout::Layout;
use crate::op::Outputs;
use crate::ops::Tensor;
use crate::ops::bf16::Cuts;
use crate::ops::check::{Fault, number};
use crate::ops::definition::{Definition, Input, Inputs, Kernel, Registered, TRANSCENDENTAL};
use crate::ops::gradient::{Gradient, Recorded};

/// Defines an op for each row of the table. A row has:
///
/// - the formula;
/// - the op, the name of the method, and the numbers;
/// - flops per element;
/// - the code of the function of `x`: on the CPU, in CUDA C++ (where the first number is `a` and
///   the second is `b`), and in f64 for tests;
/// - the check that the numbers are in range;
/// - the gradient;
/// - usual values of the numbers.
macro_rules! with_numbers {
    ($(
        $(#[$doc:meta])*
        $Function:ident $name:ident { $($(#[$field_doc:meta])* $field:ident),* }: $flops:expr,
            $cpu:expr,
            $cuda:literal,
            $exact:expr,
            check: $check:expr,
            gradient: |$of:ident| $gradient:expr,
            each: [$($usual:expr),*];
    )*) => {$(
        /// `(x) -> (y)`, elementwise:
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
        pub struct $Function {
            $(
                $(#[$field_doc])*
                #[cfg_attr(feature = "serde", serde(with = "crate::ops::attributes::float"))]
                pub $field: f32,
            )*
        }

        impl $Function {
            /// Computes the function in f64, for tests.
            #[must_use]
            pub fn exact(self, x: f64) -> f64 {
                let Self { $($field),* } = self;
                $(let $field = f64::from($field);)*
                ($exact)(x)
            }
        }

        impl Tensor {
            $(#[$doc])*
            ///
            /// # Errors
            /// [`Error::Op`] if this tensor does not hold floats, or a number is out of its range.
            pub fn $name(&self, $($field: f32),*) -> Result<Tensor, Error> {
                Self::call1($Function { $($field),* }, &[self])
            }
        }

        impl Definition for $Function {
            fn name(&self) -> &str {
                stringify!($name)
            }

            fn inputs(&self) -> Inputs {
                Inputs::Each(const { &[Input::floats("x")] })
            }

            fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault> {
                #[allow(unused_variables)]
                let Self { $($field),* } = *self;
                $check?;
                like_input(inputs)
            }

            fn cuts(&self, inputs: &[Layout], outputs: &[Layout]) -> Option<Cuts> {
                Some(Cuts::elementwise(inputs, &outputs[0]))
            }

            fn flops(&self, _inputs: &[Layout], outputs: &[Layout]) -> f64 {
                let flops: f64 = $flops;
                outputs[0].elements() as f64 * flops
            }

            fn kernel(&self) -> Option<&dyn Kernel> {
                Some(self)
            }

            fn gradient(&self, $of: &Recorded<'_>) -> Gradient {
                #[allow(unused_variables)]
                let Self { $($field),* } = *self;
                $gradient
            }
        }

        impl Kernel for $Function {
            fn cpu(&self, mut run: device::cpu::Operands<'_>) -> Result<(), DeviceError> {
                let ([x], [y], Self { $($field),* }) = (run.floats(), run.outputs(), *self);
                cpu::map(y, x, run.input(0), $cpu);
                Ok(())
            }

            #[cfg(feature = "cuda")]
            fn cuda(
                &self,
                gpu: &mut device::cuda::Gpu,
                run: &device::cuda::Operands<'_>,
            ) -> Result<(), DeviceError> {
                use super::cuda::{Numbers, map, names};
                let with = Numbers::of(&[$(self.$field),*]);
                map(&FAMILY, gpu, names!($name), &run.outputs[0], [&run.inputs[0]], Some(&with))
            }
        }

        impl Registered for $Function {
            fn each() -> Vec<Self> {
                let [$($field),*] = [$($usual),*];
                vec![Self { $($field),* }]
            }

            #[cfg(all(test, feature = "cuda"))]
            fn families() -> Vec<&'static crate::device::cuda::Family> {
                vec![&FAMILY]
            }
        }
    )*

    #[cfg(feature = "cuda")]
    static FAMILY: device::cuda::Family = device::cuda::Family::new(
        "with_numbers",
        concat!(
            include_str!("elementwise.cu"),
            include_str!("with_numbers.cu"),
            $("WITH_NUMBERS(", stringify!($name), ", ", $cuda, ")\n",)*
        ),
    );
    };
}

with_numbers! {
    /// `x * scale + shift`.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[2], vec![1.0, 2.0])?;
    /// assert_eq!(x.affine(2.0, 0.5)?.to_vec::<f32>()?, [2.5, 4.5]);
    /// # Ok::<(), Error>(())
    /// ```
    Affine affine {
        /// Factor.
        scale,
        /// Term added.
        shift
    }: 2.0,
        #[inline(always)] |x| x * scale + shift,
        "x * a + b",
        |x| x * scale + shift,
        check: Ok::<(), Fault>(()),
        gradient: |_of| Gradient::of_one(move |dy| dy.affine(scale, 0.0)),
        each: [0.5, 1.0];
    /// `x` clamped to the range from `min` to `max`; NaN stays NaN. Either bound may be infinite.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[3], vec![-3.0, 0.5, 3.0])?;
    /// assert_eq!(x.clamp(-1.0, 1.0)?.to_vec::<f32>()?, [-1.0, 0.5, 1.0]);
    /// # Ok::<(), Error>(())
    /// ```
    Clamp clamp {
        /// Smallest result.
        min,
        /// Largest result.
        max
    }: 2.0,
        #[inline(always)] |x| {
            let x = if x < min { min } else { x };
            if x > max { max } else { x }
        },
        "x < a ? a : x > b ? b : x",
        |x: f64| if x.is_nan() { x } else { x.max(min).min(max) },
        check: if min <= max {
            Ok(())
        } else {
            Err(format!("min is {min} and max {max}, expected min to be at most max"))
        },
        gradient: |of| {
            let x = of.input(0);
            // The gradient is `dy` where the clamp does not change `x`, and zero elsewhere, even if
            // `dy` is infinite there.
            Gradient::of_one(move |dy| x.clamp(min, max)?.eq(&x)?.relu_grad(dy))
        },
        each: [0.0, 1e30];
    /// `x` where `x > 0`, else `x * slope`.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[2], vec![-4.0, 2.0])?;
    /// assert_eq!(x.leaky_relu(0.25)?.to_vec::<f32>()?, [-1.0, 2.0]);
    /// # Ok::<(), Error>(())
    /// ```
    LeakyRelu leaky_relu {
        /// Slope below 0.
        slope
    }: 2.0,
        #[inline(always)] |x| if x > 0.0 { x } else { x * slope },
        "x > 0.0f ? x : x * a",
        |x| if x > 0.0 { x } else { x * slope },
        check: number(slope, "slope", f32::NEG_INFINITY),
        gradient: |of| {
            let x = of.input(0);
            Gradient::of_one(move |dy| {
                x.gt(&x.scalar(0.0)?)?.where_cond(dy, &dy.affine(slope, 0.0)?)
            })
        },
        each: [0.01];
    /// `x` to the power of `exponent`. As in C, `x^0` is 1 even if `x` is NaN. A negative `x` to a
    /// power that is not an integer is NaN.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[2], vec![2.0, 3.0])?;
    /// assert_eq!(x.powf(3.0)?.to_vec::<f32>()?, [8.0, 27.0]);
    /// # Ok::<(), Error>(())
    /// ```
    Powf powf {
        /// Exponent of the power.
        exponent
    }: 2.0 * TRANSCENDENTAL,
        #[inline(always)] |x| math::pow(x, exponent),
        "powf(x, a)",
        |x: f64| x.powf(exponent),
        check: number(exponent, "exponent", f32::NEG_INFINITY),
        gradient: |of| {
            if exponent == 0.0 {
                return Gradient::zero();
            }
            let x = of.input(0);
            Gradient::of_one(move |dy| dy.mul(&x.powf(exponent - 1.0)?.affine(exponent, 0.0)?))
        },
        each: [2.0];
}
