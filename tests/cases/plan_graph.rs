//! Graphs read and written by `remat plan`, as a user runs it.

use crate::common::command::{folder, run, stderr};
use serde_json::Value;
use std::fs;
use std::path::Path;

fn rows(args: &[&str]) -> Vec<Value> {
    let output = run(&[&["plan"], args, &["--json", "-"]].concat());
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn example(name: &str) -> String {
    format!("{}/examples/graphs/{name}.json", env!("CARGO_MANIFEST_DIR"))
}

/// A graph written from a recording, a log or another graph is planned like the original step.
#[test]
fn a_step_is_exported_and_planned_alike() {
    let folder = folder("plan-graph");
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let sources = ["resnet20-v3.jsonl.gz", "resnet20-v2.jsonl.gz", "small.log"];
    let sources = sources.map(|name| data.join(name).to_str().unwrap().to_owned());
    let examples = ["decoder", "nnvm"].map(example);
    for (at, source) in sources.iter().chain(&examples).enumerate() {
        for ending in ["json", "json.gz"] {
            let graph = folder.join(format!("{at}.{ending}"));
            let graph = graph.to_str().unwrap();
            let options = ["--order", "program,sink", "--reuse", "pushdown,gaps-size,two-level"];
            let before = rows(&[&[source, "--graph", graph], &options[..]].concat());
            let after = rows(&[&[graph], &options[..]].concat());
            assert_eq!(before.len(), 6);
            for (one, other) in before.iter().zip(&after) {
                for key in
                    ["order", "held", "buffers", "load", "program_load", "reuse", "bytes", "ratio"]
                {
                    assert_eq!(one[key], other[key], "{source}: {key}");
                }
            }
        }
    }
    // A graph can be written to stdout.
    let output = run(&["plan", &sources[2], "--reuse", "best-fit", "--graph", "-"]);
    let text = std::str::from_utf8(&output.stdout).unwrap();
    let value: Value = serde_json::from_str(text).unwrap();
    assert_eq!((&value["format"], &value["version"]), (&"remat-graph".into(), &1.into()));
    assert!(stderr(&output).contains("load"), "{}", stderr(&output));
}

#[test]
fn the_examples_are_planned_with_their_names() {
    let folder = folder("plan-graph-names");
    let csv = folder.join("placed.csv");
    let csv = csv.to_str().unwrap();
    let all = rows(&[
        &example("decoder"),
        "--order",
        "program,sink",
        "--reuse",
        "portfolio",
        "--csv",
        csv,
    ]);
    assert!(all[1]["load"].as_u64() < all[0]["load"].as_u64());
    let placed = fs::read_to_string(csv).unwrap();
    assert!(placed.contains("\n0.qkv.master,0,") && placed.contains("\n3.gelu,"), "{placed}");
    // Two buffers that may share memory share it.
    rows(&[&example("nnvm"), "--reuse", "portfolio", "--csv", csv]);
    let placed = fs::read_to_string(csv).unwrap();
    assert!(placed.contains("\nconv2+sum+relu2,"), "{placed}");
    assert!(rows(&[csv])[0]["bytes"].is_u64(), "what was written is read");
    // A graph's step can be recomputed as well.
    let budgeted = rows(&[&example("decoder"), "--budget", "100%", "--reuse", "pushdown"]);
    assert!(budgeted.iter().any(|row| row["slowdown"] == 1.0), "{budgeted:?}");
}

#[test]
fn graphs_that_make_no_sense_are_refused_in_words() {
    let folder = folder("plan-graph-wrong");
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        path.into_os_string().into_string().unwrap()
    };
    let graph = |tensors: &str, ops: &str| {
        format!(
            "{{\n\"format\": \"remat-graph\", \"version\": 1,\n\"tensors\": [{tensors}],\n\"ops\": [{ops}]\n}}\n"
        )
    };
    let missing = write("missing.json", &graph("", r#"{"name": "f", "inputs": ["x"]}"#));
    let negative = write("negative.json", &graph(r#"{"name": "x", "bytes": -1}"#, ""));
    let onnx = write("onnx.json", "{\"ir_version\": 7,\n \"graph\": {}}\n");
    let half = write("half.json", "{\"format\": \"remat-graph\",\n");
    let trace = write("half.jsonl", "{\"event\":\"begin\",\"version\":5,\"co");
    let other = write("other.jsonl", "{\"peak_bytes\": 7}\n{\"peak_bytes\": 8}\n");
    let good = example("nnvm");
    let csv = write("a.csv", "a,0,1,2\n");
    let out = folder.join("out.json").into_os_string().into_string().unwrap();
    for (args, code, said) in [
        (
            &[&missing[..]][..],
            1,
            "missing.json: op 0 (\"f\"): inputs: \"x\": no tensor has this name",
        ),
        (
            &[&negative],
            1,
            "negative.json: the graph is invalid: invalid value: integer `-1`, expected u64 at line 3",
        ),
        (
            &[&onnx],
            1,
            "onnx.json: the graph is invalid: unknown field `ir_version`, expected one of `format`",
        ),
        (&[&half], 1, "half.json: the graph is invalid: EOF while parsing"),
        // A trace is not taken for a graph, and other files are refused too.
        (&[&other], 1, "other.jsonl, line 1: not a trace"),
        (&[&trace], 1, "half.jsonl, line 1"),
        (&[&good, "--step", "1"], 2, "--step does not apply to a graph"),
        (&[&good, "--closed"], 2, "--closed does not apply to a graph"),
        (&[&csv, "--graph", &out], 2, "--graph needs ops"),
        (&[&good, "--graph", &good], 2, "--graph would overwrite"),
        (&[&good, "--graph", "-", "--json", "-"], 2, "both write to stdout"),
    ] {
        let output = run(&[&["plan"], args].concat());
        let message = stderr(&output);
        assert!(
            output.status.code() == Some(code) && message.contains(said),
            "{args:?}: {message}"
        );
    }
    assert!(!Path::new(&out).exists());
}
