use super::{Arg, Rig, Rng, close};
use crate::device::Device;
use crate::host::HostTensor;
use crate::ops::{AvgPool2d, AvgPool2dGrad, MaxPool2d, MaxPool2dGrad, MaxPool2dPick, Op, Pool2d};

const HALF: usize = 1 << 20;

const CASES: [([usize; 4], Pool2d); 15] = [
    ([2, 3, 8, 8], Pool2d { kernel: [2, 2], stride: [2, 2], padding: [0, 0] }),
    ([1, 2, 7, 9], Pool2d { kernel: [3, 3], stride: [2, 2], padding: [1, 1] }),
    ([3, 1, 5, 4], Pool2d { kernel: [3, 2], stride: [1, 3], padding: [1, 0] }),
    ([2, 2, 6, 6], Pool2d { kernel: [6, 6], stride: [1, 1], padding: [0, 0] }),
    ([1, 1, 1, 1], Pool2d { kernel: [2, 3], stride: [1, 1], padding: [1, 1] }),
    ([2, 2, 4, 4], Pool2d { kernel: [1, 1], stride: [3, 3], padding: [0, 0] }),
    ([40, 8, 15, 15], Pool2d { kernel: [3, 3], stride: [2, 2], padding: [1, 1] }),
    ([9, 16, 32, 32], Pool2d { kernel: [8, 8], stride: [8, 8], padding: [0, 0] }),
    ([2, 3, 5, 40], Pool2d { kernel: [3, 37], stride: [1, 1], padding: [1, 18] }),
    ([2, 3, 4, 70], Pool2d { kernel: [4, 34], stride: [2, 3], padding: [2, 0] }),
    ([1, 2, 3, 19], Pool2d { kernel: [2, 17], stride: [5, 5], padding: [1, 8] }),
    // Case with windows far larger than the image.
    ([2, 1, 2, 3], Pool2d { kernel: [2 * HALF; 2], stride: [1, 2], padding: [HALF; 2] }),
    ([2, 1, 2, 3], Pool2d { kernel: [1, 1], stride: [HALF, 2 * HALF], padding: [0, 0] }),
    ([0, 2, 4, 4], Pool2d { kernel: [2, 2], stride: [2, 2], padding: [0, 0] }),
    ([2, 0, 4, 4], Pool2d { kernel: [2, 2], stride: [2, 2], padding: [1, 1] }),
];

fn windows(size: [usize; 4], pool: Pool2d) -> [usize; 2] {
    [0, 1].map(|i| (size[i + 2] + 2 * pool.padding[i] - pool.kernel[i]) / pool.stride[i] + 1)
}

/// Calls `body(window, image, places)` for every window of every image. `image` is the position of
/// the image in `x`, and `places` are the pixels of the window.
fn each_window(
    [n, c, h, w]: [usize; 4],
    pool: Pool2d,
    mut body: impl FnMut(usize, usize, Vec<usize>),
) {
    let [rows, columns] = windows([n, c, h, w], pool);
    for image in 0..n * c {
        for window in 0..rows * columns {
            let mut places = Vec::new();
            let first = [window / columns * pool.stride[0], window % columns * pool.stride[1]];
            for place in 0..h * w {
                let within = |i: usize, at: usize| {
                    (at + pool.padding[i]).checked_sub(first[i]).is_some_and(|j| j < pool.kernel[i])
                };
                if within(0, place / w) && within(1, place % w) {
                    places.push(place);
                }
            }
            body(image * rows * columns + window, image * h * w, places);
        }
    }
}

pub fn maxima<D: Device<Op = Op, Host = HostTensor>>(rig: &mut Rig<D>) {
    let mut rng = Rng::new(10);
    for (size, pool) in CASES {
        // Use few distinct values, so that there are ties, and some NaN.
        let elements = size.iter().product::<usize>();
        let some = |x: usize| if x == 0 { f32::NAN } else { (x % 5) as f32 - 2.0 };
        let x: Vec<f32> = (0..elements).map(|_| some(rng.below(40))).collect();
        let (mut y, mut argmax) = (Vec::new(), Vec::new());
        each_window(size, pool, |_, image, places| {
            let mut best = places[0];
            for place in places {
                let (a, b) = (x[image + best], x[image + place]);
                if b > a || (b.is_nan() && !a.is_nan()) {
                    best = place;
                }
            }
            y.push(f64::from(x[image + best]));
            argmax.push(best as i32);
        });
        let x = Arg::f32(size, x);
        let found = rig.run(&MaxPool2d(pool).into(), std::slice::from_ref(&x));
        let [rows, columns] = windows(size, pool);
        let shape = [size[0], size[1], rows, columns];
        close(&found[0], &shape, &y, 0.0, &format!("{pool:?}"));
        assert_eq!((found[1].as_i32().unwrap(), &**found[1].shape()), (&argmax[..], &shape[..]));

        let picked = rig.run(&MaxPool2dPick { pool }.into(), &[found[1].clone().into(), x]);
        assert!(picked[0].as_bytes() == found[0].as_bytes(), "{pool:?}");

        let dy = rng.floats(shape);
        let mut dx = vec![0.0; elements];
        let d = dy.elements();
        let area = size[2] * size[3];
        argmax
            .iter()
            .enumerate()
            .for_each(|(i, &place)| dx[i / (rows * columns) * area + place as usize] += d[i]);
        let op: Op = MaxPool2dGrad { pool, input: [size[2], size[3]] }.into();
        rig.expect(&op, &[found[1].clone().into(), dy], &size, &dx, 1e-5);
    }
}

pub fn means<D: Device<Op = Op, Host = HostTensor>>(rig: &mut Rig<D>) {
    let mut rng = Rng::new(11);
    for (size, pool) in CASES {
        let [rows, columns] = windows(size, pool);
        let shape = [size[0], size[1], rows, columns];
        let (x, dy) = (rng.floats(size), rng.floats(shape));
        let (elements, d) = (x.elements(), dy.elements());
        let (mut y, mut dx) = (Vec::new(), vec![0.0; elements.len()]);
        each_window(size, pool, |window, image, places| {
            let count = places.len() as f64;
            y.push(places.iter().map(|place| elements[image + place]).sum::<f64>() / count);
            places.iter().for_each(|place| dx[image + place] += d[window] / count);
        });
        rig.expect(&AvgPool2d(pool).into(), &[x], &shape, &y, 1e-6);
        rig.expect(
            &AvgPool2dGrad { pool, input: [size[2], size[3]] }.into(),
            &[dy],
            &size,
            &dx,
            1e-5,
        );
    }
}

pub fn places_outside_the_image_are_refused<D: Device<Op = Op, Host = HostTensor>>(
    rig: &mut Rig<D>,
) {
    let pool = Pool2d { kernel: [2, 4], stride: [2, 4], padding: [0, 0] };
    for bad in [-1, 16, i32::MAX] {
        let argmax = Arg::i32([1, 1, 2, 1], vec![0, bad]);
        let args = [argmax.clone(), Arg::f32([1, 1, 2, 1], vec![1.0; 2])];
        let grad = rig.try_run(&MaxPool2dGrad { pool, input: [4, 4] }.into(), &args).unwrap_err();
        let args = [argmax, Arg::f32([1, 1, 4, 4], vec![1.0; 16])];
        let pick = rig.try_run(&MaxPool2dPick { pool }.into(), &args).unwrap_err();
        let expected = format!("argmax {bad} at position 1 is out of range, expected 0..16");
        assert_eq!([grad, pick].map(|e| e.to_string()), [expected.clone(), expected]);
    }
}
