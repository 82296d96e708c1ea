//! Settings that must not change the bits: memory, eviction, and the number of threads.

use crate::common::program::draw::policy as named_policy;
use proptest::prelude::*;
use remat::Dead;
use remat::{Builder, CostModelKind, PolicyKind, Runtime};

#[derive(Clone, Debug)]
pub struct Setup {
    pub budget: u64,
    pub policy: PolicyKind,
    pub costs: CostModelKind,
    pub threshold: Option<u64>,
    pub min_evict_bytes: Option<u64>,
    pub sqrt_sampling: bool,
    pub dead: Dead,
    pub regeneration_limit: Option<f64>,
    pub recompute_limit: Option<f64>,
    pub threads: usize,
    /// Seed of the policy and of random ops. Unlike all other settings, the seed changes the bits.
    pub seed: u64,
}

/// Settings with a budget in proportion to the program's peak without a limit.
#[derive(Clone, Debug)]
pub struct Shares {
    pub budget: f64,
    pub threshold: Option<f64>,
    pub rest: Setup,
}

impl Setup {
    /// Settings with more memory than any of these programs takes.
    pub fn plenty(seed: u64, threads: usize) -> Self {
        Self {
            budget: 1 << 30,
            policy: PolicyKind::None,
            costs: CostModelKind::Flops,
            threshold: None,
            min_evict_bytes: None,
            sqrt_sampling: false,
            dead: Dead::Drop,
            regeneration_limit: None,
            recompute_limit: None,
            threads,
            seed,
        }
    }

    pub fn builder(&self) -> Builder {
        let mut builder = Runtime::builder()
            .budget(self.budget)
            .policy(self.policy)
            .cost_model(self.costs)
            .sqrt_sampling(self.sqrt_sampling)
            .dead(self.dead)
            .threads(self.threads)
            .seed(self.seed);
        if let Some(threshold) = self.threshold {
            builder = builder.eviction_threshold(threshold);
        }
        // Two of three setups verify recomputed values, to test that the verification never reports
        // right values.
        if let Some(share) = [None, Some(1.0), Some(0.25)][(self.seed % 3) as usize] {
            builder = builder.verify_recomputed(share);
        }
        if let Some(bytes) = self.min_evict_bytes {
            builder = builder.min_evict_bytes(bytes);
        }
        if let Some(limit) = self.regeneration_limit {
            builder = builder.regeneration_limit(limit);
        }
        if let Some(limit) = self.recompute_limit {
            builder = builder.recompute_limit(limit);
        }
        builder
    }
}

impl Shares {
    /// Settings for a program whose peak is `peak` bytes.
    pub fn of(&self, peak: u64) -> Setup {
        // The final check, that the runtime still computes, needs at least 2,048 bytes.
        let budget = ((peak as f64 * self.budget) as u64).max(2048);
        let threshold = self.threshold.map(|share| (budget as f64 * share) as u64);
        Setup { budget, threshold, ..self.rest.clone() }
    }
}

fn policy() -> impl Strategy<Value = PolicyKind> {
    prop_oneof![
        // `none` is one of the named policies, and need not come more often.
        4 => named_policy(),
        1 => prop::sample::select(PolicyKind::ablations()),
    ]
}

/// Budgets that are mostly too small and sometimes enough.
pub fn shares() -> impl Strategy<Value = Shares> {
    let budget = prop_oneof![1 => 0.02..0.3f64, 8 => 0.3..0.9f64, 2 => 0.9..1.3f64];
    let costs = prop::sample::select(vec![
        CostModelKind::Flops,
        CostModelKind::Bytes,
        CostModelKind::Measured,
    ]);
    let least = prop_oneof![
        6 => Just(Some(0u64)),
        2 => Just(None),
        2 => (1..4096u64).prop_map(Some),
        1 => Just(Some(u64::MAX)),
    ];
    let dead = prop::sample::select(vec![Dead::Linger, Dead::Drop, Dead::Keep]);
    let limits = (
        prop_oneof![5 => Just(None), 1 => (1.0..4.0f64).prop_map(Some)],
        prop_oneof![9 => Just(None), 1 => (0.0..3.0f64).prop_map(Some)],
    );
    let whole = (budget, prop::option::weighted(0.3, 0.0..=1.0f64));
    (whole, policy(), costs, least, any::<bool>(), dead, limits, 1..4usize, any::<u64>()).prop_map(
        |(
            (budget, threshold),
            policy,
            costs,
            min_evict_bytes,
            sqrt_sampling,
            dead,
            (regeneration_limit, recompute_limit),
            threads,
            seed,
        )| Shares {
            budget,
            threshold,
            rest: Setup {
                policy,
                costs,
                min_evict_bytes,
                sqrt_sampling,
                dead,
                regeneration_limit,
                recompute_limit,
                ..Setup::plenty(seed, threads)
            },
        },
    )
}
