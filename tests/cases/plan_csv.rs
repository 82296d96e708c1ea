//! MiniMalloc's columns and the limits of packed files: `remat plan` as a user runs it.

use crate::common::command::{folder, run, stderr};
use remat::unstable::plan::{self, Instance, Lives, Placement};
use serde_json::Value;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

fn case(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/plan-csv").join(name)
}

/// Smallest placement and load that `remat plan` reports, and the text of the file it wrote.
fn planned(path: &Path, more: &[&str]) -> (u64, u64, String) {
    let name = path.file_stem().unwrap().to_str().unwrap();
    let placed = folder(&format!("plan-csv-placed-{name}")).join("placed.csv");
    let args = ["plan", path.to_str().unwrap(), "--json", "-", "--csv", placed.to_str().unwrap()];
    let output = run(&[&args[..], more].concat());
    assert!(output.status.success(), "{}: {}", path.display(), stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let bytes = rows.iter().filter_map(|row| row["bytes"].as_u64()).min().unwrap();
    (bytes, rows[0]["load"].as_u64().unwrap(), fs::read_to_string(placed).unwrap())
}

/// Checks the offsets in a written file against the buffers of another file. Returns the bytes of
/// the placement.
fn check(file: &Path, placed: &str) -> u64 {
    let wanted = Instance::read(&fs::read(file).unwrap()[..], Lives::HalfOpen).unwrap();
    let offsets =
        placed.lines().skip(1).map(|line| line.rsplit(',').next().unwrap().parse().unwrap());
    Placement::new(wanted.lifetimes(), offsets.collect()).unwrap().bytes()
}

#[test]
fn the_cases_are_placed_as_they_should_be() {
    // Bytes and load were computed by hand.
    for (name, bytes, load) in [
        ("v2_inclusive_end.csv", 10, 10),
        // Both buffers are alive at 5.
        ("v2b_inclusive_end_touch.csv", 20, 20),
        // Offset 0 for the buffer of 1 byte, 1 for 15 bytes, 16 for 18 bytes.
        ("v3_alignment.csv", 34, 34),
        ("v6_solution.csv", 8, 8),
        ("v7_bom_crlf.csv", 8, 8),
    ] {
        let path = case(name);
        let (found, found_load, placed) = planned(&path, &[]);
        assert_eq!((found, found_load), (bytes, load), "{name}");
        assert_eq!(check(&path, &placed), bytes, "{name}: {placed}");
        // The written file can be read, and gives the same plan.
        let again = folder("plan-csv-cases").join(format!("again-{name}"));
        fs::write(&again, &placed).unwrap();
        let (found, found_load, written) = planned(&again, &["--reuse", "portfolio"]);
        assert_eq!((found, found_load), (bytes, load), "{name}");
        assert_eq!(written.lines().next(), placed.lines().next());
    }
    let output = run(&["plan", case("v8f_dup.csv").to_str().unwrap()]);
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(1));
    let said = "v8f_dup.csv: line 3, column 1 (id) is \"a\": the buffer of line 2 has the same id";
    assert!(message.contains(said), "{message}");
}

#[test]
fn a_buffer_takes_no_room_in_its_gaps() {
    let folder = folder("plan-csv-gaps");
    let path = folder.join("gaps.csv");
    // b and c lie in a's gaps, and the second half of d lies beside them.
    let text = "size,id,start,end,gaps,alignment\n64,a,0,9,3-4 7-7,8\n60,b,3,4,,4\n64,c,7,7,,1\n16,d,0,9,5-9@8:16,8\n";
    fs::write(&path, text).unwrap();
    let (bytes, load, placed) = planned(&path, &[]);
    assert_eq!((bytes, load), (80, 80));
    assert!(
        placed.starts_with("id,lower,upper,size,alignment,gaps,offset\na,0,10,64,8,3-5 7-8,"),
        "{placed}"
    );
    assert_eq!(check(&path, &placed), 80);
    let args = ["plan", path.to_str().unwrap(), "--reuse", "all", "--json", "-"];
    let text = String::from_utf8(run(&args).stdout).unwrap();
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), plan::all().len());
    for row in rows {
        let (name, refusal) = (row["reuse"].as_str().unwrap(), row["refusal"].as_str());
        match refusal {
            Some(refusal) => {
                assert!(refusal.starts_with(&format!("{name} does not support ")), "{refusal}");
            }
            None => assert!(row["bytes"].as_u64() >= Some(80), "{row}"),
        }
    }
}

#[test]
fn closed_lives_are_written_so_that_they_are_read_alike() {
    let folder = folder("plan-csv-closed");
    let path = folder.join("closed.csv");
    fs::write(&path, "id,lower,upper,size\na,0,4,10\nb,5,9,10\nc,4,5,3\n").unwrap();
    let (bytes, load, placed) = planned(&path, &["--closed"]);
    assert!(placed.starts_with("id,start,end,size,offset\na,0,4,10,"), "{placed}");
    let again = folder.join("closed-again.csv");
    fs::write(&again, &placed).unwrap();
    for more in [&[][..], &["--closed"]] {
        assert_eq!((planned(&again, more).0, planned(&again, more).1), (bytes, load), "{more:?}");
    }
}

fn packed(lines: &[u8], times: usize) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packer.write_all(lines).unwrap();
    packer.finish().unwrap().repeat(times)
}

/// Each of these files has a few kilobytes and unpacks to gigabytes. Each is refused quickly, and
/// the error names the limit.
#[test]
fn decompression_bombs_are_refused() {
    let folder = folder("plan-csv-bombs");
    let start = r#"{"event":"begin","version":5,"cost_model":"flops","budget":4096}"#;
    let step = b"{\"event\":\"did\",\"command\":\"step\",\"used\":0}\n";
    let steps = [format!("{start}\n").as_bytes(), &step.repeat(1 << 15)].concat();
    let wide = format!("a,0,1,1{}\n", " ".repeat(56));
    let rows: String = (0..1 << 17).map(|i| format!("{i},0,1,1\n")).collect();
    for (name, bytes, said) in [
        ("newlines.csv.gz", packed(&b"\n".repeat(1 << 20), 1024), "bytes of empty lines"),
        ("spaces.csv.gz", packed(&b" \n".repeat(1 << 19), 512), "bytes of empty lines"),
        ("rows.csv.gz", packed(wide.repeat(1 << 14).as_bytes(), 2048), "unpack it with gunzip"),
        ("line.csv.gz", packed(&b"a".repeat(1 << 20), 512), "65536 bytes or more"),
        ("many.csv.gz", packed(rows.as_bytes(), 40), "the most that can be read"),
        (
            "steps.jsonl.gz",
            packed(&steps, 1).into_iter().chain(packed(&step.repeat(1 << 15), 512)).collect(),
            "unpack it with gunzip",
        ),
        ("graph.json.gz", packed(&b" ".repeat(1 << 20), 512), "65536 bytes or more"),
        (
            "graph2.json.gz",
            [packed(b"{\n", 1), packed(&b" ".repeat(1 << 20), 512)].concat(),
            "33554432 bytes",
        ),
    ] {
        let path = folder.join(name);
        fs::write(&path, bytes).unwrap();
        let begin = Instant::now();
        let output = run(&["plan", path.to_str().unwrap()]);
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{name}: {message}");
        assert!(message.contains(said), "{name}: {message}");
        assert!(begin.elapsed() < Duration::from_secs(20), "{name}");
        fs::remove_file(path).unwrap();
    }
}

/// Each planner returns a placement or an error when its time limit is over.
#[test]
fn a_time_limit_holds_for_all_planners() {
    let folder = folder("plan-csv-time");
    let path = folder.join("many.csv");
    let mut seed = 1_u64;
    let mut below = |end: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % end
    };
    let row = |i: u64| {
        let lower = below(1_000_000);
        format!("{i},{lower},{},{}\n", lower + 1 + below(300), 512 * (1 + below(1_000_000)))
    };
    let rows: String = (0..20_000).map(row).collect();
    fs::write(&path, format!("id,lower,upper,size\n{rows}")).unwrap();
    let reuse = "two-level,two-level:3,two-level:9,gaps-size,gaps-area,interval-move,portfolio";
    let args = ["plan", path.to_str().unwrap(), "--time", "0.3", "--reuse", reuse, "--json", "-"];
    let output = run(&args);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    for line in text.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        assert!(row["seconds"].as_f64().unwrap() < 3.0, "{row}");
        if row["reuse"] == "two-level:9" {
            let refusal = row["refusal"].as_str().unwrap();
            assert!(
                refusal.starts_with("two-level:9 ran out of time: allow more time"),
                "{refusal}"
            );
        }
    }
    assert_eq!(text.lines().count(), 7);
}
