//! Matrix products of tensors on the CPU, with broadcasting of leading dimensions and any strides.

mod matrixmultiply;

use self::matrixmultiply::{Operand, matmul_batched};
use crate::device::walk::Walk;
use crate::layout::Layout;

/// Computes `y [.., m, n] = a [.., m, k] * b [.., k, n]`.
pub fn product(
    (out, y): (&mut [f32], &Layout),
    (a, layout_a): (&[f32], &Layout),
    (b, layout_b): (&[f32], &Layout),
) {
    let outer = y.rank() - 2;
    let [m, n] = [y.shape()[outer], y.shape()[outer + 1]];
    let k = layout_a.shape()[layout_a.rank() - 1];
    // If `k` is 0, the operands have no elements, and the code must not use their strides.
    if out.is_empty() || k == 0 {
        return out.fill(0.0);
    }
    // Strides of an operand whose leading dimensions are broadcast to the leading dimensions of
    // `y`.
    let strides = |layout: &Layout| {
        let own = layout.rank() - 2;
        let shape = layout.shape();
        let full = y.shape().with(outer, shape[own]).with(outer + 1, shape[own + 1]);
        let layout = layout.broadcast_to(&full).expect("leading dimensions that broadcast");
        *layout.strides()
    };
    let (strides_a, strides_b) = (strides(layout_a), strides(layout_b));
    let [row_a, column_a, row_b, column_b] =
        [strides_a[outer], strides_a[outer + 1], strides_b[outer], strides_b[outer + 1]];
    let lead = &y.shape()[..outer];
    let walk = Walk::new(lead, [&strides_a[..outer], &strides_b[..outer]]);
    let [step_a, step_b] = walk.steps();
    walk.runs(0, lead.iter().product(), |i, len, at| {
        let a = Operand {
            data: &a[at[0]..],
            batch_stride: step_a,
            row_stride: row_a,
            column_stride: column_a,
        };
        let b = Operand {
            data: &b[at[1]..],
            batch_stride: step_b,
            row_stride: row_b,
            column_stride: column_b,
        };
        let out = &mut out[i * m * n..][..len * m * n];
        if step_b == 0 && step_a == m * row_a {
            // The right side is a single matrix, and all rows of all left matrices are equally far
            // apart. Compute all products as one product with `len * m` rows.
            matmul_batched(1, [len * m, k, n], a, b, out);
        } else {
            matmul_batched(len, [m, k, n], a, b, out);
        }
    });
}
