//! Tests with sizes that exceed any memory, and with windows that cover few elements.

use super::product::convolution;
use super::{Rig, Rng, close};
use crate::device::Device;
use crate::host::HostTensor;
use crate::layout::Layout;
use crate::op::Operation as _;
use crate::ops::samples::{Draw, Sizes, each, layouts};
use crate::ops::{Conv2d, Op};
use std::collections::BTreeSet;

/// Computes the workspace of ops whose inputs may be of any size up to the largest that a byte
/// count can express.
pub fn workspaces_of_any_size<D: Device<Op = Op, Host = HostTensor>>(rig: &mut Rig<D>) {
    let (ops, mut draw) = (each(), Draw::new(2, Sizes::Few));
    let mut asked = BTreeSet::new();
    for _ in 0..200_000 {
        let like = draw.below(ops.len());
        let (op, inputs) = draw.absurd(&ops[like]);
        let countable = |input: &Layout| {
            let sizes = input.shape().iter().filter(|&&size| size > 0);
            sizes.fold(4, |bytes: usize, &size| bytes.saturating_mul(size)) <= isize::MAX as usize
        };
        let Ok(outputs) = op.infer(&inputs) else { continue };
        if !inputs.iter().all(countable) {
            continue;
        }
        asked.insert(op.name().to_owned());
        let bytes = rig.device.workspace(&op, &inputs, &layouts(&inputs, &outputs));
        assert!(bytes <= isize::MAX as u64, "{op:?} of {inputs:?} wants {bytes} bytes");
    }
    assert_eq!(asked.len(), ops.len(), "of no more than {asked:?}");
}

/// Convolves with strides and paddings far larger than the images. A device may refuse sizes that
/// exceed its integer types.
pub fn windows_far_apart<D: Device<Op = Op, Host = HostTensor>>(rig: &mut Rig<D>) {
    let mut rng = Rng::new(21);
    for far in [7, 1000, 1 << 20, 1 << 40, 1 << 61, usize::MAX / 2 - 8] {
        for _ in 0..40 {
            let sizes = [(); 3].map(|()| 1 + rng.below(3));
            let kernel = [(); 2].map(|()| 1 + rng.below(3));
            let input = kernel.map(|kernel| kernel + rng.below(3));
            let stride = [(); 2].map(|()| [1, 2, far / 2, far][rng.below(4)]);
            let padding = stride.map(|stride| [0, 1, stride / 4, stride / 2][rng.below(4)]);
            let conv = Conv2d::new(stride, padding);
            for (op, args, shape, expected) in convolution(&mut rng, sizes, input, kernel, conv) {
                match rig.try_run(&op, &args) {
                    Ok(found) => close(&found[0], &shape, &expected, 1e-5, &format!("{op:?}")),
                    Err(error) => assert!(error.to_string().contains("expected below"), "{error}"),
                }
            }
        }
    }
}
