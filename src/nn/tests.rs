//! Tests of layers and of their initial weights.

use super::*;
use crate::autograd::Tape;
use crate::ops::Distribution;
use crate::runtime::Runtime;
use init::Fan;

fn start() -> Runtime {
    Runtime::builder().budget("16MiB").seed(3).threads(1).cpu().unwrap()
}

/// Mean, standard deviation, and the largest distance from 0, of the elements.
fn moments(x: &Tensor) -> [f64; 3] {
    let x = x.to_vec::<f32>().unwrap();
    let n = x.len() as f64;
    let mean = x.iter().map(|&x| f64::from(x)).sum::<f64>() / n;
    let var = x.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / n;
    let largest = x.iter().fold(0f32, |largest, x| largest.max(x.abs()));
    [mean, var.sqrt(), f64::from(largest)]
}

#[test]
fn weights_begin_as_their_names_say() {
    let runtime = start();
    let shape = [60, 40, 3, 5];
    let (fan_in, fan_out) = (40.0 * 15.0, 60.0 * 15.0);
    let both: f64 = fan_in + fan_out;
    let root = 2f64.sqrt();
    // Expected standard deviation of the elements, and the largest possible distance from 0 if
    // there is a limit.
    let cases = [
        (init::xavier_uniform(&runtime, &shape, 1.5), 1.5 * (2.0 / both).sqrt(), Some(3f64.sqrt())),
        (init::xavier_normal(&runtime, &shape, 1.5), 1.5 * (2.0 / both).sqrt(), None),
        (
            init::kaiming_uniform(&runtime, &shape, Fan::In, root as f32),
            root / fan_in.sqrt(),
            Some(3f64.sqrt()),
        ),
        (
            init::kaiming_normal(&runtime, &shape, Fan::Out, root as f32),
            root / fan_out.sqrt(),
            None,
        ),
        (init::normal(&runtime, &shape, 0.0, 0.5), 0.5, None),
        (init::uniform(&runtime, &shape, -2.0, 2.0), 2.0 / 3f64.sqrt(), Some(3f64.sqrt())),
        // The truncation at two standard deviations reduces the standard deviation to .8796 of its
        // value.
        (init::trunc_normal(&runtime, &shape, 0.02), 0.02 * 0.879_626, Some(2.0 / 0.879_626)),
    ];
    for (i, (weight, std, farthest)) in cases.into_iter().enumerate() {
        let weight = weight.unwrap();
        assert_eq!(weight.shape(), shape);
        let [mean, found, largest] = moments(&weight);
        assert!(mean.abs() < 0.02 * std, "{i}: mean {mean}");
        assert!((found / std - 1.0).abs() < 0.02, "{i}: standard deviation {found}, not {std}");
        let found = largest / std;
        match farthest {
            Some(farthest) => assert!((0.98..1.0001).contains(&(found / farthest)), "{i}: {found}"),
            None => assert!((3.5..7.0).contains(&found), "{i}: {found}"),
        }
    }
    let all = |x: Result<Tensor, Error>| x.unwrap().to_vec::<f32>().unwrap();
    assert_eq!(all(init::zeros(&runtime, &[2])), [0.0; 2]);
    assert_eq!(all(init::ones(&runtime, &[2])), [1.0; 2]);
    assert_eq!(all(init::constant(&runtime, &[2], 0.25)), [0.25; 2]);
    // The fan-in of a bias is 1.
    assert!(init::kaiming_uniform(&runtime, &[8], Fan::In, 1.0).is_ok());
}

/// Checks which share of the elements lies within known quantiles.
#[test]
fn truncated_normals_have_the_right_shape() {
    let runtime = start();
    let x = init::trunc_normal(&runtime, &[200_000], 1.0).unwrap().to_vec::<f32>().unwrap();
    let erf = |x: f64| crate::device::cpu::math::exact::erf(x / 2f64.sqrt());
    for quantile in [0.25, 0.5, 1.0, 1.5, 1.9] {
        let within = x.iter().filter(|x| f64::from(x.abs()) < quantile).count();
        let (found, expected) = (within as f64 / x.len() as f64, erf(quantile) / erf(2.0));
        assert!((found - expected).abs() < 0.005, "{quantile}: {found}, expected {expected}");
    }
}

#[test]
fn layers_compute_what_their_methods_do() {
    let runtime = start();
    let x = runtime.normal(&[3, 4, 6], 1.0, 2.0).unwrap();
    let [ones, zeros] = [6, 4].map(|n| [runtime.ones(&[n]).unwrap(), runtime.zeros(&[n]).unwrap()]);
    let cases: [(Box<dyn Module>, Tensor, &[&str]); 3] = [
        (
            Box::new(LayerNorm::new(&runtime, 6).unwrap().eps(0.5)),
            x.layer_norm(&ones[0], &ones[1], 0.5).unwrap(),
            &["norm.weight", "norm.bias"],
        ),
        (
            Box::new(RmsNorm::new(&runtime, 6).unwrap()),
            x.rms_norm(&ones[0], f32::EPSILON).unwrap(),
            &["norm.weight"],
        ),
        (
            Box::new(GroupNorm::new(&runtime, 2, 4).unwrap()),
            x.group_norm(2, &zeros[0], &zeros[1], 1e-5).unwrap(),
            &["norm.weight", "norm.bias"],
        ),
    ];
    for (mut layer, expected, names) in cases {
        let found = layer.forward(&x, Mode::Train).unwrap();
        assert_eq!(found.to_vec::<f32>().unwrap(), expected.to_vec::<f32>().unwrap());
        let mut state = Vec::new();
        layer.state("norm", &mut state);
        assert_eq!(state.into_iter().map(|(name, _)| name).collect::<Vec<_>>(), names);
    }
}

#[test]
fn dropout_leaves_out_in_training_alone() {
    let runtime = start();
    let x = runtime.ones(&[10_000]).unwrap();
    let mut layer = Dropout::new(0.25);
    let kept = layer.forward(&x, Mode::Infer).unwrap().to_vec::<f32>().unwrap();
    assert_eq!(kept, [1.0; 10_000]);
    let kept = layer.forward(&x, Mode::Train).unwrap().to_vec::<f32>().unwrap();
    assert!(kept.iter().all(|&x| x == 0.0 || (x - 4.0 / 3.0).abs() < 1e-6));
    let share = kept.iter().filter(|&&x| x == 0.0).count() as f64 / 1e4;
    assert!((share - 0.25).abs() < 0.02, "{share}");
    assert!(Dropout::new(1.5).forward(&x, Mode::Train).is_err());
}

#[test]
fn embeddings_are_rows_and_get_gradients_of_their_uses() {
    let runtime = start();
    let weight = runtime.tensor(&[3, 2], vec![0.0, 1.0, 10.0, 11.0, 20.0, 21.0]).unwrap();
    let mut layer = Embedding::of(weight);
    let tape = Tape::new(&runtime);
    tape.watch(&mut layer);
    let index = runtime.tensor(&[2, 2], vec![2, 0, 2, 2]).unwrap();
    let y = layer.forward(&index, Mode::Train).unwrap();
    assert_eq!(y.shape(), [2, 2, 2]);
    assert_eq!(y.to_vec::<f32>().unwrap(), [20.0, 21.0, 0.0, 1.0, 20.0, 21.0, 20.0, 21.0]);
    let gradients = tape.backward(&y.sum().unwrap()).unwrap();
    let found = gradients.get(layer.weight()).unwrap().to_vec::<f32>().unwrap();
    assert_eq!(found, [1.0, 1.0, 0.0, 0.0, 3.0, 3.0]);
    let error = layer.weight().sum().unwrap().embedding(&index).unwrap_err().to_string();
    assert_eq!(error, "embedding: weight is f32[] of rank 0, expected rank 2");
}

/// If the positions of queries and keys all increase by one number, the products of queries and
/// keys do not change.
#[test]
fn rotary_positions_are_relative() {
    let runtime = start();
    let normal = Distribution::Normal { mean: 0.0, std: 1.0 };
    let [q, k] = [(); 2].map(|()| runtime.random(&[1, 1, 8], normal).unwrap());
    let rotary = Rotary::new(&runtime, 50, 8, 10_000.0).unwrap();
    let product = |i: usize, j: usize| {
        let (q, k) = (rotary.apply(&q, i).unwrap(), rotary.apply(&k, j).unwrap());
        q.mul(&k).unwrap().sum().unwrap().item().unwrap()
    };
    let close = |a: f32, b: f32| assert!((a - b).abs() < 1e-4, "{a} {b}");
    for (i, j) in [(0, 0), (3, 1), (1, 7)] {
        close(product(i, j), product(i + 40, j + 40));
    }
    close(product(0, 0), q.mul(&k).unwrap().sum().unwrap().item().unwrap());
    assert!((product(0, 0) - product(0, 9)).abs() > 1e-3);
    assert!(rotary.apply(&q, 50).is_err());
    let odd = runtime.ones(&[2, 3]).unwrap();
    let error = odd.rotary(&odd, &odd).unwrap_err().to_string();
    assert_eq!(error, "rotary: x is f32[2, 3], expected [.., t, d] with even d");
}
