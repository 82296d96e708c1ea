//! Code that the tests share.

// Some tests are crates of their own and use only a part of this module.
#![allow(dead_code)]

#[cfg(feature = "cli")]
pub mod command;
pub mod custom;
pub mod device;
pub mod faulty;
pub mod heard;
pub mod history;
pub mod learner;
pub mod log;
pub mod program;
#[cfg(feature = "lab")]
pub mod slow_fabric;
pub mod torch;
pub mod toy;
#[cfg(feature = "lab")]
pub mod training;
pub mod walk;

use proptest::test_runner::{Config, RngSeed};

/// Configuration of `n` cases, the same in each run. If the environment variable `PROPTEST_CASES`
/// is set, that number of other cases is drawn.
pub fn cases(n: u32) -> Config {
    let given = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok());
    let defaults = Config::default();
    let rng_seed = match (given, defaults.rng_seed) {
        (None, RngSeed::Random) => RngSeed::Fixed(1),
        (_, seed) => seed,
    };
    Config {
        cases: given.unwrap_or(n),
        failure_persistence: None,
        max_shrink_iters: 20_000,
        rng_seed,
        ..defaults
    }
}

/// Cells of a grid of slow tests: one of every `one_in` cells, or all cells if `REMAT_ALL_CELLS` is
/// set. `.ci/release` sets it.
pub fn cells<T>(all: impl IntoIterator<Item = T>, one_in: usize) -> impl Iterator<Item = T> {
    let is_whole = std::env::var_os("REMAT_ALL_CELLS").is_some();
    all.into_iter().step_by(if is_whole { 1 } else { one_in })
}

/// Prints no message for panics with the payload "on purpose". Thousands of panic messages would
/// hide all other output.
pub fn say_nothing_of_what_is_on_purpose() {
    let others = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if panic.payload_as_str() != Some("on purpose") {
            others(panic);
        }
    }));
}

/// Text of a failure, without the numbers of bytes in use and free.
pub fn kind(error: &remat::Error) -> String {
    match error {
        remat::Error::OutOfMemory(e) => format!("out of memory: {} wants {}", e.op, e.wanted),
        other => other.to_string(),
    }
}
