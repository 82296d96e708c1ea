//! Operations of Burn's tensor API, chosen by random numbers. Each choice is valid for the shape.

use super::any::Any;
use super::program::Draw;
use crate::{map, with};
use burn::tensor::activation as act;
use burn::tensor::kind::{Basic, Ordered};
use burn::tensor::ops::{AvgPoolOptions, ConvOptions, ConvTransposeOptions, MaxPoolOptions};
use burn::tensor::{Bool, DType, FloatDType, IndexingUpdateOp, Int, Slice, Tensor, module};

/// Bound of integer results, to avoid overflow.
const SMALL: i32 = 31;

pub fn unary<const D: usize>(x: Tensor<D>, draw: &mut Draw) -> Tensor<D> {
    let (dim, scalar) = (draw.below(D), draw.of(&[0.5, -1.25, 2.0, 3.0, 1.0]));
    match draw.below(38) {
        0 => x.neg(),
        1 => x.abs(),
        2 => x.exp(),
        3 => x.log(),
        4 => x.log1p(),
        5 => x.sqrt(),
        6 => x.recip(),
        7 => x.sin(),
        8 => x.cos(),
        9 => x.tanh(),
        10 => x.erf(),
        11 => x.round(),
        12 => x.floor(),
        13 => x.ceil(),
        14 => x.sign(),
        15 => x.square(),
        16 => act::relu(x),
        17 => act::gelu(x),
        18 => act::sigmoid(x),
        19 => act::silu(x),
        20 => act::softplus(x, 1.0),
        21 => act::leaky_relu(x, 0.1),
        22 => act::softmax(x, dim),
        23 => act::log_softmax(x, dim),
        24 => act::elu(x, 1.0),
        25 => x.cumsum(dim),
        26 => x.powf_scalar(scalar),
        27 => x.powi_scalar(draw.of(&[1, 2, 3])),
        28 => x.clamp(-1.0, 1.5),
        29 => x.clamp_min(0.1),
        30 => x.add_scalar(scalar),
        31 => x.mul_scalar(scalar),
        32 => x.sub_scalar(scalar),
        33 => x.div_scalar(scalar),
        34 => numbers(x).sort(dim),
        35 => act::hard_sigmoid(x, 0.2, 0.5),
        36 => act::mish(x),
        _ => x.clone() * x.detach(),
    }
}

/// Reduces each row of elements to one.
pub fn rows<const D: usize>(x: Tensor<D>, draw: &mut Draw) -> Tensor<D> {
    let dim = draw.below(D);
    match draw.below(6) {
        0 => x.sum_dim(dim),
        1 => x.mean_dim(dim),
        2 => x.max_dim(dim),
        3 => x.min_dim(dim),
        4 => x.var(dim),
        _ => x.prod_dim(dim),
    }
}

/// Reduces all elements to one.
pub fn total<const D: usize>(x: Tensor<D>, draw: &mut Draw) -> Tensor<1> {
    match draw.below(4) {
        0 => x.sum(),
        1 => x.mean(),
        2 => x.max(),
        _ => x.min(),
    }
}

pub fn binary<const D: usize>(x: Tensor<D>, y: Tensor<D>, draw: &mut Draw) -> Tensor<D> {
    match draw.below(9) {
        0 | 1 => x.add(y),
        2 => x.sub(y),
        3 | 4 => x.mul(y),
        5 => x.div(y),
        6 => x.max_pair(y),
        7 => x.min_pair(y),
        _ => x.abs().add_scalar(0.5).powf(y),
    }
}

pub fn compare<const D: usize, K: Ordered>(
    x: Tensor<D, K>,
    y: Tensor<D, K>,
    draw: &mut Draw,
) -> Tensor<D, Bool> {
    match draw.below(8) {
        0 => x.greater(y),
        1 => x.greater_equal(y),
        2 => x.lower(y),
        3 => x.lower_equal(y),
        4 => x.equal(y),
        5 => x.not_equal(y),
        6 => x.greater_scalar(1),
        _ => x.lower_equal_scalar(0),
    }
}

/// Replaces NaNs by 0. The sign of a NaN decides its position in a sorted order. The sign is
/// arbitrary, because Flex may swap the operands of an addition in place.
fn numbers<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    let nan = x.clone().is_nan();
    x.mask_fill(nan, 0.0)
}

/// Position of an extreme element in each row, or the order of the elements.
pub fn indices<const D: usize>(x: Tensor<D>, draw: &mut Draw) -> Tensor<D, Int> {
    let (dim, x) = (draw.below(D), numbers(x));
    match draw.below(4) {
        0 => x.argmax(dim),
        1 => x.argmin(dim),
        2 => x.argsort(dim),
        _ => x.max_dim_with_indices(dim).1,
    }
}

pub fn integers<const D: usize>(
    x: Tensor<D, Int>,
    y: Tensor<D, Int>,
    draw: &mut Draw,
) -> Tensor<D, Int> {
    let dim = draw.below(D);
    let made = match draw.below(15) {
        0 => x.add(y),
        1 => x.sub(y),
        2 => x.mul(y),
        3 => x.neg(),
        4 => x.abs(),
        5 => x.bitwise_and(y),
        6 => x.bitwise_or(y),
        7 => x.bitwise_xor(y),
        8 => x.bitwise_not(),
        9 => x.sum_dim(dim),
        10 => x.cumsum(dim),
        11 => x.sort(dim),
        12 => x.max_dim(dim),
        13 => x.mul_scalar(3),
        _ => x.add_scalar(7),
    };
    made.remainder_scalar(SMALL)
}

pub fn booleans<const D: usize>(
    x: Tensor<D, Bool>,
    y: Tensor<D, Bool>,
    draw: &mut Draw,
) -> Tensor<D, Bool> {
    let dim = draw.below(D);
    match draw.below(6) {
        0 => x.bool_not(),
        1 => x.bool_and(y),
        2 => x.bool_or(y),
        3 => x.bool_xor(y),
        4 => x.any_dim(dim),
        _ => x.all_dim(dim),
    }
}

/// Float type for a cast of an integer or a boolean.
pub fn float_type(draw: &mut Draw) -> FloatDType {
    use FloatDType::{BF16, F16, F32, F64};
    draw.of(&[F32, F32, F32, F32, F64, F16, BF16])
}

pub fn whole<const D: usize>(x: Tensor<D>) -> Tensor<D, Int> {
    x.clamp(-100.0, 100.0).int()
}

/// Slices of all dimensions, some backward or with steps.
fn part(dims: &[usize], draw: &mut Draw, steps: bool) -> Vec<Slice> {
    let one = |&size: &usize| {
        let start = draw.below(size);
        let end = draw.from(start + 1, size);
        let step = if steps { draw.of(&[1, 1, 2, -1]) } else { 1 };
        Slice::new(start as isize, Some(end as isize), step)
    };
    dims.iter().map(one).collect()
}

/// Views that a backend may make without a copy, and similar operations, of the same rank.
pub fn view<const D: usize, K: Basic>(x: Tensor<D, K>, draw: &mut Draw) -> Tensor<D, K> {
    let (a, b) = (draw.below(D), draw.below(D));
    match draw.below(9) {
        0 => x.swap_dims(a, b),
        1 => {
            let mut axes: [usize; D] = std::array::from_fn(|axis| axis);
            axes.rotate_left(a);
            x.permute(axes.map(|axis| axis as isize))
        }
        2 => x.flip([a as isize]),
        3 | 4 => {
            let part = part(&x.dims(), draw, true);
            x.slice(&part)
        }
        5 => {
            let size = x.dims()[a];
            let start = draw.below(size);
            let length = draw.from(1, size - start);
            x.narrow(a, start, length)
        }
        6 => x.repeat_dim(a, draw.of(&[1, 2, 3])),
        7 => {
            // Dimensions of one element can be expanded to any size.
            let dims = x.dims().map(|size| if size == 1 { 3 } else { size });
            x.expand(dims)
        }
        _ => x.roll_dim(1, a),
    }
}

/// Reshapes the tensor to another rank, or takes windows of it.
pub fn reshape<K: Basic>(x: Any<K>, draw: &mut Draw) -> Any<K> {
    let dims = x.dims();
    match draw.below(4) {
        0 if dims.len() < 4 => {
            let mut dims = dims;
            dims.insert(draw.below(dims.len() + 1), 1);
            x.reshape(&dims)
        }
        1 if dims.len() < 4 => {
            let dim = draw.below(dims.len());
            let (size, step) = (draw.from(1, dims[dim]), draw.from(1, 2));
            match x {
                Any::R1(x) => Any::R2(x.unfold(dim, size, step)),
                Any::R2(x) => Any::R3(x.unfold(dim, size, step)),
                Any::R3(x) => Any::R4(x.unfold(dim, size, step)),
                Any::R4(_) => unreachable!(),
            }
        }
        2 => {
            let all = x.elements();
            let a = (1..=all).rev().find(|&a| all.is_multiple_of(a) && a * a <= all).unwrap_or(1);
            match draw.below(3) {
                0 => x.reshape(&[a, all / a]),
                1 => x.reshape(&[1, all / a, a]),
                _ => x.reshape(&[a, 1, all / a, 1]),
            }
        }
        _ => x.reshape(&[dims.iter().product()]),
    }
}

/// Joins tensors to one.
pub fn join<K: Basic>(x: Any<K>, y: Any<K>, draw: &mut Draw) -> Any<K> {
    let dim = draw.below(x.dims().len());
    let rank = x.dims().len();
    if draw.percent(30) && rank < 4 {
        return match (x, y) {
            (Any::R1(x), Any::R1(y)) => Any::R2(Tensor::stack(vec![x, y], dim)),
            (Any::R2(x), Any::R2(y)) => Any::R3(Tensor::stack(vec![x, y], dim)),
            (Any::R3(x), Any::R3(y)) => Any::R4(Tensor::stack(vec![x, y], dim)),
            _ => unreachable!("of one rank"),
        };
    }
    let alone = draw.percent(20);
    crate::zip!(x, y, x, y => Tensor::cat(if alone { vec![x] } else { vec![x.clone(), y, x] }, dim))
}

/// Random positions along a dimension of `size` elements.
fn places(size: usize, x: &burn::tensor::Device, draw: &mut Draw) -> Tensor<1, Int> {
    let places: Vec<i64> = (0..draw.from(1, 5)).map(|_| draw.below(size) as i64).collect();
    Tensor::from_data(places.as_slice(), x)
}

/// Selects elements.
pub fn pick<const D: usize, K: Basic>(x: Tensor<D, K>, draw: &mut Draw) -> Tensor<D, K> {
    let dim = draw.below(D);
    let places = places(x.dims()[dim], &x.device(), draw);
    x.select(dim, places)
}

/// Assigns to some elements.
pub fn assign<const D: usize, K: Basic>(x: Tensor<D, K>, draw: &mut Draw) -> Tensor<D, K> {
    let part = part(&x.dims(), draw, false);
    let values = x.clone().slice(&part).flip([0isize]);
    x.slice_assign(&part, values)
}

/// Selects or updates elements by indices. For floats only.
pub fn scatter<const D: usize>(x: Tensor<D>, draw: &mut Draw) -> Tensor<D> {
    let dim = draw.below(D);
    match draw.below(4) {
        0 => {
            let order = numbers(x.clone().detach()).argsort(dim);
            x.gather(dim, order)
        }
        1 => {
            let order = numbers(x.clone().detach()).argsort(dim);
            x.clone().scatter(dim, order, x.mul_scalar(0.5), IndexingUpdateOp::Add)
        }
        2 => {
            let places = places(x.dims()[dim], &x.device(), draw);
            let values = x.clone().select(dim, places.clone()).mul_scalar(2.0);
            x.select_assign(dim, places, values, IndexingUpdateOp::Add)
        }
        _ => {
            let part = part(&x.dims(), draw, false);
            x.slice_fill(&part, 0.25)
        }
    }
}

/// Tensor of floats that needs no upload.
pub fn filler<const D: usize>(dims: [usize; D], like: (&burn::tensor::Device, DType)) -> Tensor<D> {
    let all = dims.iter().product::<usize>() as i64;
    let numbers = Tensor::<1, Int>::arange(0..all, like.0).float().cast(FloatDType::from(like.1));
    numbers.sin().reshape(dims)
}

/// Applies a layer of a network. If no layer exists for the rank, the tensor is returned unchanged.
pub fn layer(x: Any, draw: &mut Draw) -> Any {
    let (dims, dtype) = (x.dims(), x.dtype());
    let device = with!(&x, x => x.device());
    let like = (&device, dtype);
    let last = dims[dims.len() - 1];
    match (x, draw.below(4)) {
        (x, 0) => {
            let out = draw.from(1, 6);
            let bias = draw.percent(50).then(|| filler([out], like));
            map!(x, x => module::linear(x, filler([last, out], like), bias))
        }
        (x, 1) => map!(x, x => module::layer_norm(x, filler([last], like), None, 1e-5)),
        (Any::R3(x), _) => match draw.below(3) {
            0 => {
                let weight = filler([2, dims[1], last.min(2)], like);
                Any::R3(module::conv1d(x, weight, None, ConvOptions::new([1], [1], [1], 1)))
            }
            1 => Any::R3(module::max_pool1d(x, MaxPoolOptions::new([last.min(2)]))),
            _ => Any::R3(module::avg_pool1d(x, AvgPoolOptions::new([last.min(2)]))),
        },
        (Any::R4(x), _) => {
            let kernel = [dims[2].min(2), last.min(3)];
            Any::R4(match draw.below(7) {
                0 | 1 => {
                    let weight = filler([3, dims[1], kernel[0], kernel[1]], like);
                    let bias = draw.percent(50).then(|| filler([3], like));
                    module::conv2d(x, weight, bias, ConvOptions::new([1, 1], [1, 1], [1, 1], 1))
                }
                2 => module::max_pool2d(x, MaxPoolOptions::new(kernel)),
                3 => module::avg_pool2d(x, AvgPoolOptions::new(kernel)),
                4 => module::adaptive_avg_pool2d(x, [2, 1]),
                5 => {
                    let weight = filler([dims[1], 2, 2, 2], like);
                    let options = ConvTransposeOptions::new([1, 1], [0, 0], [0, 0], [1, 1], 1);
                    module::conv_transpose2d(x, weight, None, options)
                }
                _ => module::max_pool2d_with_indices(x, MaxPoolOptions::new(kernel)).0,
            })
        }
        (x, _) => x,
    }
}

pub fn matmul<const D: usize>(x: Tensor<D>, y: Option<Tensor<D>>) -> Tensor<D> {
    let y = y.unwrap_or_else(|| x.clone().transpose());
    x.matmul(y)
}
