//! Rules for views: which operations make an output that shares its input's storage.
//!
//! Each backend has a rule. A view takes no bytes of the budget, and keeps its storage alive.

use burn_backend::{DType, Shape, Slice};
use burn_ir::{
    BaseOperationIr as Base, FloatOperationIr as Float, NumericOperationIr as Numeric, OperationIr,
    ScalarIr,
};
use burn_std::{ReshapeAnalysis, reshape_analysis};

/// Shape and strides of a tensor in its storage, in elements. Strides may be negative.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Strides {
    shape: Vec<usize>,
    strides: Vec<isize>,
}

/// Rule of a backend: the strides of an operation's output in the storage of the first input, or
/// `None` if the output has a storage of its own. The second argument computes the strides of the
/// first input; most operations do not need them.
pub(crate) type Rule = fn(&OperationIr, &dyn Fn() -> Strides) -> Option<Strides>;

/// Rule for unknown backends: no output counts as a view.
///
/// If the backend shares buffers nevertheless, the budget counts more bytes than are in use. If a
/// storage is evicted while another tensor shares its buffer, the buffer stays in memory until that
/// tensor is released.
pub(crate) const fn never(_: &OperationIr, _: &dyn Fn() -> Strides) -> Option<Strides> {
    None
}

/// Rule of Burn's Flex: the output of every operation that only changes strides is a view. An
/// operation without any effect returns its input.
pub(crate) fn flex(ir: &OperationIr, input: &dyn Fn() -> Strides) -> Option<Strides> {
    let same = |is_same: bool| is_same.then(input);
    let is_one = |exponent: ScalarIr| match exponent {
        ScalarIr::Float(value) => value == 1.0,
        ScalarIr::Int(value) => value == 1,
        ScalarIr::UInt(value) => value == 1,
        ScalarIr::Bool(value) => value,
    };
    match ir {
        OperationIr::BaseFloat(op) | OperationIr::BaseInt(op) | OperationIr::BaseBool(op) => {
            match op {
                Base::Reshape(op) => input().reshape(&op.out.shape),
                Base::SwapDims(op) => Some(input().swap(op.dim1, op.dim2)),
                Base::Permute(op) => Some(input().permute(&op.axes)),
                Base::Flip(op) => Some(input().flip(&op.axes)),
                Base::Expand(op) => Some(input().expand(&op.out.shape)),
                Base::Slice(op) => Some(input().slice(&op.ranges, &op.out.shape)),
                Base::Unfold(op) => Some(input().unfold(op.dim, op.step, &op.out.shape)),
                Base::Cast(op) => same(op.input.dtype == op.out.dtype),
                Base::Cat(op) => same(op.tensors.len() == 1),
                Base::RepeatDim(op) => same(op.times == 1),
                _ => None,
            }
        }
        OperationIr::NumericFloat(_, op) | OperationIr::NumericInt(_, op) => match op {
            Numeric::PowiScalar(op) => same(is_one(op.rhs)),
            Numeric::SumDims(op) => same(op.axes.is_empty()),
            Numeric::Abs(op) => same(is_unsigned(op.input.dtype)),
            _ => None,
        },
        OperationIr::Float(_, Float::PowfScalar(op)) => same(is_one(op.rhs)),
        _ => None,
    }
}

/// Rule of Burn's CubeCL: operations whose output is a view for all strides of the input.
///
/// Only the backend knows the strides of the input: outputs of elementwise ops have the strides of
/// their operands, and outputs of convolutions have channels last. Therefore this rule computes no
/// strides. Slices, and reshapes that do not add dimensions, are views only for some strides of the
/// input, so they do not count as views. If the output of a slice or reshape shares a buffer, it is
/// copied ([`Facts::unshare`](crate::backend::Facts::unshare)).
pub(crate) fn cubecl(ir: &OperationIr, _: &dyn Fn() -> Strides) -> Option<Strides> {
    let (OperationIr::BaseFloat(op) | OperationIr::BaseInt(op) | OperationIr::BaseBool(op)) = ir
    else {
        return None;
    };
    let view = |shape: &Shape| Some(Strides::contiguous(shape));
    match op {
        // Burn's analysis of a reshape fails if a dimension is 0.
        Base::Reshape(op) if op.input.shape.contains(&0) => None,
        Base::Reshape(op) => match reshape_analysis(&op.input.shape, None, &op.out.shape) {
            ReshapeAnalysis::NoChange | ReshapeAnalysis::Broadcasted | ReshapeAnalysis::Split => {
                view(&op.out.shape)
            }
            _ => None,
        },
        // Repeating a dimension of size 1 is the same as `expand`, which makes a view.
        Base::RepeatDim(op) if op.tensor.shape[op.dim] == 1 => view(&op.out.shape),
        Base::Cast(op) if op.input.dtype == op.out.dtype => view(&op.out.shape),
        Base::SwapDims(op) => view(&op.out.shape),
        Base::Permute(op) => view(&op.out.shape),
        Base::Expand(op) => view(&op.out.shape),
        Base::Unfold(op) => view(&op.out.shape),
        _ => None,
    }
}

const fn is_unsigned(dtype: DType) -> bool {
    matches!(dtype, DType::U8 | DType::U16 | DType::U32 | DType::U64)
}

impl Strides {
    /// Strides of a contiguous tensor, row by row.
    pub fn contiguous(shape: &[usize]) -> Self {
        let mut strides = vec![1; shape.len()];
        for axis in (1..shape.len()).rev() {
            strides[axis - 1] = strides[axis] * shape[axis] as isize;
        }
        Self { shape: shape.to_vec(), strides }
    }

    fn is_contiguous(&self) -> bool {
        if self.shape.contains(&0) {
            return true;
        }
        let expected = Self::contiguous(&self.shape).strides;
        let axes = self.shape.iter().zip(self.strides.iter().zip(expected));
        // As in Flex: a stride that is not positive is not contiguous, even for a dimension of one
        // element.
        axes.into_iter()
            .all(|(&size, (&stride, expected))| stride > 0 && (size == 1 || stride == expected))
    }

    fn reshape(&self, shape: &[usize]) -> Option<Self> {
        self.is_contiguous().then(|| Self::contiguous(shape))
    }

    fn swap(&self, a: usize, b: usize) -> Self {
        let mut swapped = self.clone();
        swapped.shape.swap(a, b);
        swapped.strides.swap(a, b);
        swapped
    }

    fn permute(&self, axes: &[usize]) -> Self {
        Self {
            shape: axes.iter().map(|&axis| self.shape[axis]).collect(),
            strides: axes.iter().map(|&axis| self.strides[axis]).collect(),
        }
    }

    fn flip(&self, axes: &[usize]) -> Self {
        let mut flipped = self.clone();
        for &axis in axes {
            if self.shape[axis] > 1 {
                flipped.strides[axis] = -flipped.strides[axis];
            }
        }
        flipped
    }

    fn expand(&self, shape: &[usize]) -> Self {
        let new = shape.len() - self.shape.len();
        let stride = |axis: usize| match axis.checked_sub(new) {
            Some(old) if self.shape[old] == shape[axis] => self.strides[old],
            _ => 0,
        };
        Self { shape: shape.to_vec(), strides: (0..shape.len()).map(stride).collect() }
    }

    fn slice(&self, slices: &[Slice], shape: &[usize]) -> Self {
        let mut strides = self.strides.clone();
        for (stride, slice) in strides.iter_mut().zip(slices) {
            *stride *= slice.step;
        }
        Self { shape: shape.to_vec(), strides }
    }

    /// Windows along an axis, with their elements on the last axis.
    fn unfold(&self, axis: usize, step: usize, shape: &[usize]) -> Self {
        let mut strides = self.strides.clone();
        strides.push(strides[axis]);
        strides[axis] *= step as isize;
        Self { shape: shape.to_vec(), strides }
    }
}
