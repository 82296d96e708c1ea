//! `--ranks` and `--network` of `remat simulate`, `sweep` and `bound`.

use crate::common::command::{folder, run, stderr};
use serde_json::Value;
use std::path::Path;
use std::process::Output;

fn stdout(args: &[&str]) -> String {
    let output = run(args);
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// Makes a recording of three steps, with costs by `model`.
fn recording(folder: &Path, model: &str) -> String {
    let path = folder.join(format!("{model}.jsonl")).into_os_string().into_string().unwrap();
    let args = ["train", "mlp", "--quiet", "--batch", "16", "--steps", "3", "--budget", "200%"];
    stdout(&[&args[..], &["--no-test", "--cost", model, "--record", &path]].concat());
    path
}

/// The step's times, which must be consistent: no rank is faster than one alone, and more ranks wait
/// longer.
fn check(step: &Value, ranks: &[u64]) {
    let number = |value: &Value, key: &str| value[key].as_f64().unwrap();
    let alone = number(step, "seconds");
    assert!(alone > 0.0);
    let on_ranks = step["on_ranks"].as_array().unwrap();
    assert_eq!(on_ranks.len(), ranks.len());
    let mut waited = 0.0;
    for (on, ranks) in on_ranks.iter().zip(ranks) {
        assert_eq!(on["ranks"].as_u64(), Some(*ranks));
        let (seconds, waiting) = (number(on, "seconds"), number(on, "waiting_seconds"));
        assert!((seconds - alone - waiting).abs() < 1e-8, "{step}");
        assert!((number(on, "efficiency") - alone / seconds).abs() < 1e-4, "{step}");
        assert!(waiting >= waited, "{step}");
        waited = waiting;
    }
}

#[test]
fn simulate_tells_the_time_on_several_ranks() {
    let folder = folder("ranks-simulate");
    let trace = recording(&folder, "measured");
    let options = ["--ranks", "1,8,1024", "--network", "100Gbit,5us"];
    let text = stdout(&[&["simulate", &trace], &options[..]].concat());
    for words in ["\n  one rank    ", "\n  1 rank      ", "\n  8 ranks     ", "\n  1,024 ranks "] {
        assert!(text.contains(words), "{text}");
    }
    let json = stdout(&[&["simulate", &trace, "--json", "-"], &options[..]].concat());
    let report: Value = serde_json::from_str(&json).unwrap();
    check(&report["step"], &[1, 8, 1024]);
    assert_eq!(report["step"]["on_ranks"][0]["waiting_seconds"].as_f64(), Some(0.0));
    // Without `--ranks` and `--network`, the report has no times of ranks.
    let json = stdout(&["simulate", &trace, "--json", "-"]);
    assert!(!json.contains("\"step\""), "{json}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_sweep_has_columns_and_tables_with_the_times() {
    let folder = folder("ranks-sweep");
    let trace = recording(&folder, "measured");
    let csv = folder.join("rows.csv").into_os_string().into_string().unwrap();
    let sweep = ["sweep", &trace, "--policy", "lru,dtr", "--budget", "1KiB,70%,100%"];
    let options = ["--ranks", "8,64", "--network", "1GB,20us,blocking"];
    let text = stdout(&[&sweep[..], &options, &["--csv", &csv]].concat());
    assert!(
        text.contains("\nmeasured, 8 ranks") && text.contains("\nmeasured, 64 ranks"),
        "{text}"
    );
    let rows = std::fs::read_to_string(&csv).unwrap();
    let mut lines = rows.lines();
    let header = lines.next().unwrap();
    assert!(
        header.ends_with(
            ",seconds,step_seconds,step_seconds_8,waiting_seconds_8,efficiency_8,step_seconds_64,\
             waiting_seconds_64,efficiency_64"
        ),
        "{header}"
    );
    let columns = header.split(',').count();
    assert_eq!(lines.clone().count(), 6);
    for line in lines {
        assert_eq!(line.split(',').count(), columns, "{line}");
        assert_eq!(line.ends_with(",,,,,,,"), line.contains(",oom,"), "{line}");
    }
    let json = stdout(&[&sweep[..], &options, &["--json", "-", "--quiet"]].concat());
    for line in json.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        match row["status"].as_str() {
            Some("ok") => check(&row["step"], &[8, 64]),
            _ => assert!(row.get("step").is_none(), "{row}"),
        }
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn bound_tells_the_least_time_on_several_ranks() {
    let folder = folder("ranks-bound");
    let trace = recording(&folder, "measured");
    let options = ["--ranks", "1,8,1024", "--network", "1Gbit,50us"];
    let args = [&["bound", &trace, "--budget", "1KiB,100%", "--json", "-"], &options[..]].concat();
    let json = stdout(&args);
    let found: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    // No run fits 1 KiB.
    assert!(found[0].get("least_seconds").is_none() && found[0].get("on_ranks").is_none());
    let alone = found[1]["least_seconds"].as_f64().unwrap();
    for on in found[1]["on_ranks"].as_array().unwrap() {
        let network = on["network_seconds"].as_f64().unwrap();
        let least = on["least_seconds"].as_f64().unwrap();
        assert!((least - alone.max(network)).abs() < 2e-9, "{on}");
    }
    let text = stdout(&[&["bound", &trace, "--budget", "100%"], &options[..]].concat());
    assert!(text.contains("The network alone takes 0.0 ms on 1 rank, "), "{text}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn what_cannot_be_predicted_is_refused() {
    let folder = folder("ranks-refused");
    let flops = recording(&folder, "flops");
    let log = format!("{}/tests/data/small.log", env!("CARGO_MANIFEST_DIR"));
    let network = ["--ranks", "8", "--network", "1GB,1us"];
    let told = |output: &Output| {
        assert_eq!(output.status.code(), Some(2), "{}", stderr(output));
        stderr(output).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    for command in ["simulate", "sweep", "bound"] {
        let message = told(&run(&[&[command, &flops], &network[..]].concat()));
        assert!(message.contains("the costs are in Gflop"), "{message}");
        assert!(message.contains("record the run with --cost measured"), "{message}");
        let message = told(&run(&[&[command, &log], &network[..]].concat()));
        assert!(message.contains("nothing is sent between ranks"), "{message}");
        for (options, words) in [
            (&["--ranks", "8"][..], "--network <SPEED>"),
            (&["--network", "1GB,1us"], "--ranks <LIST>"),
            (&["--ranks", "1,024", "--network", "1GB,1us"], "`024` is no number of ranks"),
            (&["--ranks", "0", "--network", "1GB,1us"], "from 1 to 1048576"),
            (&["--ranks", "8", "--network", "1GB,-5us"], "a latency of -5us is out of range"),
            (&["--ranks", "8", "--network", "100Gb,5us"], "write 100Gbit or 100GB"),
        ] {
            let message = told(&run(&[&[command, &flops], options].concat()));
            assert!(message.contains(words), "{message}");
        }
    }
    std::fs::remove_dir_all(folder).unwrap();
}
