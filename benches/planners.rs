//! Time of planners, and the size of their placements divided by the load.
//!
//! Each planner plans random training steps with 10^4, 10^5 and 10^6 buffers
//! (`plan::random::step`), and the files of buffers in `../shared/data`, if that folder exists.
//! MiniMalloc's files have up to 300 buffers and are hard to place; idealloc's files have up to
//! 30,000 buffers.
//!
//! The baseline is `best-fit`, which places buffers in order of time, like an allocator.
//!
//! The result is the quickest of up to five rounds. No round begins after the first second. Search
//! planners have a limit of three seconds. `-- NAME ...` runs only the named planners.

use remat::unstable::plan::{self, Instance, Lifetimes, Limits, Lives, random};
use std::fs::{self, File};
use std::hint::black_box;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const ROUNDS: usize = 5;
const ENOUGH: Duration = Duration::from_secs(1);
const SEARCH: Duration = Duration::from_secs(3);
const SEED: u64 = 1;

fn main() {
    // Cargo's own arguments come first: `--bench`.
    let names: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    for power in 4..=6 {
        let count = 10_usize.pow(power);
        table(&format!("random, 10^{power} buffers"), &random::step(SEED, count), &names);
    }
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data");
    if !data.is_dir() {
        println!("there is no ../shared/data: no files of buffers");
    }
    for path in ["minimalloc", "planning"].iter().flat_map(|folder| files(&data.join(folder))) {
        let file = BufReader::new(File::open(&path).expect("it was listed"));
        match Instance::read(file, Lives::HalfOpen) {
            Ok(instance) => {
                let name = path.file_stem().unwrap_or_default().to_string_lossy();
                let count = instance.ids().len();
                table(&format!("{name}, {count} buffers"), instance.lifetimes(), &names);
            }
            Err(error) => println!("{}: {error}", path.display()),
        }
    }
}

/// Files of buffers in a folder, by name. Empty if there is no folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|end| end == "csv"));
    files.sort();
    files
}

fn table(title: &str, lifetimes: &Lifetimes, names: &[String]) {
    let load = lifetimes.load();
    println!("{title}, load {load}");
    for planner in plan::all() {
        let name = planner.name();
        if !names.is_empty() && !names.contains(&name) {
            continue;
        }
        let mut best = Duration::MAX;
        let mut spent = Duration::ZERO;
        let mut found = None;
        for _ in 0..ROUNDS {
            let start = Instant::now();
            let planned = black_box(planner.plan(black_box(lifetimes), &Limits::within(SEARCH)));
            let time = start.elapsed();
            best = best.min(time);
            spent += time;
            let refused = planned.is_err();
            found = Some(planned);
            if refused || spent > ENOUGH {
                break;
            }
        }
        match found.expect("there is a round") {
            Ok(planned) => {
                let ratio = planned.placement.bytes() as f64 / load as f64;
                let proven = if planned.proven { "  proven" } else { "" };
                println!("  {name:20} {:>12.3} ms  {ratio:.4}{proven}", best.as_secs_f64() * 1e3);
            }
            Err(error) => println!("  {name:20} {error}"),
        }
    }
}
