//! Strategies that draw random programs and settings.

use super::super::toy::Broken;
use super::{Drawn, Recipe, Setup};
use proptest::prelude::*;
use remat::Dead;
use remat::evict::Exponents;
use remat::unstable::evict::MegEngine;
use remat::{CostModelKind, PolicyKind};

fn tensor() -> impl Strategy<Value = usize> {
    // Mostly new tensors, as in usual programs.
    prop_oneof![3 => 0..4usize, 2 => 0..64usize]
}

fn size() -> impl Strategy<Value = usize> {
    prop_oneof![6 => 1..100usize, 1 => 0..3usize, 1 => 100..400usize]
}

/// Sizes of an op's outputs. An op without outputs is run for its effect.
fn sizes() -> impl Strategy<Value = Vec<usize>> {
    prop_oneof![9 => prop::collection::vec(size(), 1..4), 1 => Just(Vec::new())]
}

fn inputs() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(tensor(), 1..4)
}

pub fn drawn() -> impl Strategy<Value = Drawn> {
    let how = prop_oneof![Just(Broken::Fails), Just(Broken::Panics)];
    prop_oneof![
        6 => (size(), 0..4u64).prop_map(|(bytes, seed)| Drawn::Put { bytes, seed }),
        2 => (size(), 0..4u64).prop_map(|(bytes, seed)| Drawn::Draw { bytes, seed }),
        24 => (inputs(), size(), prop_oneof![3 => Just(0u64), 1 => 1..200u64])
            .prop_map(|(inputs, bytes, scratch)| Drawn::Mix { inputs, bytes, scratch }),
        6 => (inputs(), sizes()).prop_map(|(inputs, bytes)| Drawn::Split { inputs, bytes }),
        2 => (prop::collection::vec(tensor(), 0..3), size())
            .prop_map(|(inputs, bytes)| Drawn::Once { inputs, bytes }),
        8 => (inputs(), 1..3usize, prop::option::of(size()))
            .prop_map(|(inputs, targets, fresh)| Drawn::Update { inputs, targets, fresh }),
        6 => (inputs(), prop_oneof![6 => Just(0), 1 => 1..4u32], how.clone())
            .prop_map(|(inputs, run, how)| Drawn::Over { inputs, run, how }),
        2 => prop::collection::vec(inputs(), 1..5).prop_map(|inputs| Drawn::UpdateAll { inputs }),
        4 => (tensor(), tensor()).prop_map(|(target, value)| Drawn::Replace { target, value }),
        2 => (inputs(), sizes(), 1..4u32, how)
            .prop_map(|(inputs, bytes, run, how)| Drawn::Break { inputs, bytes, run, how }),
        4 => (tensor(), 0..64usize, 0..64usize)
            .prop_map(|(input, start, len)| Drawn::Slice { input, start, len }),
        2 => (tensor(), 1..5usize).prop_map(|(input, rows)| Drawn::Turn { input, rows }),
        1 => (tensor(), 1..4usize).prop_map(|(input, times)| Drawn::Repeat { input, times }),
        2 => (tensor(), 0..64usize).prop_map(|(input, at)| Drawn::Halves { input, at }),
        2 => tensor().prop_map(|input| Drawn::Alias { input }),
        1 => tensor().prop_map(|input| Drawn::Label { input }),
        18 => tensor().prop_map(|input| Drawn::Del { input }),
        4 => tensor().prop_map(|input| Drawn::DropNow { input }),
        2 => tensor().prop_map(|input| Drawn::Commit { input }),
        6 => tensor().prop_map(|input| Drawn::Get { input }),
        2 => Just(Drawn::Step),
    ]
}

pub fn recipe(len: usize) -> impl Strategy<Value = Recipe> {
    prop::collection::vec((drawn(), any::<bool>()), 1..len)
}

pub fn policy() -> impl Strategy<Value = PolicyKind> {
    let exponent =
        prop_oneof![Just(1.0), Just(0.0), Just(-1.5), Just(0.3), Just(40.0), Just(f64::NAN)];
    let megengine = (exponent.clone(), exponent.clone(), exponent, any::<bool>()).prop_map(
        |(cost, bytes, staleness, own_cost)| PolicyKind::MegEngine {
            exponents: Exponents { cost, bytes, staleness },
            own_cost,
            rerun_factor: MegEngine::RERUN_FACTOR,
        },
    );
    prop_oneof![
        2 => Just(PolicyKind::megengine()),
        2 => megengine,
        1 => Just(PolicyKind::Dtr),
        2 => Just(PolicyKind::DtrEq),
        1 => Just(PolicyKind::DtrLocal),
        1 => Just(PolicyKind::Lru),
        1 => Just(PolicyKind::Largest),
        1 => Just(PolicyKind::Msps),
        2 => Just(PolicyKind::Random),
        1 => Just(PolicyKind::None),
    ]
}

pub fn setup() -> impl Strategy<Value = Setup> {
    let budget = prop_oneof![1 => 64..400u64, 4 => 400..1500u64, 1 => 1500..8000u64];
    let costs = prop_oneof![
        Just(CostModelKind::Flops),
        Just(CostModelKind::Bytes),
        Just(CostModelKind::Measured)
    ];
    let dead = prop_oneof![Just(Dead::Linger), Just(Dead::Drop), Just(Dead::Keep)];
    let limit = prop_oneof![4 => Just(Setup::plenty().regeneration_limit), 1 => 1.0..4.0f64];
    (
        budget,
        policy(),
        costs,
        prop::option::weighted(0.3, 0.0..=1.0f64),
        prop_oneof![3 => Just(0u64), 1 => 1..200u64, 1 => Just(u64::MAX)],
        any::<bool>(),
        dead,
        limit,
        any::<u64>(),
        any::<bool>(),
    )
        .prop_map(
            |(
                budget,
                policy,
                costs,
                threshold,
                min_evict_bytes,
                sqrt_sampling,
                dead,
                regeneration_limit,
                seed,
                admit,
            )| {
                let threshold = threshold.map(|part| (budget as f64 * part) as u64);
                Setup {
                    budget,
                    policy,
                    costs,
                    threshold,
                    min_evict_bytes,
                    sqrt_sampling,
                    dead,
                    regeneration_limit,
                    seed,
                    admit,
                }
            },
        )
}
