//! `remat simulate`, `remat sweep` and `remat history`, as a user runs them.

use remat::PolicyKind;
use serde_json::Value;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn run(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_remat"));
    command.args(args).env_remove("RUST_LOG").output().expect("the program starts")
}

/// Runs a command that must succeed, and returns stdout.
fn stdout(args: &[&str]) -> String {
    let output = run(args);
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn objects(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("a line is an object")).collect()
}

/// Makes an empty folder in the temporary directory, for a test.
fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("remat-cli-lab-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// The tests' log in the DTR paper's format.
fn small() -> String {
    format!("{}/tests/data/small.log", env!("CARGO_MANIFEST_DIR"))
}

/// Makes a recording of two training steps.
fn recording(folder: &Path, name: &str) -> String {
    let path = folder.join(name).into_os_string().into_string().unwrap();
    let args = ["train", "mlp", "--quiet", "--batch", "16", "--steps", "2", "--budget", "200%"];
    stdout(&[&args[..], &["--record", &path]].concat());
    path
}

#[test]
fn a_budget_of_100_percent_evicts_nothing_and_both_peaks_are_told() {
    let folder = folder("full");
    for trace in [small(), recording(&folder, "mlp.jsonl")] {
        for arena in ["bytes", "bfc"] {
            let args = ["--budget", "100%", "--arena", arena];
            let simulated = ["simulate", &trace, "--json", "-"];
            for row in objects(&stdout(&[&simulated[..], &args].concat())) {
                assert_eq!(
                    (&row["evictions"], &row["slowdown"]),
                    (&0.into(), &1.0.into()),
                    "{row}"
                );
                assert_eq!(row["budget_bytes"], row["full_budget_bytes"]);
                assert!(row["unbudgeted_peak_bytes"].as_u64() <= row["full_budget_bytes"].as_u64());
            }
            let swept = ["sweep", &trace, "--dead", "keep,drop", "--quiet", "--json", "-"];
            let rows = objects(&stdout(&[&swept[..], &args].concat()));
            assert_eq!(rows.len(), 2 * PolicyKind::all().count());
            for row in rows {
                assert_eq!(
                    (&row["evictions"], &row["slowdown"]),
                    (&0.into(), &1.0.into()),
                    "{row}"
                );
            }
        }
        let text = stdout(&["simulate", &trace, "--budget", "100%"]);
        assert!(text.contains(", 100 %\n") && text.contains("; unbudgeted peak "), "{text}");
        let said = stderr(&run(&["sweep", &trace, "--policy", "lru", "--budget", "100%"]));
        assert!(said.contains("unbudgeted peak ") && said.contains("; 100 % is "), "{said}");
    }
}

#[test]
fn shares_are_written_as_they_were_asked_for() {
    let text = stdout(&[
        "sweep",
        &small(),
        "--policy",
        "lru",
        "--budget",
        "10%..100%:10%,12.8%,35.25%",
        "--csv",
        "-",
        "--quiet",
    ]);
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let at = lines.next().unwrap().iter().position(|name| *name == "budget_ratio").unwrap();
    let ratios: Vec<&str> = lines.map(|fields| fields[at]).collect();
    let expected =
        ["0.1", "0.128", "0.2", "0.3", "0.3525", "0.4", "0.5", "0.6", "0.7", "0.8", "0.9", "1.0"];
    assert_eq!(ratios, expected);
    // Figures have at most nine decimals.
    for field in text.split([',', '\n']) {
        let decimals = field.split_once('.').map_or("", |(_, decimals)| decimals);
        assert!(decimals.len() <= 9 || field.contains("e-"), "{field}");
    }
}

#[test]
fn a_table_is_headed_as_budgets_were_given_and_fits_80_columns() {
    let small = small();
    let budgets = ["--budget", "40%,64KiB,100KB,140001,35.5%"];
    let text = stdout(&[&["sweep", &small, "--policy", "ablation"][..], &budgets].concat());
    let heads: Vec<&str> = text.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(heads, ["small", "35.5%", "40%", "64KiB", "100KB", "140001"]);
    let text = stdout(&["sweep", &small, "--policy", "ablation", "--dead", "drop,keep"]);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    // The table is split into blocks of lines. The blocks together have all budgets, and each block
    // has a line for each curve.
    let blocks: Vec<&str> = text.split("\n\n").collect();
    assert!(blocks.len() > 2, "{text}");
    for percent in (1..=10).map(|tenth| format!(" {}%", 10 * tenth)) {
        assert_eq!(text.matches(&percent).count(), 1, "{percent}: {text}");
    }
    assert!(blocks[..blocks.len() - 1].iter().all(|block| block.lines().count() == 74), "{text}");
    // A sweep takes any number of budgets.
    let text = stdout(&["sweep", &small, "--policy", "lru", "--budget", "5%..100%:5%"]);
    for percent in (1..=20).map(|part| format!(" {}%", 5 * part)) {
        assert_eq!(text.matches(&percent).count(), 1, "{percent}: {text}");
    }
    // A threshold is shown as the user wrote it.
    let thresholds = ["--policy", "lru", "--budget", "100%", "--eviction-threshold", "50%,100KB"];
    let text = stdout(&[&["sweep", &small][..], &thresholds].concat());
    assert!(text.contains("lru, from 50%") && text.contains("lru, from 100KB"), "{text}");
}

#[test]
fn budgets_below_every_threshold_are_named() {
    let small = small();
    let sweep = |more: &[&str]| run(&[&["sweep", &small, "--policy", "lru"][..], more].concat());
    let output = sweep(&["--budget", "40%,60%,50KiB", "--eviction-threshold", "50%,55%"]);
    let warning = "warning: left out budgets below every eviction threshold: 50KiB, 40%\n";
    assert!(stderr(&output).contains(warning), "{}", stderr(&output));
    let output = sweep(&["--budget", "40%,60%", "--eviction-threshold", "50%", "-q"]);
    assert!(output.status.success() && output.stderr.is_empty());
    let output = sweep(&["--budget", "40%,30%", "--eviction-threshold", "60%,50%"]);
    assert_eq!(output.status.code(), Some(2));
    let said = stderr(&output);
    assert!(said.contains("below the lowest eviction threshold, 50% (70.88 KiB);"), "{said}");
}

#[test]
fn table_and_plot_take_seeds_together_in_the_same_way() {
    let folder = folder("seeds");
    let [json, svg] = ["rows.jsonl", "plot.svg"].map(|name| folder.join(name));
    let [json, svg] = [&json, &svg].map(|path| path.to_str().unwrap());
    let grid = ["sweep", &small(), "--policy", "random,dtr", "--budget", "50%,70%", "--seeds", "5"];
    let text = stdout(&[&grid[..], &["--json", json, "--plot", svg]].concat());
    let rows = objects(&std::fs::read_to_string(json).unwrap());
    let mut medians = vec![];
    for policy in ["random", "dtr"] {
        let line = text.lines().find(|line| line.starts_with(policy)).unwrap();
        let cells: Vec<&str> = line.split_whitespace().skip(1).collect();
        for (cell, ratio) in cells.iter().zip([0.5, 0.7]) {
            let of_cell =
                rows.iter().filter(|r| r["policy"] == policy && r["budget_ratio"] == ratio);
            let mut slowdowns: Vec<f64> =
                of_cell.map(|row| row["slowdown"].as_f64().unwrap_or(f64::INFINITY)).collect();
            assert_eq!(slowdowns.len(), 5);
            slowdowns.sort_by(f64::total_cmp);
            match slowdowns[2] {
                median if median.is_finite() => assert_eq!(*cell, format!("{median:.3}"), "{text}"),
                _ => assert!(["oom", "limit"].contains(cell), "{text}"),
            }
            medians.push(slowdowns);
        }
    }
    assert!(medians.iter().any(|runs| runs[0] < runs[4]), "a random policy depends on its seed");
    assert!(text.contains("Medians of 5 seeds") && text.contains("  range "), "{text}");
    let svg = std::fs::read_to_string(svg).unwrap();
    assert!(svg.contains("range of repeated runs; lines are medians"));
}

#[test]
fn plots_are_svg_and_other_names_are_refused_before_anything_is_done() {
    let folder = folder("plots");
    let small = small();
    for command in ["simulate", "sweep"] {
        for name in ["x.png", "x.pdf", "x.jpeg", "x.svgz"] {
            let path = folder.join(name);
            let output = run(&[command, &small, "--plot", path.to_str().unwrap()]);
            let said = stderr(&output);
            assert_eq!(output.status.code(), Some(2), "{said}");
            assert!(said.contains("plots are SVG files") && said.contains("x.svg"), "{said}");
        }
        assert!(names(&folder).is_empty());
        for name in ["a.svg", "b", "c.svg.gz"] {
            let path = folder.join(name);
            stdout(&[command, &small, "--budget", "50%", "--plot", path.to_str().unwrap()]);
            let bytes = std::fs::read(&path).unwrap();
            let mut text = String::new();
            match name {
                "c.svg.gz" => drop(flate2_text(&bytes, &mut text)),
                _ => text = String::from_utf8(bytes).unwrap(),
            }
            assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"), "{name}");
            std::fs::remove_file(path).unwrap();
        }
        let text = stdout(&[command, &small, "--budget", "50%", "--plot", "-"]);
        assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"));
    }
}

fn flate2_text(bytes: &[u8], text: &mut String) -> usize {
    flate2::read::GzDecoder::new(bytes).read_to_string(text).expect("it is compressed")
}

#[test]
fn a_run_that_fails_says_so_in_text_and_plot() {
    let folder = folder("fails");
    let svg = folder.join("memory.svg");
    let (small, path) = (small(), svg.to_str().unwrap());
    let output = run(&["simulate", &small, "--budget", "10%", "--plot", path]);
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert_eq!(
        (output.status.code(), stderr(&output).as_str()),
        (Some(1), "error: the replay failed\n")
    );
    assert!(text.contains(": fails\n") && text.contains("out of memory"), "{text}");
    assert!(std::fs::read_to_string(&svg).unwrap().contains("fails: out of memory: "));
    // The error names a budget that passes.
    let (_, passes) = text.split_once("  --budget ").unwrap();
    let (budget, _) = passes.split_once(" passes\n").unwrap();
    stdout(&["simulate", &small, "--budget", budget]);
    // Every replay runs, even after one has failed.
    let output = run(&["simulate", &small, &small, "--budget", "10%", "--json", "-"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).ends_with("error: 2 of 2 replays failed\n"), "{}", stderr(&output));
    let rows = objects(&String::from_utf8(output.stdout).unwrap());
    assert_eq!(rows.len(), 2);
    assert_eq!(format!("{}%", 100.0 * rows[0]["passing_budget_ratio"].as_f64().unwrap()), budget);
    // For the policy `none`, the budget named evicts nothing.
    let output =
        run(&["simulate", &small, "--budget", "10%", "--policy", "none", "--recompute-limit", "0"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("  --budget 100% passes\n"));
}

#[test]
fn without_a_budget_a_recording_is_replayed_in_one_that_passes() {
    let folder = folder("default-budget");
    for batch in ["8", "32", "128"] {
        let trace = folder.join("mlp.jsonl");
        let trace = trace.to_str().unwrap();
        let args =
            ["train", "mlp", "--quiet", "--steps", "2", "--budget", "200%", "--batch", batch];
        stdout(&[&args[..], &["--record", trace]].concat());
        for policy in ["dtr-eq", "lru", "none"] {
            let rows = objects(&stdout(&["simulate", trace, "--policy", policy, "--json", "-"]));
            assert_eq!(rows[0]["status"], "ok");
            let ratio = rows[0]["budget_ratio"].as_f64().unwrap();
            assert!((0.4..=1.0).contains(&ratio), "{ratio}");
            // A larger budget is chosen only if 40 % fails.
            let usual = run(&["simulate", trace, "--policy", policy, "--budget", "40%"]);
            assert_eq!(usual.status.success(), ratio == 0.4, "{batch} {policy} {ratio}");
        }
        let threshold = ["--eviction-threshold", "80%", "--json", "-"];
        let rows = objects(&stdout(&[&["simulate", trace][..], &threshold].concat()));
        assert_eq!(rows[0]["budget_ratio"], 1.0);
    }
}

#[test]
fn a_trace_is_read_from_stdin_and_its_report_goes_where_it_is_not_in_the_way() {
    let folder = folder("stdin");
    let json = folder.join("row.json");
    let simulate = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_remat"));
        command.args(args).env_remove("RUST_LOG").stdin(std::fs::File::open(small()).unwrap());
        command.output().unwrap()
    };
    let output = simulate(&["simulate", "-", "--json", json.to_str().unwrap()]);
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(text.starts_with("stdin by ancestors: slowdown "), "{text}{}", stderr(&output));
    assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    assert_eq!(objects(&std::fs::read_to_string(json).unwrap())[0]["trace"], "stdin");
    let output = simulate(&["simulate", "-", "--json", "-"]);
    assert_eq!(objects(&String::from_utf8(output.stdout.clone()).unwrap()).len(), 1);
    assert!(stderr(&output).starts_with("stdin by ancestors: slowdown "));
    let output = simulate(&["sweep", "-", "--policy", "lru", "--budget", "100%"]);
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("stdin "), "{}", stderr(&output));
    let output = simulate(&["simulate", "-", "-"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("read only once"), "{}", stderr(&output));
}

#[test]
fn equal_curves_of_the_ablation_are_drawn_once() {
    let svg = stdout(&["sweep", &small(), "--policy", "ablation", "--plot", "-", "--quiet"]);
    let lines = svg.matches("class=\"line\"").count();
    assert!((10..36).contains(&lines), "{lines}");
    for policy in PolicyKind::ablations() {
        let name = policy.to_string();
        assert!(svg.contains(&name), "{name} is in the legend");
    }
    // Several curves that are equal are drawn as one.
    let rows =
        objects(&stdout(&["sweep", &small(), "--policy", "ablation", "--json", "-", "--quiet"]));
    let mut curves: Vec<(String, Vec<String>)> = vec![];
    for row in &rows {
        let (policy, slowdown) = (row["policy"].to_string(), row["slowdown"].to_string());
        match curves.iter_mut().find(|(known, _)| *known == policy) {
            Some((_, slowdowns)) => slowdowns.push(slowdown),
            None => curves.push((policy, vec![slowdown])),
        }
    }
    let mut distinct: Vec<&Vec<String>> = curves.iter().map(|(_, slowdowns)| slowdowns).collect();
    distinct.sort();
    distinct.dedup();
    let drawn = distinct.iter().filter(|slowdowns| slowdowns.iter().any(|s| s != "null")).count();
    // One more line is the bound.
    assert_eq!((curves.len(), lines), (36, drawn + 1));
}

#[test]
fn quiet_is_quiet_and_one_is_no_plural() {
    let folder = folder("quiet");
    let csv = folder.join("a.csv");
    let grid = ["sweep", &small(), "--policy", "lru", "--budget", "20%", "--quiet"];
    let output = run(&[&grid[..], &["--csv", csv.to_str().unwrap()]].concat());
    assert!(output.stderr.is_empty(), "{}", stderr(&output));
    let output = run(&[&grid[..], &["--csv", "-"]].concat());
    assert!(output.stderr.is_empty(), "{}", stderr(&output));
    let text = stdout(&[&grid[..], &["--feasibility"]].concat());
    assert!(text.contains(", 1 budget: "), "{text}");
    let one = folder.join("one.jsonl");
    let step = "{\"event\":\"begin\",\"version\":1,\"cost_model\":\"flops\"}\n\
                {\"event\":\"put\",\"tensor\":1,\"bytes\":400,\"cost\":1.0}\n\
                {\"event\":\"apply\",\"op\":\"f\",\"inputs\":[1],\"outputs\":[{\"tensor\":2,\"bytes\":400,\
                \"source\":\"fresh\"}],\"workspace\":0,\"cost\":1.0,\"rematerializable\":true}\n\
                {\"event\":\"apply\",\"op\":\"f\",\"inputs\":[1],\"outputs\":[{\"tensor\":3,\"bytes\":400,\
                \"source\":\"fresh\"}],\"workspace\":0,\"cost\":1.0,\"rematerializable\":true}\n\
                {\"event\":\"get\",\"tensor\":2}\n";
    std::fs::write(&one, step).unwrap();
    let one = one.to_str().unwrap();
    let text = stdout(&["simulate", one, "--budget", "1100", "--arena", "bytes"]);
    let plural = ["1 ops", "1 times", "1 scores", "1 evictions", "1 budgets", "1 steps"];
    assert!(plural.iter().all(|words| !text.contains(&format!(" {words}"))), "{text}");
    assert!(text.contains("1 op run again") && text.contains("chains of up to 1 op\n"), "{text}");
}

#[test]
fn a_packed_recording_is_read_like_a_plain_one() {
    let folder = folder("packed");
    let [plain, packed] = ["mlp.jsonl", "mlp.jsonl.gz"].map(|name| recording(&folder, name));
    assert_eq!(names(&folder), ["mlp.jsonl", "mlp.jsonl.gz"]);
    let [text, bytes] = [&plain, &packed].map(|path| std::fs::read(path).unwrap());
    assert!(bytes.starts_with(&[0x1f, 0x8b]) && bytes.len() * 4 < text.len());
    let mut unpacked = String::new();
    flate2_text(&bytes, &mut unpacked);
    assert_eq!(unpacked.as_bytes(), text);
    assert!(unpacked.ends_with("{\"event\":\"end\"}\n"));
    let rows = [&plain, &packed].map(|path| {
        let mut row = objects(&stdout(&["simulate", path, "--json", "-"])).remove(0);
        (row["seconds"], row["search_seconds"]) = (Value::Null, Value::Null);
        row
    });
    assert_eq!(rows[0], rows[1]);
    // A recording that was cut off, as a killed program leaves it, is refused.
    let half = folder.join("half.jsonl");
    let lines = unpacked.lines().count() / 2;
    let cut: String = unpacked.split_inclusive('\n').take(lines).collect();
    std::fs::write(&half, cut).unwrap();
    let output = run(&["simulate", half.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("the recording was cut off"), "{}", stderr(&output));
}

#[test]
fn the_cost_of_a_trace_is_told_in_the_unit_that_it_has() {
    let folder = folder("units");
    let path = folder.join("mlp.jsonl");
    let path = path.to_str().unwrap();
    let train = ["train", "mlp", "--quiet", "--batch", "16", "--steps", "2", "--budget", "200%"];
    for (cost, unit, axis) in
        [("flops", "Gflop", "work"), ("bytes", "1e8 B", "bytes moved"), ("measured", "ms", "time")]
    {
        stdout(&[&train[..], &["--cost", cost, "--record", path]].concat());
        for (with, unit, axis) in
            [("trace", unit, axis), ("flops", "Gflop", "work"), ("bytes", "1e8 B", "bytes moved")]
        {
            let row = stdout(&["simulate", path, "--cost", with, "--json", "-"]);
            assert_eq!(objects(&row)[0]["unit"], unit, "{cost} {with}");
            let svg = stdout(&["simulate", path, "--cost", with, "--plot", "-"]);
            let named = format!(">\n{axis}, recomputation included (");
            assert!(svg.contains(&named), "{cost} {with}");
        }
    }
}

#[test]
fn a_sweep_writes_lines_a_table_and_a_plot() {
    let folder = folder("sweep");
    let [json, csv, svg] = ["s.jsonl", "s.csv", "s.svg"].map(|name| folder.join(name));
    let [json, csv, svg] = [&json, &csv, &svg].map(|path| path.to_str().unwrap());
    let small = small();
    let grid = ["sweep", &small, "--policy", "dtr,own/size", "--budget", "20%..100%:20%"];
    let more = ["--dead", "keep,drop", "--json", json, "--csv", csv, "--plot", svg];
    let output = run(&[&grid[..], &more[..]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains("own/size, keep") && table.contains(" 100%"), "{table}");
    let text = std::fs::read_to_string(json).unwrap();
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), 2 * 2 * 5);
    let keys = "trace policy dead budget_ratio budget_bytes threshold_bytes status slowdown least_slowdown peak_bytes \
                recomputed_ops evictions score_evaluations max_regeneration_depth search_seconds seconds";
    for key in keys.split(' ') {
        assert!(rows.iter().all(|row| row.get(key).is_some()), "{key}");
    }
    assert_eq!(rows[4]["budget_ratio"], 1.0);
    assert_eq!(rows[4]["slowdown"], 1.0);
    assert_eq!(std::fs::read_to_string(csv).unwrap().lines().count(), 1 + rows.len());
    assert!(std::fs::read_to_string(svg).unwrap().trim_end().ends_with("</svg>"));
    assert_eq!(names(&folder).len(), 3, "nothing else is left");
    let output =
        run(&["sweep", &small, "--feasibility", "--policy", "lru", "--budget", "40%..90%:1%"]);
    assert!(String::from_utf8(output.stdout).unwrap().contains("51 budgets: passes from"));
    let twin = folder.join("small.log");
    std::fs::copy(&small, &twin).unwrap();
    let twin = twin.to_str().unwrap();
    let output = run(&["sweep", &small, twin, "--policy", "lru", "--budget", "50%,100%"]);
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains(&small) && table.contains(twin), "{table}");
}

#[test]
fn a_bound_is_told_everywhere_and_a_budget_is_refused_by_proof() {
    let folder = folder("bound");
    for trace in [small(), recording(&folder, "mlp.jsonl")] {
        let grid = ["--budget", "1%,40%..100%:10%", "--quiet"];
        let bounds = objects(&stdout(&["bound", &trace, "--budget", grid[1], "--json", "-"]));
        assert_eq!(bounds.len(), 8);
        let refused = &bounds[0];
        assert_eq!(refused["least_excess"], Value::Null);
        let why = refused["refusal"].as_str().unwrap();
        assert!(why.contains("instruction") && why.contains("at once"), "{why}");
        let least = |i: usize| bounds[i]["least_excess"].as_f64();
        assert!(trace != small() || least(1) > least(2) && least(2) > Some(0.0), "{bounds:?}");
        assert_eq!(least(7), Some(0.0));
        // A sweep spends less effort on its bounds, which may be a little lower.
        let table = stdout(&[&["sweep", &trace, "--policy", "dtr-eq,lru"][..], &grid].concat());
        let line = table.lines().find(|line| line.starts_with("bound")).expect("there is a line");
        assert!(line.contains(" none ") && line.ends_with("1.000"), "{table}");
        let swept = [&["sweep", &trace, "--policy", "dtr-eq"][..], &grid, &["--json", "-"]];
        for (row, bound) in objects(&stdout(&swept.concat())).iter().zip(&bounds) {
            assert_eq!(row["budget_bytes"], bound["budget_bytes"]);
            let Some(least) = row["least_slowdown"].as_f64() else {
                assert_eq!(row["status"], "oom");
                continue;
            };
            assert!(least - 1.0 <= bound["least_excess"].as_f64().unwrap() + 2e-6, "{row} {bound}");
            assert!(row["slowdown"].as_f64().is_none_or(|slowdown| slowdown >= least), "{row}");
        }
        let told = stdout(&["simulate", &trace, "--budget", "100%"]);
        assert!(told.contains("any run in program order recomputes at least "), "{told}");
        let failed = run(&["simulate", &trace, "--budget", "1%"]);
        let told = String::from_utf8(failed.stdout).unwrap();
        assert!(told.contains("no run fits a budget of"), "{told}");
    }
    let problem = stdout(&["bound", &small(), "--budget", "50%", "--lp", "-"]);
    assert!(problem.starts_with("minimize\n") && problem.ends_with("\nend\n"), "{problem}");
    for wrong in [&["0.4"][..], &["50%,60%", "--lp", "-"], &["50%", "--lp", "-", "--json", "-"]] {
        let output = run(&[&["bound", &small(), "--budget"][..], wrong].concat());
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    }
}

/// `--learn` gives the same rows as the names of policies, and each policy only once.
#[test]
fn a_sweep_learns_as_training_does() {
    let rows = |policy: &str, learn: &[&str]| {
        let small = small();
        let args = ["sweep", &small, "--budget", "50%,80%", "--json", "-", "--policy", policy];
        let mut rows = objects(&stdout(&[&args[..], learn].concat()));
        for row in &mut rows {
            let row = row.as_object_mut().unwrap();
            row.retain(|name, _| !name.ends_with("seconds"));
        }
        rows
    };
    let names = "dtr,ancestors,learned,learned:portfolio,learned:search,lru";
    let named = rows(names, &[]);
    let learned = |policy| rows(policy, &["--learn", "off,ahead,portfolio,search"]);
    assert_eq!(learned("dtr,learned,lru"), named);
    assert_eq!(learned("dtr,learned:search,learned,ancestors,lru"), named);
    let policies: Vec<&str> = named.iter().filter_map(|row| row["policy"].as_str()).collect();
    assert_eq!(policies.len(), 12, "{policies:?}");
    let one = rows("learned", &["--learn", "portfolio"]);
    assert_eq!(one.len(), 2);
    assert!(one.iter().all(|row| row["policy"] == "learned:portfolio"), "{one:?}");
    for (args, said) in [
        (["--policy", "lru,dtr", "--learn", "ahead"], "--learn needs learned among --policy;"),
        (["--policy", "learned", "--learn", "much"], "possible values: off, ahead, portfolio"),
    ] {
        let output = run(&[&["sweep", &small()][..], &args].concat());
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(said), "{}", stderr(&output));
    }
}

#[test]
fn traces_that_make_no_sense_leave_no_file() {
    let folder = folder("no-sense");
    let trace = folder.join("broken.log");
    let text = std::fs::read_to_string(small()).unwrap();
    let [out, svg] = ["out.jsonl", "out.svg"].map(|name| folder.join(name));
    let [trace, out, svg] = [&trace, &out, &svg].map(|path| path.to_str().unwrap());
    std::fs::write(trace, text.replacen("\"MEMORY\":\"512\"", "\"MEMORY\":\"-512\"", 1)).unwrap();
    let output = run(&["sweep", trace, "--json", out]);
    assert_eq!(output.status.code(), Some(1));
    let message = stderr(&output);
    assert!(message.contains("broken.log, line ") && message.contains("-512"), "{message}");
    assert_eq!(names(&folder), ["broken.log"]);
    let small = small();
    for (args, message) in [
        (vec!["sweep"], "TRACE"),
        (vec!["sweep", "/nowhere.log"], "/nowhere.log"),
        (vec!["sweep", &small, "--policy", "best"], "choose one of ancestors"),
        (vec!["sweep", &small, "--policy", "own/own"], "cannot be in the denominator"),
        (vec!["sweep", &small, "--budget", "20%..10%:1%"], "empty"),
        (vec!["sweep", &small, "--json", out, "--csv", out], "same file"),
        (vec!["sweep", &small, "--cost", "flops"], "use --cost trace or bytes"),
        (vec!["sweep", &small, "--policy", "lru", "--exponents", "1,2,1"], "choose one"),
        (vec!["simulate", &small, &small, "--plot", svg], "one trace"),
        (
            vec!["simulate", &small, "--budget", "40%", "--eviction-threshold", "80%"],
            "above the budget",
        ),
        (vec!["simulate", &small, "--plot", "-", "--json", "-"], "both write to stdout"),
        (vec!["simulate", &small, "--repeat-step", "1000000000"], "--repeat-step"),
    ] {
        let output = run(&args);
        assert_ne!(output.status.code(), Some(0), "{args:?}");
        assert!(stderr(&output).contains(message), "{args:?}: {}", stderr(&output));
    }
    assert_eq!(names(&folder), ["broken.log"]);
}

/// The figures of the history are those that training reported for the run.
#[test]
fn the_history_of_a_recording_is_that_of_its_run() {
    let folder = folder("history");
    let path = |name: &str| folder.join(name).into_os_string().into_string().unwrap();
    for (number, (model, options)) in [
        ("mlp", "--batch 64 --budget 100%"),
        ("mlp", "--batch 256 --budget 75% --policy lru"),
        ("resnet20", "--batch 64 --budget 60%"),
        ("resnet20", "--batch 64 --budget 75% --eviction-threshold 65% --dead keep"),
        ("resnet20", "--batch 32 --budget 75% --cost bytes --policy random"),
    ]
    .into_iter()
    .enumerate()
    {
        let (recording, json, svg) =
            (path(&format!("{number}.jsonl.gz")), path("h.json"), path("h.svg"));
        let train = ["train", model, "--steps", "2", "--no-test", "--quiet", "--json", "-"];
        let options: Vec<&str> = options.split(' ').collect();
        let run = stdout(&[&train[..], &options, &["--record", &recording]].concat());
        let run: Value = serde_json::from_str(&run).unwrap();
        let text = stdout(&["history", &recording, "--json", &json, "--plot", &svg]);
        let told: Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
        for (ours, theirs) in [
            ("steps", "steps"),
            ("ops", "ops"),
            ("budget_bytes", "effective_budget_bytes"),
            ("threshold_bytes", "eviction_threshold_bytes"),
            ("peak_bytes", "peak_bytes"),
        ] {
            assert_eq!(told[ours], run[theirs], "{ours}: {options:?}");
        }
        let sum = |field: &str| -> u64 {
            let of = |cause: &str| told["evictions"][cause][field].as_u64().unwrap_or(0);
            of("room") + of("threshold") + of("wish")
        };
        assert_eq!(Some(sum("times")), run["evictions"].as_u64(), "{options:?}");
        assert_eq!(Some(sum("bytes")), run["evicted_bytes"].as_u64(), "{options:?}");
        let [again, once] = ["recompute_cost", "cost"].map(|key| told[key].as_f64().unwrap());
        let ratio = run["recompute_ratio"].as_f64().unwrap();
        assert!((again / once - ratio).abs() < 1e-9, "{options:?}: {again} of {once}, {ratio}");
        let regenerates = run["recomputed_ops"].as_u64() > Some(0);
        assert!(regenerates || number == 0, "{options:?}: nothing to see");
        assert_eq!(text.contains("\n  most often   "), regenerates, "{text}");
        assert_eq!(
            text.contains(" for lack of memory"),
            told["evictions"].get("room").is_some(),
            "{text}"
        );
        assert_eq!(text.contains("\n  threshold    "), told["threshold_bytes"].is_u64(), "{text}");
        let drawn = std::fs::read_to_string(&svg).unwrap();
        assert!(drawn.starts_with("<svg") && drawn.contains(">\nbudget"), "{options:?}");
        // With one output on stdout, the text for people goes to stderr.
        let drawing = self::run(&["history", &recording, "--plot", "-"]);
        assert_eq!(String::from_utf8(drawing.stdout).unwrap(), drawn);
        // Lines may be wrapped on stderr.
        assert!(text.starts_with(stderr_line(&drawing.stderr)), "{text}");
    }
}

/// First line of a command's stderr.
fn stderr_line(text: &[u8]) -> &str {
    std::str::from_utf8(text).unwrap().lines().next().unwrap()
}

#[test]
fn a_history_that_is_not_there_is_refused_in_words() {
    let folder = folder("no-history");
    let recording = recording(&folder, "mlp.jsonl");
    let svg = folder.join("out.svg").into_os_string().into_string().unwrap();
    let text = std::fs::read_to_string(&recording).unwrap();
    let begin = text.lines().next().unwrap();
    assert!(begin.contains("\"version\":5"), "{begin}");
    let later = folder.join("later.jsonl").into_os_string().into_string().unwrap();
    std::fs::write(&later, begin.replace("\"version\":5", "\"version\":6")).unwrap();
    // An old recording can be replayed, though it has no history of its memory.
    let old = format!("{}/tests/data/resnet20-v2.jsonl.gz", env!("CARGO_MANIFEST_DIR"));
    assert!(stdout(&["simulate", &old]).starts_with("resnet20-v2 by ancestors"));
    let small = small();
    for (args, code, message) in [
        (vec!["history", &small, "--plot", &svg], 1, "a log of the DTR paper does not say"),
        (
            vec!["history", &old, "--plot", &svg],
            1,
            "unlike recordings from version 3 on; record the run anew",
        ),
        (
            vec!["history", &later, "--plot", &svg],
            1,
            "of version 6; this program reads versions 1 to 5",
        ),
        (vec!["history", "/nowhere.jsonl"], 1, "/nowhere.jsonl"),
        (vec!["history"], 2, "<RECORDING>"),
        (vec!["history", &recording, "--json", &recording], 2, "which is an input"),
        (vec!["history", &recording, "--plot", "-", "--json", "-"], 2, "both write to stdout"),
        (vec!["history", &recording, "--plot", "a.png"], 2, "a.svg"),
    ] {
        let output = run(&args);
        assert_eq!(output.status.code(), Some(code), "{args:?}");
        assert!(stderr(&output).contains(message), "{args:?}: {}", stderr(&output));
    }
    assert_eq!(names(&folder), ["later.jsonl", "mlp.jsonl"]);
}

/// Scripts search these lines, so spans must not change them.
#[test]
fn logged_lines_are_as_they_were_before_there_were_spans() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_remat"));
    command.args(["train", "resnet20", "--batch", "8", "--steps", "1", "--no-test", "--quiet"]);
    let output = command.env("RUST_LOG", "remat=trace").output().unwrap();
    let said = stderr(&output);
    for wanted in [
        "DEBUG remat: will evict op=\"",
        "TRACE remat: did evict op=\"",
        "TRACE remat: will regenerate op=\"",
        "DEBUG remat: did regenerate op=\"",
        "DEBUG remat: step step=1 used=",
    ] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    assert!(!said.contains("command") && !said.contains("regenerate{"), "{said}");
}

/// A recording contains the forecasts of the run, and when the run began to use each. A replay with
/// these forecasts has the run's evictions.
#[test]
fn a_replay_knows_what_the_run_knew() {
    let folder = folder("as-run");
    let recording = folder.join("run.jsonl").into_os_string().into_string().unwrap();
    for (policy, model) in [
        ("learned", "resnet20 --batch 64"),
        ("learned", "treelstm --batch 16"),
        ("learned:portfolio", "mlp --batch 2048"),
        ("learned:search:100", "gpt --layers 1 --width 32 --heads 2 --context 32 --batch 16"),
    ] {
        for share in ["65%"] {
            let train = format!(
                "train {model} --steps 12 --no-test --quiet --json - --cost flops --policy {policy} --budget {share}"
            );
            let mut args: Vec<&str> = train.split(' ').collect();
            args.extend(["--record", &recording]);
            let trained: Value = serde_json::from_str(&stdout(&args)).unwrap();
            let replayed =
                &objects(&stdout(&["simulate", &recording, "--as-run", "--json", "-"]))[0];
            assert_eq!(trained["effective_budget_bytes"], replayed["budget_bytes"]);
            assert_eq!([&trained, replayed].map(|said| &said["policy"]), [policy; 2]);
            // Run and replay both find a 100 % that is a whole number of granules of the arena.
            for said in [&trained, replayed] {
                assert_eq!(said["full_budget_bytes"].as_u64().unwrap() % 256, 0, "{model}");
            }
            for key in ["evictions", "recomputed_ops", "max_regeneration_depth"] {
                assert_eq!(trained[key], replayed[key], "{key} of {model} by {policy} at {share}");
            }
            assert!(trained["evictions"].as_u64() > Some(0));
        }
    }
    let refused = run(&["simulate", &small(), "--policy", "lru", "--as-run"]);
    assert!(stderr(&refused).contains("--policy learned"), "{}", stderr(&refused));
}
