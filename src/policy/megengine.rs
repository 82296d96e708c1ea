use super::classes::Classes;
use super::{Exponents, Lowered, Policy, View};
use crate::engine::StorageKey;

/// The evaluation function of MegEngine's dynamic DTR, which MegTaiChi calls DTE:
///
/// ```text
/// (neighbour cost + 1e-3)^a * 1.0001^recomputed / ((MiB + free neighbours' MiB)^b * (staleness + 1e-3)^c)
/// ```
///
/// The neighbours are the inputs and sibling outputs of the producer, with union-find classes. As in
/// MegEngine's code the tensor's own cost is left out by default; unlike there, `recomputed` counts.
#[derive(Debug, Default)]
pub struct MegEngine {
    exponents: Exponents,
    own_cost: bool,
    classes: Classes,
}

impl MegEngine {
    /// With exponents, and with or without the tensor's own cost.
    #[must_use]
    pub fn new(exponents: Exponents, own_cost: bool) -> Self {
        Self { exponents, own_cost, classes: Classes::default() }
    }
}

impl Policy for MegEngine {
    fn score(&mut self, candidate: StorageKey, view: View<'_>) -> f64 {
        let table = view.table;
        let own = if self.own_cost { table.own_cost(candidate) } else { 0.0 };
        let around =
            self.classes.cost_of(table.sources(candidate).chain(table.siblings(candidate)));
        let free = view.free_neighbour_bytes(candidate) as f64 / f64::from(1 << 20);
        let again = 1.0001f64.powi(table.storage(candidate).recomputed.min(1 << 20) as i32);
        let cost = own + around + 1e-3;
        let bytes = view.mebibytes(candidate) + free;
        let staleness = view.staleness(candidate) + 1e-3;
        if self.exponents == Exponents::default() {
            return cost * again / (bytes * staleness);
        }
        let Exponents { cost: a, bytes: b, staleness: c } = self.exponents;
        cost.powf(a) * again / (bytes.powf(b) * staleness.powf(c))
    }

    fn did_evict(&mut self, key: StorageKey, view: View<'_>) {
        self.classes.join(key, view.table);
    }

    fn did_regenerate(&mut self, key: StorageKey, _: View<'_>, _: &mut Lowered) {
        self.classes.leave(key);
    }

    fn will_forget(&mut self, key: StorageKey, _: View<'_>, _: &mut Lowered) {
        self.classes.leave(key);
    }
}
