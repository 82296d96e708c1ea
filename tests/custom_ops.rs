//! Custom ops on each device, on a tape and under budgets, and the errors of faulty ones.

use crate::common::custom::Clip;
use crate::common::device::{Target, targets};
use remat::autograd::Tape;
use remat::device::{DeviceError, cpu};
use remat::ops::{CudaKernel, CustomOp};
use remat::{DType, Dims, Error, Layout, PolicyKind, Runtime, Stats, Tensor};
use std::sync::atomic::{AtomicU64, Ordering};

/// Example 08, which is tested without changes.
#[allow(dead_code)]
#[path = "../examples/08_your_own_op.rs"]
mod example;

fn numbers(count: usize, seed: u32) -> Vec<f32> {
    let number = |i: u32| (i.wrapping_add(seed).wrapping_mul(2_654_435_761) >> 8) as f32;
    (0..count as u32).map(|i| number(i) / (1 << 22) as f32 - 2.0).collect()
}

/// Result of twenty-four layers, and its gradient. All devices round the ops of these layers
/// equally.
fn work(runtime: &Runtime) -> Result<[Vec<f32>; 2], Error> {
    const SHAPE: [usize; 2] = [64, 100];
    let mut w = runtime.tensor(&SHAPE, numbers(6400, 1))?;
    let tape = Tape::new(runtime);
    tape.watch(&mut w);
    let mut y = runtime.tensor(&SHAPE, numbers(6400, 77))?;
    for _ in 0..24 {
        y = Clip { low: -1.0, high: 1.5 }.of(&((&y * &w)? + &w)?)?;
    }
    let loss = y.mean()?;
    let value = y.to_vec()?;
    drop(y);
    let gradients = tape.backward(&loss)?;
    Ok([value, gradients.get(&w).expect("the loss depends on w").to_vec()?])
}

#[test]
fn the_same_bits_on_every_device_and_under_every_budget() {
    let run = |target: Target, builder| -> ([Vec<u32>; 2], Stats) {
        let runtime = target.start(builder);
        let found = work(&runtime).unwrap_or_else(|e| panic!("{target:?}: {e}"));
        let bits = found.map(|numbers| numbers.iter().map(|x: &f32| x.to_bits()).collect());
        (bits, runtime.stats().unwrap())
    };
    let builder = || Runtime::builder().budget("16MiB");
    let (expected, _) = run(Target::Cpu, builder());
    assert!(expected[1].iter().any(|&bits| bits != 0));
    for target in targets() {
        let (found, stats) = run(target, builder());
        assert!(found == expected, "{target:?}");
        for percent in [60, 40] {
            for policy in [PolicyKind::DtrEq, PolicyKind::Dtr, PolicyKind::Lru] {
                let budget = stats.peak_bytes * percent / 100;
                let (found, tight) = run(target, builder().budget(budget).policy(policy));
                assert!(found == expected, "{target:?} at {percent} % by {policy}");
                assert!(tight.recomputed_ops > 0 && tight.peak_bytes <= budget, "{tight:?}");
            }
        }
    }
}

/// The simulator counts the same memory for a custom op.
#[test]
fn a_simulated_runtime_runs_it_too() {
    let stats = |runtime: Runtime| {
        work(&runtime).unwrap();
        runtime.stats().unwrap()
    };
    let builder = || Runtime::builder().budget("16MiB");
    let [real, sim] = [builder().cpu(), builder().sim()].map(|runtime| stats(runtime.unwrap()));
    assert_eq!(real.peak_bytes, sim.peak_bytes);
    let tight = || Runtime::builder().budget(real.peak_bytes * 2 / 5);
    let [real, sim] = [tight().cpu(), tight().sim()].map(|runtime| stats(runtime.unwrap()));
    assert_eq!((real.evictions, real.recomputed_ops), (sim.evictions, sim.recomputed_ops));
    assert!(sim.evictions > 0);
}

#[test]
fn inputs_that_are_not_contiguous_are_packed() {
    for target in targets() {
        let runtime = target.start(Runtime::builder().budget("1MiB"));
        let x = runtime.tensor(&[2, 3], vec![0., 10., 2., -30., 4., 5.]).unwrap();
        let y = Clip { low: -1.0, high: 4.5 }.of(&x.transpose().unwrap()).unwrap();
        assert_eq!(y.shape(), [3, 2]);
        assert_eq!(y.to_vec::<f32>().unwrap(), [0., -1., 4.5, 4., 2., 4.5], "{target:?}");
    }
}

#[test]
fn the_example_is_the_same_on_every_device() {
    let mut found = Vec::new();
    for target in targets() {
        let runtime = target.start(Runtime::builder().budget("1MiB"));
        let x = runtime.tensor(&[1000], numbers(1000, 5)).unwrap();
        found.push(example::swish(&x, 1.5).unwrap().to_vec::<f32>().unwrap());
    }
    for other in &found {
        for (x, y) in found[0].iter().zip(other) {
            assert!((x - y).abs() <= 1e-6, "{x} and {y}");
        }
    }
}

/// Custom op that takes any floats, with a replaceable `infer` and kernel.
#[derive(Debug)]
struct Own {
    name: &'static str,
    infer: fn(&Layout) -> Layout,
    cuda: fn(&Self) -> Option<CudaKernel>,
}

impl Own {
    fn new(name: &'static str, cuda: fn(&Self) -> Option<CudaKernel>) -> Self {
        Self { name, infer: |x| Layout::contiguous(DType::F32, *x.shape()), cuda }
    }
}

impl CustomOp for Own {
    fn name(&self) -> &str {
        self.name
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Vec<Layout>, String> {
        let [x] = inputs else { return Err(format!("takes 1 input, {} were given", inputs.len())) };
        Ok(vec![(self.infer)(x)])
    }

    fn cpu(&self, mut operands: cpu::Operands<'_>) -> Result<(), DeviceError> {
        let ([x], [y]) = (operands.floats(), operands.outputs());
        y.copy_from_slice(x);
        Ok(())
    }

    fn cuda(&self) -> Option<CudaKernel> {
        (self.cuda)(self)
    }
}

#[test]
fn outputs_inferred_by_a_custom_op_are_checked_at_the_call() {
    let runtime = Runtime::builder().budget("1MiB").cpu().unwrap();
    let x = runtime.tensor(&[2, 3], vec![0.0; 6]).unwrap();
    let turned: fn(&Layout) -> Layout = |x| x.permute(&[1, 0]).unwrap();
    let further: fn(&Layout) -> Layout = |x| x.slice(0, 1, 1).unwrap();
    let absurd: fn(&Layout) -> Layout =
        |_| Layout::contiguous(DType::F32, Dims::new(&[usize::MAX, usize::MAX]));
    for infer in [turned, further, absurd] {
        let error = Tensor::apply(Own { infer, ..Own::new("odd", |_| None) }, &[&x]).unwrap_err();
        assert!(matches!(&error, Error::Op(error) if error.op == "odd"), "{error}");
    }
    let ok = Own::new("ok", |_| None);
    let error = Tensor::apply(ok, &[&x, &x]).unwrap_err().to_string();
    assert_eq!(error, "ok: takes 1 input, 2 were given");
}

/// Op that finds out in its first run that it needs a workspace.
#[derive(Debug, Default)]
struct Finds(AtomicU64);

impl CustomOp for Finds {
    fn name(&self) -> &str {
        "finds"
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Vec<Layout>, String> {
        Ok(inputs.to_vec())
    }

    fn cpu_workspace(&self, _inputs: &[Layout], _outputs: &[Layout]) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn cpu(&self, mut operands: cpu::Operands<'_>) -> Result<(), DeviceError> {
        let workspace: &mut [f32] = operands.workspace();
        if workspace.is_empty() {
            self.0.store(1000, Ordering::Relaxed);
            return Err(DeviceError::out_of_memory("no workspace"));
        }
        operands.write::<f32>(0).fill(workspace.len() as f32);
        Ok(())
    }
}

#[test]
fn an_op_that_turns_out_to_need_more_workspace_runs_with_more() {
    let runtime = Target::Cpu.start(Runtime::builder().budget("1MiB"));
    let x = runtime.full(&[2], 1.0).unwrap();
    let y = Tensor::apply(Finds::default(), &[&x]).unwrap().swap_remove(0);
    assert_eq!(y.to_vec::<f32>().unwrap(), [250.0; 2]);
    let stats = runtime.stats().unwrap();
    assert_eq!(stats.evictions, 0, "{stats:?}");
    assert!(stats.peak_bytes >= 1000, "{stats:?}");
}

#[cfg(feature = "cuda")]
mod on_a_gpu {
    use super::*;
    use crate::common::device::gpu;

    fn run(runtime: &Runtime, op: Own, x: &[f32]) -> Result<Vec<f32>, Error> {
        let x = runtime.tensor(&[x.len()], x.to_vec())?;
        Tensor::apply(op, &[&x])?.swap_remove(0).to_vec()
    }

    fn start() -> Option<Runtime> {
        Some(gpu()?.start(Runtime::builder().budget("1MiB")))
    }

    #[test]
    fn one_that_cannot_run_there_says_why() {
        let Some(runtime) = start() else { return };
        let broken = |op: &Own| {
            let source =
                "extern \"C\" __global__ void f(const float *x, float *y, u64 n) { oops; }";
            // SAFETY: the source does not compile, so no kernel runs.
            Some(unsafe { CudaKernel::new(op, source, "f", Vec::new()) })
        };
        let absent = |op: &Own| {
            let source = "extern \"C\" __global__ void g(const float *x, float *y, u64 n) {}";
            // SAFETY: the source has no function `f`, so no kernel runs.
            Some(unsafe { CudaKernel::new(op, source, "f", Vec::new()) })
        };
        // The kernel would write past the outputs that `Own` declares.
        let anothers = |_: &Own| Clip { low: 0.0, high: 1.0 }.cuda();
        let cases: [(Own, &[&str]); 4] = [
            (
                Own::new("bare", |_| None),
                &["bare has no kernel for the GPU: implement CustomOp::cuda, or run it on the cpu"],
            ),
            (Own::new("broken", broken), &["broken failed on the device: ", "oops"]),
            (Own::new("absent", absent), &["absent failed on the device: ", "f: "]),
            (Own::new("thief", anothers), &["thief has the kernel of another op"]),
        ];
        for (op, expected) in cases {
            let name = op.name;
            let error = run(&runtime, op, &[1.0, 2.0]).unwrap_err().to_string();
            assert!(expected.iter().all(|part| error.contains(part)), "{name}: {error}");
        }
        // The runtime goes on.
        let x = runtime.tensor(&[2], vec![1.0, 2.0]).unwrap();
        assert_eq!(x.square().unwrap().to_vec::<f32>().unwrap(), [1.0, 4.0]);
    }

    /// Kernels of different sources may have one name, even if one source is the beginning of the
    /// other.
    #[test]
    fn kernels_are_not_mixed_up() {
        const BOTH: &str = concat!(
            "extern \"C\" __global__ void f(const float *x, float *y, u64 n)\n",
            "{ if (threadIdx.x < n) y[threadIdx.x] = x[threadIdx.x] + 1.0f; }\n",
            "extern \"C\" __global__ void g(const float *x, float *y, u64 n)\n",
            "{ if (threadIdx.x < n) y[threadIdx.x] = x[threadIdx.x] + 2.0f; }\n"
        );
        static ALL: &str = BOTH;
        const OTHER: &str = "extern \"C\" __global__ void f(const float *x, float *y, u64 n)\n\
                             { if (threadIdx.x < n) y[threadIdx.x] = x[threadIdx.x] + 3.0f; }\n";
        let first = |op: &Own| {
            let (source, _) = ALL.split_at(ALL.rfind("extern").expect("the second one"));
            // SAFETY: the kernel works on tensors of up to 256 elements, and this test has only
            // tensors of two.
            Some(unsafe { CudaKernel::new(op, source, "f", Vec::new()) })
        };
        // SAFETY: the kernel works on tensors of up to 256 elements, and this test has only tensors
        // of two.
        let second = |op: &Own| Some(unsafe { CudaKernel::new(op, ALL, "g", Vec::new()) });
        // SAFETY: the kernel works on tensors of up to 256 elements, and this test has only tensors
        // of two.
        let third = |op: &Own| Some(unsafe { CudaKernel::new(op, OTHER, "f", Vec::new()) });
        let Some(runtime) = start() else { return };
        for _ in 0..2 {
            let kernels: [fn(&Own) -> Option<CudaKernel>; 3] = [first, second, third];
            for (i, kernel) in kernels.into_iter().enumerate() {
                let found = run(&runtime, Own::new("plus", kernel), &[1.0, 2.0]).unwrap();
                let added = (i + 1) as f32;
                assert_eq!(found, [1.0 + added, 2.0 + added]);
            }
        }
    }
}
