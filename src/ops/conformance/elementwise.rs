use super::{Arg, Rig, Rng, each_index};
use crate::device::Device;
use crate::host::HostTensor;
use crate::layout::{Dims, Layout, broadcast_shapes};
use crate::ops::samples::{Draw, Sizes, each};
use crate::ops::{Binary, Clamp, LeakyRelu, Op, Powf, Unary, Where};

/// Two sources of samples. The first source draws tensors with very few elements, often none. The
/// second source draws tensors with a few more elements.
fn draws(seed: u64) -> [Draw; 2] {
    [Sizes::Few, Sizes::Small].map(|sizes| Draw::new(seed, sizes))
}

pub fn functions_of_one_element<D: Device<Op = Op, Host = HostTensor>>(rig: &mut Rig<D>) {
    let mut rng = Rng::new(1);
    for mut draw in draws(1) {
        for op in each() {
            for _ in 0..40 {
                let sample = draw.sample(&op);
                let exact = |x: f64| match sample.op {
                    Op::Unary(f) => Some(f.exact(x)),
                    Op::Affine(f) => Some(f.exact(x)),
                    Op::Clamp(f) => Some(f.exact(x)),
                    Op::LeakyRelu(f) => Some(f.exact(x)),
                    Op::Powf(f) => Some(f.exact(x)),
                    _ => None,
                };
                if exact(1.0).is_none() {
                    break;
                }
                let (op, x) = (&sample.op, rng.args(&sample).swap_remove(0));
                let expected: Vec<f64> = x.elements().into_iter().flat_map(exact).collect();
                let shape = *x.layout.shape();
                rig.expect(op, &[x], &shape, &expected, 1e-6);
            }
        }
    }
    // Cover the whole range in which the functions are curved, and a part of the range in which
    // they are nearly straight.
    let wide: Vec<f32> = (0..4001).map(|i| (i - 2000) as f32 / 64.0).collect();
    for f in [
        Unary::Silu,
        Unary::Gelu,
        Unary::GeluTanh,
        Unary::Softplus,
        Unary::Erf,
        Unary::Sin,
        Unary::Cos,
        Unary::Abs,
        Unary::Sign,
    ] {
        let expected: Vec<f64> = wide.iter().map(|&x| f.exact(x.into())).collect();
        let x = Arg::f32([wide.len()], wide.clone());
        rig.expect(&f.into(), &[x], &[wide.len()], &expected, 1e-6);
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
    let expected = [wide_nan, wide_nan, wide_nan, 2.0];
    rig.expect(&Binary::Minimum.into(), &[a.clone(), b.clone()], &[4], &expected, 0.0);
    for (f, last) in [
        (Binary::Eq, 0.0),
        (Binary::Lt, 0.0),
        (Binary::Le, 0.0),
        (Binary::Gt, 1.0),
        (Binary::Ge, 1.0),
    ] {
        rig.expect(&f.into(), &[a.clone(), b.clone()], &[4], &[0.0, 0.0, 0.0, last], 0.0);
    }
    rig.expect(&Binary::Ne.into(), &[a, b], &[4], &[1.0; 4], 0.0);
    let x = Arg::f32([6], vec![nan, inf, -inf, -0.0, 1.0, -2.0]);
    run(rig, Unary::Abs, &x, [wide_nan, wide, wide, 0.0, 1.0, 2.0]);
    run(rig, Unary::Sign, &x, [wide_nan, 1.0, -1.0, 0.0, 1.0, -1.0]);
    let x = Arg::f32([6], vec![nan, inf, -inf, 0.0, 200.0, -200.0]);
    run(rig, Unary::Erf, &x, [wide_nan, 1.0, -1.0, 0.0, 1.0, -1.0]);
    let mut with = |op: Op, expected: [f64; 6], tolerance: f64| {
        rig.expect(&op, std::slice::from_ref(&x), &[6], &expected, tolerance);
    };
    with(Clamp { min: -1.0, max: 2.0 }.into(), [wide_nan, 2.0, -1.0, 0.0, 2.0, -1.0], 0.0);
    with(LeakyRelu { slope: 0.5 }.into(), [wide_nan, wide, -wide, 0.0, 200.0, -100.0], 0.0);
    with(Powf { exponent: 0.0 }.into(), [1.0; 6], 0.0);
    // CUDA's logarithms and powers of finite numbers may be wrong in their last bits.
    let ln_2 = std::f64::consts::LN_2;
    with(Unary::Softplus.into(), [wide_nan, wide, 0.0, ln_2, 200.0, 0.0], 1e-6);
    with(Powf { exponent: 3.0 }.into(), [wide_nan, wide, -wide, 0.0, 8e6, -8e6], 1e-6);
    // The tolerance is absolute here: 1e-6 of the finite numbers.
    with(Powf { exponent: -1.0 }.into(), [wide_nan, 0.0, 0.0, wide, 0.005, -0.005], 5e-9);
}

/// Tests `Where` with operands that are broadcast, permuted or parts of a tensor.
pub fn choices<D: Device<Op = Op, Host = HostTensor>>(rig: &mut Rig<D>) {
    let mut rng = Rng::new(21);
    for mut draw in draws(21) {
        for _ in 0..200 {
            let sample = draw.sample(&Where.into());
            let mut args = rng.args(&sample);
            let mask = args[0].host.as_f32().unwrap();
            let mask: Vec<f32> = mask.iter().map(|x| if *x < 0.0 { 0.0 } else { *x }).collect();
            args[0].host = HostTensor::f32(*args[0].host.shape(), mask).unwrap();
            let (shape, either) = binary(&args[1], &args[2], |_, _| 0.0);
            let all = Arg::f32(shape, either.iter().map(|&x| x as f32).collect());
            let (shape, mask) = binary(&args[0], &all, |mask, _| mask);
            let zero = Arg::f32(shape, vec![0.0; mask.len()]);
            let [a, b] = [&args[1], &args[2]].map(|x| binary(x, &zero, |x, _| x).1);
            let pick = |i: usize| if mask[i] != 0.0 { a[i] } else { b[i] };
            let expected: Vec<f64> = (0..mask.len()).map(pick).collect();
            rig.expect(&Where.into(), &args, &shape, &expected, 0.0);
        }
    }
    // In a mask, NaN counts as true, and -0 counts as false.
    let mask = Arg::f32([4], vec![f32::NAN, -0.0, 1.0, f32::NEG_INFINITY]);
    let [a, b] = [1.0, f32::NAN].map(|x| Arg::f32([1], vec![x]));
    rig.expect(&Where.into(), &[mask, a, b], &[4], &[1.0, f64::NAN, 1.0, 1.0], 0.0);
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
    // Use a transposed matrix that is too large for one task.
    let x = rng.floats([300, 211]).view(|l: &Layout| l.permute(&[1, 0]));
    let stored = x.host.as_f32().unwrap().to_vec();
    let mut expected = Vec::new();
    each_index(&[211, 300], |i| expected.push(f64::from(-stored[i[1] * 211 + i[0]])));
    rig.expect(&Unary::Neg.into(), &[x], &[211, 300], &expected, 0.0);
}
