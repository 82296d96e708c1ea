//! Runs the `remat` program as a user does, and makes data for it.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Command `remat ARGS`, without the environment variables that change logging and color.
pub fn remat(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_remat"));
    command.args(args).env_remove("RUST_LOG").env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
    command
}

pub fn run(args: &[&str]) -> Output {
    remat(args).output().expect("the program starts")
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs `remat train ARGS --json -` and returns the JSON object, which must be all of stdout.
pub fn train(args: &[&str]) -> Value {
    let output = run(&[&["train", "--quiet", "--json", "-"], args].concat());
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    assert!(output.stderr.is_empty(), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).expect("stdout is one JSON object")
}

/// Runs `base` with each of `cases` and compares each result with that of the first case. Prints a
/// line of figures per case.
pub fn same_bits(base: &[&str], cases: &[&[&str]]) {
    let mut expected = None;
    for case in cases {
        let report = train(&[base, case].concat());
        let number = |field: &str| report[field].as_f64().unwrap_or_else(|| panic!("{field}"));
        println!(
            "{:44} peak {:>9} of {:>9}  {:6.2} s  {:5} evictions  {:5} recomputed",
            case.join(" "),
            report["peak_bytes"],
            report["budget_bytes"],
            number("train_seconds"),
            report["evictions"],
            report["recomputed_ops"],
        );
        assert!(number("peak_bytes") <= number("budget_bytes"), "{case:?}");
        let tight = number("budget_bytes") <= 0.6 * number("full_budget_bytes");
        assert!(!tight || number("evictions") > 0.0, "{case:?}");
        assert!(!tight || number("recomputed_ops") > 0.0, "{case:?}");
        let result = [&report["params_sha256"], &report["final_loss"], &report["test_accuracy"]];
        let result = result.map(Value::to_string);
        assert_eq!(*expected.get_or_insert_with(|| result.clone()), result, "{case:?}");
    }
}

/// Makes an empty folder in the temporary directory, for a test. Removes the folders that processes
/// which have ended left under this name, because the data of some tests takes 300 MB.
pub fn folder(name: &str) -> PathBuf {
    let all = std::env::temp_dir();
    for entry in std::fs::read_dir(&all).unwrap().flatten() {
        let file = entry.file_name().into_string().unwrap_or_default();
        let process = file.strip_prefix("remat-cli-").and_then(|rest| rest.split_once('-'));
        let has_ended = |process: &str| !Path::new("/proc").join(process).exists();
        if process.is_some_and(|(process, of)| of == name && has_ended(process)) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
    let folder = all.join(format!("remat-cli-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Folder of images in MNIST's format: `images[0]` to train on and `images[1]` to test on.
///
/// The images are noise, except for a bright row that tells the class.
pub fn mnist(name: &str, side: usize, images: [usize; 2]) -> PathBuf {
    let folder = folder(name);
    let size = side * side;
    for (part, n) in ["train", "t10k"].into_iter().zip(images) {
        let file = |magic: u32, sizes: &[usize], data: Vec<u8>| {
            let sizes = sizes.iter().map(|&size| u32::try_from(size).unwrap());
            let head = std::iter::once(magic).chain(sizes).flat_map(u32::to_be_bytes);
            head.chain(data).collect::<Vec<u8>>()
        };
        let pixel = |i: usize| match (i % size / side) % 20 == 2 * (i / size % 10) {
            true => 255,
            false => (i * 7919 % 251 / 4) as u8,
        };
        let images = file(0x803, &[n, side, side], (0..n * size).map(pixel).collect());
        let labels = file(0x801, &[n], (0..n).map(|i| (i % 10) as u8).collect());
        std::fs::write(folder.join(format!("{part}-images-idx3-ubyte")), images).unwrap();
        std::fs::write(folder.join(format!("{part}-labels-idx1-ubyte")), labels).unwrap();
    }
    folder
}

pub fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}
