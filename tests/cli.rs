//! The program, as a user runs it.

use crate::common::command::{folder, names, remat, run, same_bits, stderr, train};
use serde_json::Value;
use std::io::Read as _;
use std::process::{Command, Stdio};

#[test]
fn a_budget_changes_no_bit() {
    same_bits(
        &["resnet20", "--batch", "32", "--steps", "2", "--seed", "1", "--threads", "2"],
        &[
            &["--budget", "200%", "--policy", "none"],
            &["--budget", "100%"],
            &["--budget", "60%", "--policy", "dtr"],
            &["--budget", "60%", "--policy", "dtr-eq"],
            &["--budget", "60%", "--policy", "megengine", "--exponents", "1,0.5,2", "--own-cost"],
            &["--budget", "60%", "--policy", "megengine-article", "--cost", "bytes"],
            &["--budget", "60%", "--policy", "lru", "--cost", "bytes", "--dead", "keep"],
            &["--budget", "60%", "--eviction-threshold", "55%", "--sqrt-sampling"],
            &["--budget", "60%", "--min-evict-bytes", "4KiB", "--recompute-limit", "10"],
        ],
    );
}

/// A budget of 60 % takes away a large part of the memory for activations.
#[test]
fn a_budget_changes_no_bit_of_any_kind_of_network() {
    for base in [
        "densenet121 --data synthetic:3x16x16 --batch 16 --steps 1 --no-test",
        "unet --data synthetic:3x20x17 --batch 80 --steps 1 --no-test",
        "treelstm --data trees --batch 256 --steps 4",
        "unrolled-gan --batch 256 --steps 3",
    ] {
        let base: Vec<&str> = base.split(' ').collect();
        same_bits(&base, &[&["--budget", "100%"], &["--budget", "60%"]]);
    }
}

#[test]
fn networks_on_data_of_their_own_say_what_they_came_to() {
    for (args, told) in [
        ("unet --batch 64 --steps 6 --lr 0.05", "% of pixels improved; 360 images"),
        ("treelstm --batch 64 --steps 3", "% right, loss "),
        ("unrolled-gan --data ring --batch 64 --steps 3", "of 8 Gaussians found, "),
    ] {
        let args: Vec<&str> = args.split(' ').collect();
        let output = run(&[&["train"], &args[..]].concat());
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && said.contains(told), "{args:?}: {said}");
    }
}

#[test]
fn the_seed_makes_the_difference_and_threads_do_not() {
    let digest = |args: &[&str]| {
        let report = train(&[&["mlp", "--steps", "3"], args].concat());
        report["params_sha256"].as_str().unwrap().to_owned()
    };
    let one = digest(&["--seed", "1", "--threads", "1"]);
    assert_eq!(one.len(), 64);
    assert_eq!(one, digest(&["--seed", "1", "--threads", "2"]));
    assert_ne!(one, digest(&["--seed", "2"]));
}

#[test]
fn the_report_says_what_was_asked_for() {
    let args = ["mlp", "--data", "synthetic:1x4x4", "--batch", "16", "--steps", "4"];
    let report = train(&[&args[..], &["--budget", "100%", "--eviction-threshold", "95%"]].concat());
    for (field, expected) in [
        ("model", "mlp".into()),
        ("data", "synthetic:1x4x4".into()),
        ("batch", 16.into()),
        ("ending", "done".into()),
        ("steps", 4.into()),
        ("steps_asked", 4.into()),
        ("seed", 0.into()),
        ("policy", "learned:portfolio".into()),
        ("cost_model", "flops".into()),
        ("device", "cpu".into()),
    ] as [(&str, Value); 10]
    {
        assert_eq!(report[field], expected, "{field}");
    }
    for field in [
        "threads",
        "budget_bytes",
        "effective_budget_bytes",
        "eviction_threshold_bytes",
        "full_budget_bytes",
        "unbudgeted_peak_bytes",
        "state_bytes",
        "peak_bytes",
        "final_loss",
        "test_accuracy",
        "test_loss",
        "test_examples",
        "test_seconds",
        "evictions",
        "recomputed_ops",
        "ops",
        "recompute_seconds",
        "search_seconds",
        "seconds_per_step_median",
        "fragmentation",
        "compactions",
        "moved_bytes",
        "planned_seconds",
        "unplanned_seconds",
        "planning_seconds",
        "unplanned_bytes",
        "spared_evictions",
    ] {
        assert!(report[field].is_number(), "{field}: {}", report[field]);
    }
}

#[test]
fn the_report_has_the_exponents_of_megengine_s_functions() {
    for (policy, own_cost) in
        [("megengine", Value::Bool(false)), ("megengine-article", Value::Null)]
    {
        let report = train(&["mlp", "--steps", "1", "--policy", policy, "--exponents", "1,0.5,2"]);
        assert_eq!(report["policy"], format!("{policy}:bytes=0.5:staleness=2"));
        assert_eq!(report["exponents"], serde_json::json!([1.0, 0.5, 2.0]));
        assert_eq!(report["own_cost"], own_cost);
    }
}

#[test]
fn a_person_gets_a_summary_on_stdout_and_progress_on_stderr() {
    let path = folder("summary").join("result.json");
    let output = run(&["train", "mlp", "--steps", "20", "--json", path.to_str().unwrap()]);
    let summary = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(summary.starts_with("mlp on digits: 20 steps of 128 images in "), "{summary}");
    assert!(summary.contains(" a step (median)\n"), "{summary}");
    assert!(
        summary.contains(" % right, loss ") && summary.contains("; 360 images in "),
        "{summary}"
    );
    assert!(summary.lines().all(|line| line.len() <= 80), "{summary}");
    let progress = stderr(&output);
    assert!(progress.contains("step 20/20: loss"), "{progress}");
    assert!(progress.contains("testing on 360 images\n"), "{progress}");
    assert!(progress.lines().count() < 20, "{progress}");
    let report: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert!(summary.contains(&report["params_sha256"].as_str().unwrap()[..16]));
}

#[cfg(target_os = "linux")]
#[test]
fn on_a_terminal_a_bar_shows_from_the_first_step_to_the_test() {
    let program = env!("CARGO_BIN_EXE_remat");
    let command = format!("stty rows 40 cols 100; {program} train mlp --steps 3");
    let script = |term| {
        Command::new("script").env("TERM", term).args(["-qec", &command, "/dev/null"]).output()
    };
    let output = script("xterm");
    let Ok(output) = output else { return println!("skipped: there is no `script` here") };
    let shown = String::from_utf8_lossy(&output.stdout);
    let bars = [
        " 0/3 ",
        " first step",
        " loss ",
        " in use ",
        " left",
        "/360 ",
        " testing",
        "mlp on digits: 3 steps",
    ];
    let mut rest = &shown[..];
    for bar in bars {
        let at = rest.find(bar).unwrap_or_else(|| panic!("{bar} is missing: {shown}"));
        rest = &rest[at..];
    }
    assert!(!shown.contains("testing on"), "bars instead of lines: {shown}");
    // A terminal that cannot draw bars gets lines.
    let shown = script("dumb").unwrap().stdout;
    let shown = String::from_utf8_lossy(&shown);
    assert!(shown.contains("step 1/3: loss") && shown.contains("testing on"), "{shown}");
}

#[test]
fn one_of_a_thing_is_no_plural() {
    let output = run(&["train", "mlp", "--steps", "1", "--batch", "1", "--budget", "100%"]);
    let summary = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(summary.starts_with("mlp on digits: 1 step of 1 image in "), "{summary}");
    let said = stderr(&output);
    assert!(said.starts_with("mlp on digits: 1,437 images, 1 step of 1\n"), "{said}");
    assert!(!said.contains("1 steps") && !said.contains("1 evictions"), "{said}");
}

#[test]
fn a_batch_larger_than_the_data_is_warned_of() {
    let args = ["train", "mlp", "--steps", "1", "--no-test", "--batch"];
    let said = |batch| stderr(&run(&[&args[..], &[batch]].concat()));
    let warning = "warning: a batch of 1,438 repeats images, because the data has only 1,437; lower --batch\n";
    assert!(said("1438").contains(warning), "{}", said("1438"));
    assert!(!said("1437").contains("warning"), "{}", said("1437"));
}

#[cfg(target_os = "linux")]
#[test]
fn lines_are_no_wider_than_the_terminal() {
    let program = env!("CARGO_BIN_EXE_remat");
    let small = small();
    for args in [
        "train mlp --steps 1 --eviction-threshold 30%",
        "train mlp --steps 1 --budget 30%",
        &format!("simulate {small}"),
        &format!("sweep {small} --policy lru,dtr --feasibility --budget 1%..100%:1%"),
        &format!("sweep {small} --policy lru --budget 40%,60% --eviction-threshold 50%"),
        "devices",
    ] {
        let command = format!("stty rows 40 cols 80; {program} --color never --no-progress {args}");
        let output = Command::new("script").args(["-qec", &command, "/dev/null"]).output();
        let Ok(output) = output else { return println!("skipped: there is no `script` here") };
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        for line in shown.lines() {
            assert!(line.trim_end().chars().count() <= 80, "{args}: {line}\n{shown}");
        }
    }
}

#[test]
fn declined_tests_and_progress_are_neither_run_nor_shown() {
    let args = ["train", "mlp", "--steps", "2", "--no-test", "--no-progress", "--json", "-"];
    let output = run(&args);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["test_accuracy"].is_null() && report["test_seconds"].is_null());
    let said = stderr(&output);
    assert!(said.contains("\nbudget ") && said.contains("\n  parameters  17,290"), "{said}");
    assert!(!said.contains("step 1/2") && !said.contains("test"), "{said}");
    // Options may come before or after the command.
    let output = run(&["--no-progress", "train", "mlp", "--steps", "2", "--quiet"]);
    assert!(output.status.success() && output.stdout.is_empty() && output.stderr.is_empty());
}

#[test]
fn nonsense_is_refused_with_the_value_and_what_is_allowed() {
    for (args, message) in [
        ("--budget NaN", "invalid value 'NaN' for '--budget <SIZE>'"),
        ("--budget -5%", "invalid value '-5%' for '--budget <SIZE>'"),
        ("--budget 0", "0 bytes hold no tensor; write for example 40% or 64MiB"),
        ("--budget 0%", "a percentage must be above 0"),
        ("--budget 1e30GiB", "neither a percentage nor a size in bytes"),
        ("--budget 40", "this is 40 B; did you mean 40%?"),
        ("--budget 0.4", "did you mean 40%?"),
        ("--budget 50% --eviction-threshold 90%", "is above the budget"),
        ("--record-steps 1", "--record <FILE>"),
        (
            "--record - --json -",
            "--record and --json both write to stdout; name a file for one of them",
        ),
        ("--color red", "[possible values: auto, always, never]"),
        ("--min-evict-bytes 1XB", "`1XB` is not a size in bytes"),
        ("--batch 0", "give a whole number from 1 up"),
        ("--batch 99999999999999999", "takes 25599999999999999744 B, more than"),
        ("--steps 0", "give a whole number from 1 up"),
        ("--steps 1 --epochs 1", "cannot be used with '--epochs <N>'"),
        ("--threads 0", "give a whole number from 1 to 1024"),
        ("--lr NaN", "invalid value 'NaN' for '--lr <LR>'"),
        ("--lr -1", "give a number above 0"),
        ("--momentum 1", "give a number from 0 to below 1"),
        ("--weight-decay inf", "give a number from 0 up"),
        ("--recompute-limit NaN", "give a number from 0 up"),
        ("--seed -1", "give a whole number from 0"),
        ("--policy best", "choose one of ancestors, megengine, dtr, dtr-eq"),
        ("--cost free", "choose one of measured, flops, bytes"),
        ("--exponents 1,1", "invalid value '1,1'"),
        ("--policy lru --exponents 1,1,1", "choose one, or drop --exponents"),
        ("--policy megengine-article --own-cost", "--own-cost needs --policy megengine;"),
        ("--policy lru --learn search", "--learn needs --policy learned;"),
        ("--learn off --learn-cache f", "--learn-cache needs --learn portfolio or search;"),
        ("--learn much", "possible values: off, ahead, portfolio, search"),
        ("--data mnist", "choose digits, synthetic:CxHxW"),
        ("--data synthetic:0x1x1", "images of 0x1x1 are empty; try"),
        ("--data synthetic:9x99999x99999", "have more than 4294967296 values; try"),
        ("--steps 99999999999999999999", "give a whole number from 1 to "),
        ("resnet21", "possible values: mlp, resnet20"),
        ("inceptionv4", "images of 8x8 pixels, expected at least 75x75"),
        ("treelstm --data digits", "treelstm needs --data trees"),
        ("unrolled-gan --data trees", "unrolled-gan needs --data ring"),
        ("unet --data ring", "unet learns from images, but ring has no images"),
    ] {
        let args: Vec<&str> = args.split(' ').collect();
        let output = run(&[&["train"], &args[..]].concat());
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains("error: ") && said.contains(message), "{args:?}: {said}");
        assert!(!said.contains("step 1/"), "{args:?}: {said}");
        assert!(output.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn a_loss_that_is_no_number_ends_the_run() {
    let path = folder("diverged").join("result.json");
    let args = ["train", "mlp", "--steps", "50", "--lr", "1e20", "--json", path.to_str().unwrap()];
    let output = run(&args);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let report: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert_eq!(report["ending"], "diverged");
    let since = report["diverged_since_step"].as_u64().unwrap();
    assert!(report["steps"].as_u64().unwrap() < 50 && report["final_loss"].is_null());
    assert!(report["test_accuracy"].is_null());
    let last = said.lines().last().unwrap();
    assert!(last.starts_with("error: the loss is "), "{last}");
    let end = format!(" since step {since} of 50 steps; lower --lr, which is {}", 1e20f32);
    assert!(last.ends_with(&end), "{last}");
    let summary = String::from_utf8(output.stdout).unwrap();
    assert!(summary.contains(&format!(" since step {since}; ")), "{summary}");
}

#[test]
fn a_network_that_the_last_step_broke_is_no_success() {
    let output = run(&["train", "mlp", "--steps", "1", "--lr", "1e38"]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("error: after 1 step the outputs of the network are not finite; "),
        "{said}"
    );
}

#[test]
fn a_recording_is_whole_and_of_training_alone() {
    let folder = folder("record");
    let path = folder.join("trace.jsonl");
    train(&["mlp", "--steps", "3", "--record", path.to_str().unwrap()]);
    assert_eq!(names(&folder), ["trace.jsonl"]);
    let text = std::fs::read_to_string(path).unwrap();
    let events: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("a line is an event")).collect();
    // A command is a name, or a name with its parts.
    let is = |event: &Value, name: &str| {
        let command = &event["command"];
        event["event"] == name || command == name || command.get(name).is_some()
    };
    let count = |name: &str| events.iter().filter(|event| is(event, name)).count();
    assert_eq!(events[0]["event"], "begin");
    assert_eq!((count("begin"), count("step"), count("put"), count("get")), (1, 3, 6, 3));
    assert!(text.ends_with('\n'));
}

/// Start of the line that ends a step in a recording.
const STEP: &str = "\n{\"event\":\"did\",\"command\":\"step\",";

#[test]
fn a_recording_may_be_packed_or_go_to_stdout_or_end_early() {
    let folder = folder("recordings");
    let paths = ["all.jsonl", "all.jsonl.gz", "two.jsonl"].map(|name| folder.join(name));
    let [all, packed, two] = paths.each_ref().map(|path| path.to_str().unwrap());
    let args = ["train", "mlp", "--steps", "3", "--no-test", "--quiet", "--record"];
    let record = |more: &[&str]| {
        let output = run(&[&args[..], more].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        output.stdout
    };
    record(&[all]);
    record(&[packed]);
    record(&[two, "--record-steps", "2"]);
    let stdout = record(&["-"]);
    assert_eq!(names(&folder).len(), 3);
    let text = std::fs::read(all).unwrap();
    assert_eq!(stdout, text);
    let mut unpacked = Vec::new();
    let file = std::fs::File::open(packed).unwrap();
    flate2::read::GzDecoder::new(file).read_to_end(&mut unpacked).unwrap();
    assert_eq!(unpacked, text);
    let end = b"{\"event\":\"end\"}\n";
    let two = std::fs::read(two).unwrap();
    let two = two.strip_suffix(end).expect("a recording says where it ends");
    assert!(text.starts_with(two) && text.ends_with(end));
    let steps = |text: &[u8]| String::from_utf8_lossy(text).matches(STEP).count();
    assert_eq!((steps(&text), steps(two)), (3, 2));
    let last = |text: &[u8]| String::from_utf8_lossy(text).lines().last().unwrap().to_owned();
    assert!(last(two).starts_with(STEP.trim_start()), "{}", last(two));
    // The summary goes to stderr, not into the recording.
    let output = run(&["train", "mlp", "--steps", "1", "--no-test", "--record", "-"]);
    assert!(stderr(&output).contains("\nmlp on digits: 1 step of 128 images in "));
    let steps = output.stdout.strip_suffix(end).expect("a recording says where it ends");
    assert!(last(steps).starts_with(STEP.trim_start()), "{}", last(steps));
}

#[test]
fn a_recording_is_read_by_the_lab_and_its_last_step_repeated() {
    let path = folder("replayed").join("resnet20.jsonl");
    // The state has two parts: parameters that are updated in place, and statistics that each step
    // computes as new tensors. The first step also makes the parameters and velocities.
    let args = ["resnet20", "--batch", "8", "--steps", "2", "--budget", "90%", "--record"];
    train(&[&args[..], &[path.to_str().unwrap()]].concat());
    let trace = remat::unstable::lab::Trace::open(&path).unwrap();
    assert_eq!(
        (trace.name(), trace.unit()),
        ("resnet20", &remat::unstable::lab::CostUnit::Gigaflops)
    );
    assert!(trace.program().has_flops());
    let size = |trace: &remat::unstable::lab::Trace| {
        let program = trace.program();
        (program.commands().len(), program.ops(), program.alive().count())
    };
    let (once, twice) = (size(&trace), size(&trace.clone().repeat_step(2).unwrap()));
    let eleven = size(&trace.repeat_step(11).unwrap());
    // Each repetition of the step has the same length, and leaves as many tensors as the previous
    // repetition.
    assert_eq!(eleven.0 - once.0, 10 * (twice.0 - once.0));
    assert_eq!(eleven.1 - once.1, 10 * (twice.1 - once.1));
    assert_eq!((once.2, twice.2), (eleven.2, eleven.2));
}

/// The tests' log in the DTR paper's format.
fn small() -> String {
    format!("{}/tests/data/small.log", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn a_recording_replays_with_the_evictions_of_its_run() {
    let folder = folder("same-evictions");
    let [trace, run_json] = ["run.jsonl", "run.json"].map(|name| folder.join(name));
    let [trace, run_json] = [&trace, &run_json].map(|path| path.to_str().unwrap());
    for policy in ["dtr-eq", "megengine", "megengine-article", "lru"] {
        let base = ["resnet20", "--batch", "64", "--steps", "3", "--budget", "60%", "--quiet"];
        let files = ["--policy", policy, "--record", trace, "--json", run_json];
        assert!(run(&[&["train"], &base[..], &files[..]].concat()).status.success());
        let made: Value = serde_json::from_slice(&std::fs::read(run_json).unwrap()).unwrap();
        let budget = made["effective_budget_bytes"].to_string();
        let args = ["simulate", trace, "--budget", &budget, "--policy", policy, "--json", "-"];
        let again: Value = serde_json::from_slice(&run(&args).stdout).unwrap();
        for key in ["evictions", "recomputed_ops", "ops", "peak_bytes", "moved_bytes"] {
            assert_eq!(made[key], again[key], "{key} with {policy}");
        }
        assert!(made["evictions"].as_u64().unwrap() > 0);
    }
}

#[test]
fn files_that_cannot_be_read_or_written_are_named() {
    let folder = folder("files");
    let missing = folder.join("missing").join("file");
    let missing = missing.to_str().unwrap();
    std::fs::write(folder.join("train-images-idx3-ubyte"), "not images").unwrap();
    let data = format!("idx:{}", folder.display());
    let mut cases = vec![
        (["--data", data.as_str()], "train-images-idx3-ubyte: starts with 0x6e6f7420"),
        (
            ["--data", "idx:/nowhere"],
            "/nowhere: there is no such folder; it should hold train-images-idx3-ubyte",
        ),
        (["--json", missing], "missing/file: there is no folder "),
        (["--record", missing], "missing/file: there is no folder "),
    ];
    if cfg!(target_os = "linux") {
        cases.push((["--json", "/dev/full"], "/dev/full: it is a device; name a file"));
        cases.push((["--record", "/dev/full"], "/dev/full: it is a device; name a file"));
        for args in [
            &[][..],
            &["--help"],
            &["--version"],
            &["train", "-h"],
            &["devices"],
            &["completions", "fish"],
        ] {
            let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
            let output = remat(args).stdout(full).output().unwrap();
            assert_eq!(output.status.code(), Some(1), "{args:?}");
            assert!(stderr(&output).starts_with("error: stdout: No space left"), "{args:?}");
        }
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let args = ["train", "mlp", "--quiet", "--steps", "1", "--record", "-"];
        let output = remat(&args).stdout(full).output().unwrap();
        assert!(
            stderr(&output).starts_with("error: stdout: the recording could"),
            "{}",
            stderr(&output)
        );
    }
    for (args, message) in cases {
        let output = run(&[&["train", "mlp", "--quiet", "--steps", "1"], &args[..]].concat());
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
        assert!(said.starts_with("error: ") && said.contains(message), "{args:?}: {said}");
    }
}

#[test]
fn a_reader_that_leaves_is_no_reason_to_panic() {
    for args in [
        &["train", "mlp", "--steps", "1"][..],
        &["train", "mlp", "--steps", "1", "--json", "-"],
        &[],
    ] {
        let mut child = remat(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        assert!(!stderr(&output).contains("panicked"), "{}", stderr(&output));
    }
}

#[test]
fn a_recording_that_cannot_be_written_is_an_error_before_the_rehearsal() {
    // Training this network takes long enough that the program prints a progress line.
    let args = ["train", "resnet1202", "--steps", "1", "--record"];
    let missing = folder("early").join("missing").join("run.jsonl");
    let said = stderr(&run(&[&args[..], &[missing.to_str().unwrap()]].concat()));
    assert!(said.starts_with("error: ") && said.lines().count() == 1, "{said}");
}

#[test]
fn help_and_version_are_there() {
    let output = run(&[]);
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("Usage: remat"));
    let output = run(&["--version"]);
    assert_eq!(output.stdout, format!("remat {}\n", env!("CARGO_PKG_VERSION")).as_bytes());
    for command in ["train", "devices", "simulate", "sweep", "history", "completions"] {
        let output = run(&[command, "--help"]);
        assert!(String::from_utf8_lossy(&output.stdout).contains("\nExamples:\n  remat "));
    }
}

#[test]
fn shells_can_complete() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let output = run(&["completions", shell]);
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && script.contains("record-steps"), "{shell}");
    }
    assert_eq!(run(&["completions", "dos"]).status.code(), Some(2));
}

#[test]
fn color_is_there_when_asked_for() {
    let colored = |args: &[&str], variable: Option<&str>| {
        let mut command = remat(args);
        variable.map(|variable| command.env(variable, "1"));
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        output.stderr.contains(&0x1b)
    };
    for error in [&["train", "--budget", "x"][..], &["train", "mlp", "--budget", "1KiB"]] {
        let asked = |when: &'static str| [&[when], error].concat();
        assert!(!colored(error, None), "this is no terminal");
        assert!(colored(&asked("--color=always"), None));
        assert!(colored(&asked("--color=always"), Some("NO_COLOR")), "the option goes first");
        assert!(colored(error, Some("CLICOLOR_FORCE")));
        assert!(!colored(&asked("--color=never"), Some("CLICOLOR_FORCE")));
        assert!(!colored(error, Some("NO_COLOR")));
    }
}

#[test]
fn the_engine_tells_what_it_does_when_asked() {
    let args = ["train", "--steps", "2", "--batch", "32", "--budget", "60%"];
    let output = remat(&args).env("RUST_LOG", "remat=debug").output().unwrap();
    let said = stderr(&output);
    assert!(said.contains("DEBUG remat: "), "{said}");
    // Rehearsals log no lines, and the test after the training does not count as a step.
    let lines = |what: &str| said.lines().filter(|line| line.contains(what)).count();
    assert_eq!(
        (lines("remat: training steps=2"), lines("remat: testing examples=360")),
        (1, 1),
        "{said}"
    );
    assert_eq!((lines("remat: step step="), lines("step=2")), (2, 1), "{said}");
    // Labelled tensors are logged by their names.
    for what in ["will evict", "did regenerate"] {
        let by_name = |line: &&str| line.contains(what) && line.contains(" tensor=images ");
        assert!(said.lines().any(|line| by_name(&line)), "{what}: {said}");
    }
    let output = remat(&args).env("RUST_LOG", "remat=loud").output().unwrap();
    assert!(output.status.success());
    assert!(stderr(&output).contains("warning: RUST_LOG: "), "{}", stderr(&output));
    let args = [&args[..], &["--quiet"]].concat();
    let output = remat(&args).env("RUST_LOG", "foo=bar=baz").output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", stderr(&output));
}

/// A program without MPI says what to install, and how to build one with MPI.
#[test]
#[cfg(not(feature = "mpi"))]
fn several_ranks_need_a_program_with_mpi() {
    let output = run(&["train", "--distributed", "mpi"]);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("--features mpi") && text.contains("libopenmpi-dev"), "{text}");
}

#[test]
fn budgets_for_several_ranks_are_refused_on_one() {
    let output = run(&["train", "mlp", "--budget", "60%,40%"]);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("--budget has 2 values, but there is one rank"), "{text}");
}

#[test]
fn absurd_numbers_of_layers_are_refused_at_once() {
    for layers in ["0", "4097", "4294967296", "-1", "1e3"] {
        let output = run(&["train", "gpt", "--layers", layers]);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{layers}: {text}");
        assert!(text.contains("give a whole number from 1 to 4096"), "{layers}: {text}");
    }
}

/// A damaged tokenizer is refused in words, although the library that reads it panics.
#[test]
fn damaged_tokenizers_are_refused() {
    let folder = folder("damaged-tokenizer");
    let [text, tokenizer] = ["text", "t.json"].map(|name| folder.join(name));
    std::fs::write(&text, "a b c ".repeat(200)).unwrap();
    for json in [
        r#"{"version":"1.0","decoder":{"type":"ByteLevel" "x":1}}"#,
        r#"{"version":"1.0","decoder":{"type":"ByteLevel","x":1}}"#,
        "{}",
        "",
        "[1",
    ] {
        std::fs::write(&tokenizer, json).unwrap();
        let data = format!("text:{}", text.display());
        let output =
            run(&["train", "gpt", "--data", &data, "--tokenizer", tokenizer.to_str().unwrap()]);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{json}: {text}");
        assert!(text.contains("not a tokenizer.json") && !text.contains("panicked"), "{text}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

/// SIGTERM ends a program that waits for its data.
#[test]
#[cfg(unix)]
fn a_signal_ends_the_wait_for_data() {
    let folder = folder("waits-for-data");
    let fifo = folder.join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let data = format!("text:{}", fifo.display());
    let mut child =
        remat(&["train", "gpt", "--data", &data]).stderr(Stdio::piped()).spawn().unwrap();
    let kill = || Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(kill().success());
    let status = child.wait().unwrap();
    // Before the program handles the signal, the system ends it.
    assert!(matches!(status.code(), None | Some(130)), "{status:?}");
    std::fs::remove_dir_all(folder).unwrap();
}

/// Control characters in file names do not reach the terminal.
#[test]
fn control_characters_of_names_are_escaped() {
    let output = run(&["plan", "x\u{1b}[31mred"]);
    let text = stderr(&output);
    assert!(text.contains(r"x\u{1b}[31mred") && !text.contains("x\u{1b}"), "{text}");
}
