//! Functions of one and of two elements.

use super::math;
use super::split::{PIECE, pieces};
use super::wide::widest;
use crate::device::walk::Walk;
use crate::layout::Layout;
use crate::ops::{Binary, Unary};

/// `out[i] = f(x[i])`.
pub fn unary(f: Unary, out: &mut [f32], x: &[f32], layout: &Layout) {
    match f {
        Unary::Neg => map(
            out,
            x,
            layout,
            #[inline(always)]
            |x| -x,
        ),
        Unary::Relu => map(out, x, layout, math::relu),
        Unary::Exp => map(out, x, layout, math::exp),
        Unary::Log => map(out, x, layout, f32::ln),
        Unary::Sqrt => map(out, x, layout, f32::sqrt),
        Unary::Recip => map(out, x, layout, f32::recip),
        Unary::Square => map(
            out,
            x,
            layout,
            #[inline(always)]
            |x| x * x,
        ),
        Unary::Tanh => map(out, x, layout, math::tanh),
        Unary::Sigmoid => map(out, x, layout, math::sigmoid),
    }
}

/// `out[i] = x[i] * scale + shift`.
pub fn affine(out: &mut [f32], x: &[f32], layout: &Layout, scale: f32, shift: f32) {
    map(
        out,
        x,
        layout,
        #[inline(always)]
        |x| x * scale + shift,
    );
}

/// `acc[i] += x[i]`.
pub fn accumulate(acc: &mut [f32], x: &[f32], layout: &Layout) {
    update(
        acc,
        x,
        layout,
        #[inline(always)]
        |acc, x| *acc += x,
    );
}

/// `out[i] = f(a[i], b[i])`, both operands broadcast to the shape of `y`.
pub fn binary(
    f: Binary,
    (out, y): (&mut [f32], &Layout),
    a: (&[f32], &Layout),
    b: (&[f32], &Layout),
) {
    match f {
        Binary::Add => zip(
            out,
            y,
            a,
            b,
            #[inline(always)]
            |a, b| a + b,
        ),
        Binary::Sub => zip(
            out,
            y,
            a,
            b,
            #[inline(always)]
            |a, b| a - b,
        ),
        Binary::Mul => zip(
            out,
            y,
            a,
            b,
            #[inline(always)]
            |a, b| a * b,
        ),
        Binary::Div => zip(
            out,
            y,
            a,
            b,
            #[inline(always)]
            |a, b| a / b,
        ),
        Binary::Maximum => zip(out, y, a, b, math::larger),
        Binary::Greater => zip(
            out,
            y,
            a,
            b,
            #[inline(always)]
            |a, b| f32::from(u8::from(a > b)),
        ),
        Binary::ReluGrad => zip(
            out,
            y,
            a,
            b,
            #[inline(always)]
            |a, b| if a > 0.0 { b } else { 0.0 },
        ),
        Binary::TanhGrad => zip(
            out,
            y,
            a,
            b,
            #[inline(always)]
            |a, b| b * (1.0 - a * a),
        ),
        Binary::SigmoidGrad => zip(
            out,
            y,
            a,
            b,
            #[inline(always)]
            |a, b| b * a * (1.0 - a),
        ),
    }
}

fn map(out: &mut [f32], x: &[f32], layout: &Layout, f: impl Fn(f32) -> f32 + Sync) {
    update(
        out,
        x,
        layout,
        #[inline(always)]
        |out, x| *out = f(x),
    );
}

fn update(out: &mut [f32], x: &[f32], layout: &Layout, f: impl Fn(&mut f32, f32) + Sync) {
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

fn zip(
    out: &mut [f32],
    y: &Layout,
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
