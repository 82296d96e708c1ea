use super::Rig;
use crate::device::Device;
use crate::host::HostTensor;
use crate::layout::Dims;
use crate::ops::{Distribution, Op, Random};

fn draw<D: Device<Op = Op, Host = HostTensor>>(
    rig: &mut Rig<D>,
    distribution: Distribution,
    n: usize,
    key: u64,
    counter: u64,
) -> Vec<f32> {
    let op: Op = Random { distribution, shape: Dims::new(&[n]), key, counter }.into();
    rig.run(&op, &[])[0].as_f32().unwrap().to_vec()
}

const UNIFORM: Distribution = Distribution::Uniform { low: 0.0, high: 1.0 };

pub fn draws_are_those_of_the_generator<D: Device<Op = Op, Host = HostTensor>>(rig: &mut Rig<D>) {
    // The first block of key 0 and counter 0 is the first known answer of Random123.
    let words = [0x6627_e8d5u32, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8];
    let unit = words.map(|word| (word >> 8) as f32 / 16_777_216.0);
    assert_eq!(draw(rig, UNIFORM, 4, 0, 0), unit);
    let (low, high) = (-3.0, 5.0);
    let scaled = unit.map(|x| low + (high - low) * x);
    assert_eq!(draw(rig, Distribution::Uniform { low, high }, 4, 0, 0), scaled);
    let ones = draw(rig, Distribution::Bernoulli { p: 0.7 }, 4, 0, 0);
    assert_eq!(ones, unit.map(|x| if x < 0.7 { 1.0 } else { 0.0 }));
    let normal = draw(rig, Distribution::Normal { mean: 2.0, std: 3.0 }, 4, 0, 0);
    for (i, found) in normal.into_iter().enumerate() {
        let [a, b] = [unit[i / 2 * 2], unit[i / 2 * 2 + 1]].map(f64::from);
        let (sin, cos) = (std::f64::consts::TAU * b).sin_cos();
        let expected =
            2.0 + 3.0 * (-2.0 * (1.0 - a).ln()).sqrt() * if i % 2 == 0 { cos } else { sin };
        assert!((f64::from(found) - expected).abs() < 1e-5, "{found} is not {expected}");
    }
}

pub fn elements_do_not_depend_on_the_shape<D: Device<Op = Op, Host = HostTensor>>(
    rig: &mut Rig<D>,
) {
    for distribution in
        [UNIFORM, Distribution::Normal { mean: 0.0, std: 1.0 }, Distribution::Bernoulli { p: 0.5 }]
    {
        let long = draw(rig, distribution, 100_003, 42, 7);
        for n in [0, 1, 2, 3, 5, 1000, 40_001] {
            assert_eq!(draw(rig, distribution, n, 42, 7), long[..n]);
        }
        assert_ne!(draw(rig, distribution, 1000, 43, 7), long[..1000]);
        assert_ne!(draw(rig, distribution, 1000, 42 | 1 << 40, 7), long[..1000]);
        assert_ne!(draw(rig, distribution, 1000, 42, 8), long[..1000]);
        assert_ne!(draw(rig, distribution, 1000, 42, 7 | 1 << 40), long[..1000]);
    }
}

pub fn moments<D: Device<Op = Op, Host = HostTensor>>(rig: &mut Rig<D>) {
    const N: usize = 1_000_000;
    let mut moments = |distribution| {
        let x = draw(rig, distribution, N, 1, 2);
        let mean = x.iter().map(|&x| f64::from(x)).sum::<f64>() / N as f64;
        let var = x.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / N as f64;
        (mean, var, x)
    };
    let near = |a: f64, b: f64| assert!((a - b).abs() < 5e-3, "{a} is not near {b}");
    let (mean, var, x) = moments(Distribution::Uniform { low: -1.0, high: 1.0 });
    near(mean, 0.0);
    near(var, 1.0 / 3.0);
    assert!(x.iter().all(|x| (-1.0..1.0).contains(x)));
    let (mean, var, _) = moments(Distribution::Normal { mean: 0.5, std: 1.0 });
    near(mean, 0.5);
    near(var, 1.0);
    let (mean, _, _) = moments(Distribution::Bernoulli { p: 0.25 });
    near(mean, 0.25);
    let (mean, _, _) = moments(Distribution::Bernoulli { p: 1.0 });
    assert_eq!(mean, 1.0);
    let (mean, _, _) = moments(Distribution::Bernoulli { p: 0.0 });
    assert_eq!(mean, 0.0);
    // No float lies between the two limits, so every draw must be the lower limit.
    let (_, _, x) = moments(Distribution::Uniform { low: 1.0, high: 1f32.next_up() });
    assert!(x.iter().all(|&x| x == 1.0));
}
