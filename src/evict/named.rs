//! Formulas of named rules.

use super::formula::TWO_THIRDS;
use super::{Around, Exponents, Formula};

impl Formula {
    /// The DTR paper's rule h_DTR with the exact evicted neighbourhood (Kirisame et al., ICLR
    /// 2021): `(own cost + cost of the evicted neighbourhood) / (bytes * staleness)`.
    pub const DTR: Self = Self {
        own_cost: true,
        around: Around::Exact,
        free_neighbours: false,
        exponents: Exponents { cost: 1.0, bytes: 1.0, staleness: 1.0 },
    };

    /// h_DTR with the evicted neighbourhood taken from union-find classes (the paper's `h_DTR_eq`).
    pub const DTR_EQ: Self = Self { around: Around::Classes, ..Self::DTR };

    /// h_DTR without the cost of the evicted neighbourhood (the paper's `h_DTR_local`).
    pub const DTR_LOCAL: Self = Self { around: Around::Nothing, ..Self::DTR };

    /// Least recently used: `1 / staleness`.
    pub const LRU: Self = Self {
        own_cost: false,
        around: Around::Nothing,
        free_neighbours: false,
        exponents: Exponents { cost: 0.0, bytes: 0.0, staleness: 1.0 },
    };

    /// Largest first: `1 / bytes`.
    pub const LARGEST: Self =
        Self { exponents: Exponents { cost: 0.0, bytes: 1.0, staleness: 0.0 }, ..Self::LRU };

    /// Memory saved per cost: `(own cost + cost of the evicted storages needed to recompute it) /
    /// bytes`. The rule is that of Capuchin (Peng et al., ASPLOS 2020), as the DTR paper states it.
    pub const MSPS: Self = Self {
        around: Around::Sources,
        exponents: Exponents { cost: 1.0, bytes: 1.0, staleness: 0.0 },
        ..Self::DTR
    };

    /// Rule with weighted costs of evicted sources and of the nearest evicted dependents: `(own
    /// cost + weighted cost around) / (bytes * staleness^(2/3))`.
    ///
    /// [`Around::Ancestors`] has the weights. Dependents farther away do not count, because later
    /// runs restore them separately. Staleness counts less than in h_DTR. With an exponent of the
    /// staleness below 2/3, storages that were just restored are evicted again if memory is short.
    /// With an exponent above 2/3, the traces of the DTR paper recompute more.
    pub const ANCESTORS: Self = Self {
        around: Around::Ancestors,
        exponents: Exponents { cost: 1.0, bytes: 1.0, staleness: TWO_THIRDS },
        ..Self::DTR
    };
}
