use super::{Arg, Rig, Rng, close};
use crate::device::Device;
use crate::host::HostTensor;
use crate::layout::Dims;
use crate::ops::{
    CrossEntropy, CrossEntropyGrad, LogSoftmax, LogSoftmaxGrad, Op, Softmax, SoftmaxGrad,
};

fn log_softmax(x: &[f64], row: usize) -> Vec<f64> {
    let log_row = |x: &[f64]| {
        let max = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let log = x.iter().map(|x| (x - max).exp()).sum::<f64>().ln();
        x.iter().map(|x| x - max - log).collect::<Vec<_>>()
    };
    x.chunks(row.max(1)).flat_map(log_row).collect()
}

pub fn rows_and_their_gradients<D: Device<Op = Op, Host = HostTensor>>(rig: &mut Rig<D>) {
    let mut rng = Rng::new(6);
    for shape in [
        &[10][..],
        &[1],
        &[3, 1],
        &[7, 5],
        &[2, 3, 17],
        &[900, 100],
        &[3, 20_000],
        &[1, 2, 3, 4],
        &[0],
        &[0, 5],
        &[5, 0],
        &[2, 0, 3],
    ] {
        let (x, dy) = (rng.floats(Dims::new(shape)), rng.floats(Dims::new(shape)));
        let row = *shape.last().unwrap();
        let logs = log_softmax(&x.elements(), row);
        let y: Vec<f64> = logs.iter().map(|x| x.exp()).collect();
        rig.expect(&Softmax.into(), std::slice::from_ref(&x), shape, &y, 1e-6);
        rig.expect(&LogSoftmax.into(), &[x], shape, &logs, 1e-6);
        let d = dy.elements();
        let float =
            |data: &[f64]| Arg::f32(Dims::new(shape), data.iter().map(|&x| x as f32).collect());
        // For each element, the sum of `term` over its row.
        let sums = |term: &dyn Fn(usize) -> f64| -> Vec<f64> {
            let starts = (0..y.len()).step_by(row.max(1));
            let sums = starts.map(|from| (from..from + row).map(term).sum());
            sums.flat_map(|sum: f64| std::iter::repeat_n(sum, row)).collect()
        };
        let dots = sums(&|j| y[j] * d[j]);
        let expected: Vec<f64> = (0..y.len()).map(|i| y[i] * (d[i] - dots[i])).collect();
        rig.expect(&SoftmaxGrad.into(), &[float(&y), dy.clone()], shape, &expected, 1e-5);
        let totals = sums(&|j| d[j]);
        let expected: Vec<f64> = (0..y.len()).map(|i| d[i] - y[i] * totals[i]).collect();
        rig.expect(&LogSoftmaxGrad.into(), &[float(&logs), dy], shape, &expected, 1e-5);
    }
}

pub fn large_logits_do_not_overflow<D: Device<Op = Op, Host = HostTensor>>(rig: &mut Rig<D>) {
    let x = Arg::f32([2, 3], vec![1e30, 1e30, -1e30, -500.0, -501.0, f32::NEG_INFINITY]);
    let e = (-1f64).exp();
    let expected = [0.5, 0.5, 0.0, 1.0 / (1.0 + e), e / (1.0 + e), 0.0];
    rig.expect(&Softmax.into(), &[x], &[2, 3], &expected, 1e-6);
    let with_nan =
        Arg::f32([1, 20], (0..20).map(|i| if i == 3 { f32::NAN } else { 1.0 }).collect());
    rig.expect(&Softmax.into(), &[with_nan], &[1, 20], &[f64::NAN; 20], 0.0);
}

pub fn cross_entropy_and_its_gradient<D: Device<Op = Op, Host = HostTensor>>(rig: &mut Rig<D>) {
    let mut rng = Rng::new(7);
    // Try several values of the label smoothing and of the label that is ignored.
    for (smoothing, ignore) in [(0.0, -100), (0.0, 0), (0.25, -100), (1.0, 0)] {
        let forward = CrossEntropy { label_smoothing: smoothing, ignore_index: ignore };
        let backward = CrossEntropyGrad { label_smoothing: smoothing, ignore_index: ignore };
        for (n, classes) in [(1, 1), (4, 10), (128, 10), (64, 1000), (0, 3), (0, 0)] {
            let (logits, labels) = (rng.floats([n, classes]), rng.numbers([n], classes));
            let logs = log_softmax(&logits.elements(), classes);
            let label: Vec<i32> = labels.elements().into_iter().map(|x| x as i32).collect();
            let count = label.iter().filter(|&&label| label != ignore).count() as f64;
            let target = |i: usize| {
                let (row, class) = (label[i / classes], (i % classes) as i32);
                let at_label = f64::from(u8::from(class == row)) * (1.0 - f64::from(smoothing));
                let target = at_label + f64::from(smoothing) / classes as f64;
                (row != ignore).then_some(target)
            };
            let terms = (0..n * classes).map(|i| target(i).map_or(0.0, |target| target * logs[i]));
            let loss = -terms.sum::<f64>() / count;
            let found = rig.run(&forward.into(), &[logits, labels.clone()]);
            close(&found[0], &[], &[loss], 1e-6, "loss");
            close(&found[1], &[n, classes], &logs, 1e-6, "log probabilities");
            let expected: Vec<f64> = (0..n * classes)
                .map(|i| target(i).map_or(0.0, |target| (logs[i].exp() - target) * 1.5 / count))
                .collect();
            let args = [found[1].clone().into(), labels, Arg::f32([], vec![1.5])];
            rig.expect(&backward.into(), &args, &[n, classes], &expected, 2e-7);
        }
    }
    let backward = CrossEntropyGrad::default();
    for bad in [-1, 10, i32::MIN] {
        let labels = Arg::i32([3], vec![9, bad, 0]);
        let logits = rng.floats([3, 10]);
        let message = format!("label {bad} at position 1 is out of range, expected 0..10");
        let args = [logits.clone(), labels.clone()];
        assert_eq!(
            rig.try_run(&CrossEntropy::default().into(), &args).unwrap_err().to_string(),
            message
        );
        let args = [logits, labels, Arg::f32([], vec![1.0])];
        assert_eq!(rig.try_run(&backward.into(), &args).unwrap_err().to_string(), message);
    }
}
