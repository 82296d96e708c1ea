//! Which inputs each op takes, and what its outputs look like.

mod check;
mod name;

use self::check::{Fault, fresh};
pub(super) use self::name::NAMES;
use self::name::name;
use super::{Distribution, FLOAT, Op, Reduction};
use crate::layout::{DType, Dims, Layout, MAX_RANK, broadcast_shapes};
use crate::op::{OpError, Output, Outputs};
use smallvec::smallvec;

impl crate::op::Op for Op {
    fn name(&self) -> &str {
        name(self)
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, OpError> {
        infer(self, inputs).map_err(|message| OpError::new(name(self), message))
    }

    fn flops(&self, inputs: &[Layout], outputs: &[Layout]) -> f64 {
        super::work::flops(self, inputs, outputs)
    }
}

fn infer(op: &Op, inputs: &[Layout]) -> Result<Outputs, Fault> {
    match op {
        Op::Unary(_) | Op::Affine { .. } => {
            let [x] = check::take(inputs)?;
            check::float(x, "x")?;
            Ok(smallvec![fresh(FLOAT, *x.shape())?])
        }
        Op::Binary(_) => {
            let [a, b] = check::take(inputs)?;
            check::float(a, "a")?;
            check::float(b, "b")?;
            let shape = broadcast_shapes(a.shape(), b.shape())
                .ok_or_else(|| format!("a {} and b {} do not broadcast", a.shape(), b.shape()))?;
            Ok(smallvec![fresh(FLOAT, shape)?])
        }
        Op::MatMul => matmul(inputs),
        Op::Conv2d(_) | Op::Conv2dGradInput { .. } | Op::Conv2dGradWeight { .. } => {
            conv2d(op, inputs)
        }
        Op::BatchNorm { .. } | Op::BatchNormGrad | Op::BatchNormInfer { .. } => {
            batch_norm(op, inputs)
        }
        Op::MaxPool2d(_)
        | Op::MaxPool2dGrad { .. }
        | Op::AvgPool2d(_)
        | Op::AvgPool2dGrad { .. } => pool2d(op, inputs),
        Op::Reduce { kind, axes, keep_dims } => reduce(*kind, axes, *keep_dims, inputs),
        Op::Softmax
        | Op::SoftmaxGrad
        | Op::LogSoftmax
        | Op::LogSoftmaxGrad
        | Op::CrossEntropy
        | Op::CrossEntropyGrad => softmax(op, inputs),
        Op::Contiguous => {
            let [x] = check::take(inputs)?;
            Ok(smallvec![fresh(x.dtype(), *x.shape())?])
        }
        Op::Reshape { .. } | Op::Permute { .. } | Op::Slice { .. } | Op::Broadcast { .. } => {
            view(op, inputs)
        }
        Op::Pad { .. } | Op::Concat { .. } | Op::Gather { .. } | Op::ScatterAdd { .. } => {
            along_axis(op, inputs)
        }
        Op::Fill { shape, .. } => {
            let [] = check::take(inputs)?;
            Ok(smallvec![fresh(FLOAT, *shape)?])
        }
        Op::Random { distribution, shape, .. } => {
            let [] = check::take(inputs)?;
            parameters(distribution)?;
            Ok(smallvec![fresh(FLOAT, *shape)?])
        }
        Op::SgdMomentum { .. } => {
            let [param, velocity, grad] = check::take(inputs)?;
            check::packed(param, "param")?;
            check::packed_as(velocity, "velocity", FLOAT, param.shape())?;
            check::packed_as(grad, "grad", FLOAT, param.shape())?;
            Ok(smallvec![Output::InPlace { input: 0 }, Output::InPlace { input: 1 }])
        }
        Op::Accumulate => {
            let [acc, x] = check::take(inputs)?;
            check::packed(acc, "acc")?;
            if x.dtype() != FLOAT || x.shape() != acc.shape() {
                return Err(format!("x is {x}, expected {acc} like acc"));
            }
            Ok(smallvec![Output::InPlace { input: 0 }])
        }
    }
}

fn matmul(inputs: &[Layout]) -> Result<Outputs, Fault> {
    let [a, b] = check::take(inputs)?;
    check::float(a, "a")?;
    check::float(b, "b")?;
    let matrix = |x: &Layout, role| match **x.shape() {
        [ref lead @ .., rows, columns] => Ok((Dims::new(lead), rows, columns)),
        _ => Err(format!("{role} is {x} of rank {}, expected at least 2", x.rank())),
    };
    let (lead_a, m, k) = matrix(a, "a")?;
    let (lead_b, k_b, n) = matrix(b, "b")?;
    if k != k_b {
        return Err(format!("a {} has {k} columns but b {} has {k_b} rows", a.shape(), b.shape()));
    }
    let lead = broadcast_shapes(&lead_a, &lead_b).ok_or_else(|| {
        format!("leading dimensions of a {} and b {} do not broadcast", a.shape(), b.shape())
    })?;
    let mut shape = [m; MAX_RANK];
    let rank = lead.len() + 2;
    shape[..lead.len()].copy_from_slice(&lead);
    shape[rank - 1] = n;
    Ok(smallvec![fresh(FLOAT, Dims::new(&shape[..rank]))?])
}

fn conv2d(op: &Op, inputs: &[Layout]) -> Result<Outputs, Fault> {
    let [first, second] = check::take(inputs)?;
    let roles = match op {
        Op::Conv2d(_) => ["x", "weight"],
        Op::Conv2dGradInput { .. } => ["dy", "weight"],
        _ => ["x", "dy"],
    };
    check::packed(first, roles[0])?;
    check::packed(second, roles[1])?;
    let a = check::rank::<4>(first, roles[0])?;
    let b = check::rank::<4>(second, roles[1])?;
    let shape = match *op {
        Op::Conv2d(conv) => {
            let ([n, c, h, w], [o, c_weight, kh, kw]) = (a, b);
            if c != c_weight {
                return Err(format!(
                    "x {first} has {c} channels but weight {second} takes {c_weight}"
                ));
            }
            let [rows, columns] = check::windows([h, w], [kh, kw], conv.stride, conv.padding)?;
            [n, o, rows, columns]
        }
        Op::Conv2dGradInput { conv, input } => {
            let ([n, o, rows, columns], [o_weight, c, kh, kw]) = (a, b);
            if o != o_weight {
                return Err(format!(
                    "dy {first} has {o} channels but weight {second} gives {o_weight}"
                ));
            }
            expect_windows(
                first,
                [rows, columns],
                check::windows(input, [kh, kw], conv.stride, conv.padding)?,
            )?;
            [n, c, input[0], input[1]]
        }
        Op::Conv2dGradWeight { conv, kernel } => {
            let ([n, c, h, w], [n_dy, o, rows, columns]) = (a, b);
            if n != n_dy {
                return Err(format!("x {first} is a batch of {n} but dy {second} one of {n_dy}"));
            }
            expect_windows(
                second,
                [rows, columns],
                check::windows([h, w], kernel, conv.stride, conv.padding)?,
            )?;
            [o, c, kernel[0], kernel[1]]
        }
        _ => unreachable!("not a convolution: {op:?}"),
    };
    Ok(smallvec![fresh(FLOAT, shape)?])
}

fn expect_windows(dy: &Layout, found: [usize; 2], expected: [usize; 2]) -> Result<(), Fault> {
    if found == expected {
        Ok(())
    } else {
        Err(format!("dy is {dy}, expected height and width {expected:?}"))
    }
}

fn batch_norm(op: &Op, inputs: &[Layout]) -> Result<Outputs, Fault> {
    let [x, rest @ ..] = check::take::<5>(inputs)?;
    check::packed(x, "x")?;
    let &[_, c, ..] = &**x.shape() else {
        return Err(format!("x is {x} of rank {}, expected at least 2", x.rank()));
    };
    let per_channel = |roles: &[&str]| {
        roles.iter().zip(rest).try_for_each(|(role, x)| check::packed_as(x, role, FLOAT, &[c]))
    };
    match op {
        Op::BatchNorm { momentum, eps } => {
            per_channel(&["gamma", "beta", "running_mean", "running_var"])?;
            check::number(*momentum, "momentum", f32::NEG_INFINITY)?;
            check::number(*eps, "eps", 0.0)?;
            if c > 0 && x.elements() == 0 {
                return Err(format!("x is {x}, expected at least one element per channel"));
            }
            let statistic = fresh(FLOAT, [c])?;
            Ok(smallvec![fresh(FLOAT, *x.shape())?, statistic, statistic, statistic, statistic])
        }
        Op::BatchNormGrad => {
            per_channel(&["gamma", "mean", "inv_std"])?;
            check::packed_as(&rest[3], "dy", FLOAT, x.shape())?;
            Ok(smallvec![fresh(FLOAT, *x.shape())?, fresh(FLOAT, [c])?, fresh(FLOAT, [c])?])
        }
        Op::BatchNormInfer { eps } => {
            per_channel(&["gamma", "beta", "running_mean", "running_var"])?;
            check::number(*eps, "eps", 0.0)?;
            Ok(smallvec![fresh(FLOAT, *x.shape())?])
        }
        _ => unreachable!("not a batch norm: {op:?}"),
    }
}

fn pool2d(op: &Op, inputs: &[Layout]) -> Result<Outputs, Fault> {
    match op {
        Op::MaxPool2d(pool) | Op::AvgPool2d(pool) => {
            let [x] = check::take(inputs)?;
            check::packed(x, "x")?;
            let [n, c, h, w] = check::rank(x, "x")?;
            let [rows, columns] = check::pool_windows([h, w], pool)?;
            let y = fresh(FLOAT, [n, c, rows, columns])?;
            if matches!(op, Op::AvgPool2d(_)) {
                return Ok(smallvec![y]);
            }
            countable_in_i32([h, w])?;
            Ok(smallvec![y, fresh(DType::I32, [n, c, rows, columns])?])
        }
        Op::MaxPool2dGrad { pool, input } => {
            let [argmax, dy] = check::take(inputs)?;
            check::typed(argmax, "argmax", DType::I32)?;
            check::contiguous(argmax, "argmax")?;
            let [n, c, rows, columns] = check::rank(argmax, "argmax")?;
            check::packed_as(dy, "dy", FLOAT, argmax.shape())?;
            countable_in_i32(*input)?;
            expect_windows(dy, [rows, columns], check::pool_windows(*input, pool)?)?;
            Ok(smallvec![fresh(FLOAT, [n, c, input[0], input[1]])?])
        }
        Op::AvgPool2dGrad { pool, input } => {
            let [dy] = check::take(inputs)?;
            check::packed(dy, "dy")?;
            let [n, c, rows, columns] = check::rank(dy, "dy")?;
            expect_windows(dy, [rows, columns], check::pool_windows(*input, pool)?)?;
            Ok(smallvec![fresh(FLOAT, [n, c, input[0], input[1]])?])
        }
        _ => unreachable!("not a pooling: {op:?}"),
    }
}

/// Fails unless every pixel of an image can be indexed by an i32.
fn countable_in_i32([h, w]: [usize; 2]) -> Result<(), Fault> {
    if h.checked_mul(w).is_some_and(|n| i32::try_from(n).is_ok()) {
        Ok(())
    } else {
        Err(format!("image of size {:?} has more pixels than an i32 can index", [h, w]))
    }
}

fn reduce(
    kind: Reduction,
    axes: &Dims,
    keep_dims: bool,
    inputs: &[Layout],
) -> Result<Outputs, Fault> {
    let [x] = check::take(inputs)?;
    check::float(x, "x")?;
    let mut joined = [false; MAX_RANK];
    for &axis in axes.iter() {
        check::axis_of(x, "x", axis)?;
        if std::mem::replace(&mut joined[axis], true) {
            return Err(format!("axis {axis} is given twice in {axes}"));
        }
    }
    let mut sizes = [1; MAX_RANK];
    let mut rank = 0;
    let mut nothing_joined = false;
    for (&size, joined) in x.shape().iter().zip(joined) {
        nothing_joined |= joined && size == 0;
        if !joined {
            sizes[rank] = size;
        }
        rank += usize::from(!joined || keep_dims);
    }
    let shape = Dims::new(&sizes[..rank]);
    if kind == Reduction::Max && nothing_joined && shape.elements() > 0 {
        return Err(format!("x {x} has no elements along {axes} to take the largest of"));
    }
    Ok(smallvec![fresh(FLOAT, shape)?])
}

fn softmax(op: &Op, inputs: &[Layout]) -> Result<Outputs, Fault> {
    match op {
        Op::Softmax | Op::LogSoftmax => {
            let [x] = check::take(inputs)?;
            check::packed(x, "x")?;
            has_last_dimension(x, "x")?;
            Ok(smallvec![fresh(FLOAT, *x.shape())?])
        }
        Op::SoftmaxGrad | Op::LogSoftmaxGrad => {
            let [y, dy] = check::take(inputs)?;
            check::packed(y, "y")?;
            has_last_dimension(y, "y")?;
            check::packed_as(dy, "dy", FLOAT, y.shape())?;
            Ok(smallvec![fresh(FLOAT, *y.shape())?])
        }
        Op::CrossEntropy => {
            let [logits, labels] = check::take(inputs)?;
            check::packed(logits, "logits")?;
            let [n, _] = check::rank(logits, "logits")?;
            check::packed_as(labels, "labels", DType::I32, &[n])?;
            Ok(smallvec![fresh(FLOAT, Dims::SCALAR)?, fresh(FLOAT, *logits.shape())?])
        }
        Op::CrossEntropyGrad => {
            let [log_probs, labels, dloss] = check::take(inputs)?;
            check::packed(log_probs, "log_probs")?;
            let [n, _] = check::rank(log_probs, "log_probs")?;
            check::packed_as(labels, "labels", DType::I32, &[n])?;
            check::packed_as(dloss, "dloss", FLOAT, &[])?;
            Ok(smallvec![fresh(FLOAT, *log_probs.shape())?])
        }
        _ => unreachable!("not a softmax: {op:?}"),
    }
}

fn has_last_dimension(x: &Layout, role: &str) -> Result<(), Fault> {
    if x.rank() > 0 { Ok(()) } else { Err(format!("{role} is {x} of rank 0, expected at least 1")) }
}

fn view(op: &Op, inputs: &[Layout]) -> Result<Outputs, Fault> {
    let [x] = check::take(inputs)?;
    let layout = match op {
        Op::Reshape { shape } => {
            check::contiguous(x, "x")?;
            check::countable(x.dtype(), shape)?;
            x.reshape(shape).ok_or_else(|| {
                format!("x {x} has {} elements, {shape} has {}", x.elements(), shape.elements())
            })?
        }
        Op::Permute { axes } => x.permute(axes).ok_or_else(|| {
            format!("axes {axes} are not an order of the {} dimensions of x {x}", x.rank())
        })?,
        Op::Slice { axis, start, len } => {
            check::axis_of(x, "x", *axis)?;
            // The new offset is asked for here because the strides of a layout may be absurd.
            start
                .checked_mul(x.strides()[*axis])
                .and_then(|distance| distance.checked_add(x.offset()))
                .and_then(|_| x.slice(*axis, *start, *len))
                .ok_or_else(|| {
                    format!("{len} entries from {start} on are not all in axis {axis} of x {x}")
                })?
        }
        Op::Broadcast { shape } => {
            check::countable(x.dtype(), shape)?;
            x.broadcast_to(shape).ok_or_else(|| format!("x {x} does not broadcast to {shape}"))?
        }
        _ => unreachable!("not a view: {op:?}"),
    };
    Ok(smallvec![Output::View { input: 0, layout }])
}

fn along_axis(op: &Op, inputs: &[Layout]) -> Result<Outputs, Fault> {
    let (dtype, shape) = match *op {
        Op::Pad { axis, before, after } => {
            let [x] = check::take(inputs)?;
            check::packed(x, "x")?;
            check::axis_of(x, "x", axis)?;
            let size = before.checked_add(x.shape()[axis]).and_then(|size| size.checked_add(after));
            let size =
                size.ok_or_else(|| format!("x {x} padded by {before} and {after} is too large"))?;
            (FLOAT, x.shape().with(axis, size))
        }
        Op::Concat { axis } => {
            let [first, others @ ..] = inputs else {
                return Err("takes at least 1 input, 0 were given".into());
            };
            check::axis_of(first, "x0", axis)?;
            check::contiguous(first, "x0")?;
            let mut size = first.shape()[axis];
            for (i, x) in others.iter().enumerate() {
                let own = *x.shape().get(axis).unwrap_or(&0);
                if x.dtype() != first.dtype()
                    || x.rank() != first.rank()
                    || x.shape().with(axis, 0) != first.shape().with(axis, 0)
                {
                    return Err(format!("x{} is {x}, expected {first} but for axis {axis}", i + 1));
                }
                if !x.is_contiguous() {
                    return Err(format!(
                        "x{} {x} has strides {}, expected contiguous",
                        i + 1,
                        x.strides()
                    ));
                }
                size = size
                    .checked_add(own)
                    .ok_or_else(|| format!("axis {axis} is too large from x{} {x} on", i + 1))?;
            }
            (first.dtype(), first.shape().with(axis, size))
        }
        Op::Gather { axis } => {
            let [x, index] = check::take(inputs)?;
            check::packed(x, "x")?;
            check::axis_of(x, "x", axis)?;
            let [n] = index_list(index)?;
            (FLOAT, x.shape().with(axis, n))
        }
        Op::ScatterAdd { axis, size } => {
            let [y, index] = check::take(inputs)?;
            check::packed(y, "y")?;
            check::axis_of(y, "y", axis)?;
            let [n] = index_list(index)?;
            if y.shape()[axis] != n {
                return Err(format!(
                    "y {y} has {} entries along axis {axis} but index has {n}",
                    y.shape()[axis]
                ));
            }
            (FLOAT, y.shape().with(axis, size))
        }
        _ => unreachable!("not along an axis: {op:?}"),
    };
    Ok(smallvec![fresh(dtype, shape)?])
}

fn index_list(index: &Layout) -> Result<[usize; 1], Fault> {
    check::typed(index, "index", DType::I32)?;
    check::contiguous(index, "index")?;
    check::rank(index, "index")
}

fn parameters(distribution: &Distribution) -> Result<(), Fault> {
    match *distribution {
        Distribution::Uniform { low, high } => {
            check::number(low, "low", f32::NEG_INFINITY)?;
            check::number(high, "high", low)?;
            check::number(high - low, "high - low", 0.0)
        }
        Distribution::Normal { mean, std } => {
            check::number(mean, "mean", f32::NEG_INFINITY)?;
            check::number(std, "std", 0.0)
        }
        Distribution::Bernoulli { p } => {
            if (0.0..=1.0).contains(&p) {
                Ok(())
            } else {
                Err(format!("p is {p}, expected between 0 and 1"))
            }
        }
    }
}

#[cfg(test)]
mod tests;
