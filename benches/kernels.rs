//! Speed of the GPU kernels relative to a plain copy of memory. Each op runs on shapes of a
//! ResNet-50 with batch 64.
//!
//! The speed of a row is the bytes of inputs and outputs, divided by the time between an event
//! before and an event after the op. The baseline is the first row, a plain copy. The column
//! `to it` is the ratio of a row's speed to the copy's speed.
//!
//! Before each run, long copies keep the GPU busy, so that the whole op is submitted before it
//! begins. The times therefore contain no time of the host. The long copies also replace the inputs
//! in the cache.
//!
//! Ops that must read their input twice cannot reach the speed of the copy. A batch norm whose
//! channels do not fit in a thread block can reach a ratio of 0.67 forward and 0.6 backward, or
//! more if the cache holds a part of the input. Matrix products and convolutions are limited by
//! arithmetic, so their GFLOP/s matter instead.
//!
//! `cargo bench --features cuda --bench kernels`; with `-- small`, all batches are 1. The exit code
//! is 1 if there is no GPU, or if an op fails.

use remat::device::cuda::Options;
use remat::device::{Call, Device, DeviceError, Place};
use remat::op::Operation as _;
use remat::ops::{Conv2d, Op, Pool2d};
use remat::unstable::device::cuda::{Context, Cuda};
use remat::unstable::ops::{
    Accumulate, AvgPool2d, AvgPool2dGrad, BatchNorm, BatchNormGrad, Binary, Contiguous,
    Conv2dGradInput, Conv2dGradWeight, CrossEntropy, CrossEntropyGrad, Fill, MatMul, MaxPool2d,
    MaxPool2dGrad, Reduce, Reduction, SgdMomentum, Softmax, SoftmaxGrad, Unary,
};
use remat::{DType, Dims, HostTensor, Layout};
use std::process::ExitCode;

const ROUNDS: usize = 20;

/// Bytes of a copy that keeps the GPU busy while an op is submitted, and the number of copies. All
/// copies together take about half a millisecond on the fastest GPUs.
const BUSY: u64 = 256 << 20;
const COPIES: usize = 4;

fn f(shape: &[usize]) -> Layout {
    Layout::contiguous(DType::F32, Dims::new(shape))
}

fn int(shape: &[usize]) -> Layout {
    Layout::contiguous(DType::I32, Dims::new(shape))
}

/// Name of a row, its op, and the inputs' layouts.
type Case = (String, Op, Vec<Layout>);

fn elementwise(n: usize) -> Vec<Case> {
    let image = [n, 64, 112, 112];
    let (x, channel) = (f(&image), f(&[64, 1, 1]));
    let case = |name: &str, op: Op, inputs: &[Layout]| (name.to_owned(), op, inputs.to_vec());
    vec![
        case("copy", Contiguous.into(), &[x]),
        case("relu", Unary::Relu.into(), &[x]),
        case("tanh", Unary::Tanh.into(), &[x]),
        case("add", Binary::Add.into(), &[x, x]),
        case("add of a channel", Binary::Add.into(), &[x, channel]),
        case("gradient of relu", Binary::ReluGrad.into(), &[x, x]),
        case("accumulate", Accumulate.into(), &[x, x]),
        case("transpose", Contiguous.into(), &[x.permute(&[0, 2, 3, 1]).expect("four axes")]),
        case("fill", Fill { shape: Dims::new(&image), value: 1.0 }.into(), &[]),
    ]
}

fn reductions(n: usize) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |name: &str, op: Op, inputs: &[Layout]| {
        cases.push((name.to_owned(), op, inputs.to_vec()));
    };
    for (name, kind, shape, axes) in [
        ("sum of all", Reduction::Sum, &[n, 64, 112, 112][..], &[0, 1, 2, 3][..]),
        ("sum over rows", Reduction::Sum, &[64 * n, 10_000], &[1]),
        ("sum over columns", Reduction::Sum, &[64 * n, 10_000], &[0]),
        ("sum of each channel", Reduction::Sum, &[n, 64, 112, 112], &[0, 2, 3]),
        ("mean of each image", Reduction::Mean, &[n, 2048, 7, 7], &[2, 3]),
        ("max over rows", Reduction::Max, &[64 * n, 10_000], &[1]),
    ] {
        let op = Reduce { kind, axes: Dims::new(axes), keep_dims: false };
        add(&format!("{name} {shape:?}"), op.into(), &[f(shape)]);
    }
    for classes in [10, 1000, 50_000] {
        let rows = n * 6_400_000 / 64 / classes;
        let (x, labels) = (f(&[rows, classes]), int(&[rows]));
        add(&format!("softmax of {classes}"), Softmax.into(), &[x]);
        add(&format!("gradient of softmax of {classes}"), SoftmaxGrad.into(), &[x, x]);
        add(&format!("cross entropy of {classes}"), CrossEntropy::default().into(), &[x, labels]);
        let loss = f(&[]);
        add(
            &format!("gradient of cross entropy of {classes}"),
            CrossEntropyGrad::default().into(),
            &[x, labels, loss],
        );
    }
    let p = f(&[n * 400_000]);
    let op = SgdMomentum { lr: 0.1, momentum: 0.9, weight_decay: 1e-4, nesterov: false };
    add("sgd", op.into(), &[p, p, p]);
    cases
}

fn images(n: usize) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |name: String, op: Op, inputs: &[Layout]| cases.push((name, op, inputs.to_vec()));
    for (c, side) in [(64, 112), (64, 56), (256, 56), (512, 28), (1024, 14), (2048, 7)] {
        let (x, v) = (f(&[n, c, side, side]), f(&[c]));
        let op = BatchNorm { momentum: 0.1, eps: 1e-5 };
        add(format!("batch norm {c}x{side}x{side}"), op.into(), &[x, v, v, v, v]);
        add(format!("its gradient {c}x{side}x{side}"), BatchNormGrad.into(), &[x, v, v, v, x]);
    }
    let pool = Pool2d { kernel: [3, 3], stride: [2, 2], padding: [1, 1] };
    let (x, y) = ([n, 64, 112, 112], [n, 64, 56, 56]);
    add("max pool".to_owned(), MaxPool2d(pool).into(), &[f(&x)]);
    let op = MaxPool2dGrad { pool, input: [112, 112] };
    add("its gradient".to_owned(), op.into(), &[int(&y), f(&y)]);
    add("mean pool".to_owned(), AvgPool2d(pool).into(), &[f(&x)]);
    let op = AvgPool2dGrad { pool, input: [112, 112] };
    add("its gradient".to_owned(), op.into(), &[f(&y)]);
    let conv = |side: usize| Conv2d::new([1, 1], [side / 2, side / 2]);
    for (o, c, side, kernel) in [(64, 64, 56, 3), (256, 64, 56, 1), (512, 512, 7, 3)] {
        let (x, w, y) =
            (f(&[n, c, side, side]), f(&[o, c, kernel, kernel]), f(&[n, o, side, side]));
        let (conv, input) = (conv(kernel), [side; 2]);
        let name = format!("{c} to {o} channels {side}x{side} by {kernel}x{kernel}");
        add(format!("convolution {name}"), conv.into(), &[x, w]);
        let op = Conv2dGradInput { conv, input };
        add("its gradient of x".to_owned(), op.into(), &[y, w]);
        let op = Conv2dGradWeight { conv, kernel: [kernel; 2] };
        add("its gradient of weights".to_owned(), op.into(), &[x, y]);
    }
    add("product of 4096x4096".to_owned(), MatMul.into(), &[f(&[64 * n, 4096]), f(&[4096, 4096])]);
    cases
}

/// A number from 0.5 to 1.5, so that logarithms and roots get valid inputs.
fn float(i: usize) -> f32 {
    0.5 + ((i as u32).wrapping_mul(2_654_435_761) >> 8) as f32 / (1 << 24) as f32
}

/// Median seconds of a run.
fn time(device: &mut Cuda<Op>, op: &Op, inputs: &[Layout]) -> Result<f64, DeviceError> {
    let mut front = 0;
    let mut place = |bytes: u64| {
        let storage = front;
        front += bytes.next_multiple_of(256);
        storage
    };
    let inputs: Vec<Place> =
        inputs.iter().map(|&layout| Place { storage: place(layout.bytes()), layout }).collect();
    let layouts: Vec<Layout> = inputs.iter().map(|place| place.layout).collect();
    let inferred = op.infer(&layouts).map_err(|e| DeviceError::new(e.to_string()))?;
    let (targets, fresh) = inferred.written().ok_or_else(|| DeviceError::new("a view"))?;
    let mut outputs = inputs[..targets].to_vec();
    for &layout in fresh {
        outputs.push(Place { storage: place(layout.bytes()), layout });
    }
    let layouts_out: Vec<Layout> = outputs.iter().map(|place| place.layout).collect();
    let busy = [place(BUSY), place(BUSY)];
    let bytes = device.workspace(op, &layouts, &layouts_out);
    let workspace = place(bytes)..front;
    for input in &inputs {
        let (dtype, elements) = (input.layout.dtype(), input.layout.elements());
        let host = match dtype {
            // Values are not zeros, because products of zeros take less power and therefore less
            // time.
            DType::F32 => HostTensor::f32([elements], (0..elements).map(float).collect())
                .map_err(|e| e.to_string()),
            // Labels and indices must be in range.
            _ => HostTensor::zeros(dtype, [elements]).map_err(|e| e.to_string()),
        };
        let host = host.map_err(DeviceError::new)?;
        let layout = Layout::contiguous(dtype, [elements]);
        device.write(&host, Place { layout, ..*input })?;
    }
    device.sync()?;
    while device.take_time().is_some() {}
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        for _ in 0..COPIES {
            device.copy(busy[0], busy[1], BUSY)?;
        }
        let workspace = workspace.start..workspace.start + bytes;
        let call =
            Call { op, inputs: &inputs, outputs: &outputs, flops: 0.0, workspace, timed: true };
        device.execute(call)?;
        device.sync()?;
        times.extend(device.take_time());
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

fn main() -> ExitCode {
    let n = if std::env::args().any(|arg| arg == "small") { 1 } else { 64 };
    let open = || {
        let gpu = Context::open(Options::default())?;
        Cuda::of(&gpu, gpu.available_bytes()?)
    };
    let mut device = match open() {
        Ok(device) => device,
        Err(reason) => {
            println!("no GPU: {reason}");
            return ExitCode::FAILURE;
        }
    };
    println!("{:58} {:>9} {:>8} {:>6} {:>9}", "", "ms", "GB/s", "to it", "GFLOP/s");
    let (mut copy, mut code) = (0.0, ExitCode::SUCCESS);
    for (name, op, inputs) in [elementwise(n), reductions(n), images(n)].concat() {
        let outputs = op.infer(&inputs).expect("a case that fits its op");
        let fresh: Vec<Layout> =
            (0..outputs.len()).map(|i| outputs.layout(i, |input| inputs[input])).collect();
        let bytes: u64 = inputs.iter().chain(&fresh).map(Layout::bytes).sum();
        match time(&mut device, &op, &inputs) {
            Ok(seconds) => {
                let speed = bytes as f64 / seconds * 1e-9;
                copy = if copy == 0.0 { speed } else { copy };
                println!(
                    "{name:58} {:9.3} {speed:8.0} {:6.2} {:9.0}",
                    seconds * 1e3,
                    speed / copy,
                    op.flops(&inputs, &fresh) / seconds * 1e-9
                );
            }
            Err(error) => {
                println!("{name:58} {error}");
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}
