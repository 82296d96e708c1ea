//! Tensor of any rank from 1 to 4. In Burn, the rank is part of the type.

use burn::tensor::kind::Basic;
use burn::tensor::{DType, Float, Tensor, TensorData};

#[derive(Clone, Debug)]
pub enum Any<K: Basic = Float> {
    R1(Tensor<1, K>),
    R2(Tensor<2, K>),
    R3(Tensor<3, K>),
    R4(Tensor<4, K>),
}

/// Maps the tensor `$x` of any rank to `$made`, a tensor of the same rank.
#[macro_export]
macro_rules! map {
    ($any:expr, $x:ident => $made:expr) => {
        match $any {
            Any::R1($x) => Any::R1($made),
            Any::R2($x) => Any::R2($made),
            Any::R3($x) => Any::R3($made),
            Any::R4($x) => Any::R4($made),
        }
    };
}

/// Evaluates `$made` with the tensor `$x` of any rank.
#[macro_export]
macro_rules! with {
    ($any:expr, $x:ident => $made:expr) => {
        match $any {
            Any::R1($x) => $made,
            Any::R2($x) => $made,
            Any::R3($x) => $made,
            Any::R4($x) => $made,
        }
    };
}

/// Maps two tensors of one rank to `$made`, a tensor of the same rank.
#[macro_export]
macro_rules! zip {
    ($a:expr, $b:expr, $x:ident, $y:ident => $made:expr) => {
        match ($a, $b) {
            (Any::R1($x), Any::R1($y)) => Any::R1($made),
            (Any::R2($x), Any::R2($y)) => Any::R2($made),
            (Any::R3($x), Any::R3($y)) => Any::R3($made),
            (Any::R4($x), Any::R4($y)) => Any::R4($made),
            _ => unreachable!("of one rank"),
        }
    };
}

impl<K: Basic> Any<K> {
    pub fn dims(&self) -> Vec<usize> {
        with!(self, x => x.dims().to_vec())
    }

    pub fn dtype(&self) -> DType {
        with!(self, x => x.dtype())
    }

    pub fn elements(&self) -> usize {
        self.dims().iter().product()
    }

    pub fn read(self) -> Result<TensorData, String> {
        with!(self, x => x.try_into_data().map_err(|error| error.to_string()))
    }

    /// Reshapes by a list of dimensions. Burn's API needs the rank as a constant.
    pub fn reshape(self, dims: &[usize]) -> Self {
        with!(self, x => match *dims {
            [a] => Self::R1(x.reshape([a])),
            [a, b] => Self::R2(x.reshape([a, b])),
            [a, b, c] => Self::R3(x.reshape([a, b, c])),
            [a, b, c, d] => Self::R4(x.reshape([a, b, c, d])),
            _ => unreachable!("ranks are from 1 to 4"),
        })
    }

    /// Tensor with its rank in the type; `D` must be the rank.
    pub fn of_rank<const D: usize>(self) -> Tensor<D, K> {
        let dims: [usize; D] = self.dims().try_into().expect("the rank is its own");
        with!(self, x => x.reshape(dims))
    }
}
