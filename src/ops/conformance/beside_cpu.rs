//! Comparison of a device with the CPU, for every op.

use super::samples::{assert_near, tasks};
use super::{BYTES, Rig};
use crate::device::Device;
use crate::device::cpu::Cpu;
use crate::host::HostTensor;
use crate::layout::DType;
use crate::op::Operation as _;
use crate::ops::Op;
use std::collections::{BTreeSet, HashSet};

/// Compares the results of every op on the tested device and on the CPU. The results must be equal
/// up to rounding. If an op only moves elements or writes zeros, it rounds nothing, and the bits
/// must be equal.
pub fn results_are_the_same_but_for_rounding<D: Device<Op = Op, Host = HostTensor>>(
    rig: &mut Rig<D>,
) {
    let mut cpu = Rig::new(Cpu::new(BYTES, Some(1)).unwrap());
    let mut moved = BTreeSet::new();
    for (op, args) in tasks(rig, 3) {
        let given: HashSet<u32> = args.iter().flat_map(|arg| words(&arg.host)).chain([0]).collect();
        for (i, (found, expected)) in
            rig.run(&op, &args).iter().zip(cpu.run(&op, &args)).enumerate()
        {
            let layouts: Vec<_> = args.iter().map(|arg| arg.layout).collect();
            let what = format!("output {i} of {op:?} of {layouts:?}");
            let is_rounded = expected.layout().dtype() == DType::BF16;
            if is_rounded || words(&expected).all(|word| given.contains(&word)) {
                assert!(found.as_bytes() == expected.as_bytes(), "{what} differs");
                moved.extend(
                    (!is_rounded && !expected.as_bytes().is_empty()).then(|| op.name().to_owned()),
                );
            } else {
                assert_near(found, &expected, 5e-5, &what);
            }
        }
    }
    for name in ["concat", "contiguous", "gather", "max", "max_pool2d", "pad", "relu"] {
        assert!(moved.contains(name), "of {name}, no element was given: {moved:?}");
    }
}

fn words(host: &HostTensor) -> impl Iterator<Item = u32> {
    bytemuck::cast_slice::<u8, u32>(host.as_bytes()).iter().copied()
}
