use super::{Arg, Rig, Rng, close};
use crate::device::Device;
use crate::host::HostTensor;
use crate::layout::Dims;
use crate::ops::{Accumulate, AdamW, Lion, Op, SgdMomentum};

pub fn in_place_updates<D: Device<Op = Op, Host = HostTensor>>(rig: &mut Rig<D>) {
    let mut rng = Rng::new(17);
    for shape in [&[][..], &[5], &[3, 4], &[100_003], &[0], &[3, 0, 2]] {
        let [p, v, g] = [(); 3].map(|()| rng.floats(Dims::new(shape)));
        let op: Op =
            SgdMomentum { lr: 0.1, momentum: 0.9, weight_decay: 0.01, nesterov: false }.into();
        let found = rig.run(&op, &[p.clone(), v.clone(), g.clone()]);
        let (p, v, g) = (p.elements(), v.elements(), g.elements());
        let velocity: Vec<f64> = (0..p.len()).map(|i| 0.9 * v[i] + g[i] + 0.01 * p[i]).collect();
        let param: Vec<f64> = (0..p.len()).map(|i| p[i] - 0.1 * velocity[i]).collect();
        close(&found[0], shape, &param, 1e-6, "param");
        close(&found[1], shape, &velocity, 1e-6, "velocity");

        averages(rig, &mut rng, shape);
        let (acc, x) = (rng.floats(Dims::new(shape)), rng.arranged(&Dims::new(shape)));
        let expected: Vec<f64> =
            acc.elements().iter().zip(x.elements()).map(|(acc, x)| acc + x).collect();
        rig.expect(&Accumulate.into(), &[acc, x], shape, &expected, 1e-6);
    }
    // Update a part of a larger tensor. The elements outside the part must not change.
    let whole = rng.floats([4, 3]);
    let part = whole.clone().view(|l| l.slice(0, 1, 2));
    let x = rng.floats([2, 3]);
    let expected: Vec<f64> =
        part.elements().iter().zip(x.elements()).map(|(acc, x)| acc + x).collect();
    rig.expect(&Accumulate.into(), &[part, x], &[2, 3], &expected, 1e-6);
}

/// Tests SGD with Nesterov momentum, AdamW and Lion, each with two tensors in one op.
fn averages<D: Device<Op = Op, Host = HostTensor>>(
    rig: &mut Rig<D>,
    rng: &mut Rng,
    shape: &[usize],
) {
    let mut floats = || rng.floats(Dims::new(shape));
    let [p, m, g] = [floats(), floats(), floats()];
    let squares = m.elements().iter().map(|x| (x * x) as f32).collect();
    let v = Arg::f32(Dims::new(shape), squares);
    let two = |written: &[&Arg]| -> Vec<Arg> {
        let all = written.iter().chain(written).copied().chain([&g, &g]);
        all.cloned().collect()
    };
    let (lr, beta1, beta2, weight_decay) = (0.1, 0.9, 0.99, 0.01);
    let all: [(Op, Vec<Arg>); 3] = [
        (SgdMomentum { lr, momentum: beta1, weight_decay, nesterov: true }.into(), two(&[&p, &m])),
        (AdamW { lr, beta1, beta2, eps: 1e-3, weight_decay, step: 3 }.into(), two(&[&p, &m, &v])),
        (Lion { lr, beta1, beta2, weight_decay }.into(), two(&[&p, &m])),
    ];
    let (p, m, v, g) = (p.elements(), m.elements(), v.elements(), g.elements());
    let mean = |beta: f64, x: f64, y: f64| beta * x + (1.0 - beta) * y;
    // Expected parameter and first state of each op, in f64.
    let expected: [[Vec<f64>; 2]; 3] = [
        [
            (0..p.len())
                .map(|i| {
                    let g = g[i] + 0.01 * p[i];
                    p[i] - 0.1 * (g + 0.9 * (0.9 * m[i] + g))
                })
                .collect(),
            (0..p.len()).map(|i| 0.9 * m[i] + g[i] + 0.01 * p[i]).collect(),
        ],
        [
            (0..p.len())
                .map(|i| {
                    let average = mean(0.9, m[i], g[i]) / (1.0 - 0.9f64.powi(3));
                    let square = mean(0.99, v[i], g[i] * g[i]) / (1.0 - 0.99f64.powi(3));
                    0.999 * p[i] - 0.1 * average / (square.sqrt() + 1e-3)
                })
                .collect(),
            (0..p.len()).map(|i| mean(0.9, m[i], g[i])).collect(),
        ],
        [
            (0..p.len()).map(|i| 0.999 * p[i] - 0.1 * mean(0.9, m[i], g[i]).signum()).collect(),
            (0..p.len()).map(|i| mean(0.99, m[i], g[i])).collect(),
        ],
    ];
    for ((op, args), expected) in all.iter().zip(&expected) {
        let found = rig.run(op, args);
        let written = found.len() / 2;
        for tensor in 0..2 {
            for (i, expected) in expected.iter().enumerate() {
                let found = &found[tensor * written + i];
                close(found, shape, expected, 1e-5, &format!("{op:?}, {i} of {tensor}"));
            }
        }
        // Check the second state that AdamW keeps for the first tensor.
        if let Op::AdamW(_) = op {
            let expected: Vec<f64> = v.iter().zip(&g).map(|(v, g)| mean(0.99, *v, g * g)).collect();
            close(&found[2], shape, &expected, 1e-5, "squares");
        }
    }
}
