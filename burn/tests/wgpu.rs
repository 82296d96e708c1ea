//! Burn on wgpu with a software adapter. Needs the feature `wgpu` and a Vulkan driver such as
//! lavapipe (Debian's `mesa-vulkan-drivers`). Without an adapter, the tests print a message and do
//! nothing.

mod common;

use burn::backend::{CubeDevice, Wgpu, WgpuDevice, WgpuDeviceKind};
use burn::tensor::{Device, DeviceKind};
use common::{
    Cnn, Mlp, MlpDropout, Net, Outcome, Recurrent, Transformer, TransformerDropout, train,
};
use remat_burn::Guard;

/// The software adapter, if the machine has one.
fn adapter() -> Option<CubeDevice> {
    let seed = CubeDevice::Wgpu(WgpuDevice::new(WgpuDeviceKind::Cpu));
    let found = CubeDevice::enumerate(seed.to_id()).first().map(|id| CubeDevice::from_id(*id));
    if found.is_none() {
        println!("skipped: wgpu finds no adapter in software");
    }
    found
}

fn budgeted(adapter: &CubeDevice, bytes: u64) -> Guard {
    remat_burn::budget(bytes).recompute_limit(2.0).serve::<Wgpu>(adapter.clone()).unwrap()
}

fn trained<N: Net>(guard: &Guard) -> Outcome {
    let outcome = train::<N>(&guard.autodiff(), 2, || guard.step().unwrap());
    assert!(guard.pools().unwrap().is_some(), "the backend says what it holds");
    println!("{}", guard.summary().unwrap());
    outcome
}

/// Trains without a limit and with less memory. With `as_plain`, also compares with plain Burn,
/// which must draw the same random numbers.
fn with_less<N: Net>(percents: &[u64], as_plain: bool) {
    let Some(adapter) = adapter() else { return };
    let guard = budgeted(&adapter, 1 << 40);
    let free = trained::<N>(&guard);
    let full = guard.stats().unwrap().peak_bytes;
    drop(guard);
    for percent in percents {
        let guard = budgeted(&adapter, full * percent / 100);
        assert_eq!(trained::<N>(&guard), free, "under {percent} % of {full} bytes");
        let stats = guard.stats().unwrap();
        assert!(stats.peak_bytes <= stats.budget_bytes);
        assert!(stats.recomputed_ops > 0, "{percent} % evicts nothing");
    }
    if as_plain {
        let plain = train::<N>(&Device::wgpu(DeviceKind::Cpu).autodiff(), 2, || {});
        assert_eq!(plain, free, "by plain Burn");
    }
}

#[test]
fn an_mlp() {
    with_less::<Mlp>(&[60, 40], true);
}

#[test]
fn a_cnn_with_batch_norm_and_max_pooling() {
    with_less::<Cnn>(&[60, 40], true);
}

#[test]
fn a_transformer() {
    with_less::<Transformer>(&[60, 40], true);
}

#[test]
fn an_lstm() {
    with_less::<Recurrent>(&[75], true);
}

#[test]
fn with_dropout_the_bits_are_those_without_a_limit() {
    with_less::<MlpDropout>(&[60, 40], false);
    with_less::<TransformerDropout>(&[60, 40], false);
}
