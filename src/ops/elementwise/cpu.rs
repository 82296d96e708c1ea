//! Elementwise functions on the CPU.

use crate::device::cpu::split::{PIECE, pieces};
use crate::device::cpu::wide::widest;
use crate::device::walk::Walk;
use crate::layout::Layout;

/// Computes `out[i] = f(x[i])`.
pub fn map(out: &mut [f32], x: &[f32], layout: &Layout, f: impl Fn(f32) -> f32 + Sync) {
    update(
        out,
        x,
        layout,
        #[inline(always)]
        |out, x| *out = f(x),
    );
}

/// Calls `f(&mut out[i], x[i])` for each element.
pub fn update(out: &mut [f32], x: &[f32], layout: &Layout, f: impl Fn(&mut f32, f32) + Sync) {
    let walk = Walk::new(layout.shape(), [layout.strides()]);
    let [step] = walk.steps();
    let work = out.len();
    pieces(out, PIECE, work, |i, part| {
        let first = i * PIECE;
        walk.runs(first, first + part.len(), |i, len, [at]| {
            let out = &mut part[i - first..][..len];
            let x = &x[at..];
            widest(
                #[inline(always)]
                || match step {
                    1 => {
                        for (out, &x) in out.iter_mut().zip(&x[..len]) {
                            f(out, x);
                        }
                    }
                    _ => {
                        for (j, out) in out.iter_mut().enumerate() {
                            f(out, x[j * step]);
                        }
                    }
                },
            );
        });
    });
}

/// Computes `out[i] = f(a[i], b[i])`, with both operands broadcast to the shape of `y`.
pub fn zip(
    (out, y): (&mut [f32], &Layout),
    (a, layout_a): (&[f32], &Layout),
    (b, layout_b): (&[f32], &Layout),
    f: impl Fn(f32, f32) -> f32 + Sync,
) {
    let broadcast = |layout: &Layout| {
        layout.broadcast_to(y.shape()).expect("an operand that broadcasts to the output")
    };
    let (layout_a, layout_b) = (broadcast(layout_a), broadcast(layout_b));
    let walk = Walk::new(y.shape(), [layout_a.strides(), layout_b.strides()]);
    let steps = walk.steps();
    let work = out.len();
    pieces(out, PIECE, work, |i, part| {
        let first = i * PIECE;
        walk.runs(first, first + part.len(), |i, len, at| {
            let out = &mut part[i - first..][..len];
            let (a, b) = (&a[at[0]..], &b[at[1]..]);
            widest(
                #[inline(always)]
                || match steps {
                    [1, 1] => {
                        for (out, (&a, &b)) in out.iter_mut().zip(a[..len].iter().zip(&b[..len])) {
                            *out = f(a, b);
                        }
                    }
                    [1, 0] => {
                        let b = b[0];
                        for (out, &a) in out.iter_mut().zip(&a[..len]) {
                            *out = f(a, b);
                        }
                    }
                    [0, 1] => {
                        let a = a[0];
                        for (out, &b) in out.iter_mut().zip(&b[..len]) {
                            *out = f(a, b);
                        }
                    }
                    [step_a, step_b] => {
                        for (j, out) in out.iter_mut().enumerate() {
                            *out = f(a[j * step_a], b[j * step_b]);
                        }
                    }
                },
            );
        });
    });
}

/// Computes `out[i]`: `a[i]` where `mask[i]` is not 0, else `b[i]`. All operands broadcast to the
/// shape of `y`.
pub fn choose(out: &mut [f32], y: &Layout, [mask, a, b]: [&[f32]; 3], layouts: [&Layout; 3]) {
    let layouts = layouts.map(|layout| {
        layout.broadcast_to(y.shape()).expect("an operand that broadcasts to the output")
    });
    let walk = Walk::new(y.shape(), layouts.each_ref().map(|layout| &**layout.strides()));
    let steps = walk.steps();
    let work = out.len();
    pieces(out, PIECE, work, |i, part| {
        let first = i * PIECE;
        walk.runs(first, first + part.len(), |i, len, at| {
            let out = &mut part[i - first..][..len];
            let (mask, a, b) = (&mask[at[0]..], &a[at[1]..], &b[at[2]..]);
            widest(
                #[inline(always)]
                || match steps {
                    [1, 1, 1] => {
                        let operands = mask[..len].iter().zip(&a[..len]).zip(&b[..len]);
                        for (out, ((&mask, &a), &b)) in out.iter_mut().zip(operands) {
                            *out = if mask != 0.0 { a } else { b };
                        }
                    }
                    [step_mask, step_a, step_b] => {
                        for (j, out) in out.iter_mut().enumerate() {
                            let (a, b) = (a[j * step_a], b[j * step_b]);
                            *out = if mask[j * step_mask] != 0.0 { a } else { b };
                        }
                    }
                },
            );
        });
    });
}
