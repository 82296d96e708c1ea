use super::{Arg, Rig, Rng, each_index};
use crate::device::Device;
use crate::host::HostTensor;
use crate::layout::{Dims, Layout, broadcast_shapes};
use crate::ops::samples::{Draw, Sizes, each};
use crate::ops::{Affine, Binary, Op, Unary};

/// Draws of few elements and of more, often none.
fn draws(seed: u64) -> [Draw; 2] {
    [Sizes::Few, Sizes::Small].map(|sizes| Draw::new(seed, sizes))
}

pub fn functions_of_one_element<D: Device<Op = Op, Host = HostTensor>>(rig: &mut Rig<D>) {
    let mut rng = Rng::new(1);
    for mut draw in draws(1) {
        for op in each() {
            let Op::Unary(f) = op else { continue };
            for _ in 0..40 {
                let x = rng.args(&draw.sample(&op)).swap_remove(0);
                let expected: Vec<f64> = x.elements().into_iter().map(|x| f.exact(x)).collect();
                let shape = *x.layout.shape();
                rig.expect(&op, &[x], &shape, &expected, 1e-6);
            }
        }
    }
    for _ in 0..40 {
        let x = rng.shape(4, 6);
        let x = rng.arranged(&x);
        let expected: Vec<f64> = x.elements().into_iter().map(|x| x * 1.5 - 0.25).collect();
        let shape = *x.layout.shape();
        let op = Affine { scale: 1.5, shift: -0.25 };
        rig.expect(&op.into(), &[x], &shape, &expected, 1e-6);
    }
}

fn binary(a: &Arg, b: &Arg, f: impl Fn(f64, f64) -> f64) -> (Dims, Vec<f64>) {
    let shape = broadcast_shapes(a.layout.shape(), b.layout.shape()).unwrap();
    let wide =
        |x: &Arg| Arg { layout: x.layout.broadcast_to(&shape).unwrap(), ..x.clone() }.elements();
    (shape, wide(a).into_iter().zip(wide(b)).map(|(a, b)| f(a, b)).collect())
}

pub fn functions_of_two_elements<D: Device<Op = Op, Host = HostTensor>>(rig: &mut Rig<D>) {
    let mut rng = Rng::new(2);
    for mut draw in draws(2) {
        for op in each() {
            let Op::Binary(f) = op else { continue };
            for _ in 0..60 {
                let args = rng.args(&draw.sample(&op));
                let (shape, expected) = binary(&args[0], &args[1], |a, b| f.exact(a, b));
                rig.expect(&op, &args, &shape, &expected, 1e-5);
            }
        }
    }
}

pub fn nan_and_infinity<D: Device<Op = Op, Host = HostTensor>>(rig: &mut Rig<D>) {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let x = Arg::f32([6], vec![nan, inf, -inf, -0.0, 1.0, -1.0]);
    let run = |rig: &mut Rig<D>, f: Unary, x: &Arg, expected: [f64; 6]| {
        rig.expect(&f.into(), std::slice::from_ref(x), &[6], &expected, 0.0);
    };
    let (wide_nan, wide) = (f64::NAN, f64::INFINITY);
    run(rig, Unary::Relu, &x, [wide_nan, wide, 0.0, 0.0, 1.0, 0.0]);
    run(rig, Unary::Neg, &x, [wide_nan, -wide, wide, 0.0, -1.0, 1.0]);
    run(rig, Unary::Recip, &x, [wide_nan, 0.0, 0.0, -wide, 1.0, -1.0]);
    let x = Arg::f32([6], vec![nan, inf, -inf, 0.0, 1000.0, -1000.0]);
    run(rig, Unary::Exp, &x, [wide_nan, wide, 0.0, 1.0, wide, 0.0]);
    run(rig, Unary::Sigmoid, &x, [wide_nan, 1.0, 0.0, 0.5, 1.0, 0.0]);
    let (a, b) = (Arg::f32([4], vec![nan, 1.0, nan, inf]), Arg::f32([4], vec![1.0, nan, nan, 2.0]));
    let expected = [wide_nan, wide_nan, wide_nan, wide];
    rig.expect(&Binary::Maximum.into(), &[a.clone(), b.clone()], &[4], &expected, 0.0);
    rig.expect(&Binary::Greater.into(), &[a, b], &[4], &[0.0, 0.0, 0.0, 1.0], 0.0);
}

pub fn large_broadcasts<D: Device<Op = Op, Host = HostTensor>>(rig: &mut Rig<D>) {
    let mut rng = Rng::new(3);
    let whole = [6, 7, 33, 60];
    let cases: [&[usize]; 7] =
        [&[6, 7, 33, 60], &[60], &[7, 1, 1], &[], &[33, 1], &[6, 1, 1, 60], &[1, 7, 33, 1]];
    for other in cases {
        let (a, b) = (rng.floats(whole), rng.floats(Dims::new(other)));
        let (shape, expected) = binary(&a, &b, |a, b| a - b);
        rig.expect(&Binary::Sub.into(), &[a.clone(), b.clone()], &shape, &expected, 1e-6);
        let (shape, expected) = binary(&b, &a, |a, b| a - b);
        rig.expect(&Binary::Sub.into(), &[b, a], &shape, &expected, 1e-6);
    }
    // A transpose too large for one piece.
    let x = rng.floats([300, 211]).view(|l: &Layout| l.permute(&[1, 0]));
    let stored = x.host.as_f32().unwrap().to_vec();
    let mut expected = Vec::new();
    each_index(&[211, 300], |i| expected.push(f64::from(-stored[i[1] * 211 + i[0]])));
    rig.expect(&Unary::Neg.into(), &[x], &[211, 300], &expected, 0.0);
}
