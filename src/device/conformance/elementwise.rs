use super::{Arg, Rig, Rng, each_index};
use crate::device::Device;
use crate::host::HostTensor;
use crate::layout::{Dims, Layout, broadcast_shapes};
use crate::ops::{Binary, Op, Unary};

type One = fn(f64) -> f64;
type Two = fn(f64, f64) -> f64;

const UNARY: [(Unary, One); 9] = [
    (Unary::Neg, |x| -x),
    (Unary::Relu, |x| if x > 0.0 { x } else { 0.0 }),
    (Unary::Exp, f64::exp),
    (Unary::Log, f64::ln),
    (Unary::Sqrt, f64::sqrt),
    (Unary::Recip, |x| 1.0 / x),
    (Unary::Square, |x| x * x),
    (Unary::Tanh, f64::tanh),
    (Unary::Sigmoid, |x| 1.0 / (1.0 + (-x).exp())),
];

const BINARY: [(Binary, Two); 9] = [
    (Binary::Add, |a, b| a + b),
    (Binary::Sub, |a, b| a - b),
    (Binary::Mul, |a, b| a * b),
    (Binary::Div, |a, b| a / b),
    (Binary::Maximum, f64::max),
    (Binary::Greater, |a, b| if a > b { 1.0 } else { 0.0 }),
    (Binary::ReluGrad, |a, b| if a > 0.0 { b } else { 0.0 }),
    (Binary::TanhGrad, |a, b| b * (1.0 - a * a)),
    (Binary::SigmoidGrad, |a, b| b * a * (1.0 - a)),
];

pub fn functions_of_one_element<D: Device<Op = Op, Host = HostTensor>>(rig: &mut Rig<D>) {
    let mut rng = Rng::new(1);
    for _ in 0..40 {
        for (f, reference) in UNARY {
            let shape = rng.shape(5, 6);
            let x = match f {
                Unary::Log | Unary::Sqrt | Unary::Recip => rng.positive(shape),
                _ => rng.arranged(&shape),
            };
            let expected: Vec<f64> = x.elements().into_iter().map(reference).collect();
            rig.expect(&Op::Unary(f), std::slice::from_ref(&x), &shape, &expected, 1e-6);
        }
        let x = rng.shape(4, 6);
        let x = rng.arranged(&x);
        let expected: Vec<f64> = x.elements().into_iter().map(|x| x * 1.5 - 0.25).collect();
        let shape = *x.layout.shape();
        rig.expect(&Op::Affine { scale: 1.5, shift: -0.25 }, &[x], &shape, &expected, 1e-6);
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
    for _ in 0..60 {
        for (f, reference) in BINARY {
            let shape = rng.shape(4, 5);
            let mut part = |shape: &Dims| {
                let skip = rng.below(shape.len() + 1);
                let mut part = Dims::new(&shape[skip..]);
                (0..part.len()).for_each(|i| part[i] = if rng.below(3) == 0 { 1 } else { part[i] });
                rng.arranged(&part)
            };
            let (a, mut b) = (part(&shape), part(&shape));
            if f == Binary::Div {
                b = rng.positive(*b.layout.shape());
            }
            let (shape, expected) = binary(&a, &b, reference);
            rig.expect(&Op::Binary(f), &[a, b], &shape, &expected, 1e-5);
        }
    }
}

pub fn nan_and_infinity<D: Device<Op = Op, Host = HostTensor>>(rig: &mut Rig<D>) {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let x = Arg::f32([6], vec![nan, inf, -inf, -0.0, 1.0, -1.0]);
    let run = |rig: &mut Rig<D>, f, x: &Arg, expected: [f64; 6]| {
        rig.expect(&Op::Unary(f), std::slice::from_ref(x), &[6], &expected, 0.0);
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
    rig.expect(&Op::Binary(Binary::Maximum), &[a.clone(), b.clone()], &[4], &expected, 0.0);
    rig.expect(&Op::Binary(Binary::Greater), &[a, b], &[4], &[0.0, 0.0, 0.0, 1.0], 0.0);
}

pub fn large_broadcasts<D: Device<Op = Op, Host = HostTensor>>(rig: &mut Rig<D>) {
    let mut rng = Rng::new(3);
    let whole = [6, 7, 33, 60];
    let cases: [&[usize]; 7] =
        [&[6, 7, 33, 60], &[60], &[7, 1, 1], &[], &[33, 1], &[6, 1, 1, 60], &[1, 7, 33, 1]];
    for other in cases {
        let (a, b) = (rng.floats(whole), rng.floats(Dims::new(other)));
        let (shape, expected) = binary(&a, &b, |a, b| a - b);
        rig.expect(&Op::Binary(Binary::Sub), &[a.clone(), b.clone()], &shape, &expected, 1e-6);
        let (shape, expected) = binary(&b, &a, |a, b| a - b);
        rig.expect(&Op::Binary(Binary::Sub), &[b, a], &shape, &expected, 1e-6);
    }
    // A transpose too large for one piece.
    let x = rng.floats([300, 211]).view(|l: &Layout| l.permute(&[1, 0]));
    let stored = x.host.as_f32().unwrap().to_vec();
    let mut expected = Vec::new();
    each_index(&[211, 300], |i| expected.push(f64::from(-stored[i[1] * 211 + i[0]])));
    rig.expect(&Op::Unary(Unary::Neg), &[x], &[211, 300], &expected, 0.0);
}
