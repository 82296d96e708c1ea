use super::{Rig, Rng, close};
use crate::device::Device;
use crate::host::HostTensor;
use crate::layout::Dims;
use crate::ops::{Accumulate, Op, SgdMomentum};

pub fn in_place_updates<D: Device<Op = Op, Host = HostTensor>>(rig: &mut Rig<D>) {
    let mut rng = Rng::new(17);
    for shape in [&[][..], &[5], &[3, 4], &[100_003], &[0], &[3, 0, 2]] {
        let [p, v, g] = [(); 3].map(|()| rng.floats(Dims::new(shape)));
        let op: Op = SgdMomentum { lr: 0.1, momentum: 0.9, weight_decay: 0.01 }.into();
        let found = rig.run(&op, &[p.clone(), v.clone(), g.clone()]);
        let (p, v, g) = (p.elements(), v.elements(), g.elements());
        let velocity: Vec<f64> = (0..p.len()).map(|i| 0.9 * v[i] + g[i] + 0.01 * p[i]).collect();
        let param: Vec<f64> = (0..p.len()).map(|i| p[i] - 0.1 * velocity[i]).collect();
        close(&found[0], shape, &param, 1e-6, "param");
        close(&found[1], shape, &velocity, 1e-6, "velocity");

        let (acc, x) = (rng.floats(Dims::new(shape)), rng.arranged(&Dims::new(shape)));
        let expected: Vec<f64> =
            acc.elements().iter().zip(x.elements()).map(|(acc, x)| acc + x).collect();
        rig.expect(&Accumulate.into(), &[acc, x], shape, &expected, 1e-6);
    }
    // A part of a larger tensor is updated alone.
    let whole = rng.floats([4, 3]);
    let part = whole.clone().view(|l| l.slice(0, 1, 2));
    let x = rng.floats([2, 3]);
    let expected: Vec<f64> =
        part.elements().iter().zip(x.elements()).map(|(acc, x)| acc + x).collect();
    rig.expect(&Accumulate.into(), &[part, x], &[2, 3], &expected, 1e-6);
}
