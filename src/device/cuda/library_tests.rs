//! Tests of the ops that use NVIDIA's libraries, which compare their results with the CPU's. Each
//! test runs with cuDNN and without cuDNN.

use super::{Context, Cuda, Options};
use crate::device::Device;
use crate::device::conv_shape::span;
use crate::device::cpu::Cpu;
use crate::host::HostTensor;
use crate::layout::{DType, Layout};
use crate::op::Operation as _;
use crate::ops::conformance::{Arg, BYTES, Rig, Rng, close_sums, product};
use crate::ops::{Conv2d, Conv2dGradInput, Conv2dGradWeight, MatMul, Op};

/// Opens a GPU and makes a device for a rig. `None`, with a message, if there is no GPU.
fn open(options: Options) -> Option<Cuda<Op>> {
    match Context::open(options) {
        Ok(context) => Some(Cuda::of(&context, BYTES).expect("there is as much memory")),
        Err(reason) => {
            println!("skipped: {reason}");
            None
        }
    }
}

/// Runs `body` on a device with cuDNN, and on a device without cuDNN. Prints a message for each
/// device that cannot be opened.
fn on_devices(body: impl Fn(Cuda<Op>)) {
    for cudnn in [true, false] {
        if cudnn && super::versions::cudnn().is_none() {
            println!("skipped: no cuDNN");
        } else if let Some(device) = open(Options { cudnn, ..Options::default() }) {
            body(device);
        }
    }
}

fn bits(tensor: &HostTensor) -> Vec<u32> {
    tensor.as_f32().unwrap().iter().map(|x| x.to_bits()).collect()
}

/// A convolution and its two gradients, with random inputs.
fn tasks(rng: &mut Rng, x: [usize; 4], weight: [usize; 4], conv: Conv2d) -> [(Op, [Arg; 2]); 3] {
    let windows = [0, 1].map(|i| {
        let span = span(weight[2 + i], conv.dilation[i]);
        (x[2 + i] + 2 * conv.padding[i] - span) / conv.stride[i] + 1
    });
    let y = [x[0], weight[0], windows[0], windows[1]];
    let (kernel, input) = ([weight[2], weight[3]], [x[2], x[3]]);
    let [x, weight, dy] = [x, weight, y].map(|shape| rng.floats(shape));
    [
        (conv.into(), [x.clone(), weight.clone()]),
        (Conv2dGradInput { conv, input }.into(), [dy.clone(), weight]),
        (Conv2dGradWeight { conv, kernel }.into(), [x, dy]),
    ]
}

/// Shapes of `x` and the weight, and the convolution.
type Shapes = ([usize; 4], [usize; 4], Conv2d);

fn against_the_cpu(rng: &mut Rng, convolutions: &[Shapes]) {
    let of_all = |&(x, weight, conv): &Shapes| tasks(rng, x, weight, conv);
    let tasks: Vec<_> = convolutions.iter().flat_map(of_all).collect();
    let mut cpu = Rig::new(Cpu::new(BYTES, Some(2)).unwrap());
    let expected: Vec<_> = tasks.iter().map(|(op, args)| cpu.run(op, args)).collect();
    on_devices(|device| {
        let mut cuda = Rig::new(device);
        for ((op, args), expected) in tasks.iter().zip(&expected) {
            let shapes = args.clone().map(|arg| arg.layout().to_string());
            let found = cuda.run(op, args);
            close_sums(&found[0], &expected[0], 2e-5, &format!("{op:?} of {shapes:?}"));
        }
    });
}

#[test]
fn products_and_convolutions_are_those_of_every_device() {
    on_devices(|device| product::matrices_of_any_strides(&mut Rig::new(device)));
    on_devices(|device| product::convolutions(&mut Rig::new(device)));
}

#[test]
fn convolutions_of_any_shape() {
    let rng = &mut Rng::new(31);
    let shapes = [(); 60].map(|()| {
        let kernel = [1 + rng.below(5), 1 + rng.below(5)];
        // The random convolutions include strides that skip pixels, and paddings that contain whole
        // windows.
        let conv = Conv2d {
            stride: [1 + rng.below(4), 1 + rng.below(4)],
            padding: [rng.below(kernel[0] + 2), rng.below(kernel[1] + 2)],
            dilation: [(); 2].map(|()| [1, 1, 2, 3][rng.below(4)]),
            groups: [1, 1, 2, 5][rng.below(4)],
        };
        let side = |i: usize, rng: &mut Rng| {
            let span = span(kernel[i], conv.dilation[i]);
            (1 + rng.below(12)).max(span.saturating_sub(2 * conv.padding[i]))
        };
        let [n, c, o] = [(); 3].map(|()| 1 + rng.below(6));
        let (size, groups) = ([side(0, rng), side(1, rng)], conv.groups);
        ([n, groups * c, size[0], size[1]], [groups * o, c, kernel[0], kernel[1]], conv)
    });
    against_the_cpu(rng, &shapes);
}

#[test]
fn convolutions_of_one_pixel_and_of_a_whole_image() {
    let plain = Conv2d::default();
    let (x, pixel) = ([9, 7, 6, 5], [4, 7, 1, 1]);
    let shapes = [
        (x, pixel, plain),
        (x, [4, 7, 6, 5], plain),
        (x, pixel, Conv2d { stride: [2, 3], ..plain }),
        (x, pixel, Conv2d { padding: [1, 2], ..plain }),
    ];
    against_the_cpu(&mut Rng::new(32), &shapes);
}

/// The unfolded columns of all images would take 23 MiB, and the operands take 3 MiB.
#[test]
fn convolutions_of_more_images_than_are_done_at_once() {
    let conv = Conv2d::new([1, 1], [1, 1]);
    against_the_cpu(&mut Rng::new(33), &[([41, 16, 32, 32], [3, 16, 3, 3], conv)]);
}

#[test]
fn tf32_is_near_and_the_same_each_time() {
    let Some(device) = open(Options { tf32: true, ..Options::default() }) else { return };
    let rng = &mut Rng::new(34);
    let (mut cuda, mut cpu) = (Rig::new(device), Rig::new(Cpu::new(BYTES, Some(2)).unwrap()));
    let conv = Conv2d::new([1, 1], [1, 1]);
    let product = (MatMul.into(), [rng.floats([90, 130]), rng.floats([130, 70])]);
    for (op, args) in tasks(rng, [8, 16, 12, 12], [8, 16, 3, 3], conv).into_iter().chain([product])
    {
        let [first, second] = [(); 2].map(|()| cuda.run(&op, &args));
        assert_eq!(bits(&first[0]), bits(&second[0]), "{op:?}");
        close_sums(&first[0], &cpu.run(&op, &args)[0], 5e-3, &format!("{op:?}"));
    }
}

/// cuDNN may refuse operands that do not begin at a multiple of 16 bytes.
#[test]
fn views_that_begin_anywhere_go_without_cudnn() {
    let rng = &mut Rng::new(37);
    let conv = Conv2d::new([1, 1], [1, 1]);
    let runs = tasks(rng, [8, 16, 12, 12], [8, 16, 3, 3], conv);
    let either = |cudnn| open(Options { cudnn, ..Options::default() });
    let (Some(with), Some(without)) = (either(true), either(false)) else { return };
    let both = [&with, &without];
    let mut cases = Vec::new();
    for (op, args) in &runs {
        let outputs = outputs(op, &args.each_ref().map(Arg::layout));
        for which in [0, 1] {
            for further in [1, 2, 3, 4] {
                let mut args = args.clone();
                let shape = *args[which].layout().shape();
                args[which] = rng
                    .floats([shape.elements() + further])
                    .view(|layout| layout.slice(0, further, shape.elements())?.reshape(&shape));
                let inputs = args.each_ref().map(Arg::layout);
                if further < 4 {
                    let [a, b] = both.map(|device| device.workspace(op, &inputs, &outputs));
                    assert_eq!(a, b, "{op:?} of {inputs:?}");
                }
                cases.push((op, args, further < 4));
            }
        }
    }
    let (mut with, mut without) = (Rig::new(with), Rig::new(without));
    for (op, args, by_columns) in cases {
        let [a, b] = [&mut with, &mut without].map(|rig| rig.run(op, &args).remove(0));
        close_sums(&a, &b, 2e-5, &format!("{op:?}"));
        assert!(!by_columns || bits(&a) == bits(&b), "{op:?}");
    }
}

/// An evicted tensor may be recomputed at another address, or by a device that is opened later. The
/// recomputed bits must be the same.
#[test]
fn the_same_bits_elsewhere_and_on_another_device() {
    let rng = &mut Rng::new(35);
    let conv = Conv2d::new([1, 1], [1, 1]);
    let mut runs = tasks(rng, [10, 20, 14, 14], [30, 20, 3, 3], conv).to_vec();
    runs.push((MatMul.into(), [rng.floats([70, 500]), rng.floats([500, 90])]));
    let turned = rng.floats([500, 70]).view(|layout| layout.permute(&[1, 0]));
    runs.push((MatMul.into(), [turned, rng.floats([500, 1])]));
    for cudnn in [true, false] {
        let rig = || open(Options { cudnn, ..Options::default() }).map(Rig::new);
        let (Some(mut first), Some(mut second)) = (rig(), rig()) else { return };
        second.begin_at(1_000_192);
        for (op, args) in &runs {
            let [a, b] = [&mut first, &mut second].map(|rig| bits(&rig.run(op, args)[0]));
            assert_eq!(a, b, "{op:?}");
        }
    }
}

#[test]
fn a_dry_run_on_another_thread_asks_for_the_same_workspaces() {
    on_devices(|device| {
        let sim = device.context().sim::<Op>(BYTES);
        let rng = &mut Rng::new(36);
        let conv = Conv2d::new([2, 1], [1, 1]);
        let product = (MatMul.into(), [rng.floats([90, 130]), rng.floats([130, 70])]);
        for (op, args) in
            tasks(rng, [8, 16, 12, 12], [8, 16, 3, 3], conv).into_iter().chain([product])
        {
            let inputs = args.map(|arg| arg.layout());
            let outputs = outputs(&op, &inputs);
            let dry = crate::sync::thread::scope(|scope| {
                scope.spawn(|| sim.workspace(&op, &inputs, &outputs)).join().unwrap()
            });
            assert_eq!(dry, device.workspace(&op, &inputs, &outputs), "{op:?}");
        }
        drop(device);
        // A simulated device keeps the libraries alive after the device is dropped.
        let layout = Layout::contiguous(DType::F32, [4, 4]);
        assert_eq!(sim.workspace(&MatMul.into(), &[layout; 2], &[layout]), 64 << 10);
    });
}

fn outputs(op: &Op, inputs: &[Layout]) -> Vec<Layout> {
    match op.infer(inputs).unwrap().written() {
        Some((0, fresh)) => fresh.to_vec(),
        other => panic!("{other:?} is not fresh"),
    }
}
