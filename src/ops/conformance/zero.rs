//! Tests of tensors with few elements or none: every op, with permuted, broadcast and sliced
//! operands.

use super::samples::assert_same_bits;
use super::{Arg, Rig, Rng, is_run};
use crate::device::Device;
use crate::host::HostTensor;
use crate::ops::samples::{Draw, Sizes, each};
use crate::ops::{CrossEntropy, Gather, Op};

/// Runs every op, and checks that the op writes all elements of its outputs: the previous contents
/// of the outputs must not affect the results.
pub fn any_op_of_few_elements_or_none<D: Device<Op = Op, Host = HostTensor>>(rig: &mut Rig<D>) {
    let mut rng = Rng::new(20);
    for sizes in [Sizes::Few, Sizes::Small] {
        let mut draw = Draw::new(20, sizes);
        for op in each() {
            let samples = (0..60).map(|_| draw.sample(&op)).filter(is_run);
            let tasks: Vec<_> =
                samples.map(|sample| (sample.op.clone(), rng.args(&sample))).collect();
            assert_same_bits(tasks.into_iter(), 2, |way, op, args| {
                rig.junk = [f32::NAN, 7.5][way];
                rig.run(op, args)
            });
        }
    }
}

/// Checks that indices into a range without elements are refused.
pub fn numbers_into_empty_axes_are_refused<D: Device<Op = Op, Host = HostTensor>>(
    rig: &mut Rig<D>,
) {
    let numbers = || Arg::i32([3], vec![0, 1, 2]);
    let nothing = || Arg::f32([3, 0], vec![]);
    for (op, args, what) in [
        (Gather { axis: 1 }.into(), vec![nothing(), numbers()], "index"),
        (CrossEntropy::default().into(), vec![nothing(), numbers()], "label"),
    ] {
        let error = rig.try_run(&op, &args).unwrap_err().to_string();
        let expected = format!("{what} 0 at position 0 is out of range, expected 0..0");
        assert_eq!(error, expected, "{op:?}");
    }
}
