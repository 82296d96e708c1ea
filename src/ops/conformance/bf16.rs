use super::samples::tasks;
use super::{Arg, Rig, close_sums};
use crate::device::Device;
use crate::host::{HostData, HostTensor, bf16};
use crate::layout::DType;
use crate::op::Operation as _;
use crate::ops::{Cast, Op};
use std::collections::BTreeSet;

/// A float tensor stored as `bf16`, and an f32 tensor of equal values.
fn halved(arg: &Arg) -> [Arg; 2] {
    let HostData::F32(data) = arg.host.data() else { return [arg.clone(), arg.clone()] };
    let half: Vec<bf16> = data.iter().map(|&x| bf16::from_f32(x)).collect();
    let full: Vec<f32> = half.iter().map(|x| x.to_f32()).collect();
    let shape = *arg.host.shape();
    let layout = arg.layout;
    [
        Arg { host: HostTensor::new(shape, half).unwrap(), layout: layout.with_dtype(DType::BF16) },
        Arg { host: HostTensor::f32(shape, full).unwrap(), layout },
    ]
}

/// Converts a tensor to f32.
fn full(host: &HostTensor) -> HostTensor {
    match host.data() {
        HostData::BF16(data) => {
            let data = data.iter().map(|x| x.to_f32()).collect();
            HostTensor::f32(*host.shape(), data).unwrap()
        }
        _ => host.clone(),
    }
}

/// Runs ops on `bf16` tensors, and on f32 tensors of equal values. The results must be equal up to
/// rounding and the order of sums.
pub fn ops_on_half_the_bytes<D: Device<Op = Op, Host = HostTensor>>(rig: &mut Rig<D>) {
    let mut found = BTreeSet::new();
    // Run fewer samples than for f32, because `bf16` uses the kernels for f32, and each sample runs
    // four times.
    rig.parts = (2 * rig.parts).max(3);
    for (op, args) in tasks(rig, 3) {
        let is_float = |arg: &Arg| arg.layout.dtype() == DType::F32;
        let first = args.iter().position(is_float);
        // First make all float operands `bf16`, and then only the first operand, like a `bf16`
        // activation with f32 parameters.
        for all in [true, false] {
            let pairs = args.iter().enumerate().map(|(i, arg)| {
                let [half, full] = halved(arg);
                let taken = all || Some(i) == first;
                if taken { [half, full] } else { [arg.clone(), arg.clone()] }
            });
            let (half, same): (Vec<Arg>, Vec<Arg>) = pairs.map(|[half, full]| (half, full)).unzip();
            let layouts: Vec<_> = half.iter().map(|arg| arg.layout).collect();
            let Ok(outputs) = op.infer(&layouts) else { continue };
            if layouts.iter().all(|layout| layout.dtype() != DType::BF16) {
                continue;
            }
            found.insert(op.name().to_owned());
            let what = format!("{op:?} of {layouts:?}, to {outputs:?}");
            for (found, expected) in rig.run(&op, &half).iter().zip(rig.run(&op, &same)) {
                let (found, expected) = (full(found), full(&expected));
                if found.as_bytes() == expected.as_bytes() {
                    continue;
                }
                match expected.as_f32() {
                    Some(_) => close_sums(&found, &expected, 1e-2, &what),
                    None => assert_eq!(found.as_i32(), expected.as_i32(), "{what}"),
                }
            }
        }
    }
    let wanted = ["add", "relu", "matmul", "conv2d", "batch_norm", "layer_norm_grad", "sum"];
    let missing: Vec<_> = wanted.iter().filter(|&&name| !found.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?} are not among {found:?}");
}

/// Converts floats of every kind to `bf16` and back. The results must equal the results of the
/// crate `half`.
pub fn rounding<D: Device<Op = Op, Host = HostTensor>>(rig: &mut Rig<D>) {
    let words = (0..1 << 16).map(|high: u32| high << 16);
    let floats: Vec<f32> = words
        .flat_map(|word| {
            [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff].map(|low| f32::from_bits(word | low))
        })
        .collect();
    let expected: Vec<bf16> = floats.iter().map(|&x| bf16::from_f32(x)).collect();
    let [to, back] = [DType::BF16, DType::F32].map(|to| Op::from(Cast { to }));
    let found = rig.run(&to, &[Arg::f32([floats.len()], floats.clone())]);
    let HostData::BF16(half) = found[0].data() else { panic!("{found:?}") };
    for ((half, expected), x) in half.iter().zip(&expected).zip(&floats) {
        assert_eq!(half.to_bits(), expected.to_bits(), "{x} {:#x}", x.to_bits());
    }
    let all: Vec<bf16> = (0..=u16::MAX).map(bf16::from_bits).collect();
    let found = rig.run(&back, &[HostTensor::new([all.len()], all.clone()).unwrap().into()]);
    let found = found[0].as_f32().unwrap().iter().map(|x| x.to_bits());
    assert!(found.eq(all.iter().map(|x| u32::from(x.to_bits()) << 16)));
}
