//! Packing of tensors with any strides.

use super::walk::Walk;

#[cfg(feature = "cuda")]
use crate::layout::Layout;

/// Fills `out` with elements of `x`, in the order of the walk, from element number `first` of the
/// walk on.
pub fn part<T: Copy>(out: &mut [T], x: &[T], walk: &Walk<1>, first: usize) {
    let [step] = walk.steps();
    walk.runs(first, first + out.len(), |i, len, [at]| {
        let out = &mut out[i - first..][..len];
        match step {
            1 => out.copy_from_slice(&x[at..][..len]),
            _ => out.iter_mut().enumerate().for_each(|(j, out)| *out = x[at + j * step]),
        }
    });
}

/// Fills `out` with the elements of `layout` in row-major order. `x` begins at the first element of
/// `layout`.
#[cfg(feature = "cuda")]
pub fn packed(out: &mut [u8], x: &[u8], layout: &Layout) {
    if !out.is_empty() {
        by_size!(layout.dtype(), Word => {
            let walk = Walk::new(layout.shape(), [layout.strides()]);
            part::<Word>(bytemuck::cast_slice_mut(out), bytemuck::cast_slice(x), &walk, 0);
        });
    }
}

/// Evaluates `$body`, which moves elements of a dtype. `$Word` is an integer type of the size of an
/// element. Elements are moved as integers, because every bit pattern is a valid integer.
macro_rules! by_size {
    ($dtype:expr, $Word:ident => $body:expr) => {
        match $dtype.bytes() {
            1 => {
                type $Word = u8;
                $body
            }
            2 => {
                type $Word = u16;
                $body
            }
            4 => {
                type $Word = u32;
                $body
            }
            _ => {
                type $Word = u64;
                $body
            }
        }
    };
}
pub(crate) use by_size;
