//! Whatever the budget, the policy and the options: every value read has the bits it has without a
//! budget, or its error was reported; memory in use stays within the budget; and the same program with
//! the same settings does exactly the same again.

mod common;

use common::cases;
use common::program::draw::{policy, program, setup};
use common::program::{Command, Program, Setup, play};
use proptest::prelude::*;
use remat::{CostModelKind, PolicyKind};

proptest! {
    #![proptest_config(cases(2000))]

    #[test]
    fn any_program_reads_the_same_bits_under_any_settings(
        program in program(80),
        setup in setup(),
    ) {
        play(&program, &setup);
    }
}

proptest! {
    #![proptest_config(cases(500))]

    #[test]
    fn the_same_again_evicts_the_same(program in program(80), mut setup in setup()) {
        if setup.costs == CostModelKind::Measured {
            setup.costs = CostModelKind::Bytes;
        }
        prop_assert_eq!(play(&program, &setup), play(&program, &setup));
    }

    #[test]
    fn with_plenty_of_memory_nothing_is_evicted_and_nothing_fails(
        program in program(80),
        policy in policy(),
        costs in prop_oneof![Just(CostModelKind::Flops), Just(CostModelKind::Bytes)],
    ) {
        let setup = Setup { policy, costs, ..Setup::plenty() };
        let played = play(&program, &setup);
        prop_assert_eq!(played.failures, 0);
        prop_assert_eq!(played.stats.score_evaluations, 0);
        prop_assert_eq!(played.stats.compactions, 0);
        let baseline = play(&program, &Setup { policy: PolicyKind::None, ..setup });
        prop_assert_eq!(played.history, baseline.history, "the policy does not matter");
    }
}

/// Found by a random program.
#[test]
fn a_draw_that_fails_takes_back_what_was_replaced() {
    let program: Program = [
        Command::Put { bytes: 17, seed: 0 },
        Command::Put { bytes: 17, seed: 1 },
        Command::Replace { target: 1, value: 0 },
        Command::Draw { bytes: 97, seed: 0 },
    ]
    .map(|command| (command, false))
    .into();
    let setup = Setup { budget: 64, ..Setup::plenty() };
    assert_eq!(play(&program, &setup).failures, 1);
}
