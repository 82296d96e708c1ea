//! Checks of inputs. Every error message says what was found and what was expected.

use crate::device::walk::Walk;
use crate::hint::cold;
use crate::layout::{self, DType, Dims, Layout, MAX_RANK};

/// Message that says what is wrong with the inputs.
pub(super) type Fault = String;

/// Fails unless `x` holds elements of type `dtype`.
pub(super) fn typed(x: &Layout, role: &str, dtype: DType) -> Result<(), Fault> {
    if x.dtype() == dtype { Ok(()) } else { Err(format!("{role} is {x}, expected {dtype}")) }
}

/// Fails unless `x` is contiguous.
pub(super) fn contiguous(x: &Layout, role: &str) -> Result<(), Fault> {
    if x.is_contiguous() {
        Ok(())
    } else {
        Err(format!("{role} {x} has strides {}, expected contiguous", x.strides()))
    }
}

/// Fails unless `x` is of type `dtype` and shape `shape`.
pub(super) fn shaped(x: &Layout, role: &str, dtype: DType, shape: &[usize]) -> Result<(), Fault> {
    if x.dtype() == dtype && **x.shape() == *shape {
        Ok(())
    } else {
        Err(format!("{role} is {x}, expected {dtype}{shape:?}"))
    }
}

/// Sizes of `x`; an error unless it has `N` dimensions.
pub(super) fn rank<const N: usize>(x: &Layout, role: &str) -> Result<[usize; N], Fault> {
    let shape: &[usize] = x.shape();
    shape.try_into().map_err(|_| format!("{role} is {x} of rank {}, expected rank {N}", x.rank()))
}

/// Fails if the operands need more nested loops than the kernels have. Each operand is passed with
/// its role, which is its name in the message.
pub(super) fn walkable<const K: usize, const N: usize>(
    walk: &Walk<K>,
    operands: [(&str, &Layout); N],
) -> Result<(), Fault> {
    let loops = walk.loops().len();
    if loops <= MAX_RANK {
        return Ok(());
    }
    let each = operands.map(|(role, x)| format!("{role} {x} with strides {}", x.strides()));
    Err(format!(
        "{} takes {loops} nested loops, at most {MAX_RANK} are supported: \
         make the tensor contiguous, or reshape it to fewer dimensions",
        each.join(" and ")
    ))
}

/// Fails if an elementwise op on the operands needs more nested loops than the kernels have. The
/// operands broadcast to `shape`.
pub(super) fn walkable_as<const K: usize>(
    shape: &Dims,
    operands: [(&str, &Layout); K],
) -> Result<(), Fault> {
    if shape.len() <= MAX_RANK {
        return Ok(());
    }
    let spread =
        |x: &Layout| x.broadcast_to(shape).expect("an operand that broadcasts to the shape");
    let strides = operands.map(|(_, x)| *spread(x).strides());
    walkable(&Walk::new(shape, strides.each_ref().map(|strides| &**strides)), operands)
}

/// Fails unless `axis` is a dimension of `x`.
pub(super) fn axis_of(x: &Layout, role: &str, axis: usize) -> Result<(), Fault> {
    if axis < x.rank() {
        Ok(())
    } else {
        Err(format!("axis {axis} is out of range for {role} {x}, expected below {}", x.rank()))
    }
}

/// Fails unless `value` is finite and not below `low`.
pub(super) fn number(value: f32, what: &str, low: f32) -> Result<(), Fault> {
    if value.is_finite() && value >= low {
        Ok(())
    } else if low == f32::NEG_INFINITY {
        Err(format!("{what} is {value}, expected a finite number"))
    } else {
        Err(format!("{what} is {value}, expected a finite number of at least {low}"))
    }
}

/// Fails if the size in bytes or a stride of a packed tensor overflows `isize`.
#[inline]
pub(super) fn countable(dtype: DType, shape: &Dims) -> Result<(), Fault> {
    if layout::countable(dtype, shape) {
        Ok(())
    } else {
        Err(cold(format!("{dtype}{shape} is more than {} bytes", isize::MAX)))
    }
}

/// Layout of a fresh, contiguous output; an error if the output is too large.
#[inline]
pub(super) fn fresh(dtype: DType, shape: impl Into<Dims>) -> Result<Layout, Fault> {
    let shape = shape.into();
    countable(dtype, &shape)?;
    Ok(Layout::contiguous(dtype, shape))
}

/// Fails unless `dy` has the height and width `expected`, so that it has one element for each
/// window.
pub(super) fn of_windows(dy: &Layout, expected: [usize; 2]) -> Result<(), Fault> {
    if dy.shape()[2..] == expected {
        Ok(())
    } else {
        Err(format!("dy is {dy}, expected height and width {expected:?}"))
    }
}

/// Number of windows of a convolution or pooling along height and width.
pub(super) fn windows(
    size: [usize; 2],
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
) -> Result<[usize; 2], Fault> {
    let mut count = [0; 2];
    for (i, side) in ["height", "width"].into_iter().enumerate() {
        if kernel[i] == 0 || stride[i] == 0 {
            let (k, s) = (kernel[i], stride[i]);
            return Err(format!("kernel {side} {k} and stride {s}, expected at least 1 each"));
        }
        let (n, p, k) = (size[i], padding[i], kernel[i]);
        let padded = p.checked_mul(2).and_then(|p| p.checked_add(n));
        let Some(padded) = padded.filter(|&padded| isize::try_from(padded).is_ok()) else {
            return Err(format!("{side} {n} with padding {p} is more than {}", isize::MAX));
        };
        let Some(room) = padded.checked_sub(k) else {
            return Err(format!("{side} {n} with padding {p} is smaller than the kernel of {k}"));
        };
        count[i] = room / stride[i] + 1;
    }
    Ok(count)
}
