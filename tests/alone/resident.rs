//! The budget limits the memory of the process. The resident memory of the process grows by no more
//! than the budget, the packing buffers of matrix products, and a few MiB for everything else.

use crate::common::device::Target;
use crate::{alone, status};
use remat::device::cpu::PACKING_BYTES;
use remat::ops::Conv2d;
use remat::unstable::ops::{BatchNorm, BatchNormGrad, Conv2dGradInput, Conv2dGradWeight};
use remat::{Error, Runtime, Tensor};

const MIB: u64 = 1 << 20;

/// Bytes for code loaded at run time, stacks, and memory that allocators keep.
const LITTLE: u64 = 8 * MIB;

const THREADS: usize = 2;

#[test]
fn batch_norm() {
    stays_within("resident::batch_norm", 288 * MIB, |runtime| {
        let (x, c) = (fill(runtime, &[2048, 16_384])?, fill(runtime, &[16_384])?);
        let op = BatchNorm { momentum: 0.1, eps: 1e-5 };
        Ok(runtime.apply(op, &[&x, &c, &c, &c, &c])?.swap_remove(1))
    });
}

#[test]
fn batch_norm_grad() {
    stays_within("resident::batch_norm_grad", 136 * MIB, |runtime| {
        let x = fill(runtime, &[1024, 16_384])?;
        let c = fill(runtime, &[16_384])?;
        Ok(runtime.apply(BatchNormGrad, &[&x, &c, &c, &c, &x])?.swap_remove(1))
    });
}

#[test]
fn reduction() {
    stays_within("resident::reduction", 260 * MIB, |runtime| {
        let x = fill(runtime, &[16_384, 4095])?;
        x.sum_along(&[0], false)
    });
}

#[test]
fn convolution() {
    stays_within("resident::convolution", 52 * MIB, |runtime| {
        let (x, weight) = (fill(runtime, &[16, 16, 127, 129])?, fill(runtime, &[16, 16, 3, 3])?);
        let conv = Conv2d::new([1, 1], [1, 1]);
        let dy = x.conv2d(&weight, conv)?;
        let kernel = [3, 3];
        drop(runtime.apply(Conv2dGradInput { conv, input: [127, 129] }, &[&dy, &weight])?);
        Ok(runtime.apply(Conv2dGradWeight { conv, kernel }, &[&x, &dy])?.swap_remove(0))
    });
}

#[test]
fn matmul() {
    stays_within("resident::matmul", 34 * MIB, |runtime| {
        let (a, b) = (fill(runtime, &[1500, 1700])?, fill(runtime, &[1700, 1900])?);
        let product = a.matmul(&b)?;
        product.sum()
    });
}

fn fill(runtime: &Runtime, shape: &[usize]) -> Result<Tensor, Error> {
    runtime.full(shape, 0.5)
}

/// Peak of the resident bytes of the process.
fn peak_bytes() -> u64 {
    status("VmHWM") << 10
}

/// Runs `work` in a process of its own, because the peak of a process never falls.
fn stays_within(test: &str, budget: u64, work: impl FnOnce(&Runtime) -> Result<Tensor, Error>) {
    alone(test, || {
        let before = peak_bytes();
        let runtime = Target::Cpu.start(Runtime::builder().budget(budget).threads(THREADS));
        runtime.get(&work(&runtime).unwrap()).unwrap();
        let taken = peak_bytes() - before;
        let packed = 2 * (THREADS * PACKING_BYTES) as u64;
        let used = runtime.stats().unwrap().peak_bytes;
        println!("{} MiB resident, {} MiB of {} used", taken / MIB, used / MIB, budget / MIB);
        assert!(taken <= budget + packed + LITTLE, "{taken} bytes under a budget of {budget}");
        // The process must have touched all of its tensors, or the test would show nothing.
        assert!(taken >= used, "{taken} bytes of which {used} are tensors");
    });
}

/// Resident bytes now.
fn resident_bytes() -> u64 {
    status("VmRSS") << 10
}

#[test]
fn a_budget_that_is_lowered_gives_memory_back() {
    alone("resident::a_budget_that_is_lowered_gives_memory_back", || {
        for grows in [false, true] {
            let before = resident_bytes();
            let builder = Runtime::builder().budget(256 * MIB).allow_growth(grows).threads(THREADS);
            let runtime = Target::Cpu.start(builder);
            let tensors: Vec<Tensor> =
                (0..15).map(|_| fill(&runtime, &[1 << 22]).unwrap()).collect();
            runtime.sync().unwrap();
            assert!(resident_bytes() - before >= 240 * MIB);
            runtime.set_budget(64 * MIB).unwrap();
            let taken = resident_bytes() - before;
            assert!(taken <= 64 * MIB + LITTLE, "{taken} bytes under a budget of 64 MiB");
            runtime.get(&tensors[0].sum().unwrap()).unwrap();
            runtime.set_budget(256 * MIB).unwrap();
            runtime.get(&tensors[1].sum().unwrap()).unwrap();
        }
    });
}
