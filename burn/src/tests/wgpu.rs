//! On wgpu, by an adapter in software: which tensors share a buffer, seen in the buffers themselves, and every operation. Without an
//! adapter, nothing is tried, and it says so.

use super::common::{Cnn, Mlp, Net, Recurrent, Transformer, TransformerDropout, train};
use super::every_op::{Found, On};
use crate::samples::cases;
use burn::backend::{CubeDevice, Wgpu, WgpuDevice, WgpuDeviceKind};
use burn_backend::{BoolStore, DType};
use burn_ir::OperationIr;

fn adapter() -> Option<CubeDevice> {
    let seed = CubeDevice::Wgpu(WgpuDevice::new(WgpuDeviceKind::Cpu));
    let found = CubeDevice::enumerate(seed.to_id()).first().map(|id| CubeDevice::from_id(*id));
    if found.is_none() {
        println!("skipped: wgpu finds no adapter in software");
    }
    found
}

/// After every operation, bytes that are there are the bytes that are counted, and never more than the budget.
#[test]
fn what_is_counted_is_what_is_there() {
    fn looked_at<N: Net>(adapter: &CubeDevice, percent: u64) {
        let budgeted =
            |bytes| crate::budget(bytes).serve::<Wgpu>(adapter.clone()).expect("a device");
        let guard = budgeted(1 << 40);
        train::<N>(&guard.autodiff(), 2, || guard.step().unwrap());
        let full = guard.stats().unwrap().peak_bytes;
        let guard = budgeted(full * percent / 100);
        train::<N>(&guard.autodiff(), 2, || guard.step().unwrap());
        assert_eq!(guard.stats().unwrap().used_bytes, 0, "the model is gone");
    }
    let Some(adapter) = adapter() else { return };
    looked_at::<Mlp>(&adapter, 60);
    looked_at::<Cnn>(&adapter, 60);
    looked_at::<Transformer>(&adapter, 60);
    looked_at::<TransformerDropout>(&adapter, 60);
    looked_at::<Recurrent>(&adapter, 75);
}

#[test]
fn every_operation_gives_the_bits_of_wgpu() {
    let Some(device) = adapter() else { return };
    let on = On::<Wgpu> { device, bools: DType::Bool(BoolStore::U32), larger: &[], only_ours: &[] };
    // Each type and shape is a kernel to compile.
    let dtypes = |ir: &OperationIr| match cases::dtypes(ir).as_slice() {
        [DType::F32, ..] => vec![DType::F32],
        [DType::I64, ..] => vec![DType::I32],
        bools => bools[..1].to_vec(),
    };
    let Found { wrong, .. } = Found::of_all(&on, dtypes, &[&[3, 4], &[2, 3, 4]]);
    assert!(wrong.is_empty());
}
