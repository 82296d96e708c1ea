//! Checks a property of random programs. Each run has the same programs, unless an environment
//! variable requests others.

use super::watch;
use crate::common::cases;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestError, TestRunner};

/// Environment variable with the number of other programs.
const OTHERS: &str = "REMAT_RANDOM_PROGRAMS";

/// Calls `body` with `n` programs, the same in each run. Returns `true` for these programs, because
/// their figures are known.
///
/// If `REMAT_RANDOM_PROGRAMS` is set to a number, each run draws other programs: this number
/// divided by `share`. The seed is printed, and `PROPTEST_RNG_SEED` repeats a run.
pub fn check<S: Strategy<Value: Clone + Sync>>(
    name: &str,
    n: u32,
    share: u32,
    strategy: S,
    body: impl Fn(&S::Value),
) -> bool {
    let others = std::env::var(OTHERS).ok().map(|n| {
        let n: u32 = n.parse().unwrap_or_else(|_| panic!("{OTHERS}={n} is no number"));
        n.div_ceil(share)
    });
    let mut config = Config { max_shrink_iters: 2000, ..cases(others.unwrap_or(n)) };
    if others.is_some() && std::env::var_os("PROPTEST_RNG_SEED").is_none() {
        let now = std::time::UNIX_EPOCH.elapsed().expect("it is later than 1970");
        config.rng_seed = RngSeed::Fixed(now.as_nanos() as u64);
    }
    if let RngSeed::Fixed(seed) = config.rng_seed {
        println!("{name}: {} programs, PROPTEST_RNG_SEED={seed}", config.cases);
    }
    let usual = others.is_none() && config.cases >= n;
    let result = TestRunner::new(config).run(&strategy, |value| {
        watch::during(|| format!("{name}: {value:#?}"), || body(&value));
        Ok(())
    });
    match result {
        Ok(()) => usual,
        Err(TestError::Fail(why, value)) => panic!("{name}: {why}\n{value:#?}"),
        Err(error) => panic!("{name}: {error}"),
    }
}
