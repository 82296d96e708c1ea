//! Choice of a device and of a share of its memory, as a user makes it. No test in this file needs
//! a GPU. A test that does not suit the machine prints a line and is skipped.

use serde_json::Value;
use std::process::{Command, Output};

fn run(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_remat"));
    command.args(args).env_remove("RUST_LOG").output().expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// JSON object of a command, which must succeed.
fn json(args: &[&str]) -> Value {
    let output = run(&[args, &["--json", "-"]].concat());
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("stdout is one JSON object")
}

/// Reason why there is no GPU, if there is none.
fn no_gpu() -> Option<String> {
    json(&["devices"]).get("no_gpu").map(|reason| reason.as_str().unwrap().to_owned())
}

/// Like [`no_gpu`], but prints that the test is skipped if there is a GPU.
fn without_gpu() -> Option<String> {
    let reason = no_gpu();
    if reason.is_none() {
        println!("skipped: there is a GPU");
    }
    reason
}

#[test]
fn the_processor_is_always_listed() {
    let list = json(&["devices"]);
    let cpu = &list["devices"][0];
    assert_eq!(cpu["device"], "cpu");
    assert!(cpu["threads"].as_u64().unwrap() > 0);
    if cfg!(target_os = "linux") {
        assert!(cpu["free_bytes"].as_u64().unwrap() <= cpu["memory_bytes"].as_u64().unwrap());
    }
    let output = run(&["devices"]);
    assert_eq!(output.status.code(), Some(0));
    let table = text(&output.stdout);
    println!("{table}");
    assert!(table.starts_with("device  name") && table.contains("\ncpu     "), "{table}");
    assert_eq!(list["devices"].as_array().unwrap().len() > 1, list.get("no_gpu").is_none());
}

#[test]
fn that_no_gpu_is_listed_has_a_reason() {
    let Some(reason) = without_gpu() else { return };
    let output = run(&["devices"]);
    let table = text(&output.stdout);
    assert!(table.ends_with(&format!("\nNo GPU is listed: {reason}.\n")), "{table}");
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
    if !cfg!(feature = "cuda") {
        assert!(reason.contains("`cargo build --release --features cuda`"), "{reason}");
    }
}

#[test]
fn without_a_gpu_training_on_it_is_one_clear_sentence() {
    let Some(reason) = without_gpu() else { return };
    let file = std::env::temp_dir().join(format!("remat-no-gpu-{}", std::process::id()));
    for device in ["cuda", "cuda:3"] {
        let files = ["--record", file.to_str().unwrap(), "--json", "-"];
        let output = run(&[&["train", "--device", device, "--tf32"], &files[..]].concat());
        let expected = if cfg!(feature = "cuda") { 1 } else { 2 };
        assert_eq!(output.status.code(), Some(expected));
        assert_eq!(text(&output.stderr), format!("error: {reason}\n"));
        assert!(output.stdout.is_empty());
        assert!(!file.exists());
    }
}

#[test]
fn options_that_do_not_go_together_are_refused() {
    let log = format!("{}/tests/data/small.log", env!("CARGO_MANIFEST_DIR"));
    for (args, message) in [
        ("train --device gpu", "choose cpu, cuda, or cuda:1 for the second GPU"),
        ("train --device cuda:-1", "invalid value 'cuda:-1' for '--device <DEVICE>'"),
        ("train --tf32", "--tf32 needs --device cuda; add that, or drop --tf32"),
        (
            "train --device cuda --threads 2",
            "--threads needs --device cpu; choose that, or drop --threads",
        ),
        ("train --budget automatic", "write for example 40% or 64MiB, or auto"),
        ("train --eviction-threshold auto", "invalid value 'auto'"),
        ("simulate LOG --budget auto", "invalid value 'auto'"),
        ("sweep LOG --budget auto", "invalid value 'auto'"),
    ] {
        let args: Vec<&str> =
            args.split(' ').map(|arg| if arg == "LOG" { log.as_str() } else { arg }).collect();
        let output = run(&args);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.starts_with("error: ") && said.contains(message), "{args:?}: {said}");
        assert!(output.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn a_budget_of_what_is_free_changes_no_bit() {
    let train = |budget| json(&["train", "mlp", "--steps", "3", "--quiet", "--budget", budget]);
    let (auto, all) = (train("auto"), train("100%"));
    assert_eq!(auto["params_sha256"], all["params_sha256"]);
    assert_eq!(auto["evictions"], 0);
    let [budget, memory] =
        [&auto["budget_bytes"], &json(&["devices"])["devices"][0]["memory_bytes"]];
    assert!(budget.as_u64().unwrap() < memory.as_u64().unwrap());
}

#[test]
fn budgets_without_evictions_are_announced_as_such() {
    let lines = |budget| {
        let output = run(&["train", "mlp", "--steps", "1", "--threads", "1", "--budget", budget]);
        assert!(output.status.success());
        assert!(text(&output.stdout).contains("\n  device      cpu, 1 thread\n"));
        text(&output.stderr)
    };
    for (budget, expected) in [
        ("auto", "(auto); the run needs "),
        ("1GiB", "budget 1.00 GiB; the run needs "),
        ("90%", ", 90 % of the "),
    ] {
        let said = lines(budget);
        assert!(said.contains("\ndevice cpu, 1 thread\nbudget "), "{said}");
        assert!(said.contains(expected), "{said}");
        assert_eq!(said.contains(", so nothing is evicted\n"), budget != "90%", "{said}");
    }
}

#[test]
fn the_report_names_the_device() {
    let report = json(&["train", "mlp", "--steps", "1", "--quiet", "--device", "cpu"]);
    assert_eq!(report["device"], "cpu");
    assert!(report["threads"].is_u64() && report.get("tf32").is_none());
}

#[test]
fn a_gpu_trains_with_the_same_bits_under_every_budget() {
    let list = json(&["devices"]);
    if let Some(reason) = list.get("no_gpu") {
        println!("skipped: {reason}");
        return;
    }
    if ["NVRTC", "cuBLAS"].iter().any(|name| list["libraries"][name].is_null()) {
        println!("skipped: of NVRTC and cuBLAS, one is missing: {}", list["libraries"]);
        return;
    }
    let base = ["train", "--steps", "3", "--quiet", "--device", "cuda"];
    let train = |more: &[&str]| json(&[&base[..], more].concat());
    let auto = train(&["--budget", "auto"]);
    assert!(auto["device"].as_str().unwrap().starts_with("cuda:0 ("), "{}", auto["device"]);
    assert_eq!((&auto["tf32"], auto.get("threads")), (&false.into(), None));
    for more in [
        &["--budget", "60%"][..],
        &["--budget", "40%"],
        &["--budget", "40%", "--policy", "dtr", "--cost", "measured"],
        &["--budget", "40%", "--policy", "lru", "--dead", "keep"],
    ] {
        let tight = train(more);
        let number = |key: &str| tight[key].as_u64().unwrap();
        assert!(number("evictions") > 0 && number("recomputed_ops") > 0, "{more:?}");
        assert!(number("peak_bytes") <= number("budget_bytes"), "{more:?}");
        assert!(tight["recompute_seconds"].as_f64().unwrap() > 0.0, "{more:?}");
        assert_eq!(auto["params_sha256"], tight["params_sha256"], "{more:?}");
    }
    let output = run(&[&base[..], &["--budget", "1TiB"]].concat());
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("choose a smaller budget"), "{}", text(&output.stderr));
}

#[cfg(feature = "cuda")]
mod library {
    use remat::device::cuda::{self, Options};
    use remat::error::RuntimeError;
    use remat::{Error, Runtime};

    #[test]
    fn a_device_that_is_not_there_is_told_on_the_callers_thread() {
        let far = Runtime::builder().cuda(Options::default().ordinal(1 << 40));
        match (cuda::devices(), far) {
            (Err(reason), Err(told @ Error::Runtime(_))) => {
                assert_eq!(reason.to_string(), told.to_string());
            }
            (Ok(devices), Err(told @ Error::Runtime(_))) => {
                assert!(told.to_string().starts_with("there is no CUDA device 1099511627776; "));
                assert!(devices[0].free_bytes <= Some(devices[0].memory_bytes));
            }
            (devices, far) => panic!("{devices:?}, {far:?}"),
        }
    }

    #[test]
    fn settings_are_looked_at_before_the_device() {
        let runtime = Runtime::builder().budget("much").cuda(Options::default());
        let Err(Error::Runtime(error)) = runtime else { panic!("{runtime:?}") };
        assert!(matches!(*error, RuntimeError::Settings(_)), "{error}");
    }
}
