//! What the tests share.

// Each test file is a crate of its own and uses a part of this.
#![allow(dead_code)]

pub mod device;
pub mod faulty;
pub mod history;
pub mod learner;
pub mod log;
pub mod program;
pub mod toy;
#[cfg(feature = "lab")]
pub mod training;

use proptest::test_runner::Config;

/// So many cases, or as many as `PROPTEST_CASES` says.
pub fn cases(n: u32) -> Config {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok());
    Config {
        cases: asked.unwrap_or(n),
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..Config::default()
    }
}
