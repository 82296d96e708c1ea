//! Tests on wgpu with a software adapter. The tests inspect the buffers to see which tensors share
//! a buffer. Without an adapter, the tests print a message and do nothing.

use super::common::{Cnn, Mlp, Net, Recurrent, Transformer, TransformerDropout, train};
use burn::backend::{CubeDevice, Wgpu, WgpuDevice, WgpuDeviceKind};

fn adapter() -> Option<CubeDevice> {
    let seed = CubeDevice::Wgpu(WgpuDevice::new(WgpuDeviceKind::Cpu));
    let found = CubeDevice::enumerate(seed.to_id()).first().map(|id| CubeDevice::from_id(*id));
    if found.is_none() {
        println!("skipped: wgpu finds no adapter in software");
    }
    found
}

/// The bytes of the backend's buffers equal the counted bytes after every operation, and never
/// exceed the budget.
#[test]
fn counted_bytes_are_the_bytes_present() {
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
