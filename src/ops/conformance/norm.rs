use super::{Arg, Rig, Rng, close};
use crate::device::Device;
use crate::host::HostTensor;
use crate::layout::Dims;
use crate::ops::{BatchNorm, BatchNormGrad, BatchNormInfer, Op};

const EPS: f64 = 1e-3;

const SHAPES: [&[usize]; 24] = [
    &[4, 3, 5, 5],
    &[7, 5],
    &[2, 20, 4, 4],
    &[3, 2, 1],
    &[2, 1, 17],
    &[6, 4, 3],
    &[5, 3, 40, 40],
    &[64, 40, 8, 8],
    &[3000, 33],
    &[2, 5, 3, 2, 7, 2],
    &[700, 3, 3, 7],
    &[90, 2, 20, 19],
    &[40, 17, 7, 7],
    // Shapes with few channels and many entries, many channels and few entries, and more channels
    // than one thread block computes.
    &[9000, 2],
    &[2, 9000],
    &[600, 257],
    &[3, 300, 5],
    &[3, 300, 16],
    &[20_000, 1, 1],
    &[40, 700, 15],
    &[2, 0, 4],
    &[0, 0],
    &[0, 3, 2],
    &[4, 3, 0],
];

/// Reference that computes `y`, the mean and the biased variance in two passes.
fn forward(x: &[f64], gamma: &[f64], beta: &[f64], inner: usize) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let c = gamma.len();
    let count = (x.len() / c.max(1)) as f64;
    let (mut mean, mut var) = (vec![0.0; c], vec![0.0; c]);
    x.iter().enumerate().for_each(|(i, x)| mean[i / inner % c] += x / count);
    x.iter()
        .enumerate()
        .for_each(|(i, x)| var[i / inner % c] += (x - mean[i / inner % c]).powi(2) / count);
    let y = |(i, x): (usize, &f64)| {
        let c = i / inner % c;
        (x - mean[c]) / (var[c] + EPS).sqrt() * gamma[c] + beta[c]
    };
    (x.iter().enumerate().map(y).collect(), mean, var)
}

pub fn statistics_and_result<D: Device<Op = Op, Host = HostTensor>>(rig: &mut Rig<D>) {
    let mut rng = Rng::new(8);
    for shape in SHAPES {
        let (c, inner) = (shape[1], shape[2..].iter().product::<usize>());
        if c > 0 && shape.contains(&0) {
            // Skip the channel: a channel without elements has no mean.
            continue;
        }
        let mut x = rng.floats(Dims::new(shape));
        if rng.below(2) == 0 {
            // Move the elements far from zero, compared with their spread.
            let moved = x.host.as_f32().unwrap().iter().map(|x| x + 300.0).collect();
            x = Arg::f32(Dims::new(shape), moved);
        }
        let [gamma, beta, old_mean] = [(); 3].map(|()| rng.floats([c]));
        let old_var = rng.positive([c]);
        let args = [x.clone(), gamma.clone(), beta.clone(), old_mean.clone(), old_var.clone()];
        let found = rig.run(&BatchNorm { momentum: 0.1, eps: EPS as f32 }.into(), &args);
        let (y, mean, var) = forward(&x.elements(), &gamma.elements(), &beta.elements(), inner);
        // Use a large tolerance, because the difference between an element and a large mean has few
        // exact bits.
        let tolerance = 2e-5;
        close(&found[0], shape, &y, tolerance, &format!("y of {shape:?}"));
        close(&found[1], &[c], &mean, 1e-6, "mean");
        let inv_std: Vec<f64> = var.iter().map(|var| 1.0 / (var + EPS).sqrt()).collect();
        close(&found[2], &[c], &inv_std, 1e-6, "inv_std");
        let count = (x.elements().len() / c.max(1)) as f64;
        let mix = |old: &Arg, new: &[f64]| -> Vec<f64> {
            old.elements().iter().zip(new).map(|(old, new)| 0.9 * old + 0.1 * new).collect()
        };
        let unbiased: Vec<f64> = var.iter().map(|var| var * count / (count - 1.0)).collect();
        close(&found[3], &[c], &mix(&old_mean, &mean), 1e-6, "running mean");
        close(&found[4], &[c], &mix(&old_var, &unbiased), 1e-6, "running variance");

        let (mean, var) = (old_mean.elements(), old_var.elements());
        let (gamma, beta) = (gamma.elements(), beta.elements());
        let expected: Vec<f64> = x
            .elements()
            .iter()
            .enumerate()
            .map(|(i, x)| (i / inner % c, x))
            .map(|(c, x)| (x - mean[c]) / (var[c] + EPS).sqrt() * gamma[c] + beta[c])
            .collect();
        rig.expect(&BatchNormInfer { eps: EPS as f32 }.into(), &args, shape, &expected, 2e-6);
    }
}

pub fn gradients<D: Device<Op = Op, Host = HostTensor>>(rig: &mut Rig<D>) {
    let mut rng = Rng::new(9);
    for shape in SHAPES {
        let (c, inner) = (shape[1], shape[2..].iter().product::<usize>());
        let (x, dy) = (rng.floats(Dims::new(shape)), rng.floats(Dims::new(shape)));
        let [gamma, beta] = [(); 2].map(|()| rng.floats([c]));
        let (wide_x, d, g) = (x.elements(), dy.elements(), gamma.elements());
        let (_, mean, var) = forward(&wide_x, &g, &beta.elements(), inner);
        let inv_std: Vec<f64> = var.iter().map(|var| 1.0 / (var + EPS).sqrt()).collect();
        let count = (wide_x.len() / c.max(1)) as f64;
        let (mut dgamma, mut dbeta) = (vec![0.0; c], vec![0.0; c]);
        for (i, d) in d.iter().enumerate() {
            let c = i / inner % c;
            dbeta[c] += d;
            dgamma[c] += d * (wide_x[i] - mean[c]) * inv_std[c];
        }
        let dx: Vec<f64> = (0..d.len())
            .map(|i| (i, i / inner % c))
            .map(|(i, c)| {
                let normal = (wide_x[i] - mean[c]) * inv_std[c];
                g[c] * inv_std[c] * (d[i] - (dbeta[c] + normal * dgamma[c]) / count)
            })
            .collect();
        if d.len() < 400 {
            // Check the gradient against finite differences of the reference.
            for (i, dx) in dx.iter().enumerate() {
                let loss = |step: f64| {
                    let mut x = wide_x.clone();
                    x[i] += step;
                    forward(&x, &g, &beta.elements(), inner)
                        .0
                        .iter()
                        .zip(&d)
                        .map(|(y, d)| y * d)
                        .sum::<f64>()
                };
                let slope = (loss(1e-5) - loss(-1e-5)) / 2e-5;
                assert!((slope - dx).abs() < 1e-4 * dx.abs().max(1.0), "{slope} is not {dx}");
            }
        }
        let float = |data: &[f64]| Arg::f32([c], data.iter().map(|&x| x as f32).collect());
        let found = rig.run(&BatchNormGrad.into(), &[x, gamma, float(&mean), float(&inv_std), dy]);
        close(&found[0], shape, &dx, 1e-5, &format!("dx of {shape:?}"));
        close(&found[1], &[c], &dgamma, 1e-5, "dgamma");
        close(&found[2], &[c], &dbeta, 1e-5, "dbeta");
    }
}

pub fn constant_channels<D: Device<Op = Op, Host = HostTensor>>(rig: &mut Rig<D>) {
    let vector = |a: f32, b: f32| Arg::f32([2], vec![a, b]);
    let rest = [vector(2.0, 2.0), vector(0.5, 0.5), vector(0.0, 0.0), vector(1.0, 1.0)];
    let op: Op = BatchNorm { momentum: 0.5, eps: 0.25 }.into();
    for (n, inner) in [(1, 2), (1, 40), (30, 2)] {
        let x = (0..n * 2 * inner).map(|i| if i / inner % 2 == 0 { 3.3 } else { -7.7e6 }).collect();
        let args = [&[Arg::f32([n, 2, inner], x)], &rest[..]].concat();
        let found = rig.run(&op, &args);
        assert!(found[0].as_f32().unwrap().iter().all(|&y| y == 0.5));
        assert_eq!(found[1].as_f32().unwrap(), [3.3, -7.7e6]);
        assert_eq!(found[2].as_f32().unwrap(), [2.0, 2.0]);
        assert_eq!(found[4].as_f32().unwrap(), [0.5, 0.5]);
    }
}
