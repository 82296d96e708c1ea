//! Memory, threads and open files do not grow in long runs. The test needs a separate process,
//! because it counts those of the whole process.
//!
//! `REMAT_STEPS=10000 cargo test --test endurance -- --ignored --nocapture` takes some minutes.

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamConfig, GradientsParams};
use burn::tensor::{Device, Tensor, activation};
use burn_flex::Flex;
use remat_burn::Guard;
use remat_burn::remat::Stats;
use std::fs;

/// Number of steps. A thousand steps are enough to detect a growth of one byte per operation.
fn steps() -> usize {
    std::env::var("REMAT_STEPS").map_or(1000, |steps| steps.parse().expect("a number of steps"))
}

fn budgeted(budget: u64) -> Guard {
    remat_burn::budget(budget).serve::<Flex>(Default::default()).unwrap()
}

#[derive(Module, Debug)]
struct Mlp {
    layers: Vec<Linear>,
}

impl Mlp {
    fn new(device: &Device) -> Self {
        Self { layers: (0..4).map(|_| LinearConfig::new(16, 16).init(device)).collect() }
    }

    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        self.layers.iter().fold(x, |x, layer| activation::gelu(layer.forward(x)))
    }
}

/// Origin of the marks of steps.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Marks {
    ByStep,
    ByReads,
    Nobody,
}

/// Trains, and calls `look` after each tenth of the steps.
fn train(device: &Guard, steps: usize, marks: Marks, mut look: impl FnMut(Stats)) {
    let on = device.autodiff();
    let mut model = Mlp::new(&on);
    let mut optim = AdamConfig::new().init();
    for step in 1..=steps {
        let x = Tensor::<2>::ones([64, 16], &on) * (step % 7) as f32;
        let loss = model.forward(x).powi_scalar(2).mean();
        let grads = GradientsParams::from_grads(loss.backward(), &model);
        model = optim.step(1e-3, model, grads);
        match marks {
            Marks::ByStep => device.step().unwrap(),
            Marks::ByReads => assert!(loss.into_scalar::<f32>().is_finite()),
            Marks::Nobody => {}
        }
        if step % (steps / 10) == 0 {
            look(device.stats().unwrap());
        }
    }
}

/// Resident bytes, threads, and open files of this process.
fn held() -> (usize, usize, usize) {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    let count = |folder| fs::read_dir(folder).unwrap().count();
    (pages * 4096, count("/proc/self/task"), count("/proc/self/fd"))
}

/// Makes all checks in a single test, because the counters are of the whole process.
#[test]
#[ignore = "takes a minute: by hand"]
fn nothing_grows_with_steps_or_with_devices() {
    let plenty = budgeted(64 << 20);
    let mut peak = 0;
    train(&plenty, 10, Marks::ByStep, |stats| peak = stats.peak_bytes);
    drop(plenty);
    for marks in [Marks::ByStep, Marks::ByReads, Marks::Nobody] {
        let device = budgeted(peak * 8 / 10);
        let (mut tables, mut memory, mut ends) = (Vec::new(), Vec::new(), 0);
        train(&device, steps(), marks, |stats| {
            assert!(stats.evictions > 0);
            tables.push(stats.paths.max(stats.tensors).max(stats.storages));
            memory.push(held().0);
            ends = stats.steps;
        });
        println!("{marks:?}: {ends} ends of steps, tables {tables:?}, resident bytes {memory:?}");
        // Without marks, tables hold at most two times the operations between automatic marks.
        let most = if marks == Marks::Nobody { 3 << 12 } else { tables[0] + 16 };
        assert!(tables.iter().all(|&size| size <= most), "{marks:?}: {tables:?}");
        assert!(memory[9] < memory[1] + (8 << 20), "{marks:?}: {memory:?}");
    }
    let mut before = held();
    for count in 0..1000 {
        let device = budgeted(1 << 20);
        let x = Tensor::<2>::ones([128, 256], &device);
        assert_eq!(x.sum().into_scalar::<f32>(), 32768.0);
        if count == 100 {
            before = held();
        }
    }
    let after = held();
    println!("1,000 devices: bytes, threads and files {before:?} -> {after:?}");
    assert!(after.0 < before.0 + (8 << 20), "{before:?} -> {after:?}");
    assert!(after.1 <= before.1 && after.2 <= before.2, "{before:?} -> {after:?}");
}
