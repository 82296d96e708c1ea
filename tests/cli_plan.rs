//! `remat plan`, as a user runs it.

use crate::common::command::{folder, names, run, stderr};
use remat::unstable::lab::{Replay, Trace};
use remat::unstable::memory::ALIGNMENT;
use remat::unstable::plan::order::{self, Reach};
use remat::unstable::plan::{self, Capture, Instance, Limits, Lives};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Runs a command that must succeed, and returns stdout.
fn stdout(args: &[&str]) -> String {
    let output = run(args);
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// Exit code and message of a command that must fail.
fn fails(args: &[&str]) -> (i32, String) {
    let output = run(args);
    assert!(output.stdout.is_empty(), "{args:?}");
    (output.status.code().unwrap(), stderr(&output))
}

fn rows(args: &[&str]) -> Vec<Value> {
    let text = stdout(&[&["plan"], args, &["--json", "-"]].concat());
    text.lines().map(|line| serde_json::from_str(line).expect("a line is an object")).collect()
}

/// Makes a recording of three training steps.
fn recording(folder: &Path) -> String {
    let path = folder.join("run.jsonl").into_os_string().into_string().unwrap();
    let args = ["train", "mlp", "--quiet", "--no-test", "--batch", "16", "--steps", "3"];
    stdout(&[&args[..], &["--record", &path]].concat());
    path
}

fn log() -> String {
    format!("{}/tests/data/small.log", env!("CARGO_MANIFEST_DIR"))
}

/// Buffers A to E of the article on CANN.
const EXAMPLE: &str =
    "id,lower,upper,size\nA,1,2,1024\nB,2,4,2048\nC,3,4,1024\nD,4,5,512\nE,5,6,4096\n";

fn example(folder: &Path) -> String {
    let path = folder.join("example.csv");
    fs::write(&path, EXAMPLE).unwrap();
    path.into_os_string().into_string().unwrap()
}

fn captured(path: &str) -> Capture {
    let trace = Trace::open(path).unwrap();
    let step = trace.program().steps().pop().unwrap();
    trace.program().capture(step, ALIGNMENT).unwrap()
}

#[test]
fn rows_are_what_the_library_finds() {
    let folder = folder("plan-rows");
    let path = recording(&folder);
    let capture = captured(&path);
    let program_load = capture.program().load();
    let rows = rows(&[&path, "--order", "all", "--reuse", "all"]);
    assert_eq!(rows.len(), order::all().len() * plan::all().len());
    for row in &rows {
        let text = |key: &str| row[key].as_str().unwrap();
        let scheduler = order::named(text("order")).unwrap();
        let order = scheduler.order(&capture, Reach::Offline, &Limits::none()).unwrap();
        let lifetimes = order.lifetimes().unwrap();
        let planner = plan::named(text("reuse")).unwrap();
        assert_eq!(row["load"], lifetimes.load(), "{row}");
        assert_eq!(row["program_load"], program_load);
        assert_eq!(row["held"].as_u64(), order.held().map(|held| held as u64), "{row}");
        assert_eq!(row["buffers"], capture.buffers().len());
        let all = row["buffers"].as_u64().zip(row["workspaces"].as_u64()).map(|(a, b)| a + b);
        assert_eq!(all, Some(lifetimes.len() as u64));
        let bytes = row["bytes"].as_u64().unwrap();
        // Planners that search depend on time.
        if !["exact", "portfolio"].contains(&text("reuse")) {
            let planned = planner.plan(&lifetimes, &Limits::none()).unwrap();
            assert_eq!(
                (bytes, &row["proven"]),
                (planned.placement.bytes(), &planned.proven.into())
            );
        }
        let ratio = bytes as f64 / lifetimes.load() as f64;
        assert!((row["ratio"].as_f64().unwrap() - ratio).abs() < 1e-6 && ratio >= 1.0, "{row}");
        assert!(row["seconds"].as_f64().unwrap() >= 0.0 && row.get("refusal").is_none());
    }
}

#[test]
fn the_table_has_a_line_a_row() {
    let folder = folder("plan-table");
    let path = recording(&folder);
    let text = stdout(&["plan", &path, "--order", "program,dfs", "--reuse", "pushdown,nnvm"]);
    assert!(text.starts_with("run, step 3 of 3: "), "{text}");
    let lines =
        |name: &str| text.lines().filter(|line| line.trim_start().starts_with(name)).count();
    assert_eq!((lines("pushdown "), lines("nnvm:16 ")), (2, 2), "{text}");
    assert_eq!((lines("program: load "), lines("dfs (delays up to ")), (1, 1), "{text}");
    // Without options, the program's order and the useful planners are shown.
    let text = stdout(&["plan", &path]);
    assert!(text.contains("\n  pushdown ") && !text.contains("nnvm"), "{text}");
}

#[test]
fn any_step_of_a_recording_and_all_of_a_log_can_be_planned() {
    let folder = folder("plan-steps");
    let path = recording(&folder);
    let load = |args: &[&str]| rows(&[args, &["--reuse", "best-fit"]].concat())[0]["load"].clone();
    let trace = Trace::open(&path).unwrap();
    for (number, step) in trace.program().steps().into_iter().enumerate() {
        let capture = trace.program().capture(step, ALIGNMENT).unwrap();
        let number = (number + 1).to_string();
        assert_eq!(load(&[&path, "--step", &number]), capture.program().load());
    }
    let trace = Trace::open(log()).unwrap();
    let whole = trace.program().capture_whole(1).unwrap().capture;
    assert_eq!(load(&[&log()]), whole.program().load());
}

#[test]
fn closed_lives_are_those_of_cann() {
    let folder = folder("plan-closed");
    let path = example(&folder);
    let all = rows(&[&path, "--closed", "--reuse", "all"]);
    assert_eq!(all.len(), plan::all().len());
    let two_level = all.iter().find(|row| row["reuse"] == "two-level").unwrap();
    assert_eq!((&two_level["bytes"], &two_level["load"]), (&4608.into(), &4608.into()));
    assert!(two_level["proven"].as_bool().unwrap() && two_level["order"].is_null());
    // If ends are exclusive, a buffer that ends when another begins does not overlap it.
    let open = rows(&[&path, "--reuse", "two-level"]);
    let open_load = Instance::read(EXAMPLE.as_bytes(), Lives::HalfOpen).unwrap().lifetimes().load();
    assert_eq!(open[0]["load"], open_load);
    assert!(open_load < 4608);
}

#[test]
fn the_best_placement_is_written_and_drawn() {
    let folder = folder("plan-files");
    let path = example(&folder);
    let [csv, svg] = ["placed.csv", "blocks.svg"].map(|name| folder.join(name));
    let outputs = ["--csv", csv.to_str().unwrap(), "--plot", svg.to_str().unwrap()];
    stdout(&[&["plan", &path, "--closed", "--reuse", "best-fit,two-level"], &outputs[..]].concat());
    let placed = fs::read_to_string(&csv).unwrap();
    let mut lines = placed.lines();
    assert_eq!(lines.next(), Some("id,start,end,size,offset"));
    let offsets: Vec<u64> = lines
        .zip(EXAMPLE.lines().skip(1))
        .map(|(line, given)| line.strip_prefix(&format!("{given},")).unwrap().parse().unwrap())
        .collect();
    let instance = Instance::read(EXAMPLE.as_bytes(), Lives::Closed).unwrap();
    let placement = plan::Placement::new(instance.lifetimes(), offsets).unwrap();
    assert_eq!(placement.bytes(), 4608);
    let svg = fs::read_to_string(&svg).unwrap();
    assert!(
        svg.starts_with("<svg")
            && svg.contains("example, two-level")
            && svg.contains("size = load")
    );
    // Files may be packed with gzip.
    let packed = folder.join("placed.csv.gz");
    stdout(&["plan", &path, "--closed", "--csv", packed.to_str().unwrap()]);
    let head = fs::read(&packed).unwrap();
    assert_eq!(head[..2], [0x1f, 0x8b]);
}

#[test]
fn a_budget_is_kept_by_recomputing() {
    let folder = folder("plan-budget");
    let path = format!("{}/tests/data/resnet20-v3.jsonl.gz", env!("CARGO_MANIFEST_DIR"));
    let [csv, svg] = ["placed.csv", "blocks.svg"].map(|name| folder.join(name));
    let outputs = ["--csv", csv.to_str().unwrap(), "--plot", svg.to_str().unwrap()];
    let args = [&path, "--budget", "80%", "--reuse", "pushdown,best-fit"];
    let rows = rows(&[&args[..], &outputs].concat());
    let schedules = ["sqrt", "static-dtr", "learned:portfolio", "dtr-eq"];
    let mut slowdowns = vec![];
    for row in &rows {
        assert!(schedules.contains(&row["schedule"].as_str().unwrap()), "{row}");
        let least = row["least_slowdown"].as_f64().unwrap();
        let budget = row["budget_bytes"].as_u64().unwrap();
        assert_eq!(budget, (row["program_load"].as_f64().unwrap() * 0.8) as u64);
        match row["slowdown"].as_f64() {
            Some(slowdown) => {
                assert!(slowdown >= least - 1e-6 && least > 1.0, "{row}");
                let load = row["load"].as_u64().unwrap();
                assert!(load <= budget && load <= row["bytes"].as_u64().unwrap(), "{row}");
                slowdowns.push((row["bytes"].as_u64().unwrap() > budget, slowdown));
            }
            None => assert!(row["refusal"].is_string() && row["reuse"].is_null(), "{row}"),
        }
    }
    assert!(slowdowns.len() >= 4, "{rows:?}");
    // The file has the best row that fits the budget, or else the best row.
    let best = slowdowns.iter().copied().min_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let best = rows.iter().position(|row| row["slowdown"].as_f64() == best.map(|it| it.1)).unwrap();
    let lines = fs::read_to_string(&csv).unwrap().lines().count();
    let count = |what: &str| rows[best][what].as_u64().unwrap() as usize;
    assert_eq!(count("buffers") + count("workspaces"), lines - 1);
    assert!(fs::read_to_string(&svg).unwrap().contains("budget"));
}

#[test]
fn a_budget_of_everything_recomputes_nothing() {
    let rows = rows(&[&log(), "--budget", "100%", "--reuse", "pushdown"]);
    assert_eq!(rows.len(), 4);
    let load = Trace::open(log()).unwrap().program().capture_whole(1).unwrap();
    let load = load.capture.program().load();
    for row in rows.iter().take(2) {
        assert_eq!((&row["slowdown"], &row["load"]), (&1.0.into(), &load.into()), "{row}");
    }
}

#[test]
fn nonsensical_plan_requests_are_refused_in_words() {
    let folder = folder("plan-errors");
    let csv = example(&folder);
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        path.into_os_string().into_string().unwrap()
    };
    let nonsense = write("nonsense.csv", "hello\nworld\n");
    let number = write("number.csv", "id,lower,upper,size\na,0,1,x\n");
    let empty = write("empty.csv", "");
    let plot = folder.join("plot.png").into_os_string().into_string().unwrap();
    let log = log();
    for (args, code, said) in [
        (&["/nowhere/x.csv"][..], 1, "/nowhere/x.csv: No such file"),
        (&[&nonsense], 1, "nonsense.csv: line 1, column 1: \"hello\": no column has this name"),
        (&[&number], 1, "number.csv: line 2, column 4 (size) is \"x\": expected a whole number"),
        (&[&empty], 1, "empty.csv: the file is empty"),
        (&[&csv, "--reuse", "two-levels"], 2, "did you mean two-level?"),
        (&[&csv, "--order", "sink"], 2, "--order needs ops"),
        (&[&csv, "--budget", "40%"], 2, "--budget needs ops"),
        (&[&csv, "--step", "1"], 2, "--step needs ops"),
        (&[&log, "--order", "best"], 2, "least-peak"),
        (&[&log, "--closed"], 2, "drop --closed"),
        (&[&log, "--step", "1"], 2, "small has no end of a step"),
        (&[&log, "--budget", "1%"], 2, "no run fits a budget"),
        (&[&log, "--budget", "40"], 2, "did you mean 40%?"),
        (&[&log, "--time", "-1"], 2, "a number from 0 up"),
        (&[&csv, "--plot", &plot], 2, "name the file"),
        (&[&csv, "--csv", &csv], 2, "--csv would overwrite"),
        (&[&csv, "--csv", "-", "--json", "-"], 2, "both write to stdout"),
    ] {
        let (found, message) = fails(&[&["plan"], args].concat());
        assert!(found == code && message.contains(said), "{args:?}: {found}, {message}");
    }
    let recorded = recording(&folder);
    let (code, message) = fails(&["plan", &recorded, "--step", "4"]);
    assert!(code == 2 && message.contains("has steps 1 to 3"), "{message}");
}

#[test]
fn a_budget_that_is_named_passes() {
    let (_, message) = fails(&["plan", &log(), "--budget", "1%"]);
    let named = message.split("give ").nth(1).unwrap().split(" or more").next().unwrap();
    let rows = rows(&[&log(), "--budget", named, "--reuse", "pushdown"]);
    assert!(rows.iter().all(|row| row["least_slowdown"].is_number()), "{named}: {rows:?}");
}

#[test]
fn files_are_written_whole_or_not_at_all() {
    let folder = folder("plan-whole");
    let path = example(&folder);
    let outputs = ["a.json", "b.csv", "c.svg"].map(|name| folder.join(name));
    let [json, csv, svg] = [0, 1, 2].map(|i| outputs[i].to_str().unwrap());
    let files = ["--json", json, "--csv", csv, "--plot", svg];
    fails(&[&["plan", &path, "--budget", "50%"], &files[..]].concat());
    assert_eq!(names(&folder), ["example.csv"]);
    // An empty file gives no plot.
    let nothing = folder.join("nothing.csv");
    fs::write(&nothing, "id,lower,upper,size\n").unwrap();
    let output = run(&["plan", nothing.to_str().unwrap(), "--plot", svg]);
    let message = stderr(&output);
    assert!(!output.status.success() && message.contains("nothing to plot"), "{message}");
    assert!(!outputs[2].exists());
    stdout(&[&["plan", &path], &files[..]].concat());
    assert!(outputs.iter().all(|path| path.exists()));
}

#[test]
fn a_planner_that_refuses_is_a_row() {
    let folder = folder("plan-refusal");
    let many = plan::Gaps::LIMIT as u64 + 1;
    let lines: String = (0..many).map(|i| format!("{i},{i},{},100\n", i + 2)).collect();
    let path = folder.join("many.csv");
    fs::write(&path, format!("id,lower,upper,size\n{lines}")).unwrap();
    let args = [path.to_str().unwrap(), "--reuse", "gaps-size,pushdown"];
    let rows = rows(&args);
    let refusal = rows[0]["refusal"].as_str().unwrap();
    assert!(refusal.contains("30001"), "{refusal}");
    assert!(rows[0]["bytes"].is_null() && rows[0]["proven"] == false);
    assert_eq!((&rows[1]["bytes"], &rows[1]["proven"]), (&200.into(), &true.into()));
    let text = stdout(&[&["plan"], &args[..]].concat());
    assert!(text.contains(refusal), "{text}");
}

#[test]
fn help_has_examples_and_names() {
    let text = stdout(&["plan", "--help"]);
    for part in ["Examples:", "two-level", "least-peak", "Exit codes:", "id,lower,upper,size"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(stdout(&["completions", "bash"]).contains("remat__subcmd__plan"));
}

/// A step written as a program has the same cost and peak.
#[test]
fn a_step_alone_replays_as_it_was() {
    let trace = Trace::open(log()).unwrap();
    let capture = trace.program().capture_whole(1).unwrap().capture;
    let order = capture.program();
    let program = remat::unstable::program::RecordedProgram::of_order(&order).unwrap();
    let replay = Replay::new("none".parse().unwrap(), 1);
    let unbudgeted = replay.unbudgeted(&program).unwrap();
    assert!((unbudgeted.cost / capture.cost() - 1.0).abs() < 1e-9);
    assert_eq!(unbudgeted.peak_bytes, order.load());
}
