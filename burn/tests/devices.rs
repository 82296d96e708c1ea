//! Tests of devices: errors, dropping a device, and several devices at once.

mod common;

use burn::tensor::{Device, Distribution, Int, Tensor, TensorData};
use burn_flex::Flex;
use common::{Mlp, MlpDropout, numbers, train};
use remat_burn::{Error, Guard};
use std::net::{Ipv4Addr, TcpStream};
use std::process::Command;

fn budgeted(budget: &str) -> Guard {
    remat_burn::budget(budget).serve::<Flex>(Default::default()).unwrap()
}

fn ones(device: &Device, rows: usize) -> Tensor<2> {
    Tensor::ones([rows, 1024], device)
}

#[test]
fn burns_tensors_work_as_on_any_device() {
    let device = budgeted("1MiB");
    let x = Tensor::<2>::from_data([[1.0, 2.0], [3.0, 4.0]], &device);
    let y = x.clone().matmul(x.transpose()).slice([0..1, 0..2]).flatten::<1>(0, 1) + 1.0;
    assert_eq!(y.into_data(), TensorData::from([6.0f32, 12.0]));
    assert_eq!(Device::from(&device), device.device());
}

#[test]
fn a_tensor_that_does_not_fit_is_explained() {
    let device = budgeted("64KiB");
    let x = ones(&device, 8);
    let error = ones(&device, 32).try_into_data().unwrap_err().to_string();
    assert!(
        error.contains("out of memory: ") && error.contains("the budget is 64.00 KiB"),
        "{error}"
    );
    // Only the tensor that did not fit is lost.
    assert_eq!(
        x.clone().try_into_data().unwrap().try_to_vec::<f32>().unwrap(),
        vec![1.0; 8 * 1024]
    );
    // Without a read, the end of the step reports the failure.
    let lost = x.repeat_dim(0, 8);
    let error = device.step().unwrap_err();
    assert!(matches!(&error, Error::Remat(remat_burn::remat::Error::OutOfMemory(_))), "{error}");
    device.step().unwrap();
    drop(lost);
}

#[test]
#[cfg(feature = "lab")]
fn the_budget_that_an_out_of_memory_names_is_enough() {
    // If no value is read, the end of the step reports a failure.
    let run = |budget: u64| {
        let device = remat_burn::budget(budget).serve::<Flex>(Default::default()).unwrap();
        let x = ones(&device, 8);
        let parts = (1..8).map(|factor| x.clone() * factor as f32).collect();
        let _all = Tensor::cat(parts, 0).exp();
        match device.step() {
            Ok(()) => None,
            Err(Error::Remat(remat_burn::remat::Error::OutOfMemory(report))) => {
                assert!(report.to_string().contains(" ops so far pass with "), "{report}");
                report.passing.map(|passing| passing.bytes)
            }
            Err(error) => panic!("{error}"),
        }
    };
    for budget in [48 << 10, 128 << 10, 256 << 10] {
        let enough = run(budget).expect("a budget is named");
        assert!(enough > budget && enough < 2 << 20, "{enough}");
        assert_eq!(run(enough), None, "{budget}: {enough}");
    }
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let refused = |builder: remat_burn::Builder| {
        builder.serve::<Flex>(Default::default()).unwrap_err().to_string()
    };
    for (builder, words) in [
        (remat_burn::budget("8 apples"), "budget: "),
        (remat_burn::budget(0), "a budget of 0 bytes holds no tensor"),
        (
            remat_burn::budget("1MiB").eviction_threshold("2MiB"),
            "the eviction threshold (2.00 MiB) is above",
        ),
        (remat_burn::budget("1MiB").recompute_limit(-1.0), "the recompute limit is -1"),
    ] {
        let error = refused(builder);
        assert!(error.contains(words), "{error}");
    }
    let device = budgeted("1MiB");
    let error = device.set_budget("2MiB").unwrap_err().to_string();
    assert!(error.contains("2.00 MiB"), "{error}");
    device.set_budget("512KiB").unwrap();
    assert_eq!(device.stats().unwrap().budget_bytes, 512 << 10);
}

#[test]
fn a_kernel_that_panics_loses_only_what_it_makes() {
    let device = budgeted("1MiB");
    let x = ones(&device, 2);
    let beyond = Tensor::<1, Int>::from_data([0, 7_000_000], &device);
    let lost = x.clone().select(0, beyond);
    let made_of_it = lost.clone() + 1.0;
    assert!(lost.try_into_data().unwrap_err().to_string().contains("select"));
    assert!(made_of_it.try_into_data().is_err());
    assert_eq!((x + 1.0).into_data().try_to_vec::<f32>().unwrap(), vec![2.0; 2048]);
}

/// Tensors give errors after their device is dropped, also when another device has the slot.
#[test]
fn a_device_that_is_gone_takes_its_tensors_along() {
    // Devices with this custom operation get a separate server. On a shared server, a device of
    // another test could get the slot and lose the connection.
    let budgeted = || {
        let builder = remat_burn::budget("1MiB").custom_op::<Flex>("never run", |_, _, _| {});
        builder.serve::<Flex>(Default::default()).unwrap()
    };
    let device = budgeted();
    let x = ones(&device, 2);
    device.sync().unwrap();
    drop(device);
    let gone = |x: Tensor<2>| {
        let error = x.try_into_data().unwrap_err().to_string();
        assert!(error.contains("was dropped"), "{error}");
    };
    gone(x.clone());
    gone(x.clone() + 1.0);
    let others: Vec<Guard> = (0..8).map(|_| budgeted()).collect();
    gone(x.clone() * 2.0);
    drop(x);
    for other in others {
        assert_eq!(ones(&other, 1).sum().into_scalar::<f32>(), 1024.0);
        other.sync().unwrap();
        assert_eq!(other.stats().unwrap().used_bytes, 0);
    }
}

#[test]
fn two_devices_have_budgets_of_their_own() {
    let outcomes = std::thread::scope(|scope| {
        let threads = ["128MiB", "32MiB"].map(|budget| {
            scope.spawn(move || {
                let device = budgeted(budget);
                let outcome = train::<MlpDropout>(&device.autodiff(), 2, || device.step().unwrap());
                (outcome, device.stats().unwrap())
            })
        });
        threads.map(|thread| thread.join().unwrap())
    });
    let [(free, unlimited), (same, limited)] = outcomes;
    assert_eq!(free, same);
    assert_eq!((unlimited.budget_bytes, limited.budget_bytes), (128 << 20, 32 << 20));
    assert!(unlimited.evictions == 0 && limited.evictions > 0);
    assert!(unlimited.peak_bytes > limited.budget_bytes);
}

#[test]
fn tensors_move_between_devices() {
    let (a, b) = (budgeted("1MiB"), budgeted("1MiB"));
    let x = Tensor::<1>::from_data([1.0, 2.0], &a);
    let there = x.clone().to_device(&b) * 3.0;
    assert_eq!(there.clone().into_data(), TensorData::from([3.0f32, 6.0]));
    assert_eq!((there.to_device(&a) + x).into_data(), TensorData::from([4.0f32, 8.0]));
    let n = Tensor::<1, Int>::from_data([7, 8], &Device::flex()).to_device(&a).to_device(&b);
    assert_eq!(n.into_data().iter::<i64>().collect::<Vec<_>>(), [7, 8]);
}

/// Random numbers depend on the seed and the earlier draws of the device, not on other devices.
#[test]
fn random_numbers_are_a_devices_own() {
    let draw = |device: &Device| {
        let x = Tensor::<1>::random([64], Distribution::Default, device);
        let y = Tensor::<1>::random([64], Distribution::Normal(0.0, 1.0), device);
        (x.into_data(), y.into_data())
    };
    let with =
        |seed| remat_burn::budget("1MiB").seed(seed).serve::<Flex>(Default::default()).unwrap();
    let (a, b, c) = (with(1), with(1), with(2));
    let first = draw(&a);
    assert_ne!(first.0, first.1);
    Device::flex().seed(3);
    assert_eq!(draw(&b), first);
    assert_ne!(draw(&c), first);
    assert_ne!(draw(&a), first);
    a.seed(1);
    assert_eq!(draw(&a), first);
}

#[test]
fn the_server_listens_to_this_machine_only() {
    let device = budgeted("1MiB");
    let address = device.address();
    assert_eq!(address.ip(), Ipv4Addr::LOCALHOST);
    assert!(TcpStream::connect(address).is_ok());
    // Listening sockets of the kernel: address and port in hex, state 0A.
    let port = format!(":{:04X}", address.port());
    for (table, loopback) in [("/proc/net/tcp", "0100007F"), ("/proc/net/tcp6", "")] {
        let table = std::fs::read_to_string(table).unwrap_or_default();
        for line in table.lines().skip(1) {
            let words: Vec<&str> = line.split_whitespace().collect();
            if words[3] == "0A" && words[1].ends_with(&port) {
                assert_eq!(words[1], format!("{loopback}{port}"));
            }
        }
    }
}

/// A client without the token is refused.
#[test]
fn others_on_this_machine_are_not_served() {
    let device = budgeted("1MiB");
    let host = burn::remote::RemoteHost::websocket(&format!("ws://{}", device.address()));
    assert!(Device::remote_options(&host).init().is_err());
}

/// When Burn's server ends a connection, only one device is lost. All other devices, and later
/// devices, still work.
#[test]
fn a_device_that_is_lost_is_lost_alone() {
    let other = budgeted("1MiB");
    let kept = ones(&other, 1);
    for _ in 0..3 {
        let device = budgeted("1MiB");
        let x = Tensor::<1, Int>::from_data([1, 2], &device);
        assert_eq!((x.clone() + 1).into_data().iter::<i64>().collect::<Vec<_>>(), [2, 3]);
        // The router does not support this cast.
        let lost = x.clone().cast(burn::tensor::IntDType::I64);
        assert!(lost.try_into_data().is_err() && x.try_into_data().is_err());
        let error = device.step().unwrap_err();
        assert!(matches!(error, Error::Lost(_)), "{error}");
        assert!(matches!(device.stats(), Err(Error::Lost(_))));
    }
    assert_eq!(kept.sum().into_scalar::<f32>(), 1024.0);
}

/// Dropping a device frees the memory, and Burn's resources of the device are reused. Needs a
/// separate process, since the memory of other tests would count.
#[test]
fn devices_come_and_go() {
    const ALONE: &str = "REMAT_DEVICES_ALONE";
    if std::env::var(ALONE).is_err() {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "devices_come_and_go", "--nocapture"]).env(ALONE, "1");
        let output = child.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    let once = || {
        let device = budgeted("4MiB");
        let x =
            Tensor::<1>::from_data(TensorData::new(numbers(1, 1 << 18, 1.0), [1 << 18]), &device);
        assert!((x * 2.0).sum().into_scalar::<f32>().is_finite());
    };
    (0..50).for_each(|_| once());
    let before = resident();
    (0..300).for_each(|_| once());
    let grown = resident().saturating_sub(before);
    assert!(grown < 16 << 10, "{grown} KiB more after 300 devices of a MiB of tensors each");
}

/// Resident memory of this process in KiB.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// History is cut at marks of steps: at marks by the user, or at reads of values. Without marks and
/// reads, it is cut when it has grown.
#[test]
fn tables_stay_flat_however_steps_are_marked() {
    let paths = |device: &Guard| device.stats().unwrap().paths;
    // With marks, then with reads only.
    for marks in [true, false] {
        let device = budgeted("64MiB");
        let mut seen = Vec::new();
        train::<Mlp>(&device.autodiff(), 8, || {
            if marks {
                device.step().unwrap();
            }
            seen.push(paths(&device));
        });
        assert!(seen[7] <= seen[2] + 16, "{seen:?}");
    }
    // Without marks and reads.
    let device = budgeted("64MiB");
    let mut state = ones(&device, 1);
    let mut most = 0;
    for step in 0..40_000 {
        state = state * 0.5 + 1.0;
        if step % 1000 == 0 {
            most = most.max(paths(&device));
        }
    }
    assert!(most < 3 * 4096, "{most} paths");
    assert!(device.stats().unwrap().steps > 0);
    assert_eq!(state.slice([0..1, 0..1]).into_scalar::<f32>(), 2.0);
}

#[test]
fn a_summary_tells_what_was_done() {
    let device = budgeted("64KiB");
    let kept: Vec<_> = (0..10).map(|i| ones(&device, 4) + i as f32).collect();
    device.step().unwrap();
    let text = device.summary().unwrap().to_string();
    assert!(text.contains("of a budget of 64.00 KiB") && text.contains("1 steps"), "{text}");
    assert!(device.stats().unwrap().evictions > 0, "{text}");
    drop(kept);
}
