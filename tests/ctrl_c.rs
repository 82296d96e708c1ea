//! Ctrl-C ends `remat train`, and the results so far are written.
#![cfg(unix)]

use crate::common::command::{folder, mnist, names, remat};
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

/// Start of the line that ends a step in a recording.
const STEP: &str = "\n{\"event\":\"did\",\"command\":\"step\",";

fn files<'a>(trace: &'a Path, result: &'a Path) -> [&'a str; 4] {
    ["--record", trace.to_str().unwrap(), "--json", result.to_str().unwrap()]
}

/// Running program, which is killed at the end of the test.
struct Running {
    child: Child,
    stderr: BufReader<ChildStderr>,
}

impl Running {
    fn new(args: &[&str]) -> Self {
        Self::of(remat(args))
    }

    fn of(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        Self { child, stderr }
    }

    /// Waits for a line on stderr. Fails if the program ends without this line.
    fn wait_for(&mut self, is_wanted: impl Fn(&str) -> bool) {
        let (mut line, mut said) = (String::new(), String::new());
        while !is_wanted(&line) {
            line.clear();
            let read = self.stderr.read_line(&mut line).unwrap();
            assert!(read > 0, "it ended without the line that was waited for; it said: {said}");
            said += &line;
        }
    }

    fn press_ctrl_c(&self) {
        self.send("-INT");
    }

    fn send(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    /// Waits for the program. Returns the exit code, and the rest of stdout and stderr.
    fn end(&mut self) -> (Option<i32>, String, String) {
        let (mut summary, mut said) = (String::new(), String::new());
        self.stderr.read_to_string(&mut said).unwrap();
        let code = self.child.wait().unwrap().code();
        self.child.stdout.take().unwrap().read_to_string(&mut summary).unwrap();
        (code, summary, said)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn ctrl_c_ends_with_a_summary_of_what_was_done() {
    let folder = folder("ctrl-c");
    let [trace, result] = ["trace.jsonl", "result.json"].map(|name| folder.join(name));
    let files = files(&trace, &result);
    // The run has far more steps than there is time for, and prints a line about the first step.
    let args = ["train", "mlp", "--steps", "100000000"];
    let mut run = Running::new(&[&args[..], &files].concat());
    run.wait_for(|line| line.starts_with("step 1/"));
    run.press_ctrl_c();
    let (code, summary, said) = run.end();
    assert_eq!(code, Some(130), "{said}");
    assert!(said.contains("press Ctrl-C again"), "{said}");
    let report: Value = serde_json::from_slice(&std::fs::read(result).unwrap()).unwrap();
    let steps = report["steps"].as_u64().unwrap();
    assert_eq!(report["ending"], "interrupted");
    assert_eq!(report["steps_asked"], 100_000_000);
    assert!(steps >= 1 && report["test_accuracy"].is_null());
    assert_eq!(report["params_sha256"].as_str().unwrap().len(), 64);
    let last = said.lines().last().unwrap().replace(',', "");
    assert_eq!(last, format!("interrupted after {steps} of 100000000 steps"));
    assert!(summary.contains(" of 100,000,000 steps of 128 images in "), "{summary}");
    // The recording is complete.
    let mut left = names(&folder);
    left.sort();
    assert_eq!(left, ["result.json", "trace.jsonl"]);
    let text = std::fs::read_to_string(trace).unwrap();
    assert_eq!(text.matches(STEP).count() as u64, steps);
    let last: Vec<&str> = text.lines().rev().take(2).collect();
    assert!(last[0] == "{\"event\":\"end\"}" && last[1].starts_with(STEP.trim_start()));
}

/// Regression: SIGTERM, by which batch systems end a program, lost all work.
#[test]
fn sigterm_does_as_ctrl_c_does() {
    let folder = folder("sigterm");
    let saved = folder.join("run");
    let args = ["train", "mlp", "--steps", "100000000", "--save", saved.to_str().unwrap()];
    let mut run = Running::new(&args);
    run.wait_for(|line| line.starts_with("step 1/"));
    run.send("-TERM");
    let (code, _, said) = run.end();
    assert_eq!(code, Some(130), "{said}");
    assert!(said.contains("finishing the current step"), "{said}");
    assert_eq!(names(&folder), ["run"]);
}

#[test]
fn ctrl_c_in_a_rehearsal_leaves_nothing_half_written() {
    let folder = folder("ctrl-c-in-a-rehearsal");
    let [trace, result] = ["trace.jsonl.gz", "result.json"].map(|name| folder.join(name));
    let files = files(&trace, &result);
    let mut run = Running::new(&[&["train", "resnet1202"][..], &files].concat());
    run.wait_for(|line| line.starts_with("device "));
    run.press_ctrl_c();
    let (code, _, said) = run.end();
    assert_eq!(code, Some(130), "{said}");
    assert!(said.starts_with("interrupted: ending the rehearsal; press Ctrl-C again"), "{said}");
    assert!(said.ends_with("interrupted before the first step\n"), "{said}");
    assert!(!names(&folder).iter().any(|name| name.ends_with(".partial")));
}

#[test]
fn ctrl_c_in_the_test_keeps_what_was_learned() {
    // The test after the training has far more batches than there is time for.
    let data = format!("idx:{}", mnist("ctrl-c-in-the-test", 1, [10, 5_000_000]).display());
    let mut run = Running::new(&["train", "mlp", "--data", &data, "--batch", "1", "--steps", "2"]);
    run.wait_for(|line| line == "testing on 5,000,000 images\n");
    run.press_ctrl_c();
    let (code, summary, said) = run.end();
    assert_eq!(code, Some(130), "{said}");
    assert!(said.contains("interrupted: ending the test; press Ctrl-C again"), "{said}");
    assert!(said.ends_with("interrupted after 2 steps, before the end of the test\n"), "{said}");
    assert!(summary.starts_with(&format!("mlp on {data}: 2 steps of 1 image in ")), "{summary}");
    assert!(!summary.contains(" right, in "), "{summary}");
}

#[test]
fn the_work_of_an_abandoned_step_is_counted() {
    let folder = folder("abandoned");
    let json = folder.join("result.json");
    let args = [
        "train",
        "resnet110",
        "--batch",
        "256",
        "--budget",
        "60%",
        "--learn",
        "off",
        "--no-test",
        "--json",
    ];
    let mut command = remat(&[&args[..], &[json.to_str().unwrap()]].concat());
    command.env("RUST_LOG", "remat=debug");
    let mut run = Running::of(command);
    run.wait_for(|line| line.contains(" training steps="));
    run.press_ctrl_c();
    run.wait_for(|line| line.starts_with("interrupted: "));
    run.press_ctrl_c();
    let (code, _, said) = run.end();
    assert_eq!(code, Some(130), "{said}");
    // The step had put its parameters by then, wherever it was.
    let report: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    assert!(report["ops"].as_u64().unwrap() > 0, "{report}");
    assert!(report["peak_bytes"].as_u64().unwrap() > 0, "{report}");
}

#[test]
fn a_second_ctrl_c_gives_the_step_up_and_a_third_ends_at_once() {
    // The test reads only the beginning of the recording, and the rest is more than a pipe holds.
    // The program therefore waits for the pipe in its first step, and the first Ctrl-C waits for
    // the end of this step.
    let folder = folder("ctrl-c-thrice");
    let result = folder.join("result.json");
    let args = ["train", "resnet32", "--steps", "1", "--record", "-", "--json"];
    let mut run = Running::new(&[&args[..], &[result.to_str().unwrap()]].concat());
    let mut begin = [0; 16];
    run.child.stdout.as_mut().unwrap().read_exact(&mut begin).unwrap();
    assert_eq!(&begin, b"{\"event\":\"begin\"");
    run.press_ctrl_c();
    run.wait_for(|line| line.starts_with("interrupted: finishing the current step"));
    run.press_ctrl_c();
    run.wait_for(|line| line.starts_with("interrupted: abandoning the current step"));
    assert!(run.child.try_wait().unwrap().is_none());
    run.press_ctrl_c();
    let (code, recording, said) = run.end();
    assert_eq!((code, said.as_str()), (Some(130), ""));
    assert!(!recording.contains(STEP.trim_start()), "{recording}");
    assert_eq!(names(&folder), [""; 0], "nothing half-written is left");
}

#[test]
fn a_recording_has_the_steps_that_were_done_and_no_part_of_another() {
    let folder = folder("ctrl-c-twice");
    let [trace, result] = ["trace.jsonl", "result.json"].map(|name| folder.join(name));
    let files = files(&trace, &result);
    let mut run = Running::new(&[&["train", "resnet20"][..], &files].concat());
    run.wait_for(|line| line.starts_with("step 1/"));
    run.press_ctrl_c();
    run.wait_for(|line| line.starts_with("interrupted: "));
    run.press_ctrl_c();
    let (code, _, said) = run.end();
    assert_eq!(code, Some(130), "{said}");
    let report: Value = serde_json::from_slice(&std::fs::read(&result).unwrap()).unwrap();
    let steps = report["steps"].as_u64().unwrap();
    assert!(steps >= 1);
    let recorded = std::fs::read_to_string(&trace).unwrap();
    assert_eq!(recorded.matches(STEP).count() as u64, steps);
    let replayed = remat(&["simulate", trace.to_str().unwrap(), "--budget", "100%"]).output();
    let replayed = replayed.unwrap();
    assert!(replayed.status.success(), "{}", String::from_utf8_lossy(&replayed.stderr));
}
