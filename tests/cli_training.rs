//! How `remat train` learns: optimizers, schedules, gradients in parts, checkpoints.

use crate::common::cells;
use crate::common::command::{folder, names, remat, run, stderr, train};
use remat::checkpoint::Checkpoint;
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn digest(args: &[&str]) -> String {
    train(args)["params_sha256"].as_str().expect("a hash").to_owned()
}

#[test]
fn a_budget_changes_no_bit_of_any_optimizer() {
    let base = ["resnet20", "--batch", "64", "--steps", "2", "--no-test"];
    let mut seen = Vec::new();
    for options in [
        "--optimizer adamw",
        "--optimizer lion --schedule constant",
        "--nesterov --schedule step --warmup 1",
        "--optimizer adamw --clip 0.5 --accumulate 2",
    ] {
        let options: Vec<&str> = options.split(' ').collect();
        let with = |budget| {
            let report = train(&[&base[..], &options, &["--budget", budget]].concat());
            assert!(report["peak_bytes"].as_u64() <= report["budget_bytes"].as_u64());
            (report["params_sha256"].to_string(), report["evictions"].as_u64().unwrap())
        };
        let ((ample, none), (tight, some)) = (with("200%"), with("60%"));
        assert_eq!(ample, tight, "{options:?}");
        assert!(none == 0 && some > 0, "{options:?}");
        assert!(!seen.contains(&ample), "{options:?} made no difference");
        seen.push(ample);
    }
}

#[test]
fn parts_of_a_batch_come_to_the_whole() {
    let loss = |args: &[&str]| {
        let report = train(&[&["mlp", "--steps", "8", "--no-test"], args].concat());
        assert_eq!(report["ending"], "done");
        report["final_loss"].as_f64().unwrap()
    };
    let whole = loss(&["--batch", "64"]);
    for parts in ["2", "4"] {
        let batch = (64 / parts.parse::<usize>().unwrap()).to_string();
        let found = loss(&["--batch", &batch, "--accumulate", parts]);
        assert!((found - whole).abs() < 1e-4, "{found} in {parts} parts, {whole} as a whole");
    }
    assert!((loss(&["--batch", "16"]) - whole).abs() > 1e-3);
}

#[test]
fn a_norm_that_is_never_reached_clips_nothing() {
    let base = ["mlp", "--steps", "3", "--no-test"];
    let with = |clip| digest(&[&base[..], &["--clip", clip]].concat());
    assert_eq!(with("1e9"), digest(&base));
    assert_ne!(with("0.01"), digest(&base));
}

/// A resumed run may also switch between early and late updates.
#[test]
fn updates_while_the_backward_pass_runs_save_gradients_and_change_no_bit() {
    let folder = folder("in_backward");
    let file = folder.join("net.safetensors");
    let file = file.to_str().unwrap();
    // Parameters are large beside the activations.
    let base =
        "mlp --batch 8 --optimizer adamw --schedule constant --no-test --budget 100% --steps";
    let base: Vec<&str> = base.split(' ').collect();
    let with = |steps, given: &[&str]| train(&[&base[..], &[steps], given].concat());
    let (on, off) = (with("4", &["--step-in-backward"]), with("4", &["--step-in-backward=no"]));
    assert_eq!(on["params_sha256"], off["params_sha256"]);
    let peak = |report: &Value| report["unbudgeted_peak_bytes"].as_u64().unwrap();
    assert_eq!(peak(&with("4", &[])), peak(&on), "it is the default");
    // The state is the parameters and two values per parameter.
    let parameters = on["state_bytes"].as_u64().unwrap() / 3;
    let saved = peak(&off) - peak(&on);
    assert!(2 * saved > parameters, "{saved} of {parameters} bytes");
    for [before, after] in [["yes", "no"], ["no", "yes"]] {
        let [before, after] = [before, after].map(|how| format!("--step-in-backward={how}"));
        with("2", &[&before, "--save", file]);
        let resumed = train(&["--resume", file, "--steps", "4", "--no-test", &after]);
        assert_eq!(resumed["params_sha256"], on["params_sha256"], "{before}, then {after}");
    }
}

#[test]
fn the_report_says_how_it_learned() {
    let args = ["mlp", "--steps", "2", "--optimizer", "lion", "--accumulate", "3", "--batch", "8"];
    let report = train(&args);
    assert_eq!(report["optimizer"], "lion");
    assert_eq!((&report["batch"], &report["accumulate"]), (&Value::from(8), &Value::from(3)));
}

#[test]
fn options_of_learning_are_checked() {
    for (args, message) in [
        ("--optimizer adam", "[possible values: sgd, adamw, lion]"),
        ("--optimizer adamw --nesterov", "--nesterov needs --optimizer sgd; choose that"),
        ("--schedule linear", "[possible values: constant, cosine, step]"),
        ("--warmup -1", "give a whole number from 0 up"),
        ("--clip 0", "give a number above 0"),
        ("--accumulate 0", "give a whole number from 1 to 65536"),
        ("--step-in-backward=maybe", "[possible values: yes, no]"),
        ("--clip 1 --step-in-backward", "drop --step-in-backward, or --clip"),
    ] {
        let args: Vec<&str> = args.split(' ').collect();
        let output = run(&[&["train"], &args[..]].concat());
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains("error: ") && said.contains(message), "{args:?}: {said}");
    }
}

/// Steps that a checkpoint's run had done. `None`: there is no checkpoint yet.
fn done(path: &Path) -> Option<u64> {
    if !path.exists() {
        return None;
    }
    let saved = Checkpoint::open(path).unwrap_or_else(|error| panic!("half a file: {error}"));
    let kept: Value = serde_json::from_str(saved.get("train").expect("a run")).unwrap();
    kept["done"].as_u64()
}

/// Batch norm, augmentation and batches in parts: everything in which a run has a position.
const POSITIONS: [&str; 11] = [
    "resnet20",
    "--batch",
    "8",
    "--accumulate",
    "2",
    "--random-crop",
    "1",
    "--random-flip",
    "--seed",
    "3",
    "--no-test",
];

#[test]
fn stopped_after_each_of_ten_steps_and_resumed_it_ends_with_the_same_bits() {
    let folder = folder("resume");
    let file = folder.join("net.safetensors");
    let file = file.to_str().unwrap();
    for (optimizer, each, learn) in
        [("sgd", 1, "ahead"), ("adamw", 4, "portfolio"), ("lion", 4, "ahead")]
    {
        let training = ["--optimizer", optimizer, "--learn", learn, "--schedule", "constant"];
        let base = [&POSITIONS[..], &training].concat();
        let whole = digest(&[&base[..], &["--steps", "10"]].concat());
        for steps in cells((1..10).step_by(each), 9) {
            let steps = steps.to_string();
            train(&[&base[..], &["--steps", &steps, "--save", file]].concat());
            assert_eq!(done(Path::new(file)), steps.parse().ok());
            // Model, data and training options are in the file.
            let options = ["--resume", file, "--steps", "10", "--no-test", "--budget", "90%"];
            let resumed = train(&options);
            assert_eq!(resumed["params_sha256"], whole.as_str(), "{optimizer}, step {steps}");
            assert_eq!(resumed["steps"], 10);
        }
    }
    assert_eq!(names(&folder), ["net.safetensors"]);
}

#[test]
fn a_log_goes_on_where_the_run_does() {
    let folder = folder("log");
    let [file, csv, jsonl] = ["net", "log.csv", "log.jsonl"].map(|name| folder.join(name));
    let name = file.to_str().unwrap();
    for log in [&csv, &jsonl] {
        let log_name = log.to_str().unwrap();
        let outputs = ["--save", name, "--log", log_name, "--no-test"];
        train(&[&["mlp", "--steps", "3", "--schedule", "constant"][..], &outputs].concat());
        // A killed program may leave rows after its last checkpoint, and half a row.
        let text = std::fs::read_to_string(log).unwrap();
        let last = text.lines().last().unwrap().replace('3', "4");
        std::fs::write(log, format!("{text}{last}\n{}", &last[..last.len() / 2])).unwrap();
        train(&[&["--resume", name, "--steps", "6"][..], &outputs].concat());
        let text = std::fs::read_to_string(log).unwrap();
        let steps: Vec<u64> = match log == &csv {
            true => {
                let lines = text.lines().skip(1).map(|line| line.split(',').next().unwrap());
                lines.map(|step| step.parse().unwrap()).collect()
            }
            false => {
                let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
                lines.map(|entry| entry["step"].as_u64().unwrap()).collect()
            }
        };
        assert_eq!(steps, [1, 2, 3, 4, 5, 6], "{text}");
        assert_eq!(text.contains("step,loss"), log == &csv);
    }
}

/// Running program, which is killed at the end of the test.
struct Running(Child);

impl Running {
    fn new(args: &[&str]) -> Self {
        let mut command = remat(args);
        Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// Waits until `is_done`, or until the program ends.
    fn wait_until(&mut self, is_done: impl Fn() -> bool) {
        let start = Instant::now();
        while !is_done() && self.0.try_wait().unwrap().is_none() {
            assert!(start.elapsed() < Duration::from_secs(300), "it does nothing");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Running {
    /// Kills the program, as an out-of-memory killer does.
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn killed_at_each_of_ten_steps_and_resumed_it_ends_with_the_same_bits() {
    let folder = folder("killed");
    let file = folder.join("net.safetensors");
    let name = file.to_str().unwrap();
    // The learning rate falls along a cosine over all ten steps.
    let training = ["--steps", "10", "--optimizer", "adamw", "--clip", "1", "--learn", "ahead"];
    let base = [&POSITIONS[..], &training].concat();
    let whole = digest(&base);
    let save = ["--save", name, "--save-every", "1"];
    for steps in cells(1..10, 5) {
        let _ = std::fs::remove_file(&file);
        let mut run = Running::new(&[&["train", "--quiet"], &base[..], &save].concat());
        run.wait_until(|| done(&file) >= Some(steps));
        drop(run);
        assert!(done(&file) >= Some(steps));
        let resumed = train(&["--resume", name, "--no-test"]);
        assert_eq!(resumed["params_sha256"], whole.as_str(), "step {steps}");
    }
}

#[test]
fn killed_in_mid_write_it_leaves_a_whole_checkpoint() {
    let folder = folder("mid-write");
    let file = folder.join("net.safetensors");
    let name = file.to_str().unwrap();
    // The first layer is large, so that almost all time is spent on writing.
    let args = ["train", "mlp", "--data", "synthetic:3x96x96", "--batch", "1", "--no-test"];
    let save = ["--steps", "100000", "--quiet", "--save", name, "--save-every", "1"];
    let partial = folder.join("net.safetensors.partial");
    let mut cut_off = 0;
    for turn in 0..12 {
        let resume = ["--resume", name];
        let resume = if file.exists() { &resume[..] } else { &[] };
        let args = if resume.is_empty() { &args[..] } else { &["train", "--no-test"] };
        let save = if resume.is_empty() { &save[..] } else { &save[2..] };
        let before = done(&file);
        let mut run = Running::new(&[args, resume, save].concat());
        run.wait_until(|| done(&file) > before);
        std::thread::sleep(Duration::from_millis(7 * turn));
        run.wait_until(|| partial.metadata().is_ok_and(|found| found.len() > 0));
        drop(run);
        assert!(done(&file) > before, "turn {turn}");
        cut_off += u32::from(partial.exists());
    }
    assert!(cut_off > 0, "it was never killed in mid-write");
}

#[cfg(unix)]
#[test]
fn ctrl_c_keeps_what_was_done() {
    let folder = folder("ctrl-c-save");
    let [file, json] = ["net.safetensors", "result.json"].map(|name| folder.join(name));
    let [name, json] = [&file, &json].map(|path| path.to_str().unwrap());
    let args = ["train", "mlp", "--steps", "1000000", "--schedule", "constant", "--quiet"];
    let outputs = ["--save", name, "--save-every", "5", "--json", json];
    let mut run = Running::new(&[&args[..], &outputs].concat());
    run.wait_until(|| done(&file).is_some());
    let sent = Command::new("kill").args(["-INT", &run.0.id().to_string()]).status();
    assert!(sent.unwrap().success());
    assert_eq!(run.0.wait().unwrap().code(), Some(130));
    let report: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    assert_eq!(done(&file), report["steps"].as_u64());
    let steps = done(&file).unwrap().to_string();
    let again = train(&["--resume", name, "--steps", &steps, "--no-test"]);
    assert_eq!(again["params_sha256"], report["params_sha256"]);
}

#[test]
fn evaluate_says_what_the_test_of_training_said() {
    let folder = folder("evaluate");
    let file = folder.join("net.safetensors");
    let name = file.to_str().unwrap();
    let trained = train(&["resnet20", "--batch", "32", "--steps", "6", "--save", name]);
    for options in [&[][..], &["--budget", "95%"], &["--batch", "90", "--budget", "8MiB"]] {
        let args = [&["evaluate", name, "--quiet", "--json", "-"], options].concat();
        let output = run(&args);
        assert!(output.status.success(), "{}", stderr(&output));
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        for field in ["model", "data", "steps", "params_sha256", "test_accuracy", "test_examples"] {
            assert_eq!(found[field], trained[field], "{field}, {options:?}");
        }
        let [loss, expected] =
            [&found, &trained].map(|report| report["test_loss"].as_f64().unwrap());
        assert!((loss - expected).abs() < 1e-6);
        assert!(found["peak_bytes"].as_u64() <= found["budget_bytes"].as_u64());
    }
    let output = run(&["evaluate", name]);
    let summary = String::from_utf8(output.stdout).unwrap();
    assert!(summary.starts_with("resnet20 on digits, after 6 steps\n"), "{summary}");
    assert!(summary.contains(" % right, loss "), "{summary}");
    let output = run(&["evaluate", name, "--data", "synthetic:3x8x8"]);
    let said = stderr(&output);
    assert!(
        said.contains("`conv1.weight` is f32[16, 1, 3, 3], expected f32[16, 3, 3, 3]"),
        "{said}"
    );
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_checkpoint_of_another_run_is_refused_with_both_values() {
    let folder = folder("refused");
    let file = folder.join("net.safetensors");
    let name = file.to_str().unwrap();
    train(&["mlp", "--steps", "2", "--save", name, "--no-test"]);
    let refused = |args: &[&str], code, message: &str| {
        let output = run(args);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.starts_with("error: ") && said.contains(message), "{args:?}: {said}");
        assert!(said.contains(name), "{args:?}: {said}");
    };
    for (args, message) in [
        ("resnet20", "the model is resnet20 here, but mlp in the run of"),
        ("--lr 0.2", "--lr is 0.2 here, but not given in the run of"),
        ("--data synthetic:1x8x8", "--data is synthetic:1x8x8 here, but digits in the run"),
        ("--batch 64", "--batch is 64 here, but 128 in the run of"),
        ("--optimizer lion", "--optimizer is lion here, but sgd in the run of"),
        ("--steps 4", "--steps is 4 here, but 2 in the run of"),
    ] {
        let args: Vec<&str> = args.split(' ').collect();
        refused(&[&["train", "--resume", name], &args[..]].concat(), 2, message);
    }
    let bytes = std::fs::read(&file).unwrap();
    let header = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let with = |from: &str, to: &str| {
        let head = String::from_utf8(bytes[8..header].to_vec()).unwrap();
        assert!(head.contains(from) && from.len() == to.len(), "{head}");
        let head = head.replace(from, to);
        let changed = [&bytes[..8], head.as_bytes(), &bytes[header..]].concat();
        std::fs::write(&file, changed).unwrap();
    };
    let [version, other] = [env!("CARGO_PKG_VERSION"), "9.9.9"];
    with(&format!("\\\"{version}\\\""), &format!("\\\"{other}\\\""));
    let message = format!("was written by remat {other}, but this is remat {version}");
    refused(&["train", "--resume", name], 2, &message);
    with("\\\"examples\\\":1437", "\\\"examples\\\":1436");
    refused(&["train", "--resume", name], 2, "was trained on 1436 examples, but the data has 1437");
    with("\"remat.version\":\"1\"", "\"remat.version\":\"7\"");
    for command in [&["train", "--resume", name][..], &["evaluate", name]] {
        refused(command, 2, "is a checkpoint of version 7");
    }
    std::fs::write(&file, &bytes[..bytes.len() - 1]).unwrap();
    for command in [&["train", "--resume", name][..], &["evaluate", name]] {
        refused(command, 1, "the file is cut off");
    }
    let of_pytorch = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/block.safetensors");
    std::fs::copy(of_pytorch, &file).unwrap();
    refused(&["evaluate", name], 1, "the file is not from `remat train --save`");
    refused(&["train", "--resume", &format!("{name}x")], 1, "No such file");
    let output = run(&["train", "--save", "/nowhere/at/all", "--steps", "1"]);
    assert!(stderr(&output).contains("there is no folder /nowhere/at"), "{}", stderr(&output));
    let output = run(&["train", "--save-every", "2"]);
    assert!(stderr(&output).contains("--save <FILE>"), "{}", stderr(&output));
}
