//! Tests that count the threads or the memory of the process, or that log for the whole process.
//! Each of these tests runs in a process of its own: [`alone`] starts this program again, for one
//! test.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/counting.rs"]
mod counting;

#[cfg(feature = "serde")]
mod checkpoint_memory;
mod kept;
mod lines;
#[cfg(target_os = "linux")]
mod resident;
#[cfg(target_os = "linux")]
mod runtimes;
mod silence;
mod spans;

use std::process::Command;

/// Environment variable that is set in the process of a single test.
const ALONE: &str = "REMAT_TEST_ALONE";

/// Runs `body` in a process of its own, which runs only the test `name`, such as
/// `kept::the_heap_grows`. The test must call `alone` and do nothing else.
///
/// # Panics
/// Panics if `body` panics, or if no test has this name.
fn alone(name: &str, body: impl FnOnce()) {
    if std::env::var_os(ALONE).is_some() {
        return body();
    }
    let mut program = Command::new(std::env::current_exe().unwrap());
    let program = program.args([name, "--exact", "--nocapture"]).env(ALONE, "1");
    let output = program.output().unwrap();
    let [told, why] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    println!("{told}");
    assert!(output.status.success(), "{why}");
    assert!(told.contains("1 passed"), "no test is called {name}");
}

/// Figure of the process, such as `VmRSS` (in KiB) or `Threads`.
#[cfg(target_os = "linux")]
fn status(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
