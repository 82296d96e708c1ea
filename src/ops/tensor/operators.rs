//! Operators `+`, `-`, `*`, `/` and `-x`.
//!
//! The operators return a `Result`, like the methods of tensors. The right operand may also be a
//! `Result`, as in `a + b.relu()`.

use super::Tensor;
use crate::error::Error;
use std::ops::{Add, Div, Mul, Neg, Sub};

macro_rules! operators {
    ($($operator:ident $method:ident, |$x:ident, $n:ident| $tensor_number:expr, |$m:ident, $y:ident| $number_tensor:expr;)*) => {$(
        operators!(@tensors $operator $method: Tensor, Tensor);
        operators!(@tensors $operator $method: Tensor, &Tensor);
        operators!(@tensors $operator $method: &Tensor, Tensor);
        operators!(@tensors $operator $method: &Tensor, &Tensor);
        operators!(@later $operator $method: Tensor);
        operators!(@later $operator $method: &Tensor);
        operators!(@numbers $operator $method: Tensor, |$x, $n| $tensor_number, |$m, $y| $number_tensor);
        operators!(@numbers $operator $method: &Tensor, |$x, $n| $tensor_number, |$m, $y| $number_tensor);
    )*};
    (@tensors $operator:ident $method:ident: $a:ty, $b:ty) => {
        impl $operator<$b> for $a {
            type Output = Result<Tensor, Error>;
            fn $method(self, other: $b) -> Result<Tensor, Error> {
                Tensor::$method(&self, &other)
            }
        }
    };
    (@later $operator:ident $method:ident: $a:ty) => {
        impl $operator<Result<Tensor, Error>> for $a {
            type Output = Result<Tensor, Error>;
            fn $method(self, other: Result<Tensor, Error>) -> Result<Tensor, Error> {
                Tensor::$method(&self, &other?)
            }
        }
    };
    (@numbers $operator:ident $method:ident: $a:ty, |$x:ident, $n:ident| $tensor_number:expr, |$m:ident, $y:ident| $number_tensor:expr) => {
        impl $operator<f32> for $a {
            type Output = Result<Tensor, Error>;
            fn $method(self, $n: f32) -> Result<Tensor, Error> {
                let $x = &self;
                $tensor_number
            }
        }
        impl $operator<$a> for f32 {
            type Output = Result<Tensor, Error>;
            fn $method(self, $y: $a) -> Result<Tensor, Error> {
                let $m = self;
                $number_tensor
            }
        }
    };
}

operators! {
    Add add, |x, n| x.affine(1.0, n), |n, x| x.affine(1.0, n);
    Sub sub, |x, n| x.affine(1.0, -n), |n, x| x.affine(-1.0, n);
    Mul mul, |x, n| x.affine(n, 0.0), |n, x| x.affine(n, 0.0);
    Div div, |x, n| x.affine(1.0 / n, 0.0), |n, x| x.recip()?.affine(n, 0.0);
}

impl Neg for Tensor {
    type Output = Result<Self, Error>;
    fn neg(self) -> Result<Self, Error> {
        Self::neg(&self)
    }
}

impl Neg for &Tensor {
    type Output = Result<Tensor, Error>;
    fn neg(self) -> Result<Tensor, Error> {
        Tensor::neg(self)
    }
}
