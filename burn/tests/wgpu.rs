//! Burn on wgpu, on an adapter in software: with the feature `wgpu`, and a Vulkan driver such as lavapipe (Debian's
//! `mesa-vulkan-drivers`). Without an adapter, nothing is tried, and it says so.

mod common;

use burn::backend::{CubeDevice, Wgpu, WgpuDevice, WgpuDeviceKind};
use burn::remote::RemoteHost;
use burn::tensor::{Device, DeviceKind};
use burn_remote::server::{BackendServer, WebSocketTransport};
use burn_std::device::Device as _;
use common::{
    Cnn, Mlp, MlpDropout, Net, Outcome, Recurrent, Transformer, TransformerDropout, train,
};
use remat_burn::Guard;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::LazyLock;

/// The adapter, if there is one.
fn adapter() -> Option<CubeDevice> {
    static ADAPTER: LazyLock<Option<CubeDevice>> = LazyLock::new(|| {
        let seed = CubeDevice::Wgpu(WgpuDevice::new(WgpuDeviceKind::Cpu));
        let all = CubeDevice::enumerate(seed.to_id());
        let found = all.first().map(|id| CubeDevice::from_id(*id));
        if found.is_none() {
            println!("skipped: wgpu finds no adapter in software");
        }
        found
    });
    ADAPTER.clone()
}

fn budgeted(adapter: &CubeDevice, bytes: u64) -> Guard {
    remat_burn::budget(bytes).recompute_limit(2.0).serve::<Wgpu>(adapter.clone()).unwrap()
}

/// A device of Burn's own server.
fn served(adapter: &CubeDevice) -> Device {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let server = BackendServer::<Wgpu>::new([adapter.clone()]);
    std::thread::spawn(move || {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let serving = server.serve_async(WebSocketTransport::from_listener(listener));
        runtime.unwrap().block_on(serving).unwrap();
    });
    Device::remote_options(&RemoteHost::websocket(&format!("ws://{address}"))).init().unwrap()
}

fn tell(what: &str, outcome: &Outcome) {
    println!("{what}: {:x} {:?}", outcome.params, outcome.losses);
}

fn look<N: Net>(steps: u64, percents: &[u64]) {
    let Some(adapter) = adapter() else { return };
    let start = std::time::Instant::now();
    for _ in 0..2 {
        let plain = train::<N>(&Device::wgpu(DeviceKind::Cpu).autodiff(), steps, || {});
        tell("plain", &plain);
    }
    println!("{:?}", start.elapsed());
    let there = served(&adapter);
    tell("served", &train::<N>(&there.autodiff(), steps, || {}));
    println!("{:?}", start.elapsed());
    let guard = budgeted(&adapter, 1 << 40);
    let free = train::<N>(&guard.autodiff(), steps, || guard.step().unwrap());
    tell("ours", &free);
    println!("{:?}\n{}", start.elapsed(), guard.summary().unwrap());
    let full = guard.stats().unwrap().peak_bytes;
    drop(guard);
    for percent in percents {
        let guard = budgeted(&adapter, full * percent / 100);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            train::<N>(&guard.autodiff(), steps, || guard.step().unwrap())
        }));
        match outcome {
            Ok(outcome) => tell(&format!("{percent} %"), &outcome),
            Err(_) => println!("{percent} % failed"),
        }
        println!("{:?}\n{}", start.elapsed(), guard.summary().unwrap());
    }
}

#[test]
fn an_mlp() {
    look::<Mlp>(3, &[60, 40]);
}

#[test]
fn a_cnn() {
    look::<Cnn>(3, &[60, 40]);
}

#[test]
fn a_transformer() {
    look::<Transformer>(3, &[60, 40]);
}

#[test]
fn an_lstm() {
    look::<Recurrent>(3, &[70]);
}

#[test]
fn dropout() {
    look::<MlpDropout>(3, &[60, 40]);
    look::<TransformerDropout>(3, &[60, 40]);
}
