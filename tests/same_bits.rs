//! Whatever the budget, the policy and the options, each value that is read has the bits that it
//! has without a budget, or its error was reported. Memory in use stays within the budget. Two runs
//! of a program with equal settings make the same evictions.

use crate::common::cases;
use crate::common::program::draw::{policy, recipe, setup};
use crate::common::program::play::play;
use crate::common::program::{Drawn, Recipe, Setup};
use crate::common::toy::Broken::Fails;
use proptest::prelude::*;
use remat::evict::Exponents;
use remat::{CostModelKind, PolicyKind};

proptest! {
    #![proptest_config(cases(2000))]

    #[test]
    fn any_program_reads_the_same_bits_under_any_settings(
        recipe in recipe(80),
        setup in setup(),
    ) {
        play(&recipe, &setup);
    }
}

proptest! {
    #![proptest_config(cases(500))]

    #[test]
    fn the_same_again_evicts_the_same(recipe in recipe(80), mut setup in setup()) {
        if setup.costs == CostModelKind::Measured {
            setup.costs = CostModelKind::Bytes;
        }
        prop_assert_eq!(play(&recipe, &setup), play(&recipe, &setup));
    }

    #[test]
    fn commands_admitted_before_they_run_run_the_same(recipe in recipe(80), mut setup in setup()) {
        if setup.costs == CostModelKind::Measured {
            setup.costs = CostModelKind::Bytes;
        }
        let played = [false, true].map(|admit| play(&recipe, &Setup { admit, ..setup.clone() }));
        prop_assert_eq!(&played[0], &played[1]);
    }

    /// `policy()` does not draw `megengine-article`, which would change the programs of all other
    /// tests.
    #[test]
    fn so_it_is_with_megengine_article(recipe in recipe(80), setup in setup()) {
        let setup = Setup { policy: PolicyKind::megengine_article(), ..setup };
        let played = play(&recipe, &setup);
        if setup.costs != CostModelKind::Measured {
            prop_assert_eq!(played, play(&recipe, &setup));
        }
    }

    #[test]
    fn with_plenty_of_memory_nothing_is_evicted_and_nothing_fails(
        recipe in recipe(80),
        policy in policy(),
        costs in prop_oneof![Just(CostModelKind::Flops), Just(CostModelKind::Bytes)],
    ) {
        let setup = Setup { policy, costs, ..Setup::plenty() };
        let played = play(&recipe, &setup);
        prop_assert_eq!(played.failures, 0);
        prop_assert_eq!(played.stats.score_evaluations, 0);
        prop_assert_eq!(played.stats.compactions, 0);
        let baseline = play(&recipe, &Setup { policy: PolicyKind::None, ..setup });
        prop_assert_eq!(played.history, baseline.history, "the policy does not matter");
    }
}

/// Regression, found by a random program: a failed draw must revert the replacements of its step.
#[test]
fn a_draw_that_fails_takes_back_what_was_replaced() {
    let recipe: Recipe = [
        Drawn::Put { bytes: 17, seed: 0 },
        Drawn::Put { bytes: 17, seed: 1 },
        Drawn::Replace { target: 1, value: 0 },
        Drawn::Draw { bytes: 97, seed: 0 },
    ]
    .map(|drawn| (drawn, false))
    .into();
    let setup = Setup { budget: 64, ..Setup::plenty() };
    assert_eq!(play(&recipe, &setup).failures, 1);
}

/// Regression, found by a random program: a failed run for one of several updates overwrote a value
/// that another update had to read.
#[test]
fn several_updates_read_nothing_that_a_failed_run_took() {
    let put = |bytes| Drawn::Put { bytes, seed: 0 };
    let recipe: Recipe = [
        put(1),
        Drawn::Update { inputs: vec![0], targets: 1, fresh: Some(49) },
        put(33),
        Drawn::Split { inputs: vec![0], bytes: vec![49, 1, 33] },
        Drawn::Split { inputs: vec![0], bytes: vec![1, 65] },
        Drawn::Del { input: 3 },
        put(1),
        Drawn::Break { inputs: vec![0], bytes: vec![1, 12, 1], run: 3, how: Fails },
        Drawn::Break { inputs: vec![0], bytes: vec![78], run: 2, how: Fails },
        Drawn::Break { inputs: vec![0, 1], bytes: vec![33], run: 2, how: Fails },
        Drawn::Slice { input: 0, start: 0, len: 0 },
        put(49),
        Drawn::Mix { inputs: vec![0], bytes: 81, scratch: 0 },
        put(17),
        Drawn::Del { input: 0 },
        Drawn::Commit { input: 0 },
        put(1),
        put(1),
        Drawn::Del { input: 0 },
        Drawn::Mix { inputs: vec![0], bytes: 209, scratch: 0 },
        Drawn::Halves { input: 0, at: 0 },
        Drawn::Draw { bytes: 289, seed: 0 },
        Drawn::Split { inputs: vec![11], bytes: vec![1, 1, 49] },
        Drawn::Alias { input: 0 },
        Drawn::Split { inputs: vec![61], bytes: vec![1, 81] },
        put(1),
        Drawn::Once { inputs: vec![], bytes: 1 },
        Drawn::UpdateAll { inputs: vec![vec![48], vec![17]] },
        put(1),
        put(1),
        put(1),
    ]
    .map(|drawn| (drawn, false))
    .into();
    let policy = PolicyKind::MegEngine {
        exponents: Exponents { cost: 1.0, bytes: f64::NAN, staleness: 1.0 },
        own_cost: false,
        rerun_factor: 1.0001,
    };
    let setup = Setup { budget: 1088, policy, min_evict_bytes: 0, ..Setup::plenty() };
    play(&recipe, &setup);
}
